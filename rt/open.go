package rt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// NewSession makes an engine for the model, attaches a device that fits it,
// loads the executable onto it and connects the data that the model's files
// carry. What remains to be done is to [Session.Connect] the other streams and
// to run. ctx bounds the making of the session alone. The model must stay open
// until the session is closed.
//
// Options that name another model are errors here.
func NewSession(ctx context.Context, m *popef.Model, opts ...Option) (*Session, error) {
	o, err := newOptions(opts)
	if err == nil && o.given != "" {
		err = fmt.Errorf("%s: %w: the model is already given", o.given, ErrOption)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: open: %w", modelName(m), err)
	}
	return newSession(ctx, m, contract.Of(m), o)
}

func newSession(ctx context.Context, m *popef.Model, c contract.Contract, o *options) (*Session, error) {
	s := &Session{
		name: modelName(m), model: m, contract: c,
		load: indices(c.Flow.Load), main: indices(c.Flow.Main), save: indices(c.Flow.Save),
	}
	s.gate.queuing = o.concurrent
	s.gate.grant = make(chan int, 1)
	s.count.timed = o.timed
	for _, step := range []func(context.Context, *options) error{
		s.refuse, s.makeEngine, s.connectData, s.attach, s.loadEngine,
	} {
		if err := step(ctx, o); err != nil {
			return nil, errors.Join(s.errorf("open", err), s.free())
		}
	}
	return s, nil
}

func indices(programs []uint32) []int {
	out := make([]int, len(programs))
	for i, p := range programs {
		out[i] = int(p)
	}
	return out
}

// refuse returns why the model can't be run at all, as far as its metadata
// tells.
func (s *Session) refuse(ctx context.Context, _ *options) error {
	if n := s.contract.Replicas; n != 1 {
		return fmt.Errorf("%w %d: only models of one replica can be run; compile it without replication", ErrReplication, n)
	}
	for _, a := range s.contract.Anchors {
		if a.Role == contract.RemoteBuffer && !a.HasData {
			return fmt.Errorf("anchor %q (handle %q) lives in a remote buffer: %w: the model's files must carry its data and do not",
				a.Name, a.Handle, ErrData)
		}
	}
	return ctx.Err()
}

// makeEngine chooses a back end and makes its engine.
func (s *Session) makeEngine(_ context.Context, o *options) error {
	backend, err := chooseBackend(o)
	if err != nil {
		return err
	}
	exe, err := s.model.Executable()
	if err != nil {
		return err
	}
	s.executableBytes = int64(len(exe))
	format := ipu.Identify(exe)
	if err := backend.Accepts(format); err != nil {
		return err
	}
	config := ipu.EngineConfig{Name: s.name, Executable: exe, DisableHashCheck: o.skipHashCheck}
	if format == ipu.FormatPoplar { // the options in the file are in Poplar's words
		for _, p := range s.model.Metadata.EngineOptions {
			config.Options = append(config.Options, ipu.Option(p))
		}
	}
	config.Options = append(config.Options, o.engine...)
	if s.engine, err = backend.NewEngine(config); err != nil {
		return err
	}
	if o.backend == "" {
		o.backend = backend.Name()
	}
	s.streams = s.engine.Streams()
	s.connected = make([]bool, len(s.streams))
	return nil
}

func chooseBackend(o *options) (ipu.Backend, error) {
	name := o.backend
	if o.device != nil {
		of := o.device.Info().Backend
		if name != "" && name != of {
			return nil, fmt.Errorf("%w: back end %q, but a device of %q", ErrOption, name, of)
		}
		name = of
	}
	if name == "" {
		name = "cpu"
		if all := ipu.Backends(); !slices.Contains(all, name) {
			switch {
			case len(all) == 1:
				name = all[0]
			case len(all) > 1:
				return nil, fmt.Errorf("%w: no back end was chosen of %s: use WithBackend", ErrOption, strings.Join(all, ", "))
			}
		}
	}
	return ipu.Lookup(name)
}

