package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

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
		return flatten(shape, at)
	}
}

// drawScales draws numbers that are above 0.
func drawScales(t *rapid.T, tt graph.TensorType) []byte {
	b := drawTensor(t, tt)
	elems := load(tt.DType, b)
	for i, e := range elems {
		if !(math.Abs(e.f) > 1e-3 && math.Abs(e.f) < 100) {
			e.f = 0.25
		}
		elems[i] = normal(tt.DType, elem{f: math.Abs(e.f)})
	}
	return store(tt.DType, elems)
}

func TestQuantize(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		x := graph.TensorType{DType: rapid.SampledFrom([]graph.DType{graph.F16, graph.BF16, graph.F32, graph.I32}).Draw(t, "type"), Shape: drawShape(t, 0)}
		op := &graph.Quantize{
			To:        rapid.SampledFrom([]graph.DType{graph.I8, graph.U8, graph.I16, graph.U16, graph.I4, graph.U4, graph.I2, graph.U2}).Draw(t, "to"),
			Precision: rapid.SampledFrom(scaleTypes).Draw(t, "precision"),
		}
		var shape []int64
		var place func([]int64) int
		op.Axis, op.Block, shape, place = drawScale(t, x.Shape)
		scale := graph.TensorType{DType: rapid.SampledFrom(scaleTypes).Draw(t, "scale type"), Shape: shape}
		zero := graph.TensorType{DType: op.To, Shape: shape}
		data := [][]byte{drawTensor(t, x), drawScales(t, scale)}
		in := []graph.TensorType{x, scale}
		zeros := make([]elem, elements(shape))
		if rapid.Bool().Draw(t, "zero point") {
			in, data = append(in, zero), append(data, drawTensor(t, zero))
			zeros = load(op.To, data[2])
		}
		out, got := run(t, op, in, data)
		low, high := quantRange(op.To)
		xs, scales := load(x.DType, data[0]), load(scale.DType, data[1])
		want := make([]elem, len(xs))
		coords(x.Shape, func(at []int64, flat int) {
			v := xs[flat].f
			if x.DType == graph.I32 {
				v = normal(graph.F32, elem{f: float64(xs[flat].i)}).f
			}
			k := place(at)
			round := func(f float64) float64 { return normal(op.Precision, elem{f: f}).f }
			q := round(round(v) / round(scales[k].f))
			q = math.RoundToEven(q) + float64(zeros[k].i)
			if q != q {
				q = float64(low)
			}
			want[flat].i = int64(min(max(q, float64(low)), float64(high)))
		})
		compare(t, op, out[0], got[0], want, 0)
	})
}

func TestDequantize(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		x := graph.TensorType{
			DType: rapid.SampledFrom([]graph.DType{graph.I8, graph.U8, graph.I16, graph.U16, graph.I32, graph.I4, graph.U4, graph.I2, graph.U2}).Draw(t, "type"),
			Shape: drawShape(t, 0),
		}
		op := &graph.Dequantize{To: rapid.SampledFrom(scaleTypes).Draw(t, "to")}
		var shape []int64
		var place func([]int64) int
		op.Axis, op.Block, shape, place = drawScale(t, x.Shape)
		scale := graph.TensorType{DType: rapid.SampledFrom(scaleTypes).Draw(t, "scale type"), Shape: shape}
		zero := graph.TensorType{DType: x.DType, Shape: shape}
		data := [][]byte{drawTensor(t, x), drawScales(t, scale)}
		in := []graph.TensorType{x, scale}
		zeros := make([]elem, elements(shape))
		if rapid.Bool().Draw(t, "zero point") {
			in, data = append(in, zero), append(data, drawTensor(t, zero))
			zeros = load(x.DType, data[2])
		}
		out, got := run(t, op, in, data)
		xs, scales := load(x.DType, data[0]), load(scale.DType, data[1])
		want := make([]elem, len(xs))
		coords(x.Shape, func(at []int64, flat int) {
			k := place(at)
			d := normal(graph.F32, elem{f: float64(xs[flat].i - zeros[k].i)}).f
			want[flat] = normal(graph.F32, elem{f: d * scales[k].f})
		})
		compare(t, op, out[0], got[0], want, 0)
	})
}

