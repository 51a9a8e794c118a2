package gradient

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// operands draws the gradient of the result of op and op's operands.
func operands(t *rapid.T, op graph.Op, in ...graph.TensorType) (*graph.Gradient, []graph.TensorType, [][]byte) {
	out, err := op.Infer(in)
	require.NoError(t, err)
	in = append([]graph.TensorType{out[0]}, in...)
	s := &kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}
	var data [][]byte
	for _, tt := range in {
		data = append(data, s.Tensor(tt))
	}
	return graph.GradientOf(op), in, data
}

// floatType draws an element type.
func floatType(t *rapid.T) graph.DType {
	return rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
}

// TestPool compares with sums over windows. Elements are few different numbers, and some NaN, so that maxima are there twice.
func TestPool(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		s := kerneltest.DrawSlide(t, rapid.IntRange(1, 3).Draw(t, "axes"))
		if rapid.Bool().Draw(t, "2 by 2") {
			two, none := []int64{2, 2}, []int64{0, 0}
			size := rapid.Int64Range(2, 70)
			s = kerneltest.Slide{Size: []int64{size.Draw(t, "height"), size.Draw(t, "width")}, Kernel: two, Strides: two, Dilations: []int64{1, 1}, Begin: none, End: none}
		}
		x := graph.TensorType{DType: floatType(t), Shape: append([]int64{rapid.Int64Range(0, 2).Draw(t, "batch"), rapid.Int64Range(1, 3).Draw(t, "channels")}, s.Size...)}
		ceil, most, pad := rapid.Bool().Draw(t, "ceil"), rapid.Bool().Draw(t, "max"), rapid.Bool().Draw(t, "pad counts")
		var op graph.Op = &graph.MaxPool{Kernel: s.Kernel, Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End, Ceil: ceil}
		if !most {
			op = &graph.AveragePool{Kernel: s.Kernel, Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End, Ceil: ceil, CountIncludePad: pad}
		}
		o, in, data := operands(t, op, x)
		elems := make([]kerneltest.Elem, x.Elements())
		for i := range elems {
			elems[i].F = float64(rapid.IntRange(0, 5).Draw(t, "value")) - 2
			if elems[i].F == 3 {
				elems[i].F = math.NaN()
			}
		}
		data[1] = kerneltest.Store(x.DType, elems)
		out, got := run(t, o, in, data)

		dy, plane := kerneltest.Values(in[0], data[0]), tensor.Elements(s.Size)
		want := make([]kerneltest.Wanted, len(elems))
		kerneltest.Coords(in[0].Shape, func(at []int64, flat int) {
			base := (int(at[0])*int(x.Shape[1]) + int(at[1])) * plane
			var window []int
			first, count := -1, 0
			s.Window(at[2:], func(_, inside int, pos []int64) {
				padded := true // of what ceil adds beyond the padding nothing counts
				for i, p := range pos {
					padded = padded && p < s.Size[i]+s.End[i]
				}
				if inside >= 0 || pad && padded {
					count++
				}
				if inside < 0 {
					return
				}
				window = append(window, base+inside)
				v := elems[base+inside].F
				if first < 0 || v > elems[first].F || v != v && elems[first].F == elems[first].F {
					first = base + inside
				}
			})
			for _, i := range window {
				d := dy[flat] / float64(count)
				if most {
					if d = 0; i == first {
						d = dy[flat]
					}
				}
				want[i].Value += d
				want[i].Size += math.Abs(d)
			}
		})
		kerneltest.CompareSums(t, o, out[0], got[0], want)
	})
}

