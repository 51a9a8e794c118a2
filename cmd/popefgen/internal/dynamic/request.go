package dynamic

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
)

// Request says which size of a family is computed, and by which member.
type Request struct {
	Family *family.Family
	Member int     // index in Family.Members
	Sizes  []int64 // by open dimension
}

// name says which size it is.
func (r *Request) name() string { return r.Family.Named(r.Sizes) }

// exact reports whether the sizes are the member's own.
func (r *Request) exact() bool {
	for d, n := range r.Sizes {
		if r.Family.Members[r.Member].Sizes[d] != n {
			return false
		}
	}
	return true
}

// tensor returns the tensor of an anchor of the member, nil if no run moves it.
func (r *Request) tensor(a contract.Anchor) *family.Tensor {
	for i := range r.Family.Tensors {
		if t := &r.Family.Tensors[i]; t.Anchors[r.Member] == a.Index {
			return t
		}
	}
	return nil
}

// FamilyOf returns the family that a model is, nil if it has one size.
func FamilyOf(m *popef.Model) (*family.Family, error) {
	c := contract.Of(m)
	return c.Family, c.Refused
}

// Choose returns the request for sizes, by open dimension, of which -1 may be any.
func Choose(f *family.Family, sizes []int64) (*Request, error) {
	member, exact, err := f.Choose(sizes)
	if err != nil {
		return nil, err
	}
	return &Request{f, member, exact}, nil
}

// ShapeOf returns the shape of an input's value, as of --input, if it has one: a file with a
// shape, or a list for an input of one dimension.
func ShapeOf(f *family.Family, v [2]string) ([]int64, bool) {
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
func (r *Request) padding(t *family.Tensor) ([]byte, error) {
	out := make([]byte, t.Elem.Size())
	for d := range r.Family.Dims {
		if r.Sizes[d] == r.Family.Members[r.Member].Sizes[d] {
			continue
		}
		for _, p := range r.Family.Dims[d].Pads {
			if p.Input != t.Name {
				continue
			}
			b, err := tensorfile.ReadValue(p.Value, popef.TensorInfo{DataType: t.Elem}, 1)
			if err != nil {
				return nil, fmt.Errorf("padding of input %q along %q: %w", t.Name, r.Family.Dims[d].Name, err)
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
func (r *Request) String() string {
	own := r.Family.Named(r.Family.Members[r.Member].Sizes)
	switch {
	case own == "":
		return "computed by the only size"
	case r.exact():
		return "computed as " + r.name()
	}
	return fmt.Sprintf("computed as %s by the size %s, filled up and cut back", r.name(), own)
}

// counts reports whether an output says how much of others is filled.
func (r *Request) counts(name string) bool {
	for i := range r.Family.Tensors {
		for _, a := range r.Family.Tensors[i].Axes {
			if a.Count != "" && a.Count == name {
				return true
			}
		}
	}
	return false
}

// cut gives a port, which has the memory of the member, that of the request.
func (r *Request) cut(p *Port, iterations int64) error {
	p.tensor = r.tensor(p.Anchor)
	if p.tensor == nil {
		return nil
	}
	shape := p.tensor.Shape(r.Member, r.Sizes)
	if fmt.Sprint(shape) == fmt.Sprint(p.Anchor.Info.Shape) && !p.tensor.Counted() {
		return nil
	}
	p.whole, p.shape = p.Data, p.Anchor.Info.Shape
	p.Anchor.Info.Shape = shape
	n, err := p.Anchor.Info.SizeInBytes()
	if err != nil {
		return err
	}
	p.Data = make([]byte, n*iterations)
	if p.tensor.Type == popef.Input {
		p.pad, err = r.padding(p.tensor)
	}
	return err
}

// fill moves what the user gave for an input to the memory of the member.
func (p *Port) fill() {
	if p.whole != nil {
		family.Move(p.whole, Iterated(popef.TensorInfo{Shape: p.shape}, p.transfers).Shape, p.Data, p.Info().Shape, p.tensor.Elem.Size(), p.pad)
	}
}

// take moves an output from the memory of the member, as far as it is filled: where a
// run has several iterations, to the most that it can be.
func (p *Port) take(d *Model) {
	if p.whole == nil {
		return
	}
	shape := p.tensor.Shape(d.request.Member, d.request.Sizes)
	if p.transfers == 1 {
		counts := map[string]int64{}
		for _, c := range d.counts {
			counts[c.Anchor.Name] = int64(binary.LittleEndian.Uint64(c.Data))
		}
		shape = filled(p.tensor, shape, counts)
	}
	p.Anchor.Info.Shape = shape
	n := int64(p.tensor.Elem.Size()) * p.transfers
	for _, k := range shape {
		n *= k
	}
	p.Data = make([]byte, n)
	family.Move(p.Data, p.Info().Shape, p.whole, Iterated(popef.TensorInfo{Shape: p.shape}, p.transfers).Shape, p.tensor.Elem.Size(), nil)
}

// CaseName returns what a golden case of the size is called, such as batch4-seq16.
func (r *Request) CaseName() string {
	var parts []string
	for d, n := range r.Sizes {
		parts = append(parts, fmt.Sprintf("%s%d", npy.FileName(r.Family.Dims[d].Name, ""), n))
	}
	return strings.Join(parts, "-")
}
