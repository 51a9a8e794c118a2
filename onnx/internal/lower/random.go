package lower

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// errDrawn says why what was computed from random numbers is not known.
var errDrawn = errors.New("it depends on random numbers")

// draws is what the random operators of a model have in common.
type draws struct {
	seed, step *Value // nil until an operator reads them
	next       int64
	// byNode are the numbers that the operators of a node got, in the order in which it was lowered, by its place
	// and those of the nodes around it.
	byNode map[string][]int64
	// again, if it is not nil, is how many of them were given again: nodes are lowered for a second time and draw
	// what they drew.
	again map[string]int
}

// Random emits random numbers of one of the distributions of [graph.Random]. Every operator draws others, as does every
// iteration of a loop and every run. They follow from the seed of the model ([onnx.Random]) or, where the node has an
// attribute seed, from that alone: a model with seeds everywhere has none of its own.
func (c *Call) Random(fn graph.RandomFn, a, b float64, to graph.DType, shape []int64) *Value {
	if err := (graph.TensorType{DType: to, Shape: shape}).Check(); err != nil {
		c.Fail("result: %w", err)
	}
	op := &graph.Random{Fn: fn, A: a, B: b, Number: c.drawNumber(), To: to, Shape: shape}
	return c.Emit(op, c.seed(), c.stepOfLoops())
}

// drawNumber returns the number of the operator that is drawn from next.
func (c *Call) drawNumber() int64 {
	d := &c.l.draws
	var place strings.Builder
	fmt.Fprintf(&place, "%p", c.node)
	for e := c.env; e.caller != nil; e = e.caller {
		fmt.Fprintf(&place, " %p", e.node.node)
	}
	at := place.String()
	if d.again != nil {
		i := d.again[at]
		if d.again[at]++; i < len(d.byNode[at]) {
			return d.byNode[at][i]
		}
	}
	if d.byNode == nil {
		d.byNode = map[string][]int64{}
	}
	before := len(d.byNode[at])
	d.byNode[at] = append(d.byNode[at], d.next)
	c.l.note(func() { d.byNode[at] = d.byNode[at][:before] })
	d.next++
	return d.next - 1
}

// seed returns the two words from which the numbers of a node follow.
func (c *Call) seed() *Value {
	t := graph.TensorType{DType: graph.U32, Shape: []int64{2}}
	if c.form.Attribute("seed") != nil {
		if a := c.Attr("seed"); a != nil {
			words := uint64(a.Int)
			if a.Type == onnx.AttrFloat {
				words = uint64(math.Float32bits(a.Float))
			}
			return Known(t, binary.LittleEndian.AppendUint64(nil, words))
		}
	}
	d := &c.l.draws
	if d.seed == nil {
		d.seed = &Value{Name: "randomSeed", Type: t, left: errDrawn}
		d.seed.tensor = c.l.tensor(graph.Tensor{Name: d.seed.Name, Type: t, Persistent: true})
		c.l.note(func() { d.seed = nil })
	}
	return d.seed
}

// steps returns the count of runs.
func (l *lowerer) steps() *Value {
	d := &l.draws
	if d.step == nil {
		t := graph.TensorType{DType: graph.I64}
		d.step = &Value{Name: "randomStep", Type: t, left: errDrawn}
		d.step.tensor = l.tensor(graph.Tensor{Name: d.step.Name, Type: t, Persistent: true})
		l.note(func() { d.step = nil })
	}
	return d.step
}

// golden is 2⁶⁴ divided by the golden ratio, an odd number whose multiples lie far from each other and from small numbers.
const golden = -0x61c8864680b583eb

// stepOfLoops returns the count of runs, to which each loop around the node that is not written out adds a multiple of
// its own for its iteration.
func (c *Call) stepOfLoops() *Value {
	step := c.l.steps()
	by := int64(golden)
	for _, i := range c.l.iterations {
		turn := c.Binary(graph.Mul, c.Binary(graph.Add, i, Int(1)), Int(by))
		step = c.Binary(graph.Add, step, turn)
		by *= golden
	}
	return step
}

// Keep lets weight, an operand that is one, become v after each run of the graph, where the options ask for training: what v
// is computed from reads what it was before. Elsewhere it does nothing.
func (c *Call) Keep(weight, v *Value) {
	if c.l.opts.Training == nil {
		return
	}
	switch {
	case weight.weight == nil || !weight.Type.Equal(weight.weight.typ):
		c.Unsupported("make it an initializer of the model, and compile it as a weight", "training with running statistics that are no weight, %q", weight.Name)
	case c.l.current != c.l.root:
		c.Unsupported(hintLoop, "training with running statistics in a branch or a loop that is not written out")
	}
	k := kept{c.l.materialise(weight), c.l.materialise(v)}
	if slices.ContainsFunc(c.l.kept, func(o kept) bool { return o.weight == k.weight }) {
		c.Unsupported("give each its own", "training where two operators keep their running statistics in one weight, %q", weight.Name)
	}
	before := len(c.l.kept)
	c.l.kept = append(c.l.kept, k)
	c.l.note(func() { c.l.kept = c.l.kept[:before] })
}

