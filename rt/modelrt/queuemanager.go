package modelrt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/session"
	"github.com/popefgen/popefgen/rt/ring"
)

// The errors of queue managers, for errors.Is.
var (
	// ErrUnknownQueue: there is no queue for that name. The error is an
	// [*UnknownQueueError].
	ErrUnknownQueue = errors.New("no such queue")
	// ErrUnbalanced: not as much was enqueued to one queue as to another, so
	// that nobody can tell which samples dummy data would belong to: a request
	// has been enqueued to some of its queues only. Flush later.
	ErrUnbalanced = errors.New("queues are unbalanced")
	// ErrQueueManager: the session has a queue manager already.
	ErrQueueManager = errors.New("session has a queue manager already")
)

// UnknownQueueError says which queue does not exist.
type UnknownQueueError struct {
	Name      string        // what was asked for
	Direction ipu.Direction // of the queue
	Known     []string      // the names that there are
}

// Error names the queue and those that there are.
func (e *UnknownQueueError) Error() string {
	kind := "input"
	if e.Direction == ipu.DeviceToHost {
		kind = "output"
	}
	return fmt.Sprintf("%s queue %q: %v; there are %q", kind, e.Name, ErrUnknownQueue, e.Known)
}

// Is reports whether target is [ErrUnknownQueue].
func (e *UnknownQueueError) Is(target error) bool { return target == ErrUnknownQueue }

// QueueConfig says how the queues of a session are to be made. Its zero value
// makes a queue for every anchor that the caller has to give data or memory
// for.
type QueueConfig struct {
	// RingSize tells for how many batches a queue has room; nil means
	// [RingSizeForMain] of 2 and 1.
	RingSize RingSize
	// Batch tells how many samples a transfer of an anchor has; nil means its
	// first dimension for anchors of main programs, and one for others, whose
	// tensors are weights and the like.
	Batch func(Anchor) int
	// Inputs and Outputs say which anchors get a queue ([BindUser]), which an
	// empty end, and which stay as they are. nil means a queue for every anchor
	// but those that the model's files or an option give data for, and those
	// that no program of the flow moves.
	Inputs, Outputs CallbackPredicate
	// OnTimeout, if not nil, is called when the device has waited for an input
	// for as long as Timeout, and again after every Timeout, until there is
	// data or the queue is disconnected. It runs in the device's goroutine and
	// must not wait for a queue. [FlushOnTimeout] is what most need.
	OnTimeout func(*QueueManager, *InputQueue)
	// Timeout of 0 means never.
	Timeout time.Duration
	// Spin is for how many rounds the device side watches a queue before it
	// parks, see [ring.Spinner]; 0 makes it park at once.
	Spin int
}

// FlushOnTimeout lets the device go on with dummy data after it has waited for
// QueueConfig.Timeout: it is [QueueManager.FlushStarved], whose errors mean
// that it will be called again.
func FlushOnTimeout(m *QueueManager, q *InputQueue) { _ = m.FlushStarved(q) }

// QueueManager has the queues of a session. It is the session's: Stop and
// Close disconnect them. So does a run that fails after it has moved data: what
// it read is gone and the results never come, so that everything behind would
// get those of others. [QueueManager.ResetAll] makes them usable again.
//
// [QueueManager.Run] is the device side. Any goroutine may enqueue, and flush. A
// request that goes to several queues is enqueued by a [QueueManager.Group]: one
// that enqueues to them one after the other must not overlap with another that
// does.
type QueueManager struct {
	session *session.Session
	inputs  []*InputQueue
	outputs []*OutputQueue
	all     []*ringQueue // inputs, then outputs
	main    []*ringQueue // those of all that main programs move
	loop    loop
	why     atomic.Pointer[error] // why the queues were disconnected, if Run did it
}

// NewQueueManager makes queues for anchors of the model and connects them. A
// session has one queue manager at most ([ErrQueueManager]), and can't get rid
// of it. A model of several sizes has no queues ([rt.ErrSeveralSizes]), as a run computes one of them.
// ctx is as for [rt.Session.Connect].
func NewQueueManager(ctx context.Context, of rt.Session, c QueueConfig) (*QueueManager, error) {
	const doing = "make queues"
	s := session.Of(of)
	if err := s.Begin(ctx); err != nil {
		return nil, s.Errorf(doing, err)
	}
	defer s.Gate.Release(0)
	m, err := makeQueues(s, c)
	if err != nil {
		return nil, s.Errorf(doing, err)
	}
	return m, nil
}

