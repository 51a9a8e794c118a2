package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

// wrongMain is a build of popefgen with mistakes. Where it runs a model with its own
// kernels, and not in plain Go, Tanh gives what Erf does, Sin panics and Cos
// does not end.
func wrongMain() {
	if args := os.Args; args[1] == "run" && os.Getenv("POPEFGEN_CPU") != "go" {
		m, err := onnx.ReadFile(args[len(args)-1])
		if err != nil {
			panic(err)
		}
		for _, n := range m.Graph.Nodes {
			switch n.OpType {
			case "Tanh":
				n.OpType = "Erf"
			case "Sin":
				panic(fmt.Sprintf("index %d is out of range", len(m.Graph.Nodes)))
			case "Cos":
				time.Sleep(time.Hour)
			}
		}
		b, err := onnx.Encode(m)
		if err != nil {
			panic(err)
		}
		args[len(args)-1] += ".wrong.onnx"
		if err := os.WriteFile(args[len(args)-1], b, 0o666); err != nil {
			panic(err)
		}
	}
	main()
}

// reduceModelFile writes a model of y = softmax(a(relu(x)·w) + b), z = sigmoid(x),
// whose function a is op.
func reduceModelFile(t *testing.T, op string) (path string) {
	t.Helper()
	n := func(op, out string, in ...string) *onnx.Node {
		return &onnx.Node{OpType: op, Inputs: in, Outputs: []string{out}}
	}
	value := func(name string, dims ...int64) onnx.ValueInfo {
		v := onnx.ValueInfo{Name: name, Elem: onnx.Float, HasShape: true}
		for _, d := range dims {
			v.Dims = append(v.Dims, onnx.Dim{Known: true, Value: d})
		}
		return v
	}
	tensor := func(name string, dims ...int64) *onnx.Tensor {
		t := &onnx.Tensor{Name: name, Elem: onnx.Float, Dims: dims}
		count := int64(1)
		for _, d := range dims {
			count *= d
		}
		for i := range count {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(float32(i%5)*0.3-0.5))
		}
		return t
	}
	m := &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: &onnx.Graph{Name: "g",
		Nodes: []*onnx.Node{
			n("Relu", "r", "x"), n("MatMul", "m", "r", "w"), n(op, "a", "m"), n("Add", "s", "a", "b"), n("Softmax", "y", "s"), n("Sigmoid", "z", "x"),
		},
		Inputs: []onnx.ValueInfo{{Name: "x", Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Symbol: "N"}, {Known: true, Value: 8}}}}, Outputs: []onnx.ValueInfo{value("y", 2, 8), value("z", 2, 8)},
		Initializers: []*onnx.Tensor{tensor("w", 8, 8), tensor("b", 8)},
	}}
	b, err := onnx.Encode(m)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "m.onnx")
	require.NoError(t, os.WriteFile(path, b, 0o666))
	return path
}

