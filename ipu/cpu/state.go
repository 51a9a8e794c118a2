package cpu

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
)

// State implements [ipu.Stateful].
func (e *Engine) State(load []int) []string {
	p := e.plan
	changed := map[graph.TensorID]bool{}
	for i := range p.Programs {
		if slices.Contains(load, p.Programs[i].Index) {
			continue
		}
		for _, s := range p.Programs[i].Steps {
			for _, o := range s.Out {
				if s.Kind != plan.CopyIn && o.Place == plan.InPersistent {
					changed[graph.TensorID(o.Index)] = true
				}
			}
		}
	}
	set := map[graph.StreamID]bool{}
	for i := range p.Programs {
		if !slices.Contains(load, p.Programs[i].Index) {
			continue
		}
		for _, s := range p.Programs[i].Steps {
			for _, o := range s.Out {
				if s.Kind == plan.CopyIn && o.Place == plan.InPersistent && changed[graph.TensorID(o.Index)] {
					set[s.Stream] = true
				}
			}
		}
	}
	var handles []string
	for i, s := range e.Streams() {
		if set[graph.StreamID(i)] {
			handles = append(handles, s.Handle)
		}
	}
	return handles
}
