// Package npy reads and writes NumPy's .npy files, which hold one array each.
package npy

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/popef"
)

// The format, versions 1 to 3:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

const magic = "\x93NUMPY"

// maxHeader bounds the header, which is one line for a tensor.
const maxHeader = 64 << 10

// maxRank is the most dimensions that NumPy knows.
const maxRank = 64

var errFormat = errors.New("not a valid .npy file")

// descrs lists, per element type, what .npy calls it. The 8-bit floats have
// no name there and travel as their bytes.
var descrs = map[popef.DataType]string{
	popef.Bool: "|b1", popef.S8: "|i1", popef.U8: "|u1", popef.F8: "|u1", popef.F8143: "|u1", popef.F8152: "|u1",
	popef.S16: "<i2", popef.U16: "<u2", popef.S32: "<i4", popef.U32: "<u4", popef.S64: "<i8", popef.U64: "<u8",
	popef.F16: "<f2", popef.F32: "<f4", popef.F64: "<f8",
}

var header = regexp.MustCompile(`^\{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*(True|False),\s*'shape':\s*\(([0-9L, ]*)\),?\s*\}\s*$`)

// Array is a .npy array as it stands in a file.
type Array struct {
	Descr string // NumPy's name of the element type, with the byte order: "<f4"
	Shape []int64
	Data  []byte // row-major and little-endian, whatever Descr says
}

// ReadArray reads an array of at most limit bytes of data, and of as many as its
// header has; of one that is larger it reads a byte more. What does not fit into
// memory is refused before it is read (the error wraps [budget.ErrExceeded]).
func ReadArray(r io.Reader, limit int64) (*Array, error) {
	descr, shape, data, err := read(r, limit)
	if err != nil {
		return nil, err
	}
	if size, err := strconv.Atoi(strings.TrimLeft(descr, "<>|=bifu")); err == nil && strings.HasPrefix(descr, ">") {
		swapEndian(data, size)
	}
	return &Array{descr, shape, data}, nil
}

