package popxl

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// Float is a constraint: the floating-point types.
type Float interface {
	float32 | float64 | num.Float16 | num.BFloat16
}

// Integer is a constraint: the integer types.
type Integer interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64
}

// Number is a constraint: the types with which operators calculate.
type Number interface {
	Float | Integer
}

// Float8 is a constraint: the floating-point types of one byte, which operators convert and multiply alone.
type Float8 interface {
	num.Float8E4M3 | num.Float8E5M2
}

// Element is a constraint: the Go types of a tensor's elements.
type Element interface {
	bool | Number | Float8
}

// TypeOf returns the element type of the portable executable that T stands for.
func TypeOf[T Element]() graph.DType {
	var v T
	switch any(v).(type) {
	case bool:
		return graph.Bool
	case int8:
		return graph.I8
	case uint8:
		return graph.U8
	case int16:
		return graph.I16
	case uint16:
		return graph.U16
	case int32:
		return graph.I32
	case uint32:
		return graph.U32
	case int64:
		return graph.I64
	case uint64:
		return graph.U64
	case float32:
		return graph.F32
	case float64:
		return graph.F64
	case num.Float16:
		return graph.F16
	case num.BFloat16:
		return graph.BF16
	case num.Float8E4M3:
		return graph.F8E4M3
	case num.Float8E5M2:
		return graph.F8E5M2
	}
	return graph.Invalid
}

// elements returns how many elements a shape has: sizes are not negative, and the tensor fits graph.MaxTensorBytes.
func elements(shape []int64, size int) (int64, error) {
	if len(shape) > graph.MaxRank {
		return 0, fmt.Errorf("%d dimensions: want at most %d", len(shape), graph.MaxRank)
	}
	n := int64(1)
	for i, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("dimension %d of shape %s is negative", i, graph.ShapeString(shape))
		}
		if d > 0 && n > graph.MaxTensorBytes/int64(size)/d {
			return 0, fmt.Errorf("shape %s takes more than %d bytes", graph.ShapeString(shape), int64(graph.MaxTensorBytes))
		}
		n *= d
	}
	return n, nil
}
