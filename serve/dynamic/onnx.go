package dynamic

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/sizes"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
)

// Compile says for which sizes an .onnx model is compiled, in the words of popefgen compile.
type Compile struct {
	Batch string   // as --batch: "8", "1,4,16", "1..32:*2"
	Dims  []string // as --dim, one each: "seq=16,64"
	Sizes []string // as --size: "batch=1,seq=16"
	Pads  []string // as --pad: "seq=tokens:0"
}

// WithCompile sets for which sizes an .onnx model is compiled. It has no meaning for models that are compiled already.
func WithCompile(c Compile) Option {
	return func(o *options) error {
		_, err := c.options()
		o.compile = c
		return err
	}
}

func (c *Compile) options() (o sizes.Options, err error) {
	if c.Batch != "" {
		if o.Batch, err = sizes.ParseBatch(c.Batch); err != nil {
			return o, err
		}
	}
	if o.Dims, err = sizes.ParseDims(c.Dims); err != nil {
		return o, err
	}
	if o.Sizes, err = sizes.ParseTuples(c.Sizes); err != nil {
		return o, err
	}
	o.Pads, err = sizes.ParsePads(c.Pads)
	return o, err
}

// openONNX compiles a model and opens what comes of it.
func openONNX(ctx context.Context, paths []string, o *options) (*Model, error) {
	if len(paths) > 1 {
		return nil, fmt.Errorf("%s: found %d files, want one .onnx model", paths[0], len(paths))
	}
	given, err := o.compile.options()
	if err != nil {
		return nil, err
	}
	data, err := compiled(ctx, paths[0], &given)
	if err != nil {
		return nil, err
	}
	return openBytes(ctx, data, o)
}

// compiled returns the PopEF file of an .onnx model.
func compiled(ctx context.Context, path string, given *sizes.Options) ([]byte, error) {
	room := budget.From(ctx).Part(0)
	defer room.Release() // what is compiled is all that stays
	ctx = budget.Into(ctx, room)
	m, err := onnx.ReadFileContext(ctx, path)
	if err != nil {
		return nil, err
	}
	var to compile.Options
	if err := given.Set(m, &to); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r, err := compile.CompileContext(ctx, m, to)
	if err != nil {
		return nil, err
	}
	return r.Bytes()
}

// WithCopy has PopEF files read once, into memory of the process, where they are mapped without it. What is mapped must
// not be written to while the model is open; who watches files that others write needs the copy.
func WithCopy() Option {
	return func(o *options) error { o.copy = true; return nil }
}

// openCopy opens a model of what is in files now.
func openCopy(ctx context.Context, paths []string, o *options) (*Model, error) {
	room := budget.From(ctx).Part(0)
	var data []byte
	for _, path := range paths {
		part, err := readFile(room, path)
		if err != nil {
			room.Release()
			return nil, err
		}
		if data == nil {
			data = part
		} else {
			data = append(data, part...) // files one after the other are one file
		}
	}
	m, err := popef.LoadBytes(paths[0], data)
	if err != nil {
		room.Release()
		return nil, err
	}
	defer m.Close()
	d, err := open(ctx, m, []rt.RunnerOption{rt.WithModelBytes(data)}, o)
	if err != nil {
		room.Release()
		return nil, err
	}
	d.room = room
	return d, nil
}

// readFile reads a file whose size the budget allows.
func readFile(room *budget.Budget, path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w, want a model", path, errNotRegular)
	}
	if err := room.Take(st.Size(), "the copy of %s", path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

var errNotRegular = errors.New("it is no regular file")