// makeQueues is NewQueueManager for who holds the gate.
func makeQueues(s *session.Session, c QueueConfig) (*QueueManager, error) {
	if s.Feeder.Load() != nil {
		return nil, ErrQueueManager
	}
	if err := s.CheckOneSize(); err != nil {
		return nil, err
	}
	if s.Contract().Uneven() {
		return nil, fmt.Errorf("%w: a run moves inputs and outputs another number of times each, and queues give each as many transfers as the others; connect a stream or a Buffer to each instead", rt.ErrOption)
	}
	m := &QueueManager{session: s, loop: loop{parker: make(chan struct{}, 1), spin: ring.NewSpinner(c.Spin)}}
	if err := m.make(c); err != nil {
		return nil, err
	}
	s.WhenStopped(m.stop)
	s.WhenClosed(m.close)
	s.Feeder.Store(&session.Feeder{Ended: m.ended, Drain: m.drain, Owner: m})
	return m, nil
}

// Queues returns what [NewQueueManager] made for a session, nil before.
func Queues(of rt.Session) *QueueManager {
	if f := session.Of(of).Feeder.Load(); f != nil {
		return f.Owner.(*QueueManager)
	}
	return nil
}

// make makes and connects every queue.
func (m *QueueManager) make(c QueueConfig) (err error) {
	defer ipu.Guard(&err) // it asks the caller for sizes and policies
	s := m.session
	if c.RingSize == nil {
		c.RingSize = RingSizeForMain(s.Contract(), 2, 1)
	}
	if c.Batch == nil {
		c.Batch = func(a Anchor) int { return batchOf(s.Contract(), a) }
	}
	queues := map[int]ipu.Stream{} // by index of the stream
	for _, a := range s.Contract().Anchors {
		i := s.IndexOf(a.Handle)
		if i < 0 {
			continue
		}
		info := s.Infos[i]
		policy := c.Inputs
		if info.Direction == ipu.DeviceToHost {
			policy = c.Outputs
		}
		switch by := m.choose(policy, a, s.Ends[i]); by {
		case BindUser:
		case BindEmpty:
			queues[i] = hostmem.Nothing{}
			continue
		case SkipBind:
			continue
		default:
			return fmt.Errorf("anchor %q: %w: callback policy %d", a.Name, rt.ErrOption, by)
		}
		buffers := ring.Config[chunk]{Size: c.RingSize(a), Label: a.Name, Consumer: m.loop.spin}
		if info.Direction == ipu.DeviceToHost {
			q := &OutputQueue{}
			if err := q.init(s.About, a, info, c.Batch(a), buffers); err != nil {
				return err
			}
			m.outputs = append(m.outputs, q)
			queues[i] = q
			continue
		}
		q := &InputQueue{}
		if c.OnTimeout != nil {
			buffers.Timeout = c.Timeout
			buffers.OnTimeout = func(*ring.Ring[chunk]) { c.OnTimeout(m, q) }
		}
		if err := q.init(s.About, a, info, c.Batch(a), buffers); err != nil {
			return err
		}
		m.inputs = append(m.inputs, q)
		queues[i] = q
	}
	for i, q := range queues {
		if err := s.Attach(i, q, session.Given); err != nil {
			return err
		}
	}
	for _, q := range m.inputs {
		m.all = append(m.all, &q.ringQueue)
	}
	for _, q := range m.outputs {
		m.all = append(m.all, &q.ringQueue)
	}
	for _, q := range m.all {
		q.manager = m
		if inMain(s.Contract(), q.anchor) {
			m.main = append(m.main, q)
		}
	}
	inputs := slices.ContainsFunc(m.main, func(q *ringQueue) bool { return q.info.Direction == ipu.HostToDevice })
	for _, q := range m.main {
		q.begins = !inputs || q.info.Direction == ipu.HostToDevice
	}
	return nil
}

// choose says what becomes of an anchor to whose stream something is connected.
func (m *QueueManager) choose(policy CallbackPredicate, a Anchor, connected session.End) CallbackPolicy {
	switch {
	case policy != nil:
		return policy(a)
	case a.Role == contract.Unused || connected == session.Filed || connected == session.Frozen:
		return SkipBind
	}
	return BindUser
}

