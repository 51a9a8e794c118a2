package genrt

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// Family is the [Core] of a model with several sizes: each of its main programs, the
// members, computes tensors of one size, and a request runs one of them. Generated code
// gives a request as a [View] of every run input and then of every run output, in the
// order of the specification.
//
// A request whose sizes are those of a member is computed in the caller's memory. One
// that is smaller, where the model allows that, is copied into memory of the replica,
// filled up, and its results are cut back.
type Family struct {
	Core
	fit      *fitting
	counters []string       // outputs that say how much of others is filled
	room     *budget.Budget // of the memory for requests that are smaller than their member
	slots    []held         // submitted requests
	streams  [][]string     // stream handles in the model by tensor of the family and member
	program  []int          // of each member, in the session's main programs
	padded   int            // bytes that hold the tensors of a request of the largest member
	flows    flows
}

// held is a submitted request.
type held struct {
	views []View
	ask   ask
}

// members are the streams of a replica's members.
type members struct {
	spans  [][]*hostmem.Span // by member and tensor of the code; nil for a frozen input
	counts [][8]byte         // what the outputs that count have said
	count  [][]*hostmem.Span // by member: their windows
	mem    []byte            // of requests that are smaller than their member; made with the first one
	boxes  []*scratch        // by tensor: scratch of who has the engine
}

// OpenFamily is [Core.Open] for a model with several sizes. bindings has no run inputs
// and outputs, which the family binds itself.
func (f *Family) OpenFamily(ctx context.Context, spec *Spec, source Source, bindings func() []Binding, opts ...rt.RunnerOption) error {
	f.Core.family = f
	f.slots = make([]held, max(0, spec.QueueDepth))
	return f.Core.Open(ctx, spec, source, bindings, func(_, slot int) { clear(f.slots[slot].views) }, opts...)
}

// begin looks up what does not depend on a replica.
func (f *Family) begin(ctx context.Context, spec *Spec, found *agreement, o *session.Options) (err error) {
	of := found.contract.Family
	if of == nil || spec.Iterations != 1 {
		return fmt.Errorf("package %s: %w: the model has one size, or %d device iterations", spec.Package, rt.ErrGenerated, spec.Iterations)
	}
	if spec.Trains { // a step would learn of what a request is filled up with
		exact := *of
		exact.Dims = slices.Clone(of.Dims)
		for d := range exact.Dims {
			exact.Dims[d].Rows, exact.Dims[d].Pads = false, nil
		}
		of = &exact
	}
	if f.fit, f.counters, err = fit(spec, of); err != nil {
		return err
	}
	f.fit.trains = spec.Trains
	found.family, o.Members = f, true
	f.room = budget.From(ctx).Part(0)
	meta := &f.model.Metadata
	for i := range of.Tensors {
		handles := make([]string, len(of.Members))
		for m, at := range of.Tensors[i].Anchors {
			handles[m] = meta.Anchors[at].Handle
		}
		f.streams = append(f.streams, handles)
	}
	for m := range of.Members {
		f.program = append(f.program, slices.Index(meta.ProgramFlow.Main, of.Members[m].Program))
		n := 0
		for i := range f.fit.tensors {
			if t := &f.fit.tensors[i]; t.open {
				n = align(n) + t.length[m]*t.elem
			}
		}
		f.padded = max(f.padded, n)
	}
	for i := range f.slots {
		f.slots[i].views = make([]View, len(f.fit.tensors))
	}
	if err := f.flows.init(f, spec.Flow); err != nil {
		return fmt.Errorf("package %s: %w", spec.Package, err)
	}
	return nil
}

// align returns n, rounded up to where a tensor may begin.
func align(n int) int { return (n + 63) &^ 63 }

// streamsOf returns the streams of a run input or output of the specification by member.
func (f *Family) streamsOf(a *AnchorSpec) []string {
	typ := popef.Input
	if a.Role == RunOutput {
		typ = popef.Output
	}
	return f.streams[slices.IndexFunc(f.fit.family.Tensors, func(t family.Tensor) bool { return t.Name == a.Name && t.Type == typ })]
}

