package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
)

// UpdateWeights connects other data to inputs that get the same at every
// transfer, and runs the load programs if they have run before: requests after
// it compute with the new values. Nothing changes if one of the weights does
// not fit, or if the load programs would overwrite what the model has made of
// inputs that are not among them ([rt.ErrStateful]). If the load programs fail the session has the new data and needs
// another Load.
func (s *Session) UpdateWeights(ctx context.Context, weights ...rt.Weight) error {
	const doing = "update weights"
	if err := s.Begin(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	defer s.Gate.Release(0)
	streams, err := s.inputsOf(weights)
	if err != nil {
		return s.Errorf(doing, err)
	}
	if missing := s.State(streams); s.loaded && len(missing) > 0 {
		return s.Errorf(doing, fmt.Errorf("%w: its programs have changed what the load programs would set again, from anchors %q: "+
			"give these too (Save returns them as they are), or open the model anew", rt.ErrStateful, missing))
	}
	for i, at := range streams {
		if err := s.Attach(at, hostmem.Fixed{Data: weights[i].Data}, Given); err != nil {
			return s.Errorf(doing, err)
		}
	}
	told := s.told(doing, nil, rt.Event{Kind: rt.EventWeightsUpdated})
	if !s.loaded {
		return told
	}
	s.loaded, s.Ready = false, false
	return callerr.Join(told, s.RunLoad(ctx, 0))
}

// State returns the names of the anchors, but for those of some streams, from
// which the load programs set what other programs change.
func (s *Session) State(but []int) []string {
	e, ok := s.engine.(ipu.Stateful)
	if !ok {
		return nil
	}
	var names []string
	for _, handle := range e.State(s.load) {
		if slices.Contains(but, s.IndexOf(handle)) {
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
func (s *Session) inputsOf(weights []rt.Weight) ([]int, error) {
	streams := make([]int, len(weights))
	for i, w := range weights {
		at, err := s.Input(w.Anchor)
		if err != nil {
			return nil, err
		}
		if want := s.Infos[at].Bytes; len(w.Data) != want {
			return nil, fmt.Errorf("anchor %q: %w: %d bytes, want %d", w.Anchor, rt.ErrData, len(w.Data), want)
		}
		if a := s.contract.Anchor(s.Infos[at].Handle); w.Info != nil && a != nil && !w.Info.Equal(a.Info) {
			return nil, fmt.Errorf("anchor %q: %w: it is %v, and what was given is %v: it belongs to another model", w.Anchor, rt.ErrData, a.Info, *w.Info)
		}
		streams[i] = at
	}
	return streams, nil
}

// Input returns the index of the input stream with that handle, or else of the
// only one whose anchor has that name.
func (s *Session) Input(anchor string) (int, error) {
	isInput := func(i int) bool { return i >= 0 && s.Infos[i].Direction == ipu.HostToDevice }
	if i := s.IndexOf(anchor); isInput(i) {
		return i, nil
	}
	var found []int
	for _, a := range s.contract.Anchors {
		if i := s.IndexOf(a.Handle); a.Name == anchor && isInput(i) && !slices.Contains(found, i) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("anchor %q: %w: there is no input of that name or handle%s", anchor, rt.ErrUnknownStream, nearest.DidYouMean(anchor, s.inputNames()))
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("anchor %q: %w: %d inputs have this name; use the stream handle", anchor, rt.ErrUnknownStream, len(found))
}

// inputNames returns the names of all anchors that inputs of the executable
// have, or their handles where they have none.
func (s *Session) inputNames() []string {
	var names []string
	for _, st := range s.Infos {
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
func (s *Session) freeze(_ context.Context, o *Options) error {
	streams, err := s.inputsOf(o.Frozen)
	if err != nil {
		return err
	}
	for i, at := range streams {
		if err := s.Attach(at, hostmem.Fixed{Data: o.Frozen[i].Data}, Frozen); err != nil {
			return err
		}
	}
	return nil
}
