package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestNearMissCases runs models that a guard of a pass or an assumption of the
// lowering must tell from what they look like.
func TestNearMissCases(t *testing.T) {
	root := filepath.Join(testData(t), "cases", "near-miss")
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Skipf("no near-miss cases: %v", err)
	}
	ran := 0
	for _, d := range dirs {
		t.Run(d.Name(), func(t *testing.T) {
			c, err := newCase(filepath.Join(root, d.Name()))
			require.NoError(t, err)
			if len(c.Sets) == 0 {
				require.Equal(t, "if_invalid_untaken", d.Name(), "a case without data sets needs a test of its own")
				return
			}
			ran++
			results, err := Run(context.Background(), c, Options{Tolerance: Tolerance{Rel: 1e-3, Abs: 1e-6}, Execute: execute})
			require.NoError(t, err)
			for _, r := range results {
				switch d.Name() {
				case "verify_json_inf": // float32 overflows in the reference alone: the verdict must say so
					require.Equal(t, Fail, r.Verdict)
					require.Contains(t, r.Reason, "want +Inf")
				default:
					require.Equal(t, Pass, r.Verdict, r.Reason)
				}
			}
		})
	}
	require.Positive(t, ran)
}

// TestIfWithImpossibleBranch runs a model whose If has a branch that does not fit
// the sizes: inputs that ask for the other one give its numbers, and the rest an
// error with a remedy, after which the session goes on.
func TestIfWithImpossibleBranch(t *testing.T) {
	path := filepath.Join(testData(t), "cases", "near-miss", "if_invalid_untaken", modelFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		t.Skip("no near-miss cases")
	}
	m, err := onnx.ReadFile(path)
	require.NoError(t, err)
	r, err := compile.Compile(m, compile.Options{})
	require.NoError(t, err)
	require.Len(t, r.Warnings, 1)
	require.Contains(t, r.Warnings[0], "else_branch can't be compiled for the sizes given")
	model, err := r.Model("if")
	require.NoError(t, err)
	defer model.Close()
	s, err := modelrt.NewSession(context.Background(), model, rt.WithBackend("cpu"))
	require.NoError(t, err)
	defer s.Close()
	buffers := map[string][]byte{}
	for _, a := range append(s.UserInputs(), s.UserOutputs()...) {
		info, _ := s.Stream(a.Handle)
		b, err := modelrt.NewBuffer(info, s.DeviceIterations())
		require.NoError(t, err)
		buffers[a.Name] = b.Bytes()
		require.NoError(t, s.Connect(context.Background(), a.Handle, b))
	}
	ask := func(v float32) error {
		x := buffers["x"]
		for i := 0; i < len(x); i += 4 {
			binary.LittleEndian.PutUint32(x[i:], math.Float32bits(v))
		}
		return s.Run(context.Background())
	}
	require.NoError(t, ask(1))
	y := string(buffers["y"])
	err = ask(-1)
	var assertion *ipu.AssertionError
	require.ErrorAs(t, err, &assertion)
	require.ErrorContains(t, err, "node 2 (If): its condition must be true")
	require.ErrorContains(t, err, "--bind x=VALUE")
	require.NoError(t, ask(1), "the session goes on")
	require.Equal(t, y, string(buffers["y"]))
}