// handles returns the streams of an anchor of the specification, each once.
func (f *Family) handles(a *AnchorSpec) []string {
	var out []string
	for _, h := range f.streamsOf(a) {
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// attach connects the streams of every member of a replica.
func (f *Family) attach(r *replica) error {
	s, of := r.session, f.fit.family
	known := map[*family.Tensor]int{}
	r.members = &members{spans: make([][]*hostmem.Span, len(of.Members)), counts: make([][8]byte, len(f.counters)), count: make([][]*hostmem.Span, len(of.Members)), boxes: make([]*scratch, len(f.fit.tensors))}
	for i := range f.fit.tensors {
		t := &f.fit.tensors[i]
		known[t.tensor] = i
		r.members.boxes[i] = newScratch(len(t.tensor.Axes))
	}
	for m := range of.Members {
		r.members.spans[m] = make([]*hostmem.Span, len(f.fit.tensors))
		r.members.count[m] = make([]*hostmem.Span, len(f.counters))
	}
	for i := range of.Tensors {
		t := &of.Tensors[i]
		at, ok := known[t]
		spans := map[string]*hostmem.Span{} // members may share a stream
		for m := range of.Members {
			handle := f.streams[i][m]
			w, connected := spans[handle]
			if !connected {
				var err error
				if w, err = f.connect(s, t, m, handle, ok); err != nil {
					return err
				}
				spans[handle] = w
			}
			if c := slices.Index(f.counters, t.Name); c >= 0 && t.Type == popef.Output {
				r.members.count[m][c] = w
			}
			if !ok {
				continue
			}
			r.members.spans[m][at] = w
		}
	}
	r.run = r.members.spans[0]
	return nil
}

// connect connects one stream and returns its window: nil for one that is frozen, or that the code
// does not know.
func (f *Family) connect(s *session.Session, t *family.Tensor, m int, handle string, known bool) (*hostmem.Span, error) {
	i := s.IndexOf(handle)
	if i < 0 {
		return nil, fmt.Errorf("anchor %q: %w: the executable has no stream %q", t.Name, rt.ErrUnknownStream, handle)
	}
	bytes := t.Elem.Size()
	for k := range t.Axes {
		bytes *= int(t.Axes[k].Of(m))
	}
	if n := s.Infos[i].Bytes; n != bytes {
		return nil, fmt.Errorf("anchor %q: %w: it has %d bytes, and the executable's stream %q moves %d", t.Name, rt.ErrData, bytes, handle, n)
	}
	switch {
	case s.Ends[i] == session.Frozen:
		return nil, nil
	case t.Type == popef.Input && !known:
		return nil, nil // Check says that nothing is connected to it
	case t.Type == popef.Output && !known && !slices.Contains(f.counters, t.Name):
		return nil, s.Attach(i, hostmem.Nothing{}, session.Drained)
	}
	w := &hostmem.Span{Anchor: t.Name, At: ipu.Window{Size: bytes, Count: 1}}
	if t.Type == popef.Input {
		stream := &hostmem.Source{Span: *w}
		w = &stream.Span
		s.Windows = append(s.Windows, w)
		return w, s.Attach(i, sourceEnd{stream}, session.Given)
	}
	stream := &hostmem.Sink{Span: *w}
	w = &stream.Span
	s.Windows = append(s.Windows, w)
	return w, s.Attach(i, sinkEnd{stream}, session.Given)
}

// The ends of a member's streams.
type (
	sourceEnd struct{ *hostmem.Source }
	sinkEnd   struct{ *hostmem.Sink }
)

func (e sourceEnd) Describe() (*hostmem.Span, int) { return &e.Span, e.At.Size }
func (e sinkEnd) Describe() (*hostmem.Span, int)   { return &e.Span, e.At.Size }

// Run computes a request on a replica, which may be [rt.LeastBusy]. It chooses the member, gives the
// outputs their sizes and, where they have too little memory, new memory. Errors that are
// [rt.ErrSize] say that nothing has run.
func (f *Family) Run(ctx context.Context, replica int, views []View) error {
	var a ask
	if err := f.fits(views, &a); err != nil {
		return f.errorf("run", err)
	}
	i, err := f.Begin(ctx, replica)
	if err != nil {
		return err
	}
	if a.exact && !f.fit.counted {
		r := f.replicas[i]
		f.place(r, views, a.member)
		if f.training != nil {
			return f.Step(ctx, i)
		}
		return f.Main(ctx, i)
	}
	return f.visit(ctx, f.replicas[i], views, &a)
}

// fits checks a request, chooses its member and prepares its outputs.
func (f *Family) fits(views []View, a *ask) error {
	if f.fit == nil {
		return rt.ErrClosed
	}
	if err := f.fit.choose(views, a); err != nil {
		return err
	}
	f.fit.prepare(views, a)
	return nil
}

// visit is Run with what comes before and after, while the replica's engine is taken.
func (f *Family) visit(ctx context.Context, r *replica, views []View, a *ask) error {
	defer r.end()
	return f.compute(ctx, r, views, a)
}

// Submit queues a request to a replica. Without wait it returns [rt.ErrQueueFull] where it would wait
// for a place.
func (f *Family) Submit(ctx context.Context, replica int, wait bool, views []View) (rt.Ticket, error) {
	var a ask
	if err := f.fits(views, &a); err != nil {
		return rt.Ticket{}, f.errorf("submit", err)
	}
	slot, err := f.reserve(ctx, replica, wait)
	if err != nil {
		return rt.Ticket{}, err
	}
	own := &f.slots[slot]
	own.ask = a
	copy(own.views, views)
	return f.Enqueue(ctx, slot, replica), nil
}

// serve computes a submitted request, in the worker's goroutine.
func (f *Family) serve(ctx context.Context, r *replica, slot int) error {
	defer forget(r.run)
	own := &f.slots[slot]
	views, a := own.views, own.ask
	defer clear(views)
	return f.compute(ctx, r, views, &a)
}

// compute computes a request while its replica's engine is taken.
func (f *Family) compute(ctx context.Context, r *replica, views []View, a *ask) error {
	if a.exact {
		f.place(r, views, a.member)
	} else if err := f.pad(r, views, a); err != nil {
		return r.session.Errorf("run", err)
	}
	for i, w := range r.members.count[a.member] {
		w.Over(r.members.counts[i][:])
	}
	if f.training != nil { // exact, and nothing is counted
		return f.training.step(ctx, r)
	}
	if err := r.session.Request(ctx); err != nil {
		return err
	}
	if !a.exact {
		f.cut(r, views, a)
	}
	if f.fit.counted {
		if err := f.filled(r, views, a); err != nil {
			return r.session.Errorf("run", err)
		}
	}
	return nil
}

// place points the streams of a member at the memory of a request that is its own size.
func (f *Family) place(r *replica, views []View, member int) {
	r.choose(f, member)
	for i, w := range r.run {
		if w != nil && views[i].data != nil {
			t := &f.fit.tensors[i]
			w.Over(views[i].bytes(t.length[member], t.elem))
		}
	}
}

// choose makes the next request of a replica run a member.
func (r *replica) choose(f *Family, member int) {
	r.session.Choose(f.program[member])
	r.run = r.members.spans[member]
}

// pad points the streams of a member at memory of the replica, and fills the inputs of a request that
// is smaller into it.
func (f *Family) pad(r *replica, views []View, a *ask) error {
	if err := f.scratch(r); err != nil {
		return err
	}
	r.choose(f, a.member)
	at := 0
	for i, w := range r.run {
		t := &f.fit.tensors[i]
		n := t.length[a.member] * t.elem
		switch {
		case w == nil:
			continue
		case !t.open:
			w.Over(views[i].bytes(t.length[a.member], t.elem))
			continue
		}
		b := r.members.boxes[i]
		b.set(t, &views[i], a)
		if _, room := views[i].elements(); i >= f.fit.inputs && room >= t.length[a.member] { // cut where it lies
			w.Over(views[i].bytes(t.length[a.member], t.elem))
			continue
		}
		at = align(at)
		mem := r.members.mem[at:][:n:n]
		at += n
		w.Over(mem)
		if i < f.fit.inputs {
			b.box.Pad(mem, views[i].bytes(t.now(&views[i]), t.elem), t.pad)
		}
	}
	return nil
}

// scratch makes a replica's memory for tensors that are not those of a member.
func (f *Family) scratch(r *replica) error {
	if r.members.mem != nil {
		return nil
	}
	if err := f.room.Take(int64(f.padded), "memory for requests that are smaller than what computes them"); err != nil {
		return err
	}
	r.members.mem = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words(f.padded)))), f.padded)
	return nil
}

