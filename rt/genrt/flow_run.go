package genrt

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/sizes"
)

// flows lets requests of several streams share a run, where streams are rows that are independent of each
// other.
type flows struct {
	family *Family
	rows   []int   // by tensor: the axis that counts them; -1 where all of a run share the tensor
	group  []int   // by member: those of one group differ in their rows alone
	groups []alike // by group

	mu       sync.Mutex
	open     []*joint // by group: the one that takes requests
	free     *joint
	waiting  int        // requests that have not ended
	draining bool       // no request is let in any more
	released bool       // the family's budget has been given back
	empty    chan error // made by drain: closed once no request is under way
}

// alike are members that differ in their rows alone.
type alike struct {
	members []int
	most    int           // rows
	pieces  *sizes.Pieces // nil where streams are no rows
}

// joint is the requests of several streams that share runs. Its fields are guarded by flows.mu.
type joint struct {
	next        *joint
	group       int
	calls       []*Flow
	leader      *Flow // of these, the one that runs it when it is time
	first, last int64 // when requests came
	shut        bool  // it takes no more
	begun       bool  // its runs read and write the callers' memory
	ended       bool
}

// init looks up what streams of a family have in common.
func (fl *flows) init(f *Family, spec *FlowSpec) error {
	fl.family = f
	if spec == nil {
		return nil
	}
	of := f.fit.family
	if spec.Rows >= len(of.Dims) || spec.Past >= len(of.Dims) || spec.Rows >= 0 && !of.Dims[spec.Rows].Rows {
		return fmt.Errorf("%w: streams are rows of dimension %d and grow along dimension %d, of %d", rt.ErrGenerated, spec.Rows, spec.Past, len(of.Dims))
	}
	for i := range f.fit.tensors {
		at := -1
		for k, x := range f.fit.tensors[i].tensor.Axes {
			if spec.Rows >= 0 && x.Dim == spec.Rows {
				at = k
			}
		}
		fl.rows = append(fl.rows, at)
	}
	others := func(m int) string {
		own := append([]int64(nil), of.Members[m].Sizes...)
		if spec.Rows >= 0 {
			own[spec.Rows] = 0
		} else {
			own = []int64{int64(m)}
		}
		return fmt.Sprint(own)
	}
	known := map[string]int{}
	for m := range of.Members {
		g, ok := known[others(m)]
		if !ok {
			g = len(fl.groups)
			known[others(m)] = g
			fl.groups = append(fl.groups, alike{most: 1})
		}
		fl.group = append(fl.group, g)
		fl.groups[g].members = append(fl.groups[g].members, m)
	}
	for g := range fl.groups {
		if spec.Rows < 0 || f.fit.counted {
			continue
		}
		one := &family.Family{Dims: of.Dims[spec.Rows : spec.Rows+1]}
		for _, m := range fl.groups[g].members {
			one.Members = append(one.Members, family.Member{Sizes: of.Members[m].Sizes[spec.Rows : spec.Rows+1], Cost: of.Members[m].Cost})
		}
		fl.groups[g].pieces = sizes.NewPieces(one)
		fl.groups[g].most = fl.groups[g].pieces.Most()
	}
	fl.open = make([]*joint, len(fl.groups))
	return nil
}

// take counts memory of a stream on the family's budget, and give takes it back.
func (fl *flows) take(n int64, what string, args ...any) error {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.released {
		return rt.ErrClosed
	}
	return fl.family.room.Take(n, what, args...)
}

func (fl *flows) give(n int64) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if n > 0 && !fl.released {
		fl.family.room.Give(n)
	}
}

// run computes the request of a stream, with those of others that wait.
func (fl *flows) run(ctx context.Context, s *Flow) error {
	if err := fl.compute(ctx, s); err != nil {
		return fl.family.errorf("run a stream", err)
	}
	s.ended()
	return nil
}

