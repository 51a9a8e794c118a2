package popxl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Transfers says how many tensors a run moves over a stream.
type Transfers struct {
	Name  string // of the stream's anchor
	Input bool   // from the host, else to it
	Count int64  // of each iteration of a run ([Ir.SetIterations])
}

// mostTransfers is how many tensors a run moves over a stream at most.
const mostTransfers = 1 << 31

// Transfers returns how many tensors a run moves over each stream, inputs first: what PopXL has to be told as num_host_transfers is counted here, through loops and calls. It may be called before all is built,
// and counts what has been built.
func (ir *Ir) Transfers() []Transfers {
	if !ir.usable() {
		return nil
	}
	var all []Transfers
	for i, p := range ir.inputs {
		all = append(all, Transfers{p.Name, true, saturated(0, ir.loads(i), ir.accumulation())})
	}
	for i, p := range ir.outputs {
		all = append(all, Transfers{p.Name, false, ir.storesOf(i)})
	}
	return all
}

// accumulation is over how many micro-batches a step adds gradients up.
func (ir *Ir) accumulation() int64 { return max(ir.micro, 1) }

// loads returns how often a micro-batch loads an input.
func (ir *Ir) loads(input int) int64 {
	if ir.loaded[input].rows == graph.None {
		return 1
	}
	return ir.main.loads[input]
}

// storesOf returns how often an iteration of a run stores an output.
func (ir *Ir) storesOf(output int) int64 {
	n := int64(1)
	if ir.written[output].stores {
		n = total(ir.main.stores[output])
	}
	if ir.late(output) {
		return n
	}
	return saturated(0, n, ir.accumulation())
}

// late reports whether what changes variables computes an output: once for all micro-batches.
func (ir *Ir) late(output int) bool {
	if ir.taken && ir.written[output].late {
		return true
	}
	parts := ir.main.stores[output]
	if ir.written[output].stores {
		return slices.ContainsFunc(parts, func(s stored) bool { return s.stage == update })
	}
	if ir.accumulation() == 1 || ir.taken {
		return false
	}
	for _, g := range ir.calls[update] {
		for _, n := range ir.b.Graph(g).Nodes {
			if slices.Contains(n.Outputs, ir.outputs[output].Tensor) {
				return true
			}
		}
	}
	return false
}

// UnequalTransfers allows inputs of which a run loads different numbers of tensors. Each of them is fed as many as it loads; without this call it is a mistake, since in PopXL the shorter one would begin anew
// while the longer one still goes on.
func (ir *Ir) UnequalTransfers() {
	switch {
	case !ir.usable():
	case ir.taken:
		ir.fail("popxl.Ir.UnequalTransfers", ErrTaken)
	default:
		ir.unequal = true
	}
}

// checkTransfers refuses inputs that are loaded differently often, and streams over which nothing goes, or too much.
func (ir *Ir) checkTransfers(outputs []int) error {
	var errs []error
	equal := true
	for i, p := range ir.inputs {
		n := ir.loads(i)
		equal = equal && n == ir.loads(0)
		if n < 1 || saturated(0, n, ir.accumulation()) > mostTransfers/ir.iterations {
			errs = append(errs, fmt.Errorf("input %q: a run loads it %d × %d times, want 1 to %d", p.Name, ir.iterations, n, int64(mostTransfers)))
		}
	}
	for _, i := range outputs {
		p := ir.outputs[i]
		switch n := ir.storesOf(i); {
		case n < 1:
			errs = append(errs, ir.written[i].call)
		case n > mostTransfers/ir.iterations:
			errs = append(errs, fmt.Errorf("output %q: a run stores it %d × %d times, want at most %d", p.Name, ir.iterations, n, int64(mostTransfers)))
		}
	}
	if !equal && !ir.unequal && len(errs) == 0 {
		errs = append(errs, errors.New("a run loads its inputs differently often:\n"+ir.table()+"load them in the same loops, or call Ir.UnequalTransfers to feed each as many tensors as it loads"))
	}
	return errors.Join(errs...)
}

