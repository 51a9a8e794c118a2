// Package compile turns an ONNX model into a PopEF model: the lowered graph
// becomes a portable executable with streams and programs, laid out as PopART
// exports its models, and the weights become tensor data of load-time anchors.
// A model of several sizes becomes a family: a main program for each size, over
// one set of weights. Several models become one file in which each is a main program ([Fuse]).
package compile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// The programs of a compiled model, with PopART's indices and names.
const (
	LoadProgram = 0 // "WeightsFromHost": copies every weight
	MainProgram = 5 // "Program": copies the inputs, computes, copies the outputs
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

	encoded []byte
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
type Weight struct {
	Name string
	Info popef.TensorInfo
	Data []byte
}

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
func finish(ctx context.Context, m *onnx.Model, low *onnx.Lowered, o Options) (*Result, error) {
	r := &Result{Executable: low.Executable, Inputs: ports(low, low.Inputs), Outputs: ports(low, low.Outputs), Counts: ports(low, low.Counts), Warnings: low.Warnings, Source: SourceOf(m), Size: m.Size}
	iterations := max(o.Iterations, 1)
	if err := r.layOut(low, iterations); err != nil {
		return nil, err
	}
	load := LoadProgram
	if o.NewEvaluator == nil {
		o.NewEvaluator = NewEvaluator
	}
	evaluator := o.NewEvaluator(ctx, o.Memory)
	for i := range r.Executable.Tensors {
		evaluator.Hold(int64(len(r.Executable.Tensors[i].Data)))
	}
	err := pass.OptimizeContext(ctx, r.Executable, pass.OptimizeOptions{Disabled: o.DisablePasses, Load: &load, Evaluate: evaluator.Fold})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// encode encodes the executable and gives it its name.
func (r *Result) encode() error {
	var b bytes.Buffer
	if err := r.Executable.Encode(&b); err != nil {
		return fmt.Errorf("encoding executable %q: %w", r.Executable.Name, err)
	}
	r.encoded = b.Bytes()
	// PopART names an executable by a hash, in decimal.
	sum := sha256.Sum256(r.encoded)
	r.Metadata.Executable = strconv.FormatUint(binary.BigEndian.Uint64(sum[:]), 10)
	return nil
}

func ports(low *onnx.Lowered, from []onnx.Port) []Port {
	to := make([]Port, len(from))
	for i, p := range from {
		to[i] = Port{p.Name, p.Elem, low.Executable.Tensors[p.Tensor].Type, p.Counts}
	}
	return to
}

// layOut adds streams, programs, anchors and weights to the lowered graph.
func (r *Result) layOut(low *onnx.Lowered, iterations int64) error {
	exe := r.Executable
	load := graph.Program{Index: LoadProgram, Name: "WeightsFromHost"}
	main := graph.Program{Index: MainProgram, Name: "Program"}
	r.Metadata = popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IsInference: true, DeviceIterations: uint32(iterations),
		ProgramFlow: popef.ProgramFlow{Load: []uint32{LoadProgram}, Main: []uint32{MainProgram}},
		Programs:    []popef.ProgramInfo{{Index: LoadProgram, Name: load.Name}, {Index: MainProgram, Name: main.Name}},
	}
	if iterations > 1<<31 {
		return fmt.Errorf("%d device iterations: want at most %d", iterations, int64(1)<<31)
	}
	var steps []graph.Step
	anchor := func(name, prefix string, dir graph.Direction, t graph.TensorID, program uint32) (graph.Step, error) {
		typ := exe.Tensors[t].Type
		info, err := Info(typ)
		if err != nil {
			return graph.Step{}, fmt.Errorf("%q: %w", name, err)
		}
		kind, step := popef.Input, graph.CopyIn
		if dir == graph.DeviceToHost {
			kind, step = popef.Output, graph.CopyOut
		}
		r.Metadata.Anchors = append(r.Metadata.Anchors, popef.Anchor{
			Name: name, Handle: prefix + name, Programs: []uint32{program}, Info: info, Type: kind,
		})
		id := graph.StreamID(len(exe.Streams))
		exe.Streams = append(exe.Streams, graph.Stream{Handle: prefix + name, Direction: dir, Type: typ})
		return graph.Step{Kind: step, Stream: id, Tensor: t}, nil
	}
	for _, in := range low.Inputs {
		s, err := anchor(in.Name, "h2d_", graph.HostToDevice, in.Tensor, MainProgram)
		if err != nil {
			return fmt.Errorf("input %w", err)
		}
		steps = append(steps, s)
	}
	steps = append(steps, graph.Step{Kind: graph.Call, Graph: low.Main})
	for _, out := range runOutputs(low) {
		s, err := anchor(out.Name, "anchor_d2h_", graph.DeviceToHost, out.Tensor, MainProgram)
		if err != nil {
			return fmt.Errorf("output %w", err)
		}
		steps = append(steps, s)
	}
	main.Steps = steps
	if iterations > 1 {
		main.Steps = []graph.Step{{Kind: graph.Repeat, Count: iterations, Body: steps}}
	}
	for _, w := range low.Weights {
		s, err := anchor(w.Name, "h2d_", graph.HostToDevice, w.Tensor, LoadProgram)
		if err != nil {
			return fmt.Errorf("weight %w", err)
		}
		load.Steps = append(load.Steps, s)
		r.Weights = append(r.Weights, Weight{w.Name, r.Metadata.Anchors[len(r.Metadata.Anchors)-1].Info, w.Data})
	}
	exe.Programs = []graph.Program{load, main}
	return nil
}

var dataTypes = map[graph.DType]popef.DataType{
	graph.Bool: popef.Bool, graph.I8: popef.S8, graph.U8: popef.U8, graph.I16: popef.S16, graph.U16: popef.U16,
	graph.I32: popef.S32, graph.U32: popef.U32, graph.I64: popef.S64, graph.U64: popef.U64,
	graph.F16: popef.F16, graph.F32: popef.F32, graph.F64: popef.F64,
	graph.F8E4M3: popef.F8143, graph.F8E5M2: popef.F8152,
	// PopEF knows neither bfloat16 nor types of less than a byte.
	graph.BF16: popef.U16, graph.I4: popef.S8, graph.I2: popef.S8, graph.U4: popef.U8, graph.U2: popef.U8,
}

// DataType returns the PopEF type in which elements of type t cross the
// boundary: bfloat16 as the U16 of its bits, int4 and int2 as S8, uint4 and
// uint2 as U8, one element a byte, all others as themselves.
func DataType(t graph.DType) (popef.DataType, bool) {
	d, ok := dataTypes[t]
	return d, ok
}

// Info returns the PopEF form of a tensor's type and shape; see [DataType].
func Info(t graph.TensorType) (popef.TensorInfo, error) {
	d, ok := DataType(t.DType)
	if !ok {
		return popef.TensorInfo{}, fmt.Errorf("element type %s has no PopEF form", t.DType)
	}
	return popef.TensorInfo{DataType: d, Shape: t.Shape}, nil
}
