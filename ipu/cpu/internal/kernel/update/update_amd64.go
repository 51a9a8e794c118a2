package update

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// vectorAdam takes a step of Adam with SIMD instructions, if there are any for T; with decay the weight's decay is part of the
// step. It reports whether it did it.
func vectorAdam[T tensor.Float](b *block[T], decay bool) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() || len(b.w) == 0 {
		return false
	}
	n := len(b.w)
	first := func(x []T) *float32 { return &tensor.AsFloat32(x)[:n][0] }
	to, m, v, w, g, oldM, oldV, numbers := first(b.to), first(b.r[0]), first(b.r[1]), first(b.w), first(b.g), first(b.s[0]), first(b.s[1]), first(b.all)
	wide := tensor.Path == tensor.PathAVX512
	switch {
	case decay && wide:
		adamDecoupledAVX512(to, m, v, w, g, oldM, oldV, numbers, n)
	case decay:
		adamDecoupledAVX2(to, m, v, w, g, oldM, oldV, numbers, n)
	case wide:
		adamAVX512(to, m, v, w, g, oldM, oldV, numbers, n)
	default:
		adamAVX2(to, m, v, w, g, oldM, oldV, numbers, n)
	}
	return true
}