// Read reads an array of the type and shape of info, times of them if times is
// greater than 1: then an extra leading dimension of that size, or a leading
// dimension multiplied by it, is wanted. Errors begin with name.
func Read(r io.Reader, name string, info popef.TensorInfo, times int64) ([]byte, error) {
	one, err := info.SizeInBytes()
	if err != nil {
		return nil, err
	}
	size := one * max(times, 1)
	a, err := ReadArray(r, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if want := descrs[info.DataType]; len(a.Descr) < 2 || want == "" || a.Descr[1:] != want[1:] {
		return nil, fmt.Errorf("%s: found element type %q, want %q (%s)", name, a.Descr, want, info.DataType)
	}
	if err := CheckShape(name, a.Shape, info, times); err != nil {
		return nil, err
	}
	if int64(len(a.Data)) != size {
		return nil, fmt.Errorf("%s: found %d bytes of data, want %d (%s%s)", name, len(a.Data), size, info, Times(times))
	}
	return a.Data, nil
}

// CheckShape compares the shape of a file's array with what [Read] wants.
func CheckShape(name string, shape []int64, info popef.TensorInfo, times int64) error {
	if slices.Equal(shape, info.Shape) && times <= 1 {
		return nil
	}
	if times > 1 {
		if slices.Equal(shape, append([]int64{times}, info.Shape...)) {
			return nil
		}
		if len(shape) > 0 && len(shape) == len(info.Shape) && shape[0] == times*info.Shape[0] && slices.Equal(shape[1:], info.Shape[1:]) {
			return nil
		}
	}
	return fmt.Errorf("%s: found shape %v, want %v%s", name, shape, info.Shape, Times(times))
}

// Times says how often an array is wanted, if more than once.
func Times(times int64) string {
	if times <= 1 {
		return ""
	}
	return fmt.Sprintf(", %d times, once per device iteration", times)
}

// read reads the header and the data of an array.
func read(r io.Reader, limit int64) (descr string, shape []int64, data []byte, err error) {
	br := bufio.NewReader(r)
	head := make([]byte, 8)
	if _, err := io.ReadFull(br, head); err != nil || string(head[:6]) != magic {
		return "", nil, nil, fmt.Errorf("%w: it does not begin with \\x93NUMPY; want what numpy.save writes", errFormat)
	}
	var n int64
	switch head[6] {
	case 1:
		var l uint16
		err = binary.Read(br, binary.LittleEndian, &l)
		n = int64(l)
	case 2, 3:
		var l uint32
		err = binary.Read(br, binary.LittleEndian, &l)
		n = int64(l)
	default:
		return "", nil, nil, fmt.Errorf("%w: version %d (want 1 to 3)", errFormat, head[6])
	}
	if err != nil || n > maxHeader {
		return "", nil, nil, fmt.Errorf("%w: the header is cut or longer than %d bytes", errFormat, maxHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(br, text); err != nil {
		return "", nil, nil, fmt.Errorf("%w: the header is cut", errFormat)
	}
	m := header.FindStringSubmatch(string(text))
	if m == nil {
		return "", nil, nil, fmt.Errorf("%w: header %.80q (want a plain array with descr, fortran_order and shape)", errFormat, text)
	}
	shape = []int64{}
	for s := range strings.SplitSeq(m[3], ",") {
		if s = strings.TrimSuffix(strings.TrimSpace(s), "L"); s == "" {
			continue
		}
		d, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return "", nil, nil, fmt.Errorf("%w: dimension %q", errFormat, s)
		}
		shape = append(shape, d)
	}
	if len(shape) > maxRank {
		return "", nil, nil, fmt.Errorf("%w: %d dimensions (want %d at most)", errFormat, len(shape), maxRank)
	}
	if m[2] == "True" && len(shape) > 1 {
		return "", nil, nil, errors.New("the array is in Fortran order; save it with numpy.ascontiguousarray")
	}
	size := sizeOf(m[1], shape)
	if size > limit {
		size = limit // and a byte more, if there is one
	}
	data, err = readData(br, size)
	return m[1], shape, data, err
}

// sizeOf returns the bytes of an array as its header has them, the greatest number
// where that is more or the type is unknown.
func sizeOf(descr string, shape []int64) int64 {
	each, err := strconv.ParseInt(strings.TrimLeft(descr, "<>|=biufcSUV"), 10, 32)
	if err != nil || each <= 0 {
		each = math.MaxInt64
	}
	return budget.Mul(append([]int64{each}, shape...)...)
}

// firstRead is how much is read before the memory of a whole array is taken: a
// header only claims a size, and a few bytes of an archive become a great many.
const firstRead = 1 << 20

// readData reads size bytes and one more, if there are as many. It takes the
// memory for all of them when an eighth has arrived.
func readData(r io.Reader, size int64) ([]byte, error) {
	if err := budget.New(0).Take(budget.Add(size, size/8), "the data of the array"); err != nil {
		return nil, err
	}
	var data []byte
	for part := min(size, firstRead); ; part = min(size, part*8) {
		grown := make([]byte, part+1)
		copy(grown, data)
		n, err := io.ReadFull(r, grown[len(data):])
		data = grown[:len(data)+n]
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return data, nil
		}
		if err != nil || part == size {
			return data, err
		}
	}
}

// Write writes data, row-major and little-endian, as a .npy array of the
// given type and shape. 8-bit floats become unsigned bytes.
func Write(w io.Writer, info popef.TensorInfo, data []byte) error {
	descr := descrs[info.DataType]
	if descr == "" {
		return fmt.Errorf("element type %s has no .npy form", info.DataType)
	}
	dims := make([]string, len(info.Shape))
	for i, d := range info.Shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	shape := strings.Join(dims, ", ")
	if len(dims) == 1 {
		shape += ","
	}
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	// The data begin at a multiple of 64, after a newline.
	pad := 63 - (10+len(head))%64
	head += strings.Repeat(" ", pad) + "\n"
	if len(head) > math.MaxUint16 {
		return fmt.Errorf("a tensor of rank %d is too deep for .npy", len(dims))
	}
	b := binary.LittleEndian.AppendUint16([]byte(magic+"\x01\x00"), uint16(len(head)))
	if _, err := w.Write(append(b, head...)); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// swapEndian turns big-endian elements of the given size around.
func swapEndian(b []byte, size int) {
	for ; len(b) >= size; b = b[size:] {
		for i, j := 0, size-1; i < j; i, j = i+1, j-1 {
			b[i], b[j] = b[j], b[i]
		}
	}
}

// FileName turns an anchor's name into a file name with the given extension:
// every character outside letters, digits, '.', '-' and '_' becomes '_', and of
// a name too long for a file system the middle is replaced by a checksum.
func FileName(anchor, ext string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, anchor)
	if strings.Trim(safe, ".") == "" {
		safe = "_" + safe
	}
	if len(safe) > longestName {
		sum := sha256.Sum256([]byte(anchor))
		half := longestName/2 - 8
		safe = fmt.Sprintf("%s-%x-%s", safe[:half], sum[:6], safe[len(safe)-half:])
	}
	return safe + ext
}

// longestName leaves room in the 255 bytes that file systems allow.
const longestName = 200
