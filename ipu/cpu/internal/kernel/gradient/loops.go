package gradient

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/reduce"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// sumLen is how many elements are added up in the type at hand before the sum goes to a float64.
const sumLen = 256

// summed adds up what term gives for n elements without losing precision to length.
func summed[T tensor.Float](n int, term func(i int) T) float64 {
	total := 0.0
	for i := 0; i < n; i += sumLen {
		var s T
		for j := i; j < min(n, i+sumLen); j++ {
			s += term(j)
		}
		total += float64(s)
	}
	return total
}

// dotRow returns the sum of x·y.
func dotRow[T tensor.Float](x, y []T) float64 {
	if total, ok := vectorDot(x, y); ok {
		return total
	}
	y = y[:len(x)]
	return summed(len(x), func(i int) T { return T(x[i] * y[i]) })
}

// dotCentred returns the sum of (x-mean)·y.
func dotCentred[T tensor.Float](x, y []T, mean T) float64 {
	if total, ok := vectorDotCentred(x, y, mean); ok {
		return total
	}
	y = y[:len(x)]
	return summed(len(x), func(i int) T { return T((x[i] - mean) * y[i]) })
}

// dotScaled returns the sum of (x-mean)·y·scale.
func dotScaled[T tensor.Float](x, y, scale []T, mean T) float64 {
	if total, ok := vectorDotScaled(x, y, scale, mean); ok {
		return total
	}
	y, scale = y[:len(x)], scale[:len(x)]
	return summed(len(x), func(i int) T { return T((x[i] - mean) * T(y[i]*scale[i])) })
}

// backScaled sets dx to factor·(dy·scale - first - x̂·second) with x̂ = (x-mean)·factor, and adds dy·x̂ to dscale and dy to dbias. dx
// may be x or dy.
func backScaled[T tensor.Float](dx, x, dy, scale, dscale, dbias []T, mean, factor, first, second T) {
	if vectorBackScaled(dx, x, dy, scale, dscale, dbias, mean, factor, first, second) {
		return
	}
	for i, d := range dy {
		hat := (x[i] - mean) * factor
		dscale[i] += T(d * hat)
		dbias[i] += d
		dx[i] = (T(d*scale[i]) - first - T(hat*second)) * factor
	}
}

// backChannel sets dx to dy·scale + (x-mean)·slope + shift. dx may be x or dy.
func backChannel[T tensor.Float](dx, x, dy []T, mean, scale, slope, shift T) {
	if vectorBackChannel(dx, x, dy, mean, scale, slope, shift) {
		return
	}
	for i, d := range dy {
		dx[i] = T(d*scale) + T((x[i]-mean)*slope) + shift
	}
}

// backSoftmax sets dx to y·(dy-total). dx may be y or dy.
func backSoftmax[T tensor.Float](dx, y, dy []T, total T) {
	if vectorBackSoftmax(dx, y, dy, total) {
		return
	}
	for i, d := range dy {
		dx[i] = y[i] * (d - total)
	}
}

// backLogSoftmax sets dx to dy - exp(y)·total. dx may be y or dy.
func backLogSoftmax[T tensor.Float](dx, y, dy []T, total T) {
	if vectorBackLogSoftmax(dx, y, dy, total) {
		return
	}
	var e [stripLen]T
	for i := 0; i < len(dy); i += stripLen {
		n := min(stripLen, len(dy)-i)
		reduce.Exponentials(e[:n], y[i:i+n])
		for j, e := range e[:n] {
			dx[i+j] = dy[i+j] - T(e*total)
		}
	}
}
