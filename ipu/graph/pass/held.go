package pass

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// heldUntil is the pass before which tensors are let go: it and those after it change no bits.
const heldUntil = "bounds"

// hold makes programs return tensors, each once, where a step has called the graph that writes it, until the function that it
// gives is called. As steps they are renumbered, and follow what they are replaced by, like all that is read.
func hold(e *graph.Executable, held []graph.TensorID) (let func()) {
	streams := len(e.Streams)
	by := map[graph.GraphID][]graph.TensorID{}
	if len(held) > 0 {
		writers := findWrites(e)
		for _, t := range held {
			if g := writers.graph[t]; g >= 0 && !e.Tensors[t].Persistent {
				by[g] = append(by[g], t)
			}
		}
	}
	for p := range e.Programs {
		e.Programs[p].Steps = holdIn(e, e.Programs[p].Steps, by)
	}
	return func() {
		for p := range e.Programs {
			e.Programs[p].Steps = letGo(e.Programs[p].Steps, graph.StreamID(streams))
		}
		e.Streams = e.Streams[:streams]
		if len(held) > 0 {
			removeDead(e)
		}
	}
}

// holdIn returns steps with those that copy out behind the first calls of graphs, which it takes off the list.
func holdIn(e *graph.Executable, steps []graph.Step, by map[graph.GraphID][]graph.TensorID) []graph.Step {
	if len(by) == 0 {
		return steps
	}
	var out []graph.Step
	for _, s := range steps {
		s.Body = holdIn(e, s.Body, by)
		out = append(out, s)
		if s.Kind != graph.Call {
			continue
		}
		for _, t := range by[s.Graph] {
			out = append(out, graph.Step{Kind: graph.CopyOut, Stream: graph.StreamID(len(e.Streams)), Tensor: t})
			e.Streams = append(e.Streams, graph.Stream{Handle: fmt.Sprint("held ", len(e.Streams)), Direction: graph.DeviceToHost, Type: e.Tensors[t].Type})
		}
		delete(by, s.Graph)
	}
	return out
}

// letGo takes out of steps what copies to streams from one on.
func letGo(steps []graph.Step, from graph.StreamID) []graph.Step {
	for i := range steps {
		steps[i].Body = letGo(steps[i].Body, from)
	}
	return slices.DeleteFunc(steps, func(s graph.Step) bool { return s.Kind == graph.CopyOut && s.Stream >= from })
}
