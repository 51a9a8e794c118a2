package genrt

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/packing"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// PackSpec is what generated code knows of a model that several sequences share a
// run of.
type PackSpec struct {
	Rows, Length int          // of the inputs that sequences are put into
	Entries      int          // most sequences of a run
	Tensors      []PackTensor // run inputs and then run outputs, in the order of Inputs and Outputs
}

// PackTensor says what a run input or output is to packing.
type PackTensor struct {
	Kind  PackKind
	Parts int    // equal parts that it has: of positions, of pairs of positions, or of sequences
	Elem  string // Go type of its elements, of an input that the runner fills
}

// PackKind says what a run input or output is to packing.
type PackKind uint8

// The kinds of tensors. Those from PackSegments to PackBias are inputs that the
// runner fills: by them a model keeps the sequences apart.
const (
	PackNothing   PackKind = iota // an input that is the same in every request: it must be frozen
	PackPosition                  // something for each position: callers give or get it
	PackMask                      // that too, an input: zero where a sequence has padding at its ends
	PackSegments                  // for each position the number of its sequence in the run, from 1; 0 elsewhere
	PackPositions                 // for each position its index in its sequence; 0 elsewhere
	PackFirst                     // for each sequence, in order, its first position in all rows; 0 behind the last
	PackBlocks                    // for each two positions of a row 1 if they have the same number, else 0
	PackBias                      // for each two positions of a row 0 if they have the same number, else the lowest value of 16 bits
	PackEntry                     // an output with a part for each sequence, in order
)

// SampleOf views one value as [SamplesOf] does several.
func SampleOf[S any](s *S) Samples {
	if s == nil {
		return Samples{}
	}
	return Samples{data: view.Bytes(s), n: 1}
}

// packer puts sequences of different lengths into the rows of one run.
type packer struct {
	core    *Core
	spec    *PackSpec // nil if the package knows nothing of packing
	policy  rt.PackPolicy
	tensors []packTensor
	mask    int    // tensor; -1: there is none
	missing string // Go name of an input that nobody gives, and its anchor's; "" if there is none
	without string
	most    int             // calls that may wait; negative: any number
	plain   *packing.Layout // an empty one

	packerState
}

// packTensor is a run input or output.
type packTensor struct {
	name   string
	kind   PackKind
	input  bool
	frozen bool
	bytes  int // of a run
	part   int // bytes of a position, or of a sequence
	write  writer
	same   []byte // a row of what PackBlocks and PackBias have for the same number, and for another
	other  []byte
}

func (p *packer) init(c *Core, spec *Spec, policy rt.PackPolicy) error {
	p.core, p.spec, p.policy, p.mask = c, spec.Pack, policy, -1
	p.copied.L = &p.mu
	k := spec.Pack
	if k == nil {
		if policy.Timeout != 0 {
			return fmt.Errorf("WithPacking: %w: package %s has no RunPacked; generate --pack makes one", rt.ErrOption, spec.Package)
		}
		return nil
	}
	if policy.MaxEntries > k.Entries {
		return fmt.Errorf("WithPacking: %w: at most %d entries, and the model knows %d", rt.ErrOption, policy.MaxEntries, k.Entries)
	}
	p.plain = packing.New(k.Rows, k.Length, k.Entries, policy)
	for _, role := range []Role{RunInput, RunOutput} {
		for _, a := range spec.Anchors {
			if a.Role != role {
				continue
			}
			i := len(p.tensors)
			if i >= len(k.Tensors) || spec.Iterations != 1 {
				return fmt.Errorf("package %s: %w: %d tensors are packed, in %d iterations", spec.Package, rt.ErrGenerated, len(k.Tensors), spec.Iterations)
			}
			t, err := k.tensor(i, a.Bytes)
			if err != nil {
				return fmt.Errorf("package %s: anchor %q: %w", spec.Package, a.Name, err)
			}
			t.name, t.input = a.Name, role == RunInput
			t.frozen = t.input && c.Frozen(i)
			p.tensors = append(p.tensors, t)
			switch {
			case t.frozen:
			case t.kind == PackNothing && p.missing == "":
				p.missing, p.without = a.GoName, a.Name
			case t.kind == PackMask:
				p.mask = i
			case (t.kind == PackBlocks || t.kind == PackBias) && policy.Algorithm == rt.PackEndToEnd:
				return fmt.Errorf("WithPacking: %w: end to end, and anchor %q keeps sequences apart within rows alone: a sequence that begins in one row and ends in another would be cut",
					rt.ErrOption, a.Name)
			}
		}
	}
	return nil
}

