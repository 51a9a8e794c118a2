package vec

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/num"
)

// pick is the function of an instruction set.
func pick[F any](set kerneltest.Set, narrow, wide F) F {
	if set.Wide() {
		return wide
	}
	return narrow
}

// drawn returns n guarded elements.
func drawn[T any](m *kerneltest.Guarded, n int, draw func() T) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = draw()
	}
	return kerneltest.At(m, x)
}

// someFloat draws a number with a fraction, or one that is special.
func someFloat(m *kerneltest.Guarded) float32 {
	switch m.IntN(12) {
	case 0:
		return 0
	case 1:
		return float32(math.Copysign(0, -1))
	case 2:
		return float32(m.IntN(7) - 3)
	}
	return (m.Float32() - 0.5) * 200
}

// group runs a loop over groups of 16 elements of one operand.
func group[D comparable, X any](s *kerneltest.Stubs, function string, call func(dst *D, x *X, groups int), draw func(m *kerneltest.Guarded) X, want func(x X) D) {
	for groups := 1; groups <= 5; groups++ {
		s.Run(function, func(m *kerneltest.Guarded) {
			x := drawn(m, 16*groups, func() X { return draw(m) })
			dst, wanted := kerneltest.At(m, make([]D, len(x))), make([]D, len(x))
			for i, v := range x {
				wanted[i] = want(v)
			}
			call(&dst[0], &x[0], groups)
			kerneltest.Same(m, fmt.Sprintf("%s of %d groups", function, groups), dst, wanted)
		})
	}
}

// pairs is [group] of two operands.
func pairs[X any](s *kerneltest.Stubs, function string, call func(dst *uint8, x, y *X, groups int), draw func(m *kerneltest.Guarded) X, want func(x, y X) bool) {
	for groups := 1; groups <= 5; groups++ {
		s.Run(function, func(m *kerneltest.Guarded) {
			x, y := drawn(m, 16*groups, func() X { return draw(m) }), drawn(m, 16*groups, func() X { return draw(m) })
			dst, wanted := m.UnsetBytes(16 * groups)
			for i := range x {
				wanted[i] = 0
				if want(x[i], y[i]) {
					wanted[i] = 1
				}
			}
			call(&dst[0], &x[0], &y[0], groups)
			kerneltest.Same(m, fmt.Sprintf("%s of %d groups", function, groups), dst, wanted)
		})
	}
}

