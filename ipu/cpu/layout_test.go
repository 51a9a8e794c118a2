package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// imageDraw draws a network of convolutions and what stands between them.
type imageDraw struct {
	netDraw
	half bool
	rank int
	maps []graph.TensorID // activations so far
}

func (d *imageDraw) number(lo, hi int, label string) int64 {
	return int64(rapid.IntRange(lo, hi).Draw(d.T, label))
}

// axes returns one number for each spatial axis.
func (d *imageDraw) axes(lo, hi int, label string) []int64 {
	v := make([]int64, d.rank-2)
	for i := range v {
		v[i] = d.number(lo, hi, label)
	}
	return v
}

// weight returns a parameter of the network's type.
func (d *imageDraw) weight(shape ...int64) graph.TensorID {
	if !d.half {
		return d.param(false, shape...)
	}
	v := wave(int(f32(shape...).Elements()), 0.5)
	h := make([]num.Float16, len(v))
	for i := range v {
		h[i] = num.Float16From(v[i])
	}
	return d.b.AddConst("weight", graph.TensorType{DType: graph.F16, Shape: shape}, bytesOf(h))
}

func (d *imageDraw) any(label string) graph.TensorID {
	return rapid.SampledFrom(d.maps).Draw(d.T, label)
}

func (d *imageDraw) shape(t graph.TensorID) []int64 { return d.b.Type(t).Shape }

func (d *imageDraw) conv(x graph.TensorID) graph.TensorID {
	shape := d.shape(x)
	c := shape[1]
	op := &graph.Conv{Strides: d.axes(1, 2, "stride"), Dilations: d.axes(1, 2, "dilation"),
		PadsBegin: d.axes(1, 3, "before"), PadsEnd: d.axes(1, 3, "after"), Group: 1}
	maps := rapid.SampledFrom([]int64{1, 3, 8, 16, 24, 32, 33}).Draw(d.T, "maps")
	switch rapid.SampledFrom([]string{"dense", "dense", "depthwise", "groups"}).Draw(d.T, "kind") {
	case "depthwise":
		op.Group, maps = c, c
	case "groups":
		if c%2 == 0 {
			op.Group, maps = 2, 2*maps
		}
	}
	k := make([]int64, d.rank-2)
	for i := range k {
		k[i] = rapid.SampledFrom([]int64{1, 3}).Draw(d.T, "kernel")
		if (k[i]-1)*op.Dilations[i] >= shape[2+i]+op.PadsBegin[i]+op.PadsEnd[i] {
			k[i] = 1
		}
	}
	if d.yes("bounded") {
		op.Bounded, op.Low, op.High = true, 0, rapid.SampledFrom([]float64{6, math.Inf(1)}).Draw(d.T, "high")
	}
	in := []graph.TensorID{x, d.weight(slices.Concat([]int64{maps, c / op.Group}, k)...)}
	if d.yes("bias") {
		in = append(in, d.weight(maps))
	}
	return d.node(op, in...)
}

// residual adds a convolution of the same shape to x.
func (d *imageDraw) residual(x graph.TensorID) graph.TensorID {
	c := d.shape(x)[1]
	ones := slices.Repeat([]int64{1}, d.rank-2)
	op := &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1}
	y := d.node(op, x, d.weight(slices.Concat([]int64{c, c}, slices.Repeat([]int64{3}, d.rank-2))...), d.weight(c))
	if d.yes("twice") {
		d.maps = append(d.maps, y)
	}
	if d.yes("pointwise") {
		p := &graph.Pointwise{Fns: []string{"add", "relu"}, Args: []int64{0, 1, 2}, Alpha: []float64{0, 0}, Beta: []float64{0, 0}}
		in := []graph.TensorID{x, y}
		if !d.half && d.yes("clip") {
			p.Fns[1], p.Args = graph.PointwiseClip, []int64{1, 0, 3, 2, -1}
			in = append(in, d.netDraw.number(-0.25))
		}
		return d.node(p, in...)
	}
	y = d.binary(graph.Add, x, y)
	if d.yes("relu") {
		y = d.unary(graph.Relu, y)
	}
	return y
}

