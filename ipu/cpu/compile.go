package cpu

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// nodeKey names one node of an executable.
type nodeKey struct {
	graph graph.GraphID
	node  int
}

// packKey names one operand of a bound kernel.
type packKey struct{ kernel, operand int }

// compiler turns a verified executable into a plan and its bound kernels.
type compiler struct {
	ctx  context.Context
	exe  *graph.Executable // with activations in blocks
	from origins
	opts options
	plan *Plan

	kernels []tensor.Kernel
	results []int // results of each kernel, left-out ones included
	bound   map[nodeKey]int
	packs   map[packKey]int // index into plan.Packed
	steps   int             // of all programs so far
	tables  *budget.Budget  // of kernels so far
	work    *workOf         // of the executable as it was given

	writers     []int                   // static writers of every tensor
	nodeWritten []bool                  // tensors that a node writes
	reshaped    []graph.TensorID        // what a tensor written by one Reshape shows, or None
	streamed    []bool                  // tensors that one program copies in and also reads
	derived     []bool                  // persistent tensors that one node writes, in programs that don't read them
	kept        map[graph.TensorID]bool // derived tensors that some kernel wants packed
}

// compile plans exe. The kernels are in the order in which the plan's steps
// first need them; bound tells which is whose. Room, which nothing else has taken
// from yet, counts their tables.
func compile(ctx context.Context, exe *graph.Executable, opts options, room *budget.Budget) (*compiler, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	work := newWorkOf(exe)
	if err := work.check(opts.work); err != nil {
		return nil, err
	}
	opts.memory = room.Left() // for kernels that are made to see whether they can be
	planar := exe
	var from origins
	if opts.layout {
		var inner origins
		if opts.pixels {
			planar, from = inPixels(exe, opts)
		}
		exe, inner = inBlocks(planar, nchwc.Lanes(), opts)
		from = from.through(inner)
	}
	c := &compiler{
		ctx:    ctx,
		work:   work,
		exe:    exe,
		from:   from,
		opts:   opts,
		plan:   &Plan{Name: exe.Name, Threads: opts.threads, Layout: layoutOf(planar, exe)},
		bound:  map[nodeKey]int{},
		tables: room,
		packs:  map[packKey]int{},
	}
	c.survey()
	c.bindDerived()
	for i := range exe.Programs {
		p := &exe.Programs[i]
		g, err := c.program(p)
		if err != nil {
			return nil, fmt.Errorf("plan program %d %q: %w", p.Index, p.Name, err)
		}
		g.Work = work.steps(p.Steps)
		c.plan.Programs = append(c.plan.Programs, *g)
		c.plan.ArenaBytes = max(c.plan.ArenaBytes, g.ArenaBytes)
	}
	for _, k := range c.plan.Packed {
		c.plan.PackedBytes += alignUp(k.Bytes)
	}
	for i := range exe.Tensors {
		c.plan.ConstantBytes += int64(len(exe.Tensors[i].Data))
	}
	c.persistent()
	c.plan.TableBytes = c.tables.Used()
	return c, nil
}

// PlanOf plans an executable for the given number of threads without making
// an engine for it. The options are those of an engine.
func PlanOf(exe *graph.Executable, threads int, engine ...ipu.Option) (*Plan, error) {
	return PlanOfContext(context.Background(), exe, threads, engine...)
}

// PlanOfContext is [PlanOf] until ctx is done, whose error it then returns.
func PlanOfContext(ctx context.Context, exe *graph.Executable, threads int, engine ...ipu.Option) (*Plan, error) {
	opts, err := parseOptions(engine)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	opts.threads = max(1, threads)
	if err := graph.Verify(exe); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	room := budget.From(ctx).Part(opts.memory)
	defer room.Release()
	c, err := compile(ctx, exe, opts, room)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return c.plan, nil
}