// connectData compares the anchors with the engine's streams, and connects the
// data that the model's files carry.
func (s *Session) connectData(context.Context, *options) error {
	for i := range s.streams {
		st := &s.streams[i]
		a := s.contract.Anchor(st.Handle)
		if a == nil {
			continue
		}
		size, err := a.Info.SizeInBytes()
		if err != nil {
			return fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		size *= int64(max(1, a.Repeats))
		if size != int64(st.Bytes) {
			return fmt.Errorf("anchor %q (handle %q): %w: it is %v, %d bytes, and the executable's stream moves %d",
				a.Name, a.Handle, ErrData, a.Info, size, st.Bytes)
		}
		if d := st.Direction; a.Type == popef.Input && d != ipu.HostToDevice || a.Type == popef.Output && d != ipu.DeviceToHost {
			return fmt.Errorf("anchor %q (handle %q): %w: it is an %v, and the executable's stream goes %v",
				a.Name, a.Handle, ErrData, a.Type, d)
		}
		if !a.HasData || st.Direction != ipu.HostToDevice {
			continue
		}
		stream, err := s.fileData(a, st)
		if err != nil {
			return err
		}
		if err := s.connect(i, stream); err != nil {
			return err
		}
	}
	return nil
}

// fileData returns a stream of what the model's files carry for an anchor.
func (s *Session) fileData(a *contract.Anchor, st *ipu.StreamInfo) (ipu.Stream, error) {
	if f, ok := s.model.Feed(a.Name); ok {
		size, err := f.Info().SizeInBytes()
		if err == nil && size != int64(st.Bytes) {
			err = fmt.Errorf("%w: its feed has tensors of %d bytes, want %d", ErrData, size, st.Bytes)
		}
		if err != nil {
			return nil, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		stream := &feed{data: f}
		s.feeds = append(s.feeds, stream)
		return stream, nil
	}
	data, err := s.model.ReadTensor(a.Name)
	if err != nil {
		return nil, fmt.Errorf("anchor %q: %w", a.Name, err)
	}
	if len(data) != st.Bytes {
		return nil, fmt.Errorf("anchor %q: %w: the file has %d bytes for it, want %d", a.Name, ErrData, len(data), st.Bytes)
	}
	s.dataBytes += int64(len(data))
	return constant{data}, nil
}

// attach attaches the device that was given, or else the first that fits and
// is free.
func (s *Session) attach(ctx context.Context, o *options) error {
	if o.device != nil {
		ok, err := o.device.Attach()
		if err == nil && !ok {
			err = fmt.Errorf("%w: %s is held by somebody else", ipu.ErrNoDevice, describeDevice(o.device))
		}
		s.device = o.device
		return err
	}
	backend, err := ipu.Lookup(o.backend)
	if err != nil {
		return err
	}
	all, err := backend.Devices(ctx)
	if err != nil {
		return err
	}
	fitting := 0
	for _, d := range all {
		if !s.fits(d.Info()) {
			continue
		}
		fitting++
		ok, err := d.Attach()
		if err != nil {
			return fmt.Errorf("attach %s: %w", describeDevice(d), err)
		}
		if ok {
			s.device, s.detach = d, true
			return nil
		}
	}
	return fmt.Errorf("%w: the model needs %d IPUs; of %d devices of back end %q, %d fit and none of these is free",
		ipu.ErrNoDevice, s.contract.IPUs, len(all), o.backend, fitting)
}

// fits reports whether a device is what the model was compiled for. A CPU
// stands for any number of IPUs.
func (s *Session) fits(d ipu.DeviceInfo) bool {
	remote := slices.ContainsFunc(s.contract.Anchors, func(a contract.Anchor) bool { return a.Role == contract.RemoteBuffer })
	if remote && !d.RemoteBuffers {
		return false
	}
	return d.Kind == "cpu" || d.NumIPUs == int(max(1, s.contract.IPUs))
}

func describeDevice(d ipu.Device) string {
	info := d.Info()
	return fmt.Sprintf("device %d (%s)", info.ID, info.Description)
}

// loadEngine places the executable on the device.
func (s *Session) loadEngine(ctx context.Context, _ *options) error {
	return s.engine.Load(ctx, s.device)
}
