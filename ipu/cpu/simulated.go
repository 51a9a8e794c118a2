package cpu

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/need"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// simulatedIDs numbers simulated devices; 0 is the CPU.
var simulatedIDs atomic.Int32

// Simulate makes a simulated device, an "ipu_model", which computes as the CPU does, to the bit, and has the limits of IPUs: so
// many of them, with so many tiles of so much memory. [Engine.Load] refuses what does not fit. One engine at a time is on it,
// it looks ahead (the engine option "streamCallbacks.maxLookahead"), and it has no remote buffers. It takes no options.
func (backend) Simulate(ctx context.Context, s ipu.Simulation) (ipu.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("simulate a device: %w", err)
	}
	if len(s.Options) > 0 {
		return nil, invalidOption(s.Options[0], "simulated devices of the cpu back end take no options")
	}
	if s.TilesPerIPU == 0 {
		s.TilesPerIPU = ipu.ArchTiles
	}
	if s.BytesPerTile == 0 {
		s.BytesPerTile = ipu.ArchBytesPerTile
	}
	return &device{simulated: &simulated{info: ipu.DeviceInfo{
		ID:           int(simulatedIDs.Add(1)),
		Backend:      Name,
		Kind:         "ipu_model",
		Description:  fmt.Sprintf("simulated on the CPU, IPUs %d × tiles %d × bytes %d", s.NumIPUs, s.TilesPerIPU, s.BytesPerTile),
		NumIPUs:      s.NumIPUs,
		TilesPerIPU:  s.TilesPerIPU,
		BytesPerTile: s.BytesPerTile,
		Version:      s.Version,
	}}}, nil
}

// simulated is what a simulated device has beside a CPU.
type simulated struct {
	info   ipu.DeviceInfo
	loaded atomic.Pointer[Engine] // the engine that is on it
}

// enterSimulated puts the engine on a simulated device, if there is room for it, in the place of what is there.
func (e *Engine) enterSimulated(d *simulated) error {
	if e.need == nil {
		exe, err := encoding.Decode(e.encoded) // the plan has changed its own for the kernels of this machine
		if err != nil {
			return err
		}
		n := need.Of(exe)
		e.need = &n
	}
	if err := e.need.Check(d.info); err != nil {
		return err
	}
	d.loaded.Store(e)
	return nil
}

// leaveSimulated takes the engine from the simulated device that it is on, if it is.
func (e *Engine) leaveSimulated() {
	if d := e.simulated; d != nil {
		d.loaded.CompareAndSwap(e, nil)
		e.simulated = nil
	}
}

// displaced returns why a program can't run though the engine was loaded: the device was detached, or another engine was loaded since.
func (e *Engine) displaced(p *program) error {
	d := e.simulated
	switch d.loaded.Load() {
	case e:
		return nil
	case nil:
		return fmt.Errorf("run program %d: %w: device %d was detached", p.plan.Index, ipu.ErrNotLoaded, d.info.ID)
	}
	return fmt.Errorf("run program %d: %w: another engine was loaded onto device %d since", p.plan.Index, ipu.ErrNotLoaded, d.info.ID)
}
