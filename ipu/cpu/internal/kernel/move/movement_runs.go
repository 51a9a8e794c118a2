package move

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// shortRun is the most bytes of a run of neighbouring elements that are
// quicker moved one by one than by a call to copy.
const shortRun = 16

// moveRuns moves rows runs of neighbouring elements, which begin to elements
// apart in dst and from elements apart in src.
func moveRuns[E tensor.Unsigned](dst, src []E, rows, run, to, from int) {
	if rows == 0 || run == 0 {
		return
	}
	// What follows stays inside.
	dst, src = dst[:(rows-1)*to+run], src[:(rows-1)*from+run]
	switch run {
	case 1:
		for i, j := 0, 0; i < len(dst) && j < len(src); i, j = i+to, j+from {
			dst[i] = src[j]
		}
	case 2:
		for i, j := 0, 0; i+1 < len(dst) && j+1 < len(src); i, j = i+to, j+from {
			dst[i], dst[i+1] = src[j], src[j+1]
		}
	default:
		for r := range rows {
			d, s := dst[r*to:][:run], src[r*from:][:run]
			for i := range d {
				d[i] = s[i]
			}
		}
	}
}

// moveShortRuns is moveRuns for elements of size bytes.
func moveShortRuns(size int, dst, src []byte, rows, run, to, from int) {
	switch size {
	case 1:
		moveRuns(dst, src, rows, run, to, from)
	case 2:
		moveRuns(tensor.View[uint16](dst), tensor.View[uint16](src), rows, run, to, from)
	case 4:
		moveRuns(tensor.View[uint32](dst), tensor.View[uint32](src), rows, run, to, from)
	case 8:
		moveRuns(tensor.View[uint64](dst), tensor.View[uint64](src), rows, run, to, from)
	}
}

// longRun is the most bytes of a run of which several are copied in a call.
const longRun = 1 << 13

// copyRuns copies rows runs of bytes, which begin to apart in dst and from apart
// in src.
func copyRuns(dst, src []byte, rows, run, to, from int) {
	if rows == 0 || run == 0 || run <= longRun && vec.VectorRuns(dst, src, rows, run, to, from) {
		return
	}
	for r := range rows {
		copy(dst[r*to:][:run], src[r*from:])
	}
}