// gate multiplies every channel by a number that depends on all of them.
func (d *imageDraw) gate(x graph.TensorID) graph.TensorID {
	c := d.shape(x)[1]
	axes := []int64{2, 3}[:d.rank-2]
	ones, zeros := slices.Repeat([]int64{1}, d.rank-2), make([]int64, d.rank-2)
	g := d.node(&graph.Reduce{Fn: rapid.SampledFrom([]graph.ReduceFn{graph.ReduceMean, graph.ReduceMax}).Draw(d.T, "reduce"), Axes: axes, KeepDims: true}, x)
	if d.yes("product") {
		g = d.node(&graph.Conv{Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros, Group: 1}, g, d.weight(slices.Concat([]int64{c, c}, ones)...))
	}
	return d.binary(graph.Mul, x, d.unary(graph.Sigmoid, g))
}

// step adds one activation, or none where its operands don't suit.
func (d *imageDraw) step() (graph.TensorID, bool) {
	x := d.any("x")
	shape := d.shape(x)
	ones := slices.Repeat([]int64{1}, d.rank-2)
	switch rapid.SampledFrom([]string{"conv", "conv", "conv", "conv", "residual", "residual", "gate", "pool", "average", "unary", "swish", "binary", "channel", "concat", "slice", "pad", "resize", "foreign"}).Draw(d.T, "step") {
	case "conv":
		return d.conv(x), true
	case "residual":
		return d.residual(x), true
	case "gate":
		return d.gate(x), true
	case "pool":
		return d.node(&graph.MaxPool{Kernel: slices.Repeat([]int64{2}, d.rank-2), Strides: d.axes(1, 2, "stride"), Dilations: ones, PadsBegin: ones, PadsEnd: ones, Ceil: d.yes("ceil")}, x), true
	case "average":
		return d.node(&graph.AveragePool{Kernel: slices.Repeat([]int64{2}, d.rank-2), Strides: d.axes(1, 2, "stride"), Dilations: ones, PadsBegin: ones, PadsEnd: ones, CountIncludePad: d.yes("count")}, x), true
	case "unary":
		return d.unary(rapid.SampledFrom([]graph.UnaryFn{graph.Relu, graph.Sigmoid, graph.HardSwish, graph.Neg}).Draw(d.T, "function"), x), true
	case "swish":
		return d.node(&graph.Pointwise{Fns: []string{"sigmoid", "mul", "abs"}, Args: []int64{0, 0, 1, 2}, Alpha: make([]float64, 3), Beta: make([]float64, 3)}, x), true
	case "binary":
		y := d.any("y")
		if !slices.Equal(shape, d.shape(y)) {
			return 0, false
		}
		return d.binary(rapid.SampledFrom([]graph.BinaryFn{graph.Add, graph.Mul, graph.Max}).Draw(d.T, "function"), x, y), true
	case "channel":
		p := d.weight(slices.Concat([]int64{1, shape[1]}, ones)[d.number(0, 1, "leading"):]...)
		return d.binary(rapid.SampledFrom([]graph.BinaryFn{graph.Add, graph.Mul, graph.PRelu}).Draw(d.T, "function"), x, p), true
	case "concat":
		y := d.any("y")
		if !slices.Equal(shape[2:], d.shape(y)[2:]) {
			return 0, false
		}
		return d.node(&graph.Concat{Axis: 1}, x, y), true
	case "slice":
		op := &graph.Slice{Start: make([]int64, d.rank), Size: slices.Clone(shape), Step: slices.Repeat([]int64{1}, d.rank)}
		if shape[1] > 16 && d.yes("blocks") {
			op.Start[1], op.Size[1] = 16, shape[1]-16
		} else if shape[1] > 3 {
			op.Start[1], op.Size[1] = 1, 2
		}
		if shape[2] > 2 && d.yes("positions") {
			op.Start[2], op.Size[2] = 1, shape[2]-1
		}
		return d.node(op, x), true
	case "pad":
		before, after := make([]int64, d.rank), make([]int64, d.rank)
		copy(before[2:], d.axes(0, 1, "before"))
		copy(after[2:], d.axes(0, 1, "after"))
		y := d.node(&graph.Pad{Before: before, After: after, Mode: rapid.SampledFrom([]graph.PadMode{graph.PadConstant, graph.PadEdge}).Draw(d.T, "mode")}, x)
		if d.yes("folded") {
			return d.conv(y), true
		}
		return y, true
	case "resize":
		sizes, scales := slices.Clone(shape), slices.Repeat([]float64{1}, d.rank)
		for i := 2; i < d.rank; i++ {
			if shape[i] > 20 {
				return 0, false
			}
			sizes[i], scales[i] = 2*shape[i], 2
		}
		return d.node(&graph.Resize{Mode: rapid.SampledFrom([]graph.ResizeMode{graph.ResizeNearest, graph.ResizeLinear}).Draw(d.T, "mode"),
			Coordinates: rapid.SampledFrom([]graph.Coordinates{graph.HalfPixel, graph.Asymmetric}).Draw(d.T, "coordinates"),
			Rounding:    graph.RoundFloor, Sizes: sizes, Scales: scales}, x), true
	}
	perm := []int64{0, 1, 3, 2}
	if d.rank == 3 {
		perm = []int64{0, 2, 1}
	}
	return d.node(&graph.Transpose{Perm: perm}, d.node(&graph.Unary{Fn: graph.Softsign}, x)), true
}

