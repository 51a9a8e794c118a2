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
)

// depthwise convolves every channel of x by itself.
func (d *imageDraw) depthwise(x graph.TensorID) graph.TensorID {
	shape := d.shape(x)
	k, c := rapid.SampledFrom([]int64{3, 3, 5}).Draw(d.T, "window"), shape[1]
	op := &graph.Conv{Strides: slices.Repeat([]int64{d.number(1, 2, "stride")}, d.rank-2), Dilations: slices.Repeat([]int64{1}, d.rank-2), Group: c,
		PadsBegin: d.axes(0, int(k/2), "before"), PadsEnd: d.axes(int(k/2), int(k), "after")}
	for i := range op.PadsBegin {
		op.PadsEnd[i] = max(op.PadsEnd[i], k-shape[2+i]-op.PadsBegin[i])
	}
	if d.yes("bounded") {
		op.Bounded, op.Low, op.High = true, 0, rapid.SampledFrom([]float64{1, math.Inf(1)}).Draw(d.T, "high")
	}
	in := []graph.TensorID{x, d.weight(slices.Concat([]int64{c, 1}, slices.Repeat([]int64{k}, d.rank-2))...)}
	if d.yes("bias") {
		in = append(in, d.weight(c))
	}
	return d.node(op, in...)
}

// follow adds an operator on single channels of x.
func (d *imageDraw) follow(x graph.TensorID) graph.TensorID {
	shape := d.shape(x)
	ones := slices.Repeat([]int64{1}, d.rank-2)
	switch rapid.SampledFrom([]string{"depthwise", "depthwise", "depthwise", "unary", "binary", "channel", "pool", "resize"}).Draw(d.T, "follow") {
	case "unary":
		return d.unary(rapid.SampledFrom([]graph.UnaryFn{graph.Relu, graph.HardSwish, graph.Neg}).Draw(d.T, "function"), x)
	case "binary":
		for _, y := range d.maps {
			if y != x && slices.Equal(shape, d.shape(y)) {
				return d.binary(graph.Add, x, y)
			}
		}
	case "channel":
		return d.binary(graph.Mul, x, d.weight(slices.Concat([]int64{1, shape[1]}, ones)...))
	case "pool":
		return d.node(&graph.MaxPool{Kernel: slices.Repeat([]int64{2}, d.rank-2), Strides: d.axes(1, 2, "stride"), Dilations: ones, PadsBegin: ones, PadsEnd: ones}, x)
	case "resize":
		if slices.Max(shape[2:]) < 20 {
			sizes, scales := slices.Clone(shape), slices.Repeat([]float64{1}, d.rank)
			for i := 2; i < d.rank; i++ {
				sizes[i], scales[i] = 2*shape[i], 2
			}
			return d.node(&graph.Resize{Mode: graph.ResizeNearest, Coordinates: graph.Asymmetric, Rounding: graph.RoundFloor, Sizes: sizes, Scales: scales}, x)
		}
	}
	return d.depthwise(x)
}

// drawTilingNet draws a network of convolutions, each with operators on single
// channels behind it, whose result is some of its activations.
func drawTilingNet(t *rapid.T) (*imageDraw, []byte) {
	d := &imageDraw{netDraw: netDraw{T: t, model: newModel("tiling")}, half: rapid.IntRange(0, 3).Draw(t, "half") == 0, rank: rapid.IntRange(7, 8).Draw(t, "rank") / 2}
	shape := slices.Concat([]int64{d.number(1, 2, "batch"), rapid.SampledFrom([]int64{2, 3, 16, 20, 40}).Draw(t, "channels")}, d.axes(1, 24, "size"))
	x := d.b.AddLocal("x", f32(shape...))
	g := d.b.BeginGraph("main")
	y := x
	if d.half {
		y = d.node(&graph.Cast{To: graph.F16}, x)
	}
	d.maps = []graph.TensorID{y}
	flat := []graph.TensorID{}
	for range rapid.IntRange(1, 2).Draw(t, "convolutions") {
		if d.yes("convolution") {
			k := rapid.SampledFrom([]int64{1, 1, 3}).Draw(t, "kernel")
			ones := slices.Repeat([]int64{1}, d.rank-2)
			op := &graph.Conv{Strides: slices.Repeat([]int64{d.number(1, 2, "stride")}, d.rank-2), Dilations: ones,
				PadsBegin: slices.Repeat([]int64{k / 2}, d.rank-2), PadsEnd: slices.Repeat([]int64{k / 2}, d.rank-2), Group: 1}
			maps := rapid.SampledFrom([]int64{16, 24, 33, 48, 72}).Draw(t, "maps")
			y = d.node(op, y, d.weight(slices.Concat([]int64{maps, d.shape(y)[1]}, slices.Repeat([]int64{k}, d.rank-2))...))
			d.maps = append(d.maps, y)
		}
		for range rapid.IntRange(0, 4).Draw(t, "others") {
			y = d.follow(y)
			d.maps = append(d.maps, y)
		}
	}
	for i, m := range d.maps {
		if i < len(d.maps)-1 && rapid.IntRange(0, 4).Draw(t, "read") > 0 {
			continue
		}
		if d.half {
			m = d.node(&graph.Cast{To: graph.F32}, m)
		}
		flat = append(flat, d.node(&graph.Reshape{Shape: []int64{d.b.Type(m).Elements()}}, m))
	}
	d.finish(x, d.node(&graph.Concat{Axis: 0}, flat...), g)
	return d, executable(t, d.b)
}

// TestTilingChangesNothing compares networks whose operators are fused to
// tiles, however they are cut, with those where nothing is in NCHWc.
func TestTilingChangesNothing(t *testing.T) {
	if nchwc.Lanes() == 0 {
		t.Skip("this path has no kernels for NCHWc")
	}
	defer layout.Force(layout.Forced{})()
	tiled, byRows := 0, 0
	if testing.Short() { // when rapid draws a fifth: twenty networks may all be too small for tiles of rows
		fewerChecks(t, "500")
	}
	rapid.Check(t, func(t *rapid.T) {
		d, exe := drawTilingNet(t)
		compute := func(options ...ipu.Option) []float32 {
			e, err := New(ipu.EngineConfig{Name: "tiling", Executable: exe, Options: options})
			require.NoError(t, err)
			defer e.Close()
			load(t, e)
			for _, g := range e.exe.Graphs {
				for _, n := range g.Nodes {
					if op, ok := n.Op.(*nchwc.FusedTiles); ok {
						tiled++
						byRows += int(min(1, op.Rows))
					}
				}
			}
			_, y := d.start(t, e)
			run(t, e, 1)
			first := slices.Clone(y)
			run(t, e, 1)
			require.Equal(t, bytesOf(first), bytesOf(y))
			return y
		}
		want := compute(opt("layout", "off")...)
		layout.Force(layout.Forced{NCHWc: always, Fuse: cutAnywhere(t)})
		for _, threads := range []string{"1", "2"} {
			got := compute(opt("threads", threads, "prepack", rapid.SampledFrom([]string{"on", "on", "off"}).Draw(t, "prepack"))...)
			for i, v := range want {
				if !sameBits(d.half, v, got[i]) {
					t.Fatalf("%s threads: element %d is %v (%#x), want %v (%#x)", threads, i, got[i], math.Float32bits(got[i]), v, math.Float32bits(v))
				}
			}
		}
	})
	require.Positive(t, tiled)
	require.Positive(t, byRows)
}
