package move

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// drawDistinct draws a tensor whose elements differ as far as their size
// allows.
func drawDistinct(t *rapid.T, minRank int) (graph.TensorType, []byte) {
	tt := graph.TensorType{DType: rapid.SampledFrom(kerneltest.AllTypes).Draw(t, "type"), Shape: kerneltest.DrawShape(t, minRank)}
	return tt, kerneltest.Distinct(tt)
}

func TestReshape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, x := drawDistinct(t, 0)
		shape := rapid.Permutation(in.Shape).Draw(t, "shape")
		_, got := run(t, &graph.Reshape{Shape: shape}, []graph.TensorType{in}, [][]byte{x})
		if !slices.Equal(x, got[0]) {
			t.Fatalf("reshape of %v to %v changes the data", in, shape)
		}
	})
}

func TestTranspose(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		in, x := drawDistinct(t, 0)
		perm := make([]int64, len(in.Shape))
		for i := range perm {
			perm[i] = int64(i)
		}
		op := &graph.Transpose{Perm: rapid.Permutation(perm).Draw(t, "perm")}
		out, got := run(t, op, []graph.TensorType{in}, [][]byte{x})
		src := make([]int64, len(perm))
		kerneltest.CheckMoved(t, op, in, out[0], x, got[0], nil, func(at []int64) int {
			for i, p := range op.Perm {
				src[p] = at[i]
			}
			return kerneltest.Flatten(in.Shape, src)
		})
	})
}

// TestTransposeTiles goes over the sizes around those of the squares that are
// transposed in registers, and over images of few channels.
func TestTransposeTiles(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		for _, d := range []graph.DType{graph.U8, graph.I32, graph.F64} {
			for _, shape := range [][]int64{
				{1, 8, 8}, {2, 7, 9}, {1, 16, 33}, {2, 24, 40}, {1, 35, 71}, {1, 8, 1}, {3, 2, 65}, {1, 70, 2},
				{1, 15, 3}, {2, 16, 3}, {1, 333, 3}, {2, 2100, 3}, {1, 3, 50}, {1, 100, 4}, {2, 2100, 9},
			} {
				in := graph.TensorType{DType: d, Shape: shape}
				n := tensor.Elements(shape)
				x := make([]kerneltest.Elem, n)
				for i := range x {
					x[i] = kerneltest.Elem{I: int64(i % 251), F: float64(i)}
				}
				data := kerneltest.Store(d, x)
				out, got := run(t, &graph.Transpose{Perm: []int64{0, 2, 1}}, []graph.TensorType{in}, [][]byte{data})
				rows, cols := int(shape[1]), int(shape[2])
				kerneltest.CheckMoved(t, shape, in, out[0], data, got[0], nil, func(at []int64) int {
					return int(at[0])*rows*cols + int(at[2])*cols + int(at[1])
				})
			}
		}
	})
}

func TestSlice(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		in, x := drawDistinct(t, 0)
		op := &graph.Slice{}
		for _, d := range in.Shape {
			start, size, step := int64(0), int64(0), int64(1)
			if d > 0 {
				start = rapid.Int64Range(0, d-1).Draw(t, "start")
				step = rapid.SampledFrom([]int64{1, 1, 2, 3, -1, -2}).Draw(t, "step")
				most := (d-1-start)/step + 1
				if step < 0 {
					most = start/-step + 1
				}
				size = most - rapid.Int64Range(0, most).Draw(t, "less")
				if size <= 1 {
					step = rapid.SampledFrom([]int64{step, 1 << 62, -1 << 63}).Draw(t, "untaken step")
				}
			}
			op.Start, op.Size, op.Step = append(op.Start, start), append(op.Size, size), append(op.Step, step)
		}
		out, got := run(t, op, []graph.TensorType{in}, [][]byte{x})
		src := make([]int64, len(in.Shape))
		kerneltest.CheckMoved(t, op, in, out[0], x, got[0], nil, func(at []int64) int {
			for i, c := range at {
				src[i] = op.Start[i] + c*op.Step[i]
			}
			return kerneltest.Flatten(in.Shape, src)
		})
	})
}

func TestExpand(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		shape := kerneltest.DrawShape(t, 0)
		in := graph.TensorType{DType: rapid.SampledFrom(kerneltest.AllTypes).Draw(t, "type"), Shape: kerneltest.DrawBroadcast(t, shape)}
		x := kerneltest.Distinct(in)
		out, got := run(t, &graph.Expand{Shape: shape}, []graph.TensorType{in}, [][]byte{x})
		kerneltest.CheckMoved(t, "expand", in, out[0], x, got[0], nil, func(at []int64) int { return kerneltest.Flatten(in.Shape, at) })
	})
}

func TestConcat(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		first, x := drawDistinct(t, 1)
		axis := rapid.IntRange(0, len(first.Shape)-1).Draw(t, "axis")
		in, data := []graph.TensorType{first}, [][]byte{x}
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			tt := graph.TensorType{DType: first.DType, Shape: slices.Clone(first.Shape)}
			tt.Shape[axis] = rapid.Int64Range(0, 5).Draw(t, "length")
			in, data = append(in, tt), append(data, kerneltest.DrawTensor(t, tt))
		}
		out, got := run(t, &graph.Concat{Axis: int64(axis)}, in, data)
		size := first.DType.Size()
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			src := slices.Clone(at)
			k := 0
			for ; src[axis] >= in[k].Shape[axis]; k++ {
				src[axis] -= in[k].Shape[axis]
			}
			from := kerneltest.Flatten(in[k].Shape, src) * size
			if !slices.Equal(got[0][flat*size:(flat+1)*size], data[k][from:from+size]) {
				t.Fatalf("concat of %v along %d: element %v differs", in, axis, at)
			}
		})
	})
}

