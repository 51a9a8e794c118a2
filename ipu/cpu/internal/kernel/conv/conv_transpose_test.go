package conv

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestConvTranspose(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		axes := rapid.IntRange(1, 3).Draw(t, "axes")
		small := func(name string) int64 { return rapid.SampledFrom([]int64{1, 1, 2, 3, 4, 5}).Draw(t, name) }
		n, group, c, m := rapid.SampledFrom([]int64{0, 1, 1, 2}).Draw(t, "batch"), small("group"), small("channels"), small("maps")
		switch rapid.IntRange(0, 9).Draw(t, "many") {
		case 0:
			c = 0
		case 1: // more than one block of channels
			c = 270
		case 2: // more than one block of products
			m = 90
		}
		op := &graph.ConvTranspose{Group: group}
		var size, kernel []int64
		for range axes {
			most := []int64{80, 20, 6}[axes-1]
			s, k := rapid.Int64Range(0, most).Draw(t, "size"), rapid.Int64Range(1, 4).Draw(t, "kernel")
			stride, dilation := rapid.Int64Range(1, 3).Draw(t, "stride"), rapid.SampledFrom([]int64{1, 1, 2}).Draw(t, "dilation")
			pad := rapid.Int64Range(-2, 4).Draw(t, "pad")
			full := max(s-1, 0)*stride + (k-1)*dilation + 1
			size, kernel = append(size, s), append(kernel, k)
			op.Strides, op.Dilations = append(op.Strides, stride), append(op.Dilations, dilation)
			op.PadsBegin = append(op.PadsBegin, pad)
			op.Output = append(op.Output, max(full-pad+rapid.Int64Range(-4, 2).Draw(t, "end"), 0))
		}
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		in := []graph.TensorType{of(append([]int64{n, group * c}, size...)...), of(append([]int64{group * c, m}, kernel...)...), {}}
		if rapid.Bool().Draw(t, "bias") {
			in[2] = of(group * m)
		}
		// No NaN: which of its bits stay depends on the order of two operands.
		src := &kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}
		data := [][]byte{src.Tensor(in[0]), src.Tensor(in[1]), src.Tensor(in[2])}
		out, got := runPacked(t, op, in, data)

		x, w, b := kerneltest.Values(in[0], data[0]), kerneltest.Values(in[1], data[1]), kerneltest.Values(in[2], data[2])
		want := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape))
		if b != nil {
			kerneltest.Coords(out[0].Shape, func(at []int64, flat int) { want[flat] = kerneltest.Wanted{Value: b[at[1]], Size: math.Abs(b[at[1]])} })
		}
		image, window := tensor.Elements(op.Output), tensor.Elements(kernel)
		kerneltest.Coords(in[0].Shape, func(at []int64, flat int) {
			kerneltest.Coords(kernel, func(k []int64, tap int) {
				to := 0
				for i := range axes {
					p := at[2+i]*op.Strides[i] + k[i]*op.Dilations[i] - op.PadsBegin[i]
					if p < 0 || p >= op.Output[i] {
						return
					}
					to = to*int(op.Output[i]) + int(p)
				}
				for o := range int(m) {
					y := &want[(int(at[0]*group*m+at[1]/c*m)+o)*image+to]
					v := x[flat] * w[(int(at[1]*m)+o)*window+tap]
					y.Value += v
					y.Size += math.Abs(v)
				}
			})
		})
		kerneltest.CompareSums(t, op, out[0], got[0], want)
	})
}

// TestConvTransposeInBands has work to cut although there is only one image
// with one output channel.
func TestConvTransposeInBands(t *testing.T) {
	op := &graph.ConvTranspose{Strides: []int64{3, 3}, Dilations: []int64{1, 1}, PadsBegin: []int64{3, 2}, Output: []int64{97, 100}, Group: 1}
	in := []graph.TensorType{{DType: graph.F32, Shape: []int64{1, 5, 33, 33}}, {DType: graph.F32, Shape: []int64{5, 1, 5, 4}}}
	src := &kerneltest.Source{R: kerneltest.Seeded(1)}
	runPacked(t, op, in, [][]byte{src.Tensor(in[0]), src.Tensor(in[1])})
	in = []graph.TensorType{{DType: graph.F64, Shape: in[0].Shape}, {DType: graph.F64, Shape: in[1].Shape}}
	runPacked(t, op, in, [][]byte{src.Tensor(in[0]), src.Tensor(in[1])})
	k, err := newKernel(op, in, []graph.TensorType{{DType: graph.F64, Shape: []int64{1, 1, 97, 100}}})
	require.NoError(t, err)
	c := k.(*convTranspose[float64])
	task := convTransposeTask[float64]{convTranspose: c}
	task.divide(4)
	require.Greater(t, task.bands, 1)
}

