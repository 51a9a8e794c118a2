package tensorfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// NumPy's .npy format, versions 1 to 3:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

const npyMagic = "\x93NUMPY"

// maxNpyHeader bounds the header, which is one line for a tensor.
const maxNpyHeader = 64 << 10

var errNpy = errors.New("not a valid .npy file")

// npyTypes lists, per element type, what .npy calls it. The 8-bit floats have
// no name there and travel as their bytes.
var npyTypes = map[popef.DataType]string{
	popef.Bool: "|b1", popef.S8: "|i1", popef.U8: "|u1", popef.F8: "|u1", popef.F8143: "|u1", popef.F8152: "|u1",
	popef.S16: "<i2", popef.U16: "<u2", popef.S32: "<i4", popef.U32: "<u4", popef.S64: "<i8", popef.U64: "<u8",
	popef.F16: "<f2", popef.F32: "<f4", popef.F64: "<f8",
}

var npyHeader = regexp.MustCompile(`^\{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*(True|False),\s*'shape':\s*\(([0-9L, ]*)\),?\s*\}\s*$`)

// readNpy reads the header and the data of a .npy file of at most limit bytes of data.
func readNpy(r io.Reader, limit int64) (descr string, shape []int64, data []byte, err error) {
	br := bufio.NewReader(r)
	head := make([]byte, 8)
	if _, err := io.ReadFull(br, head); err != nil || string(head[:6]) != npyMagic {
		return "", nil, nil, fmt.Errorf("%w: it does not begin with \\x93NUMPY", errNpy)
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
		return "", nil, nil, fmt.Errorf("%w: version %d (want 1 to 3)", errNpy, head[6])
	}
	if err != nil || n > maxNpyHeader {
		return "", nil, nil, fmt.Errorf("%w: the header is cut or longer than %d bytes", errNpy, maxNpyHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(br, text); err != nil {
		return "", nil, nil, fmt.Errorf("%w: the header is cut", errNpy)
	}
	m := npyHeader.FindStringSubmatch(string(text))
	if m == nil {
		return "", nil, nil, fmt.Errorf("%w: header %.80q (want a plain array with descr, fortran_order and shape)", errNpy, text)
	}
	shape = []int64{}
	for s := range strings.SplitSeq(m[3], ",") {
		if s = strings.TrimSuffix(strings.TrimSpace(s), "L"); s == "" {
			continue
		}
		d, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return "", nil, nil, fmt.Errorf("%w: dimension %q", errNpy, s)
		}
		shape = append(shape, d)
	}
	if m[2] == "True" && len(shape) > 1 {
		return "", nil, nil, errors.New("the array is in Fortran order; save it with numpy.ascontiguousarray")
	}
	data, err = io.ReadAll(io.LimitReader(br, limit+1))
	return m[1], shape, data, err
}

// WriteNpy writes data, row-major and little-endian, as a .npy array of the
// given type and shape. 8-bit floats become unsigned bytes.
func WriteNpy(w io.Writer, info popef.TensorInfo, data []byte) error {
	descr := npyTypes[info.DataType]
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
	b := binary.LittleEndian.AppendUint16([]byte(npyMagic+"\x01\x00"), uint16(len(head)))
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