// cut copies the results of a request that was smaller than its member to where they belong.
func (f *Family) cut(r *replica, views []View, a *ask) {
	for i := f.fit.inputs; i < len(f.fit.tensors); i++ {
		if t := &f.fit.tensors[i]; t.open {
			r.members.boxes[i].box.Cut(views[i].bytes(t.now(&views[i]), t.elem), r.run[i].At.Block)
		}
	}
}

// filled gives the outputs whose sizes data decided these sizes.
func (f *Family) filled(r *replica, views []View, a *ask) error {
	for i := f.fit.inputs; i < len(f.fit.tensors); i++ {
		t, v := &f.fit.tensors[i], &views[i]
		if len(t.counts) == 0 {
			continue
		}
		b := r.members.boxes[i]
		b.shape(t, v)
		copy(b.big, b.small)
		for _, c := range t.counts {
			n, most := int64(le64(r.members.counts[c.by])), *v.size(c.field)
			if n < 0 || n > int64(most) {
				return fmt.Errorf("anchor %q: %w: it says that %d of at most %d elements along axis %d of anchor %q are filled; compile the model with a larger bound (--max), or bring data of which there is less",
					f.counters[c.by], rt.ErrData, n, most, c.axis, t.spec.Name)
			}
			b.small[c.axis] = int(n)
		}
		for _, c := range t.counts {
			*v.size(c.field) = b.small[c.axis]
		}
		all := v.bytes(t.count(b.of(t, b.big)), t.elem)
		n := t.now(v)
		b.box.Set(b.small, b.big, t.scalar)
		b.box.Cut(all[:n*t.elem], all)
		v.resize(n, n, t.elem)
	}
	return nil
}

// Close ends the runner and gives back its memory, see [Core.Close].
func (f *Family) Close() error {
	err := f.Core.Close()
	if f.room != nil {
		f.flows.mu.Lock()
		defer f.flows.mu.Unlock()
		f.flows.released = true
		f.room.Release()
	}
	return err
}

// Shutdown is [Core.Shutdown].
func (f *Family) Shutdown(ctx context.Context) error {
	if f.queue == nil {
		return f.Close()
	}
	ended := f.drained(ctx)
	return callerr.Join(ended, f.Close())
}
