package rt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// Session runs one model on one device, whatever the model is: generated
// runners are built on it, and tools use it as it is. The package's
// documentation describes its states and who may call what when.
type Session struct {
	about     subject // of its errors
	file      string  // name of the model's file
	replica   int     // of a runner
	model     *popef.Model
	owned     *popef.Model // model, if Close closes it
	contract  contract.Contract
	engine    ipu.Engine
	observer  Observer
	logger    *slog.Logger // nil if nothing is logged
	watched   bool         // there is an observer or a logger
	poplar    bool         // the executable was compiled by Poplar
	wrapFeeds bool
	saving    bool // save programs run when the session leaves its device
	autoReset bool // a device that failed is loaded again before the next request
	config    Config

	// Written while the gate is held or before anybody else knows the session.
	device ipu.Device // bound or to be bound again; nil if there was none yet; written under mu too
	lease  *ipu.Lease // of device; written under mu too
	given  bool       // device is the caller's: it is never detached
	placed bool       // the engine is loaded on the device, and no other session took it
	loaded bool       // the load programs have run since then
	ready  bool       // loaded, and every stream of the main programs is connected

	streams []ipu.StreamInfo
	ends    []end // by index into streams
	buffers []*Buffer
	windows []*window // of the buffers and of a runner's streams
	feeds   []*feed

	load, main, save []int // program indices, in order
	// alone is the main program, if there is one and requests have nobody else
	// to tell of what they do; nil otherwise.
	alone ipu.Prepared

	gate    gate
	lane    *lane                   // of a runner; nil for a session of its own
	bound   atomic.Bool             // there is a device, and the session was not unloaded from it
	stopped atomic.Bool             // and not reloaded since
	failed  atomic.Pointer[failure] // what the device said, if it failed and was not loaded since

	mu      sync.Mutex
	onStop  []func() error // guarded by mu
	onClose []func() error // guarded by mu
	stray   error          // a panic that belongs to no call; guarded by mu
	atClose func()         // binds memory for the save programs at Close; nil if they are not to run; guarded by mu

	queues atomic.Pointer[QueueManager] // nil if there is none

	count           counters
	room            *budget.Budget // of the executable, if it was decompressed for this session
	executableBytes int64
	dataBytes       int64

	closing  sync.Once
	life     context.Context // ends when Close begins
	endLife  context.CancelFunc
	ending   sync.Mutex    // guards ended, and stopping the engine against closing it
	ended    bool          // the engine is closed
	closed   chan struct{} // closed at the end of Close
	closeErr error
}

// Run runs the main programs in order, once. Before the first time after the
// session was bound, reloaded, or got its device back from another session, it
// runs the load programs.
func (s *Session) Run(ctx context.Context) error {
	if err := s.beginRequest(ctx); err != nil {
		return s.errorf("run", err)
	}
	defer s.gate.release(1)
	return s.request(ctx)
}

// Load runs the load programs in order: weights go to the device.
func (s *Session) Load(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return s.errorf("load", err)
	}
	defer s.gate.release(0)
	if err := s.activate(ctx, 0); err != nil {
		return s.errorf("load", err)
	}
	return s.runLoad(ctx, 0)
}

// Save runs the save programs in order: weights come from the device. It
// fails with [ErrNoSave] if the model has none, and with [ErrNotLoaded] if the
// load programs have not run since the session got its device, since there is
// nothing to save.
func (s *Session) Save(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return s.errorf("save", err)
	}
	defer s.gate.release(0)
	return s.runSave(ctx)
}

// RunPrograms runs the programs with these indices, in this order, and nothing
// else: the load programs do not run first.
func (s *Session) RunPrograms(ctx context.Context, programs ...int) error {
	if err := s.begin(ctx); err != nil {
		return s.errorf("run programs", err)
	}
	defer s.gate.release(0)
	known := s.engine.Programs()
	for _, p := range programs {
		if !slices.ContainsFunc(known, func(k ipu.ProgramInfo) bool { return k.Index == p }) {
			return s.errorf("run programs", fmt.Errorf("%w %d", ErrUnknownProgram, p))
		}
	}
	if err := s.activate(ctx, 0); err != nil {
		return s.errorf("run programs", err)
	}
	if err := s.check(programs); err != nil {
		return s.errorf("run programs", err)
	}
	return s.flow(ctx, "run programs", programs, 0)
}

