package export

import (
	"encoding/binary"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// run adds the main program and, if forward graphs write outputs, the one that evaluates.
func (t *training) run() error {
	evaluates := !t.Inference && slices.ContainsFunc(t.Outputs, func(o Output) bool { return t.isForward(&o) })
	programs := []uint32{MainProgram}
	if evaluates {
		programs = append(programs, EvaluateProgram)
	}
	var in []graph.Step
	for _, p := range t.Inputs {
		s, err := t.m.AddStream(p, prefixIn+p.Name, graph.HostToDevice, slices.Clone(programs)...)
		if err != nil {
			return refuse("input %w", err)
		}
		in = append(in, s)
	}
	var err error
	all := make([]*returned, len(t.Outputs))
	for i := range t.Outputs {
		o := &t.Outputs[i]
		moving := programs
		if !t.isForward(o) {
			moving = programs[:1]
		}
		s, err := t.m.AddStream(o.Port, prefixOut+o.Name, graph.DeviceToHost, slices.Clone(moving)...)
		if err != nil {
			return refuse("output %w", err)
		}
		if all[i], err = t.returned(o, s); err != nil {
			return err
		}
	}
	t.place(all)
	for _, r := range all {
		if err := t.stash(r); err != nil {
			return err
		}
	}
	t.add(MainProgram, t.nest(in, t.Begin, slices.Concat(t.Forward, t.Backward), t.Update, all)...)
	if evaluates {
		all = slices.DeleteFunc(all, func(r *returned) bool { return !t.isForward(r.o) })
		if t.Evaluate != nil {
			if all, err = t.evaluated(all); err != nil {
				return err
			}
			t.add(EvaluateProgram, t.nest(in, nil, t.Evaluate, nil, all)...)
			return nil
		}
		t.add(EvaluateProgram, t.nest(in, nil, t.Forward, nil, all)...)
	}
	return nil
}

// evaluated returns how outputs are returned from the tensors that the graphs of Evaluate write.
func (t *training) evaluated(all []*returned) ([]*returned, error) {
	out := make([]*returned, len(all))
	for i, r := range all {
		o, s := *r.o, r.copy
		if to, ok := t.Evaluated[o.Tensor]; ok {
			o.Tensor, s.Tensor = to, to
		}
		var err error
		if out[i], err = t.returned(&o, s); err != nil {
			return nil, err
		}
	}
	t.place(out)
	for _, r := range out {
		if err := t.stash(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isForward reports whether an output is that of a forward graph: nothing later changes it.
func (t *training) isForward(o *Output) bool {
	return !t.exe.Tensors[o.Tensor].Persistent && !t.late[o.Tensor] && !t.updated[o.Tensor]
}

// returned is how an output is returned. Where the loop that its period ends has its last value, or all that a run
// returns is copied as soon as it is computed, a copy in the right loop is all; else values are put aside in a stash, a
// persistent tensor with a row for each value that is copied out together, and read from there in a loop of its own.
type returned struct {
	o       *Output
	batched bool       // it has one value a batch, from an update
	period  int64      // batches after which values are returned
	values  int64      // values of a batch
	copy    graph.Step // that moves it
	each    bool       // every value is copied out where it is computed
	sum     bool       // it is added up
	rows    int64      // of its stash; 0 if it has none
	group   int64      // values of a period, where each period has rows of its own; else 0
	atEnd   bool       // it is read after all batches, whatever its period is
	begin   []graph.GraphID
	put     []graph.GraphID
	read    []graph.GraphID
}

// returned decides how an output is returned, but for where.
func (t *training) returned(o *Output, s graph.Step) (*returned, error) {
	period, err := o.period(t.BatchesPerStep)
	if err != nil {
		return nil, err
	}
	r := &returned{o: o, batched: t.updated[o.Tensor], period: period, values: t.Accumulation * t.Replicas, copy: s}
	if r.batched {
		r.values = 1
	}
	r.sum = o.Return == Sum && t.BatchesPerStep*r.values > 1
	if o.Return == Final || o.Return == Sum {
		// Each replica has a row of its own; every micro-batch takes that of the one before.
		r.rows = t.Replicas
		if r.batched {
			r.rows = 1
		}
	} else {
		r.rows = r.values
	}
	switch {
	case r.period == 1 && r.values == r.rows:
		r.each, r.rows, r.sum = true, 0, false
	case r.rows == 1 && !r.sum:
		r.rows = 0 // the tensor itself has the value
	}
	return r, nil
}

// place decides the loops over batches: a period that is a multiple of all smaller ones ends a loop. Outputs of any
// other period are put aside until all batches are computed.
func (t *training) place(all []*returned) {
	var periods []int64
	for _, r := range all {
		periods = append(periods, r.period)
	}
	slices.Sort(periods)
	chain := []int64{1}
	for _, p := range slices.Compact(periods) {
		if p%chain[len(chain)-1] == 0 && t.BatchesPerStep%p == 0 {
			chain = append(chain, p)
		}
	}
	for _, r := range all {
		if slices.Contains(chain, r.period) {
			continue
		}
		r.atEnd = true
		r.group = r.period * r.values
		r.rows = t.BatchesPerStep / r.period * r.values
	}
}

// nest returns the steps of a program that runs all batches.
func (t *training) nest(in []graph.Step, first, micro, update []graph.GraphID, all []*returned) []graph.Step {
	pick := func(want func(*returned) bool) (out []*returned) {
		for _, r := range all {
			if want(r) {
				out = append(out, r)
			}
		}
		return out
	}
	var begin []graph.Step
	for _, r := range all {
		begin = append(begin, calls(r.begin)...)
	}
	body := slices.Concat(in, calls(micro))
	for _, r := range pick(func(r *returned) bool { return !r.batched }) {
		body = append(body, r.micro()...)
	}
	steps := repeat(t.Accumulation, repeat(t.Replicas, body))
	steps = slices.Concat(calls(first), steps, calls(update))
	for _, r := range pick(func(r *returned) bool { return r.batched }) {
		steps = append(steps, r.micro()...)
	}
	// From the innermost loop over batches outwards.
	var periods []int64
	for _, r := range all {
		if !r.atEnd {
			periods = append(periods, r.period)
		}
	}
	periods = append(periods, t.BatchesPerStep)
	slices.Sort(periods)
	inner := int64(1)
	for _, p := range slices.Compact(periods) {
		steps = slices.Clone(repeat(p/inner, steps))
		for _, r := range pick(func(r *returned) bool { return !r.atEnd && r.period == p && !r.each }) {
			steps = append(steps, r.out()...)
		}
		inner = p
	}
	for _, r := range pick(func(r *returned) bool { return r.atEnd }) {
		steps = append(steps, r.out()...)
	}
	return append(begin, steps...)
}

// micro returns what follows each value: its copy, or that it is put aside.
func (r *returned) micro() []graph.Step {
	if r.each {
		return []graph.Step{r.copy}
	}
	return calls(r.put)
}

// out returns what copies the values of a period out.
func (r *returned) out() []graph.Step {
	if r.rows == 0 {
		return []graph.Step{r.copy}
	}
	return repeat(r.rows, append(calls(r.read), r.copy))
}

func calls(graphs []graph.GraphID) []graph.Step {
	var out []graph.Step
	for _, g := range graphs {
		out = append(out, graph.Step{Kind: graph.Call, Graph: g})
	}
	return out
}

// stash adds what an output is put aside with: its rows, a count of the values that were put and one of those
// that were read, and the graphs that begin a run, put a value and read one.
func (t *training) stash(r *returned) error {
	if r.rows == 0 {
		return nil
	}
	typ, name := t.exe.Tensors[r.o.Tensor].Type, r.o.Name
	counter := graph.TensorType{DType: graph.I64, Shape: []int64{1}}
	rows := t.tensor(graph.Tensor{Name: name + " (kept)", Type: graph.TensorType{DType: typ.DType, Shape: append([]int64{r.rows}, typ.Shape...)}, Persistent: true})
	puts := t.tensor(graph.Tensor{Name: name + " (put)", Type: counter, Persistent: true})
	reads := t.tensor(graph.Tensor{Name: name + " (read)", Type: counter, Persistent: true})
	number := func(n int64) graph.TensorID {
		return t.tensor(graph.Tensor{Name: name, Type: counter, Const: true, Data: binary.LittleEndian.AppendUint64(nil, uint64(n))})
	}

	w := writer{t: t, name: name, graph: graph.Graph{Name: name + ": begin"}}
	zero := graph.TensorType{DType: typ.DType}
	w.to(puts, &graph.Expand{Shape: counter.Shape}, number(0))
	w.to(reads, &graph.Expand{Shape: counter.Shape}, number(0))
	if r.sum {
		w.to(rows, &graph.Expand{Shape: t.exe.Tensors[rows].Type.Shape}, t.tensor(graph.Tensor{Name: name, Type: zero, Const: true, Data: make([]byte, zero.Bytes())}))
	}
	r.begin = w.done()

	w = writer{t: t, name: name, graph: graph.Graph{Name: name + ": put"}}
	row := w.new(counter, &graph.Mod{Truncated: true}, puts, number(r.perGroup()))
	if r.group > 0 {
		group := w.new(counter, &graph.Binary{Fn: graph.Div}, puts, number(r.group))
		row = w.new(counter, &graph.Binary{Fn: graph.Add}, row, w.new(counter, &graph.Binary{Fn: graph.Mul}, group, number(r.values)))
	}
	how := graph.ScatterNone
	if r.sum {
		how = graph.ScatterAdd
	}
	w.to(rows, &graph.ScatterND{Fn: how}, rows, row, r.o.Tensor)
	w.to(puts, &graph.Binary{Fn: graph.Add}, puts, number(1))
	r.put = w.done()

	w = writer{t: t, name: name, graph: graph.Graph{Name: name + ": read"}}
	r.copy.Tensor = w.new(typ, &graph.GatherND{}, rows, w.new(counter, &graph.Mod{Truncated: true}, reads, number(r.rows)))
	w.to(reads, &graph.Binary{Fn: graph.Add}, reads, number(1))
	r.read = w.done()
	return nil
}

// perGroup is how many rows the values of a batch take turns in.
func (r *returned) perGroup() int64 {
	if r.group > 0 {
		return r.values
	}
	return r.rows
}

// tensor adds a tensor to the executable.
func (t *training) tensor(e graph.Tensor) graph.TensorID {
	t.exe.Tensors = append(t.exe.Tensors, e)
	return graph.TensorID(len(t.exe.Tensors) - 1)
}

// writer writes a graph, node by node.
type writer struct {
	t     *training
	name  string // of nodes and tensors
	graph graph.Graph
}

// to adds a node that writes a tensor.
func (w *writer) to(out graph.TensorID, op graph.Op, in ...graph.TensorID) {
	w.graph.Nodes = append(w.graph.Nodes, graph.Node{Op: op, Name: w.graph.Name, Inputs: in, Outputs: []graph.TensorID{out}})
}

// new adds a node that writes a new local tensor, which it returns.
func (w *writer) new(typ graph.TensorType, op graph.Op, in ...graph.TensorID) graph.TensorID {
	out := w.t.tensor(graph.Tensor{Name: w.name, Type: typ})
	w.to(out, op, in...)
	return out
}

// done adds the graph to the executable.
func (w *writer) done() []graph.GraphID {
	w.t.exe.Graphs = append(w.t.exe.Graphs, w.graph)
	return []graph.GraphID{graph.GraphID(len(w.t.exe.Graphs) - 1)}
}
