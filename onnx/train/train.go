// Package train turns an ONNX model of inference into a PopEF model that learns: the lowered graph, a loss,
// the graph of the gradients, and the steps of an optimizer, with the programs that PopART gives its training models. The
// learnt weights go back into the ONNX model, or into the PopEF model that package onnx/compile makes of it ([Extract]).
package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef/family"
)

// Options says what is learnt of a model, and how.
type Options struct {
	// Options are those of an inference model; FoldWeights and Variable are not used. Without Training, operators do what they do in
	// inference, unless the model has them in their training mode.
	onnx.Options

	Loss Loss
	// Optimizer is the rule of an update; nil stands for Adam with PopART's defaults and a learning rate of 0.001 that can be
	// changed.
	Optimizer optim.Optimizer
	// Members are the sizes of a family, of which a step has one; Rules are those between its dimensions, see [compile.Options]. Members learn the
	// same weights, with the same states and random numbers: a step gives the bits of the model of that size alone. Iterations, Accumulation
	// and Replicas are 1 then.
	Members []compile.Sizes
	Rules   map[string]compile.Rule
	// Iterations is how many batches, and so updates, a run of the main program computes; 0 means 1.
	Iterations int64
	// Accumulation is of how many micro-batches an update adds the gradients up; 0 means 1.
	Accumulation int64
	// SumGradients takes the sum over the micro-batches of an update, of all replicas, as its gradient; else it is the mean.
	SumGradients bool
	// Replicas is how many micro-batches of one update are computed one after the other in place of devices that would
	// compute them side by side; 0 means 1.
	Replicas int64
	// Clips bound the norms of gradients.
	Clips []optim.Clip
	// NonFinite says what becomes of a step whose loss or gradients are not finite; empty is an error of the run, or with
	// AutomaticScaling a step that is skipped. Of steps that are skipped, the output "skipped" is 1, else 0.
	NonFinite optim.NonFinite
	// AutomaticScaling changes the scaling of the loss by itself, with PopART's defaults.
	AutomaticScaling bool
	// Recompute says what of the forward pass the backward pass computes again.
	Recompute autodiff.Recompute
	// Freeze are patterns, of path.Match, of weights that stay as they are.
	Freeze []string
	// Init, if it is not nil, draws the initial values of trained weights in place of the model's, by what reads them first: as PyTorch
	// does for the weights of Conv, ConvTranspose, Gemm, MatMul (uniform within ±1/√n, n being the products in each sum), LSTM, GRU and RNN
	// (±1/√hidden_size) and tables of Gather (normal); 0 for biases and what is added, 1 for the scales of normalisations and
	// what is multiplied, 0.25 for slopes of PRelu. Others keep the model's value, see [Result.Kept].
	Init *uint64
	// Returns says which values of outputs a run returns, by name; those that are not named are returned for every micro-batch.
	Returns map[string]Return
	// DisablePasses names passes of package pass that are left out.
	DisablePasses []string
	// File is the ONNX model as it stands in a file, into which [Extract] puts the learnt weights; nil stands for what
	// [onnx.Encode] makes of the model.
	File []byte
	// Stage is called when a stage of the compilation has ended, Pass after each pass; nil if nobody wants to know. Neither may change the executable, which goes on
	// changing when they have returned. Of a model of several sizes they are not called.
	Stage func(Stage, *graph.Executable)
	Pass  func(graph.PassReport)
}

// Return says which values of an output a run of the main program returns.
type Return struct {
	Type export.Return
	N    int64 // of [export.EveryN]
	None bool  // the output is left out
}

// Result is a compiled training model.
type Result struct {
	export.Model
	Inputs   []compile.Port // those of the model, in its order, then the labels; of a family those of its first member
	Outputs  []compile.Port // the loss, then those of the model; likewise
	Family   *family.Family // what the main programs of a model of several sizes are; nil for one size
	Loss     string         // name of the loss
	Trained  []string       // names of the weights that are trained, in the order in which nodes use them
	Frozen   []string       // names of those that are not
	Kept     []string       // with Options.Init: weights that have the model's value all the same, since nothing says how to draw them
	Warnings []string
	Source   compile.Source
}

// Stage is how far the compilation of a training model is.
type Stage string