func (fl *flows) compute(ctx context.Context, s *Flow) error {
	most := fl.family.batcher.most
	fl.mu.Lock()
	switch {
	case fl.draining:
		fl.mu.Unlock()
		return rt.ErrClosed
	case most >= 0 && fl.waiting >= most+len(fl.family.replicas):
		fl.mu.Unlock()
		return rt.ErrOverloaded
	}
	fl.waiting++
	o := fl.join(s)
	fl.mu.Unlock()
	over := false
	defer func() {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		if !over { // code of the caller has ended this goroutine
			fl.leave(s, o)
		}
		if fl.waiting--; fl.waiting == 0 && fl.empty != nil {
			close(fl.empty)
			fl.empty = nil
		}
	}()
	err := fl.attend(ctx, s, o)
	over = true
	return err
}

// join puts a request into the open joint of its group, or begins another. mu is held.
func (fl *flows) join(s *Flow) *joint {
	g := fl.group[s.ask.member]
	o := fl.open[g]
	if o != nil && !fl.shares(o.calls[0], s) {
		fl.close(o)
		o = nil
	}
	at := line.Now()
	if o == nil {
		if o = fl.free; o == nil {
			o = &joint{}
		}
		fl.free, o.next = o.next, nil
		fl.open[g], o.group, o.leader, o.first = o, g, s, at
	}
	o.calls, o.last, s.err = append(o.calls, s), at, nil
	if len(o.calls) == fl.groups[g].most {
		fl.close(o)
	}
	return o
}

// shares reports whether requests have the same in all inputs that have no rows. mu is held.
func (fl *flows) shares(a, b *Flow) bool {
	for i := range fl.family.fit.inputs {
		if fl.rows[i] >= 0 || fl.family.Frozen(i) {
			continue
		}
		t := &fl.family.fit.tensors[i]
		for k := range t.fields {
			if *a.views[i].size(k) != *b.views[i].size(k) {
				return false
			}
		}
		if n := t.have(&a.views[i]); !bytes.Equal(a.views[i].bytes(n, t.elem), b.views[i].bytes(n, t.elem)) {
			return false
		}
	}
	return true
}

// have returns how many elements a view has, that of a tensor without open dimensions too.
func (t *fitted) have(v *View) int {
	if t.open {
		return t.now(v)
	}
	return t.length[0]
}

// close makes a joint take no more requests. mu is held.
func (fl *flows) close(o *joint) {
	if fl.open[o.group] == o {
		fl.open[o.group] = nil
	}
	o.shut = true
	o.leader.signal()
}

// signal makes the caller of a stream look what became of its request.
func (s *Flow) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// attend waits until a request has ended, and runs its joint if it leads that.
func (fl *flows) attend(ctx context.Context, s *Flow, o *joint) error {
	for {
		fl.mu.Lock()
		if o.ended {
			err := s.err
			fl.leave(s, o)
			fl.mu.Unlock()
			return err
		}
		wait, forever, begun := time.Duration(0), true, o.begun
		if o.leader == s && !begun {
			wait, forever = fl.lingers(o)
		}
		fl.mu.Unlock()
		var err error
		if !forever && wait <= 0 {
			err = fl.lead(ctx, s, o)
		} else {
			err = fl.await(ctx, s, wait, forever, begun)
		}
		if err == nil {
			continue
		}
		fl.mu.Lock()
		if !o.begun { // else its memory is in use, and the end is near
			fl.leave(s, o)
			fl.mu.Unlock()
			return err
		}
		fl.mu.Unlock()
	}
}

// lingers returns how long a joint still waits for requests. mu is held.
func (fl *flows) lingers(o *joint) (wait time.Duration, forever bool) {
	if o.shut || fl.draining {
		return 0, false
	}
	p, at := fl.family.batcher.policy, line.Now()
	wait, forever = p.Linger-time.Duration(at-o.first), p.Linger == rt.Forever
	if p.Quiet > 0 {
		if quiet := p.Quiet - time.Duration(at-o.last); forever || quiet < wait {
			wait = quiet
		}
		forever = false
	}
	return wait, forever
}

// await waits until somebody wakes s, or wait is over. Once the joint has begun nothing else ends it.
func (fl *flows) await(ctx context.Context, s *Flow, wait time.Duration, forever, begun bool) error {
	if begun {
		<-s.wake
		return nil
	}
	var timeout <-chan time.Time
	if !forever {
		if s.timer == nil {
			s.timer = time.NewTimer(wait)
		} else {
			s.timer.Reset(wait)
		}
		defer s.timer.Stop()
		timeout = s.timer.C
	}
	select {
	case <-s.wake:
	case <-timeout:
	case <-line.DoneOf(ctx):
		return ctx.Err()
	case <-fl.family.done:
		return rt.ErrClosed
	}
	return nil
}

