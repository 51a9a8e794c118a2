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
	// Variable reports, by its name, whether a weight changes while the executable is in use, as training
	// changes it: nothing that depends on it is computed now. Where its value has to be known, the
	// model's is taken, and no tensor made of it for that. It is asked about values of Constant nodes, too, which are
	// weights if it says so, and constants otherwise. nil stands for none.
	Variable func(weight string) bool
	// Memory is the most bytes that values computed at compile time may take; 0
	// stands for what a machine like this one can spare.
	Memory int64
	// Seed is what the seed of random numbers is where the model is loaded, unless the caller gives another
	// one ([Lowered.Random]).
	Seed uint64
	// Training says how the model is lowered if it is to be trained; nil for inference.
	Training *Training
	// NewEvaluator returns what computes operators on known values for one lowering, in
	// Memory bytes (0: what ctx's budget has) and until ctx is done. Package onnx/compile takes
	// the CPU engine's where it is nil.
	NewEvaluator func(ctx context.Context, memory int64) Evaluator
}

// Training says what operators do in training that do something else in inference, and that the model has as they are in
// inference. An operator that the model has in its training mode, by an attribute or operand, is lowered as it stands there with or without.
type Training struct {
	// BatchStatistics lets BatchNormalization take mean and variance of the batch, and count them into the running ones, which
	// are weights ([Lowered.Running]). Otherwise these stay as they are.
	BatchStatistics bool
	// Dropout lets Dropout drop that does not say whether it is in training mode: those of operator sets before 12, and
	// those that leave the operand out.
	Dropout bool
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
	// Random says what the random numbers of Main follow from; nil if it draws none.
	Random *Random
	// Running are those of Weights that After changes, running means and variances. No gradient flows to them.
	Running []graph.TensorID
	// After are graphs to call after Main, and after whatever computes any part of it again, as backward graphs
	// do: they count the run in Random.Step, and write Running from what Main has computed. There is one at most.
	After []graph.GraphID
	// Evaluate is, with Options.Training, what computes the outputs without training modes: Dropout keeps all, and
	// BatchNormalization takes the running statistics. nil if Main does so.
	Evaluate *Evaluation
	// Warnings are remarks about the model that a user should see.
	Warnings []string
}

// Evaluation is a graph that evaluates a model that is trained.
type Evaluation struct {
	Graph   graph.GraphID // reads the inputs and weights that Main does
	Outputs []Port        // those of the model, as [Lowered.Outputs], with tensors of their own
}

// Random is what random numbers follow from, together with the operator that draws them and the place of an element: the
// same seed and step give the same numbers on every machine and number of threads.
// In terms of [github.com/popefgen/popefgen/ipu/export]'s layouts, Seed with Value is the random seed, and Step, which
// starts as 0, the random state.
type Random struct {
	Seed  graph.TensorID // persistent, U32 [2]; [graph.None] if every operator has a seed of its own
	Value []byte         // of Seed: Options.Seed
	Step  graph.TensorID // persistent I64 scalar: how often the graphs of Lowered.After were called
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
	Name   string // the name in the model, unique among weights
	Tensor graph.TensorID
	Data   []byte // as in [Tensor.Data]
	// Initializer is its name in the model, that of an initialiser or of a Constant node's value, which another one of a branch may have too.
	Initializer string
	Variable    bool // [Options.Variable] says so
	Known       bool // it is variable, and somewhere its value had to be known
}
