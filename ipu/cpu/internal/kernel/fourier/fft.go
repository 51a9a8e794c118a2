package fourier

import (
	"math"
	"math/bits"
)

// fft is the discrete Fourier transform of a fixed length, in double
// precision: what it adds up may cancel out nearly all.
type fft struct {
	n       int
	factors []int
	turn    []complex128 // exp(-2πi·k/n)

	// A length with a great prime factor is transformed by Bluestein's way: a
	// convolution with a chirp, which is a product after transforms of a
	// length that is a power of 2.
	inner   *fft
	chirp   []complex128 // exp(-πi·k²/n)
	inverse []complex128 // the transform of the chirp's conjugate, divided by inner.n
}

// greatPrime is the least prime factor for which Bluestein's way is taken.
const greatPrime = 37

func newFFT(n int) *fft {
	f := &fft{n: n}
	left := n
	for _, r := range []int{4, 2, 3, 5} {
		for left%r == 0 {
			f.factors = append(f.factors, r)
			left /= r
		}
	}
	for r := 7; r*r <= left && r < greatPrime; r += 2 {
		for left%r == 0 {
			f.factors = append(f.factors, r)
			left /= r
		}
	}
	if left >= greatPrime {
		return newBluestein(n)
	}
	if left > 1 {
		f.factors = append(f.factors, left)
	}
	f.turn = make([]complex128, n)
	for k := range f.turn {
		f.turn[k] = turn(k, n)
	}
	return f
}

// turn returns exp(-2πi·k/n).
func turn(k, n int) complex128 {
	s, c := math.Sincos(-2 * math.Pi * float64(k) / float64(n))
	return complex(c, s)
}

func newBluestein(n int) *fft {
	f := &fft{n: n, inner: newFFT(1 << bits.Len(uint(2*n-2)))}
	f.chirp = make([]complex128, n)
	square := 0 // k² modulo 2n, which keeps angles exact
	for k := range f.chirp {
		f.chirp[k] = turn(square, 2*n)
		square = (square + 2*k + 1) % (2 * n)
	}
	m := f.inner.n
	f.inverse = make([]complex128, m)
	for k, c := range f.chirp {
		conj := complex(real(c), -imag(c)) / complex(float64(m), 0)
		f.inverse[k], f.inverse[(m-k)%m] = conj, conj
	}
	f.inner.transform(f.inverse, make([]complex128, m))
	return f
}

// scratch returns how many elements [fft.transform] wants besides the n of x.
func (f *fft) scratch() int {
	if f.inner != nil {
		return 2 * f.inner.n
	}
	return f.n
}

// transform replaces x, of n elements, by its transform.
func (f *fft) transform(x, scratch []complex128) {
	if f.inner != nil {
		f.bluestein(x, scratch)
		return
	}
	from, to := x, scratch[:f.n]
	stride := 1
	for _, r := range f.factors {
		f.pass(r, stride, from, to)
		from, to = to, from
		stride *= r
	}
	if len(f.factors)%2 == 1 {
		copy(x, from)
	}
}

// pass takes one factor r off the transforms of length n/stride of which
// stride are interleaved in x: Stockham's way, which needs no reordering.
func (f *fft) pass(r, stride int, x, y []complex128) {
	m := f.n / stride / r
	switch r {
	case 2:
		for q := range m {
			w := f.turn[q*stride]
			for k := range stride {
				a, b := x[k+stride*q], x[k+stride*(q+m)]
				y[k+stride*2*q] = a + b
				y[k+stride*(2*q+1)] = (a - b) * w
			}
		}
	case 4:
		for q := range m {
			w1, w2 := f.turn[q*stride], f.turn[2*q*stride]
			w3 := f.turn[3*q*stride]
			for k := range stride {
				a, b := x[k+stride*q], x[k+stride*(q+m)]
				c, d := x[k+stride*(q+2*m)], x[k+stride*(q+3*m)]
				ac, bd := a+c, b+d
				p := a - c
				s := b - d
				s = complex(imag(s), -real(s)) // times -i
				out := y[k+stride*4*q:]
				out[0] = ac + bd
				out[stride] = (p + s) * w1
				out[2*stride] = (ac - bd) * w2
				out[3*stride] = (p - s) * w3
			}
		}
	default:
		root := f.n / r // exp(-2πi/r) is turn[root]
		for q := range m {
			for k := range stride {
				for u := range r {
					sum := x[k+stride*q]
					at := 0
					for t := 1; t < r; t++ {
						if at += u; at >= r {
							at -= r
						}
						sum += x[k+stride*(q+m*t)] * f.turn[at*root]
					}
					y[k+stride*(r*q+u)] = sum * f.turn[q*u*stride]
				}
			}
		}
	}
}

func (f *fft) bluestein(x, scratch []complex128) {
	m := f.inner.n
	a, rest := scratch[:m], scratch[m:]
	for k, c := range f.chirp {
		a[k] = x[k] * c
	}
	clear(a[f.n:])
	f.inner.transform(a, rest)
	// The transform back is one forth of the conjugates.
	for k, v := range f.inverse {
		v *= a[k]
		a[k] = complex(real(v), -imag(v))
	}
	f.inner.transform(a, rest)
	for k, c := range f.chirp {
		x[k] = complex(real(a[k]), -imag(a[k])) * c
	}
}
