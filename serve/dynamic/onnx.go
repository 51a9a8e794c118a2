package dynamic

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/sizes"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
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
