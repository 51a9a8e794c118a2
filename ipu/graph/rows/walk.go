package rows

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// analysis follows the rows through one program.
type analysis struct {
	e        *graph.Executable
	n        int64 // rows
	axes     map[string]int
	values   []value // of all tensors
	findings []*Finding
	told     map[told]bool
	// decided is why what is being looked at runs, or how often, follows from rows;
	// nil if it does not.
	decided *Finding
	steps   []graph.Step // of the program
	writes  map[graph.TensorID]bool
	work    int64 // tensors that were looked at, and parts of constants
}

// mostWork bounds the work, so that a small hostile file can't keep it busy: graphs in
// graphs multiply it.
const mostWork = 1 << 22

// spend adds to the work and reports whether there is any left.
func (a *analysis) spend(n int64) bool {
	a.work = min(a.work+n, 2*mostWork)
	return a.work <= mostWork
}

func newAnalysis(e *graph.Executable, n int64, axes map[string]int) *analysis {
	return &analysis{e: e, n: n, axes: axes, values: make([]value, len(e.Tensors)), told: map[told]bool{}}
}

// told is what findings are told apart by: one is enough for each node, or for each
// sentence where there is none.
type told struct {
	reason    Reason
	node, why string
}

func (a *analysis) tell(f *Finding) {
	key := told{f.Reason, f.Node, f.Why}
	if a.told[key] {
		return
	}
	a.told[key] = true
	a.findings = append(a.findings, f)
}

// program looks at the program of the given index.
func (a *analysis) program(index int) error {
	p := slices.IndexFunc(a.e.Programs, func(p graph.Program) bool { return p.Index == index })
	if p < 0 {
		return fmt.Errorf("rows of program %d: there is no such program", index)
	}
	steps := a.e.Programs[p].Steps
	a.steps = steps
	if a.n < 1 {
		return fmt.Errorf("rows of program %d: %d rows, want at least 1", index, a.n)
	}
	var err error
	graph.Walk(steps, func(s *graph.Step) {
		if s.Kind != graph.CopyIn && s.Kind != graph.CopyOut {
			return
		}
		st := &a.e.Streams[s.Stream]
		axis, ok := a.axes[st.Handle]
		if !ok || err != nil {
			return
		}
		if axis < 0 || axis >= st.Type.Rank() {
			err = fmt.Errorf("rows of program %d: stream %q is %v, which has no axis %d", index, st.Handle, st.Type, axis)
		} else if d := st.Type.Shape[axis]; d%a.n != 0 || d == 0 {
			err = fmt.Errorf("rows of program %d: axis %d of stream %q of type %v is %d long, want a multiple of %d", index, axis, st.Handle, st.Type, d, a.n)
		}
	})
	if err != nil {
		return err
	}
	for i := range a.e.Tensors {
		t := &a.e.Tensors[i]
		a.values[i] = value{at: plain(t.Type.Shape), zeros: anything}
		if t.Const {
			a.values[i].data, a.values[i].zeros = t, spanOf(t)
		}
	}
	// What the program writes to persistent tensors is there when it runs the next time.
	a.writes = a.written(steps)
	a.keep(a.writes, true)
	a.run(steps)
	return nil
}

// written returns the tensors that steps write, calls followed.
func (a *analysis) written(steps []graph.Step) map[graph.TensorID]bool {
	w := map[graph.TensorID]bool{}
	graph.Walk(steps, func(s *graph.Step) {
		switch s.Kind {
		case graph.CopyIn:
			w[s.Tensor] = true
		case graph.Call:
			a.writtenBy(s.Graph, w)
		}
	})
	return w
}

func (a *analysis) writtenBy(g graph.GraphID, w map[graph.TensorID]bool) {
	for i := range a.e.Graphs[g].Nodes {
		n := &a.e.Graphs[g].Nodes[i]
		if !a.spend(1) {
			return
		}
		for _, t := range n.Outputs {
			if t != graph.None {
				w[t] = true
			}
		}
		for _, sub := range graph.Subgraphs(n.Op) {
			a.writtenBy(sub, w)
		}
	}
}

// keep says of tensors that are about to be written that who reads them before reads
// what an earlier run or iteration left there.
func (a *analysis) keep(written map[graph.TensorID]bool, persistentOnly bool) {
	for id := range written {
		t := &a.e.Tensors[id]
		if persistentOnly && !t.Persistent {
			continue
		}
		f := &Finding{Reason: Keeps, Why: fmt.Sprintf("tensor %q is read before it is written: it keeps what an earlier run or iteration left there", t.Name)}
		a.values[id] = value{kind: mixed, fault: f, zeros: anything}
	}
}