func stubsGroups(s *kerneltest.Stubs, set kerneltest.Set) {
	small := func(m *kerneltest.Guarded) int32 { return int32(m.IntN(7) - 3) }
	few := func(m *kerneltest.Guarded) float32 {
		if m.IntN(6) == 0 {
			return float32(math.NaN())
		}
		return float32(m.IntN(5)-2) * float32(m.IntN(2)*2-1) // -0 too
	}
	pairs(s, "equalFloat"+set.Name, pick(set, equalFloatAVX2, equalFloatAVX512), few, func(x, y float32) bool { return x == y })
	pairs(s, "lessFloat"+set.Name, pick(set, lessFloatAVX2, lessFloatAVX512), few, func(x, y float32) bool { return x < y })
	pairs(s, "lessEqualFloat"+set.Name, pick(set, lessEqualFloatAVX2, lessEqualFloatAVX512), few, func(x, y float32) bool { return x <= y })
	pairs(s, "equalInt"+set.Name, pick(set, equalIntAVX2, equalIntAVX512), small, func(x, y int32) bool { return x == y })
	pairs(s, "lessInt"+set.Name, pick(set, lessIntAVX2, lessIntAVX512), small, func(x, y int32) bool { return x < y })
	pairs(s, "lessEqualInt"+set.Name, pick(set, lessEqualIntAVX2, lessEqualIntAVX512), small, func(x, y int32) bool { return x <= y })

	group(s, "floatToInt"+set.Name, pick(set, floatToIntAVX2, floatToIntAVX512), someFloat, func(x float32) int32 { return int32(x) })
	group(s, "intToFloat"+set.Name, pick(set, intToFloatAVX2, intToFloatAVX512), func(m *kerneltest.Guarded) int32 { return int32(m.Uint32()) }, func(x int32) float32 { return float32(x) })
	group(s, "widenBfloat"+set.Name, pick(set, widenBfloatAVX2, widenBfloatAVX512), func(m *kerneltest.Guarded) uint16 { return uint16(m.Uint32()) }, func(x uint16) float32 { return num.BFloat16(x).Float32() })
	group(s, "narrowBfloat"+set.Name, pick(set, narrowBfloatAVX2, narrowBfloatAVX512), someFloat, func(x float32) uint16 { return uint16(num.BFloat16From64(float64(x))) })
	group(s, "floatToBool"+set.Name, pick(set, floatToBoolAVX2, floatToBoolAVX512), few, func(x float32) uint8 {
		if x != 0 {
			return 1
		}
		return 0
	})
	if set.Wide() {
		group(s, "floatToLongAVX512", floatToLongAVX512, func(m *kerneltest.Guarded) float32 { return someFloat(m) * 1e9 }, func(x float32) int64 { return int64(x) })
		group(s, "longToFloatAVX512", longToFloatAVX512, func(m *kerneltest.Guarded) int64 { return int64(m.Uint64()) }, func(x int64) float32 { return float32(x) })
		group(s, "floatToByteAVX512", floatToByteAVX512, func(m *kerneltest.Guarded) float32 { return someFloat(m) * 1e9 }, func(x float32) uint8 { return uint8(int64(x)) })
	}

	const scale, low, high, zero = 0.3, -90, 60, 7
	quantised := func(x float32) uint8 {
		return uint8(int32(math.RoundToEven(float64(min(max(x/scale, low), high)))) + zero)
	}
	group(s, "quantise"+set.Name, func(dst *uint8, x *float32, groups int) {
		pick(set, quantiseAVX2, quantiseAVX512)(dst, x, groups, scale, low, high, zero)
	}, someFloat, quantised)
	group(s, "quantiseBy"+set.Name, func(dst *uint8, x *float32, groups int) {
		pick(set, quantiseByAVX2, quantiseByAVX512)(dst, x, groups, scale, low, high, zero, 1/float32(scale))
	}, someFloat, quantised)
	anyByte := func(m *kerneltest.Guarded) uint8 { return uint8(m.Uint32()) }
	group(s, "dequantiseSigned"+set.Name, func(dst *float32, x *uint8, groups int) {
		pick(set, dequantiseSignedAVX2, dequantiseSignedAVX512)(dst, x, groups, scale, zero)
	}, anyByte, func(x uint8) float32 { return (float32(int8(x)) - zero) * scale })
	group(s, "dequantiseUnsigned"+set.Name, func(dst *float32, x *uint8, groups int) {
		pick(set, dequantiseUnsignedAVX2, dequantiseUnsignedAVX512)(dst, x, groups, scale, zero)
	}, anyByte, func(x uint8) float32 { return (float32(x) - zero) * scale })

	for groups := 1; groups <= 5; groups++ {
		s.Run("choose"+set.Name, func(m *kerneltest.Guarded) {
			n := 16 * groups
			x, y, which := drawn(m, n, m.Uint32), drawn(m, n, m.Uint32), drawn(m, n, func() uint8 { return uint8(m.IntN(3)) })
			want := make([]uint32, n)
			dst := kerneltest.At(m, want)
			for i := range want {
				want[i] = y[i]
				if which[i] != 0 {
					want[i] = x[i]
				}
			}
			pick(set, chooseAVX2, chooseAVX512)(&dst[0], &x[0], &y[0], &which[0], groups)
			kerneltest.Same(m, fmt.Sprintf("choose%s of %d groups", set.Name, groups), dst, want)
		})
	}
}

func stubsHalf(s *kerneltest.Stubs, set kerneltest.Set) {
	for vectors := 1; vectors <= 9; vectors++ {
		n := vectors * set.Lanes
		s.Run("widen"+set.Name, func(m *kerneltest.Guarded) {
			x := drawn(m, n, func() uint16 { return uint16(num.Float16From64(float64(someFloat(m)))) })
			dst, want := m.Unset(n)
			for i := range want {
				want[i] = num.Float16(x[i]).Float32()
			}
			pick(set, widenAVX2, widenAVX512)(&dst[0], &x[0], vectors)
			kerneltest.Same(m, fmt.Sprintf("widen%s of %d vectors", set.Name, vectors), dst, want)
		})
		s.Run("narrow"+set.Name, func(m *kerneltest.Guarded) {
			x, want := drawn(m, n, func() float32 { return someFloat(m) }), make([]uint16, n)
			dst := kerneltest.At(m, want)
			for i := range want {
				want[i] = uint16(num.Float16From64(float64(x[i])))
			}
			pick(set, narrowAVX2, narrowAVX512)(&dst[0], &x[0], vectors)
			kerneltest.Same(m, fmt.Sprintf("narrow%s of %d vectors", set.Name, vectors), dst, want)
		})
	}
}

