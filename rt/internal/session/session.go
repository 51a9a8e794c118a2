// Package session implements rt.Session: a model on its device, with its streams,
// requests, events and statistics.
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/seal"
)

// Session is what every rt.Session is, whose documentation has that of the
// methods that users call. Generated runners and queues use the others too, most
// of them while they hold its Gate.
type Session struct {
	About     callerr.Subject // of its errors
	file      string          // name of the model's file
	replica   int             // of a runner
	model     *popef.Model
	Owned     *popef.Model // model, if Close closes it
	contract  contract.Contract
	engine    ipu.Engine
	observer  rt.Observer
	logger    *slog.Logger // nil if nothing is logged
	watched   bool         // there is an observer or a logger
	poplar    bool         // the executable was compiled by Poplar
	wrapFeeds bool
	saving    bool // save programs run when the session leaves its device
	AutoReset bool // a device that failed is loaded again before the next request
	config    rt.Config

	// Written while the gate is held or before anybody else knows the session.
	device ipu.Device // bound or to be bound again; nil if there was none yet; written under mu too
	lease  *ipu.Lease // of device; written under mu too
	given  bool       // device is the caller's: it is never detached
	placed bool       // the engine is loaded on the device, and no other session took it
	loaded bool       // the load programs have run since then
	Ready  bool       // loaded, and every stream of the main programs is connected

	Infos   []ipu.StreamInfo // the engine's; behind them the inputs that are joined in some of these
	Ends    []End            // by index into streams
	Buffers []*hostmem.Span
	fixed   map[int][]byte  // by index into streams: data that is the same at every transfer
	Windows []*hostmem.Span // of the buffers and of a runner's streams
	feeds   []*hostmem.Feed
	joins   []join

	load, Main, save []int // program indices, in order
	next             []int // programs of the next request: the main programs, or the one of them that was chosen
	// Alone is the program of the next request, if it is one and requests have nobody
	// else to tell of what they do; nil otherwise.
	Alone   ipu.Prepared
	members []ipu.Prepared // by main program, where a request runs one of them; nil where Alone is never set

	Staged Staged // of the request under way, of a runner that overlaps; for who holds the gate

	Gate   line.Gate
	Lane   *line.Lane              // of a runner; nil for a session of its own
	bound  atomic.Bool             // there is a device, and the session was not unloaded from it
	Halted atomic.Bool             // and not reloaded since
	Failed atomic.Pointer[Failure] // what the device said, if it failed and was not loaded since

	Mu      sync.Mutex
	onStop  []func() error // guarded by mu
	onClose []func() error // guarded by mu
	stray   error          // a panic that belongs to no call; guarded by mu
	AtClose func()         // binds memory for the save programs at Close; nil if they are not to run; guarded by mu

	Feeder atomic.Pointer[Feeder] // nil if there is none

	Count           counters
	room            *budget.Budget // of the executable, if it was decompressed for this session
	executableBytes int64
	dataBytes       int64

	closing  sync.Once
	life     context.Context // ends when Close begins
	endLife  context.CancelFunc
	ending   sync.Mutex    // guards ended, and stopping the engine against closing it
	ended    bool          // the engine is closed
	Closed   chan struct{} // closed at the end of Close
	closeErr error
}

// Feeder is a queue manager as its session sees it.
type Feeder struct {
	Ended func(failed bool)   // is called when programs have run
	Drain func() <-chan error // lets nobody enqueue; closed when what was enqueued is computed
	Owner any
}

// Of returns what implements a session.
func Of(s rt.Session) *Session { return s.Own(seal.Mark{}).(*Session) }

// Own returns s; it keeps others from implementing rt.Session.
func (s *Session) Own(seal.Mark) any { return s }

var _ rt.Session = (*Session)(nil)

// Run runs the main programs in order, once. Before the first time after the
// session was bound, reloaded, or got its device back from another session, it
// runs the load programs. Of a model of several sizes it runs none ([rt.ErrSeveralSizes]).
func (s *Session) Run(ctx context.Context) error {
	if err := s.CheckOneSize(); err != nil {
		return s.Errorf("run", err)
	}
	if err := s.BeginRequest(ctx); err != nil {
		return s.Errorf("run", err)
	}
	defer s.Gate.Release(1)
	return s.Request(ctx)
}

