package window

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestLpPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, tt := drawPool(t, rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type"))
		op := &graph.LpPool{Kernel: s.Kernel, Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End,
			Ceil: rapid.Bool().Draw(t, "ceil"), P: rapid.SampledFrom([]float64{1, 2, 3, 0.5}).Draw(t, "p")}
		x := (&kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}).Tensor(tt)
		out, got := run(t, op, []graph.TensorType{tt}, [][]byte{x})

		elems := kerneltest.Values(tt, x)
		plane := tensor.Elements(s.Size)
		want := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			base := (int(at[0])*int(tt.Shape[1]) + int(at[1])) * plane
			sum := 0.0
			s.Window(at[2:], func(_, inside int, _ []int64) {
				if inside >= 0 {
					sum += math.Pow(math.Abs(elems[base+inside]), op.P)
				}
			})
			v := math.Pow(sum, 1/op.P)
			want[flat] = kerneltest.Wanted{Value: v, Size: 2 * v / min(op.P, 1)}
		})
		kerneltest.CompareSums(t, op, out[0], got[0], want)
	})
}

func TestMaxUnpool(t *testing.T) {
	op := &graph.MaxUnpool{Shape: []int64{1, 2, 3}}
	for _, d := range kerneltest.AllTypes {
		x := graph.TensorType{DType: d, Shape: []int64{1, 2, 2}}
		in := []graph.TensorType{x, {DType: graph.I64, Shape: x.Shape}}
		data := [][]byte{kerneltest.Distinct(x), kerneltest.Store(graph.I64, []kerneltest.Elem{{I: 2}, {I: 0}, {I: 5}, {I: 2}})}
		_, got := run(t, op, in, data)
		n := d.Size()
		want := make([]byte, 6*n)
		copy(want[2*n:3*n], data[0][3*n:]) // the last one stays
		copy(want[:n], data[0][n:2*n])
		copy(want[5*n:], data[0][2*n:3*n])
		require.Equal(t, want, slices.Clone(got[0]), "%v", d)
	}
	x := graph.TensorType{DType: graph.F32, Shape: []int64{1, 2, 1}}
	in := []graph.TensorType{x, {DType: graph.I64, Shape: x.Shape}}
	k, err := newKernel(op, in, []graph.TensorType{{DType: graph.F32, Shape: op.Shape}})
	require.NoError(t, err)
	for _, bad := range []int64{-1, 6} {
		err := k.Run(tensor.Serial{}, [][]byte{kerneltest.Aligned(8), kerneltest.Store(graph.I64, []kerneltest.Elem{{I: 3}, {I: bad}})}, [][]byte{kerneltest.Aligned(24)}, nil)
		require.ErrorContains(t, err, "of element 1 is out of range, want 0 to 5")
	}
}
