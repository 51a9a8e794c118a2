package dump

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
)

// colours are the fills of nodes by the phase of their graph.
var colours = map[Phase]string{Forward: "#dbe9f6", Backward: "#fde0c5", Update: "#d9ead3"}

// WriteDOT writes e in the language of Graphviz: each graph a cluster, with nodes in the colour of their phase, and what they read from elsewhere beside it. An edge to a backward or update graph
// from the forward graph is dashed and of the class "stash": what is kept until then. Constants are left out. places has more to say of tensors, at the edges; it may be nil.
// The executable need not be verified, see [Describe].
func WriteDOT(w io.Writer, e *graph.Executable, places map[graph.TensorID]string) error {
	d := &dot{e: e, w: bufio.NewWriter(w), places: places, phases: Phases(e), made: map[graph.TensorID]place{}, shown: map[graph.TensorID]bool{}}
	fmt.Fprintf(d.w, "digraph %s {\n  compound=true;\n  node [shape=box, style=filled, fontname=\"Helvetica\", fontsize=10];\n  edge [fontname=\"Helvetica\", fontsize=8];\n", quoted(e.Name))
	for i := range e.Graphs {
		g := &e.Graphs[i]
		fmt.Fprintf(d.w, "  subgraph cluster_%d {\n    label=%s;\n", i, quoted(fmt.Sprintf("%s (%s)", g.Name, d.phases[i])))
		for k := range g.Nodes {
			n := &g.Nodes[k]
			label := n.Op.Kind()
			if n.Name != "" {
				label += "\n" + n.Name
			}
			fmt.Fprintf(d.w, "    n%d_%d [label=%s, fillcolor=\"%s\", class=\"%s\"];\n", i, k, quoted(label), colours[d.phases[i]], d.phases[i])
			for _, out := range n.Outputs {
				if out != graph.None {
					d.made[out] = place{i, k}
				}
			}
		}
		d.w.WriteString("  }\n")
	}
	for i := range e.Graphs {
		for k := range e.Graphs[i].Nodes {
			d.edges(i, k)
		}
	}
	d.w.WriteString("}\n")
	return d.w.Flush()
}

// place is where a node stands.
type place struct{ graph, node int }

type dot struct {
	e      *graph.Executable
	w      *bufio.Writer // keeps the first error
	places map[graph.TensorID]string
	phases []Phase
	made   map[graph.TensorID]place // by which node, the last that writes it
	shown  map[graph.TensorID]bool  // has a box of its own
}

// edges writes the edges to a node, and those to the graphs that it runs.
func (d *dot) edges(g, k int) {
	n := &d.e.Graphs[g].Nodes[k]
	for at, in := range n.Inputs {
		if in < 0 || int(in) >= len(d.e.Tensors) || slices.Index(n.Inputs, in) < at {
			continue
		}
		t := &d.e.Tensors[in]
		if t.Const {
			continue
		}
		label := t.Type.String()
		if p := d.places[in]; p != "" {
			label += "\n" + p
		}
		from, style := "", ""
		// A node of its own graph reads a persistent tensor before or after it is written: only the box tells truly.
		if m, ok := d.made[in]; ok && !t.Persistent {
			from = fmt.Sprintf("n%d_%d", m.graph, m.node)
			if d.phases[m.graph] == Forward && d.phases[g] != Forward {
				style = ", style=dashed, color=\"#b35c00\", class=\"stash\""
			}
		} else {
			from = fmt.Sprintf("t%d", in)
			d.box(in, t)
		}
		fmt.Fprintf(d.w, "  %s -> n%d_%d [label=%s, tooltip=%s%s];\n", from, g, k, quoted(label), quoted(t.Name), style)
	}
	for _, out := range n.Outputs {
		if out < 0 || int(out) >= len(d.e.Tensors) || !d.e.Tensors[out].Persistent {
			continue
		}
		d.box(out, &d.e.Tensors[out])
		fmt.Fprintf(d.w, "  n%d_%d -> t%d [tooltip=%s];\n", g, k, out, quoted(d.e.Tensors[out].Name))
	}
	s := reflect.ValueOf(n.Op).Elem()
	for i := range s.NumField() {
		if run, ok := s.Field(i).Interface().(graph.GraphID); ok && run >= 0 && int(run) < len(d.e.Graphs) && len(d.e.Graphs[run].Nodes) > 0 {
			fmt.Fprintf(d.w, "  n%d_%d -> n%d_0 [lhead=cluster_%d, style=dotted, label=%s];\n", g, k, run, run, quoted(words(s.Type().Field(i).Name)))
		}
	}
}

// box writes the box of a tensor that no node makes, or of a persistent one, once.
func (d *dot) box(id graph.TensorID, t *graph.Tensor) {
	if d.shown[id] {
		return
	}
	d.shown[id] = true
	kind := "ellipse"
	if t.Persistent {
		kind = "cylinder"
	}
	label := t.Name + "\n" + t.Type.String()
	if p := d.places[id]; p != "" {
		label += "\n" + p
	}
	fmt.Fprintf(d.w, "  t%d [shape=%s, fillcolor=\"#eeeeee\", label=%s];\n", id, kind, quoted(label))
}

// quoted quotes any text for Graphviz. A backslash would begin one of its escapes.
func quoted(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable.Line(l))
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
