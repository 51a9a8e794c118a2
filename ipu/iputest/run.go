package iputest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu"
)

// run is one run of a program.
type run struct {
	e     *Engine
	p     *programPlan
	ctx   context.Context // cancelled by Stop
	order []int           // p.transfers, as far as it is known to hold
	at    int             // the next transfer in order

	moved  []int // what a portable executable moved
	failed error // of one of its transfers
}

// Run runs a program.
func (e *Engine) Run(ctx context.Context, index int) error {
	fail := func(err error) error { return fmt.Errorf("run program %d: %w", index, err) }
	inner, err := e.enter(ctx)
	if err != nil {
		return fail(err)
	}
	defer e.leave()
	if err := e.runnable(); err != nil {
		return fail(err)
	}
	at := slices.IndexFunc(e.programs, func(p programPlan) bool { return p.Index == index })
	if at < 0 {
		return fail(ipu.ErrUnknownProgram)
	}
	r := &run{e: e, p: &e.programs[at], ctx: inner, order: e.programs[at].transfers}
	if err := r.connected(); err != nil {
		return fail(err)
	}
	if err := e.hold(); err != nil {
		return fail(err)
	}
	e.log(Event{Kind: EventRun, Device: e.device.unit.info.ID, Program: index})
	returned := false
	defer func() {
		if !returned { // the host's code has ended the goroutine, and the device is free all the same
			_ = r.end(ipu.NewExitError())
		}
	}()
	if e.dedicated {
		done := make(chan error)
		go func() {
			defer close(done)
			done <- r.program()
		}()
		if err, returned = <-done; !returned {
			err, returned = ipu.NewExitError(), true
		}
	} else {
		err = r.program()
		returned = true
	}
	if err = r.end(err); err != nil {
		return fail(err)
	}
	return nil
}

// runnable returns why the engine can't run.
func (e *Engine) runnable() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.state {
	case created:
		return ipu.ErrNotLoaded
	case lost:
		return fmt.Errorf("%w: it failed with %v: load it again", ipu.ErrNotLoaded, e.failure)
	case stopped:
		return fmt.Errorf("%w: load it again", ipu.ErrStopped)
	}
	return nil
}

// hold marks the device as running this engine's program.
func (e *Engine) hold() error {
	u := e.device.unit
	e.sys.mu.Lock()
	defer e.sys.mu.Unlock()
	switch {
	case u.holder != e.device:
		return fmt.Errorf("%w: device %d was detached", ipu.ErrNotLoaded, u.info.ID)
	case u.loaded != e && u.loaded != nil:
		return fmt.Errorf("%w: %s was loaded onto device %d since", ipu.ErrNotLoaded, u.loaded.label, u.info.ID)
	case u.loaded != e:
		return fmt.Errorf("%w: something else was loaded onto device %d since", ipu.ErrNotLoaded, u.info.ID)
	}
	u.running = e
	return nil
}

// connected returns an error if streams that the program moves have no host.
func (r *run) connected() error {
	var open []string
	for _, i := range r.p.moves {
		if s := &r.e.streams[i]; s.host == nil {
			open = append(open, fmt.Sprintf("%q", s.info.Handle))
		}
	}
	if open == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ipu.ErrUnconnected, strings.Join(open, ", "))
}

