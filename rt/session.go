package rt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// Session runs one model on one device, whatever the model is: generated
// runners are built on it, and tools use it as it is. The package's
// documentation describes its states and who may call what when.
type Session struct {
	name     string // of the model, for messages
	model    *popef.Model
	owned    *popef.Model // model, if Close closes it
	contract contract.Contract
	engine   ipu.Engine
	device   ipu.Device
	detach   bool // Close detaches the device

	streams   []ipu.StreamInfo
	connected []bool // by index into streams
	buffers   []*Buffer
	feeds     []*feed

	load, main, save []int // program indices, in order

	gate    gate
	queue   *queue      // of a runner; nil for a session of its own
	stopped atomic.Bool // and not reloaded since
	loaded  bool        // the load programs have run since the engine was loaded
	ready   bool        // loaded, and every stream of the main programs is connected

	count           counters
	executableBytes int64
	dataBytes       int64

	closing  sync.Once
	closeErr error
}

// Run runs the main programs in order, once. Before the first time, and the
// first after [Session.Reload], it runs the load programs.
func (s *Session) Run(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
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
	return s.runLoad(ctx)
}

// Save runs the save programs in order: weights come from the device. It
// fails with [ErrNoSave] if the model has none, and with [ErrNotLoaded] if the
// load programs have not run, since there is nothing to save.
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
	if err := s.check(programs); err != nil {
		return s.errorf("run programs", err)
	}
	return s.flow(ctx, "run programs", programs)
}

// Reload loads the executable onto the device again: what was on the device is
// lost, and the load programs run before the next run. It is how a session
// that was stopped, or whose program failed for good, runs again.
func (s *Session) Reload(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return s.errorf("reload", err)
	}
	defer s.gate.release(0)
	s.loaded, s.ready = false, false
	if err := s.engine.Load(ctx, s.device); err != nil {
		return s.errorf("reload", err)
	}
	for _, f := range s.feeds {
		f.reload()
	}
	s.stopped.Store(false)
	return nil
}

// Stop makes a run that is under way, if any, fail with [ErrStopped], and
// every later one until [Session.Reload]. It may be called from any goroutine
// at any time. Stopping a session that is stopped fails with [ErrStopped].
func (s *Session) Stop() error {
	switch {
	case s.gate.state.Load()&closed != 0:
		return s.errorf("stop", ErrClosed)
	case !s.stopped.CompareAndSwap(false, true):
		return s.errorf("stop", ErrStopped)
	}
	if err := s.engine.Stop(); err != nil {
		return s.errorf("stop", err)
	}
	return nil
}

// Stopped reports whether the session was stopped and not reloaded since.
func (s *Session) Stopped() bool { return s.stopped.Load() }

// Close stops what is under way and releases everything: requests that are
// computing or waiting fail with [ErrClosed], unless they end before they
// notice. It returns when none is left, and may be called from any goroutine,
// any number of times; every call returns the same error. It must not be
// called by a stream during a run, for which it would wait.
func (s *Session) Close() error {
	s.closing.Do(func() {
		slots, idle, busy := s.gate.close()
		for _, slot := range slots {
			s.queue.complete(slot, s.errorf("run", ErrClosed))
		}
		var errs []error
		if busy {
			if err := s.engine.Stop(); err != nil && !errors.Is(err, ErrStopped) {
				errs = append(errs, err)
			}
			<-idle
		}
		if s.queue != nil {
			s.queue.close()
		}
		errs = append(errs, s.free())
		if err := errors.Join(errs...); err != nil {
			s.closeErr = s.errorf("close", err)
		}
	})
	return s.closeErr
}

// free releases what the session holds. Parts may be missing if it could not
// be made.
func (s *Session) free() error {
	var errs []error
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	if s.detach {
		errs = append(errs, s.device.Detach())
	}
	if s.owned != nil {
		errs = append(errs, s.owned.Close())
	}
	return errors.Join(errs...)
}

// begin takes the engine.
func (s *Session) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.gate.acquire(ctx)
}

// request runs the main programs for who holds the gate, and counts.
func (s *Session) request(ctx context.Context) error {
	var start time.Time
	if s.count.timed {
		start = time.Now()
	}
	err := s.runMain(ctx)
	if err != nil {
		s.count.errors.Add(1)
	} else if s.count.timed {
		s.count.add(time.Since(start))
	}
	return err
}

func (s *Session) runMain(ctx context.Context) error {
	if !s.ready {
		if !s.loaded {
			if err := s.runLoad(ctx); err != nil {
				return err
			}
		}
		if err := s.check(s.main); err != nil {
			return s.errorf("run", err)
		}
		s.ready = true
	}
	return s.flow(ctx, "run", s.main)
}

func (s *Session) runLoad(ctx context.Context) error {
	if err := s.check(s.load); err != nil {
		return s.errorf("load", err)
	}
	if err := s.flow(ctx, "load", s.load); err != nil {
		return err
	}
	s.loaded = true
	return nil
}

func (s *Session) runSave(ctx context.Context) error {
	switch {
	case len(s.save) == 0:
		return s.errorf("save", ErrNoSave)
	case !s.loaded:
		return s.errorf("save", fmt.Errorf("%w: the load programs have not run, there is nothing to save", ErrNotLoaded))
	}
	if err := s.check(s.save); err != nil {
		return s.errorf("save", err)
	}
	return s.flow(ctx, "save", s.save)
}

// flow runs programs in order. Every buffer starts at its first transfer.
func (s *Session) flow(ctx context.Context, doing string, programs []int) error {
	if s.stopped.Load() {
		return s.errorf(doing, ErrStopped)
	}
	for _, b := range s.buffers {
		b.rewind()
	}
	for _, p := range programs {
		if err := s.engine.Run(ctx, p); err != nil {
			return s.errorf(doing, s.cause(err))
		}
	}
	return nil
}

// cause tells a run that Close stopped from one that somebody else stopped.
func (s *Session) cause(err error) error {
	if s.gate.state.Load()&closed != 0 && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w during the run: %w", ErrClosed, err)
	}
	return err
}

// errorf says of which model and in doing what an error arose.
func (s *Session) errorf(doing string, err error) error {
	return fmt.Errorf("%s: %s: %w", s.name, doing, err)
}

// modelName names a model in messages.
func modelName(m *popef.Model) string {
	if files := m.Files(); len(files) > 0 {
		return filepath.Base(files[0])
	}
	return "model"
}