// survey finds out who writes the tensors, over all programs.
func (c *compiler) survey() {
	n := len(c.exe.Tensors)
	c.writers, c.nodeWritten, c.streamed = make([]int, n), make([]bool, n), make([]bool, n)
	c.reshaped = slices.Repeat([]graph.TensorID{graph.None}, n)
	for _, g := range c.exe.Graphs {
		for _, node := range g.Nodes {
			for _, o := range node.Outputs {
				if o == graph.None {
					continue
				}
				c.writers[o]++
				c.nodeWritten[o] = true
				if _, ok := node.Op.(*graph.Reshape); ok {
					c.reshaped[o] = node.Inputs[0]
				}
			}
		}
	}
	for _, p := range c.exe.Programs {
		walk(p.Steps, func(s *graph.Step) {
			if s.Kind == graph.CopyIn {
				c.writers[s.Tensor]++
			}
		})
	}
	c.derived = make([]bool, n)
	for i := range c.exe.Tensors {
		c.derived[i] = c.exe.Tensors[i].Persistent && c.nodeWritten[i] && c.writers[i] == 1
	}
	for _, p := range c.exe.Programs {
		in, read, written := map[graph.TensorID]bool{}, map[graph.TensorID]bool{}, map[graph.TensorID]bool{}
		called := map[graph.GraphID]bool{}
		var call func(graph.GraphID)
		call = func(g graph.GraphID) {
			if called[g] {
				return
			}
			called[g] = true
			for _, node := range c.exe.Graphs[g].Nodes {
				for _, t := range node.Inputs {
					if t != graph.None {
						read[c.origin(t)] = true
					}
				}
				for _, t := range node.Outputs {
					if t != graph.None {
						written[t] = true
					}
				}
				for _, sub := range graph.Subgraphs(node.Op) {
					call(sub)
				}
			}
		}
		walk(p.Steps, func(s *graph.Step) {
			switch s.Kind {
			case graph.CopyIn:
				in[s.Tensor] = true
			case graph.CopyOut:
				read[c.origin(s.Tensor)] = true
			case graph.Call:
				call(s.Graph)
			}
		})
		for t := range in {
			c.streamed[t] = c.streamed[t] || read[t]
		}
		for t := range written {
			c.derived[t] = c.derived[t] && !read[t]
		}
	}
}

// walk calls visit for every step, those in loops included.
func walk(steps []graph.Step, visit func(*graph.Step)) {
	for i := range steps {
		visit(&steps[i])
		walk(steps[i].Body, visit)
	}
}

// origin returns the tensor that holds t's elements: t itself unless t is
// never anything but a reshaped view of another tensor.
func (c *compiler) origin(t graph.TensorID) graph.TensorID {
	for range c.exe.Tensors {
		e := &c.exe.Tensors[t]
		if e.Const || e.Persistent || c.writers[t] != 1 || c.reshaped[t] == graph.None {
			break
		}
		t = c.reshaped[t]
	}
	return t
}

// packable reports whether t's value seldom changes: it is a constant, or
// only streams or one node write it, in programs that don't use it.
func (c *compiler) packable(t graph.TensorID) bool {
	e := &c.exe.Tensors[t]
	return e.Const || c.derived[t] || e.Persistent && !c.nodeWritten[t] && !c.streamed[t]
}

// bindDerived finds the derived tensors that kernels want packed, which the
// plan of the program that writes them depends on. Kernels that can't be bound
// are reported where a program needs them.
func (c *compiler) bindDerived() {
	c.kept = map[graph.TensorID]bool{}
	if !slices.Contains(c.derived, true) {
		return
	}
	for g := range c.exe.Graphs {
		for n := range c.exe.Graphs[g].Nodes {
			node := &c.exe.Graphs[g].Nodes[n]
			if _, ok := node.Op.(*graph.Reshape); ok || len(graph.Subgraphs(node.Op)) > 0 {
				continue
			}
			for _, t := range node.Inputs {
				if t != graph.None && c.derived[c.origin(t)] {
					c.kernel(graph.GraphID(g), n) //nolint:errcheck // see above
					break
				}
			}
		}
	}
	for _, k := range c.plan.Packed {
		if c.derived[k.Tensor] {
			c.kept[k.Tensor] = true
		}
	}
}

// kernel returns the index of a node's kernel, which it binds at first.
func (c *compiler) kernel(g graph.GraphID, n int) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	key := nodeKey{g, n}
	if k, ok := c.bound[key]; ok {
		return k, nil
	}
	node := &c.exe.Graphs[g].Nodes[n]
	k, results, err := bindNode(c.exe, node, c.tables)
	if err != nil {
		return 0, fmt.Errorf("node %d %q of graph %q: %w", c.from.of(g, n), node.Name, c.exe.Graphs[g].Name, err)
	}
	i := len(c.kernels)
	c.kernels, c.results = append(c.kernels, k), append(c.results, results)
	c.bound[key] = i
	packer, ok := k.(tensor.Packer)
	if !ok || !c.opts.prepack {
		return i, nil
	}
	for operand, t := range node.Inputs {
		if t == graph.None {
			continue
		}
		t = c.origin(t)
		if !c.packable(t) {
			continue
		}
		if bytes := packer.Packed(operand); bytes > 0 {
			packer.UsePacked(operand)
			c.packs[packKey{i, operand}] = len(c.plan.Packed)
			c.plan.Packed = append(c.plan.Packed, Packed{Tensor: t, Graph: g, Node: n, Source: c.from.of(g, n), Operand: operand, Bytes: int64(bytes)})
		}
	}
	return i, nil
}

