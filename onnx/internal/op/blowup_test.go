package op_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// blowUp is a model of a few hundred bytes that asks for a great deal: a node on
// known and unknown operands.
type blowUp struct {
	op     string
	shape  []int64        // of the input
	consts []*onnx.Tensor // the operands behind it
	attrs  []*onnx.Attribute
	known  bool // the input is known too, so that everything can be computed at compile time
}

func blowUpInts(name string, v ...int64) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrInts, Ints: v}
}

func blowUpText(name, v string) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrString, String: []byte(v)}
}

func blowUpInt(name string, v int64) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrInt, Int: v}
}

func int64s(shape []int64, v ...int64) *onnx.Tensor {
	b := []byte{}
	for _, n := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return &onnx.Tensor{Elem: onnx.Int64, Dims: shape, Data: b}
}

func int64List(v ...int64) *onnx.Tensor { return int64s([]int64{int64(len(v))}, v...) }

func floatList(v ...float32) *onnx.Tensor {
	b := []byte{}
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return &onnx.Tensor{Elem: onnx.Float, Dims: []int64{int64(len(v))}, Data: b}
}

// blowUps are models of every operator whose attributes or small operands say how
// much there is to make or to do, for a number n.
func blowUps(n int64) map[string]blowUp {
	plane, line := []int64{1, 1, 4, 4}, []int64{1, 1, 8}
	all := map[string]blowUp{
		"Tile":            {op: "Tile", shape: []int64{4}, consts: []*onnx.Tensor{int64List(n)}},
		"Expand":          {op: "Expand", shape: []int64{1}, consts: []*onnx.Tensor{int64List(n)}},
		"Pad constant":    {op: "Pad", shape: []int64{4}, consts: []*onnx.Tensor{int64List(n, n)}},
		"Pad edge":        {op: "Pad", shape: []int64{4}, consts: []*onnx.Tensor{int64List(n, n)}, attrs: []*onnx.Attribute{blowUpText("mode", "edge")}},
		"Pad wrap":        {op: "Pad", shape: []int64{2, 4}, consts: []*onnx.Tensor{int64List(n, 0, 0, n)}, attrs: []*onnx.Attribute{blowUpText("mode", "wrap")}},
		"Pad reflect":     {op: "Pad", shape: []int64{4, 4}, consts: []*onnx.Tensor{int64List(0, n, 0, n)}, attrs: []*onnx.Attribute{blowUpText("mode", "reflect")}},
		"Resize nearest":  {op: "Resize", shape: plane, consts: []*onnx.Tensor{nil, floatList(1, 1, 1, float32(n))}},
		"Resize linear":   {op: "Resize", shape: plane, consts: []*onnx.Tensor{nil, floatList(1, 1, 1, float32(n))}, attrs: []*onnx.Attribute{blowUpText("mode", "linear")}},
		"Resize cubic":    {op: "Resize", shape: plane, consts: []*onnx.Tensor{nil, nil, int64List(1, 1, 2, n)}, attrs: []*onnx.Attribute{blowUpText("mode", "cubic"), blowUpInt("antialias", 1)}},
		"AveragePool":     {op: "AveragePool", shape: line, attrs: []*onnx.Attribute{blowUpInts("kernel_shape", n), blowUpInts("pads", n-1, n-1)}},
		"AveragePool far": {op: "AveragePool", shape: line, attrs: []*onnx.Attribute{blowUpInts("kernel_shape", 3), blowUpInts("strides", n), blowUpInts("pads", 1, n), blowUpInts("dilations", 1)}},
		"MaxPool":         {op: "MaxPool", shape: plane, attrs: []*onnx.Attribute{blowUpInts("kernel_shape", n, n), blowUpInts("pads", n-1, n-1, n-1, n-1)}},
		"LpPool":          {op: "LpPool", shape: line, attrs: []*onnx.Attribute{blowUpInts("kernel_shape", n), blowUpInts("pads", n/2, n/2)}},
		"DFT":             {op: "DFT", shape: []int64{1, 8, 1}, consts: []*onnx.Tensor{int64s(nil, n-3), int64s(nil, 1)}},
		"OneHot":          {op: "OneHot", shape: []int64{4}, consts: []*onnx.Tensor{int64s(nil, n), floatList(0, 1)}},
		"Conv wide":       {op: "Conv", shape: line, consts: []*onnx.Tensor{{Elem: onnx.Float, Dims: []int64{1, 1, 2}, Data: make([]byte, 8)}}, attrs: []*onnx.Attribute{blowUpInts("dilations", n), blowUpInts("pads", n, n)}},
		"Conv far":        {op: "Conv", shape: line, consts: []*onnx.Tensor{{Elem: onnx.Float, Dims: []int64{1, 1, 2}, Data: make([]byte, 8)}}, attrs: []*onnx.Attribute{blowUpInts("pads", n, 0)}},
		"ConvTranspose":   {op: "ConvTranspose", shape: line, consts: []*onnx.Tensor{{Elem: onnx.Float, Dims: []int64{1, 1, 2}, Data: make([]byte, 8)}}, attrs: []*onnx.Attribute{blowUpInts("strides", n)}},
		"RoiAlign":        {op: "RoiAlign", shape: plane, consts: []*onnx.Tensor{{Elem: onnx.Float, Dims: []int64{1, 4}, Data: make([]byte, 16)}, int64List(0)}, attrs: []*onnx.Attribute{blowUpInt("output_height", n), blowUpInt("output_width", 4)}},
		"MaxRoiPool":      {op: "MaxRoiPool", shape: plane, consts: []*onnx.Tensor{{Elem: onnx.Float, Dims: []int64{1, 5}, Data: make([]byte, 20)}}, attrs: []*onnx.Attribute{blowUpInts("pooled_shape", n, 1)}},
	}
	for name, b := range all {
		b.known = true
		all[name+", known"] = b
	}
	for _, op := range []string{"ConstantOfShape", "HannWindow", "RandomNormal"} {
		all[op] = blowUp{op: op, consts: []*onnx.Tensor{int64s(map[bool][]int64{true: {1}}[op == "ConstantOfShape"], n)}}
	}
	all["Range"] = blowUp{op: "Range", consts: []*onnx.Tensor{int64s(nil, 0), int64s(nil, n), int64s(nil, 1)}}
	return all
}