func stubsMoves(s *kerneltest.Stubs, set kerneltest.Set) {
	for rows := 8; rows <= 24; rows += 8 {
		for cols := 8; cols <= 24; cols += 8 {
			s.Run("transposeTiles"+set.Name, func(m *kerneltest.Guarded) {
				from, to := rows+m.IntN(3), cols+m.IntN(3)
				x, want := drawn(m, (cols-1)*from+rows, m.Uint32), make([]uint32, (rows-1)*to+cols)
				dst := kerneltest.At(m, want)
				for r := range rows {
					for c := range cols {
						want[r*to+c] = x[c*from+r]
					}
				}
				pick(set, transposeTilesAVX2, transposeTilesAVX512)(&dst[0], &x[0], rows, cols, 4*to, 4*from)
				kerneltest.Same(m, fmt.Sprintf("transposeTiles%s of %dx%d", set.Name, rows, cols), dst, want)
			})
		}
	}
	for n := 4; n <= 5*4*set.Lanes; n++ { // bytes
		s.Run("copyRuns"+set.Name, func(m *kerneltest.Guarded) {
			rows, from, to := 1+m.IntN(4), n+m.IntN(3), n+m.IntN(3)
			x := m.Bytes((rows-1)*from + n)
			dst, want := m.UnsetBytes((rows-1)*to + n)
			for r := range rows {
				copy(want[r*to:][:n], x[r*from:][:n])
			}
			pick(set, copyRunsAVX2, copyRunsAVX512)(&dst[0], &x[0], rows, n, to, from)
			kerneltest.Same(m, fmt.Sprintf("copyRuns%s of %d rows of %d bytes", set.Name, rows, n), dst, want)
		})
	}
	for n := set.Lanes; n <= 4*set.Lanes; n++ {
		s.Run("deal2"+set.Name, func(m *kerneltest.Guarded) {
			rows, from, to := 1+m.IntN(3), 2*n+m.IntN(3), n+m.IntN(3)
			x := drawn(m, (rows-1)*from+2*n, m.Uint32)
			var dst, want [2][]uint32
			for d := range dst {
				want[d] = make([]uint32, (rows-1)*to+n)
				dst[d] = kerneltest.At(m, want[d])
				for r := range rows {
					for i := range n {
						want[d][r*to+i] = x[r*from+2*i+d]
					}
				}
			}
			pick(set, deal2AVX2, deal2AVX512)(&dst[0][0], &dst[1][0], &x[0], n, rows, 4*to, 4*from)
			for d := range dst {
				kerneltest.Same(m, fmt.Sprintf("deal2%s of %d elements", set.Name, n), dst[d], want[d])
			}
		})
	}
	for groups := 1; set.Wide() && groups <= 4; groups++ {
		s.Run("deal3AVX512", func(m *kerneltest.Guarded) {
			x := drawn(m, 48*groups, m.Uint32)
			var dst [3][]uint32
			for d := range dst {
				dst[d] = kerneltest.At(m, make([]uint32, 16*groups))
			}
			deal3AVX512(&dst[0][0], &dst[1][0], &dst[2][0], &x[0], groups)
			for d := range dst {
				want := make([]uint32, 16*groups)
				for i := range want {
					want[i] = x[3*i+d]
				}
				kerneltest.Same(m, fmt.Sprintf("deal3AVX512 of %d groups", groups), dst[d], want)
			}
		})
	}
}

// mostElements is more than two rounds of four vectors.
func mostElements(set kerneltest.Set) int { return 2*4*set.Lanes + set.Lanes + 3 }

func stubsFolds(s *kerneltest.Stubs, set kerneltest.Set) {
	type fold = func(acc *float64, x *float32, n, rows, stride int)
	for _, f := range []struct {
		name          string
		call          fold
		each, squared bool
		most, rows    int // elements of a row; rows are a multiple
	}{
		{"sumEach", pick[fold](set, sumEachAVX2, sumEachAVX512), true, false, mostElements(set), 1},
		{"sumShort", pick[fold](set, sumShortAVX2, sumShortAVX512), true, false, set.Lanes, 4},
		{"longSquaresEach", pick[fold](set, longSquaresEachAVX2, longSquaresEachAVX512), true, true, mostElements(set), 1},
		{"longSumRows", pick[fold](set, longSumRowsAVX2, longSumRowsAVX512), false, false, mostElements(set), 1},
		{"longSquaresRows", pick[fold](set, longSquaresRowsAVX2, longSquaresRowsAVX512), false, true, mostElements(set), 1},
	} {
		for n := 1; n <= f.most; n++ {
			s.Run(f.name+set.Name, func(m *kerneltest.Guarded) {
				rows, stride := f.rows*(1+m.IntN(4)), n+m.IntN(3)
				x := m.Whole((rows-1)*stride + n)
				acc := drawn(m, [...]int{n, rows}[b2i(f.each)], func() float64 { return float64(m.IntN(9)) })
				want := append([]float64(nil), acc...)
				for r := range rows {
					for i := range n {
						v := float64(x[r*stride+i])
						if f.squared {
							v *= v
						}
						want[[...]int{i, r}[b2i(f.each)]] += v
					}
				}
				f.call(&acc[0], &x[0], n, rows, 4*stride)
				kerneltest.Same(m, fmt.Sprintf("%s%s of %d rows of %d elements", f.name, set.Name, rows, n), acc, want)
			})
		}
	}
	for n := 1; n <= mostElements(set); n++ {
		s.Run("greater"+set.Name, func(m *kerneltest.Guarded) {
			best, at, x := m.Whole(n), m.Whole(n), m.Whole(n)
			for _, v := range [][]float32{best, x} {
				v[m.IntN(n)] = float32(math.NaN())
			}
			wantBest, wantAt := append([]float32(nil), best...), append([]float32(nil), at...)
			for i := range n {
				if !(x[i] <= best[i]) && best[i] == best[i] {
					wantBest[i], wantAt[i] = x[i], 9
				}
			}
			pick(set, greaterAVX2, greaterAVX512)(&best[0], &at[0], &x[0], n, 9)
			kerneltest.Same(m, fmt.Sprintf("greater%s of %d elements", set.Name, n), best, wantBest)
			kerneltest.Same(m, fmt.Sprintf("places of greater%s of %d elements", set.Name, n), at, wantAt)
		})
	}
}

