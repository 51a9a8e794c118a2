package sizes

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
)

// Padding returns the bytes of the element that an input is filled up with: what is
// declared along one of its dimensions, zero otherwise, for which it returns nil. Along
// dimensions with independent rows it does not matter.
func Padding(f *family.Family, t *family.Tensor) ([]byte, error) {
	if t.Type != popef.Input {
		return nil, nil
	}
	var out []byte
	from := ""
	for d := range f.Dims {
		dim := &f.Dims[d]
		if dim.Rows {
			continue
		}
		for _, p := range dim.Pads {
			if p.Input != t.Name || !follows(t, d) {
				continue
			}
			value, err := literal(t.Elem, p.Value)
			if err != nil {
				return nil, fmt.Errorf("padding of anchor %q along dimension %q: %w", t.Name, dim.Name, err)
			}
			if from != "" && string(value) != string(out) {
				return nil, fmt.Errorf("padding of anchor %q: %w: dimensions %q and %q fill it up with other values", t.Name, rt.ErrData, from, dim.Name)
			}
			out, from = value, dim.Name
		}
	}
	for _, b := range out {
		if b != 0 {
			return out, nil
		}
	}
	return nil, nil
}

// follows reports whether an axis of the tensor follows from dimension d.
func follows(t *family.Tensor, d int) bool {
	for i := range t.Axes {
		if t.Axes[i].Dim == d {
			return true
		}
	}
	return false
}

// literal returns a literal as an element of that type, little-endian.
func literal(typ popef.DataType, text string) ([]byte, error) {
	le := binary.LittleEndian
	bad := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("%w: %q is no element of type %v: %w", rt.ErrData, text, typ, err)
	}
	switch typ {
	case popef.F32, popef.F64, popef.F16, popef.F8143, popef.F8152:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return bad(err)
		}
		switch typ {
		case popef.F64:
			return le.AppendUint64(nil, math.Float64bits(v)), nil
		case popef.F16:
			return le.AppendUint16(nil, uint16(num.Float16From64(v))), nil
		case popef.F8143:
			return []byte{uint8(num.Float8E4M3From64(v))}, nil
		case popef.F8152:
			return []byte{uint8(num.Float8E5M2From64(v))}, nil
		}
		return le.AppendUint32(nil, math.Float32bits(float32(v))), nil
	case popef.Bool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return bad(err)
		}
		if v {
			return []byte{1}, nil
		}
		return []byte{0}, nil
	}
	size := typ.Size()
	var bits uint64
	switch typ {
	case popef.U8, popef.U16, popef.U32, popef.U64:
		v, err := strconv.ParseUint(text, 0, 8*size)
		if err != nil {
			return bad(err)
		}
		bits = v
	case popef.S8, popef.S16, popef.S32, popef.S64:
		v, err := strconv.ParseInt(text, 0, 8*size)
		if err != nil {
			return bad(err)
		}
		bits = uint64(v)
	default:
		return bad(rt.ErrOption)
	}
	return le.AppendUint64(nil, bits)[:size], nil
}
