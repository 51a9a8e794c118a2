package session

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
)

// New makes an engine for the model and a session around it, see
// modelrt.NewSession.
func New(ctx context.Context, m *popef.Model, c contract.Contract, replica int, o *Options) (*Session, error) {
	s := &Session{
		About: callerr.Subject{Model: callerr.ModelName(m)}, file: callerr.ModelName(m), replica: replica, model: m, contract: c, Closed: make(chan struct{}),
		load: indices(c.Flow.Load), Main: indices(c.Flow.Main), save: indices(c.Flow.Save),
		observer: o.Observer, logger: o.Logger, watched: o.Observer != nil || o.Logger != nil,
		saving: o.SaveOnUnbind, AutoReset: o.AutoReset, wrapFeeds: o.WrapFeeds,
	}
	if o.Main != nil {
		s.Main = indices(o.Main)
	}
	if o.Replicas > 1 {
		s.About.Replica = fmt.Sprintf("replica %d", replica)
	}
	s.life, s.endLife = context.WithCancel(context.Background())
	s.Gate.Single, s.Gate.MaxWaiting = o.SingleCaller, o.MaxWaiting
	s.Gate.Grant = make(chan int, 1)
	if o.Timed {
		s.Count.Times = &times{}
	}
	// As soon as it has a device, another session may want it.
	if err := s.Gate.Acquire(ctx); err != nil {
		s.endLife()
		return nil, s.Errorf("open", err)
	}
	defer s.Gate.Release(0)
	over := false // it is open, or was freed
	defer func() {
		if !over { // code of the caller has ended the goroutine
			_ = s.free()
		}
	}()
	for _, step := range []func(context.Context, *Options) error{
		s.refuse, s.makeEngine, s.connectData, s.freeze, s.launch,
	} {
		if err := callerr.Guarded(func() error { return step(ctx, o) }); err != nil {
			over = true
			err = callerr.Join(s.Errorf("open", err), s.free())
			return nil, callerr.Also(err, s.Observe(rt.Event{Kind: rt.EventOpened, Err: err}))
		}
	}
	s.config = o.Config
	err := s.Observe(rt.Event{Kind: rt.EventOpened})
	over = true
	if err != nil {
		return nil, callerr.Join(s.Errorf("open", callerr.Also(nil, err)), s.free())
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
func (s *Session) refuse(ctx context.Context, _ *Options) error {
	if err := s.contract.Refused; err != nil {
		return err
	}
	if n := s.contract.Replicas; n != 1 {
		return fmt.Errorf("%w %d: only models of one replica can be run; compile it without replication", rt.ErrReplication, n)
	}
	for _, a := range s.contract.Anchors {
		if a.Role == contract.RemoteBuffer && !a.HasData {
			return fmt.Errorf("anchor %q (handle %q) lives in a remote buffer: %w: the model's files must carry its data and do not",
				a.Name, a.Handle, rt.ErrData)
		}
	}
	return ctx.Err()
}

// makeEngine chooses a back end and makes its engine.
func (s *Session) makeEngine(ctx context.Context, o *Options) error {
	backend, err := o.chooseBackend()
	if err != nil {
		return err
	}
	if o.read.executable == nil {
		s.room = budget.From(ctx).Part(0)
		if o.read.executable, err = s.model.ExecutableContext(budget.Into(ctx, s.room)); err != nil {
			return err
		}
	}
	exe := o.read.executable
	s.executableBytes = int64(len(exe))
	format := ipu.Identify(exe)
	s.poplar = format == ipu.FormatPoplar
	if err := backend.Accepts(format); err != nil {
		return err
	}
	config := ipu.EngineConfig{Name: s.About.String(), Executable: exe, Context: ctx, DisableHashCheck: o.SkipHashCheck, Unused: s.model.ReleaseExecutable}
	if s.poplar { // the options in the file are in Poplar's words
		for _, p := range s.model.Metadata.EngineOptions {
			config.Options = append(config.Options, ipu.Option(p))
		}
		if config.Streams, config.Programs, err = s.described(); err != nil {
			return err
		}
	}
	if o.LookAhead != "" {
		config.Options = append(config.Options, ipu.Option{Name: "streamCallbacks.maxLookahead", Value: o.LookAhead})
	}
	config.Options = append(config.Options, o.EngineOptions...)
	if s.engine, err = backend.NewEngine(config); err != nil {
		return err
	}
	if o.Backend == "" {
		o.Backend = backend.Name()
	}
	s.Infos = s.engine.Streams()
	s.Ends = make([]End, len(s.Infos))
	s.next = s.Main
	if err := s.join(); err != nil {
		return err
	}
	if f := s.contract.Family; f != nil {
		moved := map[string][]int{}
		for i := range s.Infos {
			moved[s.Infos[i].Handle] = s.Infos[i].Programs
		}
		if err := f.CheckExecutable(&s.model.Metadata, moved); err != nil {
			return err
		}
	}
	if err := s.checkTransfers(); err != nil {
		return err
	}
	if e, ok := s.engine.(ipu.Preparer); ok && (len(s.Main) == 1 || o.Members) && !s.watched && s.Count.Times == nil {
		return s.prepare(e, o.Members)
	}
	return nil
}

// checkTransfers wants a run of the only main program to make as many transfers of each run input and output as the
// file says: with less of them a caller's memory would stay as it was.
func (s *Session) checkTransfers() error {
	if len(s.Main) != 1 {
		return nil
	}
	for i := range s.Infos {
		st := &s.Infos[i]
		a := s.contract.Anchor(st.Handle)
		at := slices.Index(st.Programs, s.Main[0])
		if a == nil || at < 0 || at >= len(st.Transfers) || a.Role != contract.RunInput && a.Role != contract.RunOutput {
			continue
		}
		if want := s.contract.Transfers(a); st.Transfers[at] != int64(want) {
			return fmt.Errorf("anchor %q (handle %q): %w: a run of program %d of the executable moves it %d times, and the file says %d; metadata and executable are of different compilations: compile the model again",
				a.Name, a.Handle, contract.ErrTransfers, s.Main[0], st.Transfers[at], want)
		}
	}
	return nil
}

// prepare has the main program prepared, or each of them if a request runs one.
// Of one alone that does not exist, running it says so.
func (s *Session) prepare(e ipu.Preparer, members bool) error {
	if !members {
		s.Alone, _ = e.Prepare(s.Main[0])
		return nil
	}
	for _, p := range s.Main {
		one, err := e.Prepare(p)
		if err != nil {
			return err
		}
		s.members = append(s.members, one)
	}
	return nil
}

// chooseBackend returns the back end that the options name or imply.
func (o *Options) chooseBackend() (ipu.Backend, error) {
	name := o.Backend
	if o.Device != nil {
		of := o.Device.Info().Backend
		if name != "" && name != of {
			return nil, fmt.Errorf("%w: back end %q, but a device of %q", rt.ErrOption, name, of)
		}
		name = of
	}
	if name == "" {
		name = os.Getenv(rt.BackendVariable)
	}
	all := ipu.Backends()
	if own := o.Manager.Backends; own != nil {
		all = nil
		for _, b := range own {
			all = append(all, b.Name())
		}
	}
	if name == "" {
		name = "cpu"
		if !slices.Contains(all, name) {
			switch {
			case len(all) == 1:
				name = all[0]
			case len(all) > 1:
				return nil, fmt.Errorf("%w: no back end was chosen of %s: use WithBackend", rt.ErrOption, strings.Join(all, ", "))
			}
		}
	}
	for _, b := range o.Manager.Backends {
		if b.Name() == name {
			return b, nil
		}
	}
	return ipu.Lookup(name)
}

// connectData compares the anchors with the engine's streams, and connects the
// data that the model's files carry.
func (s *Session) connectData(_ context.Context, o *Options) error {
	for i := range s.Infos {
		st := &s.Infos[i]
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
				a.Name, a.Handle, rt.ErrData, a.Info, size, st.Bytes)
		}
		if d := st.Direction; a.Type == popef.Input && d != ipu.HostToDevice || a.Type == popef.Output && d != ipu.DeviceToHost {
			return fmt.Errorf("anchor %q (handle %q): %w: it is an %v, and the executable's stream goes %v",
				a.Name, a.Handle, rt.ErrData, a.Type, d)
		}
		switch {
		case a.Role == contract.LoadOutput: // few want it, and the load programs can't run without
			err = s.Attach(i, hostmem.Nothing{}, Drained)
		case a.HasData && st.Direction == ipu.HostToDevice && (o.DataPolicy == nil || o.DataPolicy(*a) == rt.UseFileData):
			var stream ipu.Stream
			if stream, err = s.fileData(a, st, o.read); err == nil {
				err = s.Attach(i, stream, Filed)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fileData returns a stream of what the model's files carry for an anchor.
func (s *Session) fileData(a *contract.Anchor, st *ipu.StreamInfo, read *content) (ipu.Stream, error) {
	if f, ok := s.model.Feed(a.Name); ok {
		size, err := f.Info().SizeInBytes()
		if err == nil && size != int64(st.Bytes) {
			err = fmt.Errorf("%w: its feed has tensors of %d bytes, want %d", rt.ErrData, size, st.Bytes)
		}
		if err != nil {
			return nil, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		stream := &hostmem.Feed{Data: f, Wrap: s.wrapFeeds}
		s.feeds = append(s.feeds, stream)
		return stream, nil
	}
	data, ok := read.tensors[a.Name]
	if !ok {
		var err error
		if data, err = s.model.ReadTensor(a.Name); err != nil {
			return nil, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		read.tensors[a.Name] = data
	}
	if len(data) != st.Bytes {
		return nil, fmt.Errorf("anchor %q: %w: the file has %d bytes for it, want %d", a.Name, rt.ErrData, len(data), st.Bytes)
	}
	s.dataBytes += int64(len(data))
	return hostmem.FileTensor{Fixed: hostmem.Fixed{Data: data}, Model: s.model, Name: a.Name}, nil
}

// launch puts the session on the device that was given, or on the first that
// fits and is free.
func (s *Session) launch(ctx context.Context, o *Options) error {
	if o.Deferred {
		return nil
	}
	if s.given = o.Device != nil; s.given {
		s.setDevice(o.Device)
		return s.place(ctx)
	}
	var d ipu.Device
	var err error
	if o.Simulation != nil {
		d, err = o.Manager.Simulate(ctx, s.simulated(o))
	} else {
		d, err = o.Manager.Get(ctx, s.wanted(o))
	}
	if err != nil {
		return err
	}
	s.setDevice(d)
	return s.place(ctx)
}

// simulated is the device that is asked for, with what the model was compiled for where that is left open.
func (s *Session) simulated(o *Options) ipu.Simulation {
	m, of := *o.Simulation, s.Target().Simulation()
	if m.Backend == "" {
		m.Backend = o.Backend
	}
	if m.NumIPUs == 0 {
		m.NumIPUs = of.NumIPUs
	}
	if m.Version == 0 {
		m.Version = of.Version
	}
	m.Options = slices.Concat(of.Options, m.Options, o.DeviceOptions)
	return m
}

// wanted is the device that the model was compiled for, as the options narrow
// it down.
func (s *Session) wanted(o *Options) ipu.Request {
	r := s.Target().Request()
	r.Backend, r.ID, r.Wait = o.Backend, o.DeviceID, o.Wait
	r.Options = append(r.Options, o.DeviceOptions...)
	return r
}

// Target returns what the model was compiled for: for [ipu.Manager.Get], to
// find the device of a session that was made with [modelrt.Deferred]. Hardware version
// and device options are those of Poplar's executables; others do not care.
func (s *Session) Target() ipu.Target {
	meta := &s.model.Metadata
	t := ipu.Target{
		NumIPUs:       int(s.contract.IPUs),
		RemoteBuffers: slices.ContainsFunc(s.contract.Anchors, func(a contract.Anchor) bool { return a.Role == contract.RemoteBuffer }),
	}
	if s.poplar {
		t.Version = int(meta.IPUVersion)
		for _, p := range meta.DeviceOptions {
			t.Options = append(t.Options, ipu.Option(p))
		}
	}
	return t
}

func DescribeDevice(d ipu.Device) string {
	info := d.Info()
	return fmt.Sprintf("device %d (%s)", info.ID, info.Description)
}