func (a *analysis) run(steps []graph.Step) {
	for i := range steps {
		s := &steps[i]
		switch s.Kind {
		case graph.CopyIn:
			a.values[s.Tensor] = a.input(s)
		case graph.CopyOut:
			a.output(s)
		case graph.Call:
			a.graph(s.Graph)
		case graph.Repeat:
			if s.Count > 1 {
				a.keep(a.written(s.Body), false)
			}
			a.run(s.Body)
		}
	}
}

func (a *analysis) input(s *graph.Step) value {
	st := &a.e.Streams[s.Stream]
	axis, ok := a.axes[st.Handle]
	if !ok || st.Type.Elements() == 0 {
		return value{at: plain(st.Type.Shape), zeros: anything}
	}
	if t := &a.e.Tensors[s.Tensor]; t.Persistent { // the next program may read it, and would take it for a weight
		a.tell(&Finding{Reason: Keeps, Why: fmt.Sprintf("rows of input %q are copied to %q, which is there in the next run", st.Handle, t.Name)})
	}
	return value{kind: apart, at: counting(st.Type.Shape, axis, a.n)}
}

func (a *analysis) output(s *graph.Step) {
	st := &a.e.Streams[s.Stream]
	v := &a.values[s.Tensor]
	tell := func(f *Finding) {
		g := *f
		g.Output = st.Handle
		a.tell(&g)
	}
	if v.kind == mixed {
		tell(v.fault)
		return
	}
	if v.placed != nil {
		tell(v.placed)
	}
	axis, ok := a.axes[st.Handle]
	switch {
	case !ok && v.kind == apart && a.n > 1:
		tell(&Finding{Reason: Mixes, Why: fmt.Sprintf("it is %v, with rows in %s, but it is to have none", st.Type, v.at.words(st.Type.Rank()))})
	case !ok || st.Type.Elements() == 0:
	case v.kind == apart && !v.at.equal(counting(st.Type.Shape, axis, a.n)):
		tell(&Finding{Reason: Mixes, Why: fmt.Sprintf("it is %v, with rows in %s in place of axis %d, or in another order", st.Type, v.at.words(st.Type.Rank()), axis)})
	case v.kind == alike:
		n := &node{Node: &graph.Node{Op: &graph.Reshape{Shape: st.Type.Shape}}, a: a, types: []graph.TensorType{st.Type}, in: []value{*v}}
		rows := counting(st.Type.Shape, axis, a.n)
		if n.uneven(rows, []link{{0, st.Type.Shape, straight(st.Type.Rank())}}) != nil {
			tell(&Finding{Reason: Differs, Why: fmt.Sprintf("it is %v, and each of its rows has numbers of its own, whatever the inputs are", st.Type)})
		}
	}
}

// graph looks at the nodes of a graph, in order.
func (a *analysis) graph(g graph.GraphID) {
	nodes := a.e.Graphs[g].Nodes
	for i := range nodes {
		a.node(&nodes[i])
	}
}

func (a *analysis) node(gn *graph.Node) {
	n := &node{Node: gn, a: a, types: make([]graph.TensorType, len(gn.Inputs)), in: make([]value, len(gn.Inputs))}
	for i, t := range gn.Inputs {
		if t != graph.None {
			n.types[i], n.in[i] = a.e.Tensors[t].Type, a.values[t]
		}
	}
	var err error
	if n.to, err = a.e.Infer(gn.Op, n.types); err != nil { // a verified executable has no such node
		n.to = nil
		for _, t := range gn.Outputs {
			n.to = append(n.to, graph.TensorType{})
			if t != graph.None {
				n.to[len(n.to)-1] = a.e.Tensors[t].Type
			}
		}
	}
	n.out = make([]value, len(n.to))
	for i := range n.out {
		n.mix(i, n.fault(Unknown, "nothing is known of how this operator computes rows"))
	}
	if r := rules[gn.Op.Kind()]; !a.spend(1 + int64(len(n.in)+len(n.out))) {
		a.tell(&Finding{Reason: Unknown, Why: "the program is too big to be looked at: its graphs run each other too often"})
	} else if r != nil && err == nil {
		r(n)
		n.refuse()
	}
	for i, t := range gn.Outputs {
		if t == graph.None {
			continue
		}
		v := n.out[i]
		if a.decided != nil {
			v = value{kind: mixed, fault: a.decided, zeros: anything}
		}
		if v.kind != mixed {
			v.zeros = n.span(i)
		}
		if a.e.Tensors[t].Persistent && v.kind != alike {
			a.tell(n.fault(Keeps, "it writes what follows from rows to %q, which is there in the next run", a.e.Tensors[t].Name))
		}
		a.values[t] = v
	}
}

