package recurrent

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// vector reports whether there are loops in assembly for T.
func vector[T tensor.Float]() bool { return tensor.Path != tensor.PathGo && tensor.IsFloat32[T]() }

// floatAt returns the first of n elements.
func floatAt[T tensor.Float](x []T, n int) *float32 { return &tensor.AsFloat32(x[:n])[0] }

func vectorBackLstm[T tensor.Float](i, o, f, u, dc, b, c, dh []T) bool {
	if !vector[T]() {
		return false
	}
	n := len(dh)
	if tensor.Path == tensor.PathAVX512 {
		lstmBackAVX512(floatAt(i, n), floatAt(o, n), floatAt(f, n), floatAt(u, n), floatAt(dc, n), floatAt(c, n), floatAt(dh, n), floatAt(b, n), n)
	} else {
		lstmBackAVX2(floatAt(i, n), floatAt(o, n), floatAt(f, n), floatAt(u, n), floatAt(dc, n), floatAt(c, n), floatAt(dh, n), floatAt(b, n), n)
	}
	return true
}

func vectorBackGru[T tensor.Float](z, u, dh, h []T) bool {
	if !vector[T]() {
		return false
	}
	n := len(dh)
	if tensor.Path == tensor.PathAVX512 {
		gruBackAVX512(floatAt(z, n), floatAt(u, n), floatAt(dh, n), floatAt(h, n), n)
	} else {
		gruBackAVX2(floatAt(z, n), floatAt(u, n), floatAt(dh, n), floatAt(h, n), n)
	}
	return true
}

func vectorBackReset[T tensor.Float](r, dh, h, d []T) bool {
	if !vector[T]() {
		return false
	}
	n := len(d)
	if tensor.Path == tensor.PathAVX512 {
		resetBackAVX512(floatAt(r, n), floatAt(dh, n), floatAt(h, n), floatAt(d, n), n)
	} else {
		resetBackAVX2(floatAt(r, n), floatAt(dh, n), floatAt(h, n), floatAt(d, n), n)
	}
	return true
}

func vectorBackLinear[T tensor.Float](r, q, du []T) bool {
	if !vector[T]() {
		return false
	}
	n := len(du)
	if tensor.Path == tensor.PathAVX512 {
		linearBackAVX512(floatAt(r, n), floatAt(q, n), floatAt(du, n), n)
	} else {
		linearBackAVX2(floatAt(r, n), floatAt(q, n), floatAt(du, n), n)
	}
	return true
}

func vectorBackTanh[T tensor.Float](d, y, dy []T) bool {
	if !vector[T]() {
		return false
	}
	n := len(y)
	if tensor.Path == tensor.PathAVX512 {
		tanhBackAVX512(floatAt(d, n), floatAt(y, n), floatAt(dy, n), n)
	} else {
		tanhBackAVX2(floatAt(d, n), floatAt(y, n), floatAt(dy, n), n)
	}
	return true
}
