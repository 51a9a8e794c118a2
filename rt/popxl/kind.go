package popxl

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/settings"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Kind is a kind of device, and an option of [NewSession]: popxl.NewSession(ctx, ir, popxl.IPUModel). PopXL's names of them are "cpu", "ipu_model" and "ipu_hw". Without one a session finds
// its device as [modelrt.NewSession] does.
type Kind uint8

// The kinds of devices, and their limits. How many IPUs a model needs is its replicas' number, rounded up to a power of two.
const (
	// CPU is the processor: no replicas.
	CPU Kind = iota + 1
	// IPUModel is a simulated device of the cpu back end, for each replica one: so many tiles of so much memory, and no remote buffers. [rt.WithSimulation] says how many IPUs there are,
	// of how many tiles; else there are as many as the model needs.
	IPUModel
	// Hardware is an IPU of a registered back end, for each replica one.
	Hardware
)

// String returns PopXL's name of the kind.
func (k Kind) String() string {
	switch k {
	case CPU:
		return "cpu"
	case IPUModel:
		return "ipu_model"
	case Hardware:
		return "ipu_hw"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Session implements [modelrt.SessionOption] for [NewSession]; sessions of other packages refuse it.
func (k Kind) Session(o *settings.Of[rt.Config]) {
	o.Fail("popxl kind %v: %w: it is an option of popxl.NewSession alone", k, rt.ErrOption)
}

// find returns the options of each replica's engine, with its device.
func (s *Session) find(ctx context.Context, opts []modelrt.SessionOption) ([][]modelrt.SessionOption, error) {
	n := s.ir.replicas()
	var kind Kind
	var rest []modelrt.SessionOption
	said := settings.Of[rt.Config]{Config: rt.Config{Manager: &ipu.Manager{}}}
	for _, o := range opts {
		if k, ok := o.(Kind); ok {
			kind = k
			continue
		}
		rest = append(rest, o)
		o.Session(&said)
	}
	if said.Err != nil {
		return nil, said.Err
	}
	c := &said.Config
	if kind == 0 && c.Simulation != nil {
		kind = IPUModel
	}
	switch {
	case kind > Hardware:
		return nil, fmt.Errorf("%w: there is no %v, want CPU, IPUModel or Hardware", rt.ErrOption, kind)
	case kind != 0 && c.Device != nil:
		return nil, fmt.Errorf("%w: %v, and WithDevice: take one of them", rt.ErrOption, kind)
	case (kind == CPU || kind == Hardware) && c.Simulation != nil:
		return nil, fmt.Errorf("%w: %v, and WithSimulation, which goes with ipu_model", rt.ErrOption, kind)
	case kind == CPU && n > 1:
		return nil, fmt.Errorf("a CPU has no replicas, and the Ir asks for %d: take popxl.IPUModel", n)
	case kind == 0 && n > 1:
		return nil, fmt.Errorf("the Ir asks for %d replicas: take popxl.IPUModel or popxl.Hardware, which have them", n)
	}
	s.kind = kind
	need := n * max(1, int(s.model.Metadata.NumIPUs))
	need = 1 << bits.Len(uint(need-1))
	switch kind {
	case CPU:
		return [][]modelrt.SessionOption{append(rest, rt.WithBackend("cpu"))}, nil
	case IPUModel:
		return simulated(rest, c.Simulation, n, need)
	case Hardware:
		return s.acquire(ctx, rest, c, n, need)
	}
	return [][]modelrt.SessionOption{rest}, nil
}

// simulated gives each of n replicas a simulated device.
func simulated(opts []modelrt.SessionOption, m *ipu.Simulation, n, need int) ([][]modelrt.SessionOption, error) {
	var one ipu.Simulation
	if m != nil {
		one = *m
	}
	if have := one.NumIPUs; have > 0 && have < need {
		return nil, tooFew(need, have)
	}
	if n > 1 {
		one.NumIPUs = need / (1 << bits.Len(uint(n-1)))
	}
	all := make([][]modelrt.SessionOption, n)
	for i := range all {
		all[i] = append(opts[:len(opts):len(opts)], rt.WithSimulation(one))
	}
	return all, nil
}

func tooFew(need, have int) error {
	return fmt.Errorf("%w: too few IPUs: need %d, have %d", ipu.ErrNoDevice, need, have)
}

// acquire gives each of n replicas a device of a back end, which the session gives back.
func (s *Session) acquire(ctx context.Context, opts []modelrt.SessionOption, c *rt.Config, n, need int) ([][]modelrt.SessionOption, error) {
	r := ipu.Request{Backend: c.Backend, Kind: "ipu", NumIPUs: need / (1 << bits.Len(uint(n-1))), Wait: c.Wait, Options: c.DeviceOptions}
	listed, err := c.Manager.Devices(ctx)
	if err != nil {
		return nil, err
	}
	have := 0
	for _, d := range listed {
		if r.Fits(d.Info()) {
			have += r.NumIPUs
		}
	}
	if have < need {
		return nil, tooFew(need, have)
	}
	if c.DeviceID != nil {
		if n > 1 {
			return nil, fmt.Errorf("%w: WithDeviceID, and %d replicas, each of which takes a device", rt.ErrOption, n)
		}
		r = r.Specific(*c.DeviceID)
	}
	var all [][]modelrt.SessionOption
	for range n {
		d, err := c.Manager.Get(ctx, r)
		if err != nil {
			return nil, err
		}
		s.devices = append(s.devices, d)
		all = append(all, []modelrt.SessionOption{found(opts), rt.WithDevice(d)})
	}
	return all, nil
}

// found is options without those that say how a device is looked for: it has been found.
type found []modelrt.SessionOption

func (f found) Session(o *settings.Of[rt.Config]) {
	for _, opt := range f {
		opt.Session(o)
	}
	o.Narrowed, o.Config.Wait, o.Config.DeviceID, o.Config.DeviceOptions = "", ipu.Wait{}, nil, nil
	o.Config.Backend = ""
}