// ruleIf: the graph that runs must not follow from rows.
func ruleIf(n *node) {
	a, op := n.a, n.Op.(*graph.If)
	outer := a.decided
	n.decide(0)
	written := map[graph.TensorID]bool{}
	a.writtenBy(op.Then, written)
	a.writtenBy(op.Else, written)
	before := map[graph.TensorID]value{}
	for t := range written {
		before[t] = a.values[t]
	}
	a.graph(op.Then)
	then := a.results(op.Then)
	after := map[graph.TensorID]value{}
	for t := range written {
		after[t], a.values[t] = a.values[t], before[t]
	}
	a.graph(op.Else)
	for t := range written {
		if a.e.Tensors[t].Persistent {
			a.values[t] = n.join(a.e.Tensors[t].Type, after[t], a.values[t])
		}
	}
	for i, v := range a.results(op.Else) {
		n.out[i] = n.join(n.to[i], then[i], v)
		if a.decided != nil {
			n.mix(i, a.decided)
		}
	}
	a.decided = outer
}

// decide says that what runs follows from rows, if an operand of one element does: it is of
// all rows together then.
func (n *node) decide(operand int) {
	if n.given(operand) && n.a.decided == nil && n.in[operand].kind == mixed {
		n.a.decided = n.in[operand].fault
	}
}

// results returns the values of a graph's results.
func (a *analysis) results(g graph.GraphID) []value {
	var out []value
	for _, t := range a.e.Graphs[g].Results {
		out = append(out, a.values[t])
	}
	return out
}

// join returns what is known of a tensor that is one or the other.
func (n *node) join(t graph.TensorType, v, w value) value {
	j := &node{Node: n.Node, a: n.a, types: []graph.TensorType{t, t}, in: []value{v, w}, to: []graph.TensorType{t}, out: make([]value, 1)}
	all := straight(t.Rank())
	j.flow(0, nil, link{0, nil, all}, link{1, nil, all})
	if j.out[0].kind != mixed {
		j.out[0].zeros = v.zeros.with(w.zeros)
	}
	return j.out[0]
}

// mostRounds is how often the body of a loop is looked at before nothing is known of
// what it carries; far fewer do.
const mostRounds = 16

// ruleLoop looks for what is known of the carried values in every iteration.
func ruleLoop(n *node) {
	a, op := n.a, n.Op.(*graph.Loop)
	outer := a.decided
	n.decide(0)
	n.decide(1)
	g := &a.e.Graphs[op.Body]
	written := map[graph.TensorID]bool{}
	a.writtenBy(op.Body, written)
	a.keep(written, true)
	a.values[g.Params[0]] = value{at: plain(nil), zeros: span{0, anything.hi}}
	carried := slices.Clone(n.in[2:])
	var got []value
	for round := 0; ; round++ {
		for i, v := range carried {
			a.values[g.Params[1+i]] = v
		}
		a.graph(op.Body)
		got = a.results(op.Body)
		if op.While {
			stop := &node{Node: n.Node, a: a, types: []graph.TensorType{{DType: graph.Bool}}, in: got[:1]}
			stop.decide(0)
			got = got[1:]
		}
		stable := true
		for i := range carried {
			v := n.join(n.types[2+i], carried[i], got[i])
			if round > 2 {
				v.zeros = anything
			}
			if round > mostRounds {
				v = value{kind: mixed, fault: n.fault(Unknown, "what it carries from iteration to iteration is not understood"), zeros: anything}
			}
			stable = stable && v.equal(&carried[i])
			carried[i] = v
		}
		if stable {
			break
		}
	}
	for i := range n.out {
		switch {
		case a.decided != nil:
			n.mix(i, a.decided)
		case i < len(carried):
			n.out[i] = carried[i]
		default: // collected along a new first axis
			c := &node{Node: n.Node, a: a, types: []graph.TensorType{{DType: n.to[i].DType, Shape: n.to[i].Shape[1:]}}, in: got[i : i+1], to: n.to[i : i+1], out: make([]value, 1)}
			axes := straight(n.to[i].Rank())[1:]
			c.flow(0, nil, link{0, nil, axes})
			n.out[i] = c.out[0]
		}
	}
	a.decided = outer
}

// checked says what an operator without results checks.
func checked(op graph.Op) string {
	switch o := op.(type) {
	case *graph.Assert:
		return o.Message
	case *graph.AssertLabels:
		return fmt.Sprintf("labels are from 0 to %d", o.Classes-1)
	}
	return op.Kind()
}

// ruleAssert: a condition of rows is for the run as a whole.
func ruleAssert(n *node) {
	if n.in[0].kind == mixed {
		n.a.tell(n.fault(Refuses, "it ends the run for all rows by what is in some of them: %s", checked(n.Op)))
	} else if n.a.decided != nil {
		n.a.tell(n.fault(Refuses, "whether it checks something follows from rows: %s", checked(n.Op)))
	}
}
