// Package compile turns an ONNX model into a PopEF model: the lowered graph
// becomes a portable executable with streams and programs, laid out as PopART
// exports its models, and the weights become tensor data of load-time anchors.
// A model of several sizes becomes a family: a main program for each size, over
// one set of weights. Several models become one file in which each is a main program ([Fuse]).
package compile

import (
	"context"
	"errors"
	"slices"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// The programs of a compiled model, with PopART's indices and names.
const (
	LoadProgram = export.LoadProgram // "WeightsFromHost": copies every weight
	MainProgram = export.MainProgram // "Program": copies the inputs, computes, copies the outputs
)

// Options says how a model is compiled.
type Options struct {
	onnx.Options
	// Iterations is how often one run of the main program computes, each time
	// with inputs and outputs of its own; 0 means 1.
	Iterations int64
	// DisablePasses names passes of package graph that are left out.
	DisablePasses []string

	// JoinInputs, if it is more than 0, makes one stream of the run inputs that have at most that many
	// bytes: their data lies side by side in each transfer. [Fuse] joins none.
	JoinInputs int64

	// Members are the sizes of a family: the model is compiled once for each, over
	// one set of weights. nil is a model of one size, that of Options.Options.
	Members []Sizes
	// Rules says, by the name of a dimension or its place, from which other dimension of the family its size always follows: it is
	// no dimension of its own then. The sizes of all members have to say so too.
	Rules map[string]Rule
	// Pads declares, by the name of an open dimension of the family, numbers with which inputs may be
	// filled up along it: what was there before is computed as without them. All inputs of that dimension, and
	// of those that follow from it, have to be named.
	Pads map[string][]family.Pad
	// Progress is called whenever a member of a family is compiled, one call at a time; nil
	// if nobody wants to know.
	Progress func(Progress)
}

// Result is a compiled model.
type Result struct {
	Executable *graph.Executable
	Metadata   popef.Metadata
	Inputs     []Port // in the model's order
	Outputs    []Port // in the model's order
	// Counts are run outputs besides: how much is filled of axes of outputs whose sizes data
	// decides, each an int64 without dimensions.
	Counts   []Port
	Weights  []Weight // in the model's order
	Warnings []string
	Source   Source
	Size     int64 // bytes of the ONNX model, external data included; 0 if it was not read from any
	// Family says what the main programs of a model of several sizes are, and of which outputs data
	// decides the sizes; nil for one size where it decides none. Inputs and Outputs are those of its first member then.
	Family *family.Family
	// Joined says which of the metadata's anchors are joined in streams of the executable
	// ([Options.JoinInputs]); nil if each has its own. What is written to a file is
	// [popef.JoinInputs] of both.
	Joined []popef.JoinedInput
	// Mixed says, by open dimension of the family, why rows along it may depend on each other, or on
	// how many there are: what is missing in the proof that Family.Dims says there is for the others.
	Mixed map[string]error
	// Branches are the models of which a fused one was made ([Fuse]), else nil. Inputs and Outputs are those of
	// all of them then, in order, with the names that they have in the file.
	Branches []family.Branch

	encoded export.Model // of which the metadata and what it carries are those above
}

// Port is an input or an output in ONNX's terms.
type Port struct {
	Name string
	Elem onnx.ElemType
	Type graph.TensorType
	// Counts names, for each axis of an output, the one of [Result.Counts] that says how much of it
	// is filled, "" where it always is; nil if no axis has a count.
	Counts []string
}

// Weight is a load-time anchor's data.
type Weight = export.Data

// Compile lowers and optimises m. The errors are those of [Lower].
func Compile(m *onnx.Model, o Options) (*Result, error) {
	return CompileContext(context.Background(), m, o)
}

// CompileContext is [Compile] until ctx is done, whose error it returns then.
func CompileContext(ctx context.Context, m *onnx.Model, o Options) (*Result, error) {
	var r *Result
	var err error
	if o.Members == nil {
		if len(o.Pads) > 0 {
			return nil, &FamilyError{errors.New("padding is declared for a model of one size, want several sizes of the dimension")}
		}
		r, err = compileOne(ctx, m, o)
	} else {
		r, err = compileFamily(ctx, m, o)
	}
	if err == nil && r.Family != nil {
		err = checkNames(r.Family)
	}
	if err != nil {
		return nil, err
	}
	if o.JoinInputs > 0 {
		r.joinInputs(o.JoinInputs)
	}
	return r, r.encode()
}

// compileOne compiles m for one size, up to its encoding.
func compileOne(ctx context.Context, m *onnx.Model, o Options) (*Result, error) {
	low, err := LowerContext(ctx, m, o.Options)
	if err != nil {
		return nil, err
	}
	r, err := finish(ctx, m, low, o)
	if err != nil {
		return nil, err
	}
	r.Family = countedFamily(r)
	return r, nil
}

// finish adds programs to a lowered model and optimises it.
func finish(ctx context.Context, of *onnx.Model, low *onnx.Lowered, o Options) (*Result, error) {
	r := &Result{Executable: low.Executable, Inputs: ports(low, low.Inputs), Outputs: ports(low, low.Outputs), Counts: ports(low, low.Counts), Warnings: low.Warnings, Source: SourceOf(of), Size: of.Size}
	iterations := max(o.Iterations, 1)
	m, err := export.Inference(r.Executable, layout(low, iterations))
	if err != nil {
		return nil, err
	}
	r.Metadata, r.Weights = m.Metadata, m.Data
	load := LoadProgram
	if o.NewEvaluator == nil {
		o.NewEvaluator = NewEvaluator
	}
	evaluator := o.NewEvaluator(ctx, o.Memory)
	for i := range r.Executable.Tensors {
		evaluator.Hold(int64(len(r.Executable.Tensors[i].Data)))
	}
	err = pass.OptimizeContext(ctx, r.Executable, pass.OptimizeOptions{Disabled: o.DisablePasses, Load: &load, Evaluate: evaluator.Fold})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// encode encodes the executable and gives it its name.
func (r *Result) encode() error {
	r.encoded = export.Model{Executable: r.Executable}
	if err := r.encoded.Encode(); err != nil {
		return err
	}
	r.Metadata.Executable = r.encoded.Metadata.Executable
	return nil
}

// RecordPackage makes the executable say by which definitions of operators it was compiled: see [export.Model.RecordPackage].
func (r *Result) RecordPackage() error {
	r.Executable.Package = graph.PackageOf(r.Executable)
	return r.encode()
}

func ports(low *onnx.Lowered, from []onnx.Port) []Port {
	to := make([]Port, len(from))
	for i, p := range from {
		to[i] = Port{p.Name, p.Elem, low.Executable.Tensors[p.Tensor].Type, p.Counts}
	}
	return to
}

// layout says what the programs of a lowered model move.
func layout(low *onnx.Lowered, iterations int64) export.InferenceLayout {
	l := export.InferenceLayout{Graph: low.Main, Iterations: iterations, After: low.After}
	for _, in := range low.Inputs {
		l.Inputs = append(l.Inputs, export.Port{Name: in.Name, Tensor: in.Tensor})
	}
	for _, out := range runOutputs(low) {
		l.Outputs = append(l.Outputs, export.Port{Name: out.Name, Tensor: out.Tensor})
	}
	for _, w := range low.Weights {
		l.Weights = append(l.Weights, export.Weight{Port: export.Port{Name: w.Name, Tensor: w.Tensor}, Value: w.Data})
	}
	l.Seed, l.RandomState = Random(low)
	return l
}

// draws reports whether runs draw random numbers.
func (r *Result) draws() bool {
	return slices.ContainsFunc(r.Metadata.Programs, func(p popef.ProgramInfo) bool { return p.Index == export.RandomProgram })
}

// Random returns the random seed of a lowered model and the state of its random numbers, as [export.InferenceLayout] and
// [export.TrainingLayout] take them: nil where it needs none. What follows from the state is right as long as each call of the
// graph Main is followed by one of [onnx.Lowered.After], after the backward graphs.
func Random(low *onnx.Lowered) (seed, state *export.Weight) {
	r := low.Random
	if r == nil {
		return nil, nil
	}
	if r.Seed != graph.None {
		seed = &export.Weight{Port: export.Port{Name: "seed", Tensor: r.Seed}, Value: r.Value}
	}
	return seed, &export.Weight{Port: export.Port{Name: "state", Tensor: r.Step}, Value: make([]byte, 8)}
}
