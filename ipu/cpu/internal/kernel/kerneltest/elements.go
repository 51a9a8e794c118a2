package kerneltest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// Elem is an element for references: f of a float type, else i, which holds
// the bits of a U64 and is sign- or zero-extended for narrower types.
type Elem struct {
	F float64
	I int64
}

// Aligned returns n zero bytes aligned to 64.
func Aligned(n int) []byte {
	b := tensor.RawBytes(make([]uint64, n/8+16))
	return b[64-int(uintptr(unsafe.Pointer(&b[0]))%64):][:n:n]
}

// Load returns the elements of the memory b of a tensor of type t.
func Load(t graph.DType, b []byte) []Elem {
	out := make([]Elem, len(b)/t.Size())
	for i := range out {
		e := &out[i]
		switch t {
		case graph.Bool, graph.U8, graph.U4, graph.U2:
			e.I = int64(b[i])
		case graph.I8, graph.I4, graph.I2:
			e.I = int64(int8(b[i]))
		case graph.I16:
			e.I = int64(tensor.View[int16](b)[i])
		case graph.U16:
			e.I = int64(tensor.View[uint16](b)[i])
		case graph.I32:
			e.I = int64(tensor.View[int32](b)[i])
		case graph.U32:
			e.I = int64(tensor.View[uint32](b)[i])
		case graph.I64, graph.U64:
			e.I = tensor.View[int64](b)[i]
		case graph.F16:
			e.F = float64(tensor.View[num.Float16](b)[i].Float32())
		case graph.BF16:
			e.F = float64(tensor.View[num.BFloat16](b)[i].Float32())
		case graph.F8E4M3:
			e.F = float64(num.Float8E4M3(b[i]).Float32())
		case graph.F8E5M2:
			e.F = float64(num.Float8E5M2(b[i]).Float32())
		case graph.F32:
			e.F = float64(tensor.F32s(b)[i])
		case graph.F64:
			e.F = tensor.F64s(b)[i]
		}
	}
	return out
}

// Store returns the memory of a tensor of type t with these elements.
func Store(t graph.DType, elems []Elem) []byte {
	b := Aligned(len(elems) * t.Size())
	for i, e := range elems {
		switch t {
		case graph.Bool, graph.U8, graph.I8:
			b[i] = byte(e.I)
		case graph.I4:
			b[i] = byte(int8(e.I<<4) >> 4)
		case graph.I2:
			b[i] = byte(int8(e.I<<6) >> 6)
		case graph.U4:
			b[i] = byte(e.I & 15)
		case graph.U2:
			b[i] = byte(e.I & 3)
		case graph.I16, graph.U16:
			tensor.View[int16](b)[i] = int16(e.I)
		case graph.I32, graph.U32:
			tensor.View[int32](b)[i] = int32(e.I)
		case graph.I64, graph.U64:
			tensor.View[int64](b)[i] = e.I
		case graph.F16:
			tensor.View[num.Float16](b)[i] = num.Float16From64(e.F)
		case graph.BF16:
			tensor.View[num.BFloat16](b)[i] = num.BFloat16From64(e.F)
		case graph.F8E4M3:
			b[i] = byte(num.Float8E4M3From64(e.F))
		case graph.F8E5M2:
			b[i] = byte(num.Float8E5M2From64(e.F))
		case graph.F32:
			tensor.F32s(b)[i] = float32(e.F)
		case graph.F64:
			tensor.F64s(b)[i] = e.F
		}
	}
	return b
}

// Normal returns e as an element of type t.
func Normal(t graph.DType, e Elem) Elem { return Load(t, Store(t, []Elem{e}))[0] }

// The element types, by kind.
var (
	IntTypes   = []graph.DType{graph.I8, graph.U8, graph.I16, graph.U16, graph.I32, graph.U32, graph.I64, graph.U64}
	FloatTypes = []graph.DType{graph.F16, graph.BF16, graph.F32, graph.F64}
	NumTypes   = slices.Concat(IntTypes, FloatTypes)
	AllTypes   = slices.Concat(NumTypes, []graph.DType{graph.Bool, graph.I4, graph.U4, graph.I2, graph.U2, graph.F8E4M3, graph.F8E5M2})
)

