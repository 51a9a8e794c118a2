package quant

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

var scaleTypes = []graph.DType{graph.F16, graph.BF16, graph.F32}

// drawScale draws which elements of x have which scale. place returns the
// number of the scale of the element at some coordinates.
func drawScale(t *rapid.T, x []int64) (axis, block int64, shape []int64, place func(at []int64) int) {
	mode := rapid.IntRange(0, 2).Draw(t, "mode")
	if mode == 0 || len(x) == 0 {
		return 0, 0, rapid.SampledFrom([][]int64{nil, {1}}).Draw(t, "scale"), func([]int64) int { return 0 }
	}
	axis = rapid.Int64Range(0, int64(len(x)-1)).Draw(t, "axis")
	if mode == 1 {
		return axis, 0, []int64{x[axis]}, func(at []int64) int { return int(at[axis]) }
	}
	block = rapid.Int64Range(1, 5).Draw(t, "block")
	shape = slices.Clone(x)
	shape[axis] = (shape[axis] + block - 1) / block
	return axis, block, shape, func(at []int64) int {
		at = slices.Clone(at)
		at[axis] /= block
		return kerneltest.Flatten(shape, at)
	}
}

// drawScales draws numbers that are above 0.
func drawScales(t *rapid.T, tt graph.TensorType) []byte {
	b := kerneltest.DrawTensor(t, tt)
	elems := kerneltest.Load(tt.DType, b)
	for i, e := range elems {
		if !(math.Abs(e.F) > 1e-3 && math.Abs(e.F) < 100) {
			e.F = 0.25
		}
		elems[i] = kerneltest.Normal(tt.DType, kerneltest.Elem{F: math.Abs(e.F)})
	}
	return kerneltest.Store(tt.DType, elems)
}

func TestQuantize(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		x := graph.TensorType{DType: rapid.SampledFrom([]graph.DType{graph.F16, graph.BF16, graph.F32, graph.I32}).Draw(t, "type"), Shape: kerneltest.DrawShape(t, 0)}
		op := &graph.Quantize{
			To:        rapid.SampledFrom([]graph.DType{graph.I8, graph.U8, graph.I16, graph.U16, graph.I4, graph.U4, graph.I2, graph.U2}).Draw(t, "to"),
			Precision: rapid.SampledFrom(scaleTypes).Draw(t, "precision"),
		}
		var shape []int64
		var place func([]int64) int
		op.Axis, op.Block, shape, place = drawScale(t, x.Shape)
		scale := graph.TensorType{DType: rapid.SampledFrom(scaleTypes).Draw(t, "scale type"), Shape: shape}
		zero := graph.TensorType{DType: op.To, Shape: shape}
		data := [][]byte{kerneltest.DrawTensor(t, x), drawScales(t, scale)}
		in := []graph.TensorType{x, scale}
		zeros := make([]kerneltest.Elem, tensor.Elements(shape))
		if rapid.Bool().Draw(t, "zero point") {
			in, data = append(in, zero), append(data, kerneltest.DrawTensor(t, zero))
			zeros = kerneltest.Load(op.To, data[2])
		}
		out, got := run(t, op, in, data)
		low, high := QuantRange(op.To)
		xs, scales := kerneltest.Load(x.DType, data[0]), kerneltest.Load(scale.DType, data[1])
		want := make([]kerneltest.Elem, len(xs))
		kerneltest.Coords(x.Shape, func(at []int64, flat int) {
			v := xs[flat].F
			if x.DType == graph.I32 {
				v = kerneltest.Normal(graph.F32, kerneltest.Elem{F: float64(xs[flat].I)}).F
			}
			k := place(at)
			round := func(f float64) float64 { return kerneltest.Normal(op.Precision, kerneltest.Elem{F: f}).F }
			q := round(round(v) / round(scales[k].F))
			q = math.RoundToEven(q) + float64(zeros[k].I)
			if q != q {
				q = float64(low)
			}
			want[flat].I = int64(min(max(q, float64(low)), float64(high)))
		})
		kerneltest.Compare(t, op, out[0], got[0], want, 0)
	})
}

func TestDequantize(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		x := graph.TensorType{
			DType: rapid.SampledFrom([]graph.DType{graph.I8, graph.U8, graph.I16, graph.U16, graph.I32, graph.I4, graph.U4, graph.I2, graph.U2}).Draw(t, "type"),
			Shape: kerneltest.DrawShape(t, 0),
		}
		op := &graph.Dequantize{To: rapid.SampledFrom(scaleTypes).Draw(t, "to")}
		var shape []int64
		var place func([]int64) int
		op.Axis, op.Block, shape, place = drawScale(t, x.Shape)
		scale := graph.TensorType{DType: rapid.SampledFrom(scaleTypes).Draw(t, "scale type"), Shape: shape}
		zero := graph.TensorType{DType: x.DType, Shape: shape}
		data := [][]byte{kerneltest.DrawTensor(t, x), drawScales(t, scale)}
		in := []graph.TensorType{x, scale}
		zeros := make([]kerneltest.Elem, tensor.Elements(shape))
		if rapid.Bool().Draw(t, "zero point") {
			in, data = append(in, zero), append(data, kerneltest.DrawTensor(t, zero))
			zeros = kerneltest.Load(x.DType, data[2])
		}
		out, got := run(t, op, in, data)
		xs, scales := kerneltest.Load(x.DType, data[0]), kerneltest.Load(scale.DType, data[1])
		want := make([]kerneltest.Elem, len(xs))
		kerneltest.Coords(x.Shape, func(at []int64, flat int) {
			k := place(at)
			d := kerneltest.Normal(graph.F32, kerneltest.Elem{F: float64(xs[flat].I - zeros[k].I)}).F
			want[flat] = kerneltest.Normal(graph.F32, kerneltest.Elem{F: d * scales[k].F})
		})
		kerneltest.Compare(t, op, out[0], got[0], want, 0)
	})
}

