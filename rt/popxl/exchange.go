package popxl

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
)

// exchange is a tensor that replicas exchange in a run: each gives its own, and goes on with what is made of those of all.
type exchange struct {
	name     string // of its anchors
	how      combination
	give     graph.TensorID
	take     graph.TensorID // may be give
	before   graph.GraphID  // what is called once it is done
	programs []uint32       // that exchange it
}

// added notes persistent tensors that are added up over replicas before a graph is called.
func (ir *Ir) added(call string, sums []graph.TensorID, before graph.GraphID) {
	for _, t := range sums {
		name := fmt.Sprintf("exchange %d", len(ir.exchanges))
		if !ir.claim(call, name) {
			return
		}
		ir.exchanges = append(ir.exchanges, exchange{name: name, how: combination{ir.b.Type(t)}, give: t, take: t, before: before})
	}
}

// exchanged makes the programs of a session's model exchange tensors: all of those that come together are given, and then all are taken.
func (ir *Ir) exchanged(m *export.Model) error {
	gives, takes := map[graph.GraphID][]graph.Step{}, map[graph.GraphID][]graph.Step{}
	for i := range ir.exchanges {
		x := &ir.exchanges[i]
		for _, p := range m.Executable.Programs {
			graph.Walk(p.Steps, func(s *graph.Step) {
				if s.Kind == graph.Call && s.Graph == x.before && !slices.Contains(x.programs, uint32(p.Index)) {
					x.programs = append(x.programs, uint32(p.Index))
				}
			})
		}
		give, err := m.AddStream(export.Port{Name: x.name, Tensor: x.give}, x.giveHandle(), graph.DeviceToHost, slices.Clone(x.programs)...)
		if err != nil {
			return err
		}
		take, err := m.AddStream(export.Port{Name: x.name, Tensor: x.take}, x.takeHandle(), graph.HostToDevice, slices.Clone(x.programs)...)
		if err != nil {
			return err
		}
		gives[x.before], takes[x.before] = append(gives[x.before], give), append(takes[x.before], take)
	}
	for i := range m.Executable.Programs {
		p := &m.Executable.Programs[i]
		p.Steps = with(p.Steps, gives, takes)
	}
	return nil
}

func (x *exchange) giveHandle() string { return x.name + ": given" }
func (x *exchange) takeHandle() string { return x.name + ": taken" }

// with puts copies before the calls of graphs.
func with(steps []graph.Step, gives, takes map[graph.GraphID][]graph.Step) []graph.Step {
	var out []graph.Step
	for _, s := range steps {
		s.Body = with(s.Body, gives, takes)
		if s.Kind == graph.Call {
			out = append(append(out, gives[s.Graph]...), takes[s.Graph]...)
		}
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
