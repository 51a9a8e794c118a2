package gradient

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
)

// vectors reports whether there is assembly for T.
func vectors[T tensor.Float]() bool { return tensor.Path != tensor.PathGo && tensor.IsFloat32[T]() }

func wide() bool { return tensor.Path == tensor.PathAVX512 }

func vectorDot[T tensor.Float](x, y []T) (total float64, ok bool) {
	if !vectors[T]() {
		return 0, false
	}
	u, v := tensor.AsFloat32(x), tensor.AsFloat32(y)[:len(x)]
	for i := 0; i < len(u); i += vec.SumStretch {
		if n := min(vec.SumStretch, len(u)-i); wide() {
			total += float64(dotRowAVX512(&u[i], &v[i], n))
		} else {
			total += float64(dotRowAVX2(&u[i], &v[i], n))
		}
	}
	return total, true
}

func vectorDotCentred[T tensor.Float](x, y []T, mean T) (total float64, ok bool) {
	if !vectors[T]() {
		return 0, false
	}
	u, v := tensor.AsFloat32(x), tensor.AsFloat32(y)[:len(x)]
	for i := 0; i < len(u); i += vec.SumStretch {
		if n := min(vec.SumStretch, len(u)-i); wide() {
			total += float64(dotCentredAVX512(&u[i], &v[i], n, float32(mean)))
		} else {
			total += float64(dotCentredAVX2(&u[i], &v[i], n, float32(mean)))
		}
	}
	return total, true
}

func vectorDotScaled[T tensor.Float](x, y, scale []T, mean T) (total float64, ok bool) {
	if !vectors[T]() {
		return 0, false
	}
	u, v, s := tensor.AsFloat32(x), tensor.AsFloat32(y)[:len(x)], tensor.AsFloat32(scale)[:len(x)]
	for i := 0; i < len(u); i += vec.SumStretch {
		if n := min(vec.SumStretch, len(u)-i); wide() {
			total += float64(dotScaledAVX512(&u[i], &v[i], &s[i], n, float32(mean)))
		} else {
			total += float64(dotScaledAVX2(&u[i], &v[i], &s[i], n, float32(mean)))
		}
	}
	return total, true
}

func vectorBackScaled[T tensor.Float](dx, x, dy, scale, dscale, dbias []T, mean, factor, first, second T) bool {
	if !vectors[T]() {
		return false
	}
	d, u, g, s := tensor.AsFloat32(dx)[:len(x)], tensor.AsFloat32(x), tensor.AsFloat32(dy)[:len(x)], tensor.AsFloat32(scale)[:len(x)]
	ds, db := tensor.AsFloat32(dscale)[:len(x)], tensor.AsFloat32(dbias)[:len(x)]
	for i := 0; i < len(u); i += vec.Stretch {
		if n := min(vec.Stretch, len(u)-i); wide() {
			backScaledAVX512(&d[i], &ds[i], &db[i], &u[i], &g[i], &s[i], n, float32(mean), float32(factor), float32(first), float32(second))
		} else {
			backScaledAVX2(&d[i], &ds[i], &db[i], &u[i], &g[i], &s[i], n, float32(mean), float32(factor), float32(first), float32(second))
		}
	}
	return true
}

func vectorBackChannel[T tensor.Float](dx, x, dy []T, mean, scale, slope, shift T) bool {
	if !vectors[T]() {
		return false
	}
	d, u, g := tensor.AsFloat32(dx)[:len(x)], tensor.AsFloat32(x), tensor.AsFloat32(dy)[:len(x)]
	for i := 0; i < len(u); i += vec.Stretch {
		if n := min(vec.Stretch, len(u)-i); wide() {
			backChannelAVX512(&d[i], &u[i], &g[i], n, float32(mean), float32(scale), float32(slope), float32(shift))
		} else {
			backChannelAVX2(&d[i], &u[i], &g[i], n, float32(mean), float32(scale), float32(slope), float32(shift))
		}
	}
	return true
}

func vectorBackSoftmax[T tensor.Float](dx, y, dy []T, total T) bool {
	if !vectors[T]() {
		return false
	}
	d, u, g := tensor.AsFloat32(dx)[:len(y)], tensor.AsFloat32(y), tensor.AsFloat32(dy)[:len(y)]
	for i := 0; i < len(u); i += vec.Stretch {
		if n := min(vec.Stretch, len(u)-i); wide() {
			backSoftmaxAVX512(&d[i], &u[i], &g[i], n, float32(total))
		} else {
			backSoftmaxAVX2(&d[i], &u[i], &g[i], n, float32(total))
		}
	}
	return true
}

func vectorBackLogSoftmax[T tensor.Float](dx, y, dy []T, total T) bool {
	if !vectors[T]() {
		return false
	}
	d, u, g := tensor.AsFloat32(dx)[:len(y)], tensor.AsFloat32(y), tensor.AsFloat32(dy)[:len(y)]
	for i := 0; i < len(u); i += vec.Stretch {
		if n := min(vec.Stretch, len(u)-i); wide() {
			backLogSoftmaxAVX512(&d[i], &u[i], &g[i], n, float32(total))
		} else {
			backLogSoftmaxAVX2(&d[i], &u[i], &g[i], n, float32(total))
		}
	}
	return true
}

// backPairs goes back through maxima of 2 by 2 elements, if there is assembly for T. Elements that are in no window are left as they
// are.
func backPairs[T tensor.Float](dx, x, dy []T, down, along *window.PoolAxis) bool {
	if !vectors[T]() || len(dy) == 0 || along.Out > vec.Stretch {
		return false
	}
	d, u, g := tensor.AsFloat32(dx), tensor.AsFloat32(x), tensor.AsFloat32(dy)
	_, _, _ = d[2*down.Out*along.In-1], u[2*down.Out*along.In-1], g[down.Out*along.Out-1]
	most := max(1, vec.Stretch/along.Out)
	for r := 0; r < down.Out; r += most {
		at, from := 2*r*along.In, r*along.Out
		if n := min(most, down.Out-r); wide() {
			backMaxPool2AVX512(&d[at], &u[at], &g[from], along.Out, n, 4*along.In)
		} else {
			backMaxPool2AVX2(&d[at], &u[at], &g[from], along.Out, n, 4*along.In)
		}
	}
	return true
}
