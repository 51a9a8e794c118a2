package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// layoutFamilies are what the engine decides about layouts, not a pass.
const layoutFamilies = "layout"

func init() {
	nearMisses = append(nearMisses, nearMiss{pass: layoutFamilies, tolerance: 1e-4, build: missLayout, off: []string{"padded with ones", "padded channels", "cut edges",
		"uneven blocks", "part from within a block", "part to within a block", "channels reduced", "factor by column", "factor of lower rank", "factor of lower rank in blocks", "factor of each image"}})
}

// missLayout is two convolutions with something between that NCHWc
// may or may not be kept through.
func missLayout(d *missDraw) []graph.TensorID {
	const c = 20
	ones, none := []int64{1, 1}, []int64{0, 0}
	conv := func(x graph.TensorID, maps int64) graph.TensorID {
		op := &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1}
		w := d.some(maps, d.b.Type(x).Shape[1], 3, 3)
		for i := range w {
			w[i] /= 8
		}
		return d.node(op, x, d.loaded(w, maps, d.b.Type(x).Shape[1], 3, 3))
	}
	x := conv(d.input(2, 3, 5, 6), c)
	slice := func(start, size int64) graph.TensorID {
		return d.node(&graph.Slice{Start: []int64{0, start, 0, 0}, Size: []int64{2, size, 5, 6}, Step: []int64{1, 1, 1, 1}}, x)
	}
	pad := &graph.Pad{Before: []int64{0, 0, 1, 0}, After: []int64{0, 0, 1, 2}, Mode: graph.PadConstant}
	var y graph.TensorID
	switch {
	case d.is("padded with ones"):
		return []graph.TensorID{conv(d.node(pad, x, d.number(1)), 4)}
	case d.is("padded channels"):
		pad.Before[1], pad.After[1] = 1, 2
		y = d.node(pad, x)
	case d.is("cut edges"):
		pad.Before[2] = -1
		y = d.node(pad, x)
	case d.is("uneven blocks"):
		y = d.node(&graph.Concat{Axis: 1}, x, conv(d.input(2, 3, 5, 6), 16)) // as many blocks as the parts have
	case d.is("part from within a block"):
		y = slice(4, 16)
	case d.is("part to within a block"): // whose other channels are not as harmless as zeros
		kept := make([]float32, c)
		for i := range kept {
			kept[i] = 1
			if i >= 13 {
				kept[i] = float32(math.Inf(1))
			}
		}
		x = d.binary(graph.Mul, x, d.fed(kept, 1, c, 1, 1))
		return []graph.TensorID{conv(slice(0, 13), 4)}
	case d.is("channels reduced"):
		y = d.binary(graph.Mul, x, d.reduce(graph.ReduceMean, true, x, 1, 2))
	case d.is("factor by column"):
		y = d.binary(graph.Mul, x, d.unary(graph.Tanh, d.input(1, c, 1, 6)))
	case d.is("factor of lower rank"):
		y = d.binary(graph.Mul, x, d.unary(graph.Tanh, d.input(c, 1, 1)))
	case d.is("factor of lower rank in blocks"): // in blocks of its own one channel
		one := []int64{1}
		op := &graph.Conv{Strides: one, Dilations: one, PadsBegin: []int64{0}, PadsEnd: []int64{0}, Group: 1}
		y = d.binary(graph.Mul, x, d.node(op, d.input(c, 3, 1), d.weight(1, 3, 1)))
	case d.is("factor of each image"):
		y = d.binary(graph.Mul, x, d.unary(graph.Tanh, d.input(2, c, 1, 1)))
	default:
		y = d.node(&graph.MaxPool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: none, PadsEnd: none}, d.node(pad, d.unary(graph.Relu, x)))
	}
	return []graph.TensorID{conv(d.unary(graph.Tanh, y), 4)}
}

// compareBuilt compares what b built with the interpreter, sharing memory and
// not.
func compareBuilt(t *testing.T, b *graph.Builder, inputs map[string][]float32, results map[string]int) {
	t.Helper()
	exe, err := b.Finish()
	require.NoError(t, err)
	compute := func(r runner) map[string][]float32 {
		out := map[string][]float32{}
		for name, v := range inputs {
			require.NoError(t, r.Connect(name, sink{bytesOf(v)}))
		}
		for name, n := range results {
			out[name] = make([]float32, n)
			require.NoError(t, r.Connect(name, sink{bytesOf(out[name])}))
		}
		run(t, r, 0)
		return out
	}
	want := compute(newInterpreter(exe))
	for _, options := range [][]ipu.Option{nil, opt("alias", "off"), opt("threads", "1")} {
		require.Equal(t, want, compute(newLoaded(t, b, options...)), "%v", options)
	}
}