// someFloats and someInts are drawn often.
var (
	someFloats = []float64{0, math.Copysign(0, -1), 1, -1, 2, 0.5, -0.5, 1.5, 2.5, -2.5, 3, math.Inf(1), math.Inf(-1), math.NaN(),
		1e-30, -1e-30, 1e30, -1e30, 65504, 255.5, 1e-45, 88, -88, 3e9, -3e9, 1e19}
	someInts = []int64{0, 1, -1, 2, 3, 7, 8, 127, 128, -128, 255, 32767, -32768, 65535, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
)

func drawElem(t *rapid.T, d graph.DType) Elem {
	var e Elem
	switch {
	case d == graph.Bool:
		e.I = rapid.Int64Range(0, 1).Draw(t, "bool")
	case d.IsFloat():
		if rapid.IntRange(0, 3).Draw(t, "special") == 0 {
			e.F = rapid.SampledFrom(someFloats).Draw(t, "float")
		} else {
			e.F = rapid.Float64Range(-20, 20).Draw(t, "float")
		}
	default:
		if rapid.Bool().Draw(t, "special") {
			e.I = rapid.SampledFrom(someInts).Draw(t, "int")
		} else {
			e.I = rapid.Int64Range(-20, 20).Draw(t, "int")
		}
	}
	return Normal(d, e)
}

// DrawTensor draws a few elements and repeats them in an order of its own, so
// that tensors big enough to be cut stay cheap to draw.
func DrawTensor(t *rapid.T, tt graph.TensorType) []byte {
	pool := make([]Elem, rapid.IntRange(1, 12).Draw(t, "distinct"))
	for i := range pool {
		pool[i] = drawElem(t, tt.DType)
	}
	elems := make([]Elem, tensor.Elements(tt.Shape))
	r := rapid.Uint64().Draw(t, "order")
	for i := range elems {
		r = r*6364136223846793005 + 1442695040888963407
		elems[i] = pool[r>>33%uint64(len(pool))]
	}
	return Store(tt.DType, elems)
}

// DrawShape draws a shape of up to 7 axes and some thousand elements. Its
// dimensions come from a seed: drawn one by one they would nearly all be small.
func DrawShape(t *rapid.T, minRank int) []int64 {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shape"), 0))
	shape := make([]int64, minRank+r.IntN(8-minRank))
	left := int64(1) << r.IntN(13)
	for i := range shape {
		shape[i] = 1 + r.Int64N(max(1, min(left, 1<<r.IntN(13))))
		left /= shape[i]
		if r.IntN(60) == 0 {
			shape[i] = 0
			left = 3
		}
	}
	r.Shuffle(len(shape), func(i, j int) { shape[i], shape[j] = shape[j], shape[i] })
	return shape
}

// DrawBroadcast draws a shape that broadcasts to shape.
func DrawBroadcast(t *rapid.T, shape []int64) []int64 {
	s := slices.Clone(shape[rapid.IntRange(0, len(shape)).Draw(t, "skip"):])
	for i := range s {
		if rapid.Bool().Draw(t, "stretched") {
			s[i] = 1
		}
	}
	return s
}

// Coords calls fn for every coordinate of shape in row-major order.
func Coords(shape []int64, fn func(at []int64, flat int)) {
	at := make([]int64, len(shape))
	for flat := range tensor.Elements(shape) {
		fn(at, flat)
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < shape[i] {
				break
			}
			at[i] = 0
		}
	}
}

// Flatten returns the row-major index of the coordinates, broadcast to shape.
func Flatten(shape, at []int64) int {
	n := int64(0)
	at = at[len(at)-len(shape):]
	for i, d := range shape {
		c := at[i]
		if d == 1 {
			c = 0
		}
		n = n*d + c
	}
	return int(n)
}

// CheckMoved compares the result with the operand's elements that source
// names by index, or value where it is negative.
func CheckMoved(t Fataler, what any, in, out graph.TensorType, x, got, value []byte, source func(at []int64) int) {
	t.Helper()
	size := in.DType.Size()
	Coords(out.Shape, func(at []int64, flat int) {
		want := value
		if s := source(at); s >= 0 {
			want = x[s*size : (s+1)*size]
		}
		if g := got[flat*size : (flat+1)*size]; !slices.Equal(g, want) {
			t.Fatalf("%+v of %v: element %v is %x, want %x", what, in, at, g, want)
		}
	})
}

// Distinct returns the memory of a tensor whose elements differ as far as its type
// allows.
func Distinct(tt graph.TensorType) []byte {
	size := tt.DType.Size()
	x := Aligned(tensor.Elements(tt.Shape) * size)
	for i := range len(x) / size {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(i)*0x9e3779b97f4a7c15>>7)
		copy(x[i*size:], b[:size])
	}
	return x
}

// RandomBytes returns n random bytes, with the extreme ones more often.
func RandomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		switch r.IntN(8) {
		case 0:
			b[i] = 0x80 // the greatest products
		case 1:
			b[i] = 0xff
		default:
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

// Junk returns memory that holds no zeros.
func Junk(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xa5
	}
	return b
}

// BytesOf is v's memory.
func BytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
