package lower

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
)

// ControlOps returns the operators that run subgraphs, and Gradient, which looks at the nodes of its own.
func ControlOps() map[string]Definition {
	return map[string]Definition{
		"If":                                Takes("cond:bool").Since(1, branch, "then_branch:graph! else_branch:graph!"),
		"Loop":                              Takes("M:int64 cond:bool v_initial…:any").Since(1, loop, "body:graph!"),
		"Scan":                              Takes("").Since(8, scanBatches, "body:graph! directions:ints num_scan_inputs:int!").Since(9, scan, "body:graph! num_scan_inputs:int! scan_input_axes:ints scan_input_directions:ints scan_output_axes:ints scan_output_directions:ints"),
		"ai.onnx.preview.training.Gradient": Takes("Inputs…:any").Since(1, gradient, "xs:strings! y:string! zs:strings"),
	}
}

// branch lowers If: one branch in its place if the condition is known, else
// both to graphs of their own. Where one of the branches can't be lowered, such
// as one for another rate of samples than the sizes at hand are for, the other
// one takes the If's place, after a check of the condition at run time.
func branch(c *Call) []*Value {
	cond := c.In(0)
	if cond.Type.DType != graph.Bool || cond.Type.Elements() != 1 {
		c.Fail("operand 0 (cond) is %v, want one bool", cond.Type)
	}
	if cond.Known {
		i := 1
		if cond.Data[0] != 0 {
			i = 0
		}
		return c.Subgraph(branches[i]).Inline()
	}
	outputs := make([]int, len(branches))
	for i, name := range branches { // whatever the sizes are
		s := c.Subgraph(name)
		if len(s.Inputs) > 0 {
			c.Fail("%s has %d inputs, want 0", name, len(s.Inputs))
		}
		outputs[i] = len(s.Outputs)
	}
	if outputs[0] != outputs[1] {
		c.Fail("then_branch has %d outputs and else_branch %d, want as many", outputs[0], outputs[1])
	}
	var ids [2]graph.GraphID
	var out [2][]*Value
	lower := func(i int) {
		ids[i] = c.outline(branches[i], func() { out[i] = c.Subgraph(branches[i]).Inline() })
	}
	var in [2]error // what is in the way of each
	for i := range branches {
		in[i] = c.attempt(func(*attempt) bool { lower(i); return true })
	}
	switch {
	case in[0] == nil && in[1] == nil:
		return c.either(cond, ids, out)
	case in[0] == nil && impossible(in[1]):
		return c.only(cond, 0, ids[0], out[0], in[1])
	case in[1] == nil && impossible(in[0]):
		return c.only(cond, 1, ids[1], out[1], in[0])
	}
	// What lacks a value is to be given it. Who tries wants one reason; else all
	// that is in the way is reported.
	lacks := !impossible(in[0]) || !impossible(in[1])
	var first error
	for i := range branches {
		if in[i] == nil || lacks && impossible(in[i]) {
			continue
		}
		err := in[i]
		if c.l.attempts == 0 {
			err = caught(func() { lower(i) })
		}
		if first == nil {
			first = err
		}
	}
	panic(failure{first})
}

// caught returns the failure that ends f.
func caught(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = f.err
		}
	}()
	f()
	return errPoisoned // it was only reported
}

// impossible reports whether an error is in the way of a branch whatever values
// become known: one that only lacks a value is to be given it.
func impossible(err error) bool {
	var n *need
	return err != nil && !errors.As(err, &n) && !errors.Is(err, errPoisoned)
}

// branches are the attributes of If that hold its graphs: what runs if the
// condition is true, and what else.
var branches = [...]string{"then_branch", "else_branch"}

// only puts one of the branches, lowered as a graph of its own, in place of an
// If, after a check that the condition asks for it; why is in the way of the
// other one.
func (c *Call) only(cond *Value, i int, id graph.GraphID, out []*Value, why error) []*Value {
	kept, other := branches[i], branches[1-i]
	where := c.env.where(step{c.node, c.index})
	reason, _ := strings.CutPrefix(shortened(why), where+": "+other+": ")
	what := fmt.Sprintf("%s: its condition must be %v, since %s can't be compiled for the sizes given (%s)", where, i == 0, other, reason)
	remedy := "compile the model for other sizes"
	if ins := inputsOf(cond); len(ins) > 0 {
		remedy = fmt.Sprintf("the condition depends on input %s: feed what asks for %s, or compile the model for what you feed (--bind %s=VALUE, and the sizes that go with it)",
			printable.Quoted(ins), kept, ins[0])
	}
	c.l.warn("%s: a run with another condition is an error", what)
	c.check(cond, i == 0, what+": "+remedy)
	g, own := c.l.graph(), &c.l.exe.Graphs[id]
	g.Nodes = append(g.Nodes, own.Nodes...)
	if own.Nodes = nil; int(id) == len(c.l.exe.Graphs)-1 {
		c.l.exe.Graphs = c.l.exe.Graphs[:id]
	}
	return out
}

// check makes the program end with a message unless cond is what it has to be.
func (c *Call) check(cond *Value, want bool, message string) {
	c.l.graph().Nodes = append(c.l.graph().Nodes, graph.Node{Op: &graph.Assert{Want: want, Message: message}, Name: c.name(), Inputs: []graph.TensorID{c.l.materialise(cond)}})
}

// shortened returns an error on one line of bounded length.
func shortened(err error) string {
	const most = 600 // bytes
	s := strings.ToValidUTF8(strings.Join(strings.Fields(err.Error()), " "), "")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + " …"
	}
	return s
}

// either emits an If that runs one of two graphs.
func (c *Call) either(cond *Value, ids [2]graph.GraphID, out [2][]*Value) []*Value {
	then, otherwise := out[0], out[1]
	kept := [2][]*Value{slices.Clone(then), slices.Clone(otherwise)}
	axes := make([][]int64, len(then)) // whose sizes the branches decide
	var counts [2][]*Value
	for i, v := range then {
		u := otherwise[i]
		if v.Type.DType != u.Type.DType || v.Rank() != u.Rank() {
			c.Want(cond, "0 (cond)") // or else the result's type is not known
		}
		for a := range v.Rank() {
			if v.Count(a) == nil && u.Count(a) == nil && v.Type.Shape[a] == u.Type.Shape[a] {
				continue
			}
			axes[i] = append(axes[i], a)
			bound := c.Bound(i, a, max(v.Type.Shape[a], u.Type.Shape[a]))
			for b := range out {
				c.inGraph(ids[b], func() {
					w := c.Clean(out[b][i])
					n := w.Count(a)
					if n == nil {
						n = Int(w.Type.Shape[a])
					}
					c.AtMost(i, n, bound)
					counts[b] = append(counts[b], n)
					out[b][i] = c.take(w, a, bound)
				})
			}
		}
	}
	for b := range out {
		out[b] = append(plains(out[b]), counts[b]...)
	}
	for i, id := range ids {
		c.results(id, out[i])
	}
	all := c.emitGraphs(&graph.If{Then: ids[0], Else: ids[1]}, slices.Concat(out[0], out[1]), cond)
	all, sizes := all[:len(then)], all[len(then):]
	for i := range all {
		for _, a := range axes[i] {
			all[i] = c.Counting(all[i], a, sizes[0].Within(0, all[i].Type.Shape[a]), false)
			sizes = sizes[1:]
		}
	}
	for i, v := range kept[0] {
		if u := kept[1][i]; v == u || v.Known && u.Known && v.Type.Equal(u.Type) && bytes.Equal(v.Data, u.Data) {
			all[i] = v
		}
	}
	return all
}
