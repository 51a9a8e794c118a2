package popxl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// As returns an [Operand] as the tensor that it is. It is a mistake if its elements are of another type.
func As[T Element](o Operand) Tensor[T] {
	const call = "popxl.As"
	if t, ok := o.(Tensor[T]); ok || o == nil {
		return t
	}
	ir, id := of(o)
	if id == graph.None {
		return Tensor[T]{ir, id}
	}
	return Fail[T](ir, call, fmt.Errorf("the tensor is %v, want elements of type %v", ir.b.Type(id), TypeOf[T]()))
}

// Loop adds a loop that runs count times, at least 0: what package ops makes Repeat of. body is called once, to add the operators of an iteration; its parameters are the number of the
// iteration, a scalar that begins with 0, and the carried values, and it returns what the next iteration carries, as many and of the same types. It may use any other tensor,
// which is the same in all iterations. The results are the values after the last iteration.
func Loop(call string, count int64, body func(iteration Tensor[int64], carried []Operand) []Operand, carried ...Operand) []Operand {
	ir, ids, err := resolve(carried)
	switch {
	case ir == nil || err == nil && ids == nil:
		return failures(ir, carried)
	case err != nil:
	case ir.taken:
		err = ErrTaken
	case body == nil:
		err = errors.New("the function is nil")
	case count < 0:
		err = fmt.Errorf("%d iterations, want at least 0", count)
	case slices.Contains(ids, graph.None):
		err = fmt.Errorf("operand %d is nil", slices.Index(ids, graph.None))
	}
	if err != nil {
		ir.fail(call, err)
		return failures(ir, carried)
	}
	var params []graph.TensorID
	b, results, err := ir.nested(call, func() []Operand {
		params = append(params, ir.parameter("iteration", graph.TensorType{DType: graph.I64}))
		values := make([]Operand, len(carried))
		for i, id := range ids {
			params = append(params, ir.parameter("carried", ir.b.Type(id)))
			values[i] = carried[i].with(ir, params[1+i])
		}
		return body(Tensor[int64]{ir, params[0]}, values)
	})
	if err == nil && results == nil {
		return failures(ir, carried)
	}
	if err == nil && len(results) != len(carried) {
		err = fmt.Errorf("the function returns %d values, want the %d that are carried", len(results), len(carried))
	}
	var made []graph.TensorID
	if err == nil {
		ir.b.SetParams(b.id, params, results)
		made, err = ir.node(&graph.Loop{Body: b.id, Count: count}, ir.scoped(call), append([]graph.TensorID{graph.None, graph.None}, ids...))
		err = inner(err)
	}
	if err != nil {
		ir.fail(call, err)
		return failures(ir, carried)
	}
	out := make([]Operand, len(carried))
	for i, id := range made {
		out[i] = carried[i].with(ir, id)
	}
	return out
}

// If adds a choice: the results are those of then if cond, of one element, is true, else those of otherwise, and only one of the two is computed. Both functions are called once, to add their
// operators; they return as many tensors, of the same types. It is what package ops makes Conditional of. The result is nil if a call failed.
func If(call string, cond Tensor[bool], then, otherwise func() []Operand) []Operand {
	ir, ids, err := resolve([]Operand{cond})
	switch {
	case ir == nil || err == nil && ids == nil:
		return nil
	case err != nil:
	case ir.taken:
		err = ErrTaken
	case then == nil || otherwise == nil:
		err = errors.New("a function is nil")
	}
	if err != nil {
		ir.fail(call, err)
		return nil
	}
	var branches [2]branch
	failed := false
	for i, f := range []func() []Operand{then, otherwise} {
		b, results, err := ir.nested(call, f)
		if err != nil {
			ir.fail(call, err)
		}
		failed = failed || err != nil || results == nil
		if !failed {
			ir.b.SetParams(b.id, nil, results)
		}
		branches[i] = b
	}
	if failed {
		return nil
	}
	made, err := ir.node(&graph.If{Then: branches[0].id, Else: branches[1].id}, ir.scoped(call), ids)
	if err != nil {
		ir.fail(call, inner(err))
		return nil
	}
	out := make([]Operand, len(made))
	for i, id := range made {
		out[i] = branches[0].results[i].with(ir, id)
	}
	return out
}

// branch is a graph that an operator runs, and what the function that made it returned.
type branch struct {
	id      graph.GraphID
	results []Operand
}

// nested calls build with nodes going to a graph of their own, and resolves what it returns: nil if that comes from a call that failed.
func (ir *Ir) nested(call string, build func() []Operand) (b branch, results []graph.TensorID, err error) {
	outside := ir.b.CurrentGraph()
	b.id = ir.b.BeginGraph(ir.scoped(call))
	ir.nest = append(ir.nest, b.id)
	defer func() {
		ir.nest = ir.nest[:len(ir.nest)-1]
		ir.b.SetGraph(outside)
	}()
	b.results = build()
	of, results, err := resolve(b.results)
	switch {
	case ir.taken:
		return b, nil, ErrTaken
	case err != nil:
		return b, nil, fmt.Errorf("what the function returns: %w", err)
	case of == nil && len(b.results) > 0 || of != nil && of != ir:
		return b, nil, errors.New("the function returns tensors of another Ir, or none")
	case results != nil && slices.Contains(results, graph.None):
		return b, nil, errors.New("the function returns a tensor that is nil")
	}
	return b, results, nil
}

// parameter adds a parameter of the graph that is being made.
func (ir *Ir) parameter(name string, t graph.TensorType) graph.TensorID {
	id := ir.b.AddLocal(ir.scoped(name), t)
	ir.own(id)
	return id
}

// own notes tensors that only the innermost graph that is being made can read.
func (ir *Ir) own(ids ...graph.TensorID) {
	if len(ir.nest) == 0 {
		return
	}
	for _, id := range ids {
		ir.owners[id] = ir.nest[len(ir.nest)-1]
	}
}

// reachable reports whether a tensor can be read where nodes go now.
func (ir *Ir) reachable(id graph.TensorID) bool {
	g, owned := ir.owners[id]
	return !owned || slices.Contains(ir.nest, g)
}

// errNested is the error of calls that functions of Loop and If must not make.
var errNested = errors.New("it is called within the function of a loop or a choice: return the tensor from there, and call it behind")

// failures returns what a call returns in place of results of the types of operands.
func failures(ir *Ir, like []Operand) []Operand {
	out := make([]Operand, len(like))
	for i, o := range like {
		out[i] = Tensor[float32]{ir, graph.None}
		if !isNil(o) {
			out[i] = o.with(ir, graph.None)
		}
	}
	return out
}