// padReference returns the position of the operand's axis that position i of
// the result shows, stepping as the definition of each mode does.
func padReference(mode graph.PadMode, dim, before, after, i int64) int64 {
	first, end := max(0, -before), dim-max(0, -after)
	left := end - first
	i -= max(0, before)
	if 0 <= i && i < left {
		return first + i
	}
	switch mode {
	case graph.PadEdge:
		i = min(max(i, 0), left-1)
	case graph.PadWrap:
		for ; i < 0; i += left {
		}
		i %= left
	case graph.PadReflect:
		for left > 1 && (i < 0 || i >= left) {
			if i < 0 {
				i = -i
			} else {
				i = 2*(left-1) - i
			}
		}
		if left == 1 {
			i = 0
		}
	default:
		return -1
	}
	return first + i
}

func TestPad(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		in, x := drawDistinct(t, 0)
		op := &graph.Pad{Mode: rapid.SampledFrom([]graph.PadMode{graph.PadConstant, graph.PadReflect, graph.PadEdge, graph.PadWrap}).Draw(t, "mode")}
		size := tensor.Elements(in.Shape)
		for _, d := range in.Shape {
			var before, after int64
			if rapid.Bool().Draw(t, "padded") && size < 40000 {
				before, after = rapid.Int64Range(-3, 3).Draw(t, "before"), rapid.Int64Range(-3, 4).Draw(t, "after")
				if left := d - max(0, -before) - max(0, -after); left < 0 || left == 0 && op.Mode != graph.PadConstant {
					before, after = max(0, before), max(0, after)
				}
				if d == 0 && op.Mode != graph.PadConstant {
					before, after = 0, 0
				}
				size = size / max(int(d), 1) * int(max(1, d+before+after))
			}
			op.Before, op.After = append(op.Before, before), append(op.After, after)
		}
		types, data := []graph.TensorType{in}, [][]byte{x}
		value := make([]byte, in.DType.Size())
		if op.Mode == graph.PadConstant && rapid.Bool().Draw(t, "value") {
			types = append(types, graph.TensorType{DType: in.DType})
			value = kerneltest.DrawTensor(t, types[1])
			data = append(data, value)
		}
		out, got := run(t, op, types, data)
		src := make([]int64, len(in.Shape))
		kerneltest.CheckMoved(t, op, in, out[0], x, got[0], value, func(at []int64) int {
			for i, c := range at {
				src[i] = padReference(op.Mode, in.Shape[i], op.Before[i], op.After[i], c)
				if src[i] < 0 {
					return -1
				}
			}
			return kerneltest.Flatten(in.Shape, src)
		})
	})
}

func TestGather(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, x := drawDistinct(t, 1)
		axis := rapid.IntRange(0, len(in.Shape)-1).Draw(t, "axis")
		dim := in.Shape[axis]
		idx := graph.TensorType{DType: rapid.SampledFrom([]graph.DType{graph.I32, graph.I64}).Draw(t, "indices"), Shape: []int64{}}
		for range rapid.IntRange(0, 2).Draw(t, "rank") {
			idx.Shape = append(idx.Shape, rapid.Int64Range(0, 4).Draw(t, "dim"))
		}
		if dim == 0 {
			idx.Shape = []int64{0}
		}
		indices := make([]kerneltest.Elem, tensor.Elements(idx.Shape))
		for i := range indices {
			indices[i].I = rapid.Int64Range(-dim, dim-1).Draw(t, "index")
		}
		out, got := run(t, &graph.Gather{Axis: int64(axis)}, []graph.TensorType{in, idx}, [][]byte{x, kerneltest.Store(idx.DType, indices)})
		kerneltest.CheckMoved(t, "gather", in, out[0], x, got[0], nil, func(at []int64) int {
			i := indices[kerneltest.Flatten(idx.Shape, at[axis:axis+len(idx.Shape)])].I
			if i < 0 {
				i += dim
			}
			src := slices.Concat(at[:axis], []int64{i}, at[axis+len(idx.Shape):])
			return kerneltest.Flatten(in.Shape, src)
		})
	})
}

func TestGatherOutOfRange(t *testing.T) {
	for _, c := range []struct {
		t     graph.DType
		shape []int64
		index int64
		want  string
	}{
		{graph.I64, []int64{3, 2}, 3, "gather along axis 0: index 3, number 1 of 2, is out of range: want -3 to 2"},
		{graph.I64, []int64{3, 2}, -4, "gather along axis 0: index -4, number 1 of 2, is out of range: want -3 to 2"},
		{graph.I32, []int64{3, 2}, -1 << 31, "gather along axis 0: index -2147483648, number 1 of 2, is out of range: want -3 to 2"},
		{graph.I64, []int64{3, 0}, 1 << 62, "gather along axis 0: index 4611686018427387904, number 1 of 2, is out of range: want -3 to 2"},
	} {
		in := []graph.TensorType{{DType: graph.F32, Shape: c.shape}, {DType: c.t, Shape: []int64{2}}}
		op := &graph.Gather{}
		out, err := op.Infer(in)
		require.NoError(t, err)
		k, err := newKernel(op, in, out)
		require.NoError(t, err)
		results := [][]byte{kerneltest.Aligned(tensor.Elements(out[0].Shape) * 4)}
		err = k.Run(tensor.Serial{}, [][]byte{kerneltest.Distinct(in[0]), kerneltest.Store(c.t, []kerneltest.Elem{{I: -3}, {I: c.index}})}, results, nil)
		require.EqualError(t, err, c.want)
	}
}
