package num

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// format describes one of the formats by its parameters alone, so that the
// tests share nothing with the conversions.
type format struct {
	name            string
	bits, fraction  int
	bias            int
	ieee            bool // has infinities, -0 and many NaNs
	from            func(float32) uint16
	from64          func(float64) uint16
	value           func(uint16) float32
	decode          func(dst []float32, src []uint16)
	encode          func(dst []uint16, src []float32)
	finite          []float64 // values ≥ 0 by pattern
	overflowPattern uint16    // what follows the greatest finite pattern's rounding range
}

func formats() []*format {
	all := []*format{
		{name: "float16", bits: 16, fraction: 10, bias: 15, ieee: true,
			from:   func(f float32) uint16 { return uint16(Float16From(f)) },
			from64: func(f float64) uint16 { return uint16(Float16From64(f)) },
			value:  func(b uint16) float32 { return Float16(b).Float32() },
			decode: func(dst []float32, src []uint16) { DecodeFloat16(dst, convert[Float16](src)) },
			encode: func(dst []uint16, src []float32) {
				out := make([]Float16, len(src))
				EncodeFloat16(out, src)
				copy(dst, convert[uint16](out))
			}},
		{name: "bfloat16", bits: 16, fraction: 7, bias: 127, ieee: true,
			from:   func(f float32) uint16 { return uint16(BFloat16From(f)) },
			from64: func(f float64) uint16 { return uint16(BFloat16From64(f)) },
			value:  func(b uint16) float32 { return BFloat16(b).Float32() },
			decode: func(dst []float32, src []uint16) { DecodeBFloat16(dst, convert[BFloat16](src)) },
			encode: func(dst []uint16, src []float32) {
				out := make([]BFloat16, len(src))
				EncodeBFloat16(out, src)
				copy(dst, convert[uint16](out))
			}},
		{name: "float8 e4m3", bits: 8, fraction: 3, bias: 8,
			from:   func(f float32) uint16 { return uint16(Float8E4M3From(f)) },
			from64: func(f float64) uint16 { return uint16(Float8E4M3From64(f)) },
			value:  func(b uint16) float32 { return Float8E4M3(b).Float32() },
			decode: func(dst []float32, src []uint16) { DecodeFloat8E4M3(dst, convert[Float8E4M3](src)) },
			encode: func(dst []uint16, src []float32) {
				out := make([]Float8E4M3, len(src))
				EncodeFloat8E4M3(out, src)
				copy(dst, convert[uint16](out))
			}},
		{name: "float8 e5m2", bits: 8, fraction: 2, bias: 16,
			from:   func(f float32) uint16 { return uint16(Float8E5M2From(f)) },
			from64: func(f float64) uint16 { return uint16(Float8E5M2From64(f)) },
			value:  func(b uint16) float32 { return Float8E5M2(b).Float32() },
			decode: func(dst []float32, src []uint16) { DecodeFloat8E5M2(dst, convert[Float8E5M2](src)) },
			encode: func(dst []uint16, src []float32) {
				out := make([]Float8E5M2, len(src))
				EncodeFloat8E5M2(out, src)
				copy(dst, convert[uint16](out))
			}},
	}
	for _, f := range all {
		top := 1 << (f.bits - 1)
		if f.ieee {
			top -= 1 << f.fraction
		}
		for p := range top {
			e, digits := p>>f.fraction, float64(p&(1<<f.fraction-1))
			if e == 0 {
				e = 1
			} else {
				digits += float64(int(1) << f.fraction)
			}
			f.finite = append(f.finite, math.Ldexp(digits, e-f.bias-f.fraction))
		}
		f.overflowPattern = uint16(top)
		if !f.ieee {
			f.overflowPattern--
		}
	}
	return all
}

func convert[To, From ~uint8 | ~uint16](src []From) []To {
	out := make([]To, len(src))
	for i, v := range src {
		out[i] = To(v)
	}
	return out
}

func (f *format) sign() uint16 { return 1 << (f.bits - 1) }

// nearest rounds by searching the list of all values.
func (f *format) nearest(x float64) uint16 {
	sign := uint16(0)
	if math.Signbit(x) {
		sign, x = f.sign(), -x
	}
	last := len(f.finite) - 1
	step := f.finite[last] - f.finite[last-1]
	var p uint16
	switch i, exact := slices.BinarySearch(f.finite, x); {
	case x >= f.finite[last]+step/2:
		p = f.overflowPattern
	case exact:
		p = uint16(i)
	case i > last:
		p = uint16(last)
	default: // between i-1 and i
		below, above := x-f.finite[i-1], f.finite[i]-x
		if below < above || below == above && i%2 == 1 {
			i--
		}
		p = uint16(i)
	}
	if p == 0 && !f.ieee {
		return 0
	}
	return sign | p
}

func (f *format) isNaN(p uint16) bool {
	if !f.ieee {
		return p == f.sign()
	}
	return p&^f.sign() > f.overflowPattern
}

// want is the value of a pattern according to the list.
func (f *format) want(p uint16) float64 {
	v := math.Inf(1)
	switch magnitude := int(p &^ f.sign()); {
	case f.isNaN(p):
		return math.NaN()
	case magnitude < len(f.finite):
		v = f.finite[magnitude]
	}
	if p&f.sign() != 0 {
		v = -v
	}
	return v
}

