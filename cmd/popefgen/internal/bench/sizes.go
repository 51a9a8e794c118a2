package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Size is what was measured of one size of a family. Its JSON form is described in
// docs/bench.md.
type Size struct {
	Size   string `json:"size"`   // as in "batch=2 seq=7"; "all in turn" for requests of all sizes
	Member string `json:"member"` // the size that computes it
	Measurement
}

// sized are requests of one size, in the memory of a member.
type sized struct {
	members *members
	member  int
	inputs  []moved
	outputs []moved
}

// moved is a tensor of a request that is smaller than its member.
type moved struct {
	small, big []int64
	bytes      int // of an element
	data       []byte
	memory     []byte
}

// members are the sessions of a family's members, opened with their first size.
type members struct {
	ctx      context.Context
	target   *Target
	model    *popef.Model
	family   *family.Family
	fill     func(t popef.DataType, data []byte)
	sessions map[int]rt.Session
	memory   map[int]map[string][]byte // of members, by anchor's name and direction
}

// MeasureSizes measures requests of a family's sizes, which take turns, and at last such
// of all sizes in turn. A request that is smaller than its member is copied into its memory, filled up and
// cut back. fill makes values of inputs.
func MeasureSizes(ctx context.Context, t *Target, sizes [][]int64, c Config, fill func(t popef.DataType, data []byte)) (all []Size, err error) {
	m, err := t.Model(ctx)
	if err != nil {
		return nil, err
	}
	f, err := family.Of(m)
	if err == nil && f == nil {
		err = errors.New("the model has one size")
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	open := &members{ctx: ctx, target: t, model: m, family: f, fill: fill, sessions: map[int]rt.Session{}, memory: map[int]map[string][]byte{}}
	defer func() { err = errors.Join(err, open.close()) }()
	var clients []*sized
	for _, s := range sizes {
		member, exact, err := f.Choose(s)
		if err != nil {
			return nil, err
		}
		one, err := open.size(member, exact)
		if err != nil {
			return nil, fmt.Errorf("size %s: %w", f.Named(exact), err)
		}
		clients = append(clients, one)
		all = append(all, Size{Size: f.Named(exact), Member: f.Named(f.Members[member].Sizes)})
	}
	turn := []client{}
	for _, s := range clients {
		turn = append(turn, s)
	}
	if len(clients) > 1 {
		turn = append(turn, &inTurn{all: clients})
		all = append(all, Size{Size: "all in turn"})
	}
	phases := make([]phase, len(turn))
	each := max(1, c.Duration/time.Duration(len(turn)))
	for round := range rounds + 1 {
		for i, one := range turn {
			during := max(1, each/rounds)
			if round == 0 {
				during = max(1, c.Warmup/time.Duration(len(turn)))
			}
			p, err := drive([]client{one}, 1, during)
			if err != nil {
				return nil, fmt.Errorf("size %s: %w", all[i].Size, err)
			}
			if round > 0 {
				phases[i].add(p)
			}
		}
	}
	for i := range all {
		all[i].Measurement = phases[i].measurement(&c, 0)
	}
	return all, nil
}

// close closes all sessions and the model.
func (m *members) close() error {
	var errs []error
	for _, s := range m.sessions {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, m.model.Close())...)
}

// open opens a member, whose streams get memory of their own.
func (m *members) open(member int) error {
	if m.sessions[member] != nil {
		return nil
	}
	s, err := modelrt.NewSession(m.ctx, m.family.Single(m.model, member), m.target.sessionOptions()...)
	if err != nil {
		return err
	}
	m.sessions[member], m.memory[member] = s, map[string][]byte{}
	streams := map[string][]int{}
	for _, info := range s.Streams() {
		streams[info.Handle] = info.Programs
	}
	if err := m.family.CheckExecutable(&m.model.Metadata, streams); err != nil { // of every member, before one is measured
		return err
	}
	for _, a := range s.Contract().Anchors {
		if a.Role != contract.RunInput && a.Role != contract.RunOutput {
			continue
		}
		info, ok := s.Stream(a.Handle)
		if !ok {
			return fmt.Errorf("anchor %q: the executable has no stream %q", a.Name, a.Handle)
		}
		b, err := modelrt.NewBuffer(info, s.Contract().Transfers(&a))
		if err != nil {
			return fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		if err := s.Connect(m.ctx, a.Handle, b); err != nil {
			return err
		}
		if a.Role == contract.RunInput {
			m.fill(a.Info.DataType, b.Bytes())
		}
		m.memory[member][key(a.Name, a.Type)] = b.Bytes()
	}
	return nil
}

func key(name string, typ popef.TensorType) string { return typ.String() + " " + name }

// size returns requests of one size.
func (m *members) size(member int, sizes []int64) (*sized, error) {
	if err := m.open(member); err != nil {
		return nil, err
	}
	s := &sized{members: m, member: member}
	iterations := int64(m.sessions[member].DeviceIterations())
	for i := range m.family.Tensors {
		t := &m.family.Tensors[i]
		whole := make([]int64, len(t.Axes))
		for k := range t.Axes {
			whole[k] = t.Axes[k].Of(member)
		}
		part, same := t.Shape(member, sizes), true
		n := int64(t.Elem.Size()) * iterations
		for k := range part {
			same, n = same && part[k] == whole[k], n*part[k]
		}
		if same {
			continue
		}
		p := moved{small: append([]int64{iterations}, part...), big: append([]int64{iterations}, whole...), bytes: t.Elem.Size(),
			data: make([]byte, n), memory: m.memory[member][key(t.Name, t.Type)]}
		if t.Type == popef.Input {
			m.fill(t.Elem, p.data)
			s.inputs = append(s.inputs, p)
		} else {
			s.outputs = append(s.outputs, p)
		}
	}
	return s, nil
}

// zero is what requests are filled up with here, for any element.
var zero [16]byte

func (s *sized) start(int) error {
	for i := range s.inputs {
		p := &s.inputs[i]
		family.Move(p.memory, p.big, p.data, p.small, p.bytes, zero[:p.bytes])
	}
	if err := s.members.sessions[s.member].Run(s.members.ctx); err != nil {
		return err
	}
	for i := range s.outputs {
		p := &s.outputs[i]
		family.Move(p.data, p.small, p.memory, p.big, p.bytes, nil)
	}
	return nil
}

func (s *sized) finish(int) error { return nil }

// inTurn makes requests of all sizes, one after the other.
type inTurn struct {
	all []*sized
	at  int
}

func (c *inTurn) start(slot int) error {
	c.at = (c.at + 1) % len(c.all)
	return c.all[c.at].start(slot)
}

func (c *inTurn) finish(int) error { return nil }
