package main

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
)

// withSize adds --size to a command's flags, unless it is one of those that say how an ONNX
// model is compiled.
func withSize(flags []cli.Flag) []cli.Flag {
	for _, f := range flags {
		if f.Names()[0] == "size" {
			return flags
		}
	}
	return append(flags, &cli.StringSliceFlag{Name: "size", Usage: "size of a model of several that is meant, `NAME=N,NAME=N`"})
}

// takesSize are the commands that run one size of a family, which --size says.
var takesSize = map[string]bool{"run": true, "record": true, "inspect": true}

// request says which size of a family is computed, and by which member.
type request struct {
	family *family.Family
	member int
	sizes  []int64 // by open dimension
}

// name says which size it is.
func (r *request) name() string { return r.family.Named(r.sizes) }

// exact reports whether the sizes are the member's own.
func (r *request) exact() bool {
	for d, n := range r.sizes {
		if r.family.Members[r.member].Sizes[d] != n {
			return false
		}
	}
	return true
}

// tensor returns the tensor of an anchor of the member, nil if no run moves it.
func (r *request) tensor(a contract.Anchor) *family.Tensor {
	for i := range r.family.Tensors {
		if t := &r.family.Tensors[i]; t.Anchors[r.member] == a.Index {
			return t
		}
	}
	return nil
}

// familyOf returns the family that a model is, nil if it has one size.
func familyOf(m *popef.Model) (*family.Family, error) {
	c := contract.Of(m)
	return c.Family, c.Refused
}

// askedSizes reads --size: -1 for a dimension that is not given.
func askedSizes(c *cli.Context, f *family.Family) ([]int64, error) {
	var words []string
	for _, s := range c.StringSlice("size") {
		words = append(words, strings.Split(s, ",")...)
	}
	given, err := assignments("size", words)
	if err != nil {
		return nil, err
	}
	if kind.IsONNX(c.Args().First()) {
		given = nil // it says what to compile
	}
	if f == nil {
		if given != nil {
			return nil, fmt.Errorf("--size %s=%s: the model has one size; compile --dim makes several", given[0][0], given[0][1])
		}
		return nil, nil
	}
	var pairs []string
	for _, g := range given {
		pairs = append(pairs, g[0]+"="+g[1])
	}
	return namedSizes(f, "size", pairs)
}

// namedSizes reads sizes of dimensions, NAME=N each: -1 for one that is not given. flag is
// what they are given by.
func namedSizes(f *family.Family, flag string, pairs []string) ([]int64, error) {
	given, err := assignments(flag, pairs)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range f.Dims {
		names = append(names, d.Name)
	}
	sizes := make([]int64, len(f.Dims))
	for d := range sizes {
		sizes[d] = -1
	}
	for _, g := range given {
		d := -1
		for i, name := range names {
			if name == g[0] {
				d = i
			}
		}
		if d < 0 {
			return nil, fmt.Errorf("--%s %s=%s: the model has no such open dimension%s; it has %s", flag, g[0], g[1], nearest.DidYouMean(g[0], names), strings.Join(names, ", "))
		}
		if sizes[d], err = strconv.ParseInt(g[1], 10, 64); err != nil || sizes[d] < 0 {
			return nil, fmt.Errorf("--%s %s=%s: want a number, 0 or more", flag, g[0], g[1])
		}
	}
	return sizes, nil
}

// requestOf returns the request that --size and the values of inputs, as of
// --input, ask of a model; nil if it has one size.
func requestOf(c *cli.Context, m *popef.Model, files [][2]string) (*request, error) {
	f, err := familyOf(m)
	if err != nil {
		return nil, err
	}
	sizes, err := askedSizes(c, f)
	if f == nil || err != nil {
		return nil, err
	}
	shapes := map[string][]int64{}
	for _, v := range files {
		if shape, ok := shapeOf(f, v); ok {
			shapes[v[0]] = shape
		}
	}
	found, err := f.Sizes(shapes)
	if err != nil {
		return nil, err
	}
	for d, n := range found {
		switch {
		case n < 0:
		case sizes[d] >= 0 && sizes[d] != n:
			return nil, fmt.Errorf("--size %s=%d: the inputs have %d", f.Dims[d].Name, sizes[d], n)
		default:
			sizes[d] = n
		}
	}
	return choose(f, sizes)
}

// choose returns the request for sizes, of which -1 may be any.
func choose(f *family.Family, sizes []int64) (*request, error) {
	member, exact, err := f.Choose(sizes)
	if err != nil {
		return nil, err
	}
	return &request{f, member, exact}, nil
}

