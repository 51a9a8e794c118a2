package popxl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// NewSession makes a session of an Ir, which it exports ([Ir.Export]), and finds a device for it, to which it is not attached yet: one of the [Kind] that is among the options, or
// what they say otherwise. [modelrt.SessionOption] are those of sessions
// of models that are only known at run time, such as the number of threads. The error says which limit of a kind the Ir does not keep.
func NewSession(ctx context.Context, ir *Ir, opts ...modelrt.SessionOption) (_ *Session, err error) {
	m, err := ir.export(ctx, true)
	if err != nil {
		return nil, err
	}
	model, err := m.Load(ctx, ir.name)
	if err != nil {
		return nil, err
	}
	s := &Session{ir: ir, model: model}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	places, err := s.find(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ir.name, err)
	}
	if len(places) == 1 {
		return s, s.open(ctx, m, places[0], true)
	}
	meeting := newMeeting(ir.exchanges, len(places), s.kind == IPUModel)
	for i, at := range places {
		c := &Session{ir: ir, model: model}
		s.copies = append(s.copies, c)
		if err := c.open(ctx, m, at, false); err != nil {
			return nil, fmt.Errorf("replica %d: %w", i, err)
		}
		if err := c.connectExchanges(ctx, meeting, i); err != nil {
			return nil, fmt.Errorf("replica %d: %w", i, err)
		}
	}
	if len(ir.exchanges) > 0 {
		s.crew = newCrew(s.copies, meeting)
	}
	first := s.copies[0]
	s.loads, s.stores, s.inputs, s.outputs = first.loads, first.stores, first.inputs, first.outputs
	s.evaluated, s.host, s.numbered = first.evaluated, first.host, first.numbered
	return s, nil
}

// open makes the engine of one replica, and what it moves data with: the caller's memory if it is alone.
func (s *Session) open(ctx context.Context, m *export.Model, opts []modelrt.SessionOption, alone bool) (err error) {
	ir := s.ir
	s.numbered = map[string]int{}
	for _, t := range ir.Transfers() {
		if n := t.Count * ir.iterations; t.Input {
			s.loads = append(s.loads, n)
		} else {
			s.stores = append(s.stores, n)
		}
	}
	if s.s, err = modelrt.NewSession(ctx, s.model, opts...); err != nil {
		return err
	}
	names := map[string]string{}
	for i := range m.Metadata.Anchors {
		a := &m.Metadata.Anchors[i]
		names[a.Handle] = a.Name
	}
	if s.inputs, err = s.connect(ctx, names, ir.inputs, s.loads, ipu.HostToDevice, alone); err != nil {
		return err
	}
	if s.outputs, err = s.connect(ctx, names, ir.outputs, s.stores, ipu.DeviceToHost, alone); err != nil {
		return err
	}
	for _, p := range ir.prints {
		if o := &s.outputs[p.output]; o.own == nil {
			o.own = make([]byte, o.bytes)
		}
	}
	s.evaluated = map[string]bool{}
	for _, info := range s.s.Streams() {
		if info.Direction == ipu.DeviceToHost && slices.Contains(info.Programs, export.EvaluateProgram) {
			s.evaluated[names[info.Handle]] = true
		}
	}
	if err = s.connectVariables(ctx, names); err != nil {
		return err
	}
	return s.s.Unload(ctx)
}

// connect connects each of the streams that runs move: with memory of its own, or if the replica is alone with the caller's.
func (s *Session) connect(ctx context.Context, names map[string]string, ports []export.Port, moves []int64, direction ipu.Direction, alone bool) ([]port, error) {
	var all []port
	for i, p := range ports {
		if alone {
			lent, err := s.lend(ctx, names, p.Name, direction, int(moves[i]))
			if err != nil {
				return nil, err
			}
			all = append(all, lent)
			continue
		}
		b, err := s.buffer(ctx, names, p.Name, direction, int(moves[i]))
		if err != nil {
			return nil, err
		}
		all = append(all, port{bytes: len(b.Bytes()), own: b.Bytes()})
	}
	return all, nil
}

// buffer connects memory to the stream of an anchor.
func (s *Session) buffer(ctx context.Context, names map[string]string, name string, direction ipu.Direction, transfers int) (*modelrt.Buffer, error) {
	info, err := s.stream(names, name, direction)
	if err != nil {
		return nil, err
	}
	b, err := modelrt.NewBuffer(info, transfers)
	if err != nil {
		return nil, err
	}
	return b, s.s.Connect(ctx, info.Handle, b)
}

// stream returns the stream of an anchor.
func (s *Session) stream(names map[string]string, name string, direction ipu.Direction) (ipu.StreamInfo, error) {
	for _, info := range s.s.Streams() {
		if names[info.Handle] == name && info.Direction == direction {
			return info, nil
		}
	}
	return ipu.StreamInfo{}, fmt.Errorf("%s: the model has no stream of anchor %q", s.ir.name, name)
}

// connectVariables gives variables and states of optimizers memory for what is saved of them.
func (s *Session) connectVariables(ctx context.Context, names map[string]string) error {
	for _, w := range slices.Concat(s.ir.weights, s.ir.states) {
		c := hostCopy{name: w.Name, data: w.Value}
		if s.ir.stage == update {
			var err error
			if c.saved, err = s.buffer(ctx, names, w.Name, ipu.DeviceToHost, 1); err != nil {
				return err
			}
		}
		s.host = append(s.host, c)
	}
	for _, w := range s.ir.fed {
		s.numbered[w.Name] = len(s.host)
		s.host = append(s.host, hostCopy{name: w.Name, data: w.Value})
	}
	return nil
}
