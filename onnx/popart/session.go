package popart

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// session is what inference and training sessions have in common.
type session struct {
	mu       sync.Mutex
	flow     DataFlow
	device   *Device
	options  Options
	model    *popef.Model
	streams  []stream // that a step moves
	logs     logs
	run      rt.Session
	unknown  []ipu.Option
	warnings []string
	unread   []string         // inputs of the model that no anchor depends on
	host     map[string]*held // weights and states by the names of their anchors
	loaded   bool             // weights are on the device
	training bool
	closed   bool

	phases  map[string]dump.Phase // of the executable's graphs, by name, if steps are measured
	runs    int                   // since the last execution report, if steps are measured
	runTime time.Duration         // that they took
}

// open fills a session for a compiled model in.
func (s *session) open(m *popef.Model, flow DataFlow, k *making) {
	s.model, s.flow, s.device, s.options, s.logs, s.host = m, flow, k.device, *k.o, k.logs, map[string]*held{}
	c := contract.Of(m)
	for i := range m.Metadata.Anchors {
		a := &m.Metadata.Anchors[i]
		input := a.Type == popef.Input
		if data, ok := m.TensorData(a.Name); ok && input {
			s.host[a.Name] = &held{data: slices.Clone(data), info: a.Info, program: int(a.Programs[0])}
			continue
		}
		if !slices.Contains(a.Programs, export.MainProgram) {
			continue
		}
		n, _ := a.Info.Elements()
		st := stream{name: a.Name, handle: a.Handle, input: input, bytes: int(n) * a.Info.DataType.Size(), moved: c.Transfers(c.Anchor(a.Handle))}
		st.array = Array{Type: a.Info.DataType, Shape: s.shape(&st, a.Info.Shape)}
		s.streams = append(s.streams, st)
	}
	_, s.unknown = k.o.engine(k.device.Info().Backend)
}

// shape returns the shape of all that a step moves of a stream, and says of what factors its size is made.
func (s *session) shape(st *stream, one []int64) []int64 {
	batches, accumulation, replicas := s.flow.BatchesPerStep, max(1, s.options.AccumulationFactor), max(1, s.options.ReplicationFactor)
	how := All
	if !st.input {
		how = s.flow.Anchors[st.name]
	}
	switch how.Type {
	case export.EveryN:
		batches /= how.N
	case export.Final, export.Sum:
		batches, accumulation = 1, 1
	}
	micro, sample := int64(1), int64(1)
	for i, d := range one {
		if i == 0 {
			micro = d
		} else {
			sample *= d
		}
	}
	st.factors = fmt.Sprintf("%d batches per step × accumulation %d × %d replicas × micro-batch %d × %d elements a sample", batches, accumulation, replicas, micro, sample)
	if !st.input {
		st.factors += fmt.Sprintf(", returned as %v of %d batches per step", how, s.flow.BatchesPerStep)
	}
	outer := []int{batches, accumulation, replicas}
	if batches*accumulation*replicas != st.moved { // what an update writes has one value a batch
		outer = []int{st.moved}
		st.factors = fmt.Sprintf("%d values of %d elements", st.moved, micro*sample)
	}
	var shape []int64
	for _, n := range outer {
		if n != 1 {
			shape = append(shape, int64(n))
		}
	}
	return append(shape, one...)
}

// UnknownOptions returns the options that the back end does not know, as "name=value"; they change nothing.
func (s *session) UnknownOptions() []string {
	var all []string
	for _, o := range s.unknown {
		all = append(all, o.Name+"="+o.Value)
	}
	return all
}

// Warnings returns what was odd about the model, such as inputs that no anchor depends on: a step takes arrays for them, and does not read them.
func (s *session) Warnings() []string { return slices.Clone(s.warnings) }