// The stages, in order.
const (
	Lowered           Stage = "lowered"            // the ONNX graph as operators of the portable executable
	LossAppended      Stage = "loss appended"      // the loss behind it, and what evaluates in place of it
	GradientsAppended Stage = "gradients appended" // the backward graph
	OptimizerAppended Stage = "optimizer appended" // the graphs that begin and end a batch; there are no programs yet
	Optimised         Stage = "optimised"          // streams and programs, after all passes
)

// Compile lowers m, appends the loss, the gradients and the optimizer, lays the programs out and optimises the whole. Weights stay
// tensors of their own: what the lowering of an inference model would compute of their values is computed in the graph, and learnt
// through.
//
// Errors of the lowering are those of [compile.Lower], of what blocks gradients [*autodiff.Blocked]; gradients that need
// more than an executable may hold wrap [autodiff.ErrTooBig], and what Options ask for and the model does not have wraps [ErrOptions].
func Compile(ctx context.Context, m *onnx.Model, o Options) (*Result, error) {
	if m == nil || m.Graph == nil {
		return nil, errors.New("train: the model has no graph")
	}
	if len(o.Members) > 1 {
		return compileFamily(ctx, m, o)
	}
	if len(o.Members) == 1 {
		o.Options, o.Members = o.Members[0].On(o.Options), nil
	}
	t, err := compileOne(ctx, m, o)
	if err != nil {
		return nil, err
	}
	return t.finish()
}

// compileOne compiles m for one size, up to the blobs of the file.
func compileOne(ctx context.Context, m *onnx.Model, o Options) (*trainer, error) {
	t := &trainer{Options: o, model: m, ctx: ctx, result: &Result{Source: compile.SourceOf(m)}}
	t.Iterations, t.Accumulation, t.Replicas = max(o.Iterations, 1), max(o.Accumulation, 1), max(o.Replicas, 1)
	if t.Optimizer == nil {
		adam := optim.NewAdam()
		adam.LearningRate = optim.Changeable(1e-3)
		t.Optimizer = adam
	}
	for _, part := range []struct {
		do   func() error
		done Stage
	}{
		{t.check, ""}, {t.lower, Lowered}, {t.patterns, ""}, {t.initial, ""}, {t.loss, ""}, {t.evaluation, LossAppended}, {t.backward, GradientsAppended},
		{t.update, OptimizerAppended}, {t.export, Optimised},
	} {
		if err := part.do(); err != nil {
			if m.Path != "" && !strings.HasPrefix(err.Error(), m.Path) { // errors of the lowering have it
				err = fmt.Errorf("%s: %w", m.Path, err)
			}
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if part.done != "" && o.Stage != nil {
			o.Stage(part.done, t.exe)
		}
	}
	return t, nil
}

// finish puts the file together.
func (t *trainer) finish() (*Result, error) {
	if err := t.blobs(); err != nil {
		return nil, err
	}
	return t.result, t.result.Encode()
}

// ErrOptions marks errors about [Options] that do not fit the model, or each other.
var ErrOptions = errors.New("it can't be trained so")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrOptions, fmt.Errorf(format, args...))
}

// trainer is the state of one [Compile].
type trainer struct {
	Options
	ctx    context.Context
	model  *onnx.Model
	result *Result

	low      *onnx.Lowered
	exe      *graph.Executable
	consumed map[string][]consumer
	// constants are the values of Constant nodes that are weights, left those of elements that differ which are not.
	constants map[string]bool
	left      []string
	trained   []int // places in low.Weights

	labels    graph.TensorID // None if the loss has none
	labelName string
	lossName  string
	lossAt    graph.TensorID
	skipped   graph.TensorID
	added     addedLoss
	backprop  *autodiff.Info
	layout    export.TrainingLayout
}

