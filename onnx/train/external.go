package train

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/onnx"
)

// piece is the data of a tensor in a file beside its model.
type piece struct {
	tensor string
	file   string
	offset int64
	data   []byte
}

// outside returns the piece that a TensorProto says it has in a file of its own; ok is false if it has none.
func outside(tensor []byte) (p piece, ok bool, err error) {
	err = eachField(tensor, func(num protowire.Number, typ protowire.Type, _, at, end int) error {
		if num != tensorExternal || typ != protowire.BytesType {
			return nil
		}
		ok = true
		key, err := textOf(tensor[at:end], 1)
		if err != nil {
			return err
		}
		value, err := textOf(tensor[at:end], 2)
		switch key {
		case "location":
			p.file = value
		case "offset":
			var e error
			if p.offset, e = strconv.ParseInt(value, 10, 64); e != nil || p.offset < 0 {
				err = errors.Join(err, fmt.Errorf("%w: external data offset %q is not a number from 0 on", onnx.ErrFormat, value))
			}
		}
		return err
	})
	return p, ok, err
}

// HasExternal reports whether data of an initialiser or a constant of the ONNX model file lies in a file of its own.
func HasExternal(file []byte) (has bool, err error) {
	err = visitTensors(spot{}, file, 0, func(_ string, tensor []byte, _ int64) error {
		_, ok, err := outside(tensor)
		has = has || ok
		return err
	})
	return has, err
}

// WriteExternal writes the model that [Extract] returned, learnt, as file was, whose data lies partly in files beside it, in folder dir: the model at path is file but for the data of weights that
// changed in it, and the files of data have the same names and contents within the folder of path, but for what was learnt. dir may be that folder, whose files are replaced then. All files are written
// beside the old ones first, and replace them once they are whole, the model last: it stays as it was where all that was learnt is outside.
func WriteExternal(path string, file, learnt []byte, dir string) error {
	m, err := onnx.Decode(learnt, "")
	if err != nil {
		return err
	}
	values := map[string]*onnx.Tensor{} // that may be learnt: nil of names that several have
	everyValue(m, func(name string, value *onnx.Tensor, _ bool) {
		if _, several := values[name]; several || !isFloat(value.Elem) {
			value = nil
		}
		values[name] = value
	})
	var pieces []piece
	model, err := rewritten(spot{}, file, func(name string, tensor []byte) ([]byte, error) {
		value := values[name]
		p, ok, err := outside(tensor)
		if err != nil || value == nil && !ok {
			return nil, err
		}
		if ok {
			if p.tensor = name; value != nil {
				p.data = value.Data
			}
			pieces = append(pieces, p)
			return nil, nil
		}
		was, err := onnx.DecodeTensor(tensor)
		if err != nil || bytes.Equal(was.Data, value.Data) {
			return nil, err
		}
		return value.Data, nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(pieces, func(a, b piece) int { return bytes.Compare([]byte(a.file), []byte(b.file)) })
	var files []*atomicfile.File
	defer func() {
		for _, f := range files {
			f.Abort() // those that are committed stay
		}
	}()
	for len(pieces) > 0 {
		n := slices.IndexFunc(pieces, func(p piece) bool { return p.file != pieces[0].file })
		if n < 0 {
			n = len(pieces)
		}
		f, err := patched(filepath.Dir(path), dir, pieces[:n])
		if f != nil {
			files = append(files, f)
		}
		if err != nil {
			return err
		}
		pieces = pieces[n:]
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	files = append(files, f)
	if _, err := f.Write(model); err != nil {
		return err
	}
	for _, f := range slices.Clone(files) {
		if err := f.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// patched begins a file of data in folder to: that of folder from, with other data in some places.
func patched(to, from string, pieces []piece) (*atomicfile.File, error) {
	name := filepath.FromSlash(pieces[0].file)
	root, err := os.OpenRoot(from)
	if err != nil {
		return nil, fmt.Errorf("external data: %w", err)
	}
	defer root.Close()
	source, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("external data of tensor %q: %w", pieces[0].tensor, err)
	}
	defer source.Close()
	st, err := source.Stat()
	if err != nil {
		return nil, err
	}
	for _, p := range pieces {
		if p.offset > st.Size() || int64(len(p.data)) > st.Size()-p.offset {
			return nil, fmt.Errorf("external data file %q has %d bytes, the model wants %d at offset %d for tensor %q: it was changed since the model was read", p.file, st.Size(), len(p.data), p.offset, p.tensor)
		}
	}
	target := filepath.Join(to, name)
	if err := os.MkdirAll(filepath.Dir(target), 0o777); err != nil {
		return nil, err
	}
	f, err := atomicfile.Create(target)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(f, source); err != nil {
		return f, fmt.Errorf("external data file %q: %w", pieces[0].file, err)
	}
	for _, p := range pieces {
		if _, err := f.WriteAt(p.data, p.offset); err != nil {
			return f, err
		}
	}
	return f, nil
}
