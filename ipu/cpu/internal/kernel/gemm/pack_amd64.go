package gemm

import (
	"unsafe"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// vectorPack is [packBlock] with SIMD instructions where there are any for T and the matrix
// lies row-major or column-major, and reports whether it did it.
func vectorPack[T tensor.Number](dst []T, b Matrix[T], k, cols int) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() || b.Row != 1 && b.Col != 1 {
		return false
	}
	PackF32(tensor.Path, tensor.AsFloat32(dst), Matrix[float32]{tensor.AsFloat32(b.Data), b.Row, b.Col}, k, cols)
	return true
}

// PackWeights writes rows of depth elements each as columns of depth rows of
// width elements. Where a whole row is not filled the rest is zero.
func PackWeights(dst []float32, width int, src []float32, rows, depth int) {
	dst, src = dst[:depth*width], src[:rows*depth]
	if width == Panel && tensor.Path != tensor.PathGo {
		PackF32(tensor.Path, dst, Matrix[float32]{src, 1, depth}, depth, rows)
		return
	}
	if rows < width {
		clear(dst)
	}
	for first := 0; first < depth; first += PackedAtOnce {
		last := min(first+PackedAtOnce, depth)
		for m := range rows {
			to := first*width + m
			for _, v := range src[m*depth:][first:last] {
				dst[to] = v
				to += width
			}
		}
	}
}

// PackF32 is [packBlock] with SIMD instructions.
func PackF32(p tensor.VectorPath, dst []float32, b Matrix[float32], k, cols int) {
	if k == 0 {
		return
	}
	_ = dst[k*Panel-1]
	switch {
	case b.Col == 1:
		_ = b.Data[(k-1)*b.Row+cols-1]
		// Masks of 32 columns, for either path.
		var bits [Panel / 16]uint16
		var lanes [Panel]int32
		args := CopyArgs{Src: &b.Data[0], Dst: &dst[0], Planes: 1, Rows: k, SrcRow: 4 * b.Row, DstRow: 4 * Panel, Vectors: Panel / p.Lanes()}
		if mask := uint32(1<<cols - 1); p == tensor.PathAVX512 {
			bits = [...]uint16{uint16(mask), uint16(mask >> 16)}
			args.Masks = (*byte)(unsafe.Pointer(&bits))
		} else {
			SetLanes(lanes[:], mask)
			args.Masks = (*byte)(unsafe.Pointer(&lanes))
		}
		CopyPlanes(p, &args, 1)
	case b.Row == 1:
		_ = b.Data[(cols-1)*b.Col+k-1]
		if cols < Panel {
			clear(dst[:k*Panel])
		}
		for first := 0; first < k; first += PackedAtOnce {
			last := min(first+PackedAtOnce, k)
			whole := (last - first) &^ 7
			for j := 0; j < cols; j += 8 {
				n := min(8, cols-j)
				done := first
				if n == 8 && whole > 0 {
					transposeAVX2(&dst[first*Panel+j], &b.Data[j*b.Col+first], 4*b.Col, whole/8)
					done += whole
				}
				for c := j; c < j+n; c++ {
					for i, v := range b.Data[c*b.Col:][done:last] {
						dst[(done+i)*Panel+c] = v
					}
				}
			}
		}
	default:
		PackBlock(dst, b, k, cols)
	}
}
