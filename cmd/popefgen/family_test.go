package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// openModelOf returns an ONNX model over x, [batch seq 3]: y is x·w, and total the
// sum of all of x along seq.
func openModelOf() *onnx.Model {
	value := func(name string, dims ...onnx.Dim) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, Elem: onnx.Float, HasShape: true, Dims: dims}
	}
	number := func(n int64) onnx.Dim { return onnx.Dim{Known: true, Value: n} }
	batch, seq := onnx.Dim{Symbol: "batch"}, onnx.Dim{Symbol: "seq"}
	w := []byte{}
	for i := range 6 {
		w = append(w, 0, 0, byte(0x80*(i%2)), 0x3f+byte(i/4)) // 1, 0.5, …
	}
	return &onnx.Model{
		IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: &onnx.Graph{
			Name:         "open",
			Inputs:       []onnx.ValueInfo{value("x", batch, seq, number(3))},
			Outputs:      []onnx.ValueInfo{value("y", batch, seq, number(2)), value("total", batch, number(3))},
			Initializers: []*onnx.Tensor{{Name: "w", Elem: onnx.Float, Dims: []int64{3, 2}, Data: w}, {Name: "axes", Elem: onnx.Int64, Dims: []int64{1}, Data: []byte{1, 0, 0, 0, 0, 0, 0, 0}}},
			Nodes: []*onnx.Node{
				{OpType: "MatMul", Inputs: []string{"x", "w"}, Outputs: []string{"y"}},
				{OpType: "ReduceSum", Inputs: []string{"x", "axes"}, Outputs: []string{"total"},
					Attributes: []*onnx.Attribute{{Name: "keepdims", Type: onnx.AttrInt}}},
			},
		},
	}
}

// writeFamily writes [openModelOf] compiled for the sizes 1×4, 1×8, 2×4 and 2×8 of
// batch and seq, where x may be filled up with zeros along seq.
func writeFamily(path string, padded, fewer bool) error {
	o := compile.Options{}
	for _, batch := range []int64{1, 2} {
		for _, seq := range []int64{4, 8} {
			o.Members = append(o.Members, compile.Sizes{Dims: map[string]int64{"batch": batch, "seq": seq}})
		}
	}
	if fewer {
		o.Members = o.Members[:3]
	}
	if padded {
		o.Pads = map[string][]family.Pad{"seq": {{Input: "x", Value: "0"}}}
	}
	r, err := compile.Compile(openModelOf(), o)
	if err != nil {
		return err
	}
	b, err := r.Bytes()
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o666)
}

// familyModel FILE [unpadded|fewer] writes a PopEF model of four sizes, or of the first three.
func familyModel(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(writeFamily(ts.MkAbs(args[0]), !slices.Contains(args, "unpadded"), slices.Contains(args, "fewer")))
}

// openModelFile FILE writes the ONNX model that familyModel compiles.
func openModelFile(ts *testscript.TestScript, _ bool, args []string) {
	b, err := onnx.Encode(openModelOf())
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o666))
}

// refusedFamily FROM TO writes a PopEF model whose blob claims another family than the
// file holds.
func refusedFamily(ts *testscript.TestScript, _ bool, args []string) {
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	from, to := []byte(`"sizes":[2,8]`), []byte(`"sizes":[2,9]`)
	n := 0
	for i := range len(b) - len(from) {
		if string(b[i:i+len(from)]) == string(from) {
			copy(b[i:], to)
			n++
		}
	}
	if n != 1 {
		ts.Fatalf("found %d claims of the size, want 1", n)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o666))
}

func TestFamilyModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.popef")
	require.NoError(t, writeFamily(path, true, false))
	m, err := popef.Load(path)
	require.NoError(t, err)
	defer m.Close()
	f, err := family.Of(m)
	require.NoError(t, err)
	require.Len(t, f.Members, 4)
}

// floatsFile FILE DIM… writes a .npy file with 0, 1, 2 … as F32.
func floatsFile(ts *testscript.TestScript, _ bool, args []string) {
	info := popef.TensorInfo{DataType: popef.F32}
	n := 1
	for _, a := range args[1:] {
		d, err := strconv.Atoi(a)
		ts.Check(err)
		info.Shape, n = append(info.Shape, int64(d)), n*d
	}
	var data []byte
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	var b bytes.Buffer
	ts.Check(npy.Write(&b, info, data))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o666))
}
