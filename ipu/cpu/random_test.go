package cpu

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// randomModel is a random executable with everything needed to run it. All
// values are small whole numbers, so that results are exact whatever the
// order of computation.
type randomModel struct {
	exe     []byte
	inputs  map[string][]byte // transfers of an input, which come round again
	outputs []string
}

const (
	side  = 4               // tensors have side·side elements
	size  = 4 * side * side // and so many bytes
	bound = 8               // and values within ±bound
)

// modelDraw draws a model piece by piece.
type modelDraw struct {
	*rapid.T
	b      *graph.Builder
	lo, hi graph.TensorID
	pool   []graph.TensorID // what nodes and outputs may read
	states []graph.TensorID // persistent tensors that nodes may write
	depth  int              // of graphs inside each other
	m      randomModel
}

func (d *modelDraw) yes(label string) bool { return rapid.Bool().Draw(d.T, label) }
func (d *modelDraw) values(n int) []byte {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rapid.IntRange(-3, 3).Draw(d.T, "value"))
	}
	return bytesOf(v)
}
func (d *modelDraw) shape(label string) []int64 {
	return rapid.SampledFrom([][]int64{{side, side}, {side * side}, {2, side * side / 2}}).Draw(d.T, label)
}
func (d *modelDraw) pick(label string) graph.TensorID {
	return rapid.SampledFrom(d.pool).Draw(d.T, label)
}
func (d *modelDraw) node(op graph.Op, in ...graph.TensorID) graph.TensorID {
	return node(d, d.b, op, op.Kind(), in...)
}
func (d *modelDraw) shaped(x graph.TensorID, s ...int64) graph.TensorID {
	if slices.Equal(d.b.Type(x).Shape, s) {
		return x
	}
	return d.node(&graph.Reshape{Shape: s}, x)
}
func (d *modelDraw) like(x, y graph.TensorID) graph.TensorID {
	return d.shaped(x, d.b.Type(y).Shape...)
}
func (d *modelDraw) clip(x graph.TensorID) graph.TensorID {
	return d.node(&graph.Clip{}, x, d.lo, d.hi)
}

// input adds an input and returns the step that copies it in.
func (d *modelDraw) input(prefix string, x graph.TensorID) graph.Step {
	handle := fmt.Sprint(prefix, len(d.m.inputs))
	transfers := 1
	if prefix != "w" { // its stream may promise not to change
		transfers = rapid.IntRange(1, 3).Draw(d.T, "transfers")
	}
	d.m.inputs[handle] = d.values(transfers * size / 4)
	d.pool = append(d.pool, x)
	return d.b.CopyIn(handle, x)
}

func (d *modelDraw) local(prefix string) graph.Step {
	return d.input(prefix, d.b.AddLocal(prefix, f32(d.shape(prefix)...)))
}

// output returns the step that copies a tensor out.
func (d *modelDraw) output(x graph.TensorID) graph.Step {
	handle := fmt.Sprint("y", len(d.m.outputs))
	d.m.outputs = append(d.m.outputs, handle)
	return d.b.CopyOut(handle, x)
}

// graph draws a graph of some nodes.
func (d *modelDraw) graph(name string) graph.Step {
	g := d.b.BeginGraph(name)
	d.nodes(8)
	return d.b.Call(g)
}

// nodes draws some nodes of the current graph.
func (d *modelDraw) nodes(most int) {
	for range rapid.IntRange(1, most).Draw(d.T, "nodes") {
		x := d.pick("operand")
		kind := rapid.SampledFrom([]string{"unary", "binary", "reshape", "matmul", "transpose", "where", "reverse", "join", "state", "if", "loop"}).Draw(d.T, "kind")
		switch kind {
		case "state":
			d.update(x)
		case "if":
			d.branch(x)
		case "loop":
			d.loop(x)
		default:
			d.pool = append(d.pool, d.compute(kind, x))
		}
	}
}

