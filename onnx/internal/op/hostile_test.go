package op

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// Bounds on what refusing a small model may take, far above what it does take.
const (
	hostileTime   = 10 * time.Second
	hostileMemory = 128 << 20 // allocated in all
	hostileText   = 1 << 17   // of the error
)

// refused wants f to refuse something by name, in bounded time and memory.
func refused(t *testing.T, want string, f func() error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- f() }()
	var err error
	select {
	case err = <-done:
	case <-time.After(hostileTime):
		t.Fatalf("no answer after %v", hostileTime)
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, want)
	require.Less(t, len(err.Error()), hostileText, "length of the error")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(hostileMemory), "bytes allocated")
	require.Less(t, took, hostileTime)
}

// TestHostileFiles reads and lowers files that are made to do harm.
func TestHostileFiles(t *testing.T) {
	dim := func(v int64) pb { return pb{}.Bytes(1, pb{}.Int(1, v)) }
	value := func(name string, shape ...int64) pb {
		s := pb{}
		for _, d := range shape {
			s = append(s, dim(d)...)
		}
		return pb{}.Str(1, name).Bytes(2, pb{}.Bytes(1, pb{}.Int(1, 1).Bytes(2, s)))
	}
	n := func(op, in, out string, attrs ...pb) pb {
		p := pb{}.Str(4, op)
		for _, s := range strings.Fields(in) {
			p = p.Str(1, s)
		}
		for _, s := range strings.Fields(out) {
			p = p.Str(2, s)
		}
		for _, a := range attrs {
			p = p.Bytes(5, a)
		}
		return p
	}
	file := func(g pb) pb {
		return pb{}.Int(1, 8).Bytes(8, pb{}.Int(2, 13)).Bytes(7, g)
	}
	// simple is a graph from x, float[2,3], to y.
	simple := func(nodes ...pb) pb {
		g := pb{}.Bytes(11, value("x", 2, 3)).Bytes(12, value("y"))
		for _, n := range nodes {
			g = g.Bytes(1, n)
		}
		return g
	}
	tensor := func(name string, dims ...int64) pb {
		return pb{}.Str(8, name).Int(2, 1).Packed(1, dims...)
	}
	constant := func(t pb) pb { return pb{}.Str(1, "value").Bytes(5, t).Int(20, 4) }
	// deep is a field in a message in a message …, from the outermost field on.
	deep := func(levels int, fields ...protowire.Number) pb {
		out := []byte{} // in reverse
		for range levels {
			for _, num := range slices.Backward(fields) {
				head := protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.BytesType), uint64(len(out)))
				slices.Reverse(head)
				out = append(out, head...)
			}
		}
		slices.Reverse(out)
		return out
	}
	long := strings.Repeat("n", 16<<20)
	for name, c := range map[string]struct {
		file pb
		want string
	}{
		"cycle":                      {file(simple(n("Neg", "b", "y"), n("Abs", "c", "b"), n("Exp", "b", "c"))), "the graph has a cycle"},
		"node that needs itself":     {file(simple(n("Neg", "y", "y"))), "the graph has a cycle"},
		"missing initializer":        {file(simple(n("Add", "x weights", "y"))), `uses "weights", which nothing defines`},
		"missing output":             {file(simple(n("Neg", "x", "z"))), `graph output "y" is not defined`},
		"shapes that disagree":       {file(simple(n("Add", "x w", "y")).Bytes(5, tensor("w", 4).Bytes(9, make([]byte, 16)))), "shapes [2,3] and [4] do not broadcast"},
		"constant without its data":  {file(simple(n("Constant", "", "y", constant(tensor("", 1<<40))))), "found 0 numbers in float_data, want 1099511627776"},
		"constant with too few data": {file(simple(n("Constant", "", "y", constant(tensor("", 1<<20, 1<<20).Bytes(9, make([]byte, 64)))))), "found 64 bytes of data, want 4398046511104"},
		"initializer of 2^90":        {file(simple().Bytes(5, tensor("w", 1<<30, 1<<30, 1<<30))), "more elements than 64 bits count"},
		"negative dimension":         {file(simple().Bytes(5, tensor("w", -4))), "dimension -4 is negative"},
		"dimension of every size":    {file(simple().Bytes(5, tensor("w", math.MinInt64, math.MinInt64))), "is negative"},
		"input of 2^62":              {file(pb{}.Bytes(11, value("x", 1<<31, 1<<31)).Bytes(12, value("y")).Bytes(1, n("Neg", "x", "y"))), `graph input "x": f32[2147483648,2147483648] is too big`},
		"unknown name in a subgraph": {file(simple(n("If", "c", "y", pb{}.Str(1, "then_branch").Bytes(6, pb{}.Bytes(1, n("Neg", "outside", "r")).Bytes(12, value("r"))).Int(20, 5)))), `"c", which nothing defines`},
		"captured name is unknown": {file(simple(n("Constant", "", "c", constant(pb{}.Int(2, 9).Bytes(9, []byte{1}))),
			n("If", "c", "y", pb{}.Str(1, "then_branch").Bytes(6, pb{}.Bytes(1, n("Neg", "outside", "r")).Bytes(12, value("r"))).Int(20, 5),
				pb{}.Str(1, "else_branch").Bytes(6, pb{}.Bytes(12, value("x"))).Int(20, 5)))), `"outside", which nothing defines`},
		"attribute of another type": {file(simple(n("Softmax", "x", "y", pb{}.Str(1, "axis").Float(2, 1).Int(20, 1)))), `attribute "axis" is of type float, want int`},
		"attribute of no type":      {file(simple(n("Softmax", "x", "y", pb{}.Str(1, "axis").Int(20, 99)))), `attribute "axis" is of type type 99, want int`},
		"graph that is none":        {file(simple(n("If", "x", "y", pb{}.Str(1, "then_branch").Int(20, 5)))), "says it is a graph and holds none"},
		"two initializers":          {file(simple().Bytes(5, tensor("w", 0)).Bytes(5, tensor("w", 0))), `initializer "w" is defined twice`},
		"two inputs":                {file(simple().Bytes(11, value("x", 1))), `graph input "x" is declared twice`},
		"two outputs":               {file(simple(n("Neg", "x", "y")).Bytes(12, value("y"))), `graph output "y" is declared twice`},
		"two nodes":                 {file(simple(n("Neg", "x", "y"), n("Abs", "x", "y"))), `both define "y"`},
		"two graphs":                {append(file(simple()), pb{}.Bytes(7, simple())...), "a second graph"},
		"name of 16 MiB":            {file(simple(n("Neg", "x", "y").Str(3, long))), "a name of 16777216 bytes"},
		"tensor name of 16 MiB":     {file(simple().Bytes(5, tensor(long, 0))), "a name of 16777216 bytes"},
		"string of 16 MiB":          {file(simple(n("Constant", "", "y", pb{}.Str(1, "value_string").Str(4, long).Int(20, 3)))), "attribute value_string"},
		"mode of 1 MiB":             {file(simple(n("Pad", "x k", "y", pb{}.Str(1, "mode").Str(4, long[:1<<20]).Int(20, 3))).Bytes(5, pb{}.Str(8, "k").Int(2, 7).Packed(1, 4).Packed(7, 0, 0, 0, 0))), "1048576 bytes"},
		"10,000 graphs deep":        {file(deep(10_000, 1, 5, 6)), "nested more than 64 deep"},
		"100,000 functions deep":    {chain(100_000, n), "nested too deeply"},
		"external data outside":     {file(simple().Bytes(5, tensor("w", 1).Int(14, 1).Bytes(13, pb{}.Str(1, "location").Str(2, "../../etc/passwd")))), "must lie in the model's directory"},
		"external data everywhere":  {file(simple().Bytes(5, tensor("w", 1).Int(14, 1).Bytes(13, pb{}.Str(1, "location").Str(2, "/dev/zero")))), "must lie in the model's directory"},
		"sparse":                    {file(simple().Bytes(15, pb{})), "sparse initializers"},
		"very many empty nodes":     {file(append(simple(), []byte(strings.Repeat(string(pb{}.Bytes(1, nil)), 1<<18))...)), `graph output "y" is not defined`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			refused(t, c.want, func() error {
				m, err := onnx.Decode(c.file, dir)
				if err == nil {
					_, err = Lower(m, onnx.Options{})
				}
				return err
			})
		})
	}
}