// program runs a program of the tests.
func program(t *testing.T, name string, args ...string) (code int, out, errOut string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return c.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// asSelf lets commands that run in this process start popefgen as themselves,
// until restore is called.
func asSelf(t *testing.T) (restore func()) {
	t.Helper()
	path, err := exec.LookPath("popefgen")
	require.NoError(t, err)
	before, name := self, os.Args[0]
	self, os.Args[0] = path, "popefgen"
	return func() { self, os.Args[0] = before, name }
}

// reduced runs reduce and returns the operators of what it wrote.
func reduced(t *testing.T, name, model string, args ...string) (dir string, m *onnx.Model, out, errOut string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "small")
	code, out, errOut := program(t, name, append([]string{"reduce", model, "-o", dir + ".onnx"}, args...)...)
	require.Equal(t, exitOK, code, errOut)
	m, err := onnx.ReadFile(filepath.Join(dir, "model.onnx"))
	require.NoError(t, err)
	alone, err := os.ReadFile(dir + ".onnx")
	require.NoError(t, err)
	beside, err := os.ReadFile(filepath.Join(dir, "model.onnx"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(alone, beside))
	return dir, m, out, errOut
}

func operators(m *onnx.Model) (ops []string) {
	for _, n := range m.Graph.Nodes {
		ops = append(ops, n.OpType)
	}
	return ops
}

// TestReduceKernels finds a kernel that is wrong where plain ones are right.
func TestReduceKernels(t *testing.T) {
	model := reduceModelFile(t, "Tanh")
	dir, m, out, errOut := reduced(t, "wrongpopefgen", model, "--batch", "2")
	require.Equal(t, []string{"Tanh"}, operators(m))
	require.Contains(t, out, "1 node of 6, 1 input, 0 initializers")
	require.Contains(t, out, "  a = Tanh(m)\n")
	require.Contains(t, out, `output "a": 1 of 1 elements differ, worst at [0 0]: got `)
	require.Contains(t, errOut, `drawn at random (--random 1): x float[2,8]`)
	require.Contains(t, errOut, `output "y": `)
	x, err := onnx.ReadTensor(filepath.Join(dir, "test_data_set_0", "input_0.pb"))
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1}, x.Dims)
	require.Equal(t, float32(1), math.Float32frombits(binary.LittleEndian.Uint32(x.Data)))
	require.Equal(t, onnx.Float, m.Graph.Outputs[0].Elem)

	// What is right is stored beside it. Whoever computes Tanh rightly passes.
	code, out, _ := program(t, "popefgen", "verify", dir)
	require.Equal(t, exitOK, code, out)

	// Again, over what is there; from a data set, which the plain kernels agree with.
	require.NoError(t, os.MkdirAll(filepath.Join(filepath.Dir(model), "set"), 0o777))
	code, _, errOut = program(t, "popefgen", "run", model, "--batch", "2", "--input", "x=0.7", "--output-dir", filepath.Join(filepath.Dir(model), "right"))
	require.Equal(t, exitOK, code, errOut)
	args := []string{"reduce", model, "--batch", "2", "--input", "x=0.7", "--expect", "y=" + filepath.Join(filepath.Dir(model), "right", "y.npy"), "-o", dir + ".onnx"}
	code, out, errOut = program(t, "wrongpopefgen", args...)
	require.Equal(t, exitOK, code, errOut)
	require.Contains(t, errOut, "popefgen with plain kernels agrees with what is stored")
	require.Contains(t, out, "  a = Tanh(m)\n")

	// And the right build has nothing to reduce.
	for _, more := range [][]string{nil, {"--against", "popefgen"}, args[4:8]} {
		code, out, _ = program(t, "popefgen", append([]string{"reduce", model, "--dim", "N=2", "-o", filepath.Join(t.TempDir(), "s.onnx")}, more...)...)
		require.Equal(t, exitNo, code)
		require.Regexp(t, `^nothing differs from .*, within 0\.0001 \+ 0\.001·\|want\|:\n  output "y": worst error \S+; 16 elements\n`, out)
	}
}

// TestReduceAgainst finds where another build differs.
func TestReduceAgainst(t *testing.T) {
	dir, m, _, _ := reduced(t, "popefgen", reduceModelFile(t, "Tanh"), "--batch", "2", "--input", "x=0.5", "--against", "wrongpopefgen")
	require.Equal(t, []string{"Tanh"}, operators(m))
	code, out, _ := program(t, "popefgen", "verify", dir)
	require.Equal(t, exitNo, code)
	require.Contains(t, out, `output "a": 1 of 1 elements differ`)
}

// TestReduceStored cuts at what is stored of values on the way.
func TestReduceStored(t *testing.T) {
	model := reduceModelFile(t, "Tanh")
	m, err := onnx.ReadFile(model)
	require.NoError(t, err)
	for _, name := range []string{"r", "m", "a", "s"} {
		m.Graph.Outputs = append(m.Graph.Outputs, onnx.ValueInfo{Name: name})
	}
	m.Graph.Nodes[3].OpType = "Sub" // who stored them took one for the other
	b, err := onnx.Encode(m)
	require.NoError(t, err)
	other, values := filepath.Join(t.TempDir(), "other.onnx"), filepath.Join(t.TempDir(), "values")
	require.NoError(t, os.WriteFile(other, b, 0o666))
	code, _, errOut := program(t, "popefgen", "run", other, "--batch", "2", "--input", "x=0.7", "--output-dir", values)
	require.Equal(t, exitOK, code, errOut)
	args := []string{"--batch", "2", "--input", "x=0.7"}
	for _, name := range []string{"y", "m", "a", "s"} {
		args = append(args, "--expect", name+"="+filepath.Join(values, name+".npy"))
	}
	dir, got, _, errOut := reduced(t, "popefgen", model, args...)
	require.Contains(t, errOut, "the graph is cut where values are stored, and nowhere else")
	require.Equal(t, []string{"Add"}, operators(got))
	require.Equal(t, []string{"a"}, []string{got.Graph.Inputs[0].Name})
	require.Equal(t, "s", got.Graph.Outputs[0].Name)
	code, _, _ = program(t, "popefgen", "verify", dir)
	require.Equal(t, exitNo, code)
}

