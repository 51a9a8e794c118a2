package quant

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// TestStubs runs every tile by itself, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Each(func(set kerneltest.Set) {
		if set.Wide() && !cpu.X86.HasAVX512VNNI {
			s.Without("int8Product", "int8Conv", "int8PlaneInts", "int8PlaneFloats", "int8PlaneBytes")
		} else {
			stubsSums(s, set)
			stubsPlane(s, set)
		}
		stubsFinish(s, set)
	})
	stubsBytes(s)
	s.Finish()
}

// fourBytes returns rows of so many steps of four bytes, pitch bytes apart, and
// as numbers; signed is how the bytes of a are meant. By AVX2 they are numbers of
// 16 bits.
func fourBytes(m *kerneltest.Guarded, set kerneltest.Set, rows, steps int, signed bool) (a []byte, pitch int, of func(r, i int) int32) {
	gap := 8 * m.IntN(2)
	n := 4 * steps
	x := kerneltest.RandomBytes(m.Rand, rows*n)
	of = func(r, i int) int32 {
		if signed {
			return int32(int8(x[r*n+i]))
		}
		return int32(x[r*n+i])
	}
	if set.Wide() {
		pitch = n + gap
		a = make([]byte, (rows-1)*pitch+n)
		for r := range rows {
			copy(a[r*pitch:], x[r*n:][:n])
		}
		return kerneltest.At(m, a), pitch, of
	}
	pitch = 2*n + gap
	words := make([]int16, ((rows-1)*pitch+2*n)/2)
	for r := range rows {
		for i := range n {
			words[r*pitch/2+i/4*4+[...]int{0, 2, 1, 3}[i%4]] = int16(of(r, i))
		}
	}
	return kerneltest.At(m, tensor.RawBytes(words)), pitch, of
}

// someInts returns n integers.
func someInts(m *kerneltest.Guarded, n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(m.IntN(2000) - 1000)
	}
	return kerneltest.At(m, x)
}

// someOffsets returns n distances of up to span bytes.
func someOffsets(m *kerneltest.Guarded, n, span int) []int {
	x := make([]int, n)
	for i := range x {
		x[i] = m.IntN(span + 1)
	}
	x[m.IntN(n)] = span
	return kerneltest.At(m, x)
}

func stubsSums(s *kerneltest.Stubs, set kerneltest.Set) {
	most, vectors, calls := 6, 1, []func(*int8Args){int8ProductAVX2, int8ConvAVX2}
	if set.Wide() {
		most, vectors, calls = 12, 2, []func(*int8Args){int8ProductAVX512, int8ConvAVX512}
	}
	for conv, call := range calls {
		for v := 1; v <= vectors; v++ {
			for tile := 1; tile <= most; tile++ {
				function := fmt.Sprintf("%s_%dx%d%s", [...]string{"int8Product", "int8Conv"}[conv], tile, 16*v, set.Tile)
				for steps := 1; steps <= 5; steps++ {
					counts := []int{tile}
					if tile == most { // which takes several times as many, and others the rest
						for rows := most + 1; rows <= int8Height; rows++ {
							counts = append(counts, rows)
						}
					}
					for _, rows := range counts {
						s.Run(function, func(m *kerneltest.Guarded) {
							const span = 20
							a, pitch, of := fourBytes(m, set, rows, steps, conv == 1)
							b, offsets := m.Bytes((steps-1)*128+64*v), make([]int, steps)
							first := someInts(m, 16*v)
							for i := range offsets {
								offsets[i] = 128 * i
							}
							if conv == 1 {
								b, offsets, first = m.Bytes(span+64*v), someOffsets(m, steps, span), someInts(m, rows)
							}
							unset := make([]int32, (rows-1)*int8Width+16*v)
							for i := range unset {
								unset[i] = -1
							}
							sums, want := kerneltest.At(m, unset), unset
							for r := range rows {
								for c := range 16 * v {
									sum := first[[...]int{c, r}[conv]]
									for i := range 4 * steps {
										x := int32(int8(b[offsets[i/4]+4*c+i%4]))
										if conv == 1 {
											x = int32(uint8(x))
										}
										sum += of(r, i) * x
									}
									want[r*int8Width+c] = sum
								}
							}
							args := int8Args{a: &a[0], aRow: pitch, rows: rows, b: &b[0], steps: steps, tile: &sums[0], vectors: v, first: &first[0]}
							if conv == 1 {
								args.offsets = &offsets[0]
							}
							for args.done < rows {
								before := args.done
								call(&args)
								if rows == tile && args.done != tile || args.done <= before {
									t := fmt.Sprintf("%s of %d rows, of which %d were done", function, rows, before)
									kerneltest.Same(m, t, []int{args.done}, []int{rows})
								}
							}
							kerneltest.Same(m, fmt.Sprintf("%s of %d rows, %d steps", function, rows, steps), sums, want)
						})
					}
				}
			}
		}
	}
}

