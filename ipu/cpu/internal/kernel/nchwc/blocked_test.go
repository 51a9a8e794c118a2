package nchwc

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// blocked returns x, planes of F32 or F16, in blocks; what lies beyond the
// last channel is noise that no kernel may use.
func blocked(tt graph.TensorType, x []byte, lanes int64, noise float32) []byte {
	y := nchwcType(tt.Shape, lanes)
	out := kerneltest.Aligned(4 * tensor.Elements(y.Shape))
	dst, s := tensor.F32s(out), newBlockShape(tt.Shape, int(lanes))
	for i := range dst {
		dst[i] = noise
	}
	for i, v := range wide(tt, x) {
		pixel, channel := i%s.pixels, i/s.pixels
		image, c := channel/s.channels, channel%s.channels
		dst[((image*s.blocks+c/s.lanes)*s.pixels+pixel)*s.lanes+c%s.lanes] = v
	}
	return out
}

// planar returns the elements of a tensor in NCHWc in the order of NCHW.
func planar(shape []int64, lanes int64, x []byte) []float32 {
	s := newBlockShape(shape, int(lanes))
	y := make([]float32, s.images*s.channels*s.pixels)
	for i := range y {
		pixel, channel := i%s.pixels, i/s.pixels
		image, c := channel/s.channels, channel%s.channels
		y[i] = tensor.F32s(x)[((image*s.blocks+c/s.lanes)*s.pixels+pixel)*s.lanes+c%s.lanes]
	}
	return y
}

// wide returns the elements of F32 or F16.
func wide(tt graph.TensorType, x []byte) []float32 {
	if tt.DType == graph.F32 {
		return tensor.F32s(x)
	}
	y := make([]float32, len(x)/2)
	num.DecodeFloat16(y, tensor.View[num.Float16](x))
	return y
}

// sameFloats fails where two results differ by more than the sign of zero or
// which NaN it is.
func sameFloats(t kerneltest.Fataler, what any, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%+v: %d elements, want %d", what, len(got), len(want))
	}
	for i, g := range got {
		if w := want[i]; g != w && (g == g || w == w) {
			t.Fatalf("%+v: element %d is %v, want %v", what, i, g, w)
		}
	}
}

// testLanes is [Lanes], 16 where there are no kernels for NCHWc.
func testLanes() int64 {
	if n := Lanes(); n > 0 {
		return n
	}
	return 16
}

func drawNoise(t *rapid.T) float32 {
	return rapid.SampledFrom([]float32{0, float32(math.NaN()), float32(math.Inf(1)), 3}).Draw(t, "noise")
}

func TestBlocks(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		lanes := testLanes()
		d := rapid.SampledFrom([]graph.DType{graph.F32, graph.F16}).Draw(t, "type")
		tt := graph.TensorType{DType: d, Shape: []int64{
			rapid.Int64Range(0, 3).Draw(t, "images"), rapid.Int64Range(1, 70).Draw(t, "channels"),
		}}
		for range rapid.IntRange(1, 2).Draw(t, "axes") {
			tt.Shape = append(tt.Shape, rapid.Int64Range(1, 40).Draw(t, "size"))
		}
		x := kerneltest.DrawSource(t).Tensor(tt)
		types, got := run(t, &ToNCHWc{Lanes: lanes}, []graph.TensorType{tt}, [][]byte{x})
		sameFloats(t, tt, planar(tt.Shape, lanes, got[0]), wide(tt, x))
		// As f32 everything fits.
		for _, to := range []graph.DType{d, graph.F32} {
			back := graph.TensorType{DType: to, Shape: tt.Shape}
			in := blocked(tt, x, lanes, drawNoise(t))
			_, got := run(t, &FromNCHWc{Channels: tt.Shape[1], To: to}, types, [][]byte{in})
			sameFloats(t, tt, wide(back, got[0]), wide(tt, x))
		}
	})
}

