package onnxruntime

import (
	"bytes"
	"encoding/binary"

	ort "github.com/yalue/onnxruntime_go"
)

// scalar makes a tensor of one element and no dimensions, zero if data is
// empty.
func scalar[T ort.TensorData](data []byte) (value, error) {
	var x T
	if len(data) > 0 {
		if _, err := binary.Decode(data, binary.LittleEndian, &x); err != nil {
			return value{}, err
		}
	}
	v, err := ort.NewScalar(x)
	return value{v, func() []byte {
		var b bytes.Buffer
		_ = binary.Write(&b, binary.LittleEndian, v.GetData()) // a buffer takes everything
		return b.Bytes()
	}}, err
}