// Close stops what is under way and releases everything: requests that are
// computing or waiting fail with [ErrClosed], unless they end before they
// notice. It returns when none is left, and may be called from any goroutine,
// any number of times; every call returns the same error. It must not be
// called by a stream or an [Observer] during a run, for which it would wait.
//
// If save programs are to run ([SaveOnUnbind], or a generated SaveAtClose), the
// request that is computing ends in peace first. [Session.Stop], which may be
// called meanwhile, gives that up.
func (s *Session) Close() error {
	s.closing.Do(func() {
		defer close(s.closed)
		slots, idle, busy := s.gate.close()
		s.endLife()
		for _, slot := range slots {
			s.lane.queue.complete(slot, s.refused(s.errorf("run", ErrClosed)))
		}
		s.mu.Lock()
		bind := s.atClose
		s.mu.Unlock()
		var errs []error
		if busy {
			if !s.saving && bind == nil {
				if err := sheltered(s.stopEngine); err != nil && !errors.Is(err, ErrStopped) && !errors.Is(err, ErrNotLoaded) {
					errs = append(errs, err)
				}
			}
		}
		errs = append(errs, s.call(&s.onStop)) // what a stream may wait for
		<-idle
		if s.lane != nil {
			s.lane.close()
		}
		errs = append(errs, sheltered(func() error {
			if bind == nil {
				return s.saveIfAsked(context.Background())
			}
			bind()
			return s.runSave(context.Background())
		}))
		errs = append(errs, s.call(&s.onClose), s.free())
		s.mu.Lock()
		errs = append(errs, s.stray)
		s.mu.Unlock()
		if err := join(errs...); err != nil {
			s.closeErr = s.errorf("close", err)
		}
		s.closeErr = s.told("close", s.closeErr, Event{Kind: EventClosed})
	})
	return s.closeErr
}

// Shutdown lets nobody in any more ([ErrClosed]), waits until those that were let
// in before have ended, and what [QueueManager.Run] finds in the queues is
// computed, and closes. If ctx ends first it closes all the same, which ends
// them, and returns ctx's error.
func (s *Session) Shutdown(ctx context.Context) error {
	for _, drained := range s.drain() {
		select {
		case <-drained:
		case <-s.life.Done(): // somebody else closes
		case <-ctx.Done():
			return join(s.errorf("shut down", ctx.Err()), s.Close())
		}
	}
	return s.Close()
}

// drain lets nobody in any more. The channels are closed once those have ended
// that were let in before.
func (s *Session) drain() []<-chan error {
	all := []<-chan error{s.gate.drain()}
	if m := s.queues.Load(); m != nil {
		all = append(all, m.drain())
	}
	return all
}

// stopEngine stops the engine, from any goroutine.
func (s *Session) stopEngine() error {
	s.ending.Lock()
	defer s.ending.Unlock()
	if s.ended {
		return ErrClosed
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
		errs = append(errs, sheltered(s.engine.Close))
		s.ended = true
		s.ending.Unlock()
	}
	if s.room != nil {
		s.room.Release()
	}
	errs = append(errs, s.leave())
	if s.owned != nil {
		errs = append(errs, s.owned.Close())
	}
	return join(errs...)
}

// begin takes the engine.
func (s *Session) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.gate.acquire(ctx)
}

// beginRequest takes the engine for a request, which counts from now on.
func (s *Session) beginRequest(ctx context.Context) error {
	t := s.count.times
	asked := int64(0)
	if t != nil {
		asked = now()
	}
	if err := s.begin(ctx); err != nil {
		return s.refused(err)
	}
	if t != nil {
		t.begin(asked)
	}
	return nil
}

// short reports whether a request is nothing but a run of the program alone.
func (s *Session) short() bool {
	return s.alone != nil && s.ready && !s.stopped.Load() && len(s.buffers) == 0 && s.queues.Load() == nil
}

// missed counts a short request that failed, and says why.
func (s *Session) missed(err error) error {
	s.count.errors.Add(1)
	return s.errorf("run", s.fail(s.gate.requests()+1, s.cause(err)))
}

