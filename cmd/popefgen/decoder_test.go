package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

// decoderModel returns an ONNX model of attention over a past that it makes one position longer. Its mask is as
// long as both; present is what the model calls that length of its outputs.
func decoderModel(present string) *onnx.Model {
	const width, heads = 8, 2
	value := func(name string, elem onnx.ElemType, dims ...any) onnx.ValueInfo {
		v := onnx.ValueInfo{Name: name, Elem: elem, HasShape: true}
		for _, d := range dims {
			switch d := d.(type) {
			case string:
				v.Dims = append(v.Dims, onnx.Dim{Symbol: d})
			case int:
				v.Dims = append(v.Dims, onnx.Dim{Known: true, Value: int64(d)})
			}
		}
		return v
	}
	g := &onnx.Graph{
		Name: "decoder",
		Inputs: []onnx.ValueInfo{
			value("x", onnx.Float, "batch", 1, width), value("attention_mask", onnx.Int64, "batch", "total"),
			value("past_key", onnx.Float, "batch", heads, "past", width/heads), value("past_value", onnx.Float, "batch", heads, "past", width/heads),
		},
		Outputs: []onnx.ValueInfo{
			value("y", onnx.Float, "batch", 1, width),
			value("present_key", onnx.Float, "batch", heads, present, width/heads), value("present_value", onnx.Float, "batch", heads, present, width/heads),
		},
	}
	list := func(name string, ns ...int64) {
		t := &onnx.Tensor{Name: name, Elem: onnx.Int64, Dims: []int64{int64(len(ns))}}
		for _, n := range ns {
			t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(n))
		}
		g.Initializers = append(g.Initializers, t)
	}
	floats := func(name string, dims []int64, vs ...float64) {
		t := &onnx.Tensor{Name: name, Elem: onnx.Float, Dims: dims}
		for _, v := range vs {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(float32(v)))
		}
		g.Initializers = append(g.Initializers, t)
	}
	node := func(op string, out string, attrs []*onnx.Attribute, in ...string) {
		g.Nodes = append(g.Nodes, &onnx.Node{Name: out, OpType: op, Inputs: in, Outputs: []string{out}, Attributes: attrs})
	}
	number := func(name string, n int64) *onnx.Attribute {
		return &onnx.Attribute{Name: name, Type: onnx.AttrInt, Int: n}
	}
	perm := func(ns ...int64) []*onnx.Attribute {
		return []*onnx.Attribute{{Name: "perm", Type: onnx.AttrInts, Ints: ns}}
	}
	for w, name := range []string{"wq", "wk", "wv", "wo"} {
		var vs []float64
		for i := range width * width {
			vs = append(vs, math.Sin(float64(width*width*w+i)))
		}
		floats(name, []int64{width, width}, vs...)
	}
	list("apart", 0, 1, heads, width/heads)
	list("together", 0, 1, width)
	list("axes", 1, 2)
	floats("one", nil, 1)
	floats("low", nil, 1e4)
	for _, what := range []string{"q", "k", "v"} {
		node("MatMul", what+"_all", nil, "x", "w"+what)
		node("Reshape", what+"_apart", nil, what+"_all", "apart")
		node("Transpose", what, perm(0, 2, 1, 3), what+"_apart")
	}
	node("Concat", "present_key", []*onnx.Attribute{number("axis", 2)}, "past_key", "k")
	node("Concat", "present_value", []*onnx.Attribute{number("axis", 2)}, "past_value", "v")
	node("Transpose", "keys", perm(0, 1, 3, 2), "present_key")
	node("MatMul", "scores", nil, "q", "keys")
	node("Cast", "mask", []*onnx.Attribute{number("to", int64(onnx.Float))}, "attention_mask")
	node("Sub", "off", nil, "mask", "one")
	node("Mul", "lows", nil, "off", "low")
	node("Unsqueeze", "bias", nil, "lows", "axes")
	node("Add", "biased", nil, "scores", "bias")
	node("Softmax", "p", []*onnx.Attribute{number("axis", -1)}, "biased")
	node("MatMul", "mixed", nil, "p", "present_value")
	node("Transpose", "mixed_apart", perm(0, 2, 1, 3), "mixed")
	node("Reshape", "mixed_all", nil, "mixed_apart", "together")
	node("MatMul", "y", nil, "mixed_all", "wo")
	return &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: g}
}

