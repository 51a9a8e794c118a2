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
		ir.frame().iteration = params[0]
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
		made, err = ir.loop(call, count, b.frame, params, results, ids)
	}
	if err != nil {
		ir.fail(call, err)
		return failures(ir, carried)
	}
	out := make([]Operand, len(carried))
	for i := range carried {
		out[i] = carried[i].with(ir, made[i])
	}
	return out
}

// loop appends the operator of a loop whose body has been made, and returns its results.
func (ir *Ir) loop(call string, count int64, body *frame, params, results, carried []graph.TensorID) ([]graph.TensorID, error) {
	all, err := ir.gathered(body)
	if err != nil {
		return nil, inner(err)
	}
	for _, s := range all {
		results = append(results, s.rows)
	}
	ir.b.SetParams(body.id, params, results)
	made, err := ir.node(&graph.Loop{Body: body.id, Count: count}, ir.scoped(call), append([]graph.TensorID{graph.None, graph.None}, carried...))
	if err != nil {
		return nil, inner(err)
	}
	return made, ir.endLoop(body, count, all, made[len(carried):])
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
	var results [2][]graph.TensorID
	failed := false
	for i, f := range []func() []Operand{then, otherwise} {
		var err error
		branches[i], results[i], err = ir.nested(call, f)
		if err != nil {
			ir.fail(call, err)
		}
		failed = failed || err != nil || results[i] == nil
	}
	if failed {
		return nil
	}
	made, err := ir.choice(call, ids[0], branches, results)
	if err != nil {
		ir.fail(call, inner(err))
		return nil
	}
	out := make([]Operand, len(branches[0].results))
	for i, o := range branches[0].results {
		out[i] = o.with(ir, made[i])
	}
	return out
}

// choice appends the operator of a choice whose branches have been made, and returns its results.
func (ir *Ir) choice(call string, cond graph.TensorID, branches [2]branch, results [2][]graph.TensorID) ([]graph.TensorID, error) {
	if n, m := len(results[0]), len(results[1]); n != m {
		return nil, fmt.Errorf("graph Then has %d results and graph Else %d, want as many", n, m)
	}
	if err := ir.sameStreams(branches[0].frame, branches[1].frame); err != nil {
		return nil, err
	}
	own := len(results[0])
	var all []stored
	for i, b := range branches {
		var err error
		if all, err = ir.gathered(b.frame); err != nil {
			return nil, err
		}
		for _, s := range all {
			results[i] = append(results[i], s.rows)
		}
		ir.b.SetParams(b.id, nil, results[i])
	}
	made, err := ir.node(&graph.If{Then: branches[0].id, Else: branches[1].id}, ir.scoped(call), []graph.TensorID{cond})
	if err != nil {
		return nil, err
	}
	for i, n := range branches[0].loads {
		ir.frame().loads[i] = saturated(ir.frame().loads[i], n, 1)
	}
	for i, s := range all {
		ir.keepRows(stored{output: s.output, rows: made[own+i], n: s.n})
	}
	return made, nil
}

// subgraph adds a graph; nodes go on going where they went.
func (ir *Ir) subgraph(name string) graph.GraphID {
	outside := ir.b.CurrentGraph()
	defer ir.b.SetGraph(outside)
	return ir.b.BeginGraph(name)
}

// branch is a graph that an operator runs, and what the function that made it returned.
type branch struct {
	*frame
	results []Operand
}

// nested calls build with nodes going to a graph of their own, and resolves what it returns: nil if that comes from a call that failed.
func (ir *Ir) nested(call string, build func() []Operand) (b branch, results []graph.TensorID, err error) {
	b.frame = newFrame(ir.subgraph(ir.scoped(call)), ir.frame())
	var of *Ir
	ir.inside(b.frame, func() {
		b.results = build()
		of, results, err = resolve(b.results)
	})
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
