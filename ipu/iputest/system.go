package iputest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
)

// Function computes from the tensors in to the tensors out, which may be the
// same. It must not keep them.
type Function func(in, out [][]byte) error

// Config describes a [System]. The zero Config is a system of one GC200.
type Config struct {
	// Name is the back end's name; empty is "iputest".
	Name string
	// Devices describes the devices. In each, Backend is filled in; an empty
	// Kind is "ipu", no NumIPUs is 1, a Version of 0 is 2 (and -1 a version
	// that is not known), no TilesPerIPU is what the architecture has, and ids
	// count from 0 unless one is set. A nil list is one such device.
	Devices []ipu.DeviceInfo
	// Clock is the system's clock; nil is one made by NewAutoClock.
	Clock *Clock
	// PackageHash is what [Script.PackageHash] is compared with.
	PackageHash string
	// Functions are what steps can call beside those that are built in: "copy"
	// copies its only operand to every result; "add" and "mul" are sum and
	// product of float32 elements, where a shorter operand repeats.
	Functions map[string]Function
	// Staging, unless its Slots are 0, makes the devices ones that move data while
	// they compute.
	Staging Staging
}

// System is any number of test devices. It is a back end: [ipu.Backend],
// [ipu.DeviceLister] and [ipu.Simulator]. Its methods may be called from any
// goroutine.
type System struct {
	name      string
	clock     *Clock
	hash      string
	functions map[string]Function
	staging   Staging

	mu         sync.Mutex
	units      []*unit
	nextID     int
	engines    []*Engine
	injected   []*injection
	events     []Event
	violations []string
}

var (
	_ ipu.Backend      = (*System)(nil)
	_ ipu.DeviceLister = (*System)(nil)
	_ ipu.Simulator    = (*System)(nil)
)

// New makes a system.
func New(c Config) *System {
	s := &System{name: c.Name, clock: c.Clock, hash: c.PackageHash, staging: c.Staging, functions: maps.Clone(builtin)}
	if s.name == "" {
		s.name = "iputest"
	}
	if s.clock == nil {
		s.clock = NewAutoClock()
	}
	maps.Copy(s.functions, c.Functions)
	devices := c.Devices
	if devices == nil {
		devices = make([]ipu.DeviceInfo, 1)
	}
	numbered := slices.ContainsFunc(devices, func(d ipu.DeviceInfo) bool { return d.ID != 0 })
	for i, d := range devices {
		if !numbered {
			d.ID = i
		}
		if d.Kind == "" {
			d.Kind = "ipu"
		}
		if d.NumIPUs == 0 {
			d.NumIPUs = 1
		}
		if d.Version == 0 {
			d.Version = 2
		}
		s.add(d)
	}
	return s
}

// add makes a device.
func (s *System) add(d ipu.DeviceInfo) *unit {
	d.Backend = s.name
	if d.TilesPerIPU == 0 {
		d.TilesPerIPU = ipu.ArchTiles
	}
	if d.Description == "" {
		d.Description = fmt.Sprintf("test device, %d IPUs of %d tiles", d.NumIPUs, d.TilesPerIPU)
	}
	u := &unit{sys: s, info: d}
	s.units = append(s.units, u)
	s.nextID = max(s.nextID, d.ID+1)
	return u
}

// Register makes the system a registered back end, by its name, until the test
// ends, when it also fails the test for every one of [System.Violations]. It
// returns the system.
func (s *System) Register(t testing.TB) *System {
	t.Helper()
	ipu.Register(s)
	t.Cleanup(func() {
		ipu.Unregister(s)
		for _, v := range s.Violations() {
			t.Errorf("iputest: %s", v)
		}
	})
	return s
}

// Manager returns a manager of the system's devices alone, with its clock.
func (s *System) Manager() *ipu.Manager {
	return &ipu.Manager{Backends: []ipu.Backend{s}, Clock: s.clock}
}

