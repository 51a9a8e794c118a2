package opinion

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/reduce"
)

// The layout of ONNX's tests.
const (
	modelFile = "model.onnx"
	dataSet   = "test_data_set_0"
)

// write puts a case, and what it should give if that is known, into an empty
// folder, in the layout of ONNX's tests.
func write(dir string, c *reduce.Case, outputs []*onnx.Tensor) error {
	b, err := onnx.Encode(c.Model)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, dataSet), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, modelFile), b, 0o666); err != nil {
		return err
	}
	for prefix, list := range map[string][]*onnx.Tensor{"input": inputs(c), "output": outputs} {
		for i, t := range list {
			b, err := onnx.EncodeTensor(t)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, dataSet, fmt.Sprintf("%s_%d.pb", prefix, i)), b, 0o666); err != nil {
				return err
			}
		}
	}
	return nil
}

// Room is a folder for the case that is being judged.
type Room struct {
	root string
	last *reduce.Case
	dir  string // where last is
}

// NewRoom makes a folder among the temporary files; Close removes it.
func NewRoom() (*Room, error) {
	root, err := os.MkdirTemp("", "popefgen-reduce-")
	return &Room{root: root}, err
}

// Close removes the folder.
func (r *Room) Close() error { return os.RemoveAll(r.root) }

// put writes a case and returns the folder where it stands until the next one.
func (r *Room) put(c *reduce.Case) (string, error) {
	if r.last == c {
		return r.dir, nil
	}
	if r.dir != "" {
		if err := os.RemoveAll(r.dir); err != nil {
			return "", err
		}
	}
	r.last, r.dir = nil, ""
	dir, err := os.MkdirTemp(r.root, "case-")
	if err != nil {
		return "", err
	}
	r.dir = dir
	if err := write(dir, c, nil); err != nil {
		return "", err
	}
	r.last = c
	return dir, nil
}

// ours are the files of a case that [Save] wrote.
var ours = regexp.MustCompile(`^(\.|model\.onnx|test_data_set_0([/\\](input|output)_[0-9]+\.pb)?)$`)

// Replaceable returns an error unless [Save] may write to dir: there is nothing,
// or a case in the layout of ONNX's tests and nothing else.
func Replaceable(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && (!ours.MatchString(name) || name == "." && !d.IsDir()) {
			err = fmt.Errorf("%s is there, which is not part of a case that reduce wrote: choose another name, or remove it", path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Save writes the case and its outputs to the folder dir, whole or not at all. What
// it replaces is a case that [Replaceable] allows.
func Save(dir string, c *reduce.Case, outputs []*onnx.Tensor) (err error) {
	if err := Replaceable(dir); err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	made, err := os.MkdirTemp(parent, ".popefgen-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(made)) }()
	next, old := filepath.Join(made, "new"), filepath.Join(made, "old")
	if err := os.Mkdir(next, 0o777); err != nil {
		return err
	}
	if err := write(next, c, outputs); err != nil {
		return err
	}
	switch err := os.Rename(dir, old); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	}
	if err := os.Rename(next, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return nil
}

// SaveModel writes the model of a case alone.
func SaveModel(file string, c *reduce.Case) error {
	b, err := onnx.Encode(c.Model)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(file, b)
}
