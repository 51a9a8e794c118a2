package rows

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// unjoined returns an executable as it is with a stream for each field of a transfer that has
// several inputs side by side: a tensor that is written by one stream and read by [graph.Field]
// operators alone. It shares all else with e, which it is itself if there is nothing to take apart.
func unjoined(e *graph.Executable) *graph.Executable {
	fields := joined(e)
	if len(fields) == 0 {
		return e
	}
	out := *e
	out.Streams = slices.Clone(e.Streams)
	streams := map[graph.TensorID][]graph.Step{} // that take the place of the one that writes a joined tensor
	out.Graphs = slices.Clone(e.Graphs)
	for g := range out.Graphs {
		var rest []graph.Node
		for i := range out.Graphs[g].Nodes {
			n := &out.Graphs[g].Nodes[i]
			f := fieldOf(e, n)
			if f == nil || !fields[n.Inputs[0]] {
				rest = append(rest, *n)
				continue
			}
			streams[n.Inputs[0]] = append(streams[n.Inputs[0]], graph.Step{Kind: graph.CopyIn, Stream: graph.StreamID(len(out.Streams)), Tensor: n.Outputs[0]})
			out.Streams = append(out.Streams, graph.Stream{Handle: f.Handle, Direction: graph.HostToDevice, Type: graph.TensorType{DType: f.To, Shape: f.Shape}})
		}
		out.Graphs[g].Nodes = rest
	}
	out.Programs = slices.Clone(e.Programs)
	for p := range out.Programs {
		out.Programs[p].Steps = unjoinedSteps(out.Programs[p].Steps, streams)
	}
	return &out
}

// unjoinedSteps returns the steps with others in the place of those that write joined tensors.
func unjoinedSteps(steps []graph.Step, streams map[graph.TensorID][]graph.Step) []graph.Step {
	var out []graph.Step
	for _, s := range steps {
		if own := streams[s.Tensor]; s.Kind == graph.CopyIn && own != nil {
			out = append(out, own...)
			continue
		}
		s.Body = unjoinedSteps(s.Body, streams)
		out = append(out, s)
	}
	return out
}

// fieldOf returns the operator of a node that takes a tensor of a run out of a transfer, nil of others.
func fieldOf(e *graph.Executable, n *graph.Node) *graph.Field {
	f, ok := n.Op.(*graph.Field)
	if !ok || len(n.Outputs) != 1 || n.Outputs[0] == graph.None || e.Tensors[n.Outputs[0]].Persistent {
		return nil
	}
	return f
}

// joined returns the tensors that one stream writes and only fields read.
func joined(e *graph.Executable) map[graph.TensorID]bool {
	fields, writers := map[graph.TensorID]bool{}, map[graph.TensorID]int{}
	var others []graph.TensorID // that something else reads or writes
	for i := range e.Graphs {
		g := &e.Graphs[i]
		others = append(append(others, g.Params...), g.Results...)
		for k := range g.Nodes {
			n := &g.Nodes[k]
			others = append(others, n.Outputs...)
			if fieldOf(e, n) != nil {
				fields[n.Inputs[0]] = true
			} else {
				others = append(others, n.Inputs...)
			}
		}
	}
	for _, p := range e.Programs {
		graph.Walk(p.Steps, func(s *graph.Step) {
			switch s.Kind {
			case graph.CopyIn:
				writers[s.Tensor]++
			case graph.CopyOut:
				others = append(others, s.Tensor)
			}
		})
	}
	for _, t := range others {
		delete(fields, t)
	}
	for t := range fields {
		if writers[t] != 1 || e.Tensors[t].Const || e.Tensors[t].Persistent {
			delete(fields, t)
		}
	}
	return fields
}