// inner draws a graph that a node runs. It gives one bool, if it is asked to,
// and n tensors of the model's size; some of these may be defined outside.
func (d *modelDraw) inner(name string, params []graph.TensorID, carried, collected int, cond bool) graph.GraphID {
	around, pool := d.b.CurrentGraph(), d.pool
	defer func() { d.b.SetGraph(around); d.pool, d.depth = pool, d.depth-1 }()
	d.depth++
	g := d.b.BeginGraph(name)
	d.pool = slices.Clip(pool)
	if len(params) > 1 {
		d.pool = append(d.pool, params[1:]...)
	}
	d.nodes(4)
	var results []graph.TensorID
	if cond {
		all := d.node(&graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}}, d.shaped(d.pick("cond"), side*side))
		results = append(results, d.node(&graph.Binary{Fn: graph.Less}, all, d.hi))
	}
	for i := range carried + collected {
		x := d.pick("result")
		if i < carried && rapid.IntRange(0, 3).Draw(d.T, "swap") == 0 {
			x = rapid.SampledFrom(params[1:]).Draw(d.T, "param")
		}
		results = append(results, d.shaped(x, side, side))
	}
	d.b.SetParams(g, params, results)
	return g
}

func (d *modelDraw) branch(x graph.TensorID) {
	if d.depth == 2 {
		return
	}
	all := d.node(&graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}}, d.shaped(x, side*side))
	cond := d.node(&graph.Binary{Fn: graph.Less}, d.lo, all)
	op := &graph.If{Then: d.inner("then", nil, 0, 2, false), Else: d.inner("else", nil, 0, 2, false)}
	d.wide(op, cond)
}

func (d *modelDraw) loop(x graph.TensorID) {
	if d.depth == 2 {
		return
	}
	in := []graph.TensorID{graph.None, graph.None, d.shaped(x, side, side), d.shaped(d.pick("carried"), side, side)}
	params := []graph.TensorID{d.b.AddLocal("i", graph.TensorType{DType: graph.I64}), d.b.AddLocal("a", f32(side, side)), d.b.AddLocal("b", f32(side, side))}
	op := &graph.Loop{Count: int64(rapid.IntRange(0, 3).Draw(d.T, "count"))}
	collected := rapid.IntRange(0, 1).Draw(d.T, "collected")
	if d.yes("while") {
		op.While, collected = true, 0
		if d.yes("counted") {
			op.Count = -1
			in[0] = d.b.AddConst("count", graph.TensorType{DType: graph.I64}, []byte{byte(rapid.IntRange(0, 3).Draw(d.T, "count")), 0, 0, 0, 0, 0, 0, 0})
		}
		if d.yes("conditional") {
			in[1] = d.node(&graph.Binary{Fn: graph.Less}, d.lo, d.node(&graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}}, d.shaped(x, side*side)))
		}
	}
	op.Body = d.inner("body", params, 2, collected, op.While)
	d.wide(op, in...)
}

// wide appends a node with several results and puts those of the model's size
// into the pool. One of them may replace a state.
func (d *modelDraw) wide(op graph.Op, in ...graph.TensorID) {
	if len(d.states) > 0 && d.yes("to state") {
		s := rapid.SampledFrom(d.states).Draw(d.T, "state")
		if slices.Equal(d.b.Type(s).Shape, []int64{side, side}) {
			require.NoError(d, d.b.NodeTo(op, op.Kind(), []graph.TensorID{s}, in...))
			return
		}
	}
	out, err := d.b.Node(op, op.Kind(), in...)
	require.NoError(d, err)
	for i, t := range out {
		if d.b.Type(t).Elements() == side*side && (i == 0 || d.yes("use")) {
			d.pool = append(d.pool, t)
		} else if d.b.Type(t).Elements() == 3*side*side {
			d.pool = append(d.pool, d.node(&graph.Reduce{Fn: graph.ReduceMax, Axes: []int64{0}}, t))
		}
	}
}

