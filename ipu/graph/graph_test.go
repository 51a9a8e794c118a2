package graph

import "encoding/binary"

func f32(shape ...int64) TensorType { return TensorType{F32, shape} }
func typ(d DType, shape ...int64) TensorType {
	return TensorType{d, shape}
}

func floatData(v ...float32) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}