// CheckOneSize returns an error if each main program computes a size of its own, so that a request is not
// all of them.
func (s *Session) CheckOneSize() error {
	f := s.contract.Family
	if f == nil || len(s.Main) < 2 {
		return nil
	}
	return fmt.Errorf("%w: it has %s; RunPrograms runs the program of one, after Load, and family.Family.Single gives a model of one",
		rt.ErrSeveralSizes, f.Programs())
}

// Load runs the load programs in order: weights go to the device.
func (s *Session) Load(ctx context.Context) error {
	if err := s.Begin(ctx); err != nil {
		return s.Errorf("load", err)
	}
	defer s.Gate.Release(0)
	if err := s.Activate(ctx, 0); err != nil {
		return s.Errorf("load", err)
	}
	return s.RunLoad(ctx, 0)
}

// Save runs the save programs in order: weights come from the device. It
// fails with [rt.ErrNoSave] if the model has none, and with [rt.ErrNotLoaded] if the
// load programs have not run since the session got its device, since there is
// nothing to save.
func (s *Session) Save(ctx context.Context) error {
	if err := s.Begin(ctx); err != nil {
		return s.Errorf("save", err)
	}
	defer s.Gate.Release(0)
	return s.RunSave(ctx)
}

// RunPrograms runs the programs with these indices, in this order, and nothing
// else: the load programs do not run first.
func (s *Session) RunPrograms(ctx context.Context, programs ...int) error {
	return s.runPrograms(ctx, programs, false)
}

// RunLoaded is RunPrograms after what Run does first: the load programs run if
// they have not since the session was bound, reloaded, or got its device back
// from another session.
func (s *Session) RunLoaded(ctx context.Context, programs ...int) error {
	return s.runPrograms(ctx, programs, true)
}

func (s *Session) runPrograms(ctx context.Context, programs []int, loaded bool) error {
	if err := s.Begin(ctx); err != nil {
		return s.Errorf("run programs", err)
	}
	defer s.Gate.Release(0)
	known := s.engine.Programs()
	for _, p := range programs {
		if !slices.ContainsFunc(known, func(k ipu.ProgramInfo) bool { return k.Index == p }) {
			return s.Errorf("run programs", fmt.Errorf("%w %d", rt.ErrUnknownProgram, p))
		}
	}
	if err := s.Activate(ctx, 0); err != nil {
		return s.Errorf("run programs", err)
	}
	if err := s.Check(programs); err != nil {
		return s.Errorf("run programs", err)
	}
	if loaded && !s.loaded {
		if err := s.RunLoad(ctx, 0); err != nil {
			return err
		}
	}
	return s.flow(ctx, "run programs", programs, 0)
}

// Close stops what is under way and releases everything: requests that are
// computing or waiting fail with [rt.ErrClosed], unless they end before they
// notice. It returns when none is left, and may be called from any goroutine,
// any number of times; every call returns the same error. It must not be
// called by a stream or an [rt.Observer] during a run, for which it would wait.
//
// If save programs are to run ([rt.SaveOnUnbind], or a generated SaveAtClose), the
// request that is computing ends in peace first. [Session.Stop], which may be
// called meanwhile, gives that up.
func (s *Session) Close() error {
	s.closing.Do(func() {
		defer close(s.Closed)
		slots, idle, busy := s.Gate.Close()
		s.endLife()
		for _, slot := range slots {
			s.Lane.Queue.Complete(slot, s.Refused(s.Errorf("run", rt.ErrClosed)))
		}
		s.Mu.Lock()
		bind := s.AtClose
		s.Mu.Unlock()
		var errs []error
		if busy {
			if !s.saving && bind == nil {
				if err := callerr.Sheltered(s.stopEngine); err != nil && !errors.Is(err, rt.ErrStopped) && !errors.Is(err, rt.ErrNotLoaded) {
					errs = append(errs, err)
				}
			}
		}
		errs = append(errs, s.call(&s.onStop)) // what a stream may wait for
		<-idle
		if s.Lane != nil {
			s.Lane.Close()
		}
		errs = append(errs, callerr.Sheltered(func() error {
			if bind == nil {
				return s.saveIfAsked(context.Background())
			}
			bind()
			return s.RunSave(context.Background())
		}))
		errs = append(errs, s.call(&s.onClose), s.free())
		s.Mu.Lock()
		errs = append(errs, s.stray)
		s.Mu.Unlock()
		if err := callerr.Join(errs...); err != nil {
			s.closeErr = s.Errorf("close", err)
		}
		s.closeErr = s.told("close", s.closeErr, rt.Event{Kind: rt.EventClosed})
	})
	return s.closeErr
}

