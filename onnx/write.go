package onnx

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/popefgen/popefgen/internal/atomicfile"
)

// WriteFile writes m as the ONNX file at path, as [Encode] does. The file appears whole or not at all.
func WriteFile(path string, m *Model) error { return WriteFiles(path, m, nil) }

// alignment of data in external files, in bytes.
const alignment = 64

// WriteFiles writes m as the ONNX file at path, and the data of some initialisers of its main graph to files of their own, which the model may be larger with than a protobuf message can be: file returns the
// name of a tensor's, relative to the folder of path and within it, "" for one whose data stays in the model. nil leaves all there.
// Data lies little-endian in the order of the tensors, each at a multiple of 64 bytes. All files are written beside the old ones first, and replace them once they are whole, the model last.
func WriteFiles(path string, m *Model, file func(t *Tensor) string) (err error) {
	e := &encoder{}
	var names []string
	tensors := map[string][]*Tensor{} // by file
	places := map[*Tensor]external{}
	if file != nil && m != nil && m.Graph != nil {
		sizes := map[string]int64{}
		for _, t := range m.Graph.Initializers {
			if t == nil || file(t) == "" {
				continue
			}
			name := filepath.Clean(file(t))
			if !t.Elem.DType().Valid() {
				return fmt.Errorf("%s: tensor %q: %w: its elements are %s, which are not read", path, t.Name, ErrNotEncodable, t.Elem)
			}
			if !filepath.IsLocal(name) || name == filepath.Base(path) {
				return fmt.Errorf("%s: %q for the data of tensor %q: want the name of another file within the folder of the model", path, name, t.Name)
			}
			if tensors[name] == nil {
				names = append(names, name)
			}
			at := external{filepath.ToSlash(name), (sizes[name] + alignment - 1) / alignment * alignment, int64(packedLen(t))}
			sizes[name] = at.offset + at.length
			tensors[name], places[t] = append(tensors[name], t), at
		}
		e.external = func(t *Tensor) (external, bool) { at, ok := places[t]; return at, ok }
	}
	b, err := e.model(m)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var files []*atomicfile.File
	defer func() {
		for _, f := range files {
			f.Abort() // those that are committed stay
		}
	}()
	begin := func(path string, write func(io.Writer) error) error {
		f, err := atomicfile.Create(path)
		if err != nil {
			return err
		}
		files = append(files, f)
		w := bufio.NewWriterSize(f, 1<<20)
		return errors.Join(write(w), w.Flush())
	}
	for _, name := range names {
		err := begin(filepath.Join(filepath.Dir(path), name), func(w io.Writer) error { return writeData(w, tensors[name], places) })
		if err != nil {
			return err
		}
	}
	if err := begin(path, func(w io.Writer) error { _, err := w.Write(b); return err }); err != nil {
		return err
	}
	for _, f := range slices.Clone(files) {
		if err := f.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// writeData writes the data of tensors to their places in a file.
func writeData(w io.Writer, tensors []*Tensor, places map[*Tensor]external) error {
	at := int64(0)
	for _, t := range tensors {
		p := places[t]
		if _, err := w.Write(make([]byte, p.offset-at)); err != nil {
			return err
		}
		if _, err := w.Write(packed(t)); err != nil {
			return err
		}
		at = p.offset + p.length
	}
	return nil
}

// packedLen returns the bytes of a tensor's data in a file.
func packedLen(t *Tensor) int {
	per := elementsPerByte(t.Elem)
	return (len(t.Data) + per - 1) / per
}