// TestReduceFailures keeps the message of a model that is refused, of a crash and of
// a run that does not end.
func TestReduceFailures(t *testing.T) {
	for _, c := range []struct{ build, op, says, sign string }{
		{"popefgen", "Frobnicate", "run fails: ", "with: operator Frobnicate"},
		{"wrongpopefgen", "Sin", "panic: index 6 is out of range", "with: panic: index N is out of range"},
		{"wrongpopefgen", "Cos", "it did not end within 1s", "with: it did not end within "},
	} {
		args := []string{"--batch", "2", "--run-timeout", "1s"}
		if c.op == "Cos" {
			args = append(args, "--timeout", "3500ms")
		}
		_, m, _, errOut := reduced(t, c.build, reduceModelFile(t, c.op), args...)
		require.Contains(t, operators(m), c.op)
		if c.op != "Cos" { // whose tries take as long as they may
			require.Equal(t, []string{c.op}, operators(m))
		}
		require.Contains(t, errOut, c.says)
		require.Contains(t, errOut, c.sign)
	}
	_, m, _, _ := reduced(t, "wrongpopefgen", reduceModelFile(t, "Sin"), "--batch", "2", "--error", `index \d is out`)
	require.Equal(t, []string{"Sin"}, operators(m))
	code, out, _ := program(t, "popefgen", "reduce", reduceModelFile(t, "Sin"), "--batch", "2", "--error", "index")
	require.Equal(t, exitNo, code)
	require.Contains(t, out, `run says nothing that matches "index" of the whole model`)
}

// TestReduceCheck asks commands.
func TestReduceCheck(t *testing.T) {
	model := reduceModelFile(t, "Tanh")
	_, m, _, _ := reduced(t, "popefgen", model, "--batch", "2", "--check", "grep -q Softmax {}")
	require.Equal(t, []string{"Softmax"}, operators(m))
	// A command whose models have to run, and to hold two operators.
	dir, m, _, _ := reduced(t, "popefgen", model, "--batch", "2", "--check", "popefgen run {} --random 1 >/dev/null 2>&1 && grep -q Softmax {} && grep -q MatMul {}")
	require.Equal(t, []string{"MatMul", "Softmax"}, operators(m))
	code, out, errOut := program(t, "popefgen", "verify", dir) // holds what the plain kernels give
	require.Equal(t, exitOK, code, out+errOut)

	code, out, _ = program(t, "popefgen", "reduce", model, "--batch", "2", "--check", "false")
	require.Equal(t, exitNo, code)
	require.Contains(t, out, "there is nothing to reduce")
	code, _, errOut = program(t, "popefgen", "reduce", model, "--batch", "2", "--check", "no-such-command")
	require.Equal(t, exitTrouble, code)
	require.Contains(t, errOut, "the shell does not find or run the command")
	// The children of a command that does not end, end with it.
	start := time.Now()
	code, _, _ = program(t, "popefgen", "reduce", model, "--batch", "2", "--run-timeout", "300ms", "--check", "sleep 100 | sleep 100")
	require.Equal(t, exitNo, code)
	require.Less(t, time.Since(start), time.Minute)
}

// TestReduceKeepsShapesKnown cuts shape arithmetic off, whose result has to be known
// when the model is compiled.
func TestReduceKeepsShapesKnown(t *testing.T) {
	ints := func(name string, v ...int64) *onnx.Tensor {
		t := &onnx.Tensor{Name: name, Elem: onnx.Int64, Dims: []int64{int64(len(v))}}
		for _, x := range v {
			t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(x))
		}
		return t
	}
	n := func(op, out string, in ...string) *onnx.Node {
		return &onnx.Node{OpType: op, Inputs: in, Outputs: []string{out}}
	}
	concat := n("Concat", "to", "first", "k")
	concat.Attributes = []*onnx.Attribute{{Name: "axis", Type: onnx.AttrInt}}
	m := &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: &onnx.Graph{Name: "g",
		Nodes:        []*onnx.Node{n("Shape", "size", "x"), n("Gather", "first", "size", "zero"), concat, n("Tanh", "a", "x"), n("Resize", "y", "a", "", "", "to")},
		Initializers: []*onnx.Tensor{ints("zero", 0)},
		Inputs: []onnx.ValueInfo{{Name: "x", Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Known: true, Value: 3}, {Known: true, Value: 4}}},
			{Name: "k", Elem: onnx.Int64, HasShape: true, Dims: []onnx.Dim{{Known: true, Value: 1}}}},
		Outputs: []onnx.ValueInfo{{Name: "y"}},
	}}
	b, err := onnx.Encode(m)
	require.NoError(t, err)
	model := filepath.Join(t.TempDir(), "m.onnx")
	require.NoError(t, os.WriteFile(model, b, 0o666))
	_, got, _, _ := reduced(t, "popefgen", model, "--input", "k=2", "--check", "popefgen run {} --random 1 >/dev/null 2>&1 && grep -q Resize {}")
	require.Equal(t, []string{"Resize"}, operators(got))
	require.Len(t, got.Graph.Inputs, 1)
	require.True(t, slices.ContainsFunc(got.Graph.Initializers, func(t *onnx.Tensor) bool { return t.Name == "to" }))
}

