package rows

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

// family builds a program for each number of rows over one weight w; x is [n,4].
func family(t *testing.T, sizes []int64, build func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID) (*graph.Executable, []Member) {
	b := graph.NewBuilder("family")
	w := b.AddPersistent("w", f32(4, 4))
	var members []Member
	for i, n := range sizes {
		suffix := ""
		if i > 0 {
			suffix = fmt.Sprint("#", 1+i)
		}
		x := b.AddLocal("x", f32(n, 4))
		in := b.CopyIn("x"+suffix, x)
		g := b.BeginGraph("main" + suffix)
		y := build(b, n, x, w)
		b.AddProgram(1+i, "main", in, b.Call(g), b.CopyOut("y"+suffix, y))
		members = append(members, Member{1 + i, n, map[string]int{"x" + suffix: 0, "y" + suffix: 0}})
	}
	e, err := b.Finish()
	require.NoError(t, err)
	return e, members
}

// floats is a constant of float32.
func floats(b *graph.Builder, shape []int64, v ...float32) graph.TensorID {
	var data []byte
	for _, x := range v {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return b.AddConst("c", f32(shape...), data)
}

func TestAlike(t *testing.T) {
	for _, c := range []struct {
		name, fault string
		build       func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID
	}{
		{"product", "", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			x = node1(t, b, &graph.MatMul{}, x, w)
			x = node1(t, b, &graph.Reshape{Shape: []int64{n * 2, 2}}, x)
			x = node1(t, b, &graph.Softmax{Axis: 1}, x)
			return node1(t, b, &graph.Reshape{Shape: []int64{n, 4}}, x)
		}},
		{"a constant for each row", "", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			c := b.AddConst("zeros", f32(n, 4), make([]byte, 16*n))
			return node1(t, b, &graph.Binary{Fn: graph.Add}, x, c)
		}},
		{"stretched", "", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			one := node1(t, b, &graph.Slice{Start: []int64{0, 0}, Size: []int64{1, 4}, Step: []int64{1, 1}}, w)
			return node1(t, b, &graph.Binary{Fn: graph.Add}, x, node1(t, b, &graph.Expand{Shape: []int64{n, 4}}, one))
		}},
		{"times the number of rows", "constant", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Binary{Fn: graph.Mul}, x, floats(b, nil, float32(n)))
		}},
		{"an attribute", "attribute Alpha", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			return node1(t, b, &graph.Gemm{Alpha: 1 / float64(n)}, x, w)
		}},
		{"constants for each size", "constant", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			var v []float32
			for range n {
				v = append(v, float32(n))
			}
			return node1(t, b, &graph.Binary{Fn: graph.Mul}, x, floats(b, []int64{n, 1}, v...))
		}},
		{"another node", "counterpart", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			if n == 4 {
				return node1(t, b, &graph.Clip{}, x)
			}
			return node1(t, b, &graph.Unary{Fn: graph.Relu}, x)
		}},
		{"one more node", "counterpart", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			if n == 4 {
				x = node1(t, b, &graph.Unary{Fn: graph.Relu}, x)
			}
			return node1(t, b, &graph.Unary{Fn: graph.Relu}, x)
		}},
		{"other operands", "other tensors", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			y := node1(t, b, &graph.MatMul{}, x, w)
			if n == 4 {
				return node1(t, b, &graph.Binary{Fn: graph.Sub}, y, x)
			}
			return node1(t, b, &graph.Binary{Fn: graph.Sub}, x, y)
		}},
		{"as many elements as rows", "more than rows", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			some := node1(t, b, &graph.Slice{Start: []int64{0, 0}, Size: []int64{n, n}, Step: []int64{1, 1}}, x)
			return node1(t, b, &graph.Binary{Fn: graph.Add}, x, node1(t, b, &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{1}, KeepDims: true}, some))
		}},
		{"a width of as many as rows", "more than rows", func(b *graph.Builder, n int64, x, w graph.TensorID) graph.TensorID {
			w = node1(t, b, &graph.Slice{Start: []int64{0, 0}, Size: []int64{4, n}, Step: []int64{1, 1}}, w)
			y := node1(t, b, &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{1}, KeepDims: true}, node1(t, b, &graph.MatMul{}, x, w))
			return node1(t, b, &graph.Binary{Fn: graph.Add}, x, y)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, members := family(t, []int64{1, 2, 4}, c.build)
			err := Alike(e, members...)
			if c.fault == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.fault)
		})
	}
}