func TestBitwise(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		fn := rapid.SampledFrom([]graph.BitwiseFn{graph.BitAnd, graph.BitOr, graph.BitXor, graph.ShiftLeft, graph.ShiftRight}).Draw(t, "fn")
		types := kerneltest.IntTypes
		if fn == graph.ShiftLeft || fn == graph.ShiftRight {
			types = []graph.DType{graph.U8, graph.U16, graph.U32, graph.U64}
		}
		checkPairs(t, &graph.Bitwise{Fn: fn}, rapid.SampledFrom(types).Draw(t, "type"), 0, func(a, b kerneltest.Elem) kerneltest.Elem {
			switch fn {
			case graph.BitAnd:
				return kerneltest.Elem{I: a.I & b.I}
			case graph.BitOr:
				return kerneltest.Elem{I: a.I | b.I}
			case graph.BitXor:
				return kerneltest.Elem{I: a.I ^ b.I}
			case graph.ShiftLeft:
				return kerneltest.Elem{I: int64(uint64(a.I) << uint64(b.I))}
			}
			return kerneltest.Elem{I: int64(uint64(a.I) >> uint64(b.I))}
		})
	})
}

func TestMod(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.NumTypes).Draw(t, "type")
		op := &graph.Mod{Truncated: rapid.Bool().Draw(t, "truncated")}
		checkPairs(t, op, d, 0, func(a, b kerneltest.Elem) kerneltest.Elem {
			switch {
			case d.IsFloat():
				r := math.Mod(a.F, b.F)
				if !op.Truncated && r != 0 && math.Signbit(r) != math.Signbit(b.F) {
					r += b.F
				} else if !op.Truncated && r == 0 {
					r = math.Copysign(0, b.F)
				}
				return kerneltest.Elem{F: r}
			case b.I == 0:
				return kerneltest.Elem{}
			case d == graph.U64:
				return kerneltest.Elem{I: int64(uint64(a.I) % uint64(b.I))}
			}
			r := a.I % b.I
			if !op.Truncated && r != 0 && (r < 0) != (b.I < 0) {
				r += b.I
			}
			return kerneltest.Elem{I: r}
		})
	})
}

// checkPairs compares a binary operator with broadcasting.
func checkPairs(t *rapid.T, op graph.Op, d graph.DType, tolerance float64, fn func(a, b kerneltest.Elem) kerneltest.Elem) {
	shape := kerneltest.DrawShape(t, 0)
	in := []graph.TensorType{{DType: d, Shape: shape}, {DType: d, Shape: kerneltest.DrawBroadcast(t, shape)}}
	if rapid.Bool().Draw(t, "swapped") {
		slices.Reverse(in)
	}
	data := [][]byte{kerneltest.DrawTensor(t, in[0]), kerneltest.DrawTensor(t, in[1])}
	out, got := run(t, op, in, data)
	a, b := kerneltest.Load(d, data[0]), kerneltest.Load(d, data[1])
	want := make([]kerneltest.Elem, tensor.Elements(shape))
	kerneltest.Coords(shape, func(at []int64, flat int) {
		want[flat] = fn(a[kerneltest.Flatten(in[0].Shape, at)], b[kerneltest.Flatten(in[1].Shape, at)])
	})
	kerneltest.Compare(t, op, out[0], got[0], want, tolerance)
}

func TestBitCast(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		types := slices.Concat(kerneltest.NumTypes, []graph.DType{graph.F8E4M3, graph.F8E5M2})
		x := graph.TensorType{DType: rapid.SampledFrom(types).Draw(t, "type"), Shape: kerneltest.DrawShape(t, 0)}
		to := rapid.SampledFrom(types).Filter(func(d graph.DType) bool { return d.Size() == x.DType.Size() }).Draw(t, "to")
		data := kerneltest.DrawTensor(t, x)
		_, got := run(t, &graph.BitCast{To: to}, []graph.TensorType{x}, [][]byte{data})
		if !slices.Equal(got[0], data) {
			t.Fatalf("bits of %v as %v differ", x, to)
		}
	})
}

// TestQuantizeTies quantises what lies half way between two results, or next
// to that, by all kinds of scales: the quotient is as if it were divided.
func TestQuantizeTies(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		one := graph.TensorType{DType: graph.F32}
		const n = 512
		for range 2000 {
			scale := math.Float32frombits(r.Uint32()&0x007fffff | uint32(60+r.IntN(134))<<23)
			if r.IntN(4) == 0 {
				scale = math.Float32frombits(math.Float32bits(scale) | 0x007ffff0)
			}
			x := make([]float32, n)
			for i := range x {
				x[i] = (float32(r.IntN(600)-300) + 0.5) * scale
				x[i] = math.Float32frombits(math.Float32bits(x[i]) + uint32(r.IntN(3)) - 1)
			}
			copy(x, []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32, 1e-45})
			op := &graph.Quantize{To: []graph.DType{graph.I8, graph.U8}[r.IntN(2)], Precision: graph.F32}
			_, got := run(t, op, []graph.TensorType{{DType: graph.F32, Shape: []int64{n}}, one}, [][]byte{tensor.RawBytes(x), tensor.RawBytes([]float32{scale})})
			low, high := QuantRange(op.To)
			for i, v := range x {
				if want := byte(quantise(v/scale, low, high, 0)); got[0][i] != want {
					t.Fatalf("%v by %v is %d, want %d", v, scale, got[0][i], want)
				}
			}
		}
	})
}