// results is memory for results of a kind, and what they are to be.
type results struct {
	kind      int8Kind
	out, want []byte
	low, high float32
	zero      int32
}

func newResults(m *kerneltest.Guarded, kind int8Kind, n int) *results {
	r := &results{kind: kind, low: -90, high: 100, zero: int32(m.IntN(40))}
	r.out, r.want = m.UnsetBytes(n * r.size())
	return r
}

func (r *results) size() int {
	if r.kind == int8ToBytes {
		return 1
	}
	return 4
}

// set sets what result i is to be.
func (r *results) set(i int, sum int32, scale, shift float32) {
	v := min(max(float32(sum)*scale+shift, r.low), r.high)
	switch r.kind {
	case int8ToInts:
		tensor.View[int32](r.want[4*i:])[0] = sum
	case int8ToFloats:
		tensor.View[float32](r.want[4*i:])[0] = v
	default:
		r.want[i] = byte(int32(math.RoundToEven(float64(v))) + r.zero)
	}
}

// fractions returns n of them, such that products with sums are exact.
func fractions(m *kerneltest.Guarded, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 1 / float32(int(4)<<m.IntN(6))
	}
	return kerneltest.At(m, x)
}

var kinds = [...]string{"Ints", "Floats", "Bytes"}

func stubsFinish(s *kerneltest.Stubs, set kerneltest.Set) {
	way := int8ByAVX2
	if set.Wide() {
		way = Int8ByVNNI
	}
	for kind, name := range kinds {
		for byRows, of := range [...]string{"Columns", "Rows"} {
			function := "int8" + of + name + set.Name
			for trial := range 100 {
				s.Run(function, func(m *kerneltest.Guarded) {
					rows := 1 + m.IntN(5)
					// Of the columns the first ones count, of convolutions any.
					keep := uint32(math.MaxUint32) >> (trial % 32)
					if byRows == 1 && trial >= 32 {
						keep = m.Uint32() | 1<<m.IntN(32)
					}
					if !set.Wide() {
						keep = math.MaxUint32
					}
					n0, n := bits.OnesCount32(keep&0xffff), bits.OnesCount32(keep)
					outRow := n + m.IntN(3)
					r := newResults(m, int8Kind(kind), (rows-1)*outRow+n)
					tile := someInts(m, rows*int8Width)
					parameters := [...]int{int8Width, rows}[byRows]
					scale, shift := fractions(m, parameters), m.Whole(parameters)
					outer, line := someInts(m, rows), someInts(m, int8Width)
					args := int8FinishArgs{
						tile: &tile[0], rows: rows, out: &r.out[0], outRow: outRow * r.size(), scale: &scale[0], shift: &shift[0], line: &line[0], second: n0 * r.size(),
						low: r.low, high: r.high, zero: r.zero, keep: [2]uint16{uint16(keep), uint16(keep >> 16)}, store: [2]uint16{1<<n0 - 1, 1<<(n-n0) - 1},
					}
					crossed := m.IntN(2) == 0
					if crossed {
						args.outer = &outer[0]
					}
					for i := range rows {
						at := i * outRow
						for c := range int8Width {
							if keep>>c&1 == 0 {
								continue
							}
							sum, p := tile[i*int8Width+c], [...]int{c, i}[byRows]
							if crossed {
								sum += outer[i] * line[c]
							}
							r.set(at, sum, scale[p], shift[p])
							at++
						}
					}
					int8Finish(way, r.kind, byRows == 1, &args)
					kerneltest.Same(m, fmt.Sprintf("%s of %d rows, columns %#x", function, rows, keep), r.out, r.want)
				})
			}
		}
	}
}