func (d *modelDraw) compute(kind string, x graph.TensorID) graph.TensorID {
	switch kind {
	case "unary":
		fn := rapid.SampledFrom([]graph.UnaryFn{graph.Neg, graph.Abs, graph.Relu, graph.Sign}).Draw(d.T, "fn")
		return d.node(&graph.Unary{Fn: fn}, x)
	case "binary":
		fn := rapid.SampledFrom([]graph.BinaryFn{graph.Add, graph.Sub, graph.Mul, graph.Max}).Draw(d.T, "fn")
		return d.clip(d.node(&graph.Binary{Fn: fn}, x, d.like(d.pick("second"), x)))
	case "reshape":
		return d.node(&graph.Reshape{Shape: d.shape("to")}, x)
	case "matmul":
		return d.clip(d.node(&graph.MatMul{}, d.shaped(x, side, side), d.shaped(d.pick("second"), side, side)))
	case "transpose":
		return d.node(&graph.Transpose{Perm: []int64{1, 0}}, d.shaped(x, side, side))
	case "join":
		// Rows of two operands, as they are or computed, and again of the result.
		n := rapid.Int64Range(1, side-1).Draw(d.T, "rows")
		part := func(x graph.TensorID, n int64) graph.TensorID {
			y := d.node(&graph.Slice{Start: []int64{rapid.Int64Range(0, side-n).Draw(d.T, "start"), 0}, Size: []int64{n, side}, Step: []int64{1, 1}}, d.shaped(x, side, side))
			if d.yes("computed") {
				y = d.node(&graph.Unary{Fn: graph.Neg}, y)
			}
			return y
		}
		return d.node(&graph.Concat{}, part(x, n), part(d.pick("second"), side-n))
	case "where":
		return d.node(&graph.Where{}, d.node(&graph.Binary{Fn: graph.Less}, x, d.lo), x, d.like(d.pick("second"), x))
	}
	return d.node(&graph.Slice{Start: []int64{side - 1, 0}, Size: []int64{side, side}, Step: []int64{-1, 1}}, d.shaped(x, side, side))
}

// update makes a node that replaces a state.
func (d *modelDraw) update(x graph.TensorID) {
	if len(d.states) == 0 {
		return
	}
	s := rapid.SampledFrom(d.states).Draw(d.T, "state")
	var op graph.Op = &graph.Binary{Fn: graph.Max}
	in := []graph.TensorID{s, d.like(x, s)}
	if d.b.Type(s).Shape[0] == side && d.yes("transposed") {
		op, in = &graph.Transpose{Perm: []int64{1, 0}}, in[:1]
	}
	require.NoError(d, d.b.NodeTo(op, "update", []graph.TensorID{s}, in...))
}

// drawModel draws a model: program 0 sets weights and states; program 1 runs a
// loop around two graphs, either of which may come first, with inputs and
// outputs before, inside, between and after.
func drawModel(t *rapid.T) randomModel {
	d := &modelDraw{T: t, b: graph.NewBuilder("random"), m: randomModel{inputs: map[string][]byte{}}}
	b := d.b
	d.lo = b.AddConst("lo", f32(), bytesOf([]float32{-bound}))
	d.hi = b.AddConst("hi", f32(), bytesOf([]float32{bound}))
	d.pool = append(d.pool, b.AddConst("k", f32(side, side), d.values(side*side)))
	var loads, before, first, second, middle, after []graph.Step
	for range rapid.IntRange(0, 3).Draw(t, "persistent") {
		w := b.AddPersistent("w", f32(d.shape("w")...))
		step := d.input("w", w)
		loads = append(loads, step)
		if d.yes("state") {
			d.states = append(d.states, w)
		} else if d.yes("streamed") {
			before = append(before, step)
		}
	}
	before = append(before, d.local("x"))
	for range rapid.IntRange(0, 2).Draw(t, "inputs") {
		first = append(first, d.local("x"))
	}
	first = append(first, d.graph("first"))
	if d.yes("call twice") {
		first = append(first, first[len(first)-1])
	}
	for range rapid.IntRange(0, 1).Draw(t, "middle") {
		middle = append(middle, d.output(d.pick("middle")))
	}
	if d.yes("late input") {
		second = append(second, d.local("late"))
	}
	second = append(second, d.graph("second"))
	body := slices.Concat(first, middle, second)
	if d.yes("rotate") { // the loop carries what the first graph gives to the second
		before = append(before, first...)
		body = slices.Concat(second, first, middle)
	}
	body = append(body, d.output(d.pick("output")))
	after = append(after, d.output(d.pool[len(d.pool)-1]))
	for range rapid.IntRange(0, 2).Draw(t, "after") {
		after = append(after, d.output(d.pick("after")))
	}
	for _, s := range d.states {
		after = append(after, d.output(s))
	}
	b.AddProgram(0, "load", loads...)
	b.AddProgram(1, "main", append(append(before, b.Repeat(int64(rapid.IntRange(1, 3).Draw(t, "iterations")), body...)), after...)...)
	d.m.exe = executable(t, b)
	return d.m
}

