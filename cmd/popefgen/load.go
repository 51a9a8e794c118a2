package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
)

// bindings reads the values that binds, pairs of an input and a file, give to
// inputs of m.
func bindings(binds [][2]string, m *onnx.Model) (values map[string]*onnx.Tensor, err error) {
	values = map[string]*onnx.Tensor{}
	for _, b := range binds {
		if !slices.ContainsFunc(m.Graph.Inputs, func(v onnx.ValueInfo) bool { return v.Name == b[0] }) {
			return nil, fmt.Errorf("--bind %s=%s: the model has no input %q", b[0], b[1], b[0])
		}
		if values[b[0]], err = tensorfile.ReadONNX(b[1]); err != nil {
			return nil, fmt.Errorf("--bind %s: %w", b[0], err)
		}
	}
	return values, nil
}

// notPopEF adds to err what may be the matter with a file.
func notPopEF(err error) error {
	if errors.Is(err, popef.ErrFormat) {
		return fmt.Errorf("%w; is it a PopEF file?", err)
	}
	return err
}

// noModelFlags refuses flags that say how an ONNX model is to be compiled.
func noModelFlags(c *cli.Context, path string) error {
	for _, f := range modelFlags {
		if n := f.Names()[0]; c.IsSet(n) {
			return fmt.Errorf("--%s is for .onnx models; %s is compiled already", n, path)
		}
	}
	return nil
}

// openModel opens a PopEF model, or compiles an ONNX model in memory.
func openModel(c *cli.Context, path string) (*popef.Model, error) {
	if !isONNX(path) {
		if err := noModelFlags(c, path); err != nil {
			return nil, err
		}
		m, err := popef.Load(path)
		return m, notPopEF(err)
	}
	r, err := compileONNX(c, path)
	if err != nil {
		return nil, err
	}
	return r.Model(filepath.Base(path))
}
