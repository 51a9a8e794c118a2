package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
)

// bindings reads the values that binds, pairs of an input and a value, give to
// inputs of m.
func bindings(binds [][2]string, m *onnx.Model) (values map[string]*onnx.Tensor, err error) {
	values = map[string]*onnx.Tensor{}
	for _, b := range binds {
		i := slices.IndexFunc(m.Graph.Inputs, func(v onnx.ValueInfo) bool { return v.Name == b[0] })
		if i < 0 {
			var names []string
			for _, in := range m.Graph.Inputs {
				names = append(names, in.Name)
			}
			return nil, fmt.Errorf("--bind %s=%s: the model has no such input%s", b[0], b[1], nearest.DidYouMean(b[0], names))
		}
		if path, ok := tensorfile.Path(b[1]); ok {
			if values[b[0]], err = tensorfile.ReadONNX(path); err != nil { // which names the file
				return nil, fmt.Errorf("--bind %s: %w", b[0], err)
			}
		} else {
			values[b[0]], err = bindLiteral(m.Graph.Inputs[i], tensorfile.ParseLiteral(b[1]))
		}
		if err != nil {
			return nil, fmt.Errorf("--bind %s=%s: %w", b[0], b[1], err)
		}
	}
	return values, nil
}

// bindLiteral returns the value of an input that was written down. Its shape is
// the model's; a list makes the only open dimension as long as it is.
func bindLiteral(in onnx.ValueInfo, l tensorfile.Literal) (*onnx.Tensor, error) {
	dt, ok := export.DataType(in.Elem.DType())
	switch in.Elem {
	case onnx.BFloat16, onnx.Int4, onnx.Uint4, onnx.Int2, onnx.Uint2:
		ok = false // PopEF has no such type, and others stand for them
	}
	if !ok {
		return nil, fmt.Errorf("input %q is %s, whose elements can't be written down: want a .npy or .pb file", in.Name, in)
	}
	t := &onnx.Tensor{Name: in.Name, Elem: in.Elem, Dims: []int64{}}
	want := int64(len(l.Words))
	switch {
	case !in.HasShape && l.List, len(in.Dims) == 1 && (!in.Dims[0].Known || in.Dims[0].Value < 0):
		t.Dims = []int64{want}
	case in.HasShape:
		want = 1
		for _, d := range in.Dims {
			if !d.Known || d.Value < 0 {
				return nil, fmt.Errorf("input %q is %s: what is written down has no shape for it; want a .npy or .pb file", in.Name, in)
			}
			if d.Value > 0 && want > math.MaxInt64/d.Value {
				return nil, fmt.Errorf("input %q is %s, which is too large", in.Name, in)
			}
			want *= d.Value
			t.Dims = append(t.Dims, d.Value)
		}
		if len(in.Dims) == 0 && l.List {
			return nil, fmt.Errorf("input %q is %s, a scalar; found a list", in.Name, in)
		}
	}
	var err error
	t.Data, err = l.Bytes(dt, want)
	return t, err
}

// noModelFlags refuses flags that say how an ONNX model is to be compiled; --size also says
// which size of a family some commands take.
func noModelFlags(c *cli.Context, path string) error {
	for _, f := range modelFlags {
		if n := f.Names()[0]; c.IsSet(n) && !(n == "size" && takesSize[c.Command.Name]) {
			return fmt.Errorf("--%s is for .onnx models; %s is compiled already", n, path)
		}
	}
	return nil
}

// openModel opens a PopEF model, or compiles an ONNX model in memory, and returns
// how many bytes its files have.
func openModel(c *cli.Context, path string) (*popef.Model, int64, error) {
	if !kind.IsONNX(path) {
		if err := noModelFlags(c, path); err != nil {
			return nil, 0, err
		}
		m, err := popef.LoadContext(c.Context, path)
		if err != nil {
			return nil, 0, kind.NotPopEF(err, path)
		}
		if m, err = branchAsked(c, m); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", path, err)
		}
		return m, dynamic.SizeOf(path), nil
	}
	if c.IsSet("branch") {
		return nil, 0, fmt.Errorf("--branch %s: %s is an ONNX model, which has no branches", c.String("branch"), path)
	}
	r, err := compileONNX(c, path)
	if err != nil {
		return nil, 0, err
	}
	m, err := r.ModelContext(c.Context, filepath.Base(path))
	return m, r.Size, err
}
