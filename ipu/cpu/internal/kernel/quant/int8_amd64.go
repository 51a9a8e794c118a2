package quant

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// Int8WayOf returns the best way to compute products of bytes on a path.
func Int8WayOf(p tensor.VectorPath) int8Way {
	switch {
	case p == tensor.PathAVX512 && cpu.X86.HasAVX512VNNI:
		return Int8ByVNNI
	case p != tensor.PathGo:
		return int8ByAVX2
	}
	return Int8ByGo
}

// vectorInterleave is [interleave] with SIMD instructions; it reports whether it did it.
func vectorInterleave(way int8Way, dst []byte, rows [4][]byte, n int, flip byte) bool {
	if way == Int8ByGo || n == 0 {
		return false
	}
	all := uint32(flip) * 0x01010101
	if n < 16 {
		var from [4][16]byte
		for i := range from {
			copy(from[i][:], rows[i][:n])
		}
		var to [64]byte
		int8InterleaveAVX2(&to[0], &from[0][0], &from[1][0], &from[2][0], &from[3][0], 1, all)
		copy(dst[:4*n], to[:])
		return true
	}
	_ = dst[4*n-1]
	for _, r := range rows {
		_ = r[n-1]
	}
	int8InterleaveAVX2(&dst[0], &rows[0][0], &rows[1][0], &rows[2][0], &rows[3][0], n/16, all)
	if i := n - 16; n%16 != 0 {
		int8InterleaveAVX2(&dst[4*i], &rows[0][i], &rows[1][i], &rows[2][i], &rows[3][i], 1, all)
	}
	return true
}

// vectorEven copies bytes at even places with SIMD instructions, from the first on, and
// returns how many.
func vectorEven(way int8Way, dst, src []byte) int {
	n := min(len(dst), len(src)/2)
	if way == Int8ByGo || n < 16 {
		return 0
	}
	int8EvenAVX2(&dst[0], &src[0], n/16)
	if n%16 != 0 {
		int8EvenAVX2(&dst[n-16], &src[2*(n-16)], 1)
	}
	return n
}

// vectorWidenBytes is [widenBytes] of unsigned bytes, for as many as vectors
// do, which it returns.
func vectorWidenBytes(dst []int16, src []byte, flip byte) int {
	groups := len(src) / 16
	if groups == 0 {
		return 0
	}
	_ = dst[16*groups-1]
	int8WidenAVX2((*uint16)(unsafe.Pointer(&dst[0])), &src[0], groups, uint32(flip)*0x01010101)
	return 16 * groups
}

// int8Products adds up the products of a product of matrices.
func int8Products(way int8Way, args *int8Args) {
	switch way {
	case Int8ByVNNI:
		for args.done = 0; args.done < args.rows; {
			int8ProductAVX512(args)
		}
	case int8ByAVX2:
		halves(args, false)
	default:
		int8SumsGo[uint8, int8](args)
	}
}

// int8Convolve adds up the products of a convolution.
func int8Convolve(way int8Way, args *int8Args) {
	switch way {
	case Int8ByVNNI:
		for args.done = 0; args.done < args.rows; {
			int8ConvAVX512(args)
		}
	case int8ByAVX2:
		halves(args, true)
	default:
		int8SumsGo[int8, uint8](args)
	}
}

// halves calls the loops of AVX2, which have room for 16 columns.
func halves(args *int8Args, conv bool) {
	half := *args
	for range args.vectors {
		for half.done = 0; half.done < half.rows; {
			if conv {
				int8ConvAVX2(&half)
			} else {
				int8ProductAVX2(&half)
			}
		}
		if !conv {
			half.first = (*int32)(unsafe.Add(unsafe.Pointer(half.first), 16*4))
		}
		half.b = (*byte)(unsafe.Add(unsafe.Pointer(half.b), 16*Int8Step))
		half.tile = (*int32)(unsafe.Add(unsafe.Pointer(half.tile), 16*4))
	}
}

// int8Finish makes results of a tile. By AVX2 all columns are stored.
func int8Finish(way int8Way, kind int8Kind, byRows bool, args *int8FinishArgs) {
	wide := way == Int8ByVNNI
	switch {
	case way == Int8ByGo:
		int8FinishGo(kind, byRows, args)
	case wide && byRows && kind == int8ToInts:
		int8RowsIntsAVX512(args)
	case wide && byRows && kind == int8ToFloats:
		int8RowsFloatsAVX512(args)
	case wide && byRows:
		int8RowsBytesAVX512(args)
	case wide && kind == int8ToInts:
		int8ColumnsIntsAVX512(args)
	case wide && kind == int8ToFloats:
		int8ColumnsFloatsAVX512(args)
	case wide:
		int8ColumnsBytesAVX512(args)
	case byRows && kind == int8ToInts:
		int8RowsIntsAVX2(args)
	case byRows && kind == int8ToFloats:
		int8RowsFloatsAVX2(args)
	case byRows:
		int8RowsBytesAVX2(args)
	case kind == int8ToInts:
		int8ColumnsIntsAVX2(args)
	case kind == int8ToFloats:
		int8ColumnsFloatsAVX2(args)
	default:
		int8ColumnsBytesAVX2(args)
	}
}

// int8Plane computes n results of one output channel. Vectorised, it computes
// whole blocks.
func int8Plane(way int8Way, kind int8Kind, args *int8PlaneArgs, n int) {
	wide := way == Int8ByVNNI
	switch {
	case way == Int8ByGo:
		int8PlaneGo(kind, args, n)
	case wide && kind == int8ToInts:
		int8PlaneIntsAVX512(args)
	case wide && kind == int8ToFloats:
		int8PlaneFloatsAVX512(args)
	case wide:
		int8PlaneBytesAVX512(args)
	case kind == int8ToInts:
		int8PlaneIntsAVX2(args)
	case kind == int8ToFloats:
		int8PlaneFloatsAVX2(args)
	default:
		int8PlaneBytesAVX2(args)
	}
}
