package onnx

import (
	"bytes"

	"github.com/popefgen/popefgen/ipu/graph"
)

// controlOps run subgraphs.
var controlOps = map[string]definition{
	"If":   takes("cond:bool").since(1, branch, "else_branch:graph! then_branch:graph!"),
	"Loop": takes("M:int64 cond:bool v_initial…:any").since(1, loop, "body:graph!"),
	"Scan": takes("").since(8, scanBatches, "body:graph! directions:ints num_scan_inputs:int!").since(9, scan, "body:graph! num_scan_inputs:int! scan_input_axes:ints scan_input_directions:ints scan_output_axes:ints scan_output_directions:ints"),
}

// branch lowers If: one branch in its place if the condition is known, else
// both to graphs of their own.
func branch(c *call) []*value {
	cond := c.in(0)
	if cond.typ.DType != graph.Bool || cond.typ.Elements() != 1 {
		c.fail("operand 0 (cond) is %v, want one bool", cond.typ)
	}
	names := [...]string{"then_branch", "else_branch"}
	if cond.known {
		name := names[1]
		if cond.data[0] != 0 {
			name = names[0]
		}
		return c.subgraph(name).inline()
	}
	var ids [2]graph.GraphID
	var out [2][]*value
	for i, name := range names {
		ids[i] = c.outline(name, func() { out[i] = c.subgraph(name).inline() })
	}
	then, otherwise := out[0], out[1]
	if len(then) != len(otherwise) {
		c.fail("then_branch has %d outputs and else_branch %d, want as many", len(then), len(otherwise))
	}
	for i, v := range then {
		if u := otherwise[i]; !v.typ.Equal(u.typ) {
			c.want(cond, "0 (cond)") // or else the result's type is not known
		}
	}
	for i, id := range ids {
		c.results(id, out[i])
	}
	all := c.emitGraphs(&graph.If{Then: ids[0], Else: ids[1]}, append(append([]*value(nil), then...), otherwise...), cond)
	for i, v := range then {
		if u := otherwise[i]; v == u || v.known && u.known && bytes.Equal(v.data, u.data) {
			all[i] = v
		}
	}
	return all
}