// lower lowers the model with trained weights as tensors of their own.
func (t *trainer) lower() error {
	t.consumed = consumers(t.model)
	t.findConstants()
	candidates := t.candidates()
	o := t.Options.Options
	o.FoldWeights = false
	if o.Training == nil {
		o.Training = &onnx.Training{}
	}
	o.Variable = func(name string) bool { return candidates[name] && !t.frozen(name) || t.statistics(name) }
	low, err := compile.LowerContext(t.ctx, t.model, o)
	if err != nil {
		return err
	}
	if len(low.Counts) > 0 {
		return refuse("output %q: data decides how many elements it has, want outputs of one size in a training model: leave it out of the model's outputs", countedOutput(low))
	}
	for _, w := range low.Weights {
		if w.Variable && w.Known {
			return refuse("weight %q: it is trained, and its value also decides how a node is compiled, which stays as it is: freeze it (--freeze %s)", w.Name, w.Name)
		}
	}
	t.low, t.exe = low, low.Executable
	t.exe.Producer = "popefgen compile --train"
	t.result.Warnings = low.Warnings
	for i, w := range low.Weights {
		if w.Variable && !t.statistics(w.Initializer) {
			t.trained = append(t.trained, i)
			t.result.Trained = append(t.result.Trained, w.Name)
		} else {
			t.result.Frozen = append(t.result.Frozen, w.Name)
		}
	}
	t.aboutConstants()
	if len(t.trained) == 0 {
		return t.nothingToTrain(candidates)
	}
	return nil
}

func countedOutput(low *onnx.Lowered) string {
	for _, o := range low.Outputs {
		if slices.ContainsFunc(o.Counts, func(c string) bool { return c != "" }) {
			return o.Name
		}
	}
	return low.Counts[0].Name
}

// backward appends the graph of the gradients.
func (t *trainer) backward() error {
	var required []graph.TensorID
	for _, i := range t.trained {
		required = append(required, t.low.Weights[i].Tensor)
	}
	if idle := t.withoutInfluence(); len(idle) > 0 {
		return refuse("%s: the loss %q does not depend on %s: %s", list(idle), t.lossName, them(idle), freezeHint(idle))
	}
	info, err := autodiff.Backward(t.exe, t.low.Main, autodiff.Options{
		Provided: []graph.TensorID{t.lossAt}, Required: required, Recompute: t.Recompute, Name: "backward",
	})
	var blocked *autodiff.Blocked
	switch {
	case errors.As(err, &blocked) && !slices.ContainsFunc(blocked.Obstacles, func(o autodiff.Obstacle) bool { return o.Operator != "" || o.Tensor == "" }):
		var idle []string
		for _, o := range blocked.Obstacles {
			idle = append(idle, o.Tensor)
		}
		return refuse("%s: the loss %q depends on %s through operators without a gradient alone: %s", list(idle), t.lossName, them(idle), freezeHint(idle))
	case errors.As(err, &blocked):
		return fmt.Errorf("%w\nhint: freeze the weights before these nodes (Freeze, --freeze PATTERN), or take the loss of an output that does not go through them", err)
	case errors.Is(err, autodiff.ErrTooBig):
		return fmt.Errorf("%w: take a smaller batch, and more micro-batches for an update (Accumulation, --accumulate)", err)
	case err != nil:
		return err
	}
	t.backprop = info
	return nil
}

// update appends what is done with the gradients: their sums over micro-batches, and the optimizer's steps.
func (t *trainer) update() error {
	weights := make([]optim.Weight, len(t.trained))
	for k, i := range t.trained {
		w := t.low.Weights[i]
		weights[k] = optim.Weight{Name: w.Name, Tensor: w.Tensor, Gradient: t.backprop.Outputs[k].Tensor}
	}
	how := optim.NewTraining()
	how.Optimizer, how.Weights, how.Loss = t.Optimizer, weights, t.lossAt
	how.LossGradient, how.Backward = t.backprop.Inputs[0].Tensor, t.backprop.Graph
	how.MicroBatches, how.Sum, how.Clips, how.NonFinite = t.Accumulation*t.Replicas, t.SumGradients, t.Clips, t.NonFinite
	if t.AutomaticScaling {
		scaling := optim.NewAutomaticScaling()
		how.Scaling = &scaling
	}
	done, err := optim.Train(t.exe, how)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	t.layout.Begin, t.layout.Update = done.Begin, []graph.GraphID{done.Update}
	t.layout.Backward = append([]graph.GraphID{done.Start, t.backprop.Graph}, t.low.After...)
	t.skipped = done.Skipped
	t.states(done)
	return nil
}