// end gives a run's error its effects, and returns it.
func (r *run) end(err error) error {
	e := r.e
	if err != nil {
		for i := range e.streams {
			e.discard(i, r.p.Index)
		}
	} else if e.inner != nil {
		r.p.transfers = r.moved
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sys.mu.Lock()
	defer e.sys.mu.Unlock()
	u := e.device.unit
	u.running = nil
	if err != nil && context.Cause(r.ctx) == ipu.ErrStopped && !errors.Is(err, ipu.ErrStopped) {
		err = fmt.Errorf("%w: %w", ipu.ErrStopped, err)
	}
	if err != nil && u.suffer(err) && e.state == loaded {
		e.state, e.failure = lost, err
	}
	e.sys.record(Event{Kind: EventDone, Engine: e.label, Device: u.info.ID, Program: r.p.Index, Err: err})
	return err
}

// program executes the program.
func (r *run) program() error {
	if err := r.strike(atRun, "", "start"); err != nil {
		return err
	}
	if err := r.lookAhead(); err != nil {
		return err
	}
	if r.e.inner == nil {
		return r.steps(r.p.steps)
	}
	return r.portable()
}

// portable runs the program of a portable executable.
func (r *run) portable() error {
	r.e.current = r
	defer func() { r.e.current = nil }()
	err := r.e.inner.Run(r.ctx, r.p.Index)
	switch {
	case r.failed != nil:
		return r.failed
	case err != nil && r.ctx.Err() != nil:
		return ended(r.ctx)
	}
	return err
}

// wire is the stream between a portable executable and the device.
type wire struct {
	e *Engine
	i int
}

// Fetch moves one transfer between buf, which is the cpu engine's, and the
// host.
func (w *wire) Fetch(ctx context.Context, buf []byte) error {
	r, s := w.e.current, &w.e.streams[w.i]
	output := s.info.Direction == ipu.DeviceToHost
	if output {
		copy(s.tensor, buf)
	}
	if r.failed = r.transfer(w.i); r.failed == nil && !output {
		copy(buf, s.tensor)
	}
	return r.failed
}

func (w *wire) Prefetch([]byte) bool  { return false }
func (w *wire) Complete()             {}
func (w *wire) InvalidatePrefetched() {}

// ended returns why a call was cancelled: it was stopped, or its context ended.
func ended(ctx context.Context) error {
	if context.Cause(ctx) == ipu.ErrStopped {
		return ipu.ErrStopped
	}
	return ctx.Err()
}

// strike returns the error that was injected for a point of the run.
func (r *run) strike(at point, handle, doing string) error {
	id := r.p.Index
	event := Event{Engine: r.e.label, Device: r.e.device.unit.info.ID, Program: id, Stream: handle}
	return r.e.sys.strike(r.ctx, at, id, event, doing)
}

func (r *run) steps(steps []Step) error {
	for i := range steps {
		if r.ctx.Err() != nil {
			return ended(r.ctx)
		}
		if err := r.step(&steps[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) step(s *Step) error {
	i := r.e.index[s.Stream]
	switch s.Do {
	case doRead, doWrite:
		return r.transfer(i)
	case doCall:
		return r.call(s)
	case doRepeat:
		for range s.Count {
			if r.ctx.Err() != nil {
				return ended(r.ctx)
			}
			if err := r.steps(s.Steps); err != nil {
				return err
			}
		}
	case doWait:
		if err := r.e.sys.clock.Sleep(r.ctx, s.For); err != nil {
			return ended(r.ctx)
		}
	case doHang:
		<-r.ctx.Done()
		return ended(r.ctx)
	case doPrefetch:
		for range s.Count {
			if ok, err := r.ask(i); err != nil || !ok {
				return err
			}
		}
	case doDiscard:
		r.e.discard(i, r.p.Index)
	}
	return nil
}

// call computes a function.
func (r *run) call(s *Step) error {
	of := func(handles []string) [][]byte {
		out := make([][]byte, len(handles))
		for k, h := range handles {
			out[k] = r.e.streams[r.e.index[h]].tensor
		}
		return out
	}
	r.e.log(Event{Kind: EventCall, Device: r.e.device.unit.info.ID, Program: r.p.Index, Detail: s.Func})
	if err := guard(func() error { return r.e.sys.functions[s.Func](of(s.In), of(s.Out)) }); err != nil {
		return &ipu.Error{Kind: ipu.KindApplication, Op: fmt.Sprintf("function %q", s.Func), Err: err}
	}
	return nil
}

// transfer moves one transfer of a stream.
func (r *run) transfer(i int) error {
	s := &r.e.streams[i]
	if r.ctx.Err() != nil {
		return ended(r.ctx)
	}
	if err := r.strike(atTransfer, s.info.Handle, fmt.Sprintf("stream %q", s.info.Handle)); err != nil {
		return err
	}
	if r.at < len(r.order) && r.order[r.at] == i {
		r.at++
	} else {
		r.order = nil // a portable executable does something else this time
	}
	if r.e.inner != nil {
		r.moved = append(r.moved, i)
	}
	if r.moveStaged(i) {
		s.moved++
		return nil
	}
	if err := r.move(s); err != nil {
		return fmt.Errorf("stream %q: %w: %w", s.info.Handle, ipu.ErrCallback, err)
	}
	for k := range r.e.streams {
		r.e.streams[k].refused = false
	}
	return r.lookAhead()
}

func (r *run) move(s *stream) error {
	output := s.info.Direction == ipu.DeviceToHost
	if len(s.ahead) > 0 {
		copy(s.tensor, s.ahead[0])
		s.ahead = slices.Delete(s.ahead, 0, 1)
	} else {
		kind := EventFetch
		buf := r.lend(s)
		if output {
			kind = EventDeliver
			copy(buf, s.tensor)
		}
		r.log(kind, s, s.moved+1, "")
		if err := guard(func() error { return s.host.Fetch(r.ctx, buf) }); err != nil {
			s.poison()
			return err
		}
		switch {
		case !output:
			copy(s.tensor, buf)
		case !bytes.Equal(buf, s.tensor):
			r.log(EventViolation, s, s.moved+1, "the host changed the data of an output")
		}
		s.poison()
	}
	s.moved++
	r.log(EventComplete, s, s.moved, "")
	return guard(func() error {
		s.host.Complete()
		return nil
	})
}

// lookAhead prefetches inputs that the program will read, as far as the depth
// of the streams and the engine's options allow. A stream that refuses is not
// asked again before the next transfer.
func (r *run) lookAhead() error {
	if !r.e.prefetch || len(r.order) == 0 || r.e.staged != nil {
		return nil
	}
	ahead := map[int]int{} // transfers of each stream, on the way
	for k := range r.e.lookahead {
		again := r.at+k >= len(r.order) // as if the program ran again
		if again && (r.at+k)%len(r.order) == 0 && !r.eager() {
			break
		}
		i := r.order[(r.at+k)%len(r.order)]
		s := &r.e.streams[i]
		if again && !s.speculative || s.info.Direction == ipu.DeviceToHost {
			continue
		}
		if ahead[i]++; ahead[i] <= len(s.ahead) || !s.wants() {
			continue
		}
		if _, err := r.ask(i); err != nil {
			return err
		}
	}
	return nil
}

// eager reports whether a stream is to be prefetched past the program's end.
func (r *run) eager() bool {
	return slices.ContainsFunc(r.p.moves, func(i int) bool {
		s := &r.e.streams[i]
		return s.speculative && s.wants()
	})
}

// wants reports whether more of the stream can be prefetched.
func (s *stream) wants() bool {
	return s.info.Direction == ipu.HostToDevice && len(s.ahead) < s.depth && !s.refused
}

// ask asks the host for a transfer ahead of time.
func (r *run) ask(i int) (ok bool, err error) {
	s := &r.e.streams[i]
	if s.host == nil {
		return false, nil
	}
	n := s.moved + len(s.ahead) + 1
	buf := r.lend(s)
	defer s.poison()
	err = guard(func() error {
		ok = s.host.Prefetch(buf)
		return nil
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("prefetch stream %q: %w: %w", s.info.Handle, ipu.ErrCallback, err)
	case ok:
		s.ahead = append(s.ahead, slices.Clone(buf))
		r.log(EventPrefetch, s, n, "")
	default:
		s.refused = true
		r.log(EventPrefetch, s, n, "refused")
	}
	return ok, nil
}

// discard throws away what was prefetched of a stream. program is -1 outside a
// run.
func (e *Engine) discard(i, program int) {
	s := &e.streams[i]
	if len(s.ahead) == 0 {
		return
	}
	s.ahead = nil
	e.log(Event{Kind: EventInvalidate, Device: -1, Program: program, Stream: s.info.Handle})
	if err := guard(func() error {
		s.host.InvalidatePrefetched()
		return nil
	}); err != nil {
		e.log(Event{Kind: EventViolation, Device: -1, Program: program, Stream: s.info.Handle, Detail: err.Error()})
	}
}

func (r *run) log(kind EventKind, s *stream, n int, detail string) {
	r.e.log(Event{Kind: kind, Device: r.e.device.unit.info.ID, Program: r.p.Index, Stream: s.info.Handle, Transfer: n, Detail: detail})
}

// poison is what a buffer holds when it is not lent.
const poison = 0xDB

// lend returns the buffer that the host gets for one call.
func (r *run) lend(s *stream) []byte {
	if s.buffer == nil {
		s.buffer = make([]byte, s.info.Bytes)
		s.poison()
	}
	for _, b := range s.buffer {
		if b != poison {
			r.log(EventViolation, s, s.moved+1, "the host wrote to a buffer after the call that lent it")
			s.poison()
			break
		}
	}
	return s.buffer
}

// poison takes the buffer back from the host.
func (s *stream) poison() {
	for i := range s.buffer {
		s.buffer[i] = poison
	}
}

// guard turns a panic of the host's code into an error.
func guard(f func() error) (err error) {
	defer ipu.Guard(&err)
	return f()
}
