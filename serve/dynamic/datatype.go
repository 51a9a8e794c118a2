package dynamic

import (
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/serve/oip"
)

// DataType returns the type by which the protocol knows elements of a PopEF type, 0 for one that does not exist. It has no
// floating-point numbers of 8 bits: they are UINT8, which are the same bytes. PopEF has no bfloat16:
// who stored it did so as U16, and UINT16 it is here.
func DataType(t popef.DataType) oip.DataType {
	switch t {
	case popef.Bool:
		return oip.Bool
	case popef.U8, popef.F8, popef.F8143, popef.F8152:
		return oip.Uint8
	case popef.S8:
		return oip.Int8
	case popef.U16:
		return oip.Uint16
	case popef.S16:
		return oip.Int16
	case popef.U32:
		return oip.Uint32
	case popef.S32:
		return oip.Int32
	case popef.U64:
		return oip.Uint64
	case popef.S64:
		return oip.Int64
	case popef.F16:
		return oip.FP16
	case popef.F32:
		return oip.FP32
	case popef.F64:
		return oip.FP64
	}
	return 0
}