// model returns the model: x, the node's result y.
func (b *blowUp) model() *onnx.Model {
	g := &onnx.Graph{Outputs: []onnx.ValueInfo{{Name: "y"}}}
	n := &onnx.Node{OpType: b.op, Name: "big", Outputs: []string{"y"}, Attributes: b.attrs}
	if b.shape != nil {
		elements := int64(1)
		in := onnx.ValueInfo{Name: "x", Elem: onnx.Float, HasShape: true}
		for _, d := range b.shape {
			in.Dims = append(in.Dims, onnx.Dim{Known: true, Value: d})
			elements *= d
		}
		if b.op == "OneHot" {
			in.Elem = onnx.Int64
		}
		n.Inputs = append(n.Inputs, "x")
		if b.known {
			g.Initializers = append(g.Initializers, &onnx.Tensor{Name: "x", Elem: in.Elem, Dims: b.shape, Data: make([]byte, elements*int64(in.Elem.DType().Size()))})
		} else {
			g.Inputs = append(g.Inputs, in)
		}
	}
	for i, c := range b.consts {
		if c == nil {
			n.Inputs = append(n.Inputs, "")
			continue
		}
		t := *c
		t.Name = fmt.Sprint("c", i)
		g.Initializers = append(g.Initializers, &t)
		n.Inputs = append(n.Inputs, t.Name)
	}
	g.Nodes = []*onnx.Node{n}
	return &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 20}}, Graph: g}
}

// TestBlowUps compiles some two hundred small models that ask for up to exabytes
// and makes engines of them, within 64 MiB: each is refused, or works, and takes
// no more than a few times that on the way.
func TestBlowUps(t *testing.T) {
	const limit = 64 << 20
	refused, made := 0, 0
	for _, n := range []int64{1 << 12, 1 << 20, 1 << 26, 1 << 32, 1 << 39, 1 << 62} {
		for name, b := range blowUps(n) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := compile.CompileContext(ctx, b.model(), compile.Options{Options: onnx.Options{Memory: limit, FoldWeights: b.known}})
			if err == nil {
				var exe bytes.Buffer
				require.NoError(t, encoding.Encode(&exe, r.Executable))
				var e *cpu.Engine
				e, err = cpu.New(ipu.EngineConfig{Name: name, Executable: exe.Bytes(), Options: []ipu.Option{{Name: "memory", Value: "64MiB"}, {Name: "threads", Value: "1"}}})
				if err == nil {
					require.NoError(t, e.Close())
				}
			}
			runtime.ReadMemStats(&after)
			require.NoError(t, ctx.Err(), "%s of %d takes too long", name, n)
			cancel()
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(6*limit), "%s of %d: %v", name, n, err)
			if err != nil {
				refused++
				require.NotContains(t, err.Error(), "panic", "%s of %d", name, n)
			} else {
				made++
			}
		}
	}
	t.Logf("%d refused, %d made", refused, made)
	require.Greater(t, refused, 100)
	require.Greater(t, made, 20)
}