// tensor returns tensor i, which has that many bytes.
func (k *PackSpec) tensor(i, bytes int) (packTensor, error) {
	s := k.Tensors[i]
	t := packTensor{kind: s.Kind, bytes: bytes}
	if s.Kind == PackNothing {
		return t, nil
	}
	positions := k.Rows * k.Length
	fits := s.Parts == positions
	switch s.Kind {
	case PackFirst, PackEntry:
		fits = s.Parts >= k.Entries
	case PackBlocks, PackBias:
		fits = s.Parts == positions*k.Length
	}
	if !fits || s.Parts < 1 || bytes%s.Parts != 0 {
		return t, fmt.Errorf("%w: %d bytes in %d parts, of %d rows of %d positions and %d sequences", rt.ErrGenerated, bytes, s.Parts, k.Rows, k.Length, k.Entries)
	}
	t.part = bytes / s.Parts
	if s.Kind < PackSegments || s.Kind > PackBias {
		return t, nil
	}
	kind, ok := elements[s.Elem]
	if !ok || kind.size != t.part {
		return t, fmt.Errorf("%w: the runner fills elements of %s, %d bytes each", rt.ErrGenerated, s.Elem, t.part)
	}
	t.write = kind.write
	row := func(v int) []byte {
		mem := make([]byte, k.Length*t.part)
		t.write(mem, 0, k.Length, v, 0)
		return mem
	}
	switch s.Kind {
	case PackBlocks:
		t.same, t.other = row(1), row(0)
	case PackBias:
		t.same, t.other = row(0), row(lowest)
	}
	return t, nil
}

// lowest is what is added to the scores of positions that belong to other
// sequences: the lowest number of half precision, which no exponential survives.
const lowest = -65504

// writer fills n elements of mem from element at on: first, first+step, …
type writer func(mem []byte, at, n, first, step int)

// element is a type of elements that the runner can fill.
type element struct {
	size  int
	write writer
}

// elements has them by the names of their Go types.
var elements = map[string]element{
	"bool": {1, func(mem []byte, at, n, first, step int) { series[uint8](mem, at, n, min(first, 1), 0) }},
	"int8": {1, series[int8]}, "int16": {2, series[int16]}, "int32": {4, series[int32]}, "int64": {8, series[int64]},
	"uint8": {1, series[uint8]}, "uint16": {2, series[uint16]}, "uint32": {4, series[uint32]}, "uint64": {8, series[uint64]},
	"float32": {4, series[float32]}, "float64": {8, series[float64]},
	"rt.Float16": {2, func(mem []byte, at, n, first, step int) {
		to := elementsOf[rt.Float16](mem)[at : at+n]
		for i := range to {
			to[i] = num.Float16From(float32(first + i*step))
		}
	}},
}

// series is a writer.
func series[E int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64](mem []byte, at, n, first, step int) {
	to := elementsOf[E](mem)[at : at+n]
	for i := range to {
		to[i] = E(first + i*step)
	}
}

// elementsOf views memory as elements.
func elementsOf[E any](mem []byte) []E {
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/int(unsafe.Sizeof(e)))
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
	switch {
	case err != nil:
	case p.spec == nil:
		err = fmt.Errorf("%w: package without packing", rt.ErrGenerated)
	case len(in) != len(out):
		err = fmt.Errorf("%w: %d sequences and memory for the results of %d", rt.ErrSamples, len(in), len(out))
	case p.missing != "": // the caller can't give it here
		err = &rt.NilAnchorError{Field: "Inputs." + p.missing, Anchor: p.without}
	default:
		err = p.enter()
	}
	if err != nil {
		return c.errorf("run packed", c.NilAnchor(err))
	}
	defer p.exit()
	call := p.newCall()
	for i := range in {
		call.parts = parts(&in[i], &out[i], call.parts)
	}
	err = p.measure(call, len(in))
	if err == nil {
		err = p.compute(ctx, call)
	}
	p.recycleCall(call)
	if err != nil {
		return c.errorf("run packed", err)
	}
	return nil
}

// sequence is what of a caller's sequence is computed: all but the padding at its
// ends.
type sequence struct{ first, n int }

// measure finds how long the sequences of a call are, and refuses those that fit
// nowhere.
func (p *packer) measure(c *packCall, n int) error {
	if len(c.parts) != n*len(p.tensors) {
		return fmt.Errorf("%w: %d parts of %d sequences for %d tensors", rt.ErrGenerated, len(c.parts), n, len(p.tensors))
	}
	for i := range n {
		s, err := p.sequence(c.of(p, i))
		if err == nil {
			err = p.plain.Check(s.n)
		}
		if err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
		c.sequences = append(c.sequences, s)
	}
	return nil
}