// Shutdown lets nobody in any more ([rt.ErrClosed]), waits until those that were let
// in before have ended, and what [modelrt.QueueManager.Run] finds in the queues is
// computed, and closes. If ctx ends first it closes all the same, which ends
// them, and returns ctx's error.
func (s *Session) Shutdown(ctx context.Context) error {
	for _, drained := range s.Drain() {
		select {
		case <-drained:
		case <-s.life.Done(): // somebody else closes
		case <-ctx.Done():
			return callerr.Join(s.Errorf("shut down", ctx.Err()), s.Close())
		}
	}
	return s.Close()
}

// Drain lets nobody in any more. The channels are closed once those have ended
// that were let in before.
func (s *Session) Drain() []<-chan error {
	all := []<-chan error{s.Gate.Drain()}
	if m := s.Feeder.Load(); m != nil {
		all = append(all, m.Drain())
	}
	return all
}

// stopEngine stops the engine, from any goroutine.
func (s *Session) stopEngine() error {
	s.ending.Lock()
	defer s.ending.Unlock()
	if s.ended {
		return rt.ErrClosed
	}
	return s.engine.Stop()
}

// free releases what the session holds, whatever code of the caller and of back
// ends does meanwhile. Parts may be missing if it could not be made.
func (s *Session) free() error {
	var errs []error
	s.endLife()
	if s.engine != nil {
		s.ending.Lock()
		errs = append(errs, callerr.Sheltered(s.engine.Close))
		s.ended = true
		s.ending.Unlock()
	}
	if s.room != nil {
		s.room.Release()
	}
	errs = append(errs, s.leave())
	if s.Owned != nil {
		errs = append(errs, s.Owned.Close())
	}
	return callerr.Join(errs...)
}

// Begin takes the engine.
func (s *Session) Begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Gate.Acquire(ctx)
}

// BeginRequest takes the engine for a request, which counts from now on.
func (s *Session) BeginRequest(ctx context.Context) error {
	t := s.Count.Times
	asked := int64(0)
	if t != nil {
		asked = line.Now()
	}
	if err := s.Begin(ctx); err != nil {
		return s.Refused(err)
	}
	if t != nil {
		t.Begin(asked)
	}
	return nil
}

// short reports whether a request is nothing but a run of the program alone.
func (s *Session) short() bool {
	return s.Alone != nil && s.Ready && !s.Halted.Load() && len(s.Buffers) == 0 && s.Feeder.Load() == nil
}

// Missed counts a short request that failed, and says why.
func (s *Session) Missed(err error) error {
	s.Count.errors.Add(1)
	return s.Errorf("run", s.fail(s.Gate.Requests()+1, s.Cause(err)))
}

// Request runs the main programs for who holds the gate, and counts.
func (s *Session) Request(ctx context.Context) (err error) {
	if s.short() {
		if err := s.Alone.Run(ctx); err != nil {
			return s.Missed(err)
		}
		return nil
	}
	number := s.Gate.Requests() + 1
	defer s.answered(number, &err)
	if err = s.told("run", nil, rt.Event{Kind: rt.EventRequestBegun, Request: number}); err != nil {
		return err
	}
	err = callerr.ErrExit // unless runMain returns
	err = s.runMain(ctx, number)
	return err
}

// answered is the end of a request.
func (s *Session) answered(number uint64, err *error) {
	var took time.Duration
	if *err != nil {
		s.Count.errors.Add(1)
	} else if s.Count.Times != nil {
		took = s.Count.Times.end(number)
	}
	failed := *err != nil
	*err = s.told("run", *err, rt.Event{Kind: rt.EventRequestDone, Request: number, Took: took})
	if !failed && *err != nil {
		s.Count.errors.Add(1)
	}
}

func (s *Session) runMain(ctx context.Context, number uint64) error {
	if !s.Ready {
		if err := s.Activate(ctx, number); err != nil {
			return s.Errorf("run", err)
		}
		if !s.loaded {
			if err := s.RunLoad(ctx, number); err != nil {
				return err
			}
		}
		if err := s.Check(s.Main); err != nil {
			return s.Errorf("run", err)
		}
		s.Ready = true
	}
	if t := s.Count.Times; t != nil {
		t.computing = line.Now()
	}
	return s.flow(ctx, "run", s.next, number)
}