func stubsPlane(s *kerneltest.Stubs, set kerneltest.Set) {
	way := int8ByAVX2
	if set.Wide() {
		way = Int8ByVNNI
	}
	for kind, name := range kinds {
		function := "int8Plane" + name + set.Name
		for steps := 1; steps <= 5; steps++ {
			for blocks := 1; blocks <= 3; blocks++ {
				s.Run(function, func(m *kerneltest.Guarded) {
					const span = 20
					n := 4 * set.Lanes * blocks
					w, _, of := fourBytes(m, set, 1, steps, true)
					x, offsets := m.Bytes(span+4*n), someOffsets(m, steps, span)
					r := newResults(m, int8Kind(kind), n)
					args := int8PlaneArgs{
						x: &x[0], offsets: &offsets[0], steps: steps, w: &w[0], blocks: blocks, out: &r.out[0], first: int32(m.IntN(99)), scale: 0.125, shift: 3,
						low: r.low, high: r.high, zero: r.zero,
					}
					for c := range n {
						sum := args.first
						for i := range 4 * steps {
							sum += of(0, i) * int32(x[offsets[i/4]+4*c+i%4])
						}
						r.set(c, sum, args.scale, args.shift)
					}
					int8Plane(way, r.kind, &args, n)
					kerneltest.Same(m, fmt.Sprintf("%s of %d steps, %d blocks", function, steps, blocks), r.out, r.want)
				})
			}
		}
	}
}

func stubsBytes(s *kerneltest.Stubs) {
	for groups := 1; groups <= 5; groups++ {
		n := 16 * groups
		s.Run("int8InterleaveAVX2", func(m *kerneltest.Guarded) {
			flip := byte(0x80 * m.IntN(2))
			from := [4][]byte{m.Bytes(n), m.Bytes(n), m.Bytes(n), m.Bytes(n)}
			dst, want := m.UnsetBytes(4 * n)
			for i := range dst {
				want[i] = from[i%4][i/4] ^ flip
			}
			int8InterleaveAVX2(&dst[0], &from[0][0], &from[1][0], &from[2][0], &from[3][0], groups, uint32(flip)*0x01010101)
			kerneltest.Same(m, fmt.Sprintf("int8InterleaveAVX2 of %d groups", groups), dst, want)
		})
		s.Run("int8WidenAVX2", func(m *kerneltest.Guarded) {
			flip := byte(0x80 * m.IntN(2))
			src, want := m.Bytes(n), make([]uint16, n)
			dst := kerneltest.At(m, want)
			for i := range want {
				want[i/4*4+[...]int{0, 2, 1, 3}[i%4]] = uint16(src[i] ^ flip)
			}
			int8WidenAVX2(&dst[0], &src[0], groups, uint32(flip)*0x01010101)
			kerneltest.Same(m, fmt.Sprintf("int8WidenAVX2 of %d groups", groups), dst, want)
		})
		s.Run("int8EvenAVX2", func(m *kerneltest.Guarded) {
			src := m.Bytes(2 * n)
			dst, want := m.UnsetBytes(n)
			for i := range want {
				want[i] = src[2*i]
			}
			int8EvenAVX2(&dst[0], &src[0], groups)
			kerneltest.Same(m, fmt.Sprintf("int8EvenAVX2 of %d groups", groups), dst, want)
		})
	}
}
