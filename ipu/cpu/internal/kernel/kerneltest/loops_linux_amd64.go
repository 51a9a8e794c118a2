package kerneltest

import "fmt"

// Stub is a loop over elements in assembly and, in float64, what it computes for
// one.
type Stub struct {
	Wide, Narrow any // for AVX-512 and AVX2, of one of the types of call
	Low, High    float64
	Scalars      []float32
	// Want is the result for one element of each operand. Of what returns a sum or
	// an extreme it is joined with the result for the elements before.
	Want func(x []float64) float64
	Join func(x, y float64) float64
}

// call calls f and returns what it does, if anything.
func (c *Stub) call(f any, dst []float32, x [][]float32) (result float64) {
	n, s := len(dst), c.Scalars
	switch f := f.(type) {
	case func(dst, x *float32, n int):
		f(&dst[0], &x[0][0], n)
	case func(dst, x, y *float32, n int):
		f(&dst[0], &x[0][0], &x[1][0], n)
	case func(dst, x, y, z *float32, n int):
		f(&dst[0], &x[0][0], &x[1][0], &x[2][0], n)
	case func(dst, x *float32, n int, y float32):
		f(&dst[0], &x[0][0], n, s[0])
	case func(dst, x *float32, n int, y, z float32):
		f(&dst[0], &x[0][0], n, s[0], s[1])
	case func(dst, x *float32, n int, y, z, w float32):
		f(&dst[0], &x[0][0], n, s[0], s[1], s[2])
	case func(dst, x, y *float32, n int, z float32):
		f(&dst[0], &x[0][0], &x[1][0], n, s[0])
	case func(dst, x, y *float32, n int, z, w float32):
		f(&dst[0], &x[0][0], &x[1][0], n, s[0], s[1])
	case func(dst, x, y, z *float32, n int, u, v float32):
		f(&dst[0], &x[0][0], &x[1][0], &x[2][0], n, s[0], s[1])
	case func(dst, x *float32, n int, y float32) float32:
		result = float64(f(&dst[0], &x[0][0], n, s[0]))
	case func(x *float32, n int) float32:
		result = float64(f(&x[0][0], n))
	case func(x *float32, n int) float64:
		result = f(&x[0][0], n)
	case func(x *float32, n int, y float32) float32:
		result = float64(f(&x[0][0], n, s[0]))
	default:
		panic(fmt.Sprintf("no call for %T", f))
	}
	return result
}

// Loops runs loops over elements, with every remainder.
func (s *Stubs) Loops(cases map[string]Stub) {
	const most = 2*2*16 + 3 // two rounds of two vectors, and some
	for name, c := range cases {
		s.Each(func(set Set) {
			f, function := c.Narrow, name+set.Name
			if set.Wide() {
				f = c.Wide
			}
			for n := 1; n <= most; n++ {
				s.Run(function, func(m *Guarded) {
					dst, _ := m.Unset(n)
					x := make([][]float32, 3)
					for i := range x {
						x[i] = At(m, make([]float32, n))
						for j := range x[i] {
							x[i][j] = float32(c.Low + (c.High-c.Low)*m.Float64())
						}
					}
					want, total := make([]float64, n), 0.
					for i := range n {
						want[i] = c.Want([]float64{float64(x[0][i]), float64(x[1][i]), float64(x[2][i])})
						switch {
						case c.Join == nil:
						case i == 0:
							total = want[0]
						default:
							total = c.Join(total, want[i])
						}
					}
					result := c.call(f, dst, x)
					what := fmt.Sprintf("%s of %d elements", function, n)
					if c.Join == nil {
						Near(m, what, dst, want)
					} else {
						Near(m, what, []float32{float32(result)}, []float64{total})
					}
				})
			}
		})
	}
}
