package kernel

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
	"pgregory.net/rapid"
)

func TestConv(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(floatTypes).Draw(t, "type")
		s := drawSlide(t, rapid.IntRange(1, 3).Draw(t, "axes"))
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
	checkPaths(t, func(t *rapid.T) {
		var s slide
		size := rapid.SampledFrom([]int64{1, 3, 3, 3, 5, 5, 7}).Draw(t, "window")
		stride := rapid.SampledFrom([]int64{1, 1, 2, 2, 3}).Draw(t, "stride")
		for _, most := range []int64{12, 150} {
			begin, end := rapid.Int64Range(0, size/2+1).Draw(t, "begin"), rapid.Int64Range(0, size/2+1).Draw(t, "end")
			s.size = append(s.size, rapid.Int64Range(max(1, size-begin-end), most).Draw(t, "size"))
			s.kernel, s.strides, s.dilations = append(s.kernel, size), append(s.strides, stride), append(s.dilations, 1)
			s.begin, s.end = append(s.begin, begin), append(s.end, end)
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
func checkConv(t *rapid.T, d graph.DType, s slide, n, group, c, m int64, bias bool) {
	t.Helper()
	op := &graph.Conv{Strides: s.strides, Dilations: s.dilations, PadsBegin: s.begin, PadsEnd: s.end, Group: group}
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	in := []graph.TensorType{
		of(append([]int64{n, group * c}, s.size...)...),
		of(append([]int64{group * m, c}, s.kernel...)...),
		{},
	}
	if bias {
		in[2] = of(group * m)
	}
	src := drawSource(t)
	data := [][]byte{src.tensor(in[0]), src.tensor(in[1]), src.tensor(in[2])}
	out, got := runPacked(t, op, in, data)

	x, w, b := values(in[0], data[0]), values(in[1], data[1]), values(in[2], data[2])
	plane, window := elements(s.size), elements(s.kernel)
	want := make([]wanted, elements(out[0].Shape))
	coords(out[0].Shape, func(at []int64, flat int) {
		y := &want[flat]
		add := func(v float64) { y.value += v; y.size += math.Abs(v) }
		if b != nil {
			add(b[at[1]])
		}
		first := int(at[0]*group*c + at[1]/m*c)
		s.window(at[2:], func(tap, inside int, _ []int64) {
			for ch := range int(c) {
				weight := w[(int(at[1])*int(c)+ch)*window+tap]
				if inside >= 0 {
					add(x[(first+ch)*plane+inside] * weight)
				} else if weight != weight || math.IsInf(weight, 0) {
					// A padded zero times a weight that is not finite:
					// kernels may leave the product out.
					y.open = true
				}
			}
		})
	})
	compareSums(t, op, out[0], got[0], want)
}
