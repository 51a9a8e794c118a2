package reduce

import (
	"encoding/binary"
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/onnx"
)

// elements returns how many elements a tensor has.
func elements(t *onnx.Tensor) int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// info is the declaration of a tensor as an input or an output.
func info(name string, t *onnx.Tensor) onnx.ValueInfo {
	v := onnx.ValueInfo{Name: name, Elem: t.Elem, HasShape: true, Dims: make([]onnx.Dim, len(t.Dims))}
	for i, d := range t.Dims {
		v.Dims[i] = onnx.Dim{Known: true, Value: d}
	}
	return v
}

// first returns the tensor with the first n elements of an axis.
func first(t *onnx.Tensor, axis int, n int64) *onnx.Tensor {
	to := *t
	to.Dims = append([]int64(nil), t.Dims...)
	to.Dims[axis] = n
	size := int64(t.Elem.DType().Size())
	outer := int64(1)
	for _, d := range t.Dims[:axis] {
		outer *= d
	}
	for _, d := range t.Dims[axis+1:] {
		size *= d
	}
	to.Data = make([]byte, 0, outer*n*size)
	for i := range outer {
		at := i * t.Dims[axis] * size
		to.Data = append(to.Data, t.Data[at:at+n*size]...)
	}
	return &to
}

// number returns an element as a float64, NaN for types that [put] does not
// write.
func number(t graph.DType, b []byte) float64 {
	le := binary.LittleEndian
	switch t {
	case graph.F32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case graph.F64:
		return math.Float64frombits(le.Uint64(b))
	case graph.F16:
		return float64(num.Float16(le.Uint16(b)).Float32())
	case graph.BF16:
		return float64(num.BFloat16(le.Uint16(b)).Float32())
	case graph.Bool, graph.U8, graph.U4, graph.U2:
		return float64(b[0])
	case graph.I8, graph.I4, graph.I2:
		return float64(int8(b[0]))
	case graph.I16:
		return float64(int16(le.Uint16(b)))
	case graph.U16:
		return float64(le.Uint16(b))
	case graph.I32:
		return float64(int32(le.Uint32(b)))
	case graph.U32:
		return float64(le.Uint32(b))
	case graph.I64:
		return float64(int64(le.Uint64(b)))
	case graph.U64:
		return float64(le.Uint64(b))
	}
	return math.NaN()
}

// put writes a whole number of small size as an element.
func put(t graph.DType, b []byte, x float64) {
	le := binary.LittleEndian
	switch t {
	case graph.F32:
		le.PutUint32(b, math.Float32bits(float32(x)))
	case graph.F64:
		le.PutUint64(b, math.Float64bits(x))
	case graph.F16:
		le.PutUint16(b, uint16(num.Float16From64(x)))
	case graph.BF16:
		le.PutUint16(b, uint16(num.BFloat16From64(x)))
	default:
		copy(b, binary.LittleEndian.AppendUint64(nil, uint64(int64(x)))[:t.Size()])
	}
}

// mapped returns the tensor with each element changed, nil if its type has no
// numbers here or nothing changes.
func mapped(t *onnx.Tensor, f func(float64) float64) *onnx.Tensor {
	dt := t.Elem.DType()
	if !dt.Valid() || math.IsNaN(number(dt, make([]byte, 8))) {
		return nil
	}
	to, size, changed := *t, dt.Size(), false
	to.Data = append([]byte(nil), t.Data...)
	for b := to.Data; len(b) >= size; b = b[size:] {
		x := number(dt, b)
		if y := f(x); y != x {
			put(dt, b, y)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return &to
}

// large is the smallest whole number that is not small.
const large = 128

// plainness says how plain the elements of a tensor are, see [Size].
func plainness(t *onnx.Tensor) int {
	dt := t.Elem.DType()
	if !dt.Valid() {
		return 3
	}
	size, worst := dt.Size(), 0
	ones := true
	for b := t.Data; len(b) >= size; b = b[size:] {
		x := number(dt, b)
		ones = ones && x == 1
		switch {
		case x == 0:
		case x == math.Trunc(x) && math.Abs(x) < large:
			worst = max(worst, 2)
		default:
			return 3
		}
	}
	if ones && worst > 0 {
		return 1
	}
	return worst
}

// round returns the whole number next to x; numbers that are large or none stay.
func round(x float64) float64 {
	if y := math.RoundToEven(x); math.Abs(y) < large {
		return y
	}
	return x
}