// TestDecoder compiles a decoder from ONNX for several lengths of its past, generates a package with streams whose
// caches grow, and runs it: what it says is what it says without a cache.
func TestDecoder(t *testing.T) {
	root, err := os.MkdirTemp("testdata", "decoder-") // no ./... finds what comes and goes
	require.NoError(t, err)
	defer os.RemoveAll(root)
	write := func(name, present string) string {
		b, err := onnx.Encode(decoderModel(present))
		require.NoError(t, err)
		path := filepath.Join(root, name)
		require.NoError(t, os.WriteFile(path, b, 0o666))
		return path
	}
	file, unnamed := write("decoder.onnx", "total"), write("unnamed.onnx", "")
	said := func(code int, args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		got := run(t.Context(), args, bytes.NewReader(nil), &out, &errOut)
		require.Equal(t, code, got, "%v: %s", args, errOut.String())
		return out.String() + errOut.String()
	}
	model, dir := filepath.Join(root, "decoder.popef"), filepath.Join(root, "decoder")
	generate := []string{"generate", "-m", model, "-o", dir, "--embed", "--state", "present_key=past_key", "--state", "present_value=past_value", "--state-fill", "mask=attention_mask"}

	// Without the rule the mask's length is a dimension of its own, also where it is as long in every size.
	require.Contains(t, said(exitTrouble, "compile", file, "-o", model, "--batch", "1,2", "--dim", "past=2,4", "--dim", "total=3,5"),
		`hint: the dimension "total" is past+1 in each member that compiles; if it always is, say so with --dim total=past+1`)
	apart := []string{"-o", model, "--size", "batch=1,past=2,total=3", "--size", "batch=1,past=4,total=5"}
	for _, path := range []string{file, unnamed} {
		said(exitOK, append([]string{"compile", path}, apart...)...)
		require.Contains(t, said(exitTrouble, generate...),
			`want one type for both; dimension "total" is past+1 in every size that there is, and one of its own: if it always is, compile the model with --dim total=past+1`)
	}
	require.Contains(t, said(exitTrouble, "compile", file, "-o", model, "--size", "batch=1,past=2,total=3", "--size", "batch=1,past=4,total=6", "--dim", "total=past+1"),
		"--size: one has total=6 and past=4, and --dim total=past+1 makes it 5")

	family := []string{"compile", file, "-o", model, "--batch", "1,2", "--dim", "past=2,4,8,16", "--dim", "total=past+1"}
	text := said(exitOK, family...)
	require.Regexp(t, `input +attention_mask +S64 +\[batch,past\+1\]`, text)
	require.Regexp(t, `output +present_key +F32 +\[batch,2,past\+1,4\]`, text)
	require.Contains(t, text, "batch: smaller requests are filled up: rows do not depend on each other")
	// What is new stands behind the past, so that room in the past can't be filled up by a caller's padding.
	require.Contains(t, said(exitTrouble, append(family, "--pad", "past=past_key:0,past_value:0")...), `is declared for some of the inputs that have it, want a value for attention_mask too`)
	require.Contains(t, said(exitTrouble, append(family, "--pad", "total=attention_mask:0")...), `it follows from "past": declare what its inputs are filled up with for that one`)
	require.Contains(t, said(exitTrouble, append(family, "--pad", "past=past_key:0,past_value:0,attention_mask:0")...), `the declared padding along "past" changes results`)

	said(exitOK, generate...)
	require.FileExists(t, filepath.Join(dir, "decoder.go"))
	source, err := os.ReadFile(filepath.Join("testdata", "decoder", "decoder_test.go"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "grows_test.go"), source, 0o666))
	if testing.Short() {
		t.Skip("compiles a package")
	}
	test := exec.Command("go", "test", "-vet=off", "-count=1", "-v", "./"+dir)
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASS: TestGrows ")
	require.Contains(t, string(out), "PASS: TestDisagree ")
}