// TestReduceRefuses says what is wrong, and writes nothing.
func TestReduceRefuses(t *testing.T) {
	model := reduceModelFile(t, "Tanh")
	dir := filepath.Dir(model)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("mine"), 0o777))
	require.NoError(t, os.WriteFile(at("mine/notes"), nil, 0o666))
	require.NoError(t, os.MkdirAll(at("case"), 0o777))
	whole, err := os.ReadFile(model)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at("case/model.onnx"), whole, 0o666))
	require.NoError(t, os.WriteFile(at("cut.onnx"), whole[:len(whole)-20], 0o666))
	require.NoError(t, os.WriteFile(at("text.npy"), []byte("hello"), 0o666))
	words, err := onnx.Decode(whole, "")
	require.NoError(t, err)
	words.Graph.Inputs[0].NotDense = "sequence"
	before, err := filepath.Glob(at("*"))
	require.NoError(t, err)
	for _, c := range []struct{ args, want string }{
		{"", "reduce: which model?"},
		{"a b", "found 2 arguments (a, b), want one model"},
		{"nowhere.onnx", "nowhere.onnx: no such file"},
		{"cut.onnx --batch 2", "not a valid ONNX file"},
		{"m.onnx", `input "x": float[N,8]`},
		{"m.onnx --batch 2 -o small", "want a name that ends in .onnx"},
		{"m.onnx --batch 2 -o m.onnx", "m.onnx would be written over"},
		{"case/model.onnx --batch 2 -o case.onnx", "model.onnx would be written over"},
		{"m.onnx --batch 2 -o mine.onnx", "notes is there, which is not part of a case"},
		{"m.onnx --batch 2 --input y=1", `--input y=1: the model has no such input`},
		{"m.onnx --batch 2 --input w=1", `--input w=1: the model has no such input`},
		{"m.onnx --batch 2 --input x=text.npy", "not a valid .npy file"},
		{"m.onnx --batch 2 --input x=1,2", "found a list of 2 elements, want 16"},
		{"m.onnx --batch 2 --expect q=text.npy", `--expect q=text.npy: the model computes no such value`},
		{"m.onnx --batch 2 --expect y=text.npy", "not a valid .npy file"},
		{"m.onnx --batch 2 --data nowhere", "--data: "},
		{"m.onnx --batch 2 --against ./nowhere", "--against: "},
		{"m.onnx --batch 2 --against a --check b", "want one of them"},
		{"m.onnx --batch 2 --error (", "--error: error parsing regexp"},
		{"m.onnx --batch 2 --rtol -1", "want 0 or more"},
		{"m.onnx --batch 2 --timeout 0s", "want more than nothing"},
		{"m.onnx --batch 2 --iterations 2", "--iterations: a model is reduced with one"},
		{"m.onnx --batch 4000000000000", "too big"},
		{"m.onnx --batch 1000000000", "memory"},
	} {
		cmd := exec.CommandContext(t.Context(), "popefgen", append([]string{"reduce"}, strings.Fields(c.args)...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.Error(t, err, c.args)
		require.Equal(t, exitTrouble, cmd.ProcessState.ExitCode(), "%s: %s", c.args, out)
		require.Contains(t, string(out), c.want, c.args)
		require.NotContains(t, string(out), "goroutine ", c.args)
	}
	after, err := filepath.Glob(at("*"))
	require.NoError(t, err)
	require.Equal(t, before, after)
}
