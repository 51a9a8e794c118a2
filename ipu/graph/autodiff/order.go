package autodiff

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

// wellFounded refuses graphs that use themselves, directly or by way of others, and references to what does not exist, in the given graphs and those that their
// nodes run: nothing else that reads them here would end.
func wellFounded(e *graph.Executable, from []graph.GraphID) error {
	const (
		entered = 1
		left    = 2
	)
	state := make([]uint8, len(e.Graphs))
	var enter func(id graph.GraphID, depth int) error
	enter = func(id graph.GraphID, depth int) error {
		switch {
		case id < 0 || int(id) >= len(e.Graphs):
			return fmt.Errorf("graph %d does not exist, want 0 to %d", id, len(e.Graphs)-1)
		case state[id] == left:
			return nil
		case state[id] == entered:
			return fmt.Errorf("graph %d %q uses itself", id, e.Graphs[id].Name)
		case depth > graph.MaxNesting:
			return fmt.Errorf("graph %d %q is nested deeper than %d", id, e.Graphs[id].Name, graph.MaxNesting)
		}
		state[id] = entered
		for i := range e.Graphs[id].Nodes {
			n := &e.Graphs[id].Nodes[i]
			for _, list := range [][]graph.TensorID{n.Inputs, n.Outputs} {
				for _, t := range list {
					if t != graph.None && (t < 0 || int(t) >= len(e.Tensors)) {
						return fmt.Errorf("graph %d %q, node %q: tensor %d does not exist, want 0 to %d", id, e.Graphs[id].Name, n.Name, t, len(e.Tensors)-1)
					}
				}
			}
			for _, sub := range graph.Subgraphs(n.Op) {
				if err := enter(sub, depth+1); err != nil {
					return err
				}
			}
		}
		state[id] = left
		return nil
	}
	for _, id := range from {
		if err := enter(id, 1); err != nil {
			return err
		}
	}
	return nil
}

// order refuses nodes that read what others behind them write: gradients flow from the last node to the first, and what such a node
// contributes would be lost.
func (b *backward) order(name string) error {
	reader := map[graph.TensorID]*graph.Node{}
	for i := range b.forward {
		n := &b.forward[i]
		read := func(list []graph.TensorID) {
			for _, t := range list {
				if t != graph.None && !b.e.Tensors[t].Persistent && reader[t] == nil {
					reader[t] = n
				}
			}
		}
		read(n.Inputs)
		for _, s := range graph.Subgraphs(n.Op) {
			read(b.outside(s).reads)
		}
		for _, t := range n.Outputs {
			if r := reader[t]; t != graph.None && r != nil {
				return fmt.Errorf("differentiate graph %q: %w: node %q reads tensor %q, which node %q behind it writes: want nodes in the order in which they run, without a cycle, and Options.Before too",
					name, graph.ErrInvalid, r.Name, b.e.Tensors[t].Name, n.Name)
			}
		}
	}
	return nil
}