// batchOf returns an anchor's first dimension if it takes part in every run.
func batchOf(c contract.Contract, a Anchor) int {
	if len(a.Info.Shape) == 0 || !inMain(c, a) {
		return 1
	}
	return int(a.Info.Shape[0])
}

// Inputs returns the input queues, in the contract's order.
func (m *QueueManager) Inputs() []*InputQueue { return slices.Clone(m.inputs) }

// Outputs returns the output queues, in the contract's order.
func (m *QueueManager) Outputs() []*OutputQueue { return slices.Clone(m.outputs) }

// InputQueue returns the input queue of the anchor with that name, or else
// that stream handle. It fails with an [*UnknownQueueError].
func (m *QueueManager) InputQueue(name string) (*InputQueue, error) {
	i, known := find(name, m.inputs)
	if i < 0 {
		return nil, m.session.Errorf("find a queue", &UnknownQueueError{Name: name, Direction: ipu.HostToDevice, Known: known})
	}
	return m.inputs[i], nil
}

// OutputQueue returns the output queue of the anchor with that name, or else
// that stream handle. It fails with an [*UnknownQueueError].
func (m *QueueManager) OutputQueue(name string) (*OutputQueue, error) {
	i, known := find(name, m.outputs)
	if i < 0 {
		return nil, m.session.Errorf("find a queue", &UnknownQueueError{Name: name, Direction: ipu.DeviceToHost, Known: known})
	}
	return m.outputs[i], nil
}

// find returns the index of the queue with that name or handle, or -1 and the
// names that there are.
func find[Q interface{ Anchor() Anchor }](name string, queues []Q) (int, []string) {
	if i := slices.IndexFunc(queues, func(q Q) bool { return q.Anchor().Name == name }); i >= 0 {
		return i, nil
	}
	if i := slices.IndexFunc(queues, func(q Q) bool { return q.Anchor().Handle == name }); i >= 0 {
		return i, nil
	}
	known := make([]string, len(queues))
	for i, q := range queues {
		known[i] = q.Anchor().Name
	}
	return -1, known
}

// FlushAll lets the device go on without more data: every queue of the main
// programs is filled up with dummy samples to the same number of batches, those
// that a batch lacks, or a whole batch if none lacks any. Zeros go in, and what
// comes of them is dropped. It touches nothing and fails with
//
//   - [ErrUnbalanced] while a request has been enqueued to some of its queues
//     only, so that dummy data never gets between an input and its output;
//   - [rt.ErrQueueFull] if the device is several flushes behind;
//   - [ErrEnqueueLocked] while a buffer is locked for enqueueing;
//   - [ErrDisconnected].
//
// Queues that only load or save programs move are left alone: nothing can
// stand in for weights. A queue's own Flush is there for who insists.
func (m *QueueManager) FlushAll() error { return m.flush(nil) }

// FlushStarved is FlushAll if the device still has nothing to read from q, and
// does nothing if it has. It is for QueueConfig.OnTimeout: data may have come
// since the time was over.
func (m *QueueManager) FlushStarved(q *InputQueue) error { return m.flush(q) }

func (m *QueueManager) flush(starved *InputQueue) error {
	m.lock()
	defer m.unlock()
	if err := m.even(starved, 0); err != nil {
		return m.session.Errorf("flush", err)
	}
	return nil
}

// lock keeps everybody from enqueueing to the queues of the main programs.
func (m *QueueManager) lock() {
	for _, q := range m.main { // always in the same order
		q.mu.Lock()
	}
}

func (m *QueueManager) unlock() {
	for _, q := range m.main {
		q.mu.Unlock()
	}
}

// even fills queues up to the same number of batches: at least one more sample,
// or to a multiple of so many batches if that is given. All their mu are held.
func (m *QueueManager) even(starved *InputQueue, multiple int) error {
	if starved != nil && starved.ReadAvailable() {
		return nil
	}
	target, whole, err := m.balance()
	switch {
	case err != nil:
		return err
	case multiple > 0:
		target = (target + int64(multiple) - 1) / int64(multiple) * int64(multiple)
	case whole:
		target++
	}
	for _, q := range m.main {
		if q.samples == target*int64(q.batch) {
			continue
		}
		if err := q.flushable(); err != nil {
			return err
		}
	}
	for _, q := range m.main {
		if missing := target*int64(q.batch) - q.samples; missing > 0 {
			q.pad(int(missing))
		}
	}
	return nil
}