func TestCol2Im(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.NumTypes).Draw(t, "type")
		s := kerneltest.DrawSlide(t, rapid.IntRange(1, 4).Draw(t, "axes"))
		op := &graph.Col2Im{Image: s.Size, Block: s.Kernel, Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End}
		var count []int64
		for i := range s.Size {
			count = append(count, (s.Size[i]+s.Begin[i]+s.End[i]-(s.Kernel[i]-1)*s.Dilations[i]-1)/s.Strides[i]+1)
		}
		n, c := rapid.Int64Range(0, 2).Draw(t, "batch"), rapid.Int64Range(0, 3).Draw(t, "channels")
		block, blocks := tensor.Elements(s.Kernel), tensor.Elements(count)
		tt := graph.TensorType{DType: d, Shape: []int64{n, c * int64(block), int64(blocks)}}
		x := kerneltest.DrawSource(t).Tensor(tt)
		out, got := run(t, op, []graph.TensorType{tt}, [][]byte{x})

		elems := kerneltest.Load(d, x)
		image := tensor.Elements(s.Size)
		sums, whole := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape)), make([]kerneltest.Elem, tensor.Elements(out[0].Shape))
		for plane := range int(n * c) {
			kerneltest.Coords(count, func(at []int64, b int) {
				s.Window(at, func(tap, inside int, _ []int64) {
					if inside >= 0 {
						e := elems[(plane*block+tap)*blocks+b]
						sums[plane*image+inside].Value += e.F
						sums[plane*image+inside].Size += math.Abs(e.F)
						whole[plane*image+inside].I += e.I
					}
				})
			})
		}
		if d.IsFloat() {
			kerneltest.CompareSums(t, op, out[0], got[0], sums)
			return
		}
		for i := range whole {
			whole[i] = kerneltest.Normal(d, whole[i])
		}
		kerneltest.Compare(t, op, out[0], got[0], whole, 0)
	})
}

func TestDeformConv(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]graph.DType{graph.F32, graph.F64}).Draw(t, "type")
		s := kerneltest.DrawSlide(t, 2)
		if rapid.IntRange(0, 9).Draw(t, "great kernel") == 0 { // more taps than are gathered at a time
			s = kerneltest.Slide{Size: []int64{9, 9}, Kernel: []int64{9, 8}, Strides: []int64{1, 2}, Dilations: []int64{1, 1}, Begin: []int64{2, 2}, End: []int64{1, 1}}
		}
		group, offsets := rapid.Int64Range(1, 3).Draw(t, "group"), rapid.Int64Range(1, 3).Draw(t, "offset groups")
		c, m := offsets*rapid.Int64Range(1, 3).Draw(t, "channels"), rapid.Int64Range(1, 4).Draw(t, "maps")
		n := rapid.Int64Range(0, 2).Draw(t, "batch")
		op := &graph.DeformConv{Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End, Group: group, OffsetGroup: offsets}
		var count []int64
		for i := range s.Size {
			count = append(count, (s.Size[i]+s.Begin[i]+s.End[i]-(s.Kernel[i]-1)*s.Dilations[i]-1)/s.Strides[i]+1)
		}
		window := int64(tensor.Elements(s.Kernel))
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		in := []graph.TensorType{
			of(n, group*c, s.Size[0], s.Size[1]), of(group*m, c, s.Kernel[0], s.Kernel[1]),
			of(n, offsets*window*2, count[0], count[1]), of(group * m), {},
		}
		if rapid.Bool().Draw(t, "mask") {
			in[4] = of(n, offsets*window, count[0], count[1])
		}
		src := &kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}
		var data [][]byte
		for _, tt := range in {
			data = append(data, src.Tensor(tt))
		}
		out, got := run(t, op, in, data)

		x, w, offset, b, mask := kerneltest.Values(in[0], data[0]), kerneltest.Values(in[1], data[1]), kerneltest.Values(in[2], data[2]), kerneltest.Values(in[3], data[3]), kerneltest.Values(in[4], data[4])
		height, width := int(s.Size[0]), int(s.Size[1])
		positions := int(count[0] * count[1])
		want := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			y := &want[flat]
			add := func(v float64) { y.Value += v; y.Size += math.Abs(v) }
			add(b[at[1]])
			for ch := range int(c) {
				channel := int(at[1]/m*c) + ch
				og := channel / int(group*c/offsets)
				s.Window(at[2:], func(tap, _ int, pos []int64) {
					point := (int(at[0]*offsets)+og)*int(window) + tap
					p := int(at[2]*count[1] + at[3])
					v := float64(pos[0]) + offset[2*point*positions+p]
					h := float64(pos[1]) + offset[(2*point+1)*positions+p]
					if d == graph.F32 { // places are computed in the operand's type
						v, h = float64(float32(v)), float64(float32(h))
					}
					factor := w[(int(at[1]*c)+ch)*int(window)+tap]
					if mask != nil {
						factor *= mask[point*positions+p]
					}
					for row := range height {
						for col := range width {
							weight := max(0, 1-math.Abs(v-float64(row))) * max(0, 1-math.Abs(h-float64(col)))
							add(factor * weight * x[(int(at[0]*group*c)+channel)*height*width+row*width+col])
						}
					}
				})
			}
		})
		for i := range want { // rounded weights
			want[i].Size *= 4
		}
		kerneltest.CompareSums(t, op, out[0], got[0], want)
	})
}