// b2i is 1 for true.
func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func stubsRows(s *kerneltest.Stubs, set kerneltest.Set) {
	// rowsOf runs a function of rows that follow each other.
	rowsOf := func(name string, call func(m *kerneltest.Guarded, dst, x []float32, n, rows int), want func(dst []float64, x []float32)) {
		for n := 1; n <= mostElements(set); n++ {
			s.Run(name+set.Name, func(m *kerneltest.Guarded) {
				rows := 1 + m.IntN(5)
				x := drawn(m, n*rows, func() float32 { return 4 * (m.Float32() - 0.5) })
				dst, _ := m.Unset(n * rows)
				wanted := make([]float64, n*rows)
				for r := range rows {
					want(wanted[r*n:][:n], x[r*n:][:n])
				}
				call(m, dst, x, n, rows)
				kerneltest.Near(m, fmt.Sprintf("%s%s of %d rows of %d elements", name, set.Name, rows, n), dst, wanted)
			})
		}
	}
	softmax := func(dst []float64, x []float32) (total float64) {
		for i, v := range x {
			dst[i] = math.Exp(float64(v))
			total += dst[i]
		}
		return total
	}
	rowsOf("softmaxRows", func(_ *kerneltest.Guarded, dst, x []float32, n, rows int) {
		pick(set, softmaxRowsAVX2, softmaxRowsAVX512)(&dst[0], &x[0], n, rows)
	}, func(dst []float64, x []float32) {
		total := softmax(dst, x)
		for i := range dst {
			dst[i] /= total
		}
	})
	rowsOf("logSoftmaxRows", func(_ *kerneltest.Guarded, dst, x []float32, n, rows int) {
		pick(set, logSoftmaxRowsAVX2, logSoftmaxRowsAVX512)(&dst[0], &x[0], n, rows)
	}, func(dst []float64, x []float32) {
		total := math.Log(softmax(dst, x))
		for i := range dst {
			dst[i] = float64(x[i]) - total
		}
	})
	const epsilon = 0.25
	scale := func(i int) float32 { return float32(i%5) - 2 }
	bias := func(i int) float32 { return float32(i%3) - 1 }
	at := func(m *kerneltest.Guarded, n int, f func(i int) float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = f(i)
		}
		return kerneltest.At(m, x)
	}
	// norm is the row with its mean square 1, without its mean if that is taken off.
	norm := func(dst []float64, x []float32, layer bool) {
		mean, squares := 0., 0.
		for _, v := range x {
			mean += float64(v) / float64(len(x))
		}
		if !layer {
			mean = 0
		}
		for _, v := range x {
			squares += (float64(v) - mean) * (float64(v) - mean) / float64(len(x))
		}
		for i, v := range x {
			dst[i] = (float64(v) - mean) / math.Sqrt(squares+epsilon) * float64(scale(i))
			if layer {
				dst[i] += float64(bias(i))
			}
		}
	}
	rowsOf("layerNormRows", func(m *kerneltest.Guarded, dst, x []float32, n, rows int) {
		pick(set, layerNormRowsAVX2, layerNormRowsAVX512)(&dst[0], &x[0], &at(m, n, scale)[0], &at(m, n, bias)[0], n, rows, epsilon)
	}, func(dst []float64, x []float32) { norm(dst, x, true) })
	rowsOf("rmsNormRows", func(m *kerneltest.Guarded, dst, x []float32, n, rows int) {
		pick(set, rmsNormRowsAVX2, rmsNormRowsAVX512)(&dst[0], &x[0], &at(m, n, scale)[0], n, rows, epsilon)
	}, func(dst []float64, x []float32) { norm(dst, x, false) })
}
