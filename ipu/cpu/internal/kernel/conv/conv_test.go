package conv

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestConv(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		s := kerneltest.DrawSlide(t, rapid.IntRange(1, 3).Draw(t, "axes"))
		small := func(name string) int64 { return rapid.SampledFrom([]int64{1, 1, 2, 3, 4, 5}).Draw(t, name) }
		n := rapid.SampledFrom([]int64{0, 1, 1, 2}).Draw(t, "batch")
		group, c, m := small("group"), small("channels"), small("maps")
		switch rapid.IntRange(0, 9).Draw(t, "channels") {
		case 0:
			c = 0
		case 1: // more than one block
			c = 70
		}
		checkConv(t, d, s, n, group, c, m, rapid.Bool().Draw(t, "bias"))
	})
}

// TestConvOfWideRows draws images that are wider than a few vectors and the
// windows that most models have.
func TestConvOfWideRows(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		var s kerneltest.Slide
		size := rapid.SampledFrom([]int64{1, 3, 3, 3, 5, 5, 7}).Draw(t, "window")
		stride := rapid.SampledFrom([]int64{1, 1, 2, 2, 3}).Draw(t, "stride")
		for _, most := range []int64{12, 150} {
			begin, end := rapid.Int64Range(0, size/2+1).Draw(t, "begin"), rapid.Int64Range(0, size/2+1).Draw(t, "end")
			s.Size = append(s.Size, rapid.Int64Range(max(1, size-begin-end), most).Draw(t, "size"))
			s.Kernel, s.Strides, s.Dilations = append(s.Kernel, size), append(s.Strides, stride), append(s.Dilations, 1)
			s.Begin, s.End = append(s.Begin, begin), append(s.End, end)
		}
		small := func(name string) int64 { return rapid.SampledFrom([]int64{1, 1, 2, 3, 17, 30}).Draw(t, name) }
		group, c, m := small("group"), int64(1), rapid.Int64Range(1, 2).Draw(t, "maps")
		if rapid.Bool().Draw(t, "dense") {
			group, c, m = 1, small("channels"), small("maps")
		}
		checkConv(t, graph.F32, s, rapid.Int64Range(1, 2).Draw(t, "batch"), group, c, m, rapid.Bool().Draw(t, "bias"))
	})
}

// checkConv compares a convolution of drawn data with the sums over all
// windows.
func checkConv(t *rapid.T, d graph.DType, s kerneltest.Slide, n, group, c, m int64, bias bool) {
	t.Helper()
	op := &graph.Conv{Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End, Group: group}
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	in := []graph.TensorType{
		of(append([]int64{n, group * c}, s.Size...)...),
		of(append([]int64{group * m, c}, s.Kernel...)...),
		{},
	}
	if bias {
		in[2] = of(group * m)
	}
	src := kerneltest.DrawSource(t)
	data := [][]byte{src.Tensor(in[0]), src.Tensor(in[1]), src.Tensor(in[2])}
	out, got := runPacked(t, op, in, data)

	x, w, b := kerneltest.Values(in[0], data[0]), kerneltest.Values(in[1], data[1]), kerneltest.Values(in[2], data[2])
	plane, window := tensor.Elements(s.Size), tensor.Elements(s.Kernel)
	want := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape))
	kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
		y := &want[flat]
		add := func(v float64) { y.Value += v; y.Size += math.Abs(v) }
		if b != nil {
			add(b[at[1]])
		}
		first := int(at[0]*group*c + at[1]/m*c)
		s.Window(at[2:], func(tap, inside int, _ []int64) {
			for ch := range int(c) {
				weight := w[(int(at[1])*int(c)+ch)*window+tap]
				if inside >= 0 {
					add(x[(first+ch)*plane+inside] * weight)
				} else if weight != weight || math.IsInf(weight, 0) {
					// A padded zero times a weight that is not finite:
					// kernels may leave the product out.
					y.Open = true
				}
			}
		})
	})
	kerneltest.CompareSums(t, op, out[0], got[0], want)
}