// bind makes a kernel if its tables, which room counts, and each of its results
// fit into memory. A kernel that panics on types it did not expect gives an
// error.
func bind(op graph.Op, in, out []graph.TensorType, room *budget.Budget) (k tensor.Kernel, err error) {
	return bindSome(op, in, out, out, room)
}

// bindSome is bind where all are the types of the results, those that are left out
// included.
func bindSome(op graph.Op, in, out, all []graph.TensorType, room *budget.Budget) (k tensor.Kernel, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("operator %s: bind kernel: %w", op.Kind(), ipu.NewPanicError(v))
		}
	}()
	for i, t := range out {
		if t.DType == graph.Invalid {
			continue
		}
		if n := t.Bytes(); n > room.Limit() {
			return nil, tooMuch(&budget.Error{What: fmt.Sprintf("operator %s: result %d of type %v", op.Kind(), i, t), Need: n, Limit: room.Limit()})
		}
	}
	if err := room.Take(kernel.Tables(op, in, all), "operator %s: the tables of its kernel", op.Kind()); err != nil {
		return nil, tooMuch(err)
	}
	if k, err = kernel.New(op, in, out); err == nil && k.Scratch() < 0 {
		return nil, tooMuch(&budget.Error{What: fmt.Sprintf("operator %s: scratch memory", op.Kind()), Need: math.MaxInt64, Limit: room.Limit()})
	}
	return k, err
}

// tooMuch makes a refusal of a budget one of the device.
func tooMuch(err error) error { return &ipu.Error{Kind: ipu.KindMemory, Err: err} }

// bindNode makes a node's kernel and returns how many results it has,
// left-out ones included.
func bindNode(exe *graph.Executable, node *graph.Node, room *budget.Budget) (k tensor.Kernel, results int, err error) {
	in := make([]graph.TensorType, len(node.Inputs))
	for i, t := range node.Inputs {
		if t != graph.None {
			in[i] = exe.Tensors[t].Type
		}
	}
	out, err := node.Op.Infer(in)
	if err != nil {
		return nil, 0, err
	}
	all := slices.Clone(out)
	for i := range out {
		if i >= len(node.Outputs) || node.Outputs[i] == graph.None {
			out[i] = graph.TensorType{}
		}
	}
	k, err = bindSome(node.Op, in, out, all, room)
	return k, len(out), err
}

// inPlace reports whether kernel k may write its first result over operand i.
func (c *compiler) inPlace(k, i int) bool {
	if _, packed := c.packs[packKey{k, i}]; packed || !c.opts.inPlace {
		return false
	}
	p, ok := c.kernels[k].(tensor.InPlacer)
	return ok && p.InPlace(i)
}

// isPacked reports whether operand k of a step comes packed.
func (c *compiler) isPacked(s *Step, k int) bool {
	if s.Kind != Compute {
		return false
	}
	_, ok := c.packs[packKey{c.bound[nodeKey{s.Graph, s.Node}], k}]
	return ok
}

// persistent decides how the persistent tensors that programs use are kept.
func (c *compiler) persistent() {
	used, stored := make([]bool, len(c.exe.Tensors)), make([]bool, len(c.exe.Tensors))
	for _, p := range c.plan.Programs {
		for _, s := range p.Steps {
			for _, o := range s.In {
				if o.Place == InPersistent {
					used[o.Index] = true
					stored[o.Index] = stored[o.Index] || s.Kind != Share
				}
			}
			for _, o := range s.Out {
				if o.Place == InPersistent {
					used[o.Index] = true
					stored[o.Index] = stored[o.Index] || s.Kind != CopyIn && s.Kind != Share && s.Kind != Keep
				}
			}
		}
	}
	for _, k := range c.plan.Packed {
		used[k.Tensor] = true
	}
	for i := range c.exe.Tensors {
		t := &c.exe.Tensors[i]
		if !used[i] || !t.Persistent {
			continue
		}
		p := Persistent{Tensor: graph.TensorID(i), Name: t.Name, Type: t.Type.String(), Bytes: t.Type.Bytes(), Stored: stored[i],
			Borrowed: stored[i] && !c.nodeWritten[i] && c.opts.alias}
		c.plan.Persistent = append(c.plan.Persistent, p)
		if p.Stored {
			c.plan.PersistentBytes += alignUp(p.Bytes)
		}
	}
}