// checkBlockedConv compares a blocked convolution with that of planes.
func checkBlockedConv(t *rapid.T, s kerneltest.Slide, n, group, c, m int64) {
	t.Helper()
	lanes := testLanes()
	o := &Conv{Lanes: lanes, Channels: group * c}
	o.Conv = graph.Conv{Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End, Group: group}
	o.In, o.Out, o.Half = rapid.IntRange(0, 2).Draw(t, "in") > 0, rapid.IntRange(0, 2).Draw(t, "out") > 0, rapid.IntRange(0, 3).Draw(t, "half") == 0
	if o.Bounded = rapid.Bool().Draw(t, "bounded"); o.Bounded {
		o.Low, o.High = 0, rapid.SampledFrom([]float64{1.5, math.Inf(1)}).Draw(t, "high")
	}
	d := graph.F32
	if o.Half {
		d = graph.F16
	}
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	in := []graph.TensorType{
		of(append([]int64{n, group * c}, s.Size...)...), of(append([]int64{group * m, c}, s.Kernel...)...), {},
	}
	if rapid.Bool().Draw(t, "bias") {
		in[2] = of(group * m)
	}
	src := kerneltest.DrawSource(t)
	data := [][]byte{src.Tensor(in[0]), src.Tensor(in[1]), src.Tensor(in[2])}

	// What is expected: the sums of planes, then everything else.
	plain := o.Conv
	plain.Bounded = false
	single := slices.Clone(in)
	wideData := slices.Clone(data)
	for i := range in {
		if data[i] != nil {
			single[i].DType = graph.F32
			wideData[i] = kerneltest.Aligned(4 * tensor.Elements(in[i].Shape))
			copy(tensor.F32s(wideData[i]), wide(in[i], data[i]))
		}
	}
	out, sums := runPacked(t, &plain, single, wideData)
	want := tensor.F32s(sums[0])
	y := of(out[0].Shape...)
	var r []byte
	if rapid.Bool().Draw(t, "residual") {
		r = src.Tensor(y)
	}
	round := func(v float32) float32 {
		if o.Half {
			return num.Float16From(v).Float32()
		}
		return v
	}
	for i, v := range want {
		v = round(v)
		if r != nil {
			v = round(v + wide(y, r)[i])
		}
		if o.Bounded {
			v = min(max(v, float32(o.Low)), float32(o.High))
		}
		want[i] = v
	}

	noise := drawNoise(t)
	if o.In {
		data[0] = blocked(in[0], data[0], lanes, noise)
		in[0] = nchwcType(in[0].Shape, lanes)
	}
	if r != nil {
		in, data = append(in, y), append(data, r)
		if o.Out {
			in[3], data[3] = nchwcType(y.Shape, lanes), blocked(y, r, lanes, noise)
		}
	}
	_, got := runPacked(t, o, in, data)
	if o.Out {
		sameFloats(t, o, planar(y.Shape, lanes, got[0]), want)
	} else {
		sameFloats(t, o, wide(y, got[0]), want)
	}
}

// TestBlockedConv draws convolutions, in units that are small enough for small
// images to have several.
func TestBlockedConv(t *testing.T) {
	defer func(band, weights int) { blockedBandBytes, blockedWeightBytes = band, weights }(blockedBandBytes, blockedWeightBytes)
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		blockedBandBytes = rapid.SampledFrom([]int{1 << 10, 8 << 10, 384 << 10}).Draw(t, "band")
		blockedWeightBytes = rapid.SampledFrom([]int{1 << 10, 768 << 10}).Draw(t, "weights")
		s := kerneltest.DrawSlide(t, rapid.IntRange(1, 2).Draw(t, "axes"))
		lanes := testLanes()
		group, c, m := int64(1), rapid.Int64Range(1, 40).Draw(t, "channels"), rapid.Int64Range(1, 70).Draw(t, "maps")
		switch rapid.IntRange(0, 5).Draw(t, "groups") {
		case 0:
			group, c, m = 2, lanes, lanes*rapid.Int64Range(1, 3).Draw(t, "blocks")
		case 1:
			group, c, m = 3, rapid.Int64Range(1, 5).Draw(t, "channels"), rapid.Int64Range(1, 5).Draw(t, "maps")
		case 2:
			group, c, m = c, 1, 1
		}
		checkBlockedConv(t, s, rapid.Int64Range(0, 2).Draw(t, "images"), group, c, m)
	})
}

