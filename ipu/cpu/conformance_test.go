package cpu_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/iputest"
)

func TestConformance(t *testing.T) {
	backend, err := ipu.Lookup(cpu.Name)
	require.NoError(t, err)
	for name, options := range map[string][]ipu.Option{
		"default": nil,
		"threads": {{Name: "threads", Value: "3"}},
		"copying": {{Name: "alias", Value: "off"}, {Name: "inplace", Value: "off"}, {Name: "prepack", Value: "off"}, {Name: "layout", Value: "off"}},
	} {
		t.Run(name, func(t *testing.T) {
			iputest.RunEngineSuite(t, iputest.Suite{Backend: backend, Executable: iputest.SuitePortable(), Options: options})
		})
	}
	t.Run("simulated", func(t *testing.T) {
		iputest.RunEngineSuite(t, iputest.Suite{Backend: backend, Executable: iputest.SuitePortable(), Device: func(t testing.TB) ipu.Device {
			d, err := backend.(ipu.Simulator).Simulate(context.Background(), ipu.Simulation{NumIPUs: 1, Version: 2})
			require.NoError(t, err)
			return d
		}})
	})
	t.Run("prepared", func(t *testing.T) {
		iputest.RunEngineSuite(t, iputest.Suite{Backend: guarding{backend}, Executable: iputest.SuitePortable()})
	})
}

// guarding is a back end whose engines run their programs prepared, behind a
// guard of their own.
type guarding struct{ ipu.Backend }

func (b guarding) NewEngine(c ipu.EngineConfig) (ipu.Engine, error) {
	e, err := b.Backend.NewEngine(c)
	if err != nil {
		return nil, err
	}
	g := &guarded{Engine: e, programs: map[int]ipu.Prepared{}}
	for _, p := range e.Programs() {
		if g.programs[p.Index], err = e.(ipu.Preparer).Prepare(p.Index); err != nil {
			return nil, err
		}
	}
	return g, nil
}

type guarded struct {
	ipu.Engine
	programs map[int]ipu.Prepared // by index
	busy     atomic.Bool
}

// alone calls f unless something drives the engine.
func (g *guarded) alone(f func() error) error {
	if !g.busy.CompareAndSwap(false, true) {
		return ipu.ErrBusy
	}
	defer g.busy.Store(false)
	return f()
}

func (g *guarded) Run(ctx context.Context, program int) error {
	if !g.busy.CompareAndSwap(false, true) {
		return ipu.ErrBusy
	}
	defer g.busy.Store(false)
	if err := ctx.Err(); err != nil {
		return err
	}
	p := g.programs[program]
	if p == nil {
		var err error
		if p, err = g.Engine.(ipu.Preparer).Prepare(program); err != nil {
			return err
		}
	}
	return p.Run(ctx)
}

func (g *guarded) Connect(handle string, s ipu.Stream) error {
	return g.alone(func() error { return g.Engine.Connect(handle, s) })
}

func (g *guarded) Load(ctx context.Context, d ipu.Device) error {
	return g.alone(func() error { return g.Engine.Load(ctx, d) })
}

func (g *guarded) Close() error { return g.alone(g.Engine.Close) }
