package gemm

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// TestStubs runs every tile by itself, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Each(func(set kerneltest.Set) {
		stubsGemm(s, set)
		stubsGemv(s, set)
		stubsDot(s, set)
		stubsCopy(s, set)
	})
	for blocks := 1; blocks <= 5; blocks++ {
		s.Run("transposeAVX2", func(m *kerneltest.Guarded) {
			step := 8*blocks + blocks%3
			src := m.Whole(7*step + 8*blocks)
			dst, want := m.Unset(32*(8*blocks-1) + 8)
			for c := range 8 * blocks {
				for r := range 8 {
					want[32*c+r] = src[r*step+c]
				}
			}
			transposeAVX2(&dst[0], &src[0], 4*step, blocks)
			kerneltest.Same(m, fmt.Sprintf("transposeAVX2 of %d blocks", blocks), dst, want)
		})
	}
	s.Finish()
}

// TestTracebackNamesTiles lets a tile read beyond a matrix, and looks for it and
// for who called it in the stack.
func TestTracebackNamesTiles(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Each(func(set kerneltest.Set) {
		call := gemmAVX2
		if set.Wide() {
			call = gemmAVX512
		}
		stack := s.Fault(func(m *kerneltest.Guarded) {
			short, c := m.Whole(2*set.Lanes), m.Whole(3*2*set.Lanes)
			call(&gemmArgs{a: &short[0], b: &c[0], c: &c[0], d: &c[0], rows: 3, k: 1, aRow: 64, aStep: 4, bStep: 4, ahead: &c[0], mask: math.MaxUint32})
		})
		for _, want := range []string{fmt.Sprintf("gemm.gemm_3x%d%s(", 2*set.Lanes, set.Tile), "gemm.TestTracebackNamesTiles"} {
			if !strings.Contains(stack, want) {
				t.Errorf("the stack has no %s:\n%s", want, stack)
			}
		}
	})
}

// tileProduct is what a tile of a product multiplies, and what it has to give.
type tileProduct struct {
	rows, cols, k        int
	a, d, c, want        []float32
	aRow, aCol           int
	cRow, dRow           int
	alpha                float32
	column               bool
	limits               limits
	b                    func(i, j int) float32
	consecutive, limited bool
}

// newTileProduct draws all but b of a product.
func newTileProduct(m *kerneltest.Guarded, rows, cols, k int) *tileProduct {
	p := &tileProduct{rows: rows, cols: cols, k: k, consecutive: m.IntN(3) > 0, column: m.IntN(2) == 0, limited: m.IntN(2) == 0, alpha: 2}
	p.aRow, p.aCol = k+m.IntN(3), 1
	if !p.consecutive {
		p.aRow, p.aCol = 1+m.IntN(2), 2*rows
	}
	p.a = m.Whole((rows-1)*p.aRow + (k-1)*p.aCol + 1)
	p.cRow, p.dRow = cols+m.IntN(3), cols+m.IntN(3)
	p.d = m.Whole((rows-1)*p.dRow + cols)
	if p.column {
		p.d = m.Whole((rows-1)*p.dRow + 1)
	}
	p.c, p.want = m.Unset((rows-1)*p.cRow + cols)
	if p.limited {
		p.limits = limits{low: -20, high: 30, zero: float32(math.Copysign(0, -1)), on: true}
	}
	return p
}

// check computes the plain loop and compares.
func (p *tileProduct) check(m *kerneltest.Guarded, what string) {
	for r := range p.rows {
		for j := range p.cols {
			s := float32(0)
			for i := range p.k {
				s += p.a[r*p.aRow+i*p.aCol] * p.b(i, j)
			}
			d := p.d[r*p.dRow]
			if !p.column {
				d = p.d[r*p.dRow+j]
			}
			s = p.alpha*s + d
			if p.limited {
				s = min(max(s, p.limits.low), p.limits.high)
			}
			p.want[r*p.cRow+j] = s
		}
	}
	kerneltest.Same(m, fmt.Sprintf("%s with %d products, %d columns", what, p.k, p.cols), p.c, p.want)
}

