// Package build builds ONNX models by calls, as PopART's Builder does: one method for each operator of package onnx/compile's table and each of its
// forms, with ONNX's operands in order, ONNX's attributes as options with Go types, and results that are operands of further calls.
//
//	b := build.New(build.Opset(17))
//	x := b.Input("x", onnx.Float, 1, 3, 32, 32)
//	w := b.Initializer("w", build.TensorOf(weights, 16, 3, 3, 3))
//	y := b.Relu(b.Conv(x, w, nil, build.Pads(1, 1, 1, 1)))
//	b.Output("y", y)
//	model, err := b.Model(ctx)
//
// The model is like one that was read from a file: [Builder.WriteFile] writes it, package onnx/compile compiles it, onnx/popart's sessions take it.
//
// # Operators and versions
//
// Methods without a version in their names are an operator's newest form. One with a version, as in [Builder.SqueezeV1], is the form that began with that version of the operator set, where operands,
// results or the meaning were others. The Builder writes models of one operator set of ONNX's own, the newest or that of [Opset]: a form, attribute or operand that this set does not have is a mistake
// that says which to take. Operators of other domains are methods of [Graphcore], [Preview] and [PreviewTraining]; those of no table, [Builder.Custom].
//
// A nil operand is one that is left out. A result that ONNX does not demand is written when something uses it: y, _ := b.MaxPool(x, …) asks for no indices.
//
// # Mistakes
//
// No call panics. What is wrong is kept with the file and line of the call, and [Builder.Err], [Builder.Model] and what writes models return all of it, each an [*Error]. Results of a wrong call may be passed on: they cause no
// further mistakes. Whether sizes and element types fit, Model asks the lowering that compiles models, and its findings name the lines of the calls too.
package build
