package modelrt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/ring"
)

// loop is what a run loop and those that enqueue have in common.
type loop struct {
	idle   atomic.Bool   // the run loop waits, or is about to
	parker chan struct{} // capacity 1; where it does
	spin   *ring.Spinner // of the device side
	halted atomic.Bool   // the session was stopped since the loop began

	mu       sync.Mutex
	ended    chan error // closed when the loop ends; nil if there is none
	draining bool       // it ends when nothing is left to do
}

// wake makes a run loop that waits for requests look again.
func (l *loop) wake() {
	if l.idle.Load() && l.idle.CompareAndSwap(true, false) {
		select {
		case l.parker <- struct{}{}:
		default:
		}
	}
}

// search looks whether there is work. If there is none, the loop is idle from now
// on, and who brings work wakes it: what came before that was to be seen, a second
// look finds.
func (l *loop) search(look func() (work bool, err error)) (work bool, err error) {
	if work, err = look(); work || err != nil {
		return work, err
	}
	l.idle.Store(true)
	if work, err = look(); work || err != nil {
		l.idle.Store(false)
	}
	return work, err
}

// await waits until somebody wakes the loop, or ctx ends.
func (l *loop) await(ctx context.Context) {
	if l.spin.Watch(&l.idle) {
		return
	}
	select {
	case <-l.parker:
	case <-ctx.Done():
	}
	l.idle.Store(false)
}

// begin notes that a loop runs, unless one does already.
func (l *loop) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return false
	}
	l.ended = make(chan error)
	l.halted.Store(false)
	return true
}

func (l *loop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.ended)
	l.ended = nil
}

// drain makes the loop end when nothing is left to do. The channel is closed
// when it has ended, at once if there is none.
func (l *loop) drain() <-chan error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	if l.ended == nil {
		none := make(chan error)
		close(none)
		return none
	}
	return l.ended
}

func (l *loop) drains() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// Run is the device side of the queues: it runs the main programs, as
// [rt.Session.Run] does, whenever something has been enqueued to their inputs (to
// their outputs, if no input has a queue), and waits while there is nothing,
// without the engine: other calls of the session need not wait then, and no
// dummy data moves. It blocks; call it in a goroutine of its own, of an errgroup
// for instance. It returns
//
//   - nil once the session was stopped, shut down or closed. [rt.Session.Shutdown]
//     lets it compute what was enqueued before: batches that are not full are
//     filled up with dummy samples;
//   - ctx's error if that ends, as what else runs in an errgroup does: who
//     cancelled it knows what it means;
//   - [ErrDisconnected] if somebody disconnected the queues;
//   - [rt.ErrConcurrent] while another Run of these queues goes on;
//   - [rt.ErrOption] if no queue belongs to a main program;
//   - else the first failure: of a program, the device, a function of a stream.
//
// Unless Run never began, everything that is left in the queues of the main
// programs has then been returned with [ErrDisconnected] and the failure,
// and so fails what is enqueued later: nobody waits for results that never come.
// Run waits for that until nobody else drives the engine: another call that
// computes at that moment ends first, by itself, by its context, Stop or Close.
// After a failure that can be overcome, [QueueManager.ResetAll] makes the queues
// usable and Run goes on; the device itself is reset by [rt.AutoReset] or
// [rt.Session.Reload].
func (m *QueueManager) Run(ctx context.Context) error {
	const doing = "run queues"
	s := m.session
	if len(m.main) == 0 {
		return s.Errorf(doing, fmt.Errorf("%w: no queue belongs to a main program", rt.ErrOption))
	}
	if !m.loop.begin() {
		return s.Errorf(doing, fmt.Errorf("%w: another Run of these queues goes on", rt.ErrConcurrent))
	}
	defer m.loop.end()
	exited := true
	defer func() {
		if exited { // code of the caller has ended the goroutine
			_ = m.giveUp(s.Errorf(doing, callerr.ErrExit))
		}
	}()
	for {
		idle, err := m.step(ctx)
		if err == nil && idle {
			m.loop.await(ctx)
			if err = ctx.Err(); err != nil {
				err = m.giveUp(s.Errorf(doing, err))
			}
		}
		exited = err == nil
		switch {
		case err == nil:
		case m.over() && (errors.Is(err, rt.ErrStopped) || errors.Is(err, rt.ErrClosed) || errors.Is(err, ErrDisconnected)):
			return nil
		default:
			return err
		}
	}
}

// over reports whether the session was stopped or closed, or shuts down.
func (m *QueueManager) over() bool {
	return m.loop.halted.Load() || m.session.Halted.Load() || m.session.Gate.Shut() || m.loop.drains()
}