func TestBitwise(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		fn := rapid.SampledFrom([]graph.BitwiseFn{graph.BitAnd, graph.BitOr, graph.BitXor, graph.ShiftLeft, graph.ShiftRight}).Draw(t, "fn")
		types := intTypes
		if fn == graph.ShiftLeft || fn == graph.ShiftRight {
			types = []graph.DType{graph.U8, graph.U16, graph.U32, graph.U64}
		}
		checkPairs(t, &graph.Bitwise{Fn: fn}, rapid.SampledFrom(types).Draw(t, "type"), 0, func(a, b elem) elem {
			switch fn {
			case graph.BitAnd:
				return elem{i: a.i & b.i}
			case graph.BitOr:
				return elem{i: a.i | b.i}
			case graph.BitXor:
				return elem{i: a.i ^ b.i}
			case graph.ShiftLeft:
				return elem{i: int64(uint64(a.i) << uint64(b.i))}
			}
			return elem{i: int64(uint64(a.i) >> uint64(b.i))}
		})
	})
}

func TestMod(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(numTypes).Draw(t, "type")
		op := &graph.Mod{Truncated: rapid.Bool().Draw(t, "truncated")}
		checkPairs(t, op, d, 0, func(a, b elem) elem {
			switch {
			case d.IsFloat():
				r := math.Mod(a.f, b.f)
				if !op.Truncated && r != 0 && math.Signbit(r) != math.Signbit(b.f) {
					r += b.f
				} else if !op.Truncated && r == 0 {
					r = math.Copysign(0, b.f)
				}
				return elem{f: r}
			case b.i == 0:
				return elem{}
			case d == graph.U64:
				return elem{i: int64(uint64(a.i) % uint64(b.i))}
			}
			r := a.i % b.i
			if !op.Truncated && r != 0 && (r < 0) != (b.i < 0) {
				r += b.i
			}
			return elem{i: r}
		})
	})
}

// checkPairs compares a binary operator with broadcasting.
func checkPairs(t *rapid.T, op graph.Op, d graph.DType, tolerance float64, fn func(a, b elem) elem) {
	shape := drawShape(t, 0)
	in := []graph.TensorType{{DType: d, Shape: shape}, {DType: d, Shape: drawBroadcast(t, shape)}}
	if rapid.Bool().Draw(t, "swapped") {
		slices.Reverse(in)
	}
	data := [][]byte{drawTensor(t, in[0]), drawTensor(t, in[1])}
	out, got := run(t, op, in, data)
	a, b := load(d, data[0]), load(d, data[1])
	want := make([]elem, elements(shape))
	coords(shape, func(at []int64, flat int) {
		want[flat] = fn(a[flatten(in[0].Shape, at)], b[flatten(in[1].Shape, at)])
	})
	compare(t, op, out[0], got[0], want, tolerance)
}

func TestBitCast(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		types := slices.Concat(numTypes, []graph.DType{graph.F8E4M3, graph.F8E5M2})
		x := graph.TensorType{DType: rapid.SampledFrom(types).Draw(t, "type"), Shape: drawShape(t, 0)}
		to := rapid.SampledFrom(types).Filter(func(d graph.DType) bool { return d.Size() == x.DType.Size() }).Draw(t, "to")
		data := drawTensor(t, x)
		_, got := run(t, &graph.BitCast{To: to}, []graph.TensorType{x}, [][]byte{data})
		if !slices.Equal(got[0], data) {
			t.Fatalf("bits of %v as %v differ", x, to)
		}
	})
}

// TestQuantizeTies quantises what lies half way between two results, or next
// to that, by all kinds of scales: the quotient is as if it were divided.
func TestQuantizeTies(t *testing.T) {
	eachPath(t, func(t *testing.T) {
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
			_, got := run(t, op, []graph.TensorType{{DType: graph.F32, Shape: []int64{n}}, one}, [][]byte{rawBytes(x), rawBytes([]float32{scale})})
			low, high := quantRange(op.To)
			for i, v := range x {
				if want := byte(quantise(v/scale, low, high, 0)); got[0][i] != want {
					t.Fatalf("%v by %v is %d, want %d", v, scale, got[0][i], want)
				}
			}
		}
	})
}