// InitAnchorArrays returns a new array, of zeros, for each anchor, with the shape of all that a step returns.
func (s *session) InitAnchorArrays() map[string]Array {
	out := map[string]Array{}
	for i := range s.streams {
		if st := &s.streams[i]; !st.input {
			out[st.name] = newArray(st.array.Type, slices.Clone(st.array.Shape), st.bytes*st.moved)
		}
	}
	return out
}

// Inputs returns an array without memory for each input that a step reads: type and shape.
func (s *session) Inputs() map[string]Array {
	out := map[string]Array{}
	for i := range s.streams {
		if st := &s.streams[i]; st.input {
			out[st.name] = Array{Type: st.array.Type, Shape: slices.Clone(st.array.Shape)}
		}
	}
	return out
}

// locked calls f while nobody else uses the session.
func (s *session) locked(doing string, f func() error) error {
	return guard(doing, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed || s.model == nil {
			return ErrClosed
		}
		s.logs.log(moduleSession, rt.LevelTrace, doing)
		err := f()
		if err != nil && s.logs.on(moduleSession, slog.LevelError) {
			s.logs.log(moduleSession, slog.LevelError, doing+" failed", slog.Any("error", err))
		}
		return err
	})
}

// PrepareDevice makes the engine, attaches the device if that is left to do, and loads the executable. The error wraps [ipu.ErrMemory] if it is too large for a simulated
// device, and [ipu.ErrNoDevice] if that has fewer IPUs than there are replicas. An inference session's weights are loaded too. Calling it again changes nothing.
func (s *session) PrepareDevice(ctx context.Context) error {
	return s.locked("prepare device", func() error {
		switch {
		case s.run != nil:
			return nil
		case s.device == nil || s.device.of == nil:
			return wrong(ErrOption, "there is no device: take one of CPU or Devices")
		case s.device.connection == ConnectNever:
			return fail(ClassRuntime, "prepare device", ErrOffline)
		}
		if err := s.device.holds(s.options.ReplicationFactor); err != nil {
			return fail(ClassRuntime, "prepare device", err)
		}
		known, _ := s.options.engine(s.device.Info().Backend)
		opts := []modelrt.SessionOption{rt.WithManager(s.device.manager), rt.WithDevice(s.device.of), rt.SaveOnUnbind()}
		for _, o := range known {
			opts = append(opts, rt.WithEngineOption(o.Name, o.Value))
		}
		if s.logs != nil {
			opts = append(opts, rt.WithLogger(s.logs[moduleRun]))
		}
		began := time.Now()
		run, err := modelrt.NewSession(ctx, s.model, opts...)
		if err != nil {
			return fail(ClassRuntime, "prepare device", err)
		}
		if err := s.planned(run.Engine()); err != nil {
			return errors.Join(err, run.Close())
		}
		if err := s.connect(ctx, run); err != nil {
			_ = run.Close()
			return fail(ClassRuntime, "prepare device", err)
		}
		s.run = run
		if e := s.instrumented(); e != nil {
			exe, err := executableOf(ctx, s.model)
			if err != nil {
				s.run = nil
				return errors.Join(err, run.Close())
			}
			s.phases = map[string]dump.Phase{}
			for i, p := range dump.Phases(exe) {
				s.phases[exe.Graphs[i].Name] = p
			}
			e.EnableProfile(true)
		}
		if s.logs.on(moduleDevice, slog.LevelInfo) {
			s.logs.log(moduleDevice, slog.LevelInfo, "the device is prepared", slog.String("backend", s.device.Info().Backend), slog.Int("device", s.device.Info().ID), slog.Duration("took", time.Since(began)))
		}
		return nil
	})
}

// connect connects the host's copies.
func (s *session) connect(ctx context.Context, run rt.Session) error {
	for _, a := range s.model.Metadata.Anchors {
		h := s.host[a.Name]
		if h == nil || slices.Contains(a.Programs, export.MainProgram) {
			continue
		}
		var end ipu.Stream = (*loads)(h)
		if a.Type == popef.Output {
			h.device = make([]byte, len(h.data))
			end = (*saves)(h)
		}
		if err := run.Connect(ctx, a.Handle, end); err != nil {
			return err
		}
	}
	if s.training {
		return nil
	}
	err := run.Load(ctx)
	s.loaded = err == nil
	return err
}

