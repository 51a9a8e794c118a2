package plan

import (
	"fmt"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/work"
)

// UsualWork is how many operations one run of a program may take at most unless
// the option "work" says otherwise: days on one core. The greatest models take
// a thousandth of it.
const UsualWork = 1 << 50

// nodeWork is what it takes to run any node, in operations: a loop around next to
// nothing is work too.
const nodeWork = 64

// MoreWork says what to do about a refusal for the work that it takes.
const MoreWork = `if the file is to be trusted, raise the limit: the engine option "work" (--engine-option work=N)`

// workOf returns how many operations a run of a program takes, loops whose end is
// not known counted once.
type workOf struct {
	exe    *graph.Executable
	graphs map[graph.GraphID]int64
}

func newWorkOf(exe *graph.Executable) *workOf {
	return &workOf{exe, map[graph.GraphID]int64{}}
}

func (w *workOf) steps(steps []graph.Step) int64 {
	n := int64(0)
	for i := range steps {
		switch s := &steps[i]; s.Kind {
		case graph.Call:
			n = budget.Add(n, w.graph(s.Graph))
		case graph.Repeat:
			n = budget.Add(n, budget.Mul(max(1, s.Count), w.steps(s.Body)))
		}
	}
	return n
}

func (w *workOf) graph(g graph.GraphID) int64 {
	if n, ok := w.graphs[g]; ok {
		return n
	}
	n := int64(0)
	for i := range w.exe.Graphs[g].Nodes {
		n = budget.Add(n, w.node(&w.exe.Graphs[g].Nodes[i]))
	}
	w.graphs[g] = n
	return n
}

func (w *workOf) node(node *graph.Node) int64 {
	n, times := int64(nodeWork), int64(1)
	if l, ok := node.Op.(*graph.Loop); ok && !l.While {
		times = max(1, l.Count)
	}
	subs := graph.Subgraphs(node.Op)
	for _, sub := range subs {
		n = budget.Add(n, budget.Mul(times, budget.Add(1, w.graph(sub))))
	}
	if len(subs) > 0 {
		return n
	}
	in := make([]graph.TensorType, len(node.Inputs))
	for i, t := range node.Inputs {
		if t != graph.None {
			in[i] = w.exe.Tensors[t].Type
		}
	}
	out, err := node.Op.Infer(in)
	if err != nil {
		return n // verification says so
	}
	more, _ := work.Of(node.Op, in, out)
	return budget.Add(n, more)
}

// check returns why programs may not run if one of them takes more than limit
// operations.
func (w *workOf) check(limit int64) error {
	for i := range w.exe.Programs {
		p := &w.exe.Programs[i]
		n := w.steps(p.Steps)
		if n <= limit {
			continue
		}
		text := fmt.Sprintf("some %.1g operations", float64(n))
		if n == work.Max {
			text = "more than 9e18 operations"
		}
		return &ipu.Error{Kind: ipu.KindApplication, Message: fmt.Sprintf(
			"program %d %q takes %s, more than the limit of %.1g; %s", p.Index, p.Name, text, float64(limit), MoreWork)}
	}
	return nil
}
