// Package tensorfile reads the files that hold one tensor: NumPy's
// .npy, ONNX's TensorProto (.pb) and raw bytes (.bin).
package tensorfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
)

// Read reads the tensor in the file at path and checks that it has the type
// and shape of info, times of them if times is greater than 1: then an extra
// leading dimension of that size, or a leading dimension multiplied by it, is
// wanted. The result is row-major and little-endian. The kind of file is recognised
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
		data, err = readNpyFile(path, info, times)
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
		return nil, fmt.Errorf("%s: found %d bytes of data, want %d (%s%s)", path, len(data), size, info, npy.Times(times))
	}
	return data, nil
}

func readNpyFile(path string, info popef.TensorInfo, times int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return npy.Read(f, path, info, times)
}

func readProto(path string, info popef.TensorInfo, times int64) ([]byte, error) {
	t, err := onnx.ReadTensor(path)
	if err != nil {
		return nil, err
	}
	return checked(path, t, info, times)
}

// checked returns the data of a tensor that must have the type and shape of
// info, times of them.
func checked(path string, t *onnx.Tensor, info popef.TensorInfo, times int64) ([]byte, error) {
	got, ok := export.DataType(t.Elem.DType())
	if !ok || got != info.DataType {
		return nil, fmt.Errorf("%s: found element type %s, want %s", path, t.Elem, info.DataType)
	}
	if err := npy.CheckShape(path, t.Dims, info, times); err != nil {
		return nil, err
	}
	return t.Data, nil
}

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
		return nil, err
	}
	defer f.Close()
	a, err := npy.ReadArray(f, maxONNX)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return fromArray(path, a)
}

// fromArray returns an array as a tensor.
func fromArray(path string, a *npy.Array) (*onnx.Tensor, error) {
	t := &onnx.Tensor{Dims: a.Shape, Data: a.Data}
	if len(a.Descr) > 1 {
		t.Elem = elemTypes[a.Descr[1:]]
	}
	if t.Elem == onnx.Undefined {
		return nil, fmt.Errorf("%s: element type %q has no ONNX form", path, a.Descr)
	}
	want := int64(t.Type().DType.Size())
	for _, d := range a.Shape {
		if d < 0 || want > maxONNX && d > 1 {
			return nil, fmt.Errorf("%s: shape %v is too large", path, a.Shape)
		}
		want *= d
	}
	if int64(len(a.Data)) != want {
		return nil, fmt.Errorf("%s: found %d bytes of data, want %d for shape %v", path, len(a.Data), want, a.Shape)
	}
	return t, nil
}

// maxONNX bounds the bytes of a tensor that is read whole into memory.
const maxONNX = 1 << 31
