package vec

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// drawPointwise draws a program over operands of one type of which some are
// broadcast.
func drawPointwise(t *rapid.T) (*graph.Pointwise, []graph.TensorType, [][]byte) {
	shape := rapid.SampledFrom([][]int64{{5}, {2, 3, 7}, {3, 1, 700}, {2, 5, 40, 33}, {4, 2, 1}}).Draw(t, "shape")
	values := []float32{0, float32(math.Copysign(0, -1)), 1, -2.5, 3, 1e-40, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0.3, -0.7, 12}
	dtype := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F16, graph.BF16}).Draw(t, "type")
	var types []graph.TensorType
	var data [][]byte
	for i := range rapid.IntRange(1, 4).Draw(t, "operands") {
		s := append([]int64{}, shape...)
		if i > 0 {
			for a := range s {
				if rapid.Bool().Draw(t, "broadcast") {
					s[a] = 1
				}
			}
			s = s[rapid.IntRange(0, len(s)-1).Draw(t, "axes left out"):]
		}
		v := make([]float32, tensor.Elements(s))
		for k := range v {
			v[k] = values[(k*(2*i+1)+i)%len(values)] * float32(1+k%3)
		}
		types, data = append(types, graph.TensorType{DType: dtype, Shape: s}), append(data, narrowed(dtype, v))
	}
	op := &graph.Pointwise{}
	fns := []string{"relu", "exp", "tanh", "sigmoid", "neg", "abs", "leaky_relu", "hard_swish", "gelu", "add", "sub", "mul", "div", "max", "min", "pow", graph.PointwiseClip}
	for i := range rapid.IntRange(1, 9).Draw(t, "instructions") {
		fn := rapid.SampledFrom(fns).Draw(t, "fn")
		op.Fns = append(op.Fns, fn)
		op.Alpha, op.Beta = append(op.Alpha, 0.25), append(op.Beta, 0.5)
		for k := range graph.PointwiseArity(fn) {
			least := int64(0)
			if fn == graph.PointwiseClip && k > 0 {
				least = -1
			}
			op.Args = append(op.Args, rapid.Int64Range(least, int64(len(types)+i)-1).Draw(t, "argument"))
		}
	}
	return op, types, data
}

// valueOf is a tensor with its type.
type valueOf struct {
	graph.TensorType
	data []byte
}

// applied computes one operator.
func applied(t require.TestingT, op graph.Op, in ...valueOf) valueOf {
	types, data := make([]graph.TensorType, len(in)), make([][]byte, len(in))
	for i, x := range in {
		types[i], data[i] = x.TensorType, x.data
	}
	out, err := op.Infer(types)
	require.NoError(t, err)
	k, err := newKernel(op, types, out)
	require.NoError(t, err)
	y := make([]byte, out[0].Bytes())
	require.NoError(t, k.Run(tensor.Serial{}, data, [][]byte{y}, make([]byte, k.Scratch())))
	return valueOf{out[0], y}
}

// byItself computes a program instruction by instruction, each by the kernel
// of its own operator.
func byItself(t require.TestingT, op *graph.Pointwise, values []valueOf) []byte {
	at := 0
	for i, fn := range op.Fns {
		args := op.Args[at:][:graph.PointwiseArity(fn)]
		at += len(args)
		var y valueOf
		switch len(args) {
		case 1:
			y = applied(t, &graph.Unary{Fn: graph.UnaryFn(fn), Alpha: op.Alpha[i], Beta: op.Beta[i]}, values[args[0]])
		case 2:
			y = applied(t, &graph.Binary{Fn: graph.BinaryFn(fn)}, values[args[0]], values[args[1]])
		default: // a Clip's limits are single elements, these need not be
			y = values[args[0]]
			if args[1] >= 0 {
				y = applied(t, &graph.Binary{Fn: graph.Max}, y, values[args[1]])
			}
			if args[2] >= 0 {
				y = applied(t, &graph.Binary{Fn: graph.Min}, y, values[args[2]])
			}
		}
		values = append(values, y)
	}
	last := values[len(values)-1]
	return last.data
}