// Run runs a step. It fails with ErrNotPrepared before PrepareDevice.
func (s *session) Run(ctx context.Context, io StepIO) error {
	return s.locked("run", func() error { return s.step(ctx, io) })
}

func (s *session) step(ctx context.Context, io StepIO) error {
	switch {
	case s.run == nil:
		return fail(ClassRuntime, "run", ErrNotPrepared)
	case !s.loaded:
		return fail(ClassRuntime, "run", ErrWeightsNotLoaded)
	case io == nil:
		return wrong(ErrTensor, "there is no StepIO, want Arrays or Callbacks")
	}
	ends, err := io.ends(s.streams, s.unread)
	if err != nil {
		return err
	}
	for i := range ends {
		if err := s.run.Connect(ctx, s.streams[i].handle, ends[i]); err != nil {
			return fail(ClassRuntime, "run", err)
		}
	}
	if s.phases == nil {
		return fail(ClassRuntime, "run", s.run.Run(ctx))
	}
	began := time.Now()
	err = s.run.Run(ctx)
	if err == nil {
		s.runs, s.runTime = s.runs+1, s.runTime+time.Since(began)
	}
	return fail(ClassRuntime, "run", err)
}

// Close gives back what the session takes on the device, which stays its owner's. Closing twice is allowed.
func (s *session) Close() error {
	return guard("close", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return nil
		}
		s.closed = true
		if s.run != nil {
			if err := s.run.Close(); err != nil {
				return fail(ClassRuntime, "close", err)
			}
		}
		if s.model != nil {
			return s.model.Close()
		}
		return nil
	})
}

// ReadWeights returns copies of the host's weights, and of a training session's states and optimizer values, by name; WeightsToHost fetches them from the device.
func (s *session) ReadWeights() (out map[string]Array, err error) {
	err = s.locked("read weights", func() error {
		out = map[string]Array{}
		for name, h := range s.host {
			a := newArray(h.info.DataType, slices.Clone(h.info.Shape), len(h.data))
			copy(a.Data, h.data)
			out[name] = a
		}
		return nil
	})
	return out, err
}

// write sets the host's copies, all of them or none.
func (s *session) write(weights map[string]Array) error {
	for name, a := range weights {
		h := s.host[name]
		switch {
		case h == nil || h.program != export.LoadProgram:
			return wrong(ErrTensor, "there is no weight %q", name)
		case a.Type != h.info.DataType:
			return wrong(ErrType, "weight %q has elements of %v, and the array has %v", name, h.info.DataType, a.Type)
		case len(a.Data) != len(h.data):
			return wrong(ErrSize, "weight %q has %d bytes, and the array has %d", name, len(h.data), len(a.Data))
		case a.Shape != nil && !slices.Equal(a.Shape, h.info.Shape):
			return wrong(ErrSize, "weight %q has the shape %v, and the array has %v", name, h.info.Shape, a.Shape)
		}
	}
	for name, a := range weights {
		copy(s.host[name].data, a.Data)
	}
	return nil
}

// reset sets the host's copies to the weights of another model, all of them or none.
func (s *session) reset(ctx context.Context, model Model, ignoreUnknown bool) error {
	m, _, err := model.read(ctx)
	if err != nil {
		return err
	}
	weights := map[string]Array{}
	for _, w := range m.Graph.Initializers {
		h := s.host[w.Name]
		if h == nil && ignoreUnknown {
			continue
		}
		info, err := export.Info(typeOf(w))
		if err != nil {
			return wrong(ErrType, "weight %q: %v", w.Name, err)
		}
		weights[w.Name] = Array{Type: info.DataType, Shape: info.Shape, Data: w.Data}
	}
	return s.write(weights)
}
