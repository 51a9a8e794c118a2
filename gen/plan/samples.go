package plan

import (
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/rows"
	"github.com/popefgen/popefgen/popef/contract"
)

// samples finds the dimension of run inputs and outputs that counts samples.
func (b *builder) samples() {
	if b.plan.Family != nil {
		b.familySamples()
		return
	}
	if b.opts.BatchDim == nil {
		return
	}
	p, dim, first, before := &b.plan, *b.opts.BatchDim, "", len(b.problems)
	if dim < 0 {
		b.problem("batch dimension %d: want 0 or more", dim)
		return
	}
	if p.Uneven() {
		b.problem("batch dimension %d: a run moves inputs and outputs another number of times each, so that samples of one are none of another; generate without a batch dimension", dim)
		return
	}
	for i, a := range p.Anchors {
		if a.Role != contract.RunInput && a.Role != contract.RunOutput {
			continue
		}
		t := &p.Tensors[b.tensor[i]]
		if dim >= len(t.Shape) {
			b.problem("anchor %q: %s has no dimension %d to count samples, want one that all inputs and outputs have", a.Name, a.Info, dim)
			continue
		}
		n := t.Shape[dim]
		switch {
		case n == 0:
			b.problem("anchor %q: %s has no samples in dimension %d", a.Name, a.Info, dim)
			continue
		case first == "":
			p.BatchSize, first = n, a.Name
		case n != p.BatchSize:
			b.problem("anchor %q: %s has %d samples in dimension %d, and anchor %q has %d", a.Name, a.Info, n, dim, first, p.BatchSize)
			continue
		}
		t.Blocks = 1
		for _, d := range t.Shape[:dim] {
			t.Blocks *= d
		}
		t.SampleShape = slices.Concat(t.Shape[:dim], t.Shape[dim+1:])
		if t.Blocks == 0 {
			b.problem("anchor %q: %s has no elements before dimension %d", a.Name, a.Info, dim)
		}
	}
	switch {
	case len(b.problems) > before:
	case first == "":
		b.problem("batch dimension %d: the model has no run inputs and outputs", dim)
	default:
		b.provenRows(dim)
	}
}

// provenRows refuses to tell samples apart where the executable mixes them, as far as that
// can be known: of executables that no portable graph is in, it is the caller's word.
func (b *builder) provenRows(dim int) {
	if b.model.ExecutableBlob() == nil {
		return
	}
	data, err := b.model.Executable()
	if err != nil {
		b.problem("batch dimension %d: whether samples are independent: %v", dim, err)
		return
	}
	if ipu.Identify(data) != ipu.FormatPortable {
		return
	}
	e, err := encoding.Decode(data)
	if err != nil {
		b.problem("batch dimension %d: whether samples are independent: %v", dim, err)
		return
	}
	axes := map[string]int{}
	for i, a := range b.plan.Anchors {
		if a.Role != contract.RunInput && a.Role != contract.RunOutput {
			continue
		}
		axis := dim
		if b.metas[i].Repeats > 1 { // a dimension of the type that the stream does not have
			axis--
		}
		if axis < 0 {
			b.problem("batch dimension %d: anchor %q is repeated %d times, and its transfers are not samples; want another dimension", dim, a.Name, b.metas[i].Repeats)
			return
		}
		axes[b.metas[i].Handle] = axis
	}
	for _, p := range b.model.Metadata.ProgramFlow.Main {
		if err := rows.Independent(e, int(p), b.plan.BatchSize, axes); err != nil {
			b.problem("batch dimension %d: samples are not independent of each other: %v; leave the batch dimension out, or compile the model for one sample", dim, err)
			return
		}
	}
}
