package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/lower"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// PaddingError says that a declared padding changes results.
type PaddingError struct {
	Dim        string // the open dimension
	Size, Into int64  // what was computed, and the size of the member that computed it filled up
	Output     string
	Difference Difference
}

// Error says what differs and what to do.
func (e *PaddingError) Error() string {
	return fmt.Sprintf("the declared padding along %q changes results: filled up from %d to %d, of output %q %v: the model does not leave out what is padded; give its mask the value that does, or compile without --pad and give each size",
		e.Dim, e.Size, e.Into, printable.Line(e.Output), e.Difference)
}

// paddingTolerance is how far results may differ by the order of sums.
var paddingTolerance = Tolerance{Rel: 1e-2, Abs: 1e-3}

// Padding computes, for each open dimension of a compiled family whose padding is declared, one request by the
// member of its size and by the next larger one, filled up. The error is a [*PaddingError] where the
// results differ. Integers of the request are 1, which most masks have for what counts and most
// tables have a row for, other numbers are random between 0 and 1. What can't be run with that is
// not judged: unchecked says why.
func Padding(ctx context.Context, r *compile.Result, execute Executor) (unchecked []error, err error) {
	f := r.Family
	if f == nil || !slices.ContainsFunc(f.Dims, func(d family.Dim) bool { return len(d.Pads) > 0 }) {
		return nil, nil
	}
	m, err := r.ModelContext(ctx, "compiled model")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	for d := range f.Dims {
		if len(f.Dims[d].Pads) == 0 {
			continue
		}
		small, large, ok := neighbours(f, d)
		if !ok {
			continue
		}
		p := &padded{m: m, f: f, dim: d, execute: execute, types: map[string]graph.DType{}}
		for _, port := range slices.Concat(r.Inputs, r.Outputs) {
			p.types[port.Name] = port.Type.DType
		}
		failed, err := p.compare(ctx, small, large)
		if err != nil {
			return unchecked, err
		}
		if failed != nil {
			unchecked = append(unchecked, fmt.Errorf("whether the declared padding along %q is right was not found out: %w", f.Dims[d].Name, failed))
		}
	}
	return unchecked, ctx.Err()
}

// neighbours returns two members that differ in dimension d alone, the cheapest such pair of which
// the smaller one is not empty.
func neighbours(f *family.Family, d int) (small, large int, ok bool) {
	for i := range f.Members {
		a := f.Members[i].Sizes
		best := -1
		for k := range f.Members {
			b := f.Members[k].Sizes
			same := slices.Equal(a[:d], b[:d]) && slices.Equal(a[d+1:], b[d+1:])
			if same && a[d] > 0 && b[d] > a[d] && (best < 0 || b[d] < f.Members[best].Sizes[d]) {
				best = k
			}
		}
		if best >= 0 {
			return i, best, true
		}
	}
	return 0, 0, false
}

// padded is the comparison for one dimension.
type padded struct {
	m       *popef.Model
	f       *family.Family
	dim     int
	execute Executor
	types   map[string]graph.DType // by tensor
}

// shape returns the shape of a tensor in a member.
func (p *padded) shape(t *family.Tensor, member int) []int64 {
	return t.Shape(member, p.f.Members[member].Sizes)
}

// sizeIn returns the bytes of a tensor of a shape.
func sizeIn(t *family.Tensor, shape []int64) int64 {
	n := int64(t.Elem.Size())
	for _, d := range shape {
		n *= d
	}
	return n
}

// padding returns the element that an input is filled up with.
func (p *padded) padding(t *family.Tensor) ([]byte, error) {
	for _, pad := range p.f.Dims[p.dim].Pads {
		if pad.Input == t.Name {
			return tensorfile.ReadValue(pad.Value, popef.TensorInfo{DataType: t.Elem}, 1)
		}
	}
	return make([]byte, t.Elem.Size()), nil
}

// draw returns so many bytes of elements of type t: random between 0 and 1, or all 1 where they
// are not floats.
func draw(rng *rand.Rand, t graph.DType, n int64) []byte {
	var b []byte
	for int64(len(b)) < n {
		v := rng.Float64()
		if !t.IsFloat() {
			v = 1
		}
		b = append(b, lower.EncodeFloat(t, v)...)
	}
	return b
}

// compare computes a request by two members. failed is why one of them could not be run.
func (p *padded) compare(ctx context.Context, small, large int) (failed, err error) {
	rng := rand.New(rand.NewPCG(1, 2))
	exact, filled := map[string][]byte{}, map[string][]byte{}
	for i := range p.f.Tensors {
		t := &p.f.Tensors[i]
		if t.Type != popef.Input {
			continue
		}
		value, err := p.padding(t)
		if err != nil {
			return nil, err
		}
		data := draw(rng, p.types[t.Name], sizeIn(t, p.shape(t, small)))
		exact[t.Name] = data
		filled[t.Name] = make([]byte, sizeIn(t, p.shape(t, large)))
		family.Move(filled[t.Name], p.shape(t, large), data, p.shape(t, small), t.Elem.Size(), value)
	}
	want, failed := p.execute(ctx, p.f.Single(p.m, small), exact)
	if failed != nil {
		return failed, ctx.Err()
	}
	got, failed := p.execute(ctx, p.f.Single(p.m, large), filled)
	if failed != nil {
		return failed, ctx.Err()
	}
	for i := range p.f.Tensors {
		t := &p.f.Tensors[i]
		if t.Type != popef.Output || t.Counted() {
			continue
		}
		shape := t.Shape(large, p.f.Members[small].Sizes)
		if !slices.Equal(shape, p.shape(t, small)) {
			continue // its size follows from no dimension: requests have to be exact
		}
		data := make([]byte, sizeIn(t, shape))
		family.Move(data, shape, got[t.Name], p.shape(t, large), t.Elem.Size(), nil)
		diff, err := Compare(graph.TensorType{DType: p.types[t.Name], Shape: shape}, data, want[t.Name], paddingTolerance)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", t.Name, err)
		}
		if diff.Bad > 0 {
			return nil, &PaddingError{p.f.Dims[p.dim].Name, p.f.Members[small].Sizes[p.dim], p.f.Members[large].Sizes[p.dim], t.Name, diff}
		}
	}
	return nil, nil
}