func TestBlockedPool(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		s := kerneltest.DrawSlide(t, 2)
		var op graph.Op
		if rapid.Bool().Draw(t, "most") {
			op = &graph.MaxPool{Kernel: s.Kernel, Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End}
		} else {
			if rapid.IntRange(0, 3).Draw(t, "global") == 0 {
				s.Kernel, s.Strides, s.Dilations = s.Size, []int64{1, 1}, []int64{1, 1}
				s.Begin, s.End = []int64{0, 0}, []int64{0, 0}
			}
			op = &graph.AveragePool{Kernel: s.Kernel, Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End,
				CountIncludePad: rapid.Bool().Draw(t, "count")}
		}
		checkBlocked(t, op, &Pool{Pool: op}, s.Size)
	})
}

// TestBlockedDepthwise draws the windows that have loops of their own.
func TestBlockedDepthwise(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		var s kerneltest.Slide
		size, stride := rapid.SampledFrom([]int64{3, 5}).Draw(t, "window"), rapid.Int64Range(1, 2).Draw(t, "stride")
		for range 2 {
			begin, end := rapid.Int64Range(0, size).Draw(t, "begin"), rapid.Int64Range(0, size).Draw(t, "end")
			s.Size = append(s.Size, rapid.Int64Range(max(1, size-begin-end), 30).Draw(t, "size"))
			s.Kernel, s.Strides, s.Dilations = append(s.Kernel, size), append(s.Strides, stride), append(s.Dilations, 1)
			s.Begin, s.End = append(s.Begin, begin), append(s.End, end)
		}
		checkBlockedConv(t, s, rapid.Int64Range(1, 2).Draw(t, "images"), rapid.Int64Range(1, 40).Draw(t, "channels"), 1, 1)
	})
}

// checkBlocked compares an operator on NCHWc with that on NCHW.
func checkBlocked(t *rapid.T, op, on graph.Op, size []int64) {
	t.Helper()
	lanes := testLanes()
	tt := graph.TensorType{DType: graph.F32, Shape: append([]int64{rapid.Int64Range(1, 2).Draw(t, "images"), rapid.Int64Range(1, 40).Draw(t, "channels")}, size...)}
	if o, ok := op.(*graph.Resize); ok {
		o.Sizes[0], o.Sizes[1] = tt.Shape[0], tt.Shape[1]
	}
	x := kerneltest.DrawSource(t).Tensor(tt)
	types, want := run(t, op, []graph.TensorType{tt}, [][]byte{x})
	if o, ok := on.(*Resize); ok {
		o.Resize = *op.(*graph.Resize)
	}
	in := nchwcType(tt.Shape, lanes)
	_, got := run(t, on, []graph.TensorType{in}, [][]byte{blocked(tt, x, lanes, drawNoise(t))})
	sameFloats(t, op, planar(types[0].Shape, lanes, got[0]), tensor.F32s(want[0]))
}

func TestBlockedResize(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		size := []int64{rapid.Int64Range(1, 20).Draw(t, "height"), rapid.Int64Range(1, 20).Draw(t, "width")}
		o := &graph.Resize{
			Mode:        rapid.SampledFrom([]graph.ResizeMode{graph.ResizeNearest, graph.ResizeLinear}).Draw(t, "mode"),
			Coordinates: rapid.SampledFrom([]graph.Coordinates{graph.HalfPixel, graph.Asymmetric, graph.AlignCorners}).Draw(t, "coordinates"),
			Rounding:    graph.RoundPreferFloor,
			Sizes:       make([]int64, 2), Scales: []float64{1, 1},
		}
		for _, n := range size {
			f := rapid.SampledFrom([]float64{1, 2, 2, 0.5, 1.7}).Draw(t, "factor")
			o.Sizes, o.Scales = append(o.Sizes, max(1, int64(float64(n)*f))), append(o.Scales, f)
		}
		checkBlocked(t, o, &Resize{}, size)
	})
}

