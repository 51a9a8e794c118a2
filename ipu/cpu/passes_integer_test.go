package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// bytesOfType returns a constant of random bytes.
func (d *netDraw) bytesOfType(t graph.DType, shape ...int64) graph.TensorID {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(d.T, "bytes"), 0))
	typ := graph.TensorType{DType: t, Shape: shape}
	b := make([]byte, typ.Bytes())
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return d.b.AddConst("bytes", typ, b)
}

// converted converts bytes to floats, with one scale or one for each place on
// an axis.
func (d *netDraw) converted(x graph.TensorID, axis int64, scale float32) graph.TensorID {
	typ := d.b.Type(x)
	var shape []int64
	s := d.number(scale)
	if d.yes("scales") {
		shape = []int64{typ.Shape[axis]}
		s = d.binary(graph.Mul, d.number(scale), d.param(true, shape...))
	} else if d.yes("one in a list") {
		shape = []int64{1}
		s = d.b.AddConst("scale", f32(1), bytesOf([]float32{scale}))
	}
	in := []graph.TensorID{x, s}
	if d.yes("zero") {
		in = append(in, d.bytesOfType(typ.DType, shape...))
	}
	return d.node(&graph.Dequantize{Axis: axis, To: graph.F32}, in...)
}

// TestPassesOnProductsOfBytes compares quantised products and convolutions,
// also after weights have changed, to one step of the quantisation of the
// result if there is one.
func TestPassesOnProductsOfBytes(t *testing.T) {
	integer := 0
	rapid.Check(t, func(t *rapid.T) {
		d := &netDraw{T: t, model: newModel("bytes")}
		x := d.b.AddLocal("x", f32(2, 4, 5, 6))
		g := d.b.BeginGraph("main")
		types := []graph.DType{graph.I8, graph.U8}
		draw := func() graph.DType { return rapid.SampledFrom(types).Draw(t, "type") }
		from, scale := draw(), d.number(0.02)
		zero := d.bytesOfType(from)
		q := d.node(&graph.Quantize{To: from, Precision: graph.F32}, x, scale, zero)
		ones := []int64{1, 1}
		axis := 1
		var y graph.TensorID
		switch kind := rapid.SampledFrom([]string{"conv", "product", "gemm", "dynamic"}).Draw(t, "kind"); kind {
		case "conv":
			op := &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: rapid.SampledFrom([]int64{1, 2, 4}).Draw(t, "groups")}
			w := d.converted(d.bytesOfType(draw(), 4, 4/op.Group, 3, 3), 0, 0.01)
			in := []graph.TensorID{d.node(&graph.Dequantize{To: graph.F32}, q, scale, zero), w, graph.None}
			if d.yes("bias") {
				in[2] = d.param(false, 4)
			}
			y = d.node(op, in...)
		case "product":
			axis = 3
			y = d.node(&graph.MatMul{}, d.node(&graph.Dequantize{To: graph.F32}, q, scale, zero), d.converted(d.bytesOfType(draw(), 6, 7), 1, 0.01))
		case "gemm":
			flat := d.node(&graph.Reshape{Shape: []int64{40, 6}}, q)
			op, shape, along := &graph.Gemm{Alpha: 1, Beta: 1}, []int64{6, 7}, int64(1)
			if op.TransB = d.yes("transposed"); op.TransB {
				shape, along = []int64{7, 6}, 0
			}
			w := d.converted(d.bytesOfType(draw(), shape...), along, 0.01)
			if d.yes("move") {
				w, op.TransB = d.node(&graph.Transpose{Perm: []int64{1, 0}}, w), !op.TransB
			}
			in := []graph.TensorID{d.node(&graph.Dequantize{To: graph.F32}, flat, scale, zero), w, graph.None}
			if d.yes("bias") {
				in[2] = d.param(false, 7)
			}
			y = d.node(op, in...)
		default:
			axis = 3
			acc := d.node(&graph.IntegerMatMul{To: graph.I32}, q, d.bytesOfType(draw(), 6, 7), zero)
			y = d.node(&graph.Cast{To: graph.F32}, acc)
			y = d.binary(graph.Mul, y, d.node(&graph.Binary{Fn: graph.Mul}, scale, d.number(0.01)))
		}
		if d.yes("addend") {
			shape := slices.Repeat([]int64{1}, d.b.Type(y).Rank()-axis)
			shape[0] = d.b.Type(y).Shape[axis]
			y = d.binary(graph.Add, y, d.param(false, shape...))
		}
		switch rapid.SampledFrom([]string{"", "relu", "clip"}).Draw(t, "bounds") {
		case "relu":
			y = d.unary(graph.Relu, y)
		case "clip":
			y = d.node(&graph.Clip{}, y, d.number(-0.5), d.number(2))
		}
		delta := 1e-4
		if d.yes("quantised") {
			delta = 0.0501
			to := draw()
			step, zero := d.number(0.05), d.bytesOfType(to)
			y = d.node(&graph.Quantize{To: to, Precision: graph.F32}, y, step, zero)
			y = d.node(&graph.Dequantize{To: graph.F32}, y, step, zero)
		}
		y = d.node(&graph.Reshape{Shape: []int64{d.b.Type(y).Elements()}}, y)
		d.finish(x, y, g)
		exe := executable(t, d.b)
		plain, err := encoding.Decode(exe)
		require.NoError(t, err)
		for name, disabled := range someWays(t) {
			fast := optimized(t, exe, disabled)
			if disabled == nil {
				e, err := encoding.Decode(fast)
				require.NoError(t, err)
				for i := range e.Graphs {
					for _, n := range e.Graphs[i].Nodes {
						switch n.Op.(type) {
						case *graph.Conv, *graph.MatMul, *graph.Gemm:
							require.Fail(t, "a product of floats is left")
						case *graph.IntegerConv, *graph.IntegerMatMul:
							integer++
						}
					}
				}
			}
			e, err := New(ipu.EngineConfig{Name: name, Executable: fast})
			require.NoError(t, err)
			load(t, e)
			for _, factor := range []float32{1, 1.25, 0.8} {
				for _, v := range d.weights {
					for i := range v {
						v[i] *= factor
					}
				}
				reference := newInterpreter(plain)
				_, want := d.start(t, reference)
				run(t, reference, 1)
				_, got := d.start(t, e)
				run(t, e, 1)
				require.InDeltaSlice(t, want, got, delta, "%s: weights by %g", name, factor)
			}
			require.NoError(t, e.Close())
		}
	})
	require.Positive(t, integer)
}