// step runs the main programs once, or tells that there is nothing to do.
func (m *QueueManager) step(ctx context.Context) (idle bool, err error) {
	const doing = "run queues"
	s := m.session
	asked := int64(0)
	if s.Count.Times != nil {
		asked = line.Now()
	}
	if err := s.Gate.Visit(ctx, line.Leader); err != nil {
		err = s.Errorf(doing, s.Cause(err))
		if !s.Gate.Shut() { // else Close returns it
			err = m.giveUp(err)
		}
		return false, err
	}
	served := uint64(0)
	defer func() { s.Gate.Depart(served) }()
	work, err := m.loop.search(func() (bool, error) { return m.look(ctx) })
	if !work && err == nil {
		return true, nil
	}
	if work {
		served = 1
		if t := s.Count.Times; t != nil {
			t.Begin(asked)
		}
		err = s.Request(ctx)
	}
	if err != nil && (!m.loop.halted.Load() || !m.connected()) { // else somebody has reset the queues since it was stopped
		err = m.handBack(err)
	}
	return false, err
}

// look says whether there is something to run, or why nothing is to be run any
// more, for who holds the gate.
func (m *QueueManager) look(ctx context.Context) (work bool, err error) {
	draining := m.loop.drains()
	if draining {
		m.complete()
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case m.loop.halted.Load():
		err = rt.ErrStopped
	case !m.connected():
		err = m.disconnected()
	case m.requested():
		return true, nil
	case draining:
		err = rt.ErrClosed
	default:
		return false, nil
	}
	return false, m.session.Errorf("run queues", err)
}

// giveUp is handBack for who does not hold the gate. It waits for whoever does: a
// program that waits for data of the queues comes to its end now, any other one
// with its context, Stop or Close, as ever. Nothing but Close turns a stayer
// away, and Close returns it.
func (m *QueueManager) giveUp(why error) error {
	m.disconnectMain()
	if m.session.Gate.Visit(context.Background(), line.Stayer) != nil {
		return why
	}
	defer m.session.Gate.Depart(0)
	if m.connected() { // somebody has reset the queues meanwhile: what is in them is for the next Run
		return why
	}
	return m.handBack(why)
}

// handBack leaves the queues of the main programs empty and disconnected, for
// who holds the gate. It returns why, and the panics of functions that were called.
func (m *QueueManager) handBack(why error) error {
	if !errors.Is(why, ErrDisconnected) {
		m.why.Store(&why)
	}
	m.disconnectMain()
	var errs []error
	for _, q := range m.inputs {
		if slices.Contains(m.main, &q.ringQueue) {
			errs = append(errs, q.restart(false))
		}
	}
	for _, q := range m.outputs {
		if slices.Contains(m.main, &q.ringQueue) {
			errs = append(errs, q.restart(false))
		}
	}
	if err := callerr.Join(errs...); err != nil {
		return callerr.Join(why, err)
	}
	return why
}

func (m *QueueManager) disconnectMain() {
	for _, q := range m.backwards() {
		if slices.Contains(m.main, q) {
			q.Disconnect()
		}
	}
}

// requested reports whether something is there for a run to begin with, for who
// holds the gate.
func (m *QueueManager) requested() bool {
	for _, q := range m.main {
		if q.begins && q.ring.Unfinished() {
			return true
		}
	}
	return false
}

// connected reports whether no queue of the main programs is disconnected.
func (m *QueueManager) connected() bool {
	return !slices.ContainsFunc(m.main, func(q *ringQueue) bool { return !q.Connected() })
}

// disconnected is [ErrDisconnected], with the reason if it is known.
func (m *QueueManager) disconnected() error {
	if why := m.why.Load(); why != nil {
		return fmt.Errorf("%w: %w", ErrDisconnected, m.session.About.Without(*why))
	}
	return ErrDisconnected
}

// drain refuses what is to be enqueued from now on, and makes Run end when all
// that was enqueued before is computed. The channel is closed when it has ended.
func (m *QueueManager) drain() <-chan error {
	m.lock()
	for _, q := range m.main {
		q.draining = true
	}
	m.unlock()
	for _, q := range m.main {
		q.ring.WakeWriter() // who waits for room
	}
	ended := m.loop.drain()
	m.complete() // a program may wait for the rest of a batch
	m.loop.wake()
	return ended
}

// complete adds dummy samples so that the batches of a whole number of runs are
// full. Where a request has been enqueued in part, nothing can be computed any
// more without mixing requests up: the queues are disconnected.
func (m *QueueManager) complete() {
	m.lock()
	err := m.even(nil, m.session.DeviceIterations())
	m.unlock()
	if errors.Is(err, ErrUnbalanced) {
		m.why.Store(&err)
		m.DisconnectAll()
	}
}