// depths are numbers of products: every remainder of the loops, twice.
const depths = 2*4 + 3

func stubsGemm(s *kerneltest.Stubs, set kerneltest.Set) {
	run := func(operation string, rows, width, cols, k int) {
		function := fmt.Sprintf("%s_%dx%d%s", operation, rows, width, set.Tile)
		s.Run(function, func(m *kerneltest.Guarded) {
			p := newTileProduct(m, rows, cols, k)
			ldb := width + m.IntN(3)
			n := width // that are read of a row of B
			if operation == "gemmMasked" {
				n = cols
			}
			b := m.Whole((k-1)*ldb + n)
			p.b = func(i, j int) float32 { return b[i*ldb+j] }
			args := gemmArgs{
				a: &p.a[0], b: &b[0], c: &p.c[0], d: &p.d[0], rows: rows, k: k, aRow: 4 * p.aRow, aStep: 4 * p.aCol, bStep: 4 * ldb,
				cRow: 4 * p.cRow, dRow: 4 * p.dRow, ahead: &b[0], alpha: p.alpha, mask: 1<<cols - 1, column: p.column, limits: p.limits,
			}
			args.lanes.Set(args.mask)
			switch {
			case operation == "gemm" && set.Wide():
				gemmAVX512(&args)
			case operation == "gemm":
				gemmAVX2(&args)
			case set.Wide():
				gemmMaskedAVX512(&args)
			default:
				gemmMaskedAVX2(&args)
			}
			p.check(m, function)
		})
	}
	most, vectors := rowsAVX2, []int{2}
	if set.Wide() {
		most, vectors = rowsAVX512, []int{1, 2}
	}
	for rows := 1; rows <= most; rows++ {
		for _, v := range vectors {
			width := v * set.Lanes
			for k := 1; k <= depths; k++ {
				run("gemm", rows, width, width, k)
				run("gemmMasked", rows, width, width, k)
			}
			for cols := 1; cols < width; cols++ {
				if len(vectors) > 1 && cols <= width-set.Lanes {
					continue // a tile of one vector
				}
				if set.Wide() {
					run("gemm", rows, width, cols, 1+cols%depths)
				}
				run("gemmMasked", rows, width, cols, 1+cols%depths)
			}
		}
	}
}

func stubsGemv(s *kerneltest.Stubs, set kerneltest.Set) {
	path, call := tensor.PathAVX2, gemvAVX2
	if set.Wide() {
		path, call = tensor.PathAVX512, gemvAVX512
	}
	for rows := 1; rows <= FewRows(path); rows++ {
		for _, panels := range gemvPanels(path, rows) {
			function := fmt.Sprintf("gemv_%dx%d%s", rows, panels*Panel, set.Tile)
			for k := 1; k <= depths; k++ {
				for _, ldb := range []int{Panel, Panel + 5} {
					for _, far := range []bool{false, true} {
						s.Run(function, func(m *kerneltest.Guarded) {
							p := newTileProduct(m, rows, panels*Panel, k)
							pitch := k*ldb + m.IntN(3) // from panel to panel
							b := m.Whole((panels-1)*pitch + (k-1)*ldb + Panel)
							p.b = func(i, j int) float32 { return b[j/Panel*pitch+i*ldb+j%Panel] }
							call(&gemvArgs{
								a: &p.a[0], b: &b[0], c: &p.c[0], d: &p.d[0], rows: rows, k: k, aRow: 4 * p.aRow, aStep: 4 * p.aCol, bStep: 4 * ldb,
								cRow: 4 * p.cRow, dRow: 4 * p.dRow, bPanel: 4 * pitch, panels: panels, alpha: p.alpha, column: p.column, far: far, limits: p.limits,
							})
							p.check(m, function)
						})
					}
				}
			}
		}
	}
}