func same(a, b float64) bool {
	return a == b && math.Signbit(a) == math.Signbit(b) || a != a && b != b
}

func TestEveryPattern(t *testing.T) {
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			n := 1 << f.bits
			src, dst, back := make([]uint16, n), make([]float32, n), make([]uint16, n)
			for p := range n {
				src[p] = uint16(p)
			}
			f.decode(dst, src)
			f.encode(back, dst)
			for i := range n {
				p := uint16(i)
				got := f.value(p)
				require.Truef(t, same(float64(got), f.want(p)), "value of %#x is %v, want %v", p, got, f.want(p))
				require.Equalf(t, math.Float32bits(got), math.Float32bits(dst[p]), "decode %#x", p)
				if f.isNaN(p) {
					require.Truef(t, f.isNaN(f.from(got)) && f.isNaN(back[p]), "NaN %#x did not come back", p)
					continue
				}
				require.Equalf(t, p, f.from(got), "from(%v)", got)
				require.Equalf(t, p, f.from64(float64(got)), "from64(%v)", got)
				require.Equalf(t, p, back[p], "encode(%v)", got)
			}
		})
	}
}

// TestNeighbourhoods rounds, around every value and every midpoint, the
// number itself and its neighbours.
func TestNeighbourhoods(t *testing.T) {
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			check := func(x float64) {
				if got, want := f.from64(x), f.nearest(x); got != want {
					t.Fatalf("from64(%x) = %#x, want %#x", x, got, want)
				}
				if x32 := float32(x); float64(x32) == x {
					if got, want := f.from(x32), f.nearest(x); got != want {
						t.Fatalf("from(%x) = %#x, want %#x", x, got, want)
					}
				}
			}
			for i, v := range f.finite {
				next := v + (v - f.finite[max(i-1, 0)])
				if i+1 < len(f.finite) {
					next = f.finite[i+1]
				}
				middle := v + (next-v)/2
				for _, x := range []float64{v, middle} {
					for _, y := range []float64{x, math.Nextafter(x, math.Inf(1)), math.Nextafter(x, 0),
						float64(math.Nextafter32(float32(x), float32(math.Inf(1)))), float64(math.Nextafter32(float32(x), 0))} {
						check(y)
						check(-y)
					}
				}
			}
			check(math.Inf(1))
			check(math.Inf(-1))
			check(math.MaxFloat64)
			check(math.MaxFloat32)
			check(-math.SmallestNonzeroFloat64)
		})
	}
}

func TestRounding(t *testing.T) {
	all := formats()
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(all).Draw(t, "format")
		x32 := math.Float32frombits(rapid.Uint32().Draw(t, "float32"))
		x64 := math.Ldexp(rapid.Float64Range(-2, 2).Draw(t, "float64"), rapid.IntRange(-160, 130).Draw(t, "exponent"))
		for _, c := range []struct {
			x   float64
			got uint16
		}{{float64(x32), f.from(x32)}, {x64, f.from64(x64)}} {
			if c.x != c.x {
				if !f.isNaN(c.got) {
					t.Fatalf("%s: NaN became %#x", f.name, c.got)
				}
			} else if want := f.nearest(c.x); c.got != want {
				t.Fatalf("%s: %x became %#x (%v), want %#x (%v)", f.name, c.x, c.got, f.value(c.got), want, f.value(want))
			}
		}
	})
}

func TestSpecialValues(t *testing.T) {
	require.Equal(t, Float16(0x7bff), Float16From(65519.99))
	require.Equal(t, Float16(0x7c00), Float16From(65520))
	require.Equal(t, BFloat16(0x3f80), BFloat16From(1.0))
	require.Equal(t, float32(240), Float8E4M3(0x7f).Float32())
	require.Equal(t, float32(57344), Float8E5M2(0x7f).Float32())
	require.Equal(t, Float8E4M3(0x7f), Float8E4M3From(float32(math.Inf(1))))
	require.Equal(t, Float8E5M2(0xff), Float8E5M2From(float32(math.Inf(-1))))
	require.Equal(t, Float8E4M3(0), Float8E4M3From(float32(math.Copysign(0, -1))))
	// 1 + 2^-11 + 2^-40 lies just above a tie that float32 can't tell apart.
	x := 1 + math.Ldexp(1, -11) + math.Ldexp(1, -40)
	require.Equal(t, Float16(0x3c00), Float16From(float32(x)))
	require.Equal(t, Float16(0x3c01), Float16From64(x))
}

func BenchmarkEncodeFloat16(b *testing.B) {
	src, dst := make([]float32, 4096), make([]Float16, 4096)
	for i := range src {
		src[i] = float32(i) * 0.37
	}
	b.SetBytes(4096 * 4)
	for b.Loop() {
		EncodeFloat16(dst, src)
	}
}

func BenchmarkDecodeFloat16(b *testing.B) {
	src, dst := make([]Float16, 4096), make([]float32, 4096)
	for i := range src {
		src[i] = Float16(0x3000 + i)
	}
	b.SetBytes(4096 * 4)
	for b.Loop() {
		DecodeFloat16(dst, src)
	}
}
