package tensorfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/popef"
)

// A value on a command line is a file or a literal, told apart by how it is
// written and not by which files there are: a file begins with @ or ends in
// .npy, .pb or .bin.

// Path returns the file that a value of the command line names; ok is false if
// it is a literal.
func Path(value string) (path string, ok bool) {
	if path, ok = strings.CutPrefix(value, "@"); ok {
		return path, true
	}
	return value, slices.Contains([]string{".npy", ".pb", ".bin"}, strings.ToLower(filepath.Ext(value)))
}

// ReadValue returns the tensor that a value of the command line stands for, times of
// them as for [Read]: a file's, or a literal's.
func ReadValue(value string, info popef.TensorInfo, times int64) ([]byte, error) {
	if path, ok := Path(value); ok {
		return Read(path, info, times)
	}
	n, err := info.Elements()
	if err != nil {
		return nil, err
	}
	return ParseLiteral(value).Bytes(info.DataType, n*max(times, 1))
}

// Literal is the value of a tensor that was written down, element by element.
type Literal struct {
	Words []string // the elements as they were written
	List  bool     // it was a list, maybe of one element: 1,2,3 or [1]
}

// ParseLiteral parses one element, such as 16000, or a list of them, such
// as 1,2,3 or [1,2,3]. Whether the elements are numbers [Literal.Bytes] says.
func ParseLiteral(text string) Literal {
	inner, list := strings.CutPrefix(text, "[")
	if list {
		inner, list = strings.CutSuffix(inner, "]")
	}
	if !list {
		inner = text
	}
	l := Literal{List: list}
	if list && strings.TrimSpace(inner) == "" {
		return l
	}
	for w := range strings.SplitSeq(inner, ",") {
		l.Words = append(l.Words, strings.TrimSpace(w))
	}
	l.List = list || len(l.Words) > 1
	return l
}

// maxLiteral bounds the bytes of a tensor that one element fills.
const maxLiteral = 1 << 28

// Bytes returns the literal as elements of type t, little-endian: as many as
// are wanted, all of them in the order of the rows, or one that fills them.
func (l Literal) Bytes(t popef.DataType, want int64) ([]byte, error) {
	n := int64(len(l.Words))
	fill := !l.List && n == 1
	if n != want && !fill {
		return nil, fmt.Errorf("found a list of %d elements, want %d", n, want)
	}
	size := int64(t.Size())
	if want > maxLiteral/max(size, 1) {
		return nil, fmt.Errorf("%d elements are too many to be written down: want a .npy or .pb file", want)
	}
	out := make([]byte, 0, want*size)
	for _, w := range l.Words {
		var err error
		if out, err = appendElement(out, t, w); err != nil {
			return nil, err
		}
	}
	if fill {
		out = slices.Repeat(out, int(want))
	}
	return out, nil
}

// appendElement appends an element that was written down.
func appendElement(to []byte, t popef.DataType, word string) ([]byte, error) {
	le := binary.LittleEndian
	bad := func(want string) error {
		return fmt.Errorf("found %q, want %s (%s), or a file: a name that ends in .npy, .pb or .bin, or begins with @", word, want, t)
	}
	switch t {
	case popef.Bool:
		v, err := strconv.ParseBool(word)
		if err != nil {
			return nil, bad("true or false")
		}
		if v {
			return append(to, 1), nil
		}
		return append(to, 0), nil
	case popef.S8, popef.S16, popef.S32, popef.S64:
		v, err := strconv.ParseInt(word, 10, 8*t.Size())
		if err != nil {
			return nil, bad("a whole number")
		}
		return append(to, le.AppendUint64(nil, uint64(v))[:t.Size()]...), nil
	case popef.U8, popef.U16, popef.U32, popef.U64:
		v, err := strconv.ParseUint(word, 10, 8*t.Size())
		if err != nil {
			return nil, bad("a whole number, 0 or more")
		}
		return append(to, le.AppendUint64(nil, v)[:t.Size()]...), nil
	}
	bits := 32
	if t == popef.F64 {
		bits = 64
	}
	v, err := strconv.ParseFloat(word, bits)
	if err != nil {
		return nil, bad("a number")
	}
	switch t {
	case popef.F64:
		return le.AppendUint64(to, math.Float64bits(v)), nil
	case popef.F32:
		return le.AppendUint32(to, math.Float32bits(float32(v))), nil
	case popef.F16:
		return le.AppendUint16(to, uint16(num.Float16From(float32(v)))), nil
	case popef.F8143:
		return append(to, byte(num.Float8E4M3From(float32(v)))), nil
	case popef.F8152:
		return append(to, byte(num.Float8E5M2From(float32(v)))), nil
	}
	return nil, fmt.Errorf("elements of type %s can't be written down: want a file", t)
}
