package rows

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Member is a program with a number of rows.
type Member struct {
	Program int
	N       int64
	Axes    map[string]int // as [Independent] takes them
}

// Alike proves that the rows of every member are independent, and that all members
// compute a row in the same way: a row of one size of batch gives what the same row gives
// in another. That takes more than independent rows. A model may multiply by the number
// of its rows, or have a constant that differs between the sizes.
//
// All members are programs of one executable with the same nodes in the same order, but
// for those that only view a row's elements in another shape, and
// their streams come in the same order, with the same handles but for what follows a
// last '#'. What differs otherwise, passes that chose differently included, is not proven:
// the error is a [*Finding] that names the node of the later member. A member of one row,
// in which passes find more to leave out, is compared only where there are not two others.
func Alike(e *graph.Executable, members ...Member) error {
	var first *analysis
	several := 0
	for _, m := range members {
		if m.N > 1 {
			several++
		}
	}
	for _, m := range members {
		a := newAnalysis(e, m.N, m.Axes)
		if err := a.program(m.Program); err != nil {
			return err
		}
		if len(a.findings) > 0 {
			return a.findings[0]
		}
		if m.N == 1 && several > 1 {
			continue
		}
		if first == nil {
			first = a
			continue
		}
		c := &comparison{e: e, a: first, b: a, to: map[graph.TensorID]graph.TensorID{}, roots: [2]map[graph.TensorID]graph.TensorID{{}, {}}}
		if f := c.steps(first.steps, a.steps); f != nil {
			return f
		}
	}
	return nil
}

// comparison walks two programs side by side.
type comparison struct {
	e    *graph.Executable
	a, b *analysis
	to   map[graph.TensorID]graph.TensorID // tensors of b by those of a that they correspond to
	// roots are, of both programs, what views are views of: tensors with the same elements
	// of each row, in the same order.
	roots [2]map[graph.TensorID]graph.TensorID
}

// root returns what a tensor of a program is a view of.
func (c *comparison) root(program int, t graph.TensorID) graph.TensorID {
	if r, ok := c.roots[program][t]; ok {
		return r
	}
	return t
}

// views notes nodes that only view a row's elements in another shape, and returns the others:
// reshapes, and transposes that move nothing but rows.
func (c *comparison) views(program int, a *analysis, nodes []graph.Node) []*graph.Node {
	var out []*graph.Node
	for i := range nodes {
		n := &nodes[i]
		view := n.Op.Kind() == "Reshape"
		if t, ok := n.Op.(*graph.Transpose); ok {
			last := int64(-1)
			view = true
			for _, p := range t.Perm {
				if at := a.values[n.Inputs[0]].at; at == nil || int(p) >= len(at) {
					view = false
				} else if len(of(at[p])) > 0 {
					view, last = view && p > last, p
				}
			}
		}
		if view && !c.e.Tensors[n.Outputs[0]].Persistent && !c.changes(program, n.Inputs[0]) {
			c.roots[program][n.Outputs[0]] = c.root(program, n.Inputs[0])
		} else {
			out = append(out, n)
		}
	}
	return out
}

// changes reports whether a tensor may be written while a view of it is read.
func (c *comparison) changes(program int, t graph.TensorID) bool {
	r := &c.e.Tensors[c.root(program, t)]
	return r.Persistent && (c.a.writes[c.root(program, t)] || c.b.writes[c.root(program, t)])
}

// differs returns a finding about a node of the second program, or about a step.
func differs(n *graph.Node, format string, args ...any) *Finding {
	f := &Finding{Reason: Differs, Why: fmt.Sprintf(format, args...)}
	if n != nil {
		f.Node, f.Kind = n.Name, n.Op.Kind()
	}
	return f
}

func (c *comparison) steps(as, bs []graph.Step) *Finding {
	if len(as) != len(bs) {
		return differs(nil, "the programs have %d and %d steps", len(as), len(bs))
	}
	for i := range as {
		s, t := &as[i], &bs[i]
		if s.Kind != t.Kind || s.Count != t.Count {
			return differs(nil, "the programs have other steps")
		}
		var f *Finding
		switch s.Kind {
		case graph.CopyIn, graph.CopyOut:
			name, other := c.e.Streams[s.Stream].Handle, c.e.Streams[t.Stream].Handle
			switch {
			case base(name) != base(other):
				f = differs(nil, "the programs have streams in another order: %q and %q", name, other)
			case s.Kind == graph.CopyIn:
				f = c.pair(nil, s.Tensor, t.Tensor)
			default:
				f = c.same(nil, s.Tensor, t.Tensor)
			}
		case graph.Call:
			f = c.graph(s.Graph, t.Graph)
		case graph.Repeat:
			f = c.steps(s.Body, t.Body)
		}
		if f != nil {
			return f
		}
	}
	return nil
}

