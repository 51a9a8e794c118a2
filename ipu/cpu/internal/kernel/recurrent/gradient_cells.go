package recurrent

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// backLstm makes the gradients of the sums of an LSTM's gates of these, and the gradient of C before the step of that of C
// after it, without what comes by way of H:
//
//	i, o, f, u  gates; their sums' gradients
//	dc          gradient of C after the step; before it
//	b, c, dh    C before and after the step, gradient of H after it
func backLstm[T tensor.Float](i, o, f, u, dc, b, c, dh []T) {
	if vectorBackLstm(i, o, f, u, dc, b, c, dh) {
		return
	}
	for k, d := range dh {
		y := T(math.Tanh(float64(c[k])))
		do := T(d * y)
		all := dc[k] + T(T(d*o[k])*(1-T(y*y)))
		in, forget, v := i[k], f[k], u[k]
		i[k] = T(all*v) * T(in*(1-in))
		o[k] = do * T(o[k]*(1-o[k]))
		f[k] = T(all*b[k]) * T(forget*(1-forget))
		u[k] = T(all*in) * (1 - T(v*v))
		dc[k] = T(all * forget)
	}
}

// backGru makes the gradients of the sums of a GRU's gates z and u of these, and of the gradient of H after the step what z lets
// through to h, H before it.
func backGru[T tensor.Float](z, u, dh, h []T) {
	if vectorBackGru(z, u, dh, h) {
		return
	}
	for k, d := range dh {
		v, g := z[k], u[k]
		u[k] = T(d*(1-v)) * (1 - T(g*g))
		z[k] = T(d*(h[k]-g)) * T(v*(1-v))
		dh[k] = T(d * v)
	}
}

// backReset makes the gradient of the sum of a GRU's reset gate r of it, and adds to that of h, H before the step, what comes
// through r∘h, whose gradient is d.
func backReset[T tensor.Float](r, dh, h, d []T) {
	if vectorBackReset(r, dh, h, d) {
		return
	}
	for k, d := range d {
		v := r[k]
		r[k] = T(d*h[k]) * T(v*(1-v))
		dh[k] += T(d * v)
	}
}

// backLinear makes the gradients of the sums of a linear GRU's gates of the reset gate r and of q, by which it is multiplied;
// du is that of the product.
func backLinear[T tensor.Float](r, q, du []T) {
	if vectorBackLinear(r, q, du) {
		return
	}
	for k, d := range du {
		v := r[k]
		r[k] = T(d*q[k]) * T(v*(1-v))
		q[k] = T(d * v)
	}
}

// backTanh sets d to the gradient of x where y = tanh(x) and dy is the gradient of y.
func backTanh[T tensor.Float](d, y, dy []T) {
	if vectorBackTanh(d, y, dy) {
		return
	}
	for k, v := range y {
		d[k] = T(dy[k] * (1 - T(v*v)))
	}
}