func TestPointwise(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		op, types, data := drawPointwise(t)
		var values []valueOf
		for i := range types {
			values = append(values, valueOf{types[i], data[i]})
		}
		out, err := op.Infer(types)
		require.NoError(t, err)
		want := byItself(t, op, values)
		if len(want) != int(out[0].Bytes()) { // operands that the last instruction does not depend on
			t.Skip("its result does not have the shape of all operands")
		}
		k, err := newKernel(op, types, out)
		require.NoError(t, err)
		for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.InTurn(3)} {
			got := make([]byte, len(want))
			require.NoError(t, k.Run(p, data, [][]byte{got}, kerneltest.Junk(k.Scratch())))
			require.Empty(t, differs(widenedFrom(out[0].DType, want), widenedFrom(out[0].DType, got)), "%v of %v", op, types)
			if k.(tensor.InPlacer).InPlace(0) {
				over := append([]byte{}, data[0]...)
				in := append([][]byte{over}, data[1:]...)
				require.NoError(t, k.Run(p, in, [][]byte{over}, kerneltest.Junk(k.Scratch())))
				require.Empty(t, differs(widenedFrom(out[0].DType, want), widenedFrom(out[0].DType, over)), "in place")
			}
		}
		if to := out[0].DType; to != graph.F32 {
			checkRounded(t, &RoundedPointwise{Pointwise: *op, To: to}, types, data, widenedFrom(to, want))
		}
	})
}

// checkRounded computes a program of half precision in F32, some operands of
// which keep their type.
func checkRounded(t *rapid.T, op *RoundedPointwise, types []graph.TensorType, data [][]byte, want []float32) {
	types, data = slices.Clone(types), slices.Clone(data)
	for i := range types {
		if types[i].Elements() > 1 || rapid.Bool().Draw(t, "widened") {
			data[i] = kerneltest.BytesOf(widenedFrom(op.To, data[i]))
			types[i].DType = graph.F32
		}
	}
	out, err := op.Infer(types)
	require.NoError(t, err)
	require.Equal(t, graph.F32, out[0].DType)
	k, err := newKernel(op, types, out)
	require.NoError(t, err)
	got := make([]float32, len(want))
	require.NoError(t, k.Run(kerneltest.InTurn(3), data, [][]byte{kerneltest.BytesOf(got)}, kerneltest.Junk(k.Scratch())))
	require.Empty(t, differs(want, got), "%v of %v", op, types)
}

// narrowed returns v as elements of a type.
func narrowed(t graph.DType, v []float32) []byte {
	if t == graph.F32 {
		return kerneltest.BytesOf(v)
	}
	b := make([]byte, 2*len(v))
	EncodeHalf(t, b, v)
	return b
}

// widenedFrom returns elements of a type as float32.
func widenedFrom(t graph.DType, b []byte) []float32 {
	if t == graph.F32 {
		return tensor.F32s(b)
	}
	v := make([]float32, len(b)/2)
	DecodeHalf(t, v, b)
	return v
}

// TestPointwiseRepeatedRows spreads short rows that repeat, as those of one
// number for each channel do in NCHWc.
func TestPointwiseRepeatedRows(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		draw := func(hi int, label string) int64 { return int64(rapid.IntRange(1, hi).Draw(t, label)) }
		blocks, pixels, lanes := draw(4, "blocks"), draw(300, "pixels"), rapid.SampledFrom([]int64{5, 8, 16}).Draw(t, "lanes")
		x := graph.TensorType{DType: graph.F32, Shape: []int64{2, blocks, pixels, lanes}}
		g := graph.TensorType{DType: graph.F32, Shape: []int64{rapid.SampledFrom([]int64{1, 2}).Draw(t, "images"), blocks, 1, lanes}}
		v, w := make([]float32, tensor.Elements(x.Shape)), make([]float32, tensor.Elements(g.Shape))
		for i := range v {
			v[i] = float32(i % 1009)
		}
		for i := range w {
			w[i] = float32(i + 1)
		}
		op := &graph.Pointwise{Fns: []string{"mul"}, Args: []int64{0, 1}, Alpha: []float64{0}, Beta: []float64{0}}
		k, err := newKernel(op, []graph.TensorType{x, g}, []graph.TensorType{x})
		require.NoError(t, err)
		got := make([]float32, len(v))
		require.NoError(t, k.Run(kerneltest.InTurn(3), [][]byte{kerneltest.BytesOf(v), kerneltest.BytesOf(w)}, [][]byte{kerneltest.BytesOf(got)}, kerneltest.Junk(k.Scratch())))
		for i := range got {
			row := i / int(pixels*lanes) % (len(w) / int(lanes))
			require.Equal(t, v[i]*w[row*int(lanes)+i%int(lanes)], got[i])
		}
	})
}

// differs says where two lists differ; NaNs are equal.
func differs(want, got []float32) string {
	for i, v := range want {
		if math.Float32bits(v) != math.Float32bits(got[i]) && (v == v || got[i] == got[i]) {
			return fmt.Sprintf("element %d is %v, want %v", i, got[i], v)
		}
	}
	return ""
}