// sequence returns what of one is computed.
func (p *packer) sequence(parts []Samples) (sequence, error) {
	n, of := -1, 0
	for i := range p.tensors {
		t := &p.tensors[i]
		switch {
		case t.frozen || t.kind != PackPosition && t.kind != PackMask && t.kind != PackEntry:
		case t.kind == PackEntry:
			if parts[i].n != 1 {
				return sequence{}, fmt.Errorf("%w: the result %q has no memory", rt.ErrSequence, t.name)
			}
		case n < 0:
			n, of = parts[i].n, i
		case parts[i].n != n:
			return sequence{}, fmt.Errorf("%w: %d of %q, but %d of %q", rt.ErrSequence, n, p.tensors[of].name, parts[i].n, t.name)
		}
	}
	s := sequence{n: max(n, 0)}
	if p.mask < 0 {
		return s, nil
	}
	mask, size := parts[p.mask].data, p.tensors[p.mask].part
	for s.n > 0 && zero(mask[(s.n-1)*size:s.n*size]) {
		s.n--
	}
	for s.n > 0 && zero(mask[s.first*size:(s.first+1)*size]) {
		s.first, s.n = s.first+1, s.n-1
	}
	if s.n == 0 && n > 0 {
		return s, fmt.Errorf("%w: %q says that all its %d elements are padding", rt.ErrSequence, p.tensors[p.mask].name, n)
	}
	return s, nil
}

func zero(mem []byte) bool {
	for _, b := range mem {
		if b != 0 {
			return false
		}
	}
	return true
}

// copyIn copies a sequence to its place.
func (p *packer) copyIn(o *pack, parts []Samples, s sequence, at packing.Place) {
	for i := range p.tensors {
		t := &p.tensors[i]
		if t.input && !t.frozen && (t.kind == PackPosition || t.kind == PackMask) {
			clear(o.mem[i][(at.Start-at.Gap)*t.part:][:at.Gap*t.part])
			copy(o.mem[i][at.Start*t.part:], parts[i].data[s.first*t.part:][:s.n*t.part])
		}
	}
}

// copyOut is copyIn for outputs, the other way. index is that of the sequence in its
// run.
func (p *packer) copyOut(o *pack, parts []Samples, s sequence, at packing.Place, index int) {
	for i := range p.tensors {
		switch t := &p.tensors[i]; {
		case t.input:
		case t.kind == PackEntry:
			copy(parts[i].data, o.mem[i][index*t.part:][:t.part])
		default:
			copy(parts[i].data[s.first*t.part:][:s.n*t.part], o.mem[i][at.Start*t.part:])
		}
	}
}

// complete fills what no sequence fills: what lies behind the last of each row, and
// the inputs that keep sequences apart.
func (p *packer) complete(o *pack) {
	for i := range p.tensors {
		t := &p.tensors[i]
		if !t.input || t.frozen {
			continue
		}
		mem := o.mem[i]
		switch t.kind {
		case PackPosition, PackMask:
			o.layout.Rest(func(start, n int) { clear(mem[start*t.part:][:n*t.part]) })
		case PackSegments, PackPositions, PackFirst:
			clear(mem)
			for k, at := range o.places {
				switch t.kind {
				case PackSegments:
					t.write(mem, at.Start, at.N, k+1, 0)
				case PackPositions:
					t.write(mem, at.Start, at.N, 0, 1)
				case PackFirst:
					t.write(mem, k, 1, at.Start, 0)
				}
			}
		case PackBlocks, PackBias:
			p.blocks(o, t, mem)
		}
	}
}

// blocks fills a square for each row: a line for each position, which says of which
// it may know. What belongs to no sequence has the number 0 and may know of its
// like, so that no line is empty: the softmax of nothing is no number.
func (p *packer) blocks(o *pack, t *packTensor, mem []byte) {
	length := p.spec.Length
	line := length * t.part
	numbers := o.numbers
	clear(numbers)
	for k, at := range o.places {
		for i := range at.N {
			numbers[at.Start+i] = int32(k + 1)
		}
	}
	for row := range p.spec.Rows {
		of := numbers[row*length:][:length]
		for i := range length {
			at := mem[(row*length+i)*line:][:line]
			if i > 0 && of[i] == of[i-1] {
				copy(at, mem[(row*length+i-1)*line:])
				continue
			}
			copy(at, t.other)
			for j := 0; j < length; j++ {
				from := j
				for j < length && of[j] == of[i] {
					j++
				}
				copy(at[from*t.part:j*t.part], t.same)
			}
		}
	}
}
