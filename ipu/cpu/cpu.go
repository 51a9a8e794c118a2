// Package cpu is the default back end: it computes portable executables on
// the CPU, in the goroutine that calls [Engine.Run] and, where a kernel's
// work is worth it, on helper goroutines.
//
// An executable is planned once, when the engine is made (see [Plan]): the
// order of execution, what shares memory, the place of every tensor in one
// arena, the weights that are kept in their kernel's own layout. A run then
// follows the plan and allocates nothing.
//
// # Streams
//
// Where a stream has memory of its own (ipu.Direct), is aligned to its
// element size and the plan allows it, kernels read inputs from and write
// outputs to that memory. The memory of an output should not overlap that of
// an input or another output: overlapping memory costs a copy, and where
// outputs overlap each other, what they hold in common is unspecified. The
// engine computes inline and never prefetches. It may keep a reference to the
// memory of the last transfer, which it does not touch, until the next.
package cpu

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/cpu/internal/weights"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Name is the back end's name in the registry of package ipu.
const Name = "cpu"

func init() { ipu.Register(backend{}) }

var _ ipu.Simulator = backend{}

// backend implements [ipu.Backend].
type backend struct{}

// Name returns "cpu".
func (backend) Name() string { return Name }

// Devices returns one device: all of this machine's processors.
func (backend) Devices(ctx context.Context) ([]ipu.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("enumerate cpu devices: %w", err)
	}
	return []ipu.Device{&device{}}, nil
}

// Accepts accepts portable executables only.
func (backend) Accepts(f ipu.Format) error {
	switch f {
	case ipu.FormatPortable:
		return nil
	case ipu.FormatPoplar:
		return fmt.Errorf("%w: it was compiled by Poplar, which the cpu back end can't run; "+
			"use the poplar back end: build with -tags poplar on a machine with the Poplar SDK", ipu.ErrWrongBackend)
	}
	return fmt.Errorf("%w: its format is %v, and the cpu back end runs portable executables (they begin with %q)",
		ipu.ErrWrongBackend, f, ipu.PortableMagic)
}

// NewEngine decodes, verifies and plans a portable executable. See [Options]
// for the options.
func (b backend) NewEngine(c ipu.EngineConfig) (ipu.Engine, error) {
	e, err := New(c)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// New is like the registered back end's NewEngine and gives the concrete
// engine.
func New(c ipu.EngineConfig) (*Engine, error) {
	e, err := newEngine(c)
	if err != nil {
		return nil, fmt.Errorf("make a cpu engine: %w", err)
	}
	return e, nil
}

func newEngine(c ipu.EngineConfig) (*Engine, error) {
	if err := (backend{}).Accepts(ipu.Identify(c.Executable)); err != nil {
		return nil, err
	}
	opts, err := parseOptions(c.Options)
	if err != nil {
		return nil, err
	}
	room := budget.From(c.Context).Part(opts.Memory)
	common := opts
	common.lookAhead = 0 // engines that differ in it share
	l, kernels, err := weights.Open(c.Context, c.Executable, common,
		func(ctx context.Context, exe *graph.Executable, room *budget.Budget) (*plan.Compiled, error) {
			return plan.Compile(ctx, exe, opts.Options, room)
		}, room)
	if err != nil {
		room.Release()
		return nil, err
	}
	if p := l.Shared.Exe.Package; p != nil && !c.DisableHashCheck {
		if differs := p.Differs(); differs != "" {
			l.End()
			return nil, &ipu.Error{Kind: ipu.KindPackageHash, Message: "the executable was compiled by another popefgen: " + differs + "; compile the model again, or skip the check (rt.SkipHashCheck)"}
		}
	}
	return assemble(c, opts, l, kernels), nil
}

// device implements [ipu.Device]: the CPU, which any number of holders share, or a simulated device.
type device struct {
	attached  atomic.Bool
	simulated *simulated // of an "ipu_model"
}

// Info describes the processors that this process may use, or what is simulated.
func (d *device) Info() ipu.DeviceInfo {
	if d.simulated != nil {
		return d.simulated.info
	}
	return ipu.DeviceInfo{
		ID:      0,
		Backend: Name,
		Kind:    "cpu",
		Description: fmt.Sprintf("%s/%s, %d processors, GOMAXPROCS %d",
			runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.GOMAXPROCS(0)),
		NumIPUs:       1,
		RemoteBuffers: true,
		Shared:        true,
	}
}

// Attach always succeeds.
func (d *device) Attach() (bool, error) {
	d.attached.Store(true)
	return true, nil
}

// Detach always succeeds. What was loaded onto a simulated device is gone.
func (d *device) Detach() error {
	d.attached.Store(false)
	if d.simulated != nil {
		d.simulated.loaded.Store(nil)
	}
	return nil
}

// PlanOf plans an executable for the given number of threads without making
// an engine for it. The options are those of an engine.
func PlanOf(exe *graph.Executable, threads int, engine ...ipu.Option) (*Plan, error) {
	return PlanOfContext(context.Background(), exe, threads, engine...)
}

// PlanOfContext is [PlanOf] until ctx is done, whose error it then returns.
func PlanOfContext(ctx context.Context, exe *graph.Executable, threads int, engine ...ipu.Option) (*Plan, error) {
	opts, err := parseOptions(engine)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	opts.Threads = max(1, threads)
	if err := graph.Verify(exe); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	room := budget.From(ctx).Part(opts.Memory)
	defer room.Release()
	c, err := plan.Compile(ctx, exe, opts.Options, room)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return c.Plan, nil
}
