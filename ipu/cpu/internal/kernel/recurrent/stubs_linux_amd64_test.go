package recurrent

import (
	"fmt"
	"math"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// TestStubs runs every tile and loop by itself, with every remainder, between
// pages that may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Loops(stubs)
	s.Each(func(set kerneltest.Set) {
		stubsCells(s, set)
		stubsBack(s, set)
		stubsGates(s, set)
	})
	s.Finish()
}

func plainSigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// stubs are the loops over elements by operation.
var stubs = map[string]kerneltest.Stub{
	"gated": {Wide: gatedAVX512, Narrow: gatedAVX2, Low: -3, High: 3, Want: func(x []float64) float64 { return plainSigmoid(x[0]) * x[1] }},
	"gruCell": {Wide: gruCellAVX512, Narrow: gruCellAVX2, Low: -3, High: 3, Want: func(x []float64) float64 {
		z := plainSigmoid(x[0])
		return (1-z)*math.Tanh(x[1]) + z*x[2]
	}},
}

// draw returns n guarded numbers between -3 and 3.
func draw(m *kerneltest.Guarded, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 6 * (m.Float32() - 0.5)
	}
	return kerneltest.At(m, x)
}

func stubsCells(s *kerneltest.Stubs, set kerneltest.Set) {
	for n := 1; n <= 2*2*set.Lanes+3; n++ {
		s.Run("lstmCell"+set.Name, func(m *kerneltest.Guarded) {
			c, i, o, f, u := draw(m, n), draw(m, n), draw(m, n), draw(m, n), draw(m, n)
			h, _ := m.Unset(n)
			wantC, wantH := make([]float64, n), make([]float64, n)
			for k := range n {
				wantC[k] = plainSigmoid(float64(f[k]))*float64(c[k]) + plainSigmoid(float64(i[k]))*math.Tanh(float64(u[k]))
				wantH[k] = plainSigmoid(float64(o[k])) * math.Tanh(wantC[k])
			}
			call := lstmCellAVX2
			if set.Wide() {
				call = lstmCellAVX512
			}
			call(&h[0], &c[0], &i[0], &o[0], &f[0], &u[0], n)
			what := fmt.Sprintf("lstmCell%s of %d units", set.Name, n)
			kerneltest.Near(m, what+": c", c, wantC)
			kerneltest.Near(m, what+": h", h, wantH)
		})
		s.Run("gruLinearCell"+set.Name, func(m *kerneltest.Guarded) {
			z, r, u, p, h := draw(m, n), draw(m, n), draw(m, n), draw(m, n), draw(m, n)
			dst, _ := m.Unset(n)
			want := make([]float64, n)
			for k := range want {
				v := plainSigmoid(float64(z[k]))
				want[k] = (1-v)*math.Tanh(plainSigmoid(float64(r[k]))*float64(p[k])+float64(u[k])) + v*float64(h[k])
			}
			call := gruLinearCellAVX2
			if set.Wide() {
				call = gruLinearCellAVX512
			}
			call(&dst[0], &z[0], &r[0], &u[0], &p[0], &h[0], n)
			kerneltest.Near(m, fmt.Sprintf("gruLinearCell%s of %d units", set.Name, n), dst, want)
		})
	}
}

