package graph

import (
	"errors"
	"fmt"
	"slices"
)

// GraphOp is an operator that runs graphs of its executable. Its Infer knows
// nothing of them and refuses; [Executable.Infer] is the way to ask.
type GraphOp interface {
	Op
	// InferGraphs is Infer for an operator whose graphs look as sub says.
	InferGraphs(in []TensorType, sub func(GraphID) (Signature, error)) ([]TensorType, error)
}

// Signature is what a graph takes and gives.
type Signature struct{ Params, Results []TensorType }

// If runs one of two graphs. Operand: cond, one Bool. Results: those of the
// graph Then if cond is true, else those of Else. Neither graph has
// parameters, and both give results of the same types.
type If struct{ Then, Else GraphID }

// Loop runs a graph again and again. Operands: count (I64) or left out, cond
// (Bool) or left out, both of one element, then the first values of what the
// loop carries from one iteration to the next.
//
// It runs Count times, or if that is negative as often as operand count says,
// at most and not at all if operand cond is false. The body's parameters are
// the number of the iteration, an I64 scalar, and the carried values; its
// results are, if While is set, one Bool that says whether to go on, then the
// carried values for the next iteration, then any number of values to collect.
// Results: the carried values after the last iteration, then per collected
// value one tensor of those of all iterations, along a new first axis; for that
// the number of iterations has to be Count exactly.
type Loop struct {
	Body  GraphID
	Count int64
	While bool
}

var errGraphOp = errors.New("its results depend on the graphs that it runs: ask the executable for them")

// Infer infers the results of op, an operator of e or one that is to become
// one, as [Op.Infer] does.
func (e *Executable) Infer(op Op, in []TensorType) ([]TensorType, error) {
	g, ok := op.(GraphOp)
	if !ok {
		return op.Infer(in)
	}
	return g.InferGraphs(in, e.signature)
}

// signature returns the types of a graph's parameters and results.
func (e *Executable) signature(id GraphID) (Signature, error) {
	if id < 0 || int(id) >= len(e.Graphs) {
		return Signature{}, fmt.Errorf("graph %d does not exist, want 0 to %d", id, len(e.Graphs)-1)
	}
	types := func(ids []TensorID) ([]TensorType, error) {
		out := make([]TensorType, len(ids))
		for i, t := range ids {
			if t < 0 || int(t) >= len(e.Tensors) {
				return nil, fmt.Errorf("graph %d %q: tensor %d does not exist, want 0 to %d", id, e.Graphs[id].Name, t, len(e.Tensors)-1)
			}
			out[i] = e.Tensors[t].Type
		}
		return out, nil
	}
	params, err := types(e.Graphs[id].Params)
	if err != nil {
		return Signature{}, err
	}
	got, err := types(e.Graphs[id].Results)
	return Signature{params, got}, err
}

// Kind returns "If".
func (*If) Kind() string { return "If" }

// Infer implements [Op]: it gives an error.
func (*If) Infer([]TensorType) ([]TensorType, error) { return nil, errGraphOp }

// InferGraphs implements [GraphOp].
func (o *If) InferGraphs(in []TensorType, sub func(GraphID) (Signature, error)) ([]TensorType, error) {
	in, err := operands(in, "cond")
	if err != nil {
		return nil, err
	}
	if err := firstError(bools.want("cond", in[0]), wantOne("cond", in[0])); err != nil {
		return nil, err
	}
	then, err := sub(o.Then)
	if err != nil {
		return nil, fmt.Errorf("graph Then: %w", err)
	}
	otherwise, err := sub(o.Else)
	if err != nil {
		return nil, fmt.Errorf("graph Else: %w", err)
	}
	if n := len(then.Params) + len(otherwise.Params); n > 0 {
		return nil, fmt.Errorf("graphs Then and Else have %d parameters, want none", n)
	}
	if len(then.Results) != len(otherwise.Results) {
		return nil, fmt.Errorf("graph Then has %d results and graph Else %d, want as many", len(then.Results), len(otherwise.Results))
	}
	for i, t := range then.Results {
		if u := otherwise.Results[i]; !t.Equal(u) {
			return nil, fmt.Errorf("result %d of graph Then is %v and that of graph Else %v, want the same type", i, t, u)
		}
	}
	return results(then.Results...)
}

// Kind returns "Loop".
func (*Loop) Kind() string { return "Loop" }

// Infer implements [Op]: it gives an error.
func (*Loop) Infer([]TensorType) ([]TensorType, error) { return nil, errGraphOp }

// InferGraphs implements [GraphOp].
func (o *Loop) InferGraphs(in []TensorType, sub func(GraphID) (Signature, error)) ([]TensorType, error) {
	if o.Count >= MaxTensorBytes {
		return nil, fmt.Errorf("attribute Count is %d, want less than 2^40", o.Count)
	}
	if len(in) < 2 {
		return nil, fmt.Errorf("%d operands, want at least 2 (count?, cond?)", len(in))
	}
	head, err := operands(in[:2], "count?", "cond?")
	if err != nil {
		return nil, err
	}
	count, cond := head[0], head[1]
	if present(count) && (count.DType != I64 || count.Elements() != 1) {
		return nil, fmt.Errorf("count is %v, want one element of type i64", count)
	}
	if present(cond) && (cond.DType != Bool || cond.Elements() != 1) {
		return nil, fmt.Errorf("cond is %v, want one element of type bool", cond)
	}
	switch {
	case o.Count >= 0 && present(count):
		return nil, fmt.Errorf("attribute Count is %d and operand count is given too, want one of them", o.Count)
	case o.Count < 0 && !present(count) && !o.While:
		return nil, errors.New("nothing ends the loop: no Count, no count and no While")
	}
	carried := in[2:]
	body, err := sub(o.Body)
	if err != nil {
		return nil, fmt.Errorf("graph Body: %w", err)
	}
	if len(body.Params) != 1+len(carried) {
		return nil, fmt.Errorf("graph Body has %d parameters, want %d: the iteration and what is carried", len(body.Params), 1+len(carried))
	}
	if t := body.Params[0]; t.DType != I64 || len(t.Shape) != 0 {
		return nil, fmt.Errorf("parameter 0 of graph Body is %v, want i64[]", t)
	}
	got := body.Results
	if o.While {
		if len(got) == 0 || got[0].DType != Bool || got[0].Elements() != 1 {
			return nil, errors.New("graph Body's first result is not one bool, as While wants it")
		}
		got = got[1:]
	}
	if len(got) < len(carried) {
		return nil, fmt.Errorf("graph Body gives %d carried values, want %d", len(got), len(carried))
	}
	out := make([]TensorType, 0, len(got))
	for i, t := range carried {
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("operand %d: %w", 2+i, err)
		}
		if p, r := body.Params[1+i], got[i]; !t.Equal(p) || !t.Equal(r) {
			return nil, fmt.Errorf("carried value %d is %v as operand, %v as parameter and %v as result of graph Body, want the same type", i, t, p, r)
		}
		out = append(out, t)
	}
	collected := got[len(carried):]
	if len(collected) > 0 && (o.Count < 0 || o.While || present(cond)) {
		return nil, errors.New("graph Body gives values to collect, but how many iterations there are is not known")
	}
	for _, t := range collected {
		out = append(out, TensorType{t.DType, slices.Concat([]int64{o.Count}, t.Shape)})
	}
	return results(out...)
}
