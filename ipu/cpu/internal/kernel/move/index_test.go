package move

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

// drawIndices draws indices into axes of the given sizes, one after the other
// in turn; all sizes are above 0 unless shape has no elements.
func drawIndices(t *rapid.T, shape []int64, sizes ...int64) (graph.TensorType, []byte, []int64) {
	tt := graph.TensorType{DType: rapid.SampledFrom([]graph.DType{graph.I32, graph.I64}).Draw(t, "index type"), Shape: shape}
	plain := make([]int64, tensor.Elements(shape))
	elems := make([]kerneltest.Elem, len(plain))
	r := rapid.Uint64().Draw(t, "indices")
	for i := range plain {
		r = r*6364136223846793005 + 1442695040888963407
		n := sizes[i%len(sizes)]
		plain[i] = int64(r >> 33 % uint64(n))
		elems[i].I = plain[i]
		if r>>20&3 == 0 {
			elems[i].I -= n
		}
	}
	return tt, kerneltest.Store(tt.DType, elems), plain
}

// foldReference folds an update into an element.
func foldReference(d graph.DType, fn graph.ScatterFn, x, u kerneltest.Elem) kerneltest.Elem {
	y := u
	switch fn {
	case graph.ScatterAdd:
		y = kerneltest.Elem{F: x.F + u.F, I: x.I + u.I}
	case graph.ScatterMul:
		y = kerneltest.Elem{F: x.F * u.F, I: x.I * u.I}
	case graph.ScatterMax, graph.ScatterMin:
		less := u.I < x.I
		if d == graph.U64 {
			less = uint64(u.I) < uint64(x.I)
		}
		if less == (fn == graph.ScatterMin) {
			y.I = u.I
		} else {
			y.I = x.I
		}
		y.F = max(x.F, u.F)
		if fn == graph.ScatterMin {
			y.F = min(x.F, u.F)
		}
	}
	return kerneltest.Normal(d, y)
}

var scatterFns = []graph.ScatterFn{graph.ScatterNone, graph.ScatterAdd, graph.ScatterMul, graph.ScatterMax, graph.ScatterMin}

// drawScatterType draws a function and an element type that it is for.
func drawScatterType(t *rapid.T) (graph.ScatterFn, graph.DType) {
	fn := rapid.SampledFrom(scatterFns).Draw(t, "fn")
	if fn == graph.ScatterNone {
		return fn, rapid.SampledFrom(kerneltest.AllTypes).Draw(t, "type")
	}
	return fn, rapid.SampledFrom(kerneltest.NumTypes).Draw(t, "type")
}

func TestElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fn, d := drawScatterType(t)
		x := graph.TensorType{DType: d, Shape: kerneltest.DrawShape(t, 1)}
		axis := rapid.IntRange(0, len(x.Shape)-1).Draw(t, "axis")
		shape := slices.Clone(x.Shape)
		for i := range shape {
			if i == axis {
				shape[i] = rapid.Int64Range(0, 9).Draw(t, "indices")
			} else if rapid.Bool().Draw(t, "fewer") {
				shape[i] = (shape[i] + 1) / 2
			}
		}
		if x.Shape[axis] == 0 {
			shape[axis] = 0
		}
		idx, idxData, at := drawIndices(t, shape, x.Shape[axis])
		data := kerneltest.DrawTensor(t, x)
		_, got := run(t, &graph.GatherElements{Axis: int64(axis)}, []graph.TensorType{x, idx}, [][]byte{data, idxData})
		place := func(c []int64, flat int) int {
			c = slices.Clone(c)
			c[axis] = at[flat]
			return kerneltest.Flatten(x.Shape, c)
		}
		kerneltest.CheckMoved(t, "gather of elements", x, graph.TensorType{DType: d, Shape: shape}, data, got[0], nil, flatToo(shape, place))

		updates := graph.TensorType{DType: d, Shape: shape}
		u := kerneltest.DrawTensor(t, updates)
		_, got = run(t, &graph.ScatterElements{Axis: int64(axis), Fn: fn}, []graph.TensorType{x, idx, updates}, [][]byte{data, idxData, u})
		want, from := kerneltest.Load(d, data), kerneltest.Load(d, u)
		kerneltest.Coords(shape, func(c []int64, flat int) {
			to := place(c, flat)
			want[to] = foldReference(d, fn, want[to], from[flat])
		})
		kerneltest.Compare(t, "scatter "+string(fn), x, got[0], want, 0)
	})
}

// flatToo makes a source for checkMoved of a function that wants the flat index
// as well.
func flatToo(shape []int64, place func(at []int64, flat int) int) func(at []int64) int {
	return func(at []int64) int { return place(at, kerneltest.Flatten(shape, at)) }
}

func TestSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fn, d := drawScatterType(t)
		x := graph.TensorType{DType: d, Shape: kerneltest.DrawShape(t, 1)}
		batch := rapid.IntRange(0, len(x.Shape)-1).Draw(t, "batch axes")
		k := rapid.IntRange(0, len(x.Shape)-batch).Draw(t, "coordinates")
		tuples := rapid.Int64Range(0, 6).Draw(t, "tuples")
		if slices.Contains(x.Shape[batch:batch+k], 0) {
			tuples = 0
		}
		shape := append(slices.Clone(x.Shape[:batch]), tuples, int64(k))
		idx, idxData, at := drawIndices(t, shape, append(slices.Clone(x.Shape[batch:batch+k]), 1)[:max(k, 1)]...)
		data := kerneltest.DrawTensor(t, x)
		out, got := run(t, &graph.GatherND{BatchDims: int64(batch)}, []graph.TensorType{x, idx}, [][]byte{data, idxData})
		kerneltest.CheckMoved(t, "gather of slices", x, out[0], data, got[0], nil, func(c []int64) int {
			tuple := kerneltest.Flatten(shape[:batch+1], c[:batch+1])
			src := slices.Concat(c[:batch], at[tuple*k:(tuple+1)*k], c[batch+1:])
			return kerneltest.Flatten(x.Shape, src)
		})
		if batch > 0 {
			return
		}
		updates := graph.TensorType{DType: d, Shape: slices.Concat([]int64{tuples}, x.Shape[k:])}
		u := kerneltest.DrawTensor(t, updates)
		_, got = run(t, &graph.ScatterND{Fn: fn}, []graph.TensorType{x, idx, updates}, [][]byte{data, idxData, u})
		want, from := kerneltest.Load(d, data), kerneltest.Load(d, u)
		kerneltest.Coords(updates.Shape, func(c []int64, flat int) {
			tuple := int(c[0])
			to := kerneltest.Flatten(x.Shape, slices.Concat(at[tuple*k:(tuple+1)*k], c[1:]))
			want[to] = foldReference(d, fn, want[to], from[flat])
		})
		kerneltest.Compare(t, "scatter of slices, "+string(fn), x, got[0], want, 0)
	})
}

func TestIndexOutOfRange(t *testing.T) {
	x := graph.TensorType{DType: graph.F32, Shape: []int64{2, 3}}
	idx := graph.TensorType{DType: graph.I64, Shape: []int64{1, 2}}
	row := graph.TensorType{DType: graph.F32, Shape: []int64{1, 2}}
	one := graph.TensorType{DType: graph.F32, Shape: []int64{1}}
	for _, tt := range []struct {
		op   graph.Op
		in   []graph.TensorType
		at   []int64
		want string
	}{
		{&graph.GatherElements{Axis: 1}, []graph.TensorType{x, idx}, []int64{0, 3}, "gather of elements along axis 1: index 3, number 1 of 2, is out of range: want -3 to 2"},
		{&graph.ScatterElements{Axis: 0, Fn: graph.ScatterNone}, []graph.TensorType{x, idx, row}, []int64{-3, 0}, "scatter of elements along axis 0: index -3"},
		{&graph.GatherND{}, []graph.TensorType{x, idx}, []int64{1, -4}, "gather of slices along axis 1: index -4"},
		{&graph.ScatterND{Fn: graph.ScatterAdd}, []graph.TensorType{x, idx, one}, []int64{math.MinInt64, 0}, "scatter of slices along axis 0: index -9223372036854775808"},
	} {
		out, err := tt.op.Infer(tt.in)
		require.NoError(t, err)
		k, err := newKernel(tt.op, tt.in, out)
		require.NoError(t, err)
		data := make([][]byte, len(tt.in))
		for i, typ := range tt.in {
			data[i] = kerneltest.Aligned(int(typ.Bytes()))
		}
		copy(tensor.View[int64](data[1]), tt.at)
		err = k.Run(tensor.Serial{}, data, [][]byte{kerneltest.Aligned(int(out[0].Bytes()))}, kerneltest.Aligned(k.Scratch()))
		require.ErrorContains(t, err, tt.want)
	}
}

func TestOneHot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := kerneltest.DrawShape(t, 0)
		if tensor.Elements(shape) > 2000 {
			shape = shape[:0]
		}
		op := &graph.OneHot{Axis: rapid.Int64Range(0, int64(len(shape))).Draw(t, "axis"), Depth: rapid.Int64Range(0, 9).Draw(t, "depth")}
		idx := graph.TensorType{DType: rapid.SampledFrom([]graph.DType{graph.I32, graph.I64}).Draw(t, "index type"), Shape: shape}
		at := kerneltest.DrawTensor(t, idx)
		values := graph.TensorType{DType: rapid.SampledFrom(kerneltest.AllTypes).Draw(t, "type"), Shape: []int64{2}}
		v := kerneltest.Distinct(values)
		out, got := run(t, op, []graph.TensorType{idx, values}, [][]byte{at, v})
		indices := kerneltest.Load(idx.DType, at)
		kerneltest.CheckMoved(t, op, values, out[0], v, got[0], nil, func(c []int64) int {
			i := indices[kerneltest.Flatten(shape, slices.Delete(slices.Clone(c), int(op.Axis), int(op.Axis)+1))].I
			if i == c[op.Axis] || i+op.Depth == c[op.Axis] {
				return 1
			}
			return 0
		})
	})
}
