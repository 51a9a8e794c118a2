package dump

import (
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Phase is the part of a training step that a graph computes. Graphs of other models are all Forward.
type Phase string

// The phases.
const (
	Forward  Phase = "forward"
	Backward Phase = "backward"
	Update   Phase = "update"
)

// Phases returns the phase of each graph: update graphs have steps of an optimizer, and in backward graphs are nodes that autodiff has named.
func Phases(e *graph.Executable) []Phase {
	all := make([]Phase, len(e.Graphs))
	for i := range e.Graphs {
		all[i] = Forward
		for k := range e.Graphs[i].Nodes {
			n := &e.Graphs[i].Nodes[k]
			if _, ok := n.Op.(*graph.Update); ok {
				all[i] = Update
				break
			}
			if strings.HasPrefix(n.Name, "grad/") {
				all[i] = Backward
			}
		}
	}
	return all
}