// base is a handle without the number that tells members apart.
func base(handle string) string {
	if i := strings.LastIndexByte(handle, '#'); i > 0 {
		return handle[:i]
	}
	return handle
}

// pair makes a tensor that is written correspond to another one.
func (c *comparison) pair(n *graph.Node, a, b graph.TensorID) *Finding {
	if (a == graph.None) != (b == graph.None) {
		return differs(n, "it gives other results in the two programs")
	}
	if a == graph.None {
		return nil
	}
	if c.e.Tensors[a].Persistent && a != b {
		return differs(n, "it writes other persistent tensors in the two programs")
	}
	c.to[a] = b
	return c.shaped(n, a, b)
}

// same reports whether tensors that are read correspond to each other.
func (c *comparison) same(n *graph.Node, a, b graph.TensorID) *Finding {
	if a == b && (a == graph.None || c.e.Tensors[a].Const || c.e.Tensors[a].Persistent) {
		return nil
	}
	if a != graph.None && b != graph.None {
		ra, rb := c.root(0, a), c.root(1, b)
		if to, ok := c.to[ra]; ok && to == rb || ra == rb && (c.e.Tensors[ra].Const || c.e.Tensors[ra].Persistent) {
			return c.shaped(n, a, b)
		}
		if s, t := &c.e.Tensors[ra], &c.e.Tensors[rb]; (ra != a || rb != b) && s.Const && t.Const {
			if !c.constants(s, t) {
				return differs(n, "constant %q has other values in programs of %d and %d rows", t.Name, c.a.n, c.b.n)
			}
			return c.shaped(n, a, b)
		}
		if s, t := &c.e.Tensors[a], &c.e.Tensors[b]; s.Const && t.Const {
			if !c.constants(s, t) {
				return differs(n, "constant %q has other values in programs of %d and %d rows", t.Name, c.a.n, c.b.n)
			}
			return nil
		}
	}
	return differs(n, "it reads other tensors in the two programs")
}

// shaped reports whether tensors are of one type but for the numbers of rows.
func (c *comparison) shaped(n *graph.Node, a, b graph.TensorID) *Finding {
	s, t := c.e.Tensors[a].Type, c.e.Tensors[b].Type
	bad := differs(n, "what is %v with %d rows is %v with %d, which differs in more than rows", s, c.a.n, t, c.b.n)
	v, w := &c.a.values[a], &c.b.values[b]
	if s.DType != t.DType || s.Rank() != t.Rank() || len(v.at) != s.Rank() || len(w.at) != s.Rank() || (v.kind == mixed) || (w.kind == mixed) {
		return bad
	}
	for i := range s.Shape {
		switch {
		case (v.kind == alike || w.kind == alike) && s.Shape[i] == t.Shape[i]:
		case v.kind == alike && w.kind == alike && even(v.at[i]) && even(w.at[i]) && s.Shape[i]*c.b.n == t.Shape[i]*c.a.n:
		case v.kind == apart && w.kind == apart && slices.Equal(of(v.at[i]), of(w.at[i])):
		default:
			return bad
		}
	}
	return nil
}

// of returns the factors of an axis within a row.
func of(fs []factor) []factor {
	var out []factor
	for _, f := range fs {
		if f.weight <= 0 {
			out = append(out, factor{f.size, fixed})
		}
	}
	return canonical(out)
}

