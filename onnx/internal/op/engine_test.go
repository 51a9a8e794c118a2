package op_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/op"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestOperatorsOnEngine compiles every operator in every form and with every
// type of its first operand, runs it on the CPU engine and compares it with
// its kernels run one by one. Results are left out in every way, as dead code
// is.
func TestOperatorsOnEngine(t *testing.T) {
	ran := 0
	for _, om := range append(op.OperatorModels(t), op.CountedModels(t)...) {
		low, err := compile.Lower(om.Model, onnx.Options{})
		require.NoError(t, err, om.Name)
		want, err := op.Interpret(low, om.Feeds)
		require.NoError(t, err, om.Name)
		all := om.Model.Graph.Outputs
		for kept := 1; kept < 1<<len(all); kept++ {
			om.Model.Graph.Outputs = nil
			expected := map[string][]byte{}
			for i, out := range all {
				if kept>>i&1 != 0 {
					om.Model.Graph.Outputs = append(om.Model.Graph.Outputs, out)
					expected[out.Name] = want[i]
				}
			}
			t.Run(fmt.Sprintf("%s/%b", om.Name, kept), func(t *testing.T) {
				r, err := compile.Compile(om.Model, compile.Options{})
				require.NoError(t, err)
				got := runEngine(t, r, om.Feeds)
				for _, p := range r.Outputs {
					// Vectors add in another order than elements one by one.
					_, cut, err := verify.Cut(p, got)
					require.NoError(t, err)
					a, b := op.Numbers(p.Type.DType, expected[p.Name]), op.Numbers(p.Type.DType, cut)
					require.Len(t, b, len(a))
					for i := range a {
						if a[i] != b[i] && !(math.IsNaN(a[i]) && math.IsNaN(b[i])) {
							require.InDelta(t, a[i], b[i], 1e-5*math.Abs(a[i])+1e-6, "element %d of %s: got %v, want %v", i, p.Name, b, a)
						}
					}
				}
				ran++
			})
		}
	}
	t.Logf("%d models", ran)
}

// runEngine runs a compiled model once on the CPU engine.
func runEngine(t *testing.T, r *compile.Result, feeds map[string][]byte) map[string][]byte {
	m, err := r.Model("test")
	require.NoError(t, err)
	defer m.Close()
	s, err := modelrt.NewSession(context.Background(), m, rt.WithBackend("cpu"), rt.WithThreads(1))
	require.NoError(t, err)
	defer s.Close()
	outputs := map[string][]byte{}
	for _, a := range append(s.UserInputs(), s.UserOutputs()...) {
		info, ok := s.Stream(a.Handle)
		require.True(t, ok, a.Handle)
		b, err := modelrt.NewBuffer(info, s.DeviceIterations())
		require.NoError(t, err)
		if a.Type == popef.Input {
			copy(b.Bytes(), feeds[a.Name])
		} else {
			outputs[a.Name] = b.Bytes()
		}
		require.NoError(t, s.Connect(context.Background(), a.Handle, b))
	}
	require.NoError(t, s.Run(context.Background()))
	return outputs
}
