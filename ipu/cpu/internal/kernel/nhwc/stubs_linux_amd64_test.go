package nhwc

import (
	"fmt"
	"math"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestStubs runs every tile by itself, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Each(func(set kerneltest.Set) {
		if !set.Wide() {
			stubsTranspose(s)
			return
		}
		if cpu.X86.HasAVX512VNNI {
			stubsConv(s)
			stubsDepth(s)
		} else {
			s.Without("bytesConv", "bytesDepth")
		}
		if cpu.X86.HasAVX512VBMI {
			stubsMap(s)
		} else {
			s.Without("bytesMap")
		}
		stubsPair(s)
		stubsMost(s)
	})
	s.Finish()
}

// someEnd draws how numbers become bytes.
func someEnd(m *kerneltest.Guarded) (end bytesEnd, zero int, least byte) {
	zero, least = m.IntN(256), byte(m.IntN(40))
	return bytesEnd{float32(60 + m.IntN(200)), uint32(zero) * 0x00010001, uint32(least) * 0x01010101}, zero, least
}

// byteOf is the byte that a number becomes.
func byteOf(v float32, end bytesEnd, zero int, least byte) byte {
	i := int(math.RoundToEven(float64(min(v, end.high))))
	i = min(max(i, math.MinInt16), math.MaxInt16) + zero
	return max(byte(min(max(i, 0), 255)), least)
}

// steps returns n fractions: sums times them are rounded to integers.
func steps(m *kerneltest.Guarded, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 1 / float32(int(8)<<m.IntN(8))
	}
	return kerneltest.At(m, x)
}

// someInts returns n small integers.
func someInts(m *kerneltest.Guarded, n, below int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(m.IntN(below))
	}
	return kerneltest.At(m, x)
}

func stubsConv(s *kerneltest.Stubs) {
	for rows := 1; rows <= 6; rows++ {
		for vectors := 1; vectors <= 4; vectors++ {
			cols := 16 * vectors
			function := fmt.Sprintf("bytesConv_%dx%d_avx512", rows, cols)
			for channels := 1; channels <= cols; channels++ {
				s.Run(function, func(m *kerneltest.Guarded) {
					const span = 20
					tiles, runs, run := 1+m.IntN(3), 1+m.IntN(3), 4*(1+m.IntN(3))
					pixels, starts := someInts(m, tiles*rows, span+1), someInts(m, runs, span+1)
					pixels[m.IntN(len(pixels))], starts[m.IntN(runs)] = span, span
					x, w := m.Bytes(2*span+run), m.Bytes(runs*run*cols)
					first, scale, shift := someInts(m, cols, 1000), steps(m, cols), m.Whole(cols)
					end, zero, least := someEnd(m)
					outRow := channels + m.IntN(3)
					out, want := m.UnsetBytes((tiles*rows-1)*outRow + channels)
					for p := range pixels {
						for c := range channels {
							sum := first[c]
							for j := range runs {
								for i := range run {
									sum += int32(x[int(pixels[p]+starts[j])+i]) * int32(int8(w[(j*run+i)/4*4*cols+4*c+i%4]))
								}
							}
							want[p*outRow+c] = byteOf(float32(sum)*scale[c]+shift[c], end, zero, least)
						}
					}
					bytesConvAVX512(&bytesConvArgs{
						x: &x[0], pixels: &pixels[0], tiles: tiles, runs: &starts[0], runCount: runs, run: run, weights: &w[0], first: &first[0], scale: &scale[0], shift: &shift[0],
						out: &out[0], outRow: outRow, rows: rows, vectors: vectors, mask: math.MaxUint64 >> (64 - channels), end: end,
					})
					kerneltest.Same(m, fmt.Sprintf("%s of %d channels, %d tiles", function, channels, tiles), out, want)
				})
			}
		}
	}
}

// place is where a vector of 64 bytes of which every four in a column become a
// lane has the lane of a byte.
func place(b int) int { return 16*(b%16/4) + b/16*4 + b%4 }

