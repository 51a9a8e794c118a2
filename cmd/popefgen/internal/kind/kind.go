// Package kind tells what a file is by what is in it, and says so where it is not what was asked for.
package kind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/golden/outputs"
	"github.com/popefgen/popefgen/popef/contract"
)

// Kind is what a file is, by its content.
type Kind int

const (
	Unknown Kind = iota
	PopEF
	ONNX
	Tensor  // ONNX TensorProto
	NPY     // NumPy array
	Zip     // NumPy arrays, PyTorch models and much else
	Foreign // a model of another framework
	LFS     // pointer of Git LFS
	Gzip
	Contract // contract.txt
	Package  // folder of a generated package
	Goldens  // folder of goldens
	Case     // folder in the layout of ONNX's tests
	Folder   // any other
	Empty
	Text
)

// Sniffed is how much of a file is read to tell what it is.
const Sniffed = 64 << 10

// Of returns what is at path. Only regular files are opened.
func Of(path string) Kind {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return Unknown
	case st.IsDir():
		return ofFolder(path)
	case !st.Mode().IsRegular():
		return Unknown
	}
	f, err := os.Open(path)
	if err != nil {
		return Unknown
	}
	defer f.Close()
	head := make([]byte, Sniffed)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Unknown
	}
	return OfData(head[:n])
}

func ofFolder(path string) Kind {
	for _, k := range []struct {
		name string
		kind Kind
	}{{contract.FileName, Package}, {outputs.Manifest, Goldens}, {"model.onnx", Case}} {
		if _, err := os.Stat(filepath.Join(path, k.name)); !errors.Is(err, fs.ErrNotExist) {
			return k.kind
		}
	}
	return Folder
}

// OfData returns what begins with head.
func OfData(head []byte) Kind {
	at := func(i int, s string) bool { return len(head) >= i && bytes.HasPrefix(head[i:], []byte(s)) }
	switch {
	case len(head) == 0:
		return Empty
	case at(0, "\x93NUMPY"):
		return NPY
	case at(0, "PK\x03\x04"), at(0, "PK\x05\x06"):
		return Zip
	case at(0, "\x1f\x8b"):
		return Gzip
	case at(4, "TFL3"), at(4, "ORTM"), at(0, "\x89HDF"), at(0, "GGUF"), at(0, "\x80\x02"), at(0, "\x80\x04"):
		return Foreign
	case at(0, "version https://git-lfs"):
		return LFS
	case contract.IsFile(head):
		return Contract
	case isPopEF(head):
		return PopEF
	}
	if k := ofProto(head); k != Unknown {
		return k
	}
	if bytes.IndexFunc(head, func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == '\ufffd' }) < 0 {
		return Text
	}
	return Unknown
}

// isPopEF reports whether head may be the table of segments of a Cap'n Proto
// message, with which a blob begins: one segment or a few, none of them large.
func isPopEF(head []byte) bool {
	if len(head) < 8 {
		return false
	}
	segments, words := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	return segments < 16 && words > 0 && words < 1<<20
}

// modelFields are the fields of ONNX's ModelProto, with their wire types.
var modelFields = map[protowire.Number]protowire.Type{
	1: protowire.VarintType, 2: protowire.BytesType, 3: protowire.BytesType, 4: protowire.BytesType, 5: protowire.VarintType, 6: protowire.BytesType,
	7: protowire.BytesType, 8: protowire.BytesType, 14: protowire.BytesType, 20: protowire.BytesType, 25: protowire.BytesType, 26: protowire.BytesType,
}

// tensorFields are those of TensorProto that the files of one tensor have.
var tensorFields = map[protowire.Number]protowire.Type{
	1: protowire.VarintType, 2: protowire.VarintType, 4: protowire.BytesType, 5: protowire.BytesType, 6: protowire.BytesType, 7: protowire.BytesType, 8: protowire.BytesType,
	9: protowire.BytesType, 10: protowire.BytesType, 11: protowire.BytesType, 12: protowire.BytesType, 13: protowire.BytesType, 14: protowire.VarintType,
}