// Choose makes the next request run main program i, and no other, for who holds
// the gate. The session must have been made with [Options.Members].
func (s *Session) Choose(i int) {
	s.next = s.Main[i : i+1]
	if s.members != nil {
		s.Alone = s.members[i]
	}
}

// RunProgram runs programs that are no request, for who holds the gate, once the load programs have run.
func (s *Session) RunProgram(ctx context.Context, doing string, programs []int) error {
	if !s.Ready {
		if err := s.Activate(ctx, 0); err != nil {
			return s.Errorf(doing, err)
		}
		if !s.loaded {
			if err := s.RunLoad(ctx, 0); err != nil {
				return err
			}
		}
	}
	return s.flow(ctx, doing, programs, 0)
}

// RunLoad runs the load programs, for the request of that number or, if it is
// 0, for none.
func (s *Session) RunLoad(ctx context.Context, request uint64) error {
	if err := s.Check(s.load); err != nil {
		return s.Errorf("load", err)
	}
	if err := s.model.CheckUnchanged(); err != nil { // before it is looked at
		return s.Errorf("load", err)
	}
	err := s.flow(ctx, "load", s.load, request)
	s.loaded = err == nil
	return s.told("load", err, rt.Event{Kind: rt.EventLoaded})
}

func (s *Session) RunSave(ctx context.Context) error {
	switch {
	case len(s.save) == 0:
		return s.Errorf("save", rt.ErrNoSave)
	case !s.bound.Load():
		return s.Errorf("save", rt.ErrUnbound)
	case s.Halted.Load():
		return s.Errorf("save", rt.ErrStopped)
	case s.Failed.Load() != nil:
		return s.Errorf("save", s.deviceError(0))
	case !s.loaded:
		return s.Errorf("save", fmt.Errorf("%w: the load programs have not run, there is nothing to save", rt.ErrNotLoaded))
	}
	if err := s.Check(s.save); err != nil {
		return s.Errorf("save", err)
	}
	err := s.flow(ctx, "save", s.save, 0)
	return s.told("save", err, rt.Event{Kind: rt.EventSaved})
}

// flow runs programs in order, for the request of that number or, if it is 0,
// for none. Every buffer starts at its first transfer, and does so again for
// every program.
func (s *Session) flow(ctx context.Context, doing string, programs []int, request uint64) error {
	if s.Halted.Load() {
		return s.Errorf(doing, rt.ErrStopped)
	}
	for _, b := range s.Buffers {
		b.Rewind()
	}
	err := s.runEach(ctx, programs)
	if m := s.Feeder.Load(); m != nil {
		m.Ended(err != nil)
	}
	if err != nil {
		return s.Errorf(doing, s.fail(request, s.Cause(err)))
	}
	return nil
}

func (s *Session) runEach(ctx context.Context, programs []int) (err error) {
	defer ipu.Guard(&err) // engines guard what they call; not all of them need be ours
	for i, p := range programs {
		if i > 0 {
			for _, w := range s.Windows {
				w.Again()
			}
		}
		if s.Staged.On {
			err := s.Staged.Engine.RunStaged(ctx, p, s.Staged.Slot)
			if !errors.Is(err, ipu.ErrNotStaged) {
				return err
			}
			s.Staged.On = false // the engine was loaded since: the windows have the same memory
		}
		if err := s.engine.Run(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// Staged says that the only main program runs with memory that was given to the device
// before, in a slot of it.
type Staged struct {
	Engine ipu.Stager
	On     bool // for the request under way; false after it if the slot's inputs were gone
	Slot   int
}

// Stager returns the engine if requests may be in flight on it: their number, and 0 if it
// gains nothing by that, or if a request is more than one program.
func (s *Session) Stager() (ipu.Stager, int) {
	e, ok := s.engine.(ipu.Stager)
	if !ok || len(s.Main) != 1 {
		return nil, 0
	}
	return e, e.Slots()
}

// Cause tells what Close stopped from what somebody else did.
func (s *Session) Cause(err error) error {
	if s.Gate.Shut() && !errors.Is(err, rt.ErrClosed) {
		return fmt.Errorf("%w meanwhile: %w", rt.ErrClosed, err)
	}
	return err
}

// Errorf says of which model and in doing what an error arose.
func (s *Session) Errorf(doing string, err error) error {
	return s.About.Errorf(doing, err)
}