// lead runs a joint for its leader. It returns an error if the leader gives up before it has an engine.
func (fl *flows) lead(ctx context.Context, s *Flow, o *joint) error {
	replica, err := fl.family.Core.visit(ctx, rt.LeastBusy, line.Leader)
	if err != nil && ctx.Err() != nil {
		return err // leave makes another lead
	}
	fl.mu.Lock()
	fl.close(o)
	o.begun = true
	if len(o.calls) > 1 {
		ctx = context.Background() // one caller's context must not end the requests of others
	}
	fl.mu.Unlock()
	over := false
	defer func() {
		if !over { // code of the caller has ended this goroutine
			err = ipu.NewExitError()
		}
		fl.mu.Lock()
		defer fl.mu.Unlock()
		o.ended = true
		for _, c := range o.calls {
			if c.err == nil {
				c.err = err
			}
			if c != s {
				c.signal()
			}
		}
	}()
	if err == nil {
		fl.pieces(ctx, replica, o)
	}
	over = true
	return nil
}

// leave ends the part of a stream in a joint. mu is held.
func (fl *flows) leave(s *Flow, o *joint) {
	for i, c := range o.calls {
		if c == s {
			o.calls = append(o.calls[:i], o.calls[i+1:]...)
			break
		}
	}
	select {
	case <-s.wake:
	default:
	}
	switch {
	case len(o.calls) == 0:
		if fl.open[o.group] == o {
			fl.open[o.group] = nil
		}
		clear(o.calls[:cap(o.calls)])
		*o = joint{next: fl.free, calls: o.calls}
		fl.free = o
	case o.leader == s && !o.ended:
		o.leader = o.calls[0]
		o.leader.signal()
	}
}

// drain lets nobody in any more, and joints run without waiting for more requests. The channel is closed once no
// request is under way.
func (fl *flows) drain() <-chan error {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.draining = true
	for _, o := range fl.open {
		if o != nil {
			o.leader.signal()
		}
	}
	if fl.empty != nil {
		return fl.empty
	}
	empty := make(chan error)
	if fl.waiting == 0 {
		close(empty)
	} else {
		fl.empty = empty
	}
	return empty
}

// pieces computes the requests of a joint by the members that take the least time, on a replica whose engine the
// caller has, and leaves it.
func (fl *flows) pieces(ctx context.Context, replica int, o *joint) {
	f := fl.family
	r, g, runs := f.replicas[replica], &fl.groups[o.group], uint64(0)
	defer func() {
		forget(r.run)
		r.session.Gate.Depart(runs)
	}()
	calls := o.calls
	for len(calls) > 0 {
		member, n, m, due := calls[0].ask.member, 1, 0, false
		if g.pieces != nil {
			fl.mu.Lock()
			m = g.pieces.First(len(calls))
			due = g.pieces.Due(m)
			fl.mu.Unlock()
			member, n = g.members[m], g.pieces.Size(m)
		}
		now := calls[:min(n, len(calls))]
		begun := int64(0)
		if due {
			begun = line.Now()
		}
		runs++
		err := fl.together(ctx, r, member, n, now)
		for _, c := range now {
			c.err = err
		}
		if err == nil && due {
			fl.mu.Lock()
			g.pieces.Took(m, float64(line.Now()-begun))
			fl.mu.Unlock()
		}
		calls = calls[len(now):]
	}
}

