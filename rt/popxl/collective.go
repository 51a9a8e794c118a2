package popxl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Collective is what replicas make together of a tensor of each.
type Collective uint8

// The collectives.
const (
	// SumOfReplicas is the sum of all, of numbers. Its gradient is the sum of the gradients of all.
	SumOfReplicas Collective = iota + 1
	// SameOperands is x, which is the same in all replicas: only its gradient is the sum of all.
	SameOperands
	// SameGradients is the sum of all, whose gradient is the same in all replicas and stays as it is.
	SameGradients
	// AllOfReplicas is the tensors of all, [n, …shape]. Its gradient is the part of the sum of the gradients of all that is the replica's.
	AllOfReplicas
	// PartOfSum is a part of the sum of all, numbers [n·k, …shape]: of the first replica the first k along the first axis, and so on. Its gradient is [AllOfReplicas] of the gradients.
	PartOfSum
)

// stand is what stands for a collective in graphs until a session's model is made, by the name of the node. What stands for a sum is its own gradient but for the name, what stands for all of replicas has that of the part of a sum as
// gradient, and the other way round, so gradients are made of them as of any operator, and stand for collectives too.
type stand struct {
	forward, backward bool // replicas exchange the tensor, and its gradient
}

// Collect adds a collective: what package ops makes AllReduce and the like of. It is called in the main graph, not in loops, choices and graphs, once the number of replicas is known ([Ir.SetReplicas]). Only a [Session] computes it: of several replicas [Ir.Export] refuses it.
func Collect[T Element](call string, c Collective, x Tensor[T]) Tensor[T] {
	ir, ids, err := resolve([]Operand{x})
	if ir == nil || err == nil && ids == nil {
		return Tensor[T]{ir, graph.None}
	}
	n, shape := int64(ir.replicas()), x.Shape()
	switch {
	case err != nil:
	case ir.taken:
		err = ErrTaken
	case len(ir.nest) > 0:
		err = errNested
	case c == PartOfSum && (len(shape) == 0 || shape[0]%n > 0):
		err = fmt.Errorf("x is %v, want a first axis that %d replicas can divide", ir.b.Type(x.id), n)
	case c < SumOfReplicas || c > PartOfSum:
		err = fmt.Errorf("there is no collective %d", c)
	}
	if err != nil {
		return Fail[T](ir, call, err)
	}
	ir.collects = true
	y, err := ir.collect(call, c, x.id, n, shape)
	if err != nil {
		return Fail[T](ir, call, inner(err))
	}
	return Tensor[T]{ir, y}
}

// collect adds what stands for a collective.
func (ir *Ir) collect(call string, c Collective, x graph.TensorID, n int64, shape []int64) (graph.TensorID, error) {
	name := ir.scoped(call)
	reshape := func(x graph.TensorID, shape ...int64) (graph.TensorID, error) {
		return ir.one(&graph.Reshape{Shape: shape}, name, x)
	}
	all := slices.Concat([]int64{n}, shape)
	switch {
	case n == 1 && c == AllOfReplicas:
		return reshape(x, all...)
	case n == 1:
		return reshape(x, shape...)
	}
	s := stand{forward: c != SameOperands, backward: c != SameGradients}
	file, line := caller()
	ir.sessionsOnly = append(ir.sessionsOnly, &Error{file, line, call, fmt.Errorf("%d replicas exchange a tensor, which only a session computes", n)})
	mark := fmt.Sprintf("%s (collective %d)", name, len(ir.stands))
	ir.stands[mark] = s
	var op graph.Op = &graph.Unary{Fn: graph.Neg}
	t := ir.b.Type(x)
	switch {
	case c == AllOfReplicas:
		one, err := reshape(x, slices.Concat([]int64{1}, shape)...)
		if err != nil {
			return graph.None, err
		}
		return ir.one(&graph.Expand{Shape: all}, mark, one)
	case c == PartOfSum:
		parts, err := reshape(x, slices.Concat([]int64{n, shape[0] / n}, shape[1:])...)
		if err != nil {
			return graph.None, err
		}
		sum, err := ir.one(&graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}, KeepDims: true}, mark, parts)
		if err != nil {
			return graph.None, err
		}
		return reshape(sum, slices.Concat([]int64{shape[0] / n}, shape[1:])...)
	case !t.DType.IsFloat():
		op = &graph.Reshape{Shape: shape} // has no gradient
	}
	return ir.one(op, mark, x)
}

// ofGradient is what the names of nodes that compute gradients begin with.
const ofGradient = "grad/"

// standing returns how a node combines the tensors of replicas, if it stands for a collective; apart is false if the tensor stays as it is.
func (ir *Ir) standing(e *graph.Executable, n *graph.Node) (how combination, apart, ok bool) {
	name, back := n.Name, false
	for strings.HasPrefix(name, ofGradient) {
		name, back = name[len(ofGradient):], !back
	}
	s, ok := ir.stands[name]
	if !ok {
		return how, false, false
	}
	how.t = e.Tensors[n.Inputs[0]].Type
	switch op := n.Op.(type) {
	case *graph.Unary:
		how.way = sums
	case *graph.Expand:
		how.way = gathers
	case *graph.Reduce:
		how.way = scatters
	case *graph.Reshape:
		if how.way = sums; back || len(op.Shape) != len(how.t.Shape) {
			return how, false, false
		}
	}
	return how, back && s.backward || !back && s.forward, true
}

// divided returns the steps that compute a graph: its nodes, with copies in place of those that stand for collectives. Those that come one after the other and do not read each other are one exchange.
func (ir *Ir) divided(m *export.Model, g graph.GraphID, programs []uint32) ([]graph.Step, error) {
	e := m.Executable
	nodes := e.Graphs[g].Nodes
	var steps, gives, takes []graph.Step
	var piece []graph.Node
	taken := map[graph.TensorID]bool{}
	next := g
	call := func() {
		if len(piece) == 0 {
			return
		}
		if next < 0 {
			next = graph.GraphID(len(e.Graphs))
			e.Graphs = append(e.Graphs, graph.Graph{Name: e.Graphs[g].Name})
		}
		e.Graphs[next].Nodes = piece
		steps = append(steps, graph.Step{Kind: graph.Call, Graph: next})
		piece, next = nil, -1
	}
	meet := func() {
		steps = append(append(steps, gives...), takes...)
		gives, takes = nil, nil
		clear(taken)
	}
	for i := range nodes {
		n := nodes[i]
		how, apart, ok := ir.standing(e, &n)
		if !ok || !apart {
			if meet(); ok {
				n.Op = &graph.Reshape{Shape: how.t.Shape}
			}
			piece = append(piece, n)
			continue
		}
		if call(); taken[n.Inputs[0]] {
			meet()
		}
		give, take, err := ir.swap(m, exchange{how: how, give: n.Inputs[0], take: n.Outputs[0]}, programs)
		if err != nil {
			return nil, err
		}
		gives, takes = append(gives, give), append(takes, take)
		taken[n.Outputs[0]] = true
	}
	meet()
	if call(); next == g {
		e.Graphs[g].Nodes = nil
	}
	return steps, nil
}