func stubsDepth(s *kerneltest.Stubs) {
	for groups := 1; groups <= 2; groups++ {
		for outs := 1; outs <= 2; outs++ {
			function := fmt.Sprintf("bytesDepth_%dx%dx64_avx512", outs, 4*groups)
			for n := 1; n <= 64; n++ { // bytes of the last chunk
				s.Run(function, func(m *kerneltest.Guarded) {
					chunks, taps, tap := 1+m.IntN(4), 1+m.IntN(3), 1+m.IntN(5)
					period := 1 + m.IntN(chunks)
					whole := 64 // bytes of the last chunk of a period
					if period < chunks {
						whole = 1 + m.IntN(64)
					}
					inSkip, outSkip := whole-64, whole-64+m.IntN(3)
					in := func(chunk int) int { return 64*chunk + chunk/period*inSkip }
					to := func(chunk int) int { return 64*chunk + chunk/period*outSkip }
					const span = 20
					lines := someInts(m, 4*groups, span+1)
					lines[m.IntN(len(lines))] = span
					x := m.Bytes(span + in(chunks-1) + (taps-1)*tap + 64)
					params, w := make([]float32, 3*64*period), m.Bytes(256*groups*outs*taps*period)
					for i := range params {
						switch i / 64 % 3 {
						case 0:
							params[i] = math.Float32frombits(uint32(m.IntN(1000)))
						case 1:
							params[i] = 1 / float32(int(8)<<m.IntN(8))
						case 2:
							params[i] = float32(m.IntN(9))
						}
					}
					params = kerneltest.At(m, params)
					end, zero, least := someEnd(m)
					args := bytesDepthArgs{
						x: &x[0], rows: &lines[0], chunks: chunks, period: period, inSkip: inSkip, outSkip: outSkip, taps: taps, tap: tap, params: &params[0], weights: &w[0],
						mask: math.MaxUint64 >> (64 - n), groups: groups, outs: outs, end: end, wrap: math.MaxUint64 >> (64 - whole),
					}
					var out, want [2][]byte
					for o := range outs {
						out[o], want[o] = m.UnsetBytes(to(chunks-1) + n)
						args.out[o] = &out[o][0]
						for chunk := range chunks {
							count := 64
							if chunk%period == period-1 {
								count = whole
							}
							if chunk == chunks-1 {
								count = n
							}
							about := chunk % period
							for b := range count {
								p := params[3*64*about+place(b):]
								sum := int32(math.Float32bits(p[0]))
								for t := range taps {
									for g := range groups {
										for q := range 4 {
											sum += int32(x[int(lines[4*g+q])+in(chunk)+t*tap+b]) * int32(int8(w[(about*taps+t)*256*groups*outs+256*(g*outs+o)+4*place(b)+q]))
										}
									}
								}
								want[o][to(chunk)+b] = byteOf(float32(sum)*p[64]+p[128], end, zero, least)
							}
						}
					}
					bytesDepthAVX512(&args)
					for o := range outs {
						kerneltest.Same(m, fmt.Sprintf("%s of %d chunks and %d bytes, line %d", function, chunks-1, n, o), out[o], want[o])
					}
				})
			}
		}
	}
}