// table returns the inputs with how often a run loads them.
func (ir *Ir) table() string {
	width := len("input")
	for _, p := range ir.inputs {
		width = max(width, len(p.Name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  %-*s  tensors of a run\n", width, "input")
	for i, p := range ir.inputs {
		fmt.Fprintf(&b, "  %-*s  %d\n", width, p.Name, ir.loads(i))
	}
	return b.String()
}

// moves are the graphs that go with a stream that moves several tensors.
type moves struct {
	begin graph.GraphID
	each  graph.GraphID  // follows a tensor from the host, or goes before one to it
	with  graph.TensorID // what is copied
	n     int64
}

// streams appends what puts tensors of inputs together, and what takes those of outputs apart. It returns the graphs by what the layout of programs copies.
func (ir *Ir) streams(outputs []int) (map[graph.TensorID]moves, error) {
	all := map[graph.TensorID]moves{}
	for i, p := range ir.inputs {
		if ir.loaded[i].rows == graph.None {
			continue
		}
		m, err := ir.together(p.Name, p.Tensor, ir.loaded[i].rows, ir.loads(i))
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", p.Name, err)
		}
		all[p.Tensor] = m
	}
	for _, i := range outputs {
		if !ir.written[i].stores {
			continue
		}
		m, err := ir.apart(i)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", ir.outputs[i].Name, err)
		}
		if m.n > 1 {
			all[ir.outputs[i].Tensor] = m
		}
	}
	return all, nil
}

// counter adds a number that is 0 when a graph, which it begins, has run.
func (ir *Ir) counter(name string) (id graph.TensorID, begin graph.GraphID, err error) {
	id = ir.b.AddPersistent(name+" (count)", graph.TensorType{DType: graph.I64, Shape: []int64{1}})
	zero, _ := ir.constant(0, 1)
	begin = ir.subgraph(name + ": begin")
	return id, begin, ir.at(begin, func() error {
		return ir.b.NodeTo(&graph.Reshape{Shape: []int64{1}}, name, []graph.TensorID{id}, zero)
	})
}

// together makes the graphs that put n tensors that come one after the other into rows.
func (ir *Ir) together(name string, one, rows graph.TensorID, n int64) (moves, error) {
	count, begin, err := ir.counter(name)
	if err != nil {
		return moves{}, err
	}
	m := moves{begin, ir.subgraph(name + ": loaded"), one, n}
	return m, ir.at(m.each, func() error {
		if err := ir.b.NodeTo(&graph.ScatterND{Fn: graph.ScatterNone}, name, []graph.TensorID{rows}, rows, count, one); err != nil {
			return err
		}
		return ir.count(name, count)
	})
}

// count appends what makes a number one more.
func (ir *Ir) count(name string, id graph.TensorID) error {
	by, _ := ir.constant(1, 1)
	return ir.b.NodeTo(&graph.Binary{Fn: graph.Add}, name, []graph.TensorID{id}, id, by)
}

// apart makes the output's tensor the first of those that are stored, and the graphs that return them one after the other.
func (ir *Ir) apart(output int) (moves, error) {
	p := &ir.outputs[output]
	name, declaredAs := p.Name, p.Tensor
	parts := ir.main.stores[output]
	last := parts[len(parts)-1].stage
	for _, s := range parts {
		last = max(last, s.stage)
	}
	shape := ir.b.Type(declaredAs).Shape
	m := moves{n: total(parts)}
	graphs := ir.calls[last]
	err := ir.at(graphs[len(graphs)-1], func() error {
		s, err := ir.joined(parts)
		if err != nil {
			return err
		}
		ir.written[output].rows = s.rows
		step := &graph.Slice{Start: make([]int64, 1+len(shape)), Size: slices.Concat([]int64{1}, shape), Step: slices.Repeat([]int64{1}, 1+len(shape))}
		first, err := ir.one(step, name, s.rows)
		if err != nil {
			return err
		}
		p.Tensor, err = ir.one(&graph.Reshape{Shape: shape}, name, first)
		return err
	})
	if err != nil || m.n == 1 {
		return m, err
	}
	count, begin, err := ir.counter(name)
	if err != nil {
		return m, err
	}
	m.begin, m.each, m.with = begin, ir.subgraph(name+": stored"), declaredAs
	return m, ir.at(m.each, func() error {
		if err := ir.b.NodeTo(&graph.GatherND{}, name, []graph.TensorID{declaredAs}, ir.written[output].rows, count); err != nil {
			return err
		}
		return ir.count(name, count)
	})
}

// spread makes programs move several tensors over the streams that have them.
func spread(steps []graph.Step, all map[graph.TensorID]moves) []graph.Step {
	var out []graph.Step
	for _, s := range steps {
		s.Body = spread(s.Body, all)
		m, ok := all[s.Tensor]
		if !ok || s.Kind != graph.CopyIn && s.Kind != graph.CopyOut {
			out = append(out, s)
			continue
		}
		s.Tensor = m.with
		body := []graph.Step{s, {Kind: graph.Call, Graph: m.each}}
		if s.Kind == graph.CopyOut {
			slices.Reverse(body)
		}
		out = append(out, graph.Step{Kind: graph.Call, Graph: m.begin})
		if m.n > 1 {
			body = []graph.Step{{Kind: graph.Repeat, Count: m.n, Body: body}}
		}
		out = append(out, body...)
	}
	return out
}