// TestBlockedRunsAllocateNothing runs the kernels for NCHWc, with a pool that
// cuts the work.
func TestBlockedRunsAllocateNothing(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		lanes := testLanes()
		ones := []int64{1, 1}
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
		x := nchwcType([]int64{1, 40, 20, 20}, lanes)
		conv := func(group int64, in, out bool) *Conv {
			return &Conv{Lanes: lanes, Channels: 40, In: in, Out: out, Conv: graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: group}}
		}
		pool := &graph.MaxPool{Kernel: []int64{3, 3}, Strides: []int64{2, 2}, Dilations: ones, PadsBegin: ones, PadsEnd: ones}
		mean := &graph.AveragePool{Kernel: []int64{2, 2}, Strides: []int64{2, 2}, Dilations: ones, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}}
		fused := &FusedTiles{Channels: 40, Lanes: lanes, Blocks: 2, Members: []FusedMember{
			{Op: conv(1, true, true), In: []int{0, 1, 2}}, {Op: conv(40, true, true), In: []int{OperandPrevious, 3, OperandNone, 4}},
		}}
		rows := *fused
		if rows.Blocks = 1; Lanes() > 0 {
			rows.Rows = 7
		}
		for _, c := range []kerneltest.HeavyCase{
			{Op: &ToNCHWc{Lanes: lanes}, In: []graph.TensorType{of(1, 40, 20, 20)}},
			{Op: &FromNCHWc{Channels: 40, To: graph.F32}, In: []graph.TensorType{x}},
			{Op: conv(1, true, true), In: []graph.TensorType{x, of(40, 40, 3, 3), of(40), x}},
			{Op: conv(1, false, true), In: []graph.TensorType{of(1, 40, 20, 20), of(40, 40, 3, 3), of(40)}},
			{Op: conv(1, true, false), In: []graph.TensorType{x, of(40, 40, 3, 3), of(40), of(1, 40, 20, 20)}},
			{Op: conv(40, true, true), In: []graph.TensorType{x, of(40, 1, 3, 3), of(40), x}},
			{Op: conv(10, true, true), In: []graph.TensorType{x, of(40, 4, 3, 3), of(40), x}},
			{Op: fused, In: []graph.TensorType{x, of(40, 40, 3, 3), of(40), of(40, 1, 3, 3), x}},
			{Op: &rows, In: []graph.TensorType{x, of(40, 40, 3, 3), of(40), of(40, 1, 3, 3), x}},
			{Op: &Pool{Pool: pool}, In: []graph.TensorType{x}},
			{Op: &Pool{Pool: mean}, In: []graph.TensorType{x}},
			{Op: &Resize{Resize: graph.Resize{Mode: graph.ResizeLinear, Coordinates: graph.HalfPixel, Sizes: []int64{1, 40, 40, 40}, Scales: []float64{1, 1, 2, 2}}}, In: []graph.TensorType{x}},
		} {
			out, err := c.Op.Infer(c.In)
			require.NoError(t, err)
			bind := newKernel
			if o, ok := c.Op.(*FusedTiles); ok {
				bind = func(_ graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
					return NewFusedTiles(newKernel, o, in, out[0])
				}
			}
			k, err := bind(c.Op, c.In, out)
			require.NoError(t, err)
			s := &kerneltest.Source{R: kerneltest.Seeded(1)}
			var data [][]byte
			for _, tt := range c.In {
				data = append(data, s.Tensor(tt))
			}
			results := [][]byte{kerneltest.Aligned(4 * tensor.Elements(out[0].Shape))}
			scratch := kerneltest.Aligned(k.Scratch())
			for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.InTurn(4)} {
				n := testing.AllocsPerRun(2, func() {
					if err := k.Run(p, data, results, scratch); err != nil {
						t.Fatal(err)
					}
				})
				require.Zero(t, n, "%s of %v with %d workers", c.Op.Kind(), c.In, p.Workers())
			}
		}
	})
}
