package graph

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// String returns what Dump writes.
func (e *Executable) String() string {
	var b strings.Builder
	// A strings.Builder never fails.
	_ = e.Dump(&b)
	return b.String()
}

// Dump writes e in a form for people: its streams, programs, constants,
// persistent tensors and the nodes of its graphs, one a line. It expects a
// verified executable.
func (e *Executable) Dump(w io.Writer) error {
	d := &dumper{e: e, w: bufio.NewWriter(w)}
	d.line(0, "executable %q, made by %q", e.Name, e.Producer)
	d.heading("streams", len(e.Streams))
	for i := range e.Streams {
		s := &e.Streams[i]
		d.line(1, "%q %v %v", s.Handle, s.Direction, s.Type)
	}
	d.heading("programs", len(e.Programs))
	for i := range e.Programs {
		p := &e.Programs[i]
		d.line(1, "%d %q", p.Index, p.Name)
		d.steps(2, p.Steps)
	}
	d.tensors("constants", func(t *Tensor) bool { return t.Const })
	d.tensors("persistent", func(t *Tensor) bool { return t.Persistent })
	if len(e.Passes) > 0 {
		d.heading("passes", len(e.Passes))
		for _, p := range e.Passes {
			d.line(1, "%v", p)
		}
	}
	d.heading("graphs", len(e.Graphs))
	for i := range e.Graphs {
		d.graph(GraphID(i), &e.Graphs[i])
	}
	return d.w.Flush()
}

// dumper writes lines; the bufio.Writer keeps the first error.
type dumper struct {
	e *Executable
	w *bufio.Writer
}

func (d *dumper) line(indent int, format string, args ...any) {
	for range indent {
		d.w.WriteString("  ")
	}
	fmt.Fprintf(d.w, format, args...)
	d.w.WriteByte('\n')
}

func (d *dumper) heading(what string, n int) { d.line(0, "%s: %d", what, n) }

// ref names a tensor: its number, which is unique, and its name, which is
// readable.
func (d *dumper) ref(id TensorID) string {
	if id == None {
		return "-"
	}
	return fmt.Sprintf("%%%d:%s", id, quoteOdd(d.e.Tensors[id].Name))
}

// quoteOdd quotes a name that could be misread in a list.
func quoteOdd(name string) string {
	if name == "" || strings.ContainsAny(name, " ,()=\"") || strconv.Quote(name) != `"`+name+`"` {
		return strconv.Quote(name)
	}
	return name
}

func (d *dumper) refs(ids []TensorID) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(d.ref(id))
	}
	return b.String()
}

func (d *dumper) steps(indent int, steps []Step) {
	for i := range steps {
		s := &steps[i]
		switch s.Kind {
		case CopyIn:
			d.line(indent, "%s <- %q", d.ref(s.Tensor), d.e.Streams[s.Stream].Handle)
		case CopyOut:
			d.line(indent, "%s -> %q", d.ref(s.Tensor), d.e.Streams[s.Stream].Handle)
		case Call:
			d.line(indent, "call graph %d %q", s.Graph, d.e.Graphs[s.Graph].Name)
		case Repeat:
			d.line(indent, "repeat %d times", s.Count)
			d.steps(indent+1, s.Body)
		}
	}
}

func (d *dumper) tensors(what string, match func(*Tensor) bool) {
	n, size := 0, int64(0)
	for i := range d.e.Tensors {
		if t := &d.e.Tensors[i]; match(t) {
			n++
			size += t.Type.Bytes()
		}
	}
	d.line(0, "%s: %d, %d bytes", what, n, size)
	for i := range d.e.Tensors {
		if t := &d.e.Tensors[i]; match(t) {
			d.line(1, "%s %v, %d bytes", d.ref(TensorID(i)), t.Type, t.Type.Bytes())
		}
	}
}

func (d *dumper) graph(id GraphID, g *Graph) {
	d.line(1, "graph %d %q, %d nodes", id, g.Name, len(g.Nodes))
	if len(g.Params)+len(g.Results) > 0 {
		d.line(2, "parameters (%s), results (%s)", d.refs(g.Params), d.refs(g.Results))
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		types := make([]string, len(n.Outputs))
		for j, out := range n.Outputs {
			types[j] = "-"
			if out != None {
				types[j] = d.e.Tensors[out].Type.String()
			}
		}
		line := fmt.Sprintf("%s = %s(%s) %s", d.refs(n.Outputs), n.Op.Kind(), d.refs(n.Inputs), strings.Join(types, ", "))
		if attrs := d.attributes(n); attrs != "" {
			line += "; " + attrs
		}
		if n.Name != "" {
			line += "  # " + quoteOdd(n.Name)
		}
		d.line(2, "%s", line)
	}
}

// attributes lists what an operator has besides its operands, its graphs
// included.
func (d *dumper) attributes(n *Node) string {
	in := make([]TensorType, len(n.Inputs))
	for i, t := range n.Inputs {
		if t != None {
			in[i] = d.e.Tensors[t].Type
		}
	}
	var all []string
	for _, a := range Attributes(n.Op, in) {
		all = append(all, a.Name+" "+a.Value)
	}
	s := reflect.ValueOf(n.Op).Elem()
	for i := range s.NumField() {
		if g, ok := s.Field(i).Interface().(GraphID); ok {
			all = append(all, fmt.Sprintf("%s graph %d", words(s.Type().Field(i).Name), g))
		}
	}
	return strings.Join(all, ", ")
}