// together computes the requests of several streams in one run of a member of n rows.
func (fl *flows) together(ctx context.Context, r *replica, member, n int, calls []*Flow) error {
	f := fl.family
	var panicked error
	if len(calls) < n {
		panicked = r.session.Observe(rt.Event{Kind: rt.EventFlushed, Samples: len(calls)})
	}
	r.choose(f, member)
	at := 0
	for i, w := range r.run {
		t := &f.fit.tensors[i]
		if w == nil {
			continue
		}
		if v := &calls[0].views[i]; !t.open || len(calls) == n && n == 1 && calls[0].direct(i, member) {
			w.Over(v.bytes(t.length[member], t.elem))
			continue
		}
		if err := f.scratch(r); err != nil {
			return r.session.Errorf("run a stream", err)
		}
		at = align(at)
		bytes := t.length[member] * t.elem
		mem := r.members.mem[at:][:bytes:bytes]
		at += bytes
		w.Over(mem)
		if i >= f.fit.inputs {
			continue
		}
		if len(calls) < n {
			clear(mem)
		}
		for k, c := range calls {
			if fl.rows[i] < 0 && k > 0 {
				break // all have the same
			}
			row := fl.row(r, i, member, c, k)
			r.members.boxes[i].box.Pad(mem[row:], c.views[i].bytes(t.now(&c.views[i]), t.elem), t.pad)
		}
	}
	if f.fit.counted {
		for i, w := range r.members.count[member] {
			w.Over(r.members.counts[i][:])
		}
	}
	if err := callerr.Also(r.session.Request(ctx), panicked); err != nil {
		return err
	}
	for i := f.fit.inputs; i < len(f.fit.tensors); i++ {
		t, mem := &f.fit.tensors[i], r.run[i].At.Block
		for k, c := range calls {
			v := &c.views[i]
			switch {
			case c.adds(i, mem, member, fl.rows[i], k):
			case !t.open && k > 0:
				copy(v.bytes(t.length[member], t.elem), mem)
			case t.open && !(len(calls) == n && n == 1 && c.direct(i, member)):
				row := fl.row(r, i, member, c, k)
				r.members.boxes[i].box.Cut(v.bytes(t.now(v), t.elem), mem[row:])
			}
		}
	}
	if f.fit.counted {
		if err := f.filled(r, calls[0].views, &calls[0].ask); err != nil {
			return r.session.Errorf("run a stream", err)
		}
	}
	return nil
}

// row makes the box of a tensor that of row k of a member, which is the request of a stream, and returns where
// it begins.
func (fl *flows) row(r *replica, i, member int, s *Flow, k int) int {
	t, b, axis := &fl.family.fit.tensors[i], r.members.boxes[i], fl.rows[i]
	b.shape(t, &s.views[i])
	copy(b.big, t.shape[member])
	if axis < 0 {
		b.box.Set(b.small, b.big, t.scalar)
		return 0
	}
	b.box.SetRow(b.small, b.big, t.scalar, axis)
	if k == 0 {
		return 0
	}
	return k * b.box.Stride(axis)
}

// direct reports whether a member may read or write tensor i where it lies: it has the member's own sizes.
func (s *Flow) direct(i, member int) bool {
	t := &s.family.fit.tensors[i]
	for k, n := range t.own[member] {
		if *s.views[i].size(k) != n {
			return false
		}
	}
	return i < s.family.fit.inputs || !s.cached(i)
}

// cached reports whether tensor i is an output that is put behind a cache.
func (s *Flow) cached(i int) bool {
	for k := range s.kept {
		if s.kept[k].Grows > 0 && s.family.fit.inputs+s.kept[k].Output == i {
			return true
		}
	}
	return false
}

// adds keeps what a request has added to a cache, row k of tensor i of a member, and reports whether
// the tensor is one.
func (s *Flow) adds(i int, mem []byte, member, axis, k int) bool {
	if !s.cached(i) {
		return false
	}
	for j := range s.kept {
		o := &s.kept[j]
		if o.Grows == 0 || s.family.fit.inputs+o.Output != i {
			continue
		}
		t, at := &s.family.fit.tensors[i], 0
		copy(o.box.big, t.shape[member])
		for d := range t.tensor.Axes {
			o.box.small[d] = o.box.big[d]
			if t.tensor.Axes[d].Dim == s.spec.Past {
				o.box.small[d], at = o.Grows, d
			}
		}
		if axis >= 0 {
			o.box.small[axis] = 1
		}
		o.box.box.Set(o.box.small, o.box.big, t.scalar)
		from := 0
		if s.class > 0 {
			from = s.class * o.box.box.Stride(at)
		}
		if k > 0 {
			from += k * o.box.box.Stride(axis)
		}
		o.box.box.Cut(o.fresh, mem[from:])
	}
	return true
}