// divisor returns by what an update divides the sum of the gradients.
func (t *trainer) divisor() int64 {
	if t.SumGradients {
		return 1
	}
	return t.Accumulation * t.Replicas
}

// states gives what the optimizer keeps, and what the host feeds it, their values.
func (t *trainer) states(applied *optim.Trained) {
	values := make(map[graph.TensorID]*onnx.Weight, len(t.low.Weights))
	for i := range t.low.Weights {
		values[t.low.Weights[i].Tensor] = &t.low.Weights[i]
	}
	for _, s := range applied.States {
		typ := t.exe.Tensors[s.Tensor].Type
		value := fill(typ, s.Init)
		if s.Master != graph.None {
			value = widened(t.exe.Tensors[s.Master].Type.DType, values[s.Master].Data)
		}
		t.layout.State = append(t.layout.State, export.Weight{Port: export.Port{Name: s.Name, Tensor: s.Tensor}, Value: value})
	}
	for _, in := range applied.Inputs {
		t.layout.Optimizer = append(t.layout.Optimizer, export.Weight{Port: export.Port{Name: in.Name, Tensor: in.Tensor}, Value: fill(t.exe.Tensors[in.Tensor].Type, in.Value)})
	}
}

// fill returns the data of a tensor of F32 or F64 all of whose elements are v.
func fill(t graph.TensorType, v float32) []byte {
	data := make([]byte, 0, t.Bytes())
	if v == 0 {
		return data[:t.Bytes()]
	}
	for range t.Elements() {
		if t.DType == graph.F64 {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(float64(v)))
		} else {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	return data
}

// widened returns elements of half precision as F32.
func widened(t graph.DType, half []byte) []byte {
	data := make([]byte, 0, 2*len(half))
	for i := 0; i < len(half); i += 2 {
		bits := binary.LittleEndian.Uint16(half[i:])
		v := num.Float16(bits).Float32()
		if t == graph.BF16 {
			v = num.BFloat16(bits).Float32()
		}
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// export lays the programs out, and optimises.
func (t *trainer) export() error {
	l, r := &t.layout, t.result
	l.BatchesPerStep, l.Accumulation, l.Replicas = t.Iterations, t.Accumulation, t.Replicas
	l.Forward = []graph.GraphID{t.low.Main}
	for _, in := range t.low.Inputs {
		l.Inputs = append(l.Inputs, export.Port{Name: in.Name, Tensor: in.Tensor})
		r.Inputs = append(r.Inputs, compile.Port{Name: in.Name, Elem: in.Elem, Type: t.exe.Tensors[in.Tensor].Type})
	}
	if t.labels != graph.None {
		l.Inputs = append(l.Inputs, export.Port{Name: t.labelName, Tensor: t.labels})
		typ := t.exe.Tensors[t.labels].Type
		r.Inputs = append(r.Inputs, compile.Port{Name: t.labelName, Elem: onnx.ElemTypeOf(typ.DType), Type: typ})
	}
	l.Seed, l.RandomState = compile.Random(t.low)
	if err := t.outputs(); err != nil {
		return err
	}
	for _, w := range t.low.Weights {
		l.Weights = append(l.Weights, export.Weight{Port: export.Port{Name: w.Name, Tensor: w.Tensor}, Value: w.Data})
	}
	m, err := export.Training(t.exe, *l)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	r.Model = *m
	load := export.LoadProgram
	newEvaluator := t.NewEvaluator
	if newEvaluator == nil {
		newEvaluator = compile.NewEvaluator
	}
	evaluator := newEvaluator(t.ctx, t.Memory)
	for i := range r.Executable.Tensors {
		evaluator.Hold(int64(len(r.Executable.Tensors[i].Data)))
	}
	return pass.OptimizeContext(t.ctx, r.Executable, pass.OptimizeOptions{
		Disabled: t.DisablePasses, Held: t.backprop.Held, Load: &load, Evaluate: evaluator.Fold, After: t.Pass,
	})
}

// patterns refuses settings of the optimizer for weights that there are not.
func (t *trainer) patterns() error {
	for _, s := range optim.Settings(t.Optimizer) {
		for _, p := range s.Specific {
			if err := matches("optimizer: "+s.Name+" of weights", p.Pattern, t.result.Trained); err != nil {
				return err
			}
		}
	}
	return nil
}
