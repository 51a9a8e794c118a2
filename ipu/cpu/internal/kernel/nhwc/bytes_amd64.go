package nhwc

import (
	"golang.org/x/sys/cpu"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

func bytesConv(args *bytesConvArgs) { bytesConvAVX512(args) }

func bytesDepth(args *bytesDepthArgs) { bytesDepthAVX512(args) }

func bytesAdd(args *bytesAddArgs) { bytesAddAVX512(args) }

func bytesMul(args *bytesAddArgs) { bytesMulAVX512(args) }

func bytesMap(args *bytesMapArgs) { bytesMapAVX512(args) }

// vectorTables reports whether vectors look bytes up.
func vectorTables() bool { return cpu.X86.HasAVX512VBMI }

func bytesMost(args *bytesMostArgs) { bytesMostAVX512(args) }

// vectorTranspose transposes 8 rows of bytes by 16 columns at a time and
// returns how many columns.
func vectorTranspose(dst []byte, to int, src []byte, from, columns int, flip byte) int {
	groups := columns / 16
	if tensor.Path == tensor.PathGo || groups == 0 {
		return 0
	}
	_, _ = dst[(16*groups-1)*to+7], src[7*from+16*groups-1]
	bytesTransposeAVX2(&dst[0], to, &src[0], from, groups, uint32(flip)*0x01010101)
	return 16 * groups
}
