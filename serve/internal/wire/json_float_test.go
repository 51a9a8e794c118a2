package wire

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// sameAsStrconv compares a float32 with what strconv writes.
func sameAsStrconv(t *testing.T, bits uint32, buf, want []byte) {
	f := math.Float32frombits(bits)
	got, ok := appendFloat32(buf, f)
	if f-f != 0 {
		if ok {
			t.Fatalf("%08x is not finite, but was written as %s", bits, got)
		}
		return
	}
	if want = appendFloat(want, float64(f), 32); !ok || string(got) != string(want) {
		t.Fatalf("%08x is written as %s, expected %s", bits, got, want)
	}
}

// TestShortestFloat32: numbers are written as strconv writes them.
func TestShortestFloat32(t *testing.T) {
	buf, want := make([]byte, 0, 64), make([]byte, 0, 64)
	both := func(bits uint32) {
		sameAsStrconv(t, bits, buf, want)
		sameAsStrconv(t, bits|1<<31, buf, want)
	}
	for exp := uint32(0); exp < 256; exp++ { // each exponent with the fractions that its powers of two lie among
		for near := range uint32(1 << 10) {
			both(exp<<23 | near)
			both(exp<<23 | (1<<23 - 1 - near))
		}
		for bit := range 23 {
			both(exp<<23 | 1<<bit)
		}
	}
	for p := -45; p <= 38; p++ { // what is short in decimal, and its neighbours
		for d := 1; d < 1000; d++ {
			bits := math.Float32bits(float32(float64(d) * math.Pow10(p)))
			for near := range uint32(5) {
				both(bits + near - 2)
			}
		}
	}
	for i := range 1 << 12 {
		both(math.Float32bits(float32(i)))
		both(math.Float32bits(float32(i) / 8))
	}
	rng := rand.New(rand.NewPCG(4, 2))
	n := 1 << 19
	if testing.Short() {
		n >>= 4
	}
	for range n {
		both(rng.Uint32())
		both(math.Float32bits(float32(rng.NormFloat64())))
	}
}

// BenchmarkFloat32 compares the two writers, by turns.
func BenchmarkFloat32(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []struct {
		name string
		draw func() float32
	}{
		{"of a network", func() float32 { return float32(rng.NormFloat64()) }},
		{"any", func() float32 { return math.Float32frombits(rng.Uint32() &^ (1 << 30)) }},
		{"of few digits", func() float32 { return float32(rng.IntN(1000)) / 100 }},
	} {
		values := make([]float32, 1<<12)
		for i := range values {
			values[i] = kind.draw()
		}
		b.Run(kind.name, func(b *testing.B) {
			buf := make([]byte, 0, 64)
			var took [2]time.Duration
			for b.Loop() {
				begun := time.Now()
				for _, f := range values {
					_, ok := appendFloat32(buf, f)
					if !ok {
						b.Fatal(f)
					}
				}
				between := time.Now()
				for _, f := range values {
					appendFloat(buf, float64(f), 32)
				}
				took[0] += between.Sub(begun)
				took[1] += time.Since(between)
			}
			for i, unit := range []string{"ns/number", "ns/number-strconv"} {
				b.ReportMetric(float64(took[i].Nanoseconds())/float64(b.N)/float64(len(values)), unit)
			}
			b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "x-faster")
		})
	}
}