// memoryKind is how a stream of a random run is connected.
type memoryKind int

const (
	fetched memoryKind = iota
	inMemory
	misaligned
	unchanging
)

// runner runs programs: an engine, or the interpreter that it is checked by.
type runner interface {
	Connect(handle string, s ipu.Stream) error
	Run(ctx context.Context, program int) error
}

// runRandom runs a model twice and returns every output's transfers. If
// overlap is not negative, the memory of output y0 is that of an input, so many
// bytes on.
func runRandom(t *rapid.T, e runner, m randomModel, kinds map[string]memoryKind, overlap int) map[string][]byte {
	split := func(all []byte, off int) [][]byte {
		var items [][]byte
		for i := 0; i < len(all); i += size {
			mem := align.Bytes(int64(size + off))[off:]
			copy(mem, all[i:i+size])
			items = append(items, mem)
		}
		return items
	}
	var shared *host // the input that y0 shares memory with
	inputs, outputs := map[string]*host{}, map[string]*host{}
	for _, handle := range slices.Sorted(maps.Keys(m.inputs)) {
		off := 0
		if kinds[handle] == misaligned {
			off = 1
		}
		h := newHost(t, split(m.inputs[handle], off)...)
		var s ipu.Stream = direct{h}
		switch {
		case handle[0] == 'x' && overlap >= 0 && shared == nil:
			shared = h
			for i, item := range h.items {
				h.items[i] = append(item, make([]byte, overlap)...)[:size]
			}
		case kinds[handle] == fetched:
			s = feeder{h}
		case kinds[handle] == unchanging && handle[0] == 'w':
			s = constant{direct{h}}
		}
		if h != shared {
			inputs[handle] = h
		}
		require.NoError(t, e.Connect(handle, s))
	}
	for _, handle := range m.outputs {
		off := 0
		if kinds[handle] == misaligned {
			off = 1
		}
		h := newHost(t, split(make([]byte, 12*size), off)...)
		outputs[handle] = h
		var s ipu.Stream = direct{h}
		switch {
		case handle == "y0" && overlap >= 0:
			for i := range h.items {
				h.items[i] = shared.items[i%len(shared.items)][overlap : overlap+size]
			}
		case kinds[handle] == fetched:
			s = drain{h}
		}
		require.NoError(t, e.Connect(handle, s))
	}
	out := map[string][]byte{}
	run(t, e, 0)
	for range 2 {
		run(t, e, 1)
		for handle, h := range outputs {
			require.False(t, h.open)
			for _, item := range h.items[:h.completed] {
				out[handle] = append(out[handle], item...)
			}
		}
	}
	for handle, h := range inputs {
		require.False(t, h.open)
		require.Equal(t, m.inputs[handle], slices.Concat(h.items...), "input %s was overwritten", handle)
	}
	return out
}

// TestRandomModels compares the engine, with random options and streams, with
// an interpreter that plans nothing.
func TestRandomModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		overlap := rapid.SampledFrom([]int{-1, -1, 0, 16}).Draw(t, "overlap")
		exe, err := encoding.Decode(m.exe)
		require.NoError(t, err)
		want := runRandom(t, newInterpreter(exe), m, nil, overlap)

		onOff := rapid.SampledFrom([]string{"on", "on", "off"})
		e, err := New(ipu.EngineConfig{Name: "random", Executable: m.exe, Options: opt(
			"threads", rapid.SampledFrom([]string{"1", "2"}).Draw(t, "threads"),
			"inplace", onOff.Draw(t, "inplace"), "alias", onOff.Draw(t, "alias"), "prepack", onOff.Draw(t, "prepack"))})
		require.NoError(t, err)
		defer e.Close()
		load(t, e)
		kinds := map[string]memoryKind{}
		for _, h := range append(slices.Sorted(maps.Keys(m.inputs)), m.outputs...) {
			kinds[h] = memoryKind(rapid.IntRange(0, 3).Draw(t, h))
		}
		require.Equal(t, want, runRandom(t, e, m, kinds, overlap))
	})
}