// A view of a buffer is read after an operator that could write over the buffer,
// and parts are put together along an axis that is not the first.
func TestViewsOutliveWhatTheyShow(t *testing.T) {
	b := graph.NewBuilder("views")
	x := b.AddLocal("x", f32(4, 3))
	g := b.BeginGraph("main")
	a := node(t, b, &graph.Unary{Fn: graph.Exp}, "a", x)
	view := node(t, b, &graph.Slice{Start: []int64{1, 0}, Size: []int64{2, 3}, Step: []int64{1, 1}}, "view", a)
	over := node(t, b, &graph.Unary{Fn: graph.Neg}, "over", a)
	y := node(t, b, &graph.Binary{Fn: graph.Add}, "y", view, view)
	left := node(t, b, &graph.Unary{Fn: graph.Abs}, "left", over)
	right := node(t, b, &graph.Unary{Fn: graph.Sqrt}, "right", left)
	wide := node(t, b, &graph.Concat{Axis: 1}, "wide", left, right)
	two := node(t, b, &graph.Reshape{Shape: []int64{2, 6}}, "two", left)
	low := node(t, b, &graph.Unary{Fn: graph.Floor}, "low", two)
	narrow := node(t, b, &graph.Concat{Axis: 1}, "narrow", low, node(t, b, &graph.Unary{Fn: graph.Ceil}, "high", two))
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y), b.CopyOut("over", over), b.CopyOut("wide", wide), b.CopyOut("narrow", narrow))
	compareBuilt(t, b, map[string][]float32{"x": wave(12, 1)}, map[string]int{"y": 6, "over": 12, "wide": 24, "narrow": 24})
}

// A loop swaps what it carries, and carries a part of what it changes.
func TestLoopsCarryAllAtOnce(t *testing.T) {
	b := graph.NewBuilder("swap")
	x, y, z := b.AddLocal("x", f32(4)), b.AddLocal("y", f32(4)), b.AddLocal("z", f32(2))
	one := b.AddConst("one", f32(), bytesOf([]float32{1}))
	body := b.BeginGraph("body")
	i := b.AddLocal("i", graph.TensorType{DType: graph.I64})
	p, q, r, s := b.AddLocal("p", f32(4)), b.AddLocal("q", f32(4)), b.AddLocal("r", f32(2)), b.AddLocal("s", f32(4))
	part := node(t, b, &graph.Slice{Start: []int64{1}, Size: []int64{2}, Step: []int64{1}}, "part", s)
	next := node(t, b, &graph.Binary{Fn: graph.Add}, "next", s, one)
	b.SetParams(body, []graph.TensorID{i, s, r, p, q}, []graph.TensorID{next, part, q, p})
	main := b.BeginGraph("main")
	out, err := b.Node(&graph.Loop{Body: body, Count: 3}, "loop", graph.None, graph.None, x, z, x, y)
	require.NoError(t, err)
	steps := []graph.Step{b.CopyIn("x", x), b.CopyIn("y", y), b.CopyIn("z", z), b.Call(main)}
	results := map[string]int{}
	for k, id := range out {
		name := string(rune('a' + k))
		results[name] = int(b.Type(id).Elements())
		steps = append(steps, b.CopyOut(name, id))
	}
	b.AddProgram(0, "main", steps...)
	compareBuilt(t, b, map[string][]float32{"x": {1, 2, 3, 4}, "y": {5, 6, 7, 8}, "z": {9, 9}}, results)
}

func TestOverlaps(t *testing.T) {
	m := make([]byte, 8)
	for _, c := range []struct {
		a, b []byte
		want bool
	}{
		{m[:4], m[4:], false}, {m[4:], m[:4], false}, {m[:5], m[4:], true}, {m[4:], m[:5], true},
		{m, m[3:4], true}, {m[3:4], m, true}, {m[2:2], m, false}, {m, m[2:2], false}, {m, m, true},
	} {
		require.Equal(t, c.want, overlaps(c.a, c.b), "%d %d", len(c.a), len(c.b))
	}
}
