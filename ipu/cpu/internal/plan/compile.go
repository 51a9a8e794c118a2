package plan

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/graph"
)

// NodeKey names one node of an executable.
type NodeKey struct {
	Graph graph.GraphID
	Node  int
}

// packKey names one operand of a bound kernel.
type packKey struct{ kernel, operand int }

// layoutKey tells packed copies apart.
type layoutKey struct {
	tensor  graph.TensorID
	packing tensor.Packing
}

// Options is what a plan depends on.
type Options struct {
	layout.Options
	Work    int64 // operations of one run of a program
	InPlace bool  // a result may be written over an operand
	Alias   bool  // tensors may share memory with each other and with the host
	Prepack bool  // weights may be kept in the layout their kernels prefer
	Layout  bool  // activations may be in other layouts than the model's
}

// Compiled is an executable with its plan.
type Compiled struct {
	Exe     *graph.Executable // with the layouts of activations that the plan is for
	Plan    *Plan
	Kernels []tensor.Kernel // in the order of the programs' graphs
	Bound   map[NodeKey]int // index into kernels
}

// compiler turns a verified executable into a plan and its bound kernels.
type compiler struct {
	ctx  context.Context
	exe  *graph.Executable // with activations in NCHWc or NHWC
	from layout.Origins
	made layout.Kernels // kernels that are there before nodes are bound
	opts Options
	plan *Plan

	kernels  []tensor.Kernel
	results  []int // results of each kernel, left-out ones included
	nodes    []NodeKey
	bound    map[NodeKey]int
	packs    map[packKey]int // index into plan.Packed
	layouts  map[layoutKey]int
	steps    atomic.Int64   // of all programs so far
	tables   *budget.Budget // of kernels so far
	tablesOf []int64        // what was taken of tables after each program that was bound
	work     *workOf        // of the executable as it was given

	writers     []int                   // static writers of every tensor
	nodeWritten []bool                  // tensors that a node writes
	reshaped    []graph.TensorID        // what a tensor written by one Reshape shows, or None
	streamed    []bool                  // tensors that one program copies in and also reads
	derived     []bool                  // persistent tensors that one node writes, in programs that don't read them
	kept        map[graph.TensorID]bool // derived tensors that some kernel wants packed
}

