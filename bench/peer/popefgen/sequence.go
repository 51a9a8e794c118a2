package popefgen

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// sequence stands in for the generated Runner of a model of several sizes.
type sequence struct {
	family   genrt.Family
	requests [][]genrt.View
	outputs  []*tensor // of the last request
}

// tensor is what generated code has for a tensor with open dimensions. The runtime counts the
// elements of data, whatever Go's type of them is, each of so many bytes.
type tensor struct {
	sizes [4]int
	data  []byte
	bytes int
}

// OpenSequence makes a compiled family ready to run so many requests, each of whatever sizes its
// tensors have, one after the other: a run is all of them.
func OpenSequence(model []byte, requests []peer.Case, threads int) (peer.Session, error) {
	name := requests[0].Name
	m, err := popef.LoadBytes(name, model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	of, err := family.Of(m)
	if err != nil {
		return nil, err
	}
	if of == nil {
		return nil, fmt.Errorf("%s: it was compiled for one size", name)
	}
	spec := &genrt.Spec{Package: name, Contract: contract.Of(m).Callers().Text(), Iterations: 1, QueueDepth: 1}
	of.Tensors = slices.DeleteFunc(of.Tensors, func(t family.Tensor) bool { return t.Type == popef.Output && counts(of, t.Name) })
	for i := range of.Tensors {
		spec.Anchors = append(spec.Anchors, anchor(of, &of.Tensors[i]))
	}
	s := &sequence{}
	for k := range requests {
		all := slices.Concat(requests[k].Inputs, requests[k].Outputs)
		var views []genrt.View
		s.outputs = s.outputs[:0]
		for i := range of.Tensors {
			t := &of.Tensors[i]
			at := slices.IndexFunc(all, func(p peer.Tensor) bool { return p.Name == t.Name })
			if at < 0 {
				return nil, fmt.Errorf("%s: request %d has no tensor %q", name, k, t.Name)
			}
			open := &spec.Anchors[i]
			own := &tensor{data: slices.Clone(all[at].Data), bytes: 1}
			if len(open.Open) > 0 {
				own.bytes = open.Bytes
			}
			for f, x := range open.Open {
				own.sizes[f] = int(all[at].Dims[x.Axis])
			}
			if t.Type == popef.Output {
				if s.outputs = append(s.outputs, own); len(open.Open) == 0 {
					own.data = make([]byte, all[at].Size)
				} // else Run makes the memory, as for those of NewOutputs
			}
			views = append(views, own.view(open))
		}
		s.requests = append(s.requests, views)
	}
	err = s.family.OpenFamily(context.Background(), spec, genrt.Source{Name: name, Bytes: model}, func() []genrt.Binding { return nil }, rt.WithThreads(threads))
	if err != nil {
		return nil, err
	}
	return s, nil
}

// counts reports whether an output says how much of others is filled, and is nothing else to generated code.
func counts(of *family.Family, output string) bool {
	for i := range of.Tensors {
		if slices.ContainsFunc(of.Tensors[i].Axes, func(x family.Axis) bool { return x.Count == output }) {
			return true
		}
	}
	return false
}

// anchor is what generated code knows of a tensor of a family.
func anchor(of *family.Family, t *family.Tensor) genrt.AnchorSpec {
	a := genrt.AnchorSpec{Name: t.Name, GoName: t.Name, Role: genrt.RunInput, Bytes: t.Elem.Size()}
	if t.Type == popef.Output {
		a.Role = genrt.RunOutput
	}
	last := -1
	for i := range t.Axes {
		if x := &t.Axes[i]; x.Sizes != nil || x.Count != "" {
			last = i
			field := fmt.Sprintf("Axis%d", i)
			if x.Dim >= 0 {
				field = of.Dims[x.Dim].Name
			}
			a.Open = append(a.Open, genrt.OpenAxis{Axis: i, Name: field})
		}
	}
	for i := last + 1; i < len(t.Axes); i++ {
		a.Bytes *= int(t.Axes[i].Size)
	}
	return a
}

// view shows a tensor to the runtime.
func (t *tensor) view(a *genrt.AnchorSpec) genrt.View {
	if len(a.Open) == 0 {
		return genrt.Whole(unsafe.SliceData(t.data))
	}
	n := len(t.data) / a.Bytes
	t.data = t.data[:n:n]
	return genrt.Open(&t.sizes[0], &t.data)
}

func (s *sequence) Run() error {
	for _, views := range s.requests {
		if err := s.family.Run(context.Background(), rt.LeastBusy, views); err != nil {
			return err
		}
	}
	return nil
}

func (s *sequence) Outputs() ([][]byte, error) {
	out := make([][]byte, len(s.outputs))
	for i, t := range s.outputs {
		out[i] = unsafe.Slice(unsafe.SliceData(t.data), len(t.data)*t.bytes)
	}
	return out, nil
}

func (s *sequence) Close() error { return s.family.Close() }
