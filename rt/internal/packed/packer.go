package packed

import (
	"fmt"
	"sync"
	"time"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/packing"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// Packer puts sequences of different lengths into the rows of one run. The zero Packer
// is ready for Open.
type Packer struct {
	engine  Engine
	spec    *Spec // nil if the package knows nothing of packing
	policy  rt.PackPolicy
	tensors []tensor
	mask    int    // tensor; -1: there is none
	missing string // Go name of an input that nobody gives, and its anchor's; "" if there is none
	without string
	most    int             // calls that may wait; negative: any number
	plain   *packing.Layout // an empty one

	state
}

// Open makes the packer ready for a model. Beside those that the engine computes at most that
// many calls may wait; a negative number is no limit. Errors: [rt.ErrOption] for a policy that the
// model can't follow, [rt.ErrGenerated] for ports that are not those of the spec.
func (p *Packer) Open(e Engine, m Model, policy rt.PackPolicy, most int) error {
	p.engine, p.spec, p.policy, p.mask, p.most = e, m.Spec, policy, -1, most
	p.copied.L = &p.mu
	k := m.Spec
	if k == nil {
		if policy.Timeout != 0 {
			return fmt.Errorf("WithPacking: %w: package %s has no RunPacked; generate --pack makes one", rt.ErrOption, m.Package)
		}
		return nil
	}
	if policy.MaxEntries > k.Entries {
		return fmt.Errorf("WithPacking: %w: at most %d entries, and the model knows %d", rt.ErrOption, policy.MaxEntries, k.Entries)
	}
	p.plain = packing.New(k.Rows, k.Length, k.Entries, policy)
	for i, a := range m.Ports {
		if i >= len(k.Tensors) || m.Iterations != 1 {
			return fmt.Errorf("package %s: %w: %d tensors are packed, in %d iterations", m.Package, rt.ErrGenerated, len(k.Tensors), m.Iterations)
		}
		t, err := k.tensor(i, a.Bytes)
		if err != nil {
			return fmt.Errorf("package %s: anchor %q: %w", m.Package, a.Name, err)
		}
		t.name, t.input, t.frozen = a.Name, a.Input, a.Frozen
		p.tensors = append(p.tensors, t)
		switch {
		case t.frozen:
		case t.kind == Nothing && p.missing == "":
			p.missing, p.without = a.GoName, a.Name
		case t.kind == Mask:
			p.mask = i
		case (t.kind == Blocks || t.kind == Bias) && policy.Algorithm == rt.PackEndToEnd:
			return fmt.Errorf("WithPacking: %w: end to end, and anchor %q keeps sequences apart within rows alone: a sequence that begins in one row and ends in another would be cut",
				rt.ErrOption, a.Name)
		}
	}
	return nil
}

// state is what a packer's mutex guards.
type state struct {
	mu       sync.Mutex
	copied   sync.Cond // of mu: somebody has copied sequences
	open     *pack     // that takes sequences
	packs    *pack     // that can be used again
	calls    *Call
	waiting  int        // calls with sequences in packs
	active   int        // calls of RunPacked
	draining bool       // no call is let in any more
	empty    chan error // made by Drain: closed once nobody is inside
}

// pack is one run's worth of sequences. Fields are guarded by Packer.mu, and mem by
// who copies, runs or reads its part of it.
type pack struct {
	next    *pack
	layout  *packing.Layout
	places  []packing.Place // of its sequences, in the order in which they came
	numbers []int32         // of the sequence at each position, for blocks
	mem     [][]byte        // of each tensor
	copying int             // calls that are still copying theirs
	first   int64           // when the first sequence came
	shut    bool            // it takes no more: it is full, or the next did not fit
	late    bool            // it could run but for those that are copying
	calls   []*Call         // that have sequences in it and have not left
	leader  *Call           // of these, the one that runs it when it is time
	ended   bool            // err is the result
	err     error
}

// Call is one call of RunPacked.
type Call struct {
	Parts []view.Samples // of each sequence, of each run input and then of each run output

	next      *Call
	sequences []sequence // what of each is computed
	from      int        // index in the pack of the first of those that are in it
	wake      chan struct{}
	timer     *time.Timer
}

// sequence is what of a caller's sequence is computed: all but the padding at its
// ends.
type sequence struct{ first, n int }

// of returns the parts of sequence i.
func (c *Call) of(p *Packer, i int) []view.Samples {
	return c.Parts[i*len(p.tensors):][:len(p.tensors)]
}

// signal makes a call look what became of its pack.
func (c *Call) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Enter lets in a call with so many sequences, and memory for the results of so many; Exit must
// follow, but not an error. Errors: [rt.ErrGenerated] without a [Spec], [rt.ErrSamples] if the
// numbers differ, an [*rt.NilAnchorError] for an input that only a frozen value could give, and
// [rt.ErrClosed] after Drain.
func (p *Packer) Enter(sequences, results int) error {
	switch {
	case p.spec == nil:
		return fmt.Errorf("%w: package without packing", rt.ErrGenerated)
	case sequences != results:
		return fmt.Errorf("%w: %d sequences and memory for the results of %d", rt.ErrSamples, sequences, results)
	case p.missing != "": // the caller can't give it here
		return &rt.NilAnchorError{Field: "Inputs." + p.missing, Anchor: p.without}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return rt.ErrClosed
	}
	p.active++
	return nil
}

// Exit is the end of a call that entered.
func (p *Packer) Exit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active--; p.active == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

// Drain lets nobody in any more, and packs run without waiting for more sequences. The
// channel is closed once nobody is inside.
func (p *Packer) Drain() <-chan error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	if o := p.open; o != nil && o.leader != nil {
		o.leader.signal()
	}
	if p.empty != nil {
		return p.empty
	}
	empty := make(chan error)
	if p.active == 0 {
		close(empty)
	} else {
		p.empty = empty
	}
	return empty
}

// Call returns a call without sequences, for who has entered.
func (p *Packer) Call() *Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls; c != nil {
		p.calls, c.next = c.next, nil
		return c
	}
	return &Call{wake: make(chan struct{}, 1)}
}

// recycleCall keeps a call that has ended, without the caller's memory.
func (p *Packer) recycleCall(c *Call) {
	select {
	case <-c.wake:
	default:
	}
	clear(c.Parts)
	c.Parts, c.sequences = c.Parts[:0], c.sequences[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	c.next, p.calls = p.calls, c
}

// newPack returns an empty pack. mu is held.
func (p *Packer) newPack() *pack {
	if o := p.packs; o != nil {
		p.packs, o.next = o.next, nil
		return o
	}
	k := p.spec
	o := &pack{layout: packing.New(k.Rows, k.Length, k.Entries, p.policy), mem: make([][]byte, len(p.tensors)), numbers: make([]int32, k.Rows*k.Length)}
	for i, t := range p.tensors {
		if !t.frozen {
			o.mem[i] = make([]byte, t.bytes)
		}
	}
	return o
}

// recycle keeps a pack that nobody uses any more. mu is held.
func (p *Packer) recycle(o *pack) {
	clear(o.calls[:cap(o.calls)])
	o.layout.Reset()
	o.calls, o.places, o.leader = o.calls[:0], o.places[:0], nil
	o.shut, o.late, o.ended, o.err = false, false, false, nil
	o.next, p.packs = p.packs, o
}