// TestNorm compares with the formulas, row by row.
func TestNorm(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"LayerNorm", "RMSNorm", "GroupNorm"}).Draw(t, "kind")
		lead, tail := rapid.Int64Range(0, 90).Draw(t, "rows"), rapid.Int64Range(1, 70).Draw(t, "row")
		d, epsilon := floatType(t), 0.01
		tt := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		// Element e of row r has the scale of group r%groups and place e/plane.
		groups, plane := int64(1), int64(1)
		var op graph.Op = &graph.LayerNorm{Axis: 1, Epsilon: epsilon}
		shapes := []graph.TensorType{tt(lead, tail), tt(tail), tt(tail)}
		switch kind {
		case "RMSNorm":
			op, shapes = &graph.RMSNorm{Axis: 1, Epsilon: epsilon}, shapes[:2]
		case "LayerNorm":
			shapes = shapes[:rapid.IntRange(2, 3).Draw(t, "operands")]
		case "GroupNorm":
			groups, plane = rapid.Int64Range(1, 3).Draw(t, "groups"), rapid.Int64Range(1, 40).Draw(t, "plane")
			lead, tail = rapid.Int64Range(0, 4).Draw(t, "batch"), rapid.Int64Range(1, 3).Draw(t, "channels")
			op, shapes = &graph.GroupNorm{Groups: groups, Epsilon: epsilon}, []graph.TensorType{tt(lead, groups*tail, plane), tt(groups * tail), tt(groups * tail)}
			lead *= groups
		}
		o, in, data := operands(t, op, shapes...)
		out, got := run(t, o, in, data)

		dy, x, scale := kerneltest.Values(in[0], data[0]), kerneltest.Values(in[1], data[1]), kerneltest.Values(in[2], data[2])
		size := int(tail * plane)
		want := [3][]kerneltest.Wanted{make([]kerneltest.Wanted, len(x)), make([]kerneltest.Wanted, len(scale)), make([]kerneltest.Wanted, len(scale))}
		add := func(w *kerneltest.Wanted, v, size float64) {
			w.Value += v
			w.Size += size
		}
		for r := range int(lead) {
			mean, variance := 0.0, 0.0
			x, dy := x[r*size:][:size], dy[r*size:][:size]
			for _, v := range x {
				mean += v / float64(size)
			}
			if kind == "RMSNorm" {
				mean = 0
			}
			for _, v := range x {
				variance += (v - mean) * (v - mean) / float64(size)
			}
			factor := 1 / math.Sqrt(variance+epsilon)
			first, second, firstSize, secondSize, largest := 0.0, 0.0, 0.0, 0.0, 0.0
			of := func(e int) int { return r%int(groups)*int(tail) + e/int(plane) }
			for e, v := range x {
				hat, g := (v-mean)*factor, dy[e]*scale[of(e)]
				largest = max(largest, math.Abs(v)*factor, 1)
				first, firstSize = first+g/float64(size), firstSize+math.Abs(g)/float64(size)
				second, secondSize = second+g*hat/float64(size), secondSize+math.Abs(g)*largest/float64(size)
			}
			if kind == "RMSNorm" {
				first, firstSize = 0, 0
			}
			for e, v := range x {
				hat, g := (v-mean)*factor, dy[e]*scale[of(e)]
				add(&want[0][r*size+e], factor*(g-first-hat*second), 8*factor*largest*largest*(math.Abs(g)+firstSize+secondSize*largest))
				add(&want[1][of(e)], dy[e]*hat, 8*largest*largest*math.Abs(dy[e]))
				add(&want[2][of(e)], dy[e], math.Abs(dy[e]))
			}
		}
		for i, tt := range out {
			kerneltest.CompareSums(t, o, tt, got[i], want[i])
		}
	})
}

// TestSoftmax compares with the formulas, lane by lane.
func TestSoftmax(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		outer, axis, inner := rapid.Int64Range(0, 5).Draw(t, "outer"), rapid.Int64Range(1, 70).Draw(t, "axis"), rapid.SampledFrom([]int64{1, 1, 3, 300}).Draw(t, "inner")
		log := rapid.Bool().Draw(t, "log")
		o, in, data := operands(t, &graph.Softmax{Axis: 1, Log: log}, graph.TensorType{DType: floatType(t), Shape: []int64{outer, axis, inner}})
		out, got := run(t, o, in, data)
		dy, y := kerneltest.Values(in[0], data[0]), kerneltest.Values(in[1], data[1])
		want := make([]kerneltest.Wanted, len(y))
		for lane := range int(outer * inner) {
			at := lane/int(inner)*int(axis*inner) + lane%int(inner)
			total, size := 0.0, 0.0
			for k := range int(axis) {
				d := dy[at+k*int(inner)]
				if !log {
					d *= y[at+k*int(inner)]
				}
				total, size = total+d, size+math.Abs(d)
			}
			for k := range int(axis) {
				i := at + k*int(inner)
				factor := y[i]
				want[i] = kerneltest.Wanted{Value: factor * (dy[i] - total), Size: math.Abs(factor) * (math.Abs(dy[i]) + size)}
				if log {
					factor = math.Exp(y[i])
					want[i] = kerneltest.Wanted{Value: dy[i] - factor*total, Size: 2 * (math.Abs(dy[i]) + factor*size)}
				}
			}
		}
		kerneltest.CompareSums(t, o, out[0], got[0], want)
	})
}