// drawImageNet draws a network whose result is all of its activations.
func drawImageNet(t *rapid.T) (*imageDraw, []byte) {
	d := &imageDraw{netDraw: netDraw{T: t, model: newModel("images")}, half: rapid.Bool().Draw(t, "half"), rank: rapid.IntRange(3, 4).Draw(t, "rank")}
	shape := slices.Concat([]int64{d.number(1, 2, "batch"), rapid.SampledFrom([]int64{1, 3, 16, 20, 32}).Draw(t, "channels")}, d.axes(1, 12, "size"))
	x := d.b.AddLocal("x", f32(shape...))
	g := d.b.BeginGraph("main")
	d.maps = []graph.TensorID{x}
	if d.half {
		d.maps[0] = d.node(&graph.Cast{To: graph.F16}, x)
	}
	for range rapid.IntRange(1, 8).Draw(t, "steps") {
		if y, ok := d.step(); ok && d.b.Type(y).Elements() < 1<<15 {
			d.maps = append(d.maps, y)
		}
	}
	var flat []graph.TensorID
	for _, m := range d.maps {
		if d.half {
			m = d.node(&graph.Cast{To: graph.F32}, m)
		}
		flat = append(flat, d.node(&graph.Reshape{Shape: []int64{d.b.Type(m).Elements()}}, m))
	}
	d.finish(x, d.node(&graph.Concat{Axis: 0}, flat...), g)
	return d, executable(t, d.b)
}

// sameBits reports whether two results are the same. What half precision rounds
// to zero may have either sign: bounds apply before or after it is rounded.
func sameBits(half bool, a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || half && a == 0 && b == 0
}

// TestLayoutChangesNothing compares networks in blocks with those that are
// not, whatever is chosen to be in blocks.
func TestLayoutChangesNothing(t *testing.T) {
	if nchwc.Lanes() == 0 {
		t.Skip("this path has no kernels for NCHWc")
	}
	defer layout.Force(layout.Forced{})()
	inBlocks := 0
	rapid.Check(t, func(t *rapid.T) {
		d, exe := drawImageNet(t)
		compute := func(options ...ipu.Option) []float32 {
			e, err := New(ipu.EngineConfig{Name: "layout", Executable: exe, Options: options})
			require.NoError(t, err)
			defer e.Close()
			load(t, e)
			_, y := d.start(t, e)
			run(t, e, 1)
			for _, p := range e.plan.Programs {
				for _, s := range p.Steps {
					if s.Op == "NCHWcConv" {
						inBlocks++
					}
				}
			}
			return y
		}
		want := compute(opt("layout", "off")...)
		same := func(way string, got []float32) {
			for i, v := range want {
				if !sameBits(d.half, v, got[i]) {
					t.Fatalf("%s: element %d is %v (%#x), want %v (%#x)", way, i, got[i], math.Float32bits(got[i]), v, math.Float32bits(v))
				}
			}
		}
		layout.Force(layout.Forced{})
		same("as estimated", compute(opt("layout", "on")...))
		for _, way := range []string{"all in blocks", "some in blocks"} {
			layout.Force(layout.Forced{NCHWc: func() bool { return way == "all in blocks" || rapid.Bool().Draw(t, "in blocks") }})
			same(way, compute(opt("layout", "on", "threads", rapid.SampledFrom([]string{"1", "2"}).Draw(t, "threads"))...))
		}
	})
	require.Positive(t, inBlocks)
}
