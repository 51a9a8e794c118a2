package window

import (
	"fmt"
	"math"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// TestStubs runs every loop by itself, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Loops(stubs)
	s.Each(func(set kerneltest.Set) {
		stubsWindows(s, set)
		stubsDown(s, set)
		stubsAlong(s, set)
		stubsInterpolate(s, set)
	})
	s.Finish()
}

// stubs are the loops over elements by operation.
var stubs = map[string]kerneltest.Stub{
	"divideScaled": {Wide: divideScaledAVX512, Narrow: divideScaledAVX2, Low: 1, High: 9, Scalars: []float32{2}, Want: func(x []float64) float64 { return x[0] / (2 * x[1]) }},
}

// pick is the function of an instruction set.
func pick[F any](set kerneltest.Set, narrow, wide F) F {
	if set.Wide() {
		return wide
	}
	return narrow
}

// folded is an element more in a window: of a maximum NaN stays.
func folded(most bool, s, v float32) float32 {
	if most {
		return max(s, v)
	}
	return s + v
}

// mostElements is two vectors and some.
func mostElements(set kerneltest.Set) int { return 2*set.Lanes + 3 }

func stubsWindows(s *kerneltest.Stubs, set kerneltest.Set) {
	type slide = func(dst, x *float32, n, taps, stride int)
	for _, f := range []struct {
		name  string
		call  slide
		most  bool
		every int // 0: rows are folded into dst
	}{
		{"sumRows", pick[slide](set, sumRowsAVX2, sumRowsAVX512), false, 0},
		{"mostRows", pick[slide](set, mostRowsAVX2, mostRowsAVX512), true, 0},
		{"sumSlide", pick[slide](set, sumSlideAVX2, sumSlideAVX512), false, 1},
		{"mostSlide", pick[slide](set, mostSlideAVX2, mostSlideAVX512), true, 1},
		{"sumSlide2", pick[slide](set, sumSlide2AVX2, sumSlide2AVX512), false, 2},
		{"mostSlide2", pick[slide](set, mostSlide2AVX2, mostSlide2AVX512), true, 2},
	} {
		for n := 1; n <= mostElements(set); n++ {
			for taps := 1; taps <= 4; taps++ {
				s.Run(f.name+set.Name, func(m *kerneltest.Guarded) {
					stride := 1 + m.IntN(3)
					read := f.every * tensor.RoundUp(n, set.Lanes) // whole vectors
					if f.every == 0 {
						read, stride = n, n+m.IntN(3)
					}
					x := m.Whole((taps-1)*stride + read)
					if f.most {
						x[m.IntN(len(x))] = float32(math.NaN())
					}
					dst, want := m.Unset(n)
					for i := range want {
						if f.every > 0 {
							want[i] = x[f.every*i]
						}
						for t := min(f.every, 1); t < taps; t++ {
							want[i] = folded(f.most, want[i], x[max(f.every, 1)*i+t*stride])
						}
					}
					f.call(&dst[0], &x[0], n, taps, 4*stride)
					kerneltest.Same(m, fmt.Sprintf("%s%s of %d elements, %d taps", f.name, set.Name, n, taps), dst, want)
				})
			}
		}
	}
}

func stubsDown(s *kerneltest.Stubs, set kerneltest.Set) {
	for n := 1; n <= mostElements(set); n++ {
		for _, most := range []bool{false, true} {
			function := [...]string{"sumDown", "mostDown"}[b2i(most)] + set.Name
			for rows := 1; rows <= 4; rows++ {
				s.Run(function, func(m *kerneltest.Guarded) {
					step, whole := n+m.IntN(3), tensor.RoundUp(n, set.Lanes)
					width := whole + m.IntN(3)
					const height = 7
					x := m.Whole((height-1)*step + n)
					nan := most && m.IntN(3) == 0
					table := make([]int32, 2*rows)
					dst, want := m.Unset((rows-1)*width + whole)
					met := false
					for r := range rows {
						taps := m.IntN(6)
						first := m.IntN(height - taps + 1)
						if taps == 0 {
							first = 0
						}
						if nan && taps > 0 {
							x[(first+m.IntN(taps))*step+m.IntN(n)] = float32(math.NaN())
						}
						table[2*r], table[2*r+1] = int32(4*first*step), int32(taps)
					}
					for r := range rows {
						first, taps := int(table[2*r])/4, int(table[2*r+1])
						for i := range whole {
							v := float32(0)
							if most {
								v = float32(math.Inf(-1))
							}
							for t := range taps {
								if i < n {
									v = folded(most, v, x[first+t*step+i])
								}
							}
							want[r*width+i] = v
							met = met || v != v
						}
					}
					table = kerneltest.At(m, table)
					if !most {
						pick(set, sumDownAVX2, sumDownAVX512)(&dst[0], &x[0], &table[0], n, rows, 4*step, 4*width)
					} else if got := pick(set, mostDownAVX2, mostDownAVX512)(&dst[0], &x[0], &table[0], n, rows, 4*step, 4*width) != 0; got || met {
						// Then the maxima may be wrong.
						kerneltest.Same(m, function+": whether there is a NaN", []bool{got}, []bool{met})
						return
					}
					kerneltest.Same(m, fmt.Sprintf("%s of %d rows of %d elements", function, rows, n), dst, want)
				})
			}
		}
	}
}

