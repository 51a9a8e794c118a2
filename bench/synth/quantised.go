package synth

import (
	"encoding/binary"
	"math"

	"github.com/popefgen/popefgen/onnx"
)

// Bytes8 adds a tensor of random int8 and returns its name.
func (m *Model) Bytes8(dims ...int64) string {
	data := make([]byte, elements(dims))
	for i := range data {
		data[i] = byte(int8(m.random.IntN(255) - 127))
	}
	return m.tensor(onnx.Int8, dims, data)
}

// Ints32 adds a list of n random int32 of a magnitude and returns its name.
func (m *Model) Ints32(n int64, magnitude int) string {
	var data []byte
	for range n {
		data = binary.LittleEndian.AppendUint32(data, uint32(int32(m.random.IntN(2*magnitude+1)-magnitude)))
	}
	return m.tensor(onnx.Int32, []int64{n}, data)
}

// Scale adds a float32 without dimensions and returns its name.
func (m *Model) Scale(v float64) string {
	return m.tensor(onnx.Float, nil, binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v))))
}

// Scales adds a list of n float32 near v and returns its name.
func (m *Model) Scales(n int64, v float64) string {
	var data []byte
	for range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v*(0.75+0.5*m.random.Float64()))))
	}
	return m.tensor(onnx.Float, []int64{n}, data)
}

// Zero adds a zero point, a uint8, and returns its name.
func (m *Model) Zero(v uint8) string { return m.tensor(onnx.Uint8, nil, []byte{v}) }
