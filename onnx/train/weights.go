package train

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// consumer is a use of a value by a node.
type consumer struct {
	node    *onnx.Node
	operand int
	graph   *onnx.Graph // that the node is in
}

// consumers returns the uses of each value of the main graph and the graphs in it, by name, in the order of the nodes.
func consumers(m *onnx.Model) map[string][]consumer {
	uses := map[string][]consumer{}
	everyGraph(m.Graph, func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			for i, name := range n.Inputs {
				if name != "" {
					uses[name] = append(uses[name], consumer{n, i, g})
				}
			}
		}
	})
	return uses
}

// everyGraph visits a graph and those that its nodes run, each once.
func everyGraph(g *onnx.Graph, visit func(*onnx.Graph)) {
	seen := map[*onnx.Graph]bool{}
	var walk func(g *onnx.Graph)
	walk = func(g *onnx.Graph) {
		if g == nil || seen[g] {
			return
		}
		seen[g] = true
		visit(g)
		for _, n := range g.Nodes {
			for _, a := range n.Attributes {
				walk(a.Graph)
				for _, inner := range a.Graphs {
					walk(inner)
				}
			}
		}
	}
	walk(g)
}

// statistics reports whether a value is the running mean or variance of a normalisation wherever it is used: a
// weight that is measured, not learnt.
func (t *trainer) statistics(name string) bool {
	uses := t.consumed[name]
	for _, u := range uses {
		if u.node.OpType != "BatchNormalization" || u.operand < 3 {
			return false
		}
	}
	return len(uses) > 0
}

// candidates returns the initialisers and constants that can be trained: floats that are neither statistics nor share their name with another
// one, of which the name could not say which is meant.
func (t *trainer) candidates() map[string]bool {
	count := map[string]int{}
	can := map[string]bool{}
	everyValue(t.model, func(name string, value *onnx.Tensor, constant bool) {
		count[name]++
		can[name] = isFloat(value.Elem) && !t.statistics(name) && t.Values[name] == nil && (!constant || t.constants[name])
	})
	for name, n := range count {
		if n > 1 {
			delete(can, name)
		}
		if !can[name] {
			delete(can, name)
		}
	}
	return can
}

// frozen reports whether a pattern freezes a weight.
func (t *trainer) frozen(name string) bool {
	for _, p := range t.Freeze {
		if ok, _ := path.Match(p, name); ok || p == name {
			return true
		}
	}
	return false
}

// check refuses patterns that are none, or that match nothing.
func (t *trainer) check() error {
	var names []string
	everyValue(t.model, func(name string, value *onnx.Tensor, constant bool) {
		if !constant || isFloat(value.Elem) {
			names = append(names, name)
		}
	})
	for _, p := range t.Freeze {
		if err := matches("freeze", p, names); err != nil {
			return err
		}
	}
	return nil
}

// matches refuses a pattern that is none, or that matches none of the names.
func matches(what, pattern string, names []string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return refuse("%s %q: it is no pattern of path.Match: %w; * stands for anything but /, and \\ takes the meaning from what follows", what, pattern, err)
	}
	for _, n := range names {
		if ok, _ := path.Match(pattern, n); ok || n == pattern {
			return nil
		}
	}
	return refuse("%s %q: no weight matches%s", what, pattern, nearest.DidYouMean(pattern, names))
}

// nothingToTrain says why no weight is trained.
func (t *trainer) nothingToTrain(candidates map[string]bool) error {
	switch {
	case len(candidates) > 0 && len(t.Freeze) > 0:
		return refuse("all %d weights are frozen, want one at least that is not: %s", len(candidates), list(slices.Sorted(maps.Keys(candidates))))
	case len(t.model.Graph.Initializers) == 0:
		return refuse("the model has no weights: what is trained are its initializers, and the values of Constant nodes that layers read as their weights; export it with initializers")
	}
	kinds := map[string]bool{}
	floats := false
	for _, w := range t.model.Graph.Initializers {
		kinds[w.Elem.String()] = true
		floats = floats || w.Elem == onnx.Float
	}
	if floats {
		return refuse("the model has no weight that can be trained: floats of nodes that the outputs depend on, found initializers that nothing reads, or that nodes need when the model is compiled; have an output depend on one")
	}
	return refuse("the model has no weight that can be trained: floats of nodes that the outputs depend on, found initializers of type %s; train the model before it is quantised", strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
}

// list names things, the first of them if they are many.
func list(names []string) string {
	const most = 8
	quoted := make([]string, min(len(names), most))
	for i := range quoted {
		quoted[i] = fmt.Sprintf("%q", names[i])
	}
	text := strings.Join(quoted, ", ")
	if n := len(names) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

func them(names []string) string {
	if len(names) == 1 {
		return "it"
	}
	return "them"
}

// freezeHint says how to leave weights out.
func freezeHint(names []string) string {
	return fmt.Sprintf("freeze what is not to be learnt (--freeze %s), or take the loss of an output that depends on %s", names[0], them(names))
}

// withoutInfluence returns the trained weights that the loss does not depend on.
func (t *trainer) withoutInfluence() []string {
	from := map[graph.TensorID]bool{}
	var walk func(g graph.GraphID, into bool) // into: everything in the graph counts
	needed := map[graph.TensorID]bool{t.lossAt: true}
	walk = func(g graph.GraphID, into bool) {
		nodes := t.exe.Graphs[g].Nodes
		for i := len(nodes) - 1; i >= 0; i-- {
			n := &nodes[i]
			if !into && !slices.ContainsFunc(n.Outputs, func(id graph.TensorID) bool { return needed[id] }) {
				continue
			}
			for _, in := range n.Inputs {
				needed[in] = true
			}
			for _, s := range graph.Subgraphs(n.Op) {
				walk(s, true)
				for _, r := range t.exe.Graphs[s].Results {
					needed[r] = true
				}
			}
		}
	}
	walk(t.low.Main, false)
	for id := range needed {
		from[id] = true
	}
	var idle []string
	for _, i := range t.trained {
		if w := t.low.Weights[i]; !from[w.Tensor] {
			idle = append(idle, w.Name)
		}
	}
	return idle
}