// Clock returns the system's clock.
func (s *System) Clock() *Clock { return s.clock }

// Name returns the back end's name.
func (s *System) Name() string { return s.name }

// Devices enumerates the devices, but for those that Simulate made.
func (s *System) Devices(ctx context.Context) ([]ipu.Device, error) {
	return s.DevicesWith(ctx, nil)
}

// DevicesWith is like Devices and takes any options, which [Device.Options]
// returns.
func (s *System) DevicesWith(ctx context.Context, options []ipu.Option) ([]ipu.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("enumerate test devices: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ipu.Device
	for _, u := range s.units {
		if !u.simulated {
			all = append(all, &Device{unit: u, options: slices.Clone(options)})
		}
	}
	return all, nil
}

// Simulate makes a simulated device.
func (s *System) Simulate(ctx context.Context, m ipu.Simulation) (ipu.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("simulate a test device: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.add(ipu.DeviceInfo{ID: s.nextID, Kind: "ipu_model", NumIPUs: m.NumIPUs, Version: m.Version, TilesPerIPU: m.TilesPerIPU})
	u.simulated = true
	return &Device{unit: u, options: slices.Clone(m.Options)}, nil
}

// Accepts accepts scripts and portable executables.
func (s *System) Accepts(f ipu.Format) error {
	if f == ipu.FormatTest || f == ipu.FormatPortable {
		return nil
	}
	return fmt.Errorf("%w: its format is %v, and the test device runs scripts and portable executables", ipu.ErrWrongBackend, f)
}

// NewEngine makes an engine for a script or a portable executable, which the
// kernels of package cpu compute.
//
// The engine options that mean something are "exchange.enablePrefetch"
// ("true", the default, or "false"), "streamCallbacks.maxLookahead"
// ("unlimited", the default, or how many transfers, of all streams, the device
// may look ahead), and "streamCallbacks.multiThreadMode" ("singleThread", the
// default, or another of Poplar's modes: streams are then called in a
// goroutine of the engine's own). All others are accepted and do nothing.
func (s *System) NewEngine(c ipu.EngineConfig) (ipu.Engine, error) {
	doing := fmt.Sprintf("make a test engine for %q", c.Name)
	e := &Engine{sys: s, config: c, slots: make([]slot, s.staging.Slots)}
	e.restage()
	err := s.strike(context.Background(), atMake, 0, Event{Engine: c.Name, Device: -1, Program: -1}, doing)
	if err != nil {
		return nil, err
	}
	if err := e.prepare(); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.label = s.label(c.Name)
	s.engines = append(s.engines, e)
	s.record(Event{Kind: EventMake, Engine: e.label, Device: -1, Program: -1})
	return e, nil
}

// label returns a name for an engine that no other has.
func (s *System) label(name string) string {
	if name == "" {
		name = "engine"
	}
	same := 0
	for _, e := range s.engines {
		if e.label == name || strings.HasPrefix(e.label, name+"#") {
			same++
		}
	}
	if same > 0 {
		name = fmt.Sprintf("%s#%d", name, same+1)
	}
	return name
}

// Engines returns every engine that was made, in order.
func (s *System) Engines() []*Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.engines)
}

// portable makes the cpu engine that computes a portable executable.
func portable(c ipu.EngineConfig) (*cpu.Engine, ipu.Device, error) {
	engine, err := cpu.New(ipu.EngineConfig{Name: c.Name, Executable: c.Executable, DisableHashCheck: c.DisableHashCheck, Options: []ipu.Option{{Name: "threads", Value: "1"}}})
	if err != nil {
		return nil, nil, err
	}
	backend, err := ipu.Lookup(cpu.Name)
	if err != nil {
		return nil, nil, err
	}
	all, err := backend.Devices(context.Background())
	if err == nil && len(all) == 0 {
		err = errors.New("the cpu back end has no device")
	}
	if err != nil {
		return nil, nil, err
	}
	_, err = all[0].Attach()
	return engine, all[0], err
}