// kept is a weight and what it becomes after a run.
type kept struct{ weight, value graph.TensorID }

// Learns reports whether the node is lowered in its training mode: where the model or the options ask for that, but in the
// graph that evaluates.
func (c *Call) Learns(asked bool) bool {
	l := c.l
	if !asked || l.evaluates {
		return false
	}
	if !l.learns {
		l.learns = true
		l.note(func() { l.learns = false })
	}
	return true
}

// Training returns what the options say of training, nothing for inference.
func (c *Call) Training() onnx.Training {
	if t := c.l.opts.Training; t != nil {
		return *t
	}
	return onnx.Training{}
}

// Unsettled returns what stands for a weight that [Call.Keep] changes: nothing is computed of its value now.
func (c *Call) Unsettled(x *Value) *Value {
	if c.l.opts.Training == nil || x.weight == nil {
		return x
	}
	return &Value{Name: x.Name, Type: x.Type, weight: x.weight, tensor: c.l.materialise(x), left: errChanges}
}

// errChanges says why what was computed from running statistics is not known.
var errChanges = errors.New("it depends on running statistics")

// evaluate lowers the model again into a graph of its own, without any training mode, if that is another graph than main. Weights,
// inputs and random numbers are the same.
func (l *lowerer) evaluate(given map[string]*Value, env *environment, order []step, outs []onnx.ValueInfo) *onnx.Evaluation {
	if l.opts.Training == nil || !l.learns {
		return nil
	}
	l.root = graph.GraphID(len(l.exe.Graphs))
	l.exe.Graphs = append(l.exe.Graphs, graph.Graph{Name: "evaluate"})
	l.current, l.evaluates, l.draws.again = l.root, true, map[string]int{}
	counts := l.counts
	defer func() { l.counts = counts }() // those of main, by the same names
	sc := newScope(nil)
	sc.values = given
	l.nodes(sc, env, order)
	return &onnx.Evaluation{Graph: l.root, Outputs: l.outputs(sc, env, outs)}
}

// after adds the graph that counts runs and writes running statistics, if there is anything to do, and says what random
// numbers follow from.
func (l *lowerer) after(low *onnx.Lowered) {
	for _, k := range l.kept {
		low.Running = append(low.Running, k.weight)
	}
	d := &l.draws
	if d.step == nil && len(l.kept) == 0 {
		return
	}
	g := graph.Graph{Name: "after"}
	if d.step != nil {
		low.Random = &onnx.Random{Seed: graph.None, Step: d.step.tensor, Value: binary.LittleEndian.AppendUint64(nil, l.opts.Seed)}
		if d.seed != nil {
			low.Random.Seed = d.seed.tensor
		}
		one := l.tensor(graph.Tensor{Name: "one", Type: d.step.Type, Const: true, Data: EncodeInt(graph.I64, 1)})
		g.Nodes = append(g.Nodes, graph.Node{
			Op: &graph.Binary{Fn: graph.Add}, Name: d.step.Name, Inputs: []graph.TensorID{d.step.tensor, one}, Outputs: []graph.TensorID{d.step.tensor},
		})
	}
	for _, k := range l.kept {
		w := l.exe.Tensors[k.weight]
		node := func(op graph.Op, to graph.TensorID, in ...graph.TensorID) graph.TensorID {
			g.Nodes = append(g.Nodes, graph.Node{Op: op, Name: w.Name, Inputs: in, Outputs: []graph.TensorID{to}})
			return to
		}
		local := func(d graph.DType) graph.TensorID {
			return l.tensor(graph.Tensor{Name: w.Name, Type: graph.TensorType{DType: d, Shape: w.Type.Shape}})
		}
		// A batch with infinities or what is no number would end the statistics for ever, even if its step is skipped.
		infinity := l.tensor(graph.Tensor{Name: w.Name, Type: graph.TensorType{DType: w.Type.DType}, Const: true, Data: EncodeFloat(w.Type.DType, math.Inf(1))})
		value := node(&graph.Reshape{Shape: w.Type.Shape}, local(w.Type.DType), k.value)
		size := node(&graph.Unary{Fn: graph.Abs}, local(w.Type.DType), value)
		finite := node(&graph.Binary{Fn: graph.Less}, local(graph.Bool), size, infinity)
		node(&graph.Where{}, k.weight, finite, value, k.weight)
	}
	low.After = []graph.GraphID{graph.GraphID(len(l.exe.Graphs))}
	l.exe.Graphs = append(l.exe.Graphs, g)
}
