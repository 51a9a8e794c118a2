// Package tensorfile reads and writes the files that hold one tensor: NumPy's
// .npy, ONNX's TensorProto (.pb) and raw bytes (.bin).
package tensorfile

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
)

// Read reads the tensor in the file at path and checks that it has the type
// and shape of info, times of them if times is greater than 1: then an extra
// leading dimension of that size, or a leading dimension multiplied by it, is
// wanted. The result is row-major and little-endian. The kind of file is told
// by its extension: .npy, .pb (a TensorProto) or .bin (raw bytes).
func Read(path string, info popef.TensorInfo, times int64) ([]byte, error) {
	one, err := info.SizeInBytes()
	if err != nil {
		return nil, err
	}
	size := one * max(times, 1)
	var data []byte
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".npy":
		data, err = readNpyFile(path, info, size, times)
	case ".pb":
		data, err = readProto(path, info, times)
	case ".bin":
		data, err = os.ReadFile(path)
	default:
		return nil, fmt.Errorf("%s: extension %q is not known (want .npy, .pb or .bin)", path, ext)
	}
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("%s: found %d bytes of data, want %d (%s%s)", path, len(data), size, info, timesText(times))
	}
	return data, nil
}

func readNpyFile(path string, info popef.TensorInfo, size, times int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading tensor: %w", err)
	}
	defer f.Close()
	descr, shape, data, err := readNpy(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	want := npyTypes[info.DataType]
	if descr == "" || descr[1:] != want[1:] {
		return nil, fmt.Errorf("%s: found element type %q, want %q (%s)", path, descr, want, info.DataType)
	}
	if err := checkShape(path, shape, info, times); err != nil {
		return nil, err
	}
	if descr[0] == '>' {
		swapEndian(data, info.DataType.Size())
	}
	return data, nil
}

func readProto(path string, info popef.TensorInfo, times int64) ([]byte, error) {
	t, err := onnx.ReadTensor(path)
	if err != nil {
		return nil, err
	}
	got, ok := compile.DataType(t.Elem.DType())
	if !ok || got != info.DataType {
		return nil, fmt.Errorf("%s: found element type %s, want %s", path, t.Elem, info.DataType)
	}
	if err := checkShape(path, t.Dims, info, times); err != nil {
		return nil, err
	}
	return t.Data, nil
}

func checkShape(path string, shape []int64, info popef.TensorInfo, times int64) error {
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
	return fmt.Errorf("%s: found shape %v, want %v%s", path, shape, info.Shape, timesText(times))
}

func timesText(times int64) string {
	if times <= 1 {
		return ""
	}
	return fmt.Sprintf(", %d times, once per device iteration", times)
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

// elemTypes lists the ONNX types that .npy knows.
var elemTypes = map[string]onnx.ElemType{
	"b1": onnx.Bool, "i1": onnx.Int8, "u1": onnx.Uint8, "i2": onnx.Int16, "u2": onnx.Uint16, "i4": onnx.Int32, "u4": onnx.Uint32,
	"i8": onnx.Int64, "u8": onnx.Uint64, "f2": onnx.Float16, "f4": onnx.Float, "f8": onnx.Double,
}

// ReadONNX reads a tensor of any type and shape from a .npy or .pb file.
func ReadONNX(path string) (*onnx.Tensor, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".pb":
		return onnx.ReadTensor(path)
	case ".npy":
	default:
		return nil, fmt.Errorf("%s: extension %q is not known (want .npy or .pb, which say their type and shape)", path, ext)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading tensor: %w", err)
	}
	defer f.Close()
	descr, shape, data, err := readNpy(f, maxONNX)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t := &onnx.Tensor{Dims: shape, Data: data}
	if len(descr) > 1 {
		t.Elem = elemTypes[descr[1:]]
	}
	if t.Elem == onnx.Undefined {
		return nil, fmt.Errorf("%s: element type %q has no ONNX form", path, descr)
	}
	if descr[0] == '>' {
		swapEndian(data, t.Type().DType.Size())
	}
	want := int64(t.Type().DType.Size())
	for _, d := range shape {
		if d < 0 || want > maxONNX && d > 1 {
			return nil, fmt.Errorf("%s: shape %v is too large", path, shape)
		}
		want *= d
	}
	if int64(len(data)) != want {
		return nil, fmt.Errorf("%s: found %d bytes of data, want %d for shape %v", path, len(data), want, shape)
	}
	return t, nil
}

// maxONNX bounds the bytes of a tensor that is read whole into memory.
const maxONNX = 1 << 31