// ofProto tells a model and a tensor of ONNX by their fields.
func ofProto(head []byte) Kind {
	model, tensor := true, true
	seen := map[protowire.Number]bool{}
	for b := head; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			break // cut, if anything was read before
		}
		model = model && fits(modelFields, num, typ)
		tensor = tensor && (fits(tensorFields, num, typ) || num == 1 && typ == protowire.BytesType) // dims may be packed
		if !model && !tensor {
			return Unknown
		}
		seen[num] = true
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			break
		}
		b = b[n+m:]
	}
	switch {
	case model && (seen[7] || seen[1] && seen[8]):
		return ONNX
	case tensor && seen[2]:
		return Tensor
	}
	return Unknown
}

// fits reports whether a message with the given fields has one like this.
func fits(fields map[protowire.Number]protowire.Type, num protowire.Number, typ protowire.Type) bool {
	want, ok := fields[num]
	return ok && want == typ
}

// IsONNX reports whether name is an ONNX model: by its content, or by its
// ending where that does not tell or there is no such file.
func IsONNX(name string) bool {
	switch Of(name) {
	case ONNX:
		return true
	case PopEF:
		return false
	}
	return EndsONNX(name)
}

// EndsONNX reports whether a name is that of an ONNX model.
func EndsONNX(name string) bool { return strings.EqualFold(filepath.Ext(name), ".onnx") }

// NotModel says what the file at path is, and what to do with it, if it is not
// a model; err is what reading it as one said, which is the answer otherwise.
func NotModel(path string, err error) error {
	if err == nil {
		return nil
	}
	switch Of(path) {
	case Tensor:
		return fmt.Errorf("%s is one tensor (an ONNX TensorProto), want a model; a tensor is given to an input: --input NAME=%s", path, path)
	case NPY:
		return fmt.Errorf("%s is a NumPy array, want a model; an array is given to an input: --input NAME=%s", path, path)
	case Zip:
		return fmt.Errorf("%s is a zip archive, as NumPy's .npz or a PyTorch model is, want an ONNX or PopEF model; torch.onnx.export makes one of a PyTorch model, popefgen golden import reads .npz", path)
	case Foreign:
		return fmt.Errorf("%s is a model of another framework, want ONNX or PopEF; export it to ONNX first (torch.onnx.export, tf2onnx)", path)
	case LFS:
		return fmt.Errorf("%s is a pointer of Git LFS, not the model itself; git lfs pull fetches that", path)
	case Gzip:
		return fmt.Errorf("%s is compressed; gunzip it first", path)
	case Contract:
		return fmt.Errorf("%s is the contract of a generated package, want a model; popefgen diff reads contracts", path)
	case Package:
		return fmt.Errorf("%s is the folder of a generated package, want a model; popefgen diff reads packages", path)
	case Goldens:
		return fmt.Errorf("%s is a folder of goldens, want a model; popefgen golden verify MODEL %s reads it", path, path)
	case Case:
		return fmt.Errorf("%s is a folder with an ONNX model, want the model: %s", path, filepath.Join(path, "model.onnx"))
	case Folder:
		return fmt.Errorf("%s is a folder, want a model", path)
	case Empty:
		return fmt.Errorf("%s is empty, want a model", path)
	case Text:
		return fmt.Errorf("%s is text, want an ONNX or PopEF model", path)
	}
	return err
}

// NotONNX is [NotModel] where only an ONNX model will do.
func NotONNX(path string, err error) error {
	if err != nil && Of(path) == PopEF {
		return fmt.Errorf("%s is a PopEF model, want ONNX: it is compiled already; popefgen generate -m %s -o DIR writes its package, popefgen run %s runs it", path, path, path)
	}
	return NotModel(path, err)
}

// NotPopEF says what the file among paths is that is no PopEF model; err is what
// reading them as one model said, which is the answer if all are.
func NotPopEF(err error, paths ...string) error {
	for _, p := range paths {
		switch k := Of(p); {
		case err == nil, k == PopEF, k == Unknown:
		case k == ONNX:
			return fmt.Errorf("%s is an ONNX model, want PopEF; popefgen compile %s makes one of it", p, p)
		default:
			return NotModel(p, err)
		}
	}
	return err
}
