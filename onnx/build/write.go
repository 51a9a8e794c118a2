package build

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// SaveInitializersExternally puts the data of initializers of the main graph into a file beside the model, once that is written with [Builder.WriteFile]: file is its name within the model's folder. Without initializers
// it is about all that there are so far. A model of 2 GiB or more needs it.
func (b *Builder) SaveInitializersExternally(file string, initializers ...*Tensor) {
	if !b.usable() {
		return
	}
	p := here("SaveInitializersExternally")
	if !b.usableName(p, file) {
		return
	}
	if !filepath.IsLocal(file) {
		b.fail(p, "the file %q, want a name within the folder of the model", file)
		return
	}
	if len(initializers) == 0 {
		initializers = b.frames[0].initializers
	}
	for i, t := range initializers {
		switch {
		case t != nil && t.b == b && t.bad:
		case !slices.Contains(b.frames[0].initializers, t):
			b.fail(p, "value %d, %q, is no initializer of the main graph", i, operandName(t))
		case b.outside[t] != "" && b.outside[t] != file:
			b.fail(p, "the data of %q goes to file %q already", t.name, b.outside[t])
		default:
			b.outside[t] = file
		}
	}
}

// WriteFile writes the model as the ONNX file at path, and files of data beside it where [Builder.SaveInitializersExternally] says so. Errors are those of [Builder.Model], and of files.
// Each file appears whole or not at all, the model last.
func (b *Builder) WriteFile(ctx context.Context, path string) error {
	m, err := b.Model(ctx)
	if err != nil {
		return err
	}
	files := map[string]string{}
	for t, file := range b.outside {
		files[t.name] = file
	}
	return onnx.WriteFiles(path, m, func(t *onnx.Tensor) string { return files[t.Name] })
}
