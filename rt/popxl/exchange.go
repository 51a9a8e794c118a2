package popxl

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
)

// exchange is a tensor that replicas exchange in a run: each gives its own, and goes on with what is made of those of all.
type exchange struct {
	name   string // of its anchors
	how    combination
	give   graph.TensorID
	take   graph.TensorID // may be give
	before graph.GraphID  // of a step of an optimizer, what is called once it is done
}

// added notes persistent tensors that are added up over replicas before a graph is called.
func (ir *Ir) added(tensors []graph.TensorID, before graph.GraphID) {
	for _, t := range tensors {
		ir.exchanges = append(ir.exchanges, exchange{how: combination{sums, ir.b.Type(t)}, give: t, take: t, before: before})
	}
}

// exchanged makes the programs of a session's model exchange tensors: all of those that come together are given, and then all are taken.
func (ir *Ir) exchanged(m *export.Model) error {
	if ir.replicas() == 1 {
		return nil
	}
	e := m.Executable
	called := map[graph.GraphID][]uint32{} // by which programs
	for _, p := range e.Programs {
		graph.Walk(p.Steps, func(s *graph.Step) {
			if s.Kind == graph.Call && !slices.Contains(called[s.Graph], uint32(p.Index)) {
				called[s.Graph] = append(called[s.Graph], uint32(p.Index))
			}
		})
	}
	steps := ir.exchanges // of optimizers
	ir.exchanges = nil
	all := map[graph.GraphID][]graph.Step{}
	for _, g := range slices.Sorted(maps.Keys(called)) {
		var gives, takes []graph.Step
		for _, x := range steps {
			if x.before != g {
				continue
			}
			give, take, err := ir.swap(m, x, called[g])
			if err != nil {
				return err
			}
			gives, takes = append(gives, give), append(takes, take)
		}
		rest, err := ir.divided(m, g, called[g])
		if err != nil {
			return err
		}
		all[g] = slices.Concat(gives, takes, rest)
	}
	for i := range e.Programs {
		e.Programs[i].Steps = instead(e.Programs[i].Steps, all)
	}
	return nil
}

// swap notes an exchange, and returns the steps that give and take its tensors.
func (ir *Ir) swap(m *export.Model, x exchange, programs []uint32) (give, take graph.Step, err error) {
	// No two anchors of one direction have one name, and these are nobody's.
	for i := 0; x.name == "" || ir.names[x.name]; i++ {
		x.name = fmt.Sprintf("exchange %d", len(ir.exchanges)+i)
	}
	ir.names[x.name] = true
	ir.exchanges = append(ir.exchanges, x)
	if give, err = m.AddStream(export.Port{Name: x.name, Tensor: x.give}, x.giveHandle(), graph.DeviceToHost, slices.Clone(programs)...); err != nil {
		return give, take, err
	}
	take, err = m.AddStream(export.Port{Name: x.name, Tensor: x.take}, x.takeHandle(), graph.HostToDevice, slices.Clone(programs)...)
	return give, take, err
}

func (x *exchange) giveHandle() string { return x.name + ": given" }
func (x *exchange) takeHandle() string { return x.name + ": taken" }

// instead puts steps in the place of the calls of graphs.
func instead(steps []graph.Step, of map[graph.GraphID][]graph.Step) []graph.Step {
	var out []graph.Step
	for _, s := range steps {
		if s.Kind == graph.Call {
			out = append(out, of[s.Graph]...)
			continue
		}
		s.Body = instead(s.Body, of)
		out = append(out, s)
	}
	return out
}

// connectExchanges connects the streams over which replica i exchanges tensors.
func (s *Session) connectExchanges(ctx context.Context, m *meeting, i int) error {
	for k := range s.ir.exchanges {
		x := &s.ir.exchanges[k]
		p := part{meeting: m, point: m.points[k], replica: i}
		for handle, stream := range map[string]ipu.Stream{x.giveHandle(): &giver{p}, x.takeHandle(): &taker{p}} {
			if err := s.s.Connect(ctx, handle, stream); err != nil {
				return err
			}
		}
	}
	return nil
}