func stubsDot(s *kerneltest.Stubs, set kerneltest.Set) {
	call := dotAVX2
	if set.Wide() {
		call = dotAVX512
	}
	for rows := 1; rows <= Narrow; rows++ {
		function := fmt.Sprintf("dot_%dx4%s", rows, set.Tile)
		for k := 1; k <= 2*set.Lanes+3; k++ {
			for _, b1 := range []int{0, 1} { // one row of B four times, or four
				s.Run(function, func(m *kerneltest.Guarded) {
					lda, ldb := k+m.IntN(3), (k+m.IntN(3))*b1
					a, b := m.Whole((rows-1)*lda+k), m.Whole(3*ldb+k)
					args := dotArgs{a: &a[0], b: &b[0], rows: rows, k: k, aRow: 4 * lda, bRow: 4 * ldb, mask: 1<<(k%set.Lanes) - 1}
					args.lanes.Set(args.mask)
					call(&args)
					var want [Narrow][4]float32
					for r := range rows {
						for c := range 4 {
							for i := range k {
								want[r][c] += a[r*lda+i] * b[c*ldb+i]
							}
						}
					}
					kerneltest.Same(m, fmt.Sprintf("%s of %d products", function, k), args.out[:], want[:])
				})
			}
		}
	}
}

func stubsCopy(s *kerneltest.Stubs, set kerneltest.Set) {
	for stride := 1; stride <= 2; stride++ {
		function, path := [...]string{"convCopy", "convCopyEven"}[stride-1]+set.Name, tensor.PathAVX2
		if set.Wide() {
			path = tensor.PathAVX512
		}
		for n := 1; n <= 2*stride*set.Lanes+3; n++ { // elements of a row of the source
			s.Run(function, func(m *kerneltest.Guarded) {
				const planes, rows = 2, 3
				before := m.IntN(3) // elements of a row that are zero, and do not exist
				vectors := (before + n + stride*set.Lanes - 1) / (stride * set.Lanes)
				srcRow := n + m.IntN(2)
				srcPlane := rows*srcRow + m.IntN(2)
				src := m.Whole((planes-1)*srcPlane + (rows-1)*srcRow + n)
				inside := func(i int) bool { return i >= before && i < before+n }
				var masks []byte
				for v := range stride * vectors {
					var bits uint32
					for i := range set.Lanes {
						if inside(v*set.Lanes + i) {
							bits |= 1 << i
						}
					}
					if set.Wide() {
						masks = append(masks, byte(bits), byte(bits>>8))
						continue
					}
					var lanes [8]int32
					SetLanes(lanes[:], bits)
					masks = append(masks, tensor.RawBytes(lanes[:])...)
				}
				masks = kerneltest.At(m, masks)
				dstRow, odd := vectors*set.Lanes+m.IntN(2), 0
				dstPlane := rows * dstRow
				size := (planes-1)*dstPlane + (rows-1)*dstRow + vectors*set.Lanes
				if stride == 2 && m.IntN(2) == 0 {
					odd = planes * dstPlane
				}
				dst, want := m.Unset(size + odd)
				for p := range planes {
					for r := range rows {
						for i := range stride * vectors * set.Lanes {
							v, to := float32(0), p*dstPlane+r*dstRow+i/stride
							if inside(i) {
								v = src[p*srcPlane+r*srcRow+i-before]
							}
							if i%stride == 0 {
								want[to] = v
							} else if odd != 0 {
								want[odd+to] = v
							}
						}
					}
				}
				CopyPlanes(path, &CopyArgs{
					Src: &src[0], Dst: &dst[0], Planes: planes, SrcPlane: 4 * srcPlane, DstPlane: 4 * dstPlane, Rows: rows, SrcRow: 4 * srcRow, DstRow: 4 * dstRow,
					Vectors: vectors, Masks: &masks[0], Odd: 4 * odd, Shift: -4 * before,
				}, stride)
				kerneltest.Same(m, fmt.Sprintf("%s of %d elements after %d", function, n, before), dst, want)
			})
		}
	}
}