// constants reports whether constants are equal, or have the same for each row, which
// are on one axis.
func (c *comparison) constants(s, t *graph.Tensor) bool {
	if s.Type.Equal(t.Type) {
		return bytes.Equal(s.Data, t.Data)
	}
	if s.Type.DType != t.Type.DType || s.Type.Rank() != t.Type.Rank() || s.Type.Elements() == 0 || t.Type.Elements() == 0 {
		return false
	}
	axis := -1
	for i, d := range s.Type.Shape {
		if d == t.Type.Shape[i] {
			continue
		}
		if axis >= 0 || d%c.a.n != 0 || t.Type.Shape[i]%c.b.n != 0 || d/c.a.n != t.Type.Shape[i]/c.b.n {
			return false
		}
		axis = i
	}
	if !c.a.same(s, counting(s.Type.Shape, axis, c.a.n)) || !c.b.same(t, counting(t.Type.Shape, axis, c.b.n)) {
		return false
	}
	// The first row of both, block by block.
	row := int64(s.Type.DType.Size()) * s.Type.Shape[axis] / c.a.n
	for _, d := range s.Type.Shape[axis+1:] {
		row *= d
	}
	i, j := int64(0), int64(0)
	for i < int64(len(s.Data)) {
		if !bytes.Equal(s.Data[i:i+row], t.Data[j:j+row]) {
			return false
		}
		i, j = i+row*c.a.n, j+row*c.b.n
	}
	return true
}

func (c *comparison) graph(g, h graph.GraphID) *Finding {
	if g == h {
		// One graph for both: what it reads must be the same.
		for _, n := range c.e.Graphs[g].Nodes {
			for _, t := range n.Outputs {
				if t != graph.None {
					c.to[t] = t
				}
			}
		}
	}
	as, bs := c.views(0, c.a, c.e.Graphs[g].Nodes), c.views(1, c.b, c.e.Graphs[h].Nodes)
	for i := range as {
		if i >= len(bs) || as[i].Op.Kind() != bs[i].Op.Kind() || len(as[i].Inputs) != len(bs[i].Inputs) || len(as[i].Outputs) != len(bs[i].Outputs) {
			return differs(as[i], "it has no counterpart in the program of %d rows, which does something else there", c.b.n)
		}
		if f := c.node(as[i], bs[i]); f != nil {
			return f
		}
	}
	if len(bs) > len(as) {
		return differs(bs[len(as)], "it has no counterpart in the program of %d rows", c.a.n)
	}
	return nil
}

func (c *comparison) node(n, m *graph.Node) *Finding {
	for i := range n.Inputs {
		if f := c.same(m, n.Inputs[i], m.Inputs[i]); f != nil {
			return f
		}
	}
	subs, others := graph.Subgraphs(n.Op), graph.Subgraphs(m.Op)
	for i, g := range subs {
		h := others[i]
		ps, qs := c.e.Graphs[g].Params, c.e.Graphs[h].Params
		for k := range ps {
			if f := c.pair(m, ps[k], qs[k]); f != nil {
				return f
			}
		}
		if f := c.graph(g, h); f != nil {
			return f
		}
		rs, ss := c.e.Graphs[g].Results, c.e.Graphs[h].Results
		if len(rs) != len(ss) {
			return differs(m, "its graphs give other results in the two programs")
		}
		for k := range rs {
			if f := c.same(m, rs[k], ss[k]); f != nil {
				return f
			}
		}
	}
	if name := c.attribute(n, m); name != "" {
		return differs(m, "its attribute %s is another with %d rows than with %d", name, c.a.n, c.b.n)
	}
	for i := range n.Outputs {
		if f := c.pair(m, n.Outputs[i], m.Outputs[i]); f != nil {
			return f
		}
	}
	return nil
}

// shapes are attributes that follow from the types of operands and results, by kind and
// name.
var shapes = map[string]bool{"Reshape.Shape": true, "Expand.Shape": true, "Slice.Size": true, "Resize.Sizes": true,
	// These are compared by what is in a row.
	"ViewedAttention.Heads": true, "ViewedAttention.Shape": true, "ViewedAttention.Q": true, "ViewedAttention.K": true,
	"ViewedAttention.V": true, "ViewedAttention.Bias": true, "ViewedAttention.Y": true}

// attribute returns the name of an attribute that differs in more than numbers of rows.
func (c *comparison) attribute(n, m *graph.Node) string {
	op, other := n.Op, m.Op
	if op.Kind() == "ViewedAttention" {
		a, known := c.a.viewed(n)
		b, knownToo := c.b.viewed(m)
		if !known || !knownToo || !slices.Equal(a, b) {
			return "Heads, or one of the views,"
		}
	}
	s, t := reflect.ValueOf(op).Elem(), reflect.ValueOf(other).Elem()
	for i := range s.NumField() {
		name := s.Type().Field(i).Name
		f, g := s.Field(i).Interface(), t.Field(i).Interface()
		if _, ok := f.(graph.GraphID); ok || shapes[op.Kind()+"."+name] {
			continue
		}
		if !reflect.DeepEqual(f, g) {
			return name
		}
	}
	return ""
}
