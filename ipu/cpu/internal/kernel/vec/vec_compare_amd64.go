package vec

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// compareLoop compares groups of 16 elements in assembly.
type compareLoop[T tensor.Number] func(dst *uint8, x, y *T, groups int)

// vectorComparison returns the loop of a comparison with SIMD instructions, nil if there is
// none for T.
func vectorComparison[T tensor.Number](fn graph.BinaryFn) func(dst []uint8, a, b []T) {
	if tensor.Path == tensor.PathGo {
		return nil
	}
	var l any
	swap := false
	switch fn {
	case graph.Greater:
		fn, swap = graph.Less, true
	case graph.GreaterEqual:
		fn, swap = graph.LessEqual, true
	}
	_, float := any(T(0)).(float32)
	switch {
	case fn == graph.Equal && float:
		l = Pick[compareLoop[float32]](equalFloatAVX512, equalFloatAVX2)
	case fn == graph.Equal:
		l = Pick[compareLoop[int32]](equalIntAVX512, equalIntAVX2)
	case fn == graph.Less && float:
		l = Pick[compareLoop[float32]](lessFloatAVX512, lessFloatAVX2)
	case fn == graph.Less:
		l = Pick[compareLoop[int32]](lessIntAVX512, lessIntAVX2)
	case fn == graph.LessEqual && float:
		l = Pick[compareLoop[float32]](lessEqualFloatAVX512, lessEqualFloatAVX2)
	case fn == graph.LessEqual:
		l = Pick[compareLoop[int32]](lessEqualIntAVX512, lessEqualIntAVX2)
	default:
		return nil
	}
	loop, ok := l.(compareLoop[T])
	if !ok {
		return nil
	}
	rest := comparison[T](fn)
	return func(dst []uint8, a, b []T) {
		if swap {
			a, b = b, a
		}
		a, b = a[:len(dst)], b[:len(dst)]
		for len(dst) >= quantGroup {
			n := min(Stretch, len(dst)&^(quantGroup-1))
			loop(&dst[0], &a[0], &b[0], n/quantGroup)
			dst, a, b = dst[n:], a[n:], b[n:]
		}
		rest(dst, a, b)
	}
}
