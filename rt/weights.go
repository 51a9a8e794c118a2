package rt

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// Weight is data for an input that gets the same at every transfer.
type Weight struct {
	Anchor string // name or stream handle
	Data   []byte // of the size of one transfer; must not change as long as it is connected
}

// WeightOf is the Weight of a generated tensor.
func WeightOf[T any](anchor string, t *T) Weight { return Weight{Anchor: anchor, Data: bytesOf(t)} }

// FileWeights returns the data that a model's files carry for its weights, for
// UpdateWeights of a session of another model whose weights have the same names
// and sizes. It stays valid until m is closed.
func FileWeights(m *popef.Model) ([]Weight, error) {
	var out []Weight
	for _, a := range contract.Of(m).Anchors {
		if a.Type != popef.Input || !a.HasData || a.Role == contract.Unused {
			continue
		}
		if _, ok := m.Feed(a.Name); ok {
			continue
		}
		data, err := m.ReadTensor(a.Name)
		if err != nil {
			return nil, subject{model: modelName(m)}.errorf("read weights", fmt.Errorf("anchor %q: %w", a.Name, err))
		}
		out = append(out, Weight{Anchor: a.Handle, Data: data})
	}
	return out, nil
}

// UpdateWeights connects other data to inputs that get the same at every
// transfer, and runs the load programs if they have run before: requests after
// it compute with the new values. Nothing changes if one of the weights does
// not fit, or if the load programs would overwrite what the model has made of
// inputs that are not among them ([ErrStateful]). If the load programs fail the session has the new data and needs
// another Load.
func (s *Session) UpdateWeights(ctx context.Context, weights ...Weight) error {
	const doing = "update weights"
	if err := s.begin(ctx); err != nil {
		return s.errorf(doing, err)
	}
	defer s.gate.release(0)
	streams, err := s.inputsOf(weights)
	if err != nil {
		return s.errorf(doing, err)
	}
	if missing := s.state(streams); s.loaded && len(missing) > 0 {
		return s.errorf(doing, fmt.Errorf("%w: its programs have changed what the load programs would set again, from anchors %q: "+
			"give these too (Save returns them as they are), or open the model anew", ErrStateful, missing))
	}
	for i, at := range streams {
		if err := s.connect(at, constant{weights[i].Data}, given); err != nil {
			return s.errorf(doing, err)
		}
	}
	told := s.told(doing, nil, Event{Kind: EventWeightsUpdated})
	if !s.loaded {
		return told
	}
	s.loaded, s.ready = false, false
	return join(told, s.runLoad(ctx, 0))
}

// state returns the names of the anchors, but for those of some streams, from
// which the load programs set what other programs change.
func (s *Session) state(but []int) []string {
	e, ok := s.engine.(ipu.Stateful)
	if !ok {
		return nil
	}
	var names []string
	for _, handle := range e.State(s.load) {
		if slices.Contains(but, s.index(handle)) {
			continue
		}
		name := handle
		if a := s.contract.Anchor(handle); a != nil && a.Name != "" {
			name = a.Name
		}
		names = append(names, name)
	}
	return names
}

// inputsOf returns the streams that weights are for, and checks that they fit.
func (s *Session) inputsOf(weights []Weight) ([]int, error) {
	streams := make([]int, len(weights))
	for i, w := range weights {
		at, err := s.input(w.Anchor)
		if err != nil {
			return nil, err
		}
		if want := s.streams[at].Bytes; len(w.Data) != want {
			return nil, fmt.Errorf("anchor %q: %w: %d bytes, want %d", w.Anchor, ErrData, len(w.Data), want)
		}
		streams[i] = at
	}
	return streams, nil
}

// input returns the index of the input stream with that handle, or else of the
// only one whose anchor has that name.
func (s *Session) input(anchor string) (int, error) {
	isInput := func(i int) bool { return i >= 0 && s.streams[i].Direction == ipu.HostToDevice }
	if i := s.index(anchor); isInput(i) {
		return i, nil
	}
	var found []int
	for _, a := range s.contract.Anchors {
		if i := s.index(a.Handle); a.Name == anchor && isInput(i) && !slices.Contains(found, i) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("anchor %q: %w: there is no input of that name or handle%s", anchor, ErrUnknownStream, nearest.DidYouMean(anchor, s.inputNames()))
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("anchor %q: %w: %d inputs have this name; use the stream handle", anchor, ErrUnknownStream, len(found))
}

// inputNames returns the names of all anchors that inputs of the executable
// have, or their handles where they have none.
func (s *Session) inputNames() []string {
	var names []string
	for _, st := range s.streams {
		if st.Direction != ipu.HostToDevice {
			continue
		}
		name := st.Handle
		if a := s.contract.Anchor(st.Handle); a != nil && a.Name != "" {
			name = a.Name
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// freeze connects the data that options gave.
func (s *Session) freeze(_ context.Context, o *options) error {
	streams, err := s.inputsOf(o.Frozen)
	if err != nil {
		return err
	}
	for i, at := range streams {
		if err := s.connect(at, constant{o.Frozen[i].Data}, frozen); err != nil {
			return err
		}
	}
	return nil
}
