package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/popef"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"popefgen": main, "wrongpopefgen": wrongMain})
}

// TestScript runs the scripts in testdata/script: each is commands with what
// they must print and how they must end. -testscript-update rewrites expected
// files.
func TestScript(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("ROOT", root)
			e.Setenv("EXAMPLES", filepath.Join(root, "generated_examples"))
			// Building generated packages needs the caches of the machine.
			for _, v := range []string{"HOME", "GOPATH", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS"} {
				if s, ok := os.LookupEnv(v); ok {
					e.Setenv(v, s)
				}
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status": status, "cut": cut, "poplar": poplarModel, "verifycase": verifyCase, "feeddata": feedData, "jsonhas": jsonHas, "zeros": zeros, "retrain": retrain, "dataset": dataSet, "npz": npzOf,
			"familymodel": familyModel, "openmodel": openModelFile, "refusedfamily": refusedFamily, "floats": floatsFile,
			"listmodel": listModelFile, "scaledmodel": scaledModelFile, "edited": edited,
		},
	})
}

// status CODE COMMAND… runs popefgen and wants exactly that exit code.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE ARGUMENT…")
	}
	// Scripts run side by side, so the command gets a process of its own.
	err := ts.Exec("popefgen", args[1:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(ts.ReadFile("stdout")), 0o666))
	ts.Check(os.WriteFile(ts.MkAbs("err"), []byte(ts.ReadFile("stderr")), 0o666))
	if args[0] != strconv.Itoa(code) {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// cut N FILE TO writes the first N bytes of FILE.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	b, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), b[:n], 0o666))
}

// retrain MODEL TO writes a PopEF model with other weights.
func retrain(ts *testscript.TestScript, neg bool, args []string) {
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	r := popef.NewReader()
	ts.Check(r.AddBytes(args[0], data))
	to := slices.Clone(data)
	for _, b := range r.Blobs() {
		if b.Kind != popef.TensorBlob || b.Info.DataType != popef.F32 {
			continue
		}
		for w := to[b.PayloadOffset:][:b.PayloadSize]; len(w) >= 4; w = w[4:] {
			v := math.Float32frombits(binary.LittleEndian.Uint32(w))
			binary.LittleEndian.PutUint32(w, math.Float32bits(v*1.01))
		}
	}
	ts.Check(r.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), to, 0o666))
}

func TestReorder(t *testing.T) {
	for range 2 { // the library changes commands when they run
		require.Zero(t, Run(t.Context(), []string{"version"}, nil, &bytes.Buffer{}, &bytes.Buffer{}))
		require.Zero(t, Run(t.Context(), []string{"inspect", "--help"}, nil, &bytes.Buffer{}, &bytes.Buffer{}))
	}
	app := newApp(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	for _, c := range []struct{ in, want string }{
		{"compile a.onnx -o b.popef --quiet", "compile -o b.popef --quiet -- a.onnx"},
		{"compile --constants a.onnx --dim=N=3", "compile --constants --dim=N=3 -- a.onnx"},
		{"inspect a b --json c", "inspect --json -- a b c"},
		{"run -- -odd.popef --threads", "run -- -odd.popef --threads"},
		{"compile a.onnx --dim", "compile --dim"},
		{"nonsense -x y", "nonsense -x y"},
		{"golden record m.popef -o d --cases 2", "golden record -o d --cases 2 -- m.popef"},
		{"golden record", "golden record --"},
		{"golden nonsense -x y", "golden nonsense -x y"},
	} {
		require.Equal(t, c.want, strings.Join(reorder(app, strings.Fields(c.in)), " "))
	}
}

func TestTable(t *testing.T) {
	tab := table.New("NAME", "SIZE")
	tab.Row("größe", 5)
	tab.Row("x", 12345)
	var b bytes.Buffer
	require.NoError(t, tab.Print(&b))
	require.Equal(t, "NAME    SIZE\ngröße      5\nx      12345\n", b.String())
}