// chain is a model of functions of which each calls the next.
func chain(levels int, n func(op, in, out string, attrs ...pb) pb) pb {
	call := func(i int) pb { return n(fmt.Sprint("f", i), "x", "y").Str(7, "local") }
	m := pb{}.Int(1, 8).Bytes(8, pb{}.Int(2, 13)).Bytes(8, pb{}.Str(1, "local").Int(2, 1))
	x := pb{}.Str(1, "x").Bytes(2, pb{}.Bytes(1, pb{}.Int(1, 1).Bytes(2, nil)))
	m = m.Bytes(7, pb{}.Bytes(1, call(0)).Bytes(11, x).Bytes(12, pb{}.Str(1, "y")))
	for i := range levels {
		m = m.Bytes(25, pb{}.Str(1, fmt.Sprint("f", i)).Str(10, "local").Str(4, "x").Str(5, "y").Bytes(7, call(i+1)))
	}
	return m
}

// TestHostileNodes lowers operators that ask for more than there is.
func TestHostileNodes(t *testing.T) {
	const much = 1 << 40
	x := f32s(dims(1, 1, 4, 4), make([]float64, 16)...)
	int64s := func(v ...int64) *onnx.Tensor {
		return &onnx.Tensor{Elem: onnx.Int64, Dims: dims(int64(len(v))), Data: lower.KnownInts(v...).Data}
	}
	one := func(v int64) *onnx.Tensor {
		return &onnx.Tensor{Elem: onnx.Int64, Dims: dims(), Data: lower.KnownInts(v).Data}
	}
	kernel := aInts("kernel_shape", 2, 2)
	for _, c := range []struct {
		opCase
		want string
	}{
		{opCase{op: "ConstantOfShape", in: []*onnx.Tensor{int64s(1<<20, 1<<20)}}, "2^40 bytes"},
		{opCase{op: "ConstantOfShape", in: []*onnx.Tensor{int64s(-1)}}, "dimension 0 is -1"},
		{opCase{op: "Expand", in: []*onnx.Tensor{x, int64s(1<<20, 1<<20, 1, 1)}}, "is too big"},
		{opCase{op: "Tile", in: []*onnx.Tensor{x, int64s(much, much, 1, 1)}}, "repeats"},
		{opCase{op: "Range", in: []*onnx.Tensor{one(0), one(math.MaxInt64), one(1)}}, "elements, want fewer"},
		{opCase{op: "Range", in: []*onnx.Tensor{f32s(dims(), 0), f32s(dims(), 1), f32s(dims(), 1e-30)}}, "elements, want fewer"},
		{opCase{op: "Range", in: []*onnx.Tensor{f32s(dims(), 0), f32s(dims(), math.Inf(1)), f32s(dims(), 1)}}, "elements, want fewer"},
		{opCase{op: "Reshape", in: []*onnx.Tensor{x, int64s(-2, 16)}}, "dimension -2"},
		{opCase{op: "Reshape", in: []*onnx.Tensor{x, int64s(1<<62, 4, -1)}}, "can't take the shape"},
		{opCase{op: "Pad", in: []*onnx.Tensor{x, int64s(0, 0, 0, 0, much, much, 0, 0)}}, "2^40"},
		{opCase{op: "Pad", in: []*onnx.Tensor{x, int64s(0, 0, 0, 0, 0, 0, 0, math.MinInt64)}}, "Pad"},
		{opCase{op: "OneHot", in: []*onnx.Tensor{int64s(1, 2), one(much), list32(0, 1)}}, "2^40"},
		{opCase{op: "HannWindow", opset: 17, in: []*onnx.Tensor{one(much)}}, "elements, want fewer"},
		{opCase{op: "MelWeightMatrix", opset: 17, in: []*onnx.Tensor{one(much), one(much), one(8000), f32s(dims(), 0), f32s(dims(), 4000)}}, "do not make a matrix"},
		{opCase{op: "DFT", opset: 20, in: []*onnx.Tensor{f32s(dims(1, 4, 1), 1, 2, 3, 4), one(much), one(1)}}, "Length"},
		{opCase{op: "STFT", opset: 17, in: []*onnx.Tensor{f32s(dims(1, 4, 1), 1, 2, 3, 4), one(-1), nil, one(2)}}, "do not fit"},
		{opCase{op: "TopK", in: []*onnx.Tensor{x, one(much)}}, "TopK"},
		{opCase{op: "Split", opset: 18, attrs: []*onnx.Attribute{aInt("num_outputs", math.MaxInt64)}, in: []*onnx.Tensor{x}}, "num_outputs"},
		{opCase{op: "MaxPool", attrs: []*onnx.Attribute{aInts("kernel_shape", math.MaxInt64, 1)}, in: []*onnx.Tensor{x}}, "kernel_shape"},
		{opCase{op: "MaxPool", attrs: []*onnx.Attribute{kernel, aInts("pads", 0, 0, math.MaxInt64, math.MaxInt64)}, in: []*onnx.Tensor{x}}, "MaxPool"},
		{opCase{op: "MaxPool", attrs: []*onnx.Attribute{kernel, aInts("strides", 0, 0)}, in: []*onnx.Tensor{x}}, "strides"},
		{opCase{op: "Conv", attrs: []*onnx.Attribute{aInts("pads", 0, 0, 1<<39, 1<<39)}, in: []*onnx.Tensor{x, f32s(dims(1, 1, 1, 1), 1)}}, "2^40"},
		{opCase{op: "Conv", attrs: []*onnx.Attribute{aInt("group", 0)}, in: []*onnx.Tensor{x, f32s(dims(1, 1, 1, 1), 1)}}, "Group"},
		{opCase{op: "ConvTranspose", attrs: []*onnx.Attribute{aInts("strides", math.MaxInt32, math.MaxInt32)}, in: []*onnx.Tensor{x, f32s(dims(1, 1, 1, 1), 1)}}, "2^40"},
		{opCase{op: "ConvTranspose", attrs: []*onnx.Attribute{aInts("output_shape", math.MaxInt64, math.MaxInt64)}, in: []*onnx.Tensor{x, f32s(dims(1, 1, 1, 1), 1)}}, "ConvTranspose"},
		{opCase{op: "Resize", in: []*onnx.Tensor{x, nil, list32(1, 1, 1e15, 1e15)}}, "Resize"},
		{opCase{op: "Resize", in: []*onnx.Tensor{x, nil, list32(1, 1, math.NaN(), 1)}}, "Resize"},
		{opCase{op: "Resize", in: []*onnx.Tensor{x, nil, nil, int64s(1, 1, much, much)}}, "2^40"},
		{opCase{op: "Upsample", opset: 9, in: []*onnx.Tensor{x, list32(1, 1, 1e9, 1e9)}}, "2^40"},
		{opCase{op: "AffineGrid", opset: 20, in: []*onnx.Tensor{f32s(dims(1, 2, 3), 1, 0, 0, 0, 1, 0), int64s(1, 1, 1<<30, 1<<30)}}, "2^40"},
		{opCase{op: "CenterCropPad", opset: 18, in: []*onnx.Tensor{x, int64s(1, 1, much, much)}}, "want sizes"},
		{opCase{op: "Col2Im", opset: 18, in: []*onnx.Tensor{f32s(dims(1, 1, 1), 1), int64s(much, much), int64s(1, 1)}}, "Col2Im"},
		{opCase{op: "MaxUnpool", attrs: []*onnx.Attribute{kernel, aInts("strides", math.MaxInt32, math.MaxInt32)}, in: []*onnx.Tensor{x, i64s(dims(1, 1, 4, 4), make([]float64, 16)...)}}, "2^40"},
		{opCase{op: "SpaceToDepth", attrs: []*onnx.Attribute{aInt("blocksize", math.MinInt64)}, in: []*onnx.Tensor{x}}, "blocksize"},
		{opCase{op: "DepthToSpace", attrs: []*onnx.Attribute{aInt("blocksize", 0)}, in: []*onnx.Tensor{x}}, "blocksize"},
		{opCase{op: "LRN", attrs: []*onnx.Attribute{aInt("size", -1)}, in: []*onnx.Tensor{x}}, "LRN"},
		{opCase{op: "RoiAlign", opset: 16, attrs: []*onnx.Attribute{aInt("output_height", math.MaxInt32), aInt("output_width", math.MaxInt32)}, in: []*onnx.Tensor{x, f32s(dims(1, 4), 0, 0, 1, 1), int64s(0)}}, "2^40"},
		{opCase{op: "Einsum", attrs: []*onnx.Attribute{aStr("equation", strings.Repeat("a", 1<<16)+"->")}, in: []*onnx.Tensor{x}}, "65538 bytes"},
		{opCase{op: "Transpose", attrs: []*onnx.Attribute{aInts("perm", 0, 0, 0, 0)}, in: []*onnx.Tensor{x}}, "Perm"},
		{opCase{op: "Unsqueeze", in: []*onnx.Tensor{x, int64s(make([]int64, 1<<16)...)}}, "more than"},
		{opCase{op: "Concat", attrs: []*onnx.Attribute{aInt("axis", math.MinInt64)}, in: []*onnx.Tensor{x, x}}, "axis -9223372036854775808 is out of range"},
		{opCase{op: "Gather", attrs: []*onnx.Attribute{aInt("axis", 0)}, in: []*onnx.Tensor{x, int64s(math.MinInt64)}}, "Gather"},
		{opCase{op: "ScatterND", in: []*onnx.Tensor{x, i64s(dims(1, 4), 9, 9, 9, 9), list32(1)}}, "ScatterND"},
		{opCase{op: "LSTM", attrs: []*onnx.Attribute{aInt("hidden_size", math.MaxInt64)}, in: []*onnx.Tensor{f32s(dims(1, 1, 1), 1), f32s(dims(1, 4, 1), 1, 1, 1, 1), f32s(dims(1, 4, 1), 1, 1, 1, 1)}}, "LSTM"},
		{opCase{op: "QuantizeLinear", opset: 21, attrs: []*onnx.Attribute{aInt("block_size", math.MinInt64), aInt("axis", 2)}, in: []*onnx.Tensor{x, f32s(dims(1, 1, 2, 4), 1, 1, 1, 1, 1, 1, 1, 1)}}, "Quantize"},
	} {
		if c.opset == 0 {
			c.opset = 13
		}
		t.Run(c.op+" "+c.want, func(t *testing.T) {
			c.opCase.want = []*onnx.Tensor{{}}
			m, _, bound := c.build()
			m.Graph.Nodes[0].Name = c.op
			refused(t, c.want, func() error {
				_, err := Lower(m, onnx.Options{Values: bound})
				return err
			})
		})
	}
}

