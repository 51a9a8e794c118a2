package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
)

// Connect attaches the host's side of the stream named handle, replacing any
// earlier one, also data of the model's files. The stream's methods are called
// during runs only, in the goroutine that runs or one of the engine's.
// A buffer starts at its first transfer in every run. While a program runs,
// Connect waits for it, until ctx ends.
func (s *Session) Connect(ctx context.Context, handle string, stream ipu.Stream) error {
	doing := fmt.Sprintf("connect stream %q", handle)
	if stream == nil {
		return s.Errorf(doing, fmt.Errorf("%w: nil stream", rt.ErrOption))
	}
	if err := s.Begin(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	defer s.Gate.Release(0)
	i := s.IndexOf(handle)
	if i < 0 {
		return s.Errorf(doing, fmt.Errorf("%w: the executable has no stream of that handle%s", rt.ErrUnknownStream, nearest.DidYouMean(handle, s.handles())))
	}
	if err := s.Attach(i, stream, Given); err != nil {
		return s.Errorf(doing, err)
	}
	return nil
}

// ConnectData feeds the same data to the input stream named handle at every
// transfer: a weight, a seed, a frozen input. It replaces data of the model's
// files. data must have exactly the stream's size, and must not change as long
// as it is connected: an engine uses it in place. ctx is as for
// [Session.Connect].
func (s *Session) ConnectData(ctx context.Context, handle string, data []byte) error {
	info, ok := s.Stream(handle)
	switch {
	case !ok: // Connect says so
	case info.Direction != ipu.HostToDevice:
		return s.Errorf(fmt.Sprintf("connect stream %q", handle), fmt.Errorf("%w: it is an output and takes none", rt.ErrData))
	case len(data) != info.Bytes:
		return s.Errorf(fmt.Sprintf("connect stream %q", handle), fmt.Errorf("%w: %d bytes, want %d", rt.ErrData, len(data), info.Bytes))
	}
	return s.Connect(ctx, handle, hostmem.Fixed{Data: data})
}

// End says what is connected to a stream.
type End uint8

const (
	Vacant  End = iota // nothing
	Drained            // nobody wants what it delivers
	Filed              // data of the model's files
	Frozen             // data that an option gave, for good
	Given              // what the caller gave
)

// Attach is Connect for who holds the gate or has the session alone.
func (s *Session) Attach(i int, stream ipu.Stream, by End) error {
	if j, part := s.joinOf(i); j != nil {
		j.stream.Set(part, stream)
	} else if err := s.engine.Connect(s.Infos[i].Handle, stream); err != nil {
		return err
	}
	s.Ends[i] = by
	s.keep(i, stream)
	switch stream.(type) {
	case hostmem.Bound, hostmem.Buffered, hostmem.Fixed, hostmem.FileTensor, *hostmem.Live, *hostmem.Feed, hostmem.Nothing:
	default: // code of the caller, which may end the goroutine: see Core.Main
		s.Alone, s.members = nil, nil
	}
	if b, ok := stream.(hostmem.Buffered); ok && !slices.Contains(s.Buffers, b.Buffer()) {
		s.Buffers = append(s.Buffers, b.Buffer())
		s.Windows = append(s.Windows, b.Buffer())
	}
	return nil
}

// keep notes which data a stream delivers, if it is always the same.
func (s *Session) keep(i int, stream ipu.Stream) {
	if s.fixed == nil {
		s.fixed = map[int][]byte{}
	}
	switch x := stream.(type) {
	case hostmem.Fixed:
		s.fixed[i] = x.Data
	case hostmem.FileTensor:
		s.fixed[i] = x.Data
	default:
		delete(s.fixed, i)
	}
}

// Fixed returns the data that the input stream of that index gets at every transfer, and whether that is known. Who asks holds the gate.
func (s *Session) Fixed(i int) ([]byte, bool) {
	data, ok := s.fixed[i]
	return data, ok
}

// IndexOf returns the index of the stream with that handle, -1 if there is none.
func (s *Session) IndexOf(handle string) int {
	return slices.IndexFunc(s.Infos, func(st ipu.StreamInfo) bool { return st.Handle == handle })
}

// handles returns the handles of all streams.
func (s *Session) handles() []string {
	out := make([]string, len(s.Infos))
	for i := range s.Infos {
		out[i] = s.Infos[i].Handle
	}
	return out
}

// Check returns an [*rt.UnconnectedError] if the programs move streams that
// nothing is connected to.
func (s *Session) Check(programs []int) error {
	if missing := s.unconnected(programs); len(missing) > 0 {
		return &rt.UnconnectedError{Streams: missing}
	}
	return nil
}

// Unconnected returns the streams that the programs with these indices move
// and that nothing is connected to, in the executable's order. Without
// arguments it looks at the load and main programs. Like Connect, it needs the
// session for itself, for which it waits until ctx ends.
func (s *Session) Unconnected(ctx context.Context, programs ...int) ([]rt.Unconnected, error) {
	if err := s.Begin(ctx); err != nil {
		return nil, s.Errorf("list unconnected streams", err)
	}
	defer s.Gate.Release(0)
	if len(programs) == 0 {
		programs = slices.Concat(s.load, s.Main)
	}
	return s.unconnected(programs), nil
}

// CheckConnected returns an [*rt.UnconnectedError] if the programs with these
// indices move streams that nothing is connected to; it takes and looks at what
// [Session.Unconnected] does.
func (s *Session) CheckConnected(ctx context.Context, programs ...int) error {
	missing, err := s.Unconnected(ctx, programs...)
	if err == nil && len(missing) > 0 {
		err = s.Errorf("check streams", &rt.UnconnectedError{Streams: missing})
	}
	return err
}

func (s *Session) unconnected(programs []int) []rt.Unconnected {
	var missing []rt.Unconnected
	for i, st := range s.Infos {
		if s.Ends[i] != Vacant {
			continue
		}
		var moving []int
		for _, p := range st.Programs {
			if slices.Contains(programs, p) {
				moving = append(moving, p)
			}
		}
		if moving == nil {
			continue
		}
		u := rt.Unconnected{Handle: st.Handle, Direction: st.Direction, Programs: moving, Type: fmt.Sprintf("%s %d", st.Type, st.Shape)}
		if a := s.contract.Anchor(st.Handle); a != nil {
			u.Anchor, u.Type = a.Name, a.Info.String()
		}
		missing = append(missing, u)
	}
	return missing
}

// Stream returns the description of the stream with that handle, and whether
// the executable has one.
func (s *Session) Stream(handle string) (ipu.StreamInfo, bool) {
	if i := s.IndexOf(handle); i >= 0 {
		return s.Infos[i], true
	}
	return ipu.StreamInfo{}, false
}

// Streams returns every stream of the executable, in its order, and behind them the inputs that the
// file joins in some of these.
func (s *Session) Streams() []ipu.StreamInfo { return slices.Clone(s.Infos) }

// Contract returns the model's contract.
func (s *Session) Contract() contract.Contract { return s.contract }

// DeviceIterations returns how many transfers of every run input and output
// one run makes that has no number of its own.
func (s *Session) DeviceIterations() int { return s.contract.DeviceIterations() }

// Inputs returns every anchor that is an input, in the contract's order.
func (s *Session) Inputs() []contract.Anchor {
	return s.anchors(func(a contract.Anchor) bool { return a.Type == popef.Input })
}

// UserInputs returns the inputs that the caller must connect, in the
// contract's order: run inputs, load inputs and a seed without data.
func (s *Session) UserInputs() []contract.Anchor {
	return s.anchors(func(a contract.Anchor) bool {
		return a.Role == contract.RunInput || a.Role == contract.LoadInput || a.Role == contract.Seed && !a.HasData
	})
}

// UserOutputs returns the outputs that the caller connects before the programs
// that move them run, in the contract's order: run and save outputs, which must
// be connected, and load outputs, which are dropped unless they are.
func (s *Session) UserOutputs() []contract.Anchor {
	return s.anchors(func(a contract.Anchor) bool {
		return a.Role == contract.RunOutput || a.Role == contract.SaveOutput || a.Role == contract.LoadOutput
	})
}

func (s *Session) anchors(want func(contract.Anchor) bool) []contract.Anchor {
	var out []contract.Anchor
	for _, a := range s.contract.Anchors {
		if want(a) {
			out = append(out, a)
		}
	}
	return out
}

// Model returns the model.
func (s *Session) Model() *popef.Model { return s.model }

// Device returns the device that the session is on or was on last, nil if there
// was none yet. One that the session found for itself is detached when the
// session leaves it: another session that is to share it must leave first. A
// device that sessions are given is attached for as long as its owner likes.
func (s *Session) Device() ipu.Device {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.device
}

// Engine returns the engine, for what a back end offers beyond ipu.Engine.
// Driving it past the session breaks the session's account of its state.
func (s *Session) Engine() ipu.Engine { return s.engine }
