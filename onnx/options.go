package onnx

import (
	"context"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Options says how a model is made static.
type Options struct {
	// Dims gives the sizes of dimensions by symbol, or by input and axis, as in
	// "image[2]", whether or not that one has a symbol. Sizes of all dimensions
	// of an input whose shape is not in the model give its shape.
	Dims map[string]int64
	// Batch is the size of every first dimension of an input that is symbolic
	// or unknown and not in Dims or Shapes; 0 means not given. It is an error
	// if no input has a first dimension of that size then.
	Batch int64
	// Shapes gives whole shapes by input name; they also bind the symbols
	// that stand in them.
	Shapes map[string][]int64
	// Values gives the values of graph inputs, which become constants and are
	// inputs no longer.
	Values map[string]*Tensor
	// Max gives the most elements of axes whose size data decides, by the name of the value
	// that a node makes or by the symbol that the model declares for the axis. Where the graph
	// says how many there can be, less may be given here; more at run time is an error.
	Max map[string]int64
	// FoldWeights makes weights constants of the executable.
	FoldWeights bool
	// Memory is the most bytes that values computed at compile time may take; 0
	// stands for what a machine like this one can spare.
	Memory int64
	// NewEvaluator returns what computes operators on known values for one lowering, in
	// Memory bytes (0: what ctx's budget has) and until ctx is done. Package onnx/compile takes
	// the CPU engine's where it is nil.
	NewEvaluator func(ctx context.Context, memory int64) Evaluator
}

// Lowered is a model in the operators of the portable executable.
type Lowered struct {
	// Executable holds the tensors and one graph, Main. It has no streams and
	// no programs yet.
	Executable *graph.Executable
	// Main is the graph that computes the outputs from inputs and weights.
	Main graph.GraphID
	// Inputs are the graph inputs that the host has to feed, in the model's
	// order; each has a tensor of its own that nothing in Main writes.
	Inputs []Port
	// Outputs are the graph outputs in the model's order. An output's tensor
	// may be that of an input, a weight, a constant or another output.
	Outputs []Port
	// Counts are I64 scalars, named like no output: how much of the axes of outputs that data
	// decides is filled; [Port.Counts] says which belongs to which.
	Counts []Port
	// Weights are the initialisers that stayed tensors of their own: persistent
	// tensors without data, in the order in which nodes use them.
	Weights []Weight
	// Warnings are remarks about the model that a user should see.
	Warnings []string
}

// Port is an input or an output.
type Port struct {
	Name   string
	Elem   ElemType
	Tensor graph.TensorID
	// Counts names, for each axis of an output, the port of [Lowered.Counts] that says how much
	// of it is filled, "" where it always is; nil if all are. What is behind is zero.
	Counts []string
}

// Weight is a persistent tensor with the value that the model gives it.
type Weight struct {
	Name   string // the initialiser's name, unique among weights
	Tensor graph.TensorID
	Data   []byte // as in [Tensor.Data]
}
