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

// Connect attaches the host's side of the stream named handle, replacing any
// earlier one, also data of the model's files. The stream's methods are called
// during runs only, in the goroutine that runs or one of the engine's.
// A [*Buffer] starts at its first transfer in every run. While a program runs,
// Connect waits for it, until ctx ends.
func (s *Session) Connect(ctx context.Context, handle string, stream ipu.Stream) error {
	doing := fmt.Sprintf("connect stream %q", handle)
	if stream == nil {
		return s.errorf(doing, fmt.Errorf("%w: nil stream", ErrOption))
	}
	if err := s.begin(ctx); err != nil {
		return s.errorf(doing, err)
	}
	defer s.gate.release(0)
	i := s.index(handle)
	if i < 0 {
		return s.errorf(doing, fmt.Errorf("%w: the executable has no stream of that handle%s", ErrUnknownStream, nearest.DidYouMean(handle, s.handles())))
	}
	if err := s.connect(i, stream, given); err != nil {
		return s.errorf(doing, err)
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
		return s.errorf(fmt.Sprintf("connect stream %q", handle), fmt.Errorf("%w: it is an output and takes none", ErrData))
	case len(data) != info.Bytes:
		return s.errorf(fmt.Sprintf("connect stream %q", handle), fmt.Errorf("%w: %d bytes, want %d", ErrData, len(data), info.Bytes))
	}
	return s.Connect(ctx, handle, constant{data})
}

// end says what is connected to a stream.
type end uint8

const (
	open    end = iota // nothing
	drained            // nobody wants what it delivers
	filed              // data of the model's files
	frozen             // data that an option gave, for good
	given              // what the caller gave
)

// connect is Connect for who holds the gate or has the session alone.
func (s *Session) connect(i int, stream ipu.Stream, by end) error {
	if err := s.engine.Connect(s.streams[i].Handle, stream); err != nil {
		return err
	}
	s.ends[i] = by
	switch stream.(type) {
	case bound, *Buffer, constant, fileTensor, *feed, nothing:
	default: // code of the caller, which may end the goroutine: see Core.Main
		s.alone = nil
	}
	if b, ok := stream.(*Buffer); ok && !slices.Contains(s.buffers, b) {
		s.buffers = append(s.buffers, b)
		s.windows = append(s.windows, &b.window)
	}
	return nil
}

// index returns the index of the stream with that handle, -1 if there is none.
func (s *Session) index(handle string) int {
	return slices.IndexFunc(s.streams, func(st ipu.StreamInfo) bool { return st.Handle == handle })
}

// handles returns the handles of all streams.
func (s *Session) handles() []string {
	out := make([]string, len(s.streams))
	for i := range s.streams {
		out[i] = s.streams[i].Handle
	}
	return out
}

// check returns an [*UnconnectedError] if the programs move streams that
// nothing is connected to.
func (s *Session) check(programs []int) error {
	if missing := s.unconnected(programs); len(missing) > 0 {
		return &UnconnectedError{Streams: missing}
	}
	return nil
}

// Unconnected returns the streams that the programs with these indices move
// and that nothing is connected to, in the executable's order. Without
// arguments it looks at the load and main programs. Like Connect, it needs the
// session for itself, for which it waits until ctx ends.
func (s *Session) Unconnected(ctx context.Context, programs ...int) ([]Unconnected, error) {
	if err := s.begin(ctx); err != nil {
		return nil, s.errorf("list unconnected streams", err)
	}
	defer s.gate.release(0)
	if len(programs) == 0 {
		programs = slices.Concat(s.load, s.main)
	}
	return s.unconnected(programs), nil
}

// CheckConnected returns an [*UnconnectedError] if the programs with these
// indices move streams that nothing is connected to; it takes and looks at what
// [Session.Unconnected] does.
func (s *Session) CheckConnected(ctx context.Context, programs ...int) error {
	missing, err := s.Unconnected(ctx, programs...)
	if err == nil && len(missing) > 0 {
		err = s.errorf("check streams", &UnconnectedError{Streams: missing})
	}
	return err
}

// ByProgram sorts unconnected streams by the programs that move them.
func ByProgram(streams []Unconnected) map[int][]Unconnected {
	m := map[int][]Unconnected{}
	for _, u := range streams {
		for _, p := range u.Programs {
			m[p] = append(m[p], u)
		}
	}
	return m
}

func (s *Session) unconnected(programs []int) []Unconnected {
	var missing []Unconnected
	for i, st := range s.streams {
		if s.ends[i] != open {
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
		u := Unconnected{Handle: st.Handle, Direction: st.Direction, Programs: moving, Type: fmt.Sprintf("%s %d", st.Type, st.Shape)}
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
	if i := s.index(handle); i >= 0 {
		return s.streams[i], true
	}
	return ipu.StreamInfo{}, false
}

// Streams returns every stream of the executable, in its order.
func (s *Session) Streams() []ipu.StreamInfo { return slices.Clone(s.streams) }

// Contract returns the model's contract.
func (s *Session) Contract() contract.Contract { return s.contract }

// DeviceIterations returns how many transfers of every run input and output
// one run makes.
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.device
}

// Engine returns the engine, for what a back end offers beyond ipu.Engine.
// Driving it past the session breaks the session's account of its state.
func (s *Session) Engine() ipu.Engine { return s.engine }