// balance returns of how many batches queues have samples, and whether none
// lacks any: the same number for all. Queues of one batch size must have as many
// samples, others at least as many batches.
func (m *QueueManager) balance() (target int64, whole bool, err error) {
	whole = true
	for i, q := range m.main {
		batches := (q.samples + int64(q.batch) - 1) / int64(q.batch)
		if i == 0 {
			target = batches
		}
		whole = whole && q.samples%int64(q.batch) == 0
		differs := func(o *ringQueue) bool { return o.batch == q.batch && o.samples != q.samples }
		if batches != target || slices.ContainsFunc(m.main[:i], differs) {
			return 0, false, m.unbalanced()
		}
	}
	return target, whole, nil
}

func (m *QueueManager) unbalanced() error {
	var b strings.Builder
	for _, q := range m.main {
		fmt.Fprintf(&b, "; %q has %d samples in batches of %d", q.anchor.Name, q.samples, q.batch)
	}
	return fmt.Errorf("%w%s", ErrUnbalanced, b.String())
}

// DisconnectAll disconnects every queue: a program that runs comes to its end
// on dummy data. No memory is reported as filled by what that led to.
func (m *QueueManager) DisconnectAll() {
	for _, q := range m.backwards() {
		q.Disconnect()
	}
}

// backwards returns the output queues, then the input queues: disconnected in
// that order, no memory counts as filled by what dummy data led to.
func (m *QueueManager) backwards() []*ringQueue {
	return slices.Concat(m.all[len(m.inputs):], m.all[:len(m.inputs)])
}

// stop is called when the session stops or closes. Before it closes, the save
// programs may still run: they deliver to what is enqueued for them, and wait
// for nothing.
func (m *QueueManager) stop() error {
	m.loop.halted.Store(true)
	defer m.loop.wake()
	if m.session.Stopped() {
		m.DisconnectAll()
		return nil
	}
	for _, q := range m.backwards() {
		if slices.Contains(m.main, q) || q.info.Direction == ipu.HostToDevice {
			q.Disconnect()
		} else {
			q.ring.Finish()
		}
	}
	return nil
}

// ended is called when programs have run, by who holds the gate.
func (m *QueueManager) ended(failed bool) {
	moved := false
	for _, q := range m.all {
		moved = moved || q.moved
		q.moved = false
	}
	if failed && moved {
		m.DisconnectAll()
	}
}

// ResetAll empties every queue and connects it again, as is needed after the
// session was stopped, before or after it is reloaded, and after a run that
// failed in the middle. Memory that was not used
// up is returned: its OnDone is called with [ErrDisconnected]. Like Connect,
// ResetAll needs the session for itself: while a program runs, it waits for it,
// until ctx ends.
func (m *QueueManager) ResetAll(ctx context.Context) error {
	s := m.session
	if err := s.Begin(ctx); err != nil {
		return s.Errorf("reset queues", err)
	}
	defer s.Gate.Release(0)
	if err := m.reset(true); err != nil {
		return s.Errorf("reset queues", err)
	}
	return nil
}

// reset empties every queue, for who holds the gate, and connects them again if
// connect says so. Nobody can enqueue to one before all of them are empty: a
// request of which a part came before another queue was emptied would leave the
// queues a request apart, and every later one would get another's results.
func (m *QueueManager) reset(connect bool) error {
	if connect {
		m.why.Store(nil)
	}
	var errs []error
	for _, q := range m.inputs {
		errs = append(errs, q.restart(false))
	}
	for _, q := range m.outputs {
		errs = append(errs, q.restart(false))
	}
	if connect {
		for _, q := range m.all {
			q.mu.Lock()
		}
		for _, q := range m.all {
			q.ring.Reset()
		}
		for _, q := range m.all {
			q.mu.Unlock()
		}
	}
	return callerr.Join(errs...)
}

// close returns all memory and leaves every queue disconnected. No program
// runs any more.
func (m *QueueManager) close() error { return m.reset(false) }

// State describes every queue for people, one a line, each after prefix.
func (m *QueueManager) State(prefix string) string {
	var b strings.Builder
	for i, q := range m.all {
		way := " (in)"
		if i >= len(m.inputs) {
			way = " (out)"
		}
		b.WriteString(q.State(prefix) + way + "\n")
	}
	return b.String()
}