// request runs the main programs for who holds the gate, and counts.
func (s *Session) request(ctx context.Context) (err error) {
	if s.short() {
		if err := s.alone.Run(ctx); err != nil {
			return s.missed(err)
		}
		return nil
	}
	number := s.gate.requests() + 1
	defer s.answered(number, &err)
	if err = s.told("run", nil, Event{Kind: EventRequestBegun, Request: number}); err != nil {
		return err
	}
	err = errExit // unless runMain returns
	err = s.runMain(ctx, number)
	return err
}

// errExit is the error of a request that never returned.
var errExit = fmt.Errorf("%w: the goroutine was ended by runtime.Goexit", ErrPanic)

// answered is the end of a request.
func (s *Session) answered(number uint64, err *error) {
	var took time.Duration
	if *err != nil {
		s.count.errors.Add(1)
	} else if s.count.times != nil {
		took = s.count.times.end(number)
	}
	failed := *err != nil
	*err = s.told("run", *err, Event{Kind: EventRequestDone, Request: number, Took: took})
	if !failed && *err != nil {
		s.count.errors.Add(1)
	}
}

func (s *Session) runMain(ctx context.Context, number uint64) error {
	if !s.ready {
		if err := s.activate(ctx, number); err != nil {
			return s.errorf("run", err)
		}
		if !s.loaded {
			if err := s.runLoad(ctx, number); err != nil {
				return err
			}
		}
		if err := s.check(s.main); err != nil {
			return s.errorf("run", err)
		}
		s.ready = true
	}
	if t := s.count.times; t != nil {
		t.computing = now()
	}
	return s.flow(ctx, "run", s.main, number)
}

// runLoad runs the load programs, for the request of that number or, if it is
// 0, for none.
func (s *Session) runLoad(ctx context.Context, request uint64) error {
	if err := s.check(s.load); err != nil {
		return s.errorf("load", err)
	}
	if err := s.model.CheckUnchanged(); err != nil { // before it is looked at
		return s.errorf("load", err)
	}
	err := s.flow(ctx, "load", s.load, request)
	s.loaded = err == nil
	return s.told("load", err, Event{Kind: EventLoaded})
}

func (s *Session) runSave(ctx context.Context) error {
	switch {
	case len(s.save) == 0:
		return s.errorf("save", ErrNoSave)
	case !s.bound.Load():
		return s.errorf("save", ErrUnbound)
	case s.stopped.Load():
		return s.errorf("save", ErrStopped)
	case s.failed.Load() != nil:
		return s.errorf("save", s.deviceError(0))
	case !s.loaded:
		return s.errorf("save", fmt.Errorf("%w: the load programs have not run, there is nothing to save", ErrNotLoaded))
	}
	if err := s.check(s.save); err != nil {
		return s.errorf("save", err)
	}
	err := s.flow(ctx, "save", s.save, 0)
	return s.told("save", err, Event{Kind: EventSaved})
}

// flow runs programs in order, for the request of that number or, if it is 0,
// for none. Every buffer starts at its first transfer, and does so again for
// every program.
func (s *Session) flow(ctx context.Context, doing string, programs []int, request uint64) error {
	if s.stopped.Load() {
		return s.errorf(doing, ErrStopped)
	}
	for _, b := range s.buffers {
		b.rewind()
	}
	err := s.runEach(ctx, programs)
	if m := s.queues.Load(); m != nil {
		m.ended(err != nil)
	}
	if err != nil {
		return s.errorf(doing, s.fail(request, s.cause(err)))
	}
	return nil
}

func (s *Session) runEach(ctx context.Context, programs []int) (err error) {
	defer ipu.Guard(&err) // engines guard what they call; not all of them need be ours
	for i, p := range programs {
		if i > 0 {
			for _, w := range s.windows {
				w.again()
			}
		}
		if err := s.engine.Run(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// cause tells what Close stopped from what somebody else did.
func (s *Session) cause(err error) error {
	if s.gate.shut() && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w meanwhile: %w", ErrClosed, err)
	}
	return err
}

// errorf says of which model and in doing what an error arose.
func (s *Session) errorf(doing string, err error) error {
	return s.about.errorf(doing, err)
}

// modelName names a model in messages.
func modelName(m *popef.Model) string {
	if files := m.Files(); len(files) > 0 {
		return printable.Line(filepath.Base(files[0]))
	}
	return "model"
}
