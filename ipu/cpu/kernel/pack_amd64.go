package kernel

import "unsafe"

// vectorPack is [packBlock] by vectors where there are any for T and the matrix
// lies row-major or column-major, and reports whether it did it.
func vectorPack[T number](dst []T, b matrix[T], k, cols int) bool {
	if path == pathGo || !isFloat32[T]() || b.row != 1 && b.col != 1 {
		return false
	}
	packF32(path, asFloat32(dst), matrix[float32]{asFloat32(b.data), b.row, b.col}, k, cols)
	return true
}

// packWeights writes rows of depth elements each as columns of depth rows of
// width elements. Where a whole row is not filled the rest is zero.
func packWeights(dst []float32, width int, src []float32, rows, depth int) {
	dst, src = dst[:depth*width], src[:rows*depth]
	if width == panel && path != pathGo {
		packF32(path, dst, matrix[float32]{src, 1, depth}, depth, rows)
		return
	}
	if rows < width {
		clear(dst)
	}
	for first := 0; first < depth; first += packedAtOnce {
		last := min(first+packedAtOnce, depth)
		for m := range rows {
			to := first*width + m
			for _, v := range src[m*depth:][first:last] {
				dst[to] = v
				to += width
			}
		}
	}
}

// packF32 is [packBlock] by vectors.
func packF32(p vectorPath, dst []float32, b matrix[float32], k, cols int) {
	if k == 0 {
		return
	}
	_ = dst[k*panel-1]
	switch {
	case b.col == 1:
		_ = b.data[(k-1)*b.row+cols-1]
		// Masks of 32 columns, for either path.
		var bits [panel / 16]uint16
		var lanes [panel]int32
		args := copyArgs{src: &b.data[0], dst: &dst[0], planes: 1, rows: k, srcRow: 4 * b.row, dstRow: 4 * panel, vectors: panel / p.lanes()}
		if mask := uint32(1<<cols - 1); p == pathAVX512 {
			bits = [...]uint16{uint16(mask), uint16(mask >> 16)}
			args.masks = (*byte)(unsafe.Pointer(&bits))
		} else {
			setLanes(lanes[:], mask)
			args.masks = (*byte)(unsafe.Pointer(&lanes))
		}
		copyPlanes(p, &args, 1)
	case b.row == 1:
		_ = b.data[(cols-1)*b.col+k-1]
		if cols < panel {
			clear(dst[:k*panel])
		}
		for first := 0; first < k; first += packedAtOnce {
			last := min(first+packedAtOnce, k)
			whole := (last - first) &^ 7
			for j := 0; j < cols; j += 8 {
				n := min(8, cols-j)
				done := first
				if n == 8 && whole > 0 {
					transposeAVX2(&dst[first*panel+j], &b.data[j*b.col+first], 4*b.col, whole/8)
					done += whole
				}
				for c := j; c < j+n; c++ {
					for i, v := range b.data[c*b.col:][done:last] {
						dst[(done+i)*panel+c] = v
					}
				}
			}
		}
	default:
		packBlock(dst, b, k, cols)
	}
}