// shapeOf returns the shape of an input's value, if it has one: a file with a
// shape, or a list for an input of one dimension.
func shapeOf(f *family.Family, v [2]string) ([]int64, bool) {
	if path, ok := tensorfile.Path(v[1]); ok {
		t, err := tensorfile.ReadONNX(path)
		if err != nil {
			return nil, false // a .bin file has none, and who reads the value says what is wrong with others
		}
		return t.Dims, true
	}
	if l := tensorfile.ParseLiteral(v[1]); l.List {
		if t := f.Tensor(v[0], popef.Input); t != nil && len(t.Axes) == 1 {
			return []int64{int64(len(l.Words))}, true
		}
	}
	return nil, false
}

// padding returns the element that an input is filled up with along the open
// dimensions in which a request is smaller than its member: what is declared, else zero.
func (r *request) padding(t *family.Tensor) ([]byte, error) {
	out := make([]byte, t.Elem.Size())
	for d := range r.family.Dims {
		if r.sizes[d] == r.family.Members[r.member].Sizes[d] {
			continue
		}
		for _, p := range r.family.Dims[d].Pads {
			if p.Input != t.Name {
				continue
			}
			b, err := tensorfile.ReadValue(p.Value, popef.TensorInfo{DataType: t.Elem}, 1)
			if err != nil {
				return nil, fmt.Errorf("padding of input %q along %q: %w", t.Name, r.family.Dims[d].Name, err)
			}
			out = b
		}
	}
	return out, nil
}

// filled returns the shape of an output of a request of which data decides a
// length; counts has what the outputs say that count.
func filled(t *family.Tensor, shape []int64, counts map[string]int64) []int64 {
	out := append([]int64{}, shape...)
	for k := range t.Axes {
		if n, ok := counts[t.Axes[k].Count]; ok && t.Axes[k].Count != "" {
			out[k] = max(0, min(n, out[k]))
		}
	}
	return out
}

// String says which size was computed, and by what.
func (r *request) String() string {
	own := r.family.Named(r.family.Members[r.member].Sizes)
	switch {
	case own == "":
		return "computed by the only size"
	case r.exact():
		return "computed as " + r.name()
	}
	return fmt.Sprintf("computed as %s by the size %s, filled up and cut back", r.name(), own)
}

// counts reports whether an output says how much of others is filled.
func (r *request) counts(name string) bool {
	for i := range r.family.Tensors {
		for _, a := range r.family.Tensors[i].Axes {
			if a.Count != "" && a.Count == name {
				return true
			}
		}
	}
	return false
}

// cut gives a port, which has the memory of the member, that of the request.
func (r *request) cut(p *port, iterations int64) error {
	p.tensor = r.tensor(p.anchor)
	if p.tensor == nil {
		return nil
	}
	shape := p.tensor.Shape(r.member, r.sizes)
	if fmt.Sprint(shape) == fmt.Sprint(p.anchor.Info.Shape) && !p.tensor.Counted() {
		return nil
	}
	p.whole, p.shape = p.data, p.anchor.Info.Shape
	p.anchor.Info.Shape = shape
	n, err := p.anchor.Info.SizeInBytes()
	if err != nil {
		return err
	}
	p.data = make([]byte, n*iterations)
	if p.tensor.Type == popef.Input {
		p.pad, err = r.padding(p.tensor)
	}
	return err
}

// fill moves what the user gave for an input to the memory of the member.
func (p *port) fill(iterations int64) {
	if p.whole != nil {
		family.Move(p.whole, iterated(popef.TensorInfo{Shape: p.shape}, iterations).Shape, p.data, iterated(p.anchor.Info, iterations).Shape, p.tensor.Elem.Size(), p.pad)
	}
}

// take moves an output from the memory of the member, as far as it is filled: where a
// run has several iterations, to the most that it can be.
func (p *port) take(d *dynamic) {
	if p.whole == nil {
		return
	}
	shape := p.tensor.Shape(d.request.member, d.request.sizes)
	if d.iterations == 1 {
		counts := map[string]int64{}
		for _, c := range d.counts {
			counts[c.anchor.Name] = int64(binary.LittleEndian.Uint64(c.data))
		}
		shape = filled(p.tensor, shape, counts)
	}
	p.anchor.Info.Shape = shape
	n := int64(p.tensor.Elem.Size()) * d.iterations
	for _, k := range shape {
		n *= k
	}
	p.data = make([]byte, n)
	family.Move(p.data, iterated(p.anchor.Info, d.iterations).Shape, p.whole, iterated(popef.TensorInfo{Shape: p.shape}, d.iterations).Shape, p.tensor.Elem.Size(), nil)
}