func stubsBack(s *kerneltest.Stubs, set kerneltest.Set) {
	slope, rest := func(s float64) float64 { return s * (1 - s) }, func(y float64) float64 { return 1 - y*y }
	for n := 1; n <= 2*set.Lanes+3; n++ {
		// check draws so many operands, calls a loop and compares all of them with what want makes of an element of each.
		check := func(name string, count int, call func(x [][]float32), want func(x []float64)) {
			s.Run(name+set.Name, func(m *kerneltest.Guarded) {
				x, wanted, element := make([][]float32, count), make([][]float64, count), make([]float64, count)
				for i := range x {
					x[i], wanted[i] = draw(m, n), make([]float64, n)
					for k, v := range x[i] { // sums and differences lose no digits: all are between 0 and 1, the last one above
						x[i][k] = 0.1 + max(v, -v)/4 + float32(i/(count-1))
					}
				}
				for k := range n {
					for i := range x {
						element[i] = float64(x[i][k])
					}
					want(element)
					for i := range x {
						wanted[i][k] = element[i]
					}
				}
				call(x)
				for i := range x {
					kerneltest.Near(m, fmt.Sprintf("%s%s of %d units: operand %d", name, set.Name, n, i), x[i], wanted[i])
				}
			})
		}
		check("lstmBack", 8, func(x [][]float32) {
			call := lstmBackAVX2
			if set.Wide() {
				call = lstmBackAVX512
			}
			call(&x[0][0], &x[1][0], &x[2][0], &x[3][0], &x[4][0], &x[5][0], &x[6][0], &x[7][0], n)
		}, func(x []float64) {
			i, o, f, u, b, y, dh := x[0], x[1], x[2], x[3], x[7], math.Tanh(x[5]), x[6]
			all := x[4] + dh*o*rest(y)
			x[0], x[1], x[2], x[3], x[4] = all*u*slope(i), dh*y*slope(o), all*b*slope(f), all*i*rest(u), all*f
		})
		check("gruBack", 4, func(x [][]float32) {
			call := gruBackAVX2
			if set.Wide() {
				call = gruBackAVX512
			}
			call(&x[0][0], &x[1][0], &x[2][0], &x[3][0], n)
		}, func(x []float64) {
			z, u, dh, h := x[0], x[1], x[2], x[3]
			x[0], x[1], x[2] = dh*(h-u)*slope(z), dh*(1-z)*rest(u), dh*z
		})
		check("resetBack", 4, func(x [][]float32) {
			call := resetBackAVX2
			if set.Wide() {
				call = resetBackAVX512
			}
			call(&x[0][0], &x[1][0], &x[2][0], &x[3][0], n)
		}, func(x []float64) { x[0], x[1] = x[3]*x[2]*slope(x[0]), x[1]+x[3]*x[0] })
		check("linearBack", 3, func(x [][]float32) {
			call := linearBackAVX2
			if set.Wide() {
				call = linearBackAVX512
			}
			call(&x[0][0], &x[1][0], &x[2][0], n)
		}, func(x []float64) { x[0], x[1] = x[2]*x[1]*slope(x[0]), x[2]*x[0] })
		check("tanhBack", 3, func(x [][]float32) {
			call := tanhBackAVX2
			if set.Wide() {
				call = tanhBackAVX512
			}
			call(&x[0][0], &x[1][0], &x[2][0], n)
		}, func(x []float64) { x[0] = x[2] * rest(x[1]) })
	}
}

func stubsGates(s *kerneltest.Stubs, set kerneltest.Set) {
	path, call := tensor.PathAVX2, gatesAVX2
	if set.Wide() {
		path, call = tensor.PathAVX512, gatesAVX512
	}
	const panel = gemm.Panel
	for rows := 1; rows <= gemm.FewRows(path); rows++ {
		for gates := 1; gates <= gatesAtOnce(path, rows, 4); gates++ {
			function := fmt.Sprintf("gates_%dx%dx%d%s", rows, gates, panel, set.Tile)
			for k := 1; k <= 6; k++ {
				for panels := 1; panels <= 3; panels++ {
					s.Run(function, func(m *kerneltest.Guarded) {
						hRow, rStep := k+m.IntN(3), panel*(gates+m.IntN(2))
						rNext := k * rStep
						h, r := m.Whole((rows-1)*hRow+k), m.Whole((panels-1)*rNext+(k-1)*rStep+panel*gates)
						args := gatesArgs{h: &h[0], r: &r[0], rows: rows, gates: gates, k: k, panels: panels, hRow: 4 * hRow, rStep: 4 * rStep, rNext: 4 * rNext, next: 4 * panel}
						var to, want [4][]float32
						for g := range gates {
							toRow, fromRow := panels*panel+m.IntN(3), panels*panel*m.IntN(2)
							from := m.Whole((rows-1)*fromRow + panels*panel)
							to[g], want[g] = m.Unset((rows-1)*toRow + panels*panel)
							args.to[g], args.toRow[g], args.from[g], args.fromRow[g] = &to[g][0], 4*toRow, &from[0], 4*fromRow
							for i := range rows {
								for c := range panels * panel {
									v := from[i*fromRow+c]
									for j := range k {
										v += h[i*hRow+j] * r[c/panel*rNext+j*rStep+panel*g+c%panel]
									}
									want[g][i*toRow+c] = v
								}
							}
						}
						call(&args)
						for g := range gates {
							kerneltest.Same(m, fmt.Sprintf("%s of %d panels, %d products, gate %d", function, panels, k, g), to[g], want[g])
						}
					})
				}
			}
		}
	}
}