func stubsPair(s *kerneltest.Stubs) {
	for i, call := range []func(*bytesAddArgs){bytesAddAVX512, bytesMulAVX512} {
		function := [...]string{"bytesAddAVX512", "bytesMulAVX512"}[i]
		for n := 1; n <= 64; n++ { // bytes of a row's last chunk
			s.Run(function, func(m *kerneltest.Guarded) {
				rows, chunks := 1+m.IntN(3), 1+m.IntN(3)
				width := 64*(chunks-1) + n
				aRow, bRow, outRow := width+m.IntN(3), width*m.IntN(2), width+m.IntN(3)
				// Whole chunks are read.
				a, b := m.Bytes((rows-1)*aRow+64*chunks), m.Bytes((rows-1)*bRow+64*chunks)
				end, zero, least := someEnd(m)
				out, want := m.UnsetBytes((rows-1)*outRow + width)
				args := bytesAddArgs{
					a: &a[0], b: &b[0], out: &out[0], chunks: chunks, mask: math.MaxUint64 >> (64 - n), zero: [2]int32{int32(m.IntN(256)), int32(m.IntN(256))}, scale: [2]float32{0.125, 0.25},
					step: 0.5, by: 2, end: end, rows: rows, skipA: aRow - 64*chunks, skipB: bRow - 64*chunks, skip: outRow - 64*chunks,
				}
				for r := range rows {
					for c := range width {
						u, v := float32(int32(a[r*aRow+c])-args.zero[0])*args.scale[0], float32(int32(b[r*bRow+c])-args.zero[1])*args.scale[1]
						if i == 0 {
							u += v
						} else {
							u *= v
						}
						want[r*outRow+c] = byteOf(u/args.step, end, zero, least)
					}
				}
				call(&args)
				kerneltest.Same(m, fmt.Sprintf("%s of %d rows of %d bytes", function, rows, width), out, want)
			})
		}
	}
}

func stubsMap(s *kerneltest.Stubs) {
	for n := 1; n <= 64; n++ {
		s.Run("bytesMapAVX512", func(m *kerneltest.Guarded) {
			rows, chunks := 1+m.IntN(3), 1+m.IntN(3)
			width := 64*(chunks-1) + n
			xRow, outRow := width+m.IntN(3), width+m.IntN(3)
			x, table := m.Bytes((rows-1)*xRow+width), m.Bytes(256)
			out, want := m.UnsetBytes((rows-1)*outRow + width)
			for r := range rows {
				for c := range width {
					want[r*outRow+c] = table[x[r*xRow+c]]
				}
			}
			bytesMapAVX512(&bytesMapArgs{x: &x[0], out: &out[0], table: &table[0], rows: rows, chunks: chunks, mask: math.MaxUint64 >> (64 - n), skip: xRow - 64*chunks, to: outRow - 64*chunks})
			kerneltest.Same(m, fmt.Sprintf("bytesMapAVX512 of %d rows of %d bytes", rows, width), out, want)
		})
	}
}

func stubsMost(s *kerneltest.Stubs) {
	for n := 1; n <= 64; n++ {
		s.Run("bytesMostAVX512", func(m *kerneltest.Guarded) {
			chunks, lines, taps, tap := 1+m.IntN(3), 1+m.IntN(3), 1+m.IntN(3), 1+m.IntN(9)
			line := tap * taps
			width := 64*(chunks-1) + n
			x := m.Bytes((lines-1)*line + (taps-1)*tap + width)
			out, want := m.UnsetBytes(width)
			for i := range want {
				want[i] = 0
				for l := range lines {
					for t := range taps {
						want[i] = max(want[i], x[l*line+t*tap+i])
					}
				}
			}
			bytesMostAVX512(&bytesMostArgs{out: &out[0], x: &x[0], chunks: chunks, mask: math.MaxUint64 >> (64 - n), lines: lines, line: line, taps: taps, tap: tap})
			kerneltest.Same(m, fmt.Sprintf("bytesMostAVX512 of %d bytes", width), out, want)
		})
	}
}

func stubsTranspose(s *kerneltest.Stubs) {
	for groups := 1; groups <= 5; groups++ {
		s.Run("bytesTransposeAVX2", func(m *kerneltest.Guarded) {
			from, to, flip := 16*groups+m.IntN(3), 8+m.IntN(3), byte(0x80*m.IntN(2))
			src := m.Bytes(7*from + 16*groups)
			dst, want := m.UnsetBytes((16*groups-1)*to + 8)
			for c := range 16 * groups {
				for r := range 8 {
					want[c*to+r] = src[r*from+c] ^ flip
				}
			}
			bytesTransposeAVX2(&dst[0], to, &src[0], from, groups, uint32(flip)*0x01010101)
			kerneltest.Same(m, fmt.Sprintf("bytesTransposeAVX2 of %d groups", groups), dst, want)
		})
	}
}
