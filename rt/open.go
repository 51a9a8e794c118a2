package rt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// NewSession makes an engine for the model, connects the data that the model's
// files carry, attaches a device that fits it and loads the executable onto it,
// all of it or nothing. What remains to be done is to [Session.Connect] the
// other streams and to run. With [Deferred] it takes no device: see
// [Session.Bind]. ctx bounds the making of the session alone. The model must
// stay open until the session is closed.
func NewSession(ctx context.Context, m *popef.Model, opts ...SessionOption) (*Session, error) {
	o, err := sessionOptions(opts)
	if err != nil {
		return nil, subject{model: modelName(m)}.errorf("open", err)
	}
	if o.PrivateCopy {
		return nil, subject{model: modelName(m)}.errorf("open", fmt.Errorf("WithPrivateCopy: %w: the model is already open; popef.LoadCopy opens a copy", ErrOption))
	}
	return newSession(o.onBudget(ctx), m, contract.Of(m), 0, o)
}

// OpenSession is NewSession for the model in these files, which it loads and
// Close closes. A model may be spread over several files.
func OpenSession(ctx context.Context, files []string, opts ...SessionOption) (s *Session, err error) {
	o, err := sessionOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	read := popef.LoadContext
	if o.PrivateCopy {
		read = popef.LoadCopyContext
	}
	ctx = o.onBudget(ctx)
	m, err := read(ctx, files...)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	open := false
	defer func() {
		if !open {
			err = join(err, m.Close())
		}
	}()
	s, err = newSession(ctx, m, contract.Of(m), 0, o)
	if err != nil {
		return nil, err
	}
	s.owned, open = m, true
	return s, nil
}

func newSession(ctx context.Context, m *popef.Model, c contract.Contract, replica int, o *options) (*Session, error) {
	s := &Session{
		about: subject{model: modelName(m)}, file: modelName(m), replica: replica, model: m, contract: c, closed: make(chan struct{}),
		load: indices(c.Flow.Load), main: indices(c.Flow.Main), save: indices(c.Flow.Save),
		observer: o.Observer, logger: o.Logger, watched: o.Observer != nil || o.Logger != nil,
		saving: o.SaveOnUnbind, autoReset: o.AutoReset, wrapFeeds: o.WrapFeeds,
	}
	if o.Replicas > 1 {
		s.about.replica = fmt.Sprintf("replica %d", replica)
	}
	s.life, s.endLife = context.WithCancel(context.Background())
	s.gate.single, s.gate.maxWaiting = o.SingleCaller, o.MaxWaiting
	s.gate.grant = make(chan int, 1)
	if o.Timed {
		s.count.times = &times{}
	}
	// As soon as it has a device, another session may want it.
	if err := s.gate.acquire(ctx); err != nil {
		s.endLife()
		return nil, s.errorf("open", err)
	}
	defer s.gate.release(0)
	over := false // it is open, or was freed
	defer func() {
		if !over { // code of the caller has ended the goroutine
			_ = s.free()
		}
	}()
	for _, step := range []func(context.Context, *options) error{
		s.refuse, s.makeEngine, s.connectData, s.freeze, s.launch,
	} {
		if err := guarded(func() error { return step(ctx, o) }); err != nil {
			over = true
			err = join(s.errorf("open", err), s.free())
			return nil, also(err, s.observe(Event{Kind: EventOpened, Err: err}))
		}
	}
	s.config = o.Config
	err := s.observe(Event{Kind: EventOpened})
	over = true
	if err != nil {
		return nil, join(s.errorf("open", also(nil, err)), s.free())
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
func (s *Session) makeEngine(ctx context.Context, o *options) error {
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
	config := ipu.EngineConfig{Name: s.about.String(), Executable: exe, Context: ctx, DisableHashCheck: o.SkipHashCheck, Unused: s.model.ReleaseExecutable}
	if s.poplar { // the options in the file are in Poplar's words
		for _, p := range s.model.Metadata.EngineOptions {
			config.Options = append(config.Options, ipu.Option(p))
		}
		if o.LookAhead != "" {
			config.Options = append(config.Options, ipu.Option{Name: "streamCallbacks.maxLookahead", Value: o.LookAhead})
		}
	}
	config.Options = append(config.Options, o.EngineOptions...)
	if s.engine, err = backend.NewEngine(config); err != nil {
		return err
	}
	if o.Backend == "" {
		o.Backend = backend.Name()
	}
	s.streams = s.engine.Streams()
	s.ends = make([]end, len(s.streams))
	if e, ok := s.engine.(ipu.Preparer); ok && len(s.main) == 1 && !s.watched && s.count.times == nil {
		s.alone, _ = e.Prepare(s.main[0]) // if there is no such program, running it says so
	}
	return nil
}

// chooseBackend returns the back end that the options name or imply.
func (o *options) chooseBackend() (ipu.Backend, error) {
	name := o.Backend
	if o.Device != nil {
		of := o.Device.Info().Backend
		if name != "" && name != of {
			return nil, fmt.Errorf("%w: back end %q, but a device of %q", ErrOption, name, of)
		}
		name = of
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
				return nil, fmt.Errorf("%w: no back end was chosen of %s: use WithBackend", ErrOption, strings.Join(all, ", "))
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
func (s *Session) connectData(_ context.Context, o *options) error {
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
		switch {
		case a.Role == contract.LoadOutput: // few want it, and the load programs can't run without
			err = s.connect(i, nothing{}, drained)
		case a.HasData && st.Direction == ipu.HostToDevice && (o.DataPolicy == nil || o.DataPolicy(*a) == UseFileData):
			var stream ipu.Stream
			if stream, err = s.fileData(a, st, o.read); err == nil {
				err = s.connect(i, stream, filed)
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
			err = fmt.Errorf("%w: its feed has tensors of %d bytes, want %d", ErrData, size, st.Bytes)
		}
		if err != nil {
			return nil, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		stream := &feed{data: f, wrap: s.wrapFeeds}
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
		return nil, fmt.Errorf("anchor %q: %w: the file has %d bytes for it, want %d", a.Name, ErrData, len(data), st.Bytes)
	}
	s.dataBytes += int64(len(data))
	return fileTensor{constant{data}, s.model, a.Name}, nil
}

// launch puts the session on the device that was given, or on the first that
// fits and is free.
func (s *Session) launch(ctx context.Context, o *options) error {
	if o.Deferred {
		return nil
	}
	if s.given = o.Device != nil; s.given {
		s.setDevice(o.Device)
	} else {
		d, err := o.Manager.Get(ctx, s.wanted(o))
		if err != nil {
			return err
		}
		s.setDevice(d)
	}
	return s.place(ctx)
}

// wanted is the device that the model was compiled for, as the options narrow
// it down.
func (s *Session) wanted(o *options) ipu.Request {
	r := s.Target().Request()
	r.Backend, r.ID, r.Wait = o.Backend, o.DeviceID, o.Wait
	r.Options = append(r.Options, o.DeviceOptions...)
	return r
}

// Target returns what the model was compiled for: for [ipu.Manager.Get], to
// find the device of a session that was made with [Deferred]. Hardware version
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

func describeDevice(d ipu.Device) string {
	info := d.Info()
	return fmt.Sprintf("device %d (%s)", info.ID, info.Description)
}