// b2i is 1 for true.
func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func stubsAlong(s *kerneltest.Stubs, set kerneltest.Set) {
	for n := 1; n <= mostElements(set); n++ {
		for taps := 1; taps <= 5; taps++ {
			for every := 1; every <= 2; every++ {
				for _, most := range []bool{false, true} {
					function := [...]string{"sumAlong", "mostAlong"}[b2i(most)] + [...]string{"", "2"}[every-1] + set.Name
					s.Run(function, func(m *kerneltest.Guarded) {
						rows, dilation, whole := 1+m.IntN(3), 1+m.IntN(3), tensor.RoundUp(n, set.Lanes)
						width := (n-1)*every + (taps-1)*dilation + 1 + m.IntN(3)
						x := m.Whole((rows-1)*width + every*whole + (taps-1)*dilation)
						// Beside a vector of divisors, its reciprocals; powers of two.
						divisors, table := make([]float32, 2*2*whole), make([]int32, rows)
						for i := range divisors {
							if i/set.Lanes%2 == 0 {
								divisors[i] = float32(int(1) << m.IntN(5))
							} else {
								divisors[i] = 1 / divisors[i-set.Lanes]
							}
						}
						for r := range table {
							table[r] = int32(4 * 2 * whole * m.IntN(2))
						}
						divisors, table = kerneltest.At(m, divisors), kerneltest.At(m, table)
						dst, want := m.Unset(rows * n)
						for r := range rows {
							for i := range n {
								v := x[r*width+every*i]
								for t := 1; t < taps; t++ {
									v = folded(most, v, x[r*width+every*i+t*dilation])
								}
								if !most {
									v /= divisors[int(table[r])/4+2*set.Lanes*(i/set.Lanes)+i%set.Lanes]
								}
								want[r*n+i] = v
							}
						}
						switch {
						case most && every == 1:
							pick(set, mostAlongAVX2, mostAlongAVX512)(&dst[0], &x[0], n, rows, taps, 4*dilation, 4*width)
						case most:
							pick(set, mostAlong2AVX2, mostAlong2AVX512)(&dst[0], &x[0], n, rows, taps, 4*dilation, 4*width)
						case every == 1:
							pick(set, sumAlongAVX2, sumAlongAVX512)(&dst[0], &x[0], &divisors[0], &table[0], n, rows, taps, 4*dilation, 4*width)
						default:
							pick(set, sumAlong2AVX2, sumAlong2AVX512)(&dst[0], &x[0], &divisors[0], &table[0], n, rows, taps, 4*dilation, 4*width)
						}
						kerneltest.Same(m, fmt.Sprintf("%s of %d rows of %d elements, %d taps", function, rows, n, taps), dst, want)
					})
				}
			}
		}
	}
}

func stubsInterpolate(s *kerneltest.Stubs, set kerneltest.Set) {
	for n := 1; n <= 2*2*set.Lanes+3; n++ {
		s.Run("interpolate"+set.Name, func(m *kerneltest.Guarded) {
			left, right, nearLeft, nearRight, farLeft, farRight := m.Whole(n), m.Whole(n), m.Whole(n), m.Whole(n), m.Whole(n), m.Whole(n)
			dst, want := m.Unset(n)
			for i := range want {
				want[i] = left[i]*2*nearLeft[i] + right[i]*2*nearRight[i] + left[i]*3*farLeft[i] + right[i]*3*farRight[i]
			}
			pick(set, interpolateAVX2, interpolateAVX512)(&dst[0], &left[0], &right[0], &nearLeft[0], &nearRight[0], &farLeft[0], &farRight[0], n, 2, 3)
			kerneltest.Same(m, fmt.Sprintf("interpolate%s of %d elements", set.Name, n), dst, want)
		})
	}
	for pixels := 1; pixels <= 5; pixels++ {
		s.Run("bilinearPixels"+set.Name, func(m *kerneltest.Guarded) {
			const columns = 4
			lanes := set.Lanes
			near, far, leftWeight, rightWeight := m.Whole(columns*lanes), m.Whole(columns*lanes), m.Whole(pixels), m.Whole(pixels)
			var at [2][]int
			for side := range at {
				at[side] = make([]int, pixels)
				for p := range at[side] {
					at[side][p] = lanes * m.IntN(columns)
				}
				at[side] = kerneltest.At(m, at[side])
			}
			y, want := m.Unset(pixels * lanes)
			for p := range pixels {
				for c := range lanes {
					l, r := at[0][p]+c, at[1][p]+c
					want[p*lanes+c] = near[l]*2*leftWeight[p] + near[r]*2*rightWeight[p] + far[l]*3*leftWeight[p] + far[r]*3*rightWeight[p]
				}
			}
			pick(set, bilinearPixelsAVX2, bilinearPixelsAVX512)(&bilinearArgs{
				y: &y[0], near: &near[0], far: &far[0], left: &at[0][0], right: &at[1][0], leftWeight: &leftWeight[0], rightWeight: &rightWeight[0], pixels: pixels,
				nearWeight: 2, farWeight: 3,
			})
			kerneltest.Same(m, fmt.Sprintf("bilinearPixels%s of %d pixels", set.Name, pixels), y, want)
		})
	}
}