// TestHostileGrowth doubles a tensor again and again.
func TestHostileGrowth(t *testing.T) {
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint("known ", known), func(t *testing.T) {
			g := &onnx.Graph{Inputs: []onnx.ValueInfo{info("v0", onnx.Float, 1)}, Outputs: outputs("v60")}
			for i := range 60 {
				v := fmt.Sprint("v", i)
				g.Nodes = append(g.Nodes, node("Concat", names(v, v), names(fmt.Sprint("v", i+1)), aInt("axis", 0)))
			}
			o := onnx.Options{}
			if known {
				o.Values = map[string]*onnx.Tensor{"v0": list32(1)}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Lower(model(13, g), o)
			runtime.ReadMemStats(&after)
			require.ErrorContains(t, err, "is too big")
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(512<<20))
		})
	}
	// Loops that would take for ever, or collect more than there is.
	body := &onnx.Graph{
		Inputs:  []onnx.ValueInfo{info("i", onnx.Int64), info("c", onnx.Bool), info("v", onnx.Float, 1)},
		Nodes:   []*onnx.Node{node("Add", names("v", "v"), names("w")), node("Identity", names("c"), names("d"))},
		Outputs: outputs("d", "w", "v"),
	}
	trips := &onnx.Tensor{Elem: onnx.Int64, Dims: dims(), Data: binary.LittleEndian.AppendUint64(nil, 1<<62)}
	m := model(13, &onnx.Graph{
		Inputs: []onnx.ValueInfo{info("x", onnx.Float, 1)}, Initializers: []*onnx.Tensor{named(trips, "n"), named(bools(dims(), 1), "yes")},
		Nodes: []*onnx.Node{node("Loop", names("n", "yes", "x"), names("y", "all"), aGraph("body", body))}, Outputs: outputs("all"),
	})
	refused(t, "Loop", func() error {
		_, err := Lower(m, onnx.Options{})
		return err
	})
}
