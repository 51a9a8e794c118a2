package genrt

import (
	"context"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/packed"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// PackSpec is what generated code knows of a model that several sequences share a
// run of: Rows and Length of the inputs that they are put into, at most how many
// Entries a run has, and the Tensors, run inputs and then run outputs, in the order of
// Inputs and Outputs.
type PackSpec = packed.Spec

// PackTensor says what a run input or output is to packing: its Kind, in how many equal
// Parts it is (of positions, of pairs of positions, or of sequences), and, of an input that
// the runner fills, the Go type of its elements, Elem.
type PackTensor = packed.Tensor

// PackKind says what a run input or output is to packing.
type PackKind = packed.Kind

// The kinds of tensors. Those from PackSegments to PackBias are inputs that the
// runner fills: by them a model keeps the sequences apart.
const (
	PackNothing   = packed.Nothing   // an input that is the same in every request: it must be frozen
	PackPosition  = packed.Position  // something for each position: callers give or get it
	PackMask      = packed.Mask      // that too, an input: zero where a sequence has padding at its ends
	PackSegments  = packed.Segments  // for each position the number of its sequence in the run, from 1; 0 elsewhere
	PackPositions = packed.Positions // for each position its index in its sequence; 0 elsewhere
	PackFirst     = packed.First     // for each sequence, in order, its first position in all rows; 0 behind the last
	PackBlocks    = packed.Blocks    // for each two positions of a row 1 if they have the same number, else 0
	PackBias      = packed.Bias      // for each two positions of a row 0 if they have the same number, else the lowest value of 16 bits
	PackEntry     = packed.Entry     // an output with a part for each sequence, in order
)

// SampleOf views one value as [SamplesOf] does several.
func SampleOf[S any](s *S) Samples {
	if s == nil {
		return Samples{}
	}
	return Samples{Data: view.Bytes(s), N: 1}
}

// packs is the engine of a core's packer.
type packs struct{ *Core }

func (p packs) Replicas() int { return len(p.replicas) }

func (p packs) Done() <-chan struct{} { return p.done }

func (p packs) Visit(ctx context.Context) (int, error) {
	return p.visit(ctx, rt.LeastBusy, line.Leader)
}

// Run tells observers of a pack that did not get full, and computes it.
func (p packs) Run(ctx context.Context, replica int, mem [][]byte, flushed int) error {
	r := p.replicas[replica]
	var panicked error
	if flushed > 0 {
		panicked = r.session.Observe(rt.Event{Kind: rt.EventFlushed, Samples: flushed})
	}
	for i, w := range r.run {
		if w != nil {
			w.Over(mem[i])
		}
	}
	return callerr.Also(p.mainVisit(ctx, replica), panicked)
}

// openPacker makes the packer ready for the run inputs and outputs of a package.
func (c *Core) openPacker(spec *Spec, policy rt.PackPolicy, most int) error {
	m := packed.Model{Package: spec.Package, Spec: spec.Pack, Iterations: spec.Iterations}
	for _, role := range []Role{RunInput, RunOutput} {
		for _, a := range spec.Anchors {
			if a.Role == role {
				input := role == RunInput
				m.Ports = append(m.Ports, packed.Port{Name: a.Name, GoName: a.GoName, Bytes: a.Bytes, Input: input, Frozen: input && c.Frozen(len(m.Ports))})
			}
		}
	}
	return c.packer.Open(packs{c}, m, policy, most)
}

// RunPacked computes sequences of different lengths, as many in one run as fit, those
// of other callers among them: see [rt.PackPolicy]. parts appends to a slice what a
// sequence has for every run input and then for every run output, in the order of
// the generated Inputs and Outputs, and nothing for a tensor that is none of its
// matter.
//
// ctx is honoured while the call waits for other sequences and for the engine, and
// while runs go on that nobody else has sequences in. If it ends, outputs that were not computed yet are
// not written.
func RunPacked[I, O any](ctx context.Context, c *Core, in []I, out []O, parts func(*I, *O, []Samples) []Samples) error {
	p := &c.packer
	err := c.checkReplica(rt.LeastBusy)
	if err == nil {
		err = p.Enter(len(in), len(out))
	}
	if err != nil {
		return c.errorf("run packed", c.NilAnchor(err))
	}
	defer p.Exit()
	call := p.Call()
	for i := range in {
		call.Parts = parts(&in[i], &out[i], call.Parts)
	}
	if err := p.Compute(ctx, call, len(in)); err != nil {
		return c.errorf("run packed", err)
	}
	return nil
}
