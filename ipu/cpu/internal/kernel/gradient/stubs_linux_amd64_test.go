package gradient

import (
	"fmt"
	"math"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestStubs runs every loop by itself, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Loops(stubs)
	s.Each(func(set kerneltest.Set) {
		stubsDots(s, set)
		stubsScaled(s, set)
		stubsChannel(s, set)
		stubsMaxPool(s, set)
	})
	s.Finish()
}

// stubs are the loops over elements by operation.
var stubs = map[string]kerneltest.Stub{
	"backSoftmax": {Wide: backSoftmaxAVX512, Narrow: backSoftmaxAVX2, Low: -3, High: 3, Scalars: []float32{0.5},
		Want: func(x []float64) float64 { return x[0] * (x[1] - 0.5) }},
	"backLogSoftmax": {Wide: backLogSoftmaxAVX512, Narrow: backLogSoftmaxAVX2, Low: -4, High: -3, Scalars: []float32{0.5},
		Want: func(x []float64) float64 { return x[1] - math.Exp(x[0])*0.5 }},
}

// pick is the function of an instruction set.
func pick[F any](set kerneltest.Set, narrow, wide F) F {
	if set.Wide() {
		return wide
	}
	return narrow
}

func stubsDots(s *kerneltest.Stubs, set kerneltest.Set) {
	for n := 1; n <= 2*set.Lanes+3; n++ {
		for _, name := range []string{"dotRow", "dotCentred", "dotScaled"} {
			s.Run(name+set.Name, func(m *kerneltest.Guarded) {
				x, y, scale := m.Whole(n), m.Whole(n), m.Whole(n)
				var got float32
				mean := float32(2)
				switch name {
				case "dotRow":
					mean = 0
					got = pick(set, dotRowAVX2, dotRowAVX512)(&x[0], &y[0], n)
				case "dotCentred":
					got = pick(set, dotCentredAVX2, dotCentredAVX512)(&x[0], &y[0], n, mean)
				default:
					got = pick(set, dotScaledAVX2, dotScaledAVX512)(&x[0], &y[0], &scale[0], n, mean)
				}
				var want float32
				for i := range x {
					v := (x[i] - mean) * y[i]
					if name == "dotScaled" {
						v *= scale[i]
					}
					want += v
				}
				kerneltest.Same(m, fmt.Sprintf("%s%s of %d elements", name, set.Name, n), []float32{got}, []float32{want})
			})
		}
	}
}

func stubsScaled(s *kerneltest.Stubs, set kerneltest.Set) {
	for n := 1; n <= 2*set.Lanes+3; n++ {
		s.Run("backScaled"+set.Name, func(m *kerneltest.Guarded) {
			x, dy, scale, dscale, dbias := m.Whole(n), m.Whole(n), m.Whole(n), m.Whole(n), m.Whole(n)
			dst, want := m.Unset(n)
			var wantScale, wantBias []float32
			for i := range want {
				hat := (x[i] - 2) * 4
				want[i] = (dy[i]*scale[i] - 3 - hat*2) * 4
				wantScale, wantBias = append(wantScale, dscale[i]+dy[i]*hat), append(wantBias, dbias[i]+dy[i])
			}
			pick(set, backScaledAVX2, backScaledAVX512)(&dst[0], &dscale[0], &dbias[0], &x[0], &dy[0], &scale[0], n, 2, 4, 3, 2)
			what := fmt.Sprintf("backScaled%s of %d elements", set.Name, n)
			kerneltest.Same(m, what, dst, want)
			kerneltest.Same(m, what+": scale", dscale, wantScale)
			kerneltest.Same(m, what+": addend", dbias, wantBias)
		})
	}
}

func stubsChannel(s *kerneltest.Stubs, set kerneltest.Set) {
	for n := 1; n <= 2*set.Lanes+3; n++ {
		s.Run("backChannel"+set.Name, func(m *kerneltest.Guarded) {
			x, dy := m.Whole(n), m.Whole(n)
			dst, want := m.Unset(n)
			for i := range want {
				want[i] = dy[i]*3 + (x[i]-2)*4 + 5
			}
			pick(set, backChannelAVX2, backChannelAVX512)(&dst[0], &x[0], &dy[0], n, 2, 3, 4, 5)
			kerneltest.Same(m, fmt.Sprintf("backChannel%s of %d elements", set.Name, n), dst, want)
		})
	}
}

func stubsMaxPool(s *kerneltest.Stubs, set kerneltest.Set) {
	for n := 1; n <= 2*set.Lanes+3; n++ {
		for rows := 1; rows <= 3; rows++ {
			s.Run("backMaxPool2"+set.Name, func(m *kerneltest.Guarded) {
				width := 2*n + m.IntN(3)
				all := (2*rows-1)*width + 2*n
				x, dy := m.Whole(all), m.Whole(rows*n)
				for range m.IntN(3) {
					x[m.IntN(len(x))] = float32(math.NaN())
				}
				dst, want := m.Unset(all)
				for i, d := range dy {
					at := i/n*2*width + i%n*2
					first := at
					for _, w := range []int{at, at + 1, at + width, at + width + 1} {
						want[w] = 0
						if x[w] > x[first] || x[w] != x[w] && x[first] == x[first] {
							first = w
						}
					}
					want[first] = d
				}
				pick(set, backMaxPool2AVX2, backMaxPool2AVX512)(&dst[0], &x[0], &dy[0], n, rows, 4*width)
				kerneltest.Same(m, fmt.Sprintf("backMaxPool2%s of %d rows of %d windows", set.Name, rows, n), dst, want)
			})
		}
	}
}
