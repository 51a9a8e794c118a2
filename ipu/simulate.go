package ipu

import (
	"context"
	"fmt"
)

// Target is what a model was compiled for, as its metadata tells.
type Target struct {
	NumIPUs       int      // IPUs that it needs; 0 is 1
	Version       int      // IPU hardware version 2 or 21; 0 for any
	RemoteBuffers bool     // it keeps tensors in memory outside the device
	Options       []Option // device options in the back end's own words
}

// Request asks for a device that the model can run on. It does not wait.
func (t Target) Request() Request {
	return Request{NumIPUs: max(1, t.NumIPUs), Version: t.Version, RemoteBuffers: t.RemoteBuffers, Options: t.Options}
}

// Simulation describes a simulated device that the model can run on.
func (t Target) Simulation() Simulation {
	return Simulation{NumIPUs: t.NumIPUs, Version: t.Version, Options: t.Options}
}

// Check returns why a device is none for a model compiled for t, and nil if it is one: it has too few IPUs, another version, or no remote buffers. The error wraps
// [ErrNoDevice]. A CPU, and a device that does not tell, stand for any number of IPUs.
func (t Target) Check(d DeviceInfo) error {
	switch need := max(1, t.NumIPUs); {
	case d.NumIPUs > 0 && d.NumIPUs < need && d.Kind != "cpu":
		return fmt.Errorf("%w: too few IPUs: need %d, have %d", ErrNoDevice, need, d.NumIPUs)
	case t.Version > 0 && d.Version > 0 && t.Version != d.Version:
		return fmt.Errorf("%w: another IPU: need version %d, have %d", ErrNoDevice, t.Version, d.Version)
	case t.RemoteBuffers && !d.RemoteBuffers:
		return fmt.Errorf("%w: no remote buffers: the model needs them, and %s %d has none", ErrNoDevice, d.Kind, d.ID)
	}
	return nil
}

// SmallTiles is the number of tiles of a small simulated device: it is quick,
// and big enough for small programs only.
const SmallTiles = 4

// What an IPU has, in both versions of the architecture that can be simulated (GC200, Bow and C600): Graphcore's data sheets.
const (
	ArchTiles        = 1472       // tiles
	ArchBytesPerTile = 624 * 1024 // bytes of memory beside each tile
)

// Simulation describes a simulated device, an "ipu_model". The zero Simulation
// is one GC200.
type Simulation struct {
	Backend     string // name of the back end; empty for the first, by name, that simulates
	NumIPUs     int    // IPUs in the group; 0 is 1
	Version     int    // IPU hardware version, 2 or 21; 0 is 2
	TilesPerIPU int    // 0 is what the architecture has, [ArchTiles]; see [SmallTiles]
	// BytesPerTile is the memory of a tile; 0 is what the architecture has, [ArchBytesPerTile].
	BytesPerTile int64
	Options      []Option // device options in the back end's own words
}

// Small returns the same with [SmallTiles] tiles for each IPU.
func (s Simulation) Small() Simulation {
	s.TilesPerIPU = SmallTiles
	return s
}

// filled checks a simulation and fills in what is left open, but for the tiles,
// which the back end knows.
func (s Simulation) filled() (Simulation, error) {
	if s.NumIPUs == 0 {
		s.NumIPUs = 1
	}
	if s.Version == 0 {
		s.Version = 2
	}
	switch {
	case s.NumIPUs < 0:
		return s, fmt.Errorf("it asks for %d IPUs, want 1 or more", s.NumIPUs)
	case s.Version != 2 && s.Version != 21:
		return s, fmt.Errorf("it asks for version %d, want 2 or 21", s.Version)
	case s.TilesPerIPU < 0:
		return s, fmt.Errorf("it asks for %d tiles, want 1 or more, or 0 for those of the architecture", s.TilesPerIPU)
	case s.BytesPerTile < 0:
		return s, fmt.Errorf("it asks for %d bytes for each tile, want 1 or more, or 0 for those of the architecture", s.BytesPerTile)
	}
	return s, nil
}

// Simulator is a [Backend] that makes simulated devices.
type Simulator interface {
	Backend
	// Simulate makes a device of kind "ipu_model". NumIPUs and Version are
	// set; TilesPerIPU and BytesPerTile may be 0. The device is not attached, not among those
	// that Devices enumerates, and nobody else's.
	Simulate(ctx context.Context, s Simulation) (Device, error)
}

// Simulate makes a simulated device, of this caller alone, and attaches it.
// The error wraps [ErrNoDevice] if no back end simulates.
func (m *Manager) Simulate(ctx context.Context, s Simulation) (Device, error) {
	d, err := m.simulate(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("simulate a device: %w", err)
	}
	return d, nil
}

func (m *Manager) simulate(ctx context.Context, s Simulation) (Device, error) {
	s, err := s.filled()
	if err != nil {
		return nil, err
	}
	backends, err := m.named(s.Backend)
	if err != nil {
		return nil, err
	}
	for _, b := range backends {
		simulator, ok := b.(Simulator)
		if !ok {
			continue
		}
		d, err := simulator.Simulate(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("back end %q: %w", b.Name(), err)
		}
		ok, err = d.Attach()
		switch {
		case err != nil:
			return nil, fmt.Errorf("attach device %d of back end %q: %w", d.Info().ID, b.Name(), err)
		case !ok:
			return nil, fmt.Errorf("attach device %d of back end %q: %w: it is new and yet taken", d.Info().ID, b.Name(), ErrNoDevice)
		}
		return d, nil
	}
	if s.Backend != "" {
		return nil, fmt.Errorf("%w: back end %q does not simulate any", ErrNoDevice, s.Backend)
	}
	return nil, fmt.Errorf("%w: none of %d back ends simulates any; %s", ErrNoDevice, len(backends), providers["poplar"])
}
