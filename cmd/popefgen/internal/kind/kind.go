package main

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

// fileKind is what a file is, by its content.
type fileKind int

const (
	kindUnknown fileKind = iota
	kindPopEF
	kindONNX
	kindTensor  // ONNX TensorProto
	kindNPY     // NumPy array
	kindZip     // NumPy arrays, PyTorch models and much else
	kindForeign // a model of another framework
	kindLFS     // pointer of Git LFS
	kindGzip
	kindContract // contract.txt
	kindPackage  // folder of a generated package
	kindGoldens  // folder of goldens
	kindCase     // folder in the layout of ONNX's tests
	kindFolder   // any other
	kindEmpty
	kindText
)

// sniffed is how much of a file is read to tell what it is.
const sniffed = 64 << 10

// kindOf returns what is at path. Only regular files are opened.
func kindOf(path string) fileKind {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return kindUnknown
	case st.IsDir():
		return kindOfFolder(path)
	case !st.Mode().IsRegular():
		return kindUnknown
	}
	f, err := os.Open(path)
	if err != nil {
		return kindUnknown
	}
	defer f.Close()
	head := make([]byte, sniffed)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return kindUnknown
	}
	return kindOfData(head[:n])
}

func kindOfFolder(path string) fileKind {
	for _, k := range []struct {
		name string
		kind fileKind
	}{{contract.FileName, kindPackage}, {outputs.Manifest, kindGoldens}, {"model.onnx", kindCase}} {
		if _, err := os.Stat(filepath.Join(path, k.name)); !errors.Is(err, fs.ErrNotExist) {
			return k.kind
		}
	}
	return kindFolder
}

// kindOfData returns what begins with head.
func kindOfData(head []byte) fileKind {
	at := func(i int, s string) bool { return len(head) >= i && bytes.HasPrefix(head[i:], []byte(s)) }
	switch {
	case len(head) == 0:
		return kindEmpty
	case at(0, "\x93NUMPY"):
		return kindNPY
	case at(0, "PK\x03\x04"), at(0, "PK\x05\x06"):
		return kindZip
	case at(0, "\x1f\x8b"):
		return kindGzip
	case at(4, "TFL3"), at(4, "ORTM"), at(0, "\x89HDF"), at(0, "GGUF"), at(0, "\x80\x02"), at(0, "\x80\x04"):
		return kindForeign
	case at(0, "version https://git-lfs"):
		return kindLFS
	case contract.IsFile(head):
		return kindContract
	case isPopEF(head):
		return kindPopEF
	}
	if k := kindOfProto(head); k != kindUnknown {
		return k
	}
	if bytes.IndexFunc(head, func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == '\ufffd' }) < 0 {
		return kindText
	}
	return kindUnknown
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

// kindOfProto tells a model and a tensor of ONNX by their fields.
func kindOfProto(head []byte) fileKind {
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
			return kindUnknown
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
		return kindONNX
	case tensor && seen[2]:
		return kindTensor
	}
	return kindUnknown
}

// fits reports whether a message with the given fields has one like this.
func fits(fields map[protowire.Number]protowire.Type, num protowire.Number, typ protowire.Type) bool {
	want, ok := fields[num]
	return ok && want == typ
}

// isONNX reports whether name is an ONNX model: by its content, or by its
// ending where that does not tell or there is no such file.
func isONNX(name string) bool {
	switch kindOf(name) {
	case kindONNX:
		return true
	case kindPopEF:
		return false
	}
	return endsONNX(name)
}

// endsONNX reports whether a name is that of an ONNX model.
func endsONNX(name string) bool { return strings.EqualFold(filepath.Ext(name), ".onnx") }

// notModel says what the file at path is, and what to do with it, if it is not
// a model; err is what reading it as one said, which is the answer otherwise.
func notModel(path string, err error) error {
	if err == nil {
		return nil
	}
	switch kindOf(path) {
	case kindTensor:
		return fmt.Errorf("%s is one tensor (an ONNX TensorProto), want a model; a tensor is given to an input: --input NAME=%s", path, path)
	case kindNPY:
		return fmt.Errorf("%s is a NumPy array, want a model; an array is given to an input: --input NAME=%s", path, path)
	case kindZip:
		return fmt.Errorf("%s is a zip archive, as NumPy's .npz or a PyTorch model is, want an ONNX or PopEF model; torch.onnx.export makes one of a PyTorch model, popefgen golden import reads .npz", path)
	case kindForeign:
		return fmt.Errorf("%s is a model of another framework, want ONNX or PopEF; export it to ONNX first (torch.onnx.export, tf2onnx)", path)
	case kindLFS:
		return fmt.Errorf("%s is a pointer of Git LFS, not the model itself; git lfs pull fetches that", path)
	case kindGzip:
		return fmt.Errorf("%s is compressed; gunzip it first", path)
	case kindContract:
		return fmt.Errorf("%s is the contract of a generated package, want a model; popefgen diff reads contracts", path)
	case kindPackage:
		return fmt.Errorf("%s is the folder of a generated package, want a model; popefgen diff reads packages", path)
	case kindGoldens:
		return fmt.Errorf("%s is a folder of goldens, want a model; popefgen golden verify MODEL %s reads it", path, path)
	case kindCase:
		return fmt.Errorf("%s is a folder with an ONNX model, want the model: %s", path, filepath.Join(path, "model.onnx"))
	case kindFolder:
		return fmt.Errorf("%s is a folder, want a model", path)
	case kindEmpty:
		return fmt.Errorf("%s is empty, want a model", path)
	case kindText:
		return fmt.Errorf("%s is text, want an ONNX or PopEF model", path)
	}
	return err
}

// notONNX is [notModel] where only an ONNX model will do.
func notONNX(path string, err error) error {
	if err != nil && kindOf(path) == kindPopEF {
		return fmt.Errorf("%s is a PopEF model, want ONNX: it is compiled already; popefgen generate -m %s -o DIR writes its package, popefgen run %s runs it", path, path, path)
	}
	return notModel(path, err)
}

// notPopEF says what the file among paths is that is no PopEF model; err is what
// reading them as one model said, which is the answer if all are.
func notPopEF(err error, paths ...string) error {
	for _, p := range paths {
		switch k := kindOf(p); {
		case err == nil, k == kindPopEF, k == kindUnknown:
		case k == kindONNX:
			return fmt.Errorf("%s is an ONNX model, want PopEF; popefgen compile %s makes one of it", p, p)
		default:
			return notModel(p, err)
		}
	}
	return err
}
