package wire

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/serve/oip"
)

// Classes appends the k classes with the highest scores of one sample to b, each written by each: score, index and, if the
// tensor has labels, the label, between colons, as Triton's clients take them apart. Equal scores stand by
// index, scores that are no numbers last. order is memory that it uses.
func Classes(b []byte, order []int, t *oip.Tensor, data []byte, k int, each func(b, text []byte) []byte) ([]byte, []int) {
	size := t.Type.Size()
	order = order[:0]
	for i := range len(data) / size {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(i, j int) int { return compare(t.Type, data[i*size:], data[j*size:]) })
	var text [64]byte
	for _, i := range order[:min(k, len(order))] {
		s := appendScore(text[:0], t.Type, data[i*size:])
		s = append(s, ':')
		s = strconv.AppendInt(s, int64(i), 10)
		if i < len(t.Labels) {
			s = append(append(s, ':'), t.Labels[i]...)
		}
		b = each(b, s)
	}
	return b, order
}

// Rows returns how many samples an output has, whose classes are found one by one: the size of axis 0 if the
// model counts samples there, 1 otherwise.
func Rows(spec *oip.Spec, shape []int64) int {
	if spec.Samples > 0 && len(shape) > 0 {
		return int(shape[0])
	}
	return 1
}

// compare puts the higher score first.
func compare(t oip.DataType, a, b []byte) int {
	switch t {
	case oip.Uint64:
		x, y := binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	case oip.Int64:
		x, y := int64(binary.LittleEndian.Uint64(a)), int64(binary.LittleEndian.Uint64(b))
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	}
	x, y := score(t, a), score(t, b)
	switch {
	case x > y, !math.IsNaN(x) && math.IsNaN(y):
		return -1
	case x < y, math.IsNaN(x) && !math.IsNaN(y):
		return 1
	}
	return 0
}

// score returns an element as a float64, which has the values of all types but the widest integers.
func score(t oip.DataType, p []byte) float64 {
	switch t {
	case oip.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	case oip.FP64:
		return math.Float64frombits(binary.LittleEndian.Uint64(p))
	case oip.FP16:
		return float64(num.Float16(binary.LittleEndian.Uint16(p)).Float32())
	case oip.BF16:
		return float64(num.BFloat16(binary.LittleEndian.Uint16(p)).Float32())
	case oip.Bool, oip.Uint8:
		return float64(p[0])
	case oip.Uint16:
		return float64(binary.LittleEndian.Uint16(p))
	case oip.Uint32:
		return float64(binary.LittleEndian.Uint32(p))
	case oip.Int8:
		return float64(int8(p[0]))
	case oip.Int16:
		return float64(int16(binary.LittleEndian.Uint16(p)))
	case oip.Int32:
		return float64(int32(binary.LittleEndian.Uint32(p)))
	}
	return 0
}

// appendScore writes a score as Triton does: six digits after the point, integers as they are.
func appendScore(b []byte, t oip.DataType, p []byte) []byte {
	switch t {
	case oip.FP32, oip.FP64, oip.FP16, oip.BF16:
		return strconv.AppendFloat(b, score(t, p), 'f', 6, 64)
	case oip.Uint64:
		return strconv.AppendUint(b, binary.LittleEndian.Uint64(p), 10)
	case oip.Int64:
		return strconv.AppendInt(b, int64(binary.LittleEndian.Uint64(p)), 10)
	}
	return strconv.AppendInt(b, int64(score(t, p)), 10)
}

// classification writes what follows the name of an output whose classes are asked for: the type BYTES, [samples, k] or [k].
func (w *Writer) classification(b []byte, spec *oip.Spec, t *oip.Tensor, o *Wanted, data []byte, shape []int64) ([]byte, error) {
	rows := Rows(spec, shape)
	row := 0
	if rows > 0 {
		row = len(data) / rows
	}
	k := min(o.Classes, row/t.Type.Size())
	if spec.Samples > 0 {
		b = appendType(b, oip.Bytes.String(), append(make([]int64, 0, 2), int64(rows), int64(k)))
	} else {
		b = appendType(b, oip.Bytes.String(), append(make([]int64, 0, 1), int64(k)))
	}
	if o.Binary {
		from := len(w.classes)
		for i := range rows {
			w.classes, w.order = Classes(w.classes, w.order, t, data[i*row:][:row], k, appendBytes)
		}
		part := w.classes[from:]
		w.Parts, w.Split = append(w.Parts, part), true
		return appendBinary(b, len(part)), nil
	}
	b = append(b, `,"data":[`...)
	begin := len(b)
	for i := range rows {
		b, w.order = Classes(b, w.order, t, data[i*row:][:row], k, func(b, text []byte) []byte {
			if len(b) > begin {
				b = append(b, ',')
			}
			return appendString(b, text)
		})
	}
	return append(b, ']'), nil
}

// appendBytes writes an element of the type BYTES: its length in four bytes, and it.
func appendBytes(b, text []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(text))), text...)
}