// Compile plans exe. Room, which nothing else has taken
// from yet, counts their tables.
func Compile(ctx context.Context, exe *graph.Executable, opts Options, room *budget.Budget) (*Compiled, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	work := newWorkOf(exe)
	if err := work.check(opts.Work); err != nil {
		return nil, err
	}
	opts.Memory = room.Left() // for kernels that are made to see whether they can be
	laid := exe
	var from layout.Origins
	var made layout.Kernels
	var summary layout.Summary
	if opts.Layout {
		laid, from, made, summary = layout.Choose(exe, opts.Options)
	}
	c := &compiler{
		ctx:     ctx,
		work:    work,
		exe:     laid,
		from:    from,
		made:    made,
		opts:    opts,
		plan:    &Plan{Name: exe.Name, Threads: opts.Threads, Layout: summary},
		bound:   map[NodeKey]int{},
		tables:  room,
		packs:   map[packKey]int{},
		layouts: map[layoutKey]int{},
	}
	c.survey()
	if err := c.bindAll(); err != nil {
		return nil, err
	}
	c.pack()
	if err := c.programs(); err != nil {
		return nil, err
	}
	for _, k := range c.plan.Packed {
		c.plan.PackedBytes += align.Up(k.Bytes)
	}
	for i := range laid.Tensors {
		c.plan.ConstantBytes += int64(len(laid.Tensors[i].Data))
	}
	c.persistent()
	c.plan.TableBytes = c.tables.Used()
	return &Compiled{c.exe, c.plan, c.kernels, c.bound}, nil
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
		graph.Walk(p.Steps, func(s *graph.Step) {
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
		graph.Walk(p.Steps, func(s *graph.Step) {
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
	if t == graph.None {
		return false
	}
	e := &c.exe.Tensors[t]
	return e.Const || c.derived[t] || e.Persistent && !c.nodeWritten[t] && !c.streamed[t]
}

// pack decides which operands come packed, and in which layout: what their kernels
// want, but for those that can do as well with a copy that others want. It notes the
// derived tensors that are packed, which the plan of the program that writes them
// depends on.
func (c *compiler) pack() {
	c.kept = map[graph.TensorID]bool{}
	if !c.opts.Prepack {
		return
	}
	var choosers []packKey
	for i, k := range c.kernels {
		packer, ok := k.(tensor.Packer)
		if !ok {
			continue
		}
		for operand := range c.node(i).Inputs {
			taker, ok := k.(tensor.Taker)
			switch {
			case !c.packable(c.operand(i, operand)):
			case ok && taker.Takes(operand) != "":
				choosers = append(choosers, packKey{i, operand})
			case packer.Packed(operand) > 0:
				c.packed(i, operand, packer.Packing(operand), false)
			}
		}
	}
	for _, k := range choosers {
		taker := c.kernels[k.kernel].(tensor.Taker)
		if p := taker.Takes(k.operand); c.isKept(k, p) {
			c.packed(k.kernel, k.operand, p, true)
		} else if taker.Packed(k.operand) > 0 {
			c.packed(k.kernel, k.operand, taker.Packing(k.operand), false)
		}
	}
	for _, k := range c.plan.Packed {
		if c.derived[k.Tensor] {
			c.kept[k.Tensor] = true
		}
	}
}

// node returns the node of a kernel.
func (c *compiler) node(kernel int) *graph.Node {
	key := c.nodes[kernel]
	return &c.exe.Graphs[key.Graph].Nodes[key.Node]
}

// operand returns the tensor that holds the elements of a kernel's operand, or None.
func (c *compiler) operand(kernel, operand int) graph.TensorID {
	t := c.node(kernel).Inputs[operand]
	if t == graph.None {
		return t
	}
	return c.origin(t)
}

// isKept reports whether there is a copy of an operand in a layout.
func (c *compiler) isKept(k packKey, p tensor.Packing) bool {
	_, ok := c.layouts[layoutKey{c.operand(k.kernel, k.operand), p}]
	return ok
}

// packed makes an operand come packed in a layout: in the copy of it that is there, or
// in another one.
func (c *compiler) packed(kernel, operand int, p tensor.Packing, taken bool) {
	t, key := c.operand(kernel, operand), c.nodes[kernel]
	layout := layoutKey{t, p}
	at, ok := c.layouts[layout]
	if !ok {
		at = len(c.plan.Packed)
		c.layouts[layout] = at
		c.plan.Packed = append(c.plan.Packed, Packed{Tensor: t, Bytes: int64(c.kernels[kernel].(tensor.Packer).Packed(operand))})
	}
	r := PackReader{Graph: key.Graph, Node: key.Node, Source: c.from.Of(key.Graph, key.Node), Operand: operand, Taken: taken}
	r.Use(c.kernels[kernel])
	c.packs[packKey{kernel, operand}] = at
	c.plan.Packed[at].Readers = append(c.plan.Packed[at].Readers, r)
}

// inPlace reports whether kernel k may write its first result over operand i.
func (c *compiler) inPlace(k, i int) bool {
	if _, packed := c.packs[packKey{k, i}]; packed || !c.opts.InPlace {
		return false
	}
	p, ok := c.kernels[k].(tensor.InPlacer)
	return ok && p.InPlace(i)
}

// overwrites reports whether kernel k may write a result over operand i.
func (c *compiler) overwrites(k, result, i int) bool {
	if result == 0 {
		return c.inPlace(k, i)
	}
	if _, packed := c.packs[packKey{k, i}]; packed || !c.opts.InPlace {
		return false
	}
	p, ok := c.kernels[k].(tensor.Overwriter)
	return ok && p.Overwrites(result, i)
}

// isPacked reports whether operand k of a step comes packed.
func (c *compiler) isPacked(s *Step, k int) bool {
	if s.Kind != Compute {
		return false
	}
	_, ok := c.packs[packKey{c.bound[NodeKey{s.Graph, s.Node}], k}]
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
			Borrowed: stored[i] && !c.nodeWritten[i] && c.opts.Alias}
		c.plan.Persistent = append(c.plan.Persistent, p)
		if p.Stored {
			c.plan.PersistentBytes += align.Up(p.Bytes)
		}
	}
}
