//go:build poplar && poplarfake && linux && cgo

package poplar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu"
	fake "github.com/popefgen/popefgen/ipu/poplar/internal/fakesdk/poplar"
)

// Through returns a back end of the same name and devices, for tests: its engines are those of this package, on a device
// of the fake of Poplar for each of b's, and the fake has engines of b compute. What b's tests inject, log and count
// happens inside of the fake; data, errors and stops go through Poplar's API. A program that has to end is given a tenth of
// the time that it has otherwise.
//
// It is there with the build tag poplarfake alone.
func Through(b ipu.Backend) ipu.Backend {
	shorter.Do(func() { patience /= 10 })
	t := &through{Backend: b, devices: map[ipu.Device]*held{}}
	if _, ok := b.(interface {
		ipu.DeviceLister
		ipu.Simulator
	}); ok {
		return throughAll{t}
	}
	return t
}

var shorter sync.Once

type through struct {
	ipu.Backend

	mu      sync.Mutex
	devices map[ipu.Device]*held
}

// throughAll goes through to a back end with all that devices can be asked for.
type throughAll struct{ *through }

func (t throughAll) DevicesWith(ctx context.Context, options []ipu.Option) ([]ipu.Device, error) {
	return t.Backend.(ipu.DeviceLister).DevicesWith(ctx, options)
}

func (t throughAll) Simulate(ctx context.Context, s ipu.Simulation) (ipu.Device, error) {
	return t.Backend.(ipu.Simulator).Simulate(ctx, s)
}

// held is a device of the fake in place of one of the other back end.
type held struct {
	*Device
	engines int // that were loaded onto it last
}

// throughEngine is an engine of this package that another one computes for.
type throughEngine struct {
	*Engine
	t        *through
	computer *fake.Computer
	on       atomic.Pointer[ipu.Device]
}

// NewEngine makes an engine of the other back end, and one of this package.
func (t *through) NewEngine(c ipu.EngineConfig) (ipu.Engine, error) {
	inner, err := t.Backend.NewEngine(c)
	if err != nil {
		return nil, err
	}
	computer, exe, err := fake.Offer(inner)
	if err != nil {
		return nil, err
	}
	own := ipu.EngineConfig{Name: c.Name, Executable: exe, Context: c.Context, Streams: inner.Streams(), Programs: inner.Programs()}
	for _, o := range c.Options {
		if strings.HasPrefix(o.Name, "exchange.") || strings.HasPrefix(o.Name, "streamCallbacks.") { // others are the other back end's own
			own.Options = append(own.Options, o)
		}
	}
	e, err := backend{}.NewEngine(own)
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return &throughEngine{Engine: e.(*Engine), t: t, computer: computer}, nil
}

// Connect connects the host's side to Poplar's stream.
func (e *throughEngine) Connect(handle string, host ipu.Stream) error {
	if slices.ContainsFunc(e.Streams(), func(s ipu.StreamInfo) bool { return s.Handle == handle }) {
		if err := e.computer.Reconnect(handle); err != nil {
			return err
		}
	}
	return e.Engine.Connect(handle, host)
}

// Load loads the engine onto a device of the fake, and there the other engine onto d.
func (e *throughEngine) Load(ctx context.Context, d ipu.Device) error {
	device, err := e.t.hold(ctx, d)
	if err != nil {
		return err
	}
	e.computer.Use(d)
	before := e.on.Swap(&d)
	err = e.Engine.Load(ctx, device)
	if before != nil {
		err = errors.Join(err, e.t.letGo(*before))
	}
	return err
}

// Close closes both.
func (e *throughEngine) Close() error {
	if err := e.Engine.Close(); err != nil {
		return err
	}
	if before := e.on.Swap(nil); before != nil {
		return e.t.letGo(*before)
	}
	return nil
}

// hold returns the fake's device for one of the other back end, attached.
func (t *through) hold(ctx context.Context, d ipu.Device) (*Device, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.devices[d]; h != nil {
		h.engines++
		return h.Device, nil
	}
	all, err := backend{}.Devices(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if ok, err := f.Attach(); err != nil {
			return nil, err
		} else if ok {
			t.devices[d] = &held{f.(*Device), 1}
			return f.(*Device), nil
		}
	}
	return nil, fmt.Errorf("%w: all of the fake's are taken: give it more (FAKE_POPLAR_IPUS)", ipu.ErrNoDevice)
}

// letGo detaches the fake's device when no engine is on it.
func (t *through) letGo(d ipu.Device) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.devices[d]
	if h.engines--; h.engines > 0 {
		return nil
	}
	delete(t.devices, d)
	return h.Detach()
}
