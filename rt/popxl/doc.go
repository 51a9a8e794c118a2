// Package popxl builds models in Go, as PopXL does in Python: an [Ir] gets
// streams, variables and constants, functions of package ops compute with
// tensors, and [Ir.Export] makes a PopEF model of it all, from which
// "popefgen generate" makes a typed package, and which rt/modelrt runs, or a [Session].
//
//	ir := popxl.New("affine")
//	x := popxl.NewInput[float32](ir, "x", 2, 3)
//	w := popxl.NewVariable(ir, "w", weights, 3, 4)
//	b := popxl.NewVariable(ir, "b", bias, 4)
//	popxl.NewOutput("y", ops.Add(ops.MatMul(x.Load(), w.Tensor()), b.Tensor()))
//	if err := ir.Err(); err != nil { … } // net.go:4: ops.MatMul: …
//	model, err := ir.Export(ctx)
//
// The type of a tensor's elements is part of its Go type: operands of
// different types do not compile. A wrong shape is an error with the file and
// line of the call; [Ir.Err] has all of them. What follows from a failed
// call is not reported again. Nothing panics, whatever is passed.
//
// An Ir has one graph, which a run computes once, or as often as
// [Ir.SetIterations] says. [Input.Load] is the tensor of a run, [Input.Next] the next of several, in loops, too.
// [Variable.Assign] changes a variable in a run. [Gradients] adds gradients,
// [Minimize] a step of an optimizer, [Loop] and [If] loops and choices.
package popxl
