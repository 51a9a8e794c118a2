package export

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
)

// The programs of a training model besides [LoadProgram] and [MainProgram], with PopART's indices. A
// model has those that it needs.
const (
	OptimizerProgram  = 1 // "OptimizerFromHost": copies the values of the optimizer in
	SeedProgram       = 2 // "RandomSeedFromHost"
	SaveSeedProgram   = 3 // "RandomSeedToHost"
	RandomProgram     = 4 // "RngStateFromHost"
	SaveRandomProgram = 6 // "RngStateToHost"
	SaveProgram       = 7 // "WeightsToHost": copies weights and state out
	CycleCountProgram = 8 // "CycleCountTensorToHost"
	EvaluateProgram   = 9 // "Evaluate", the first of PopART's custom programs: the forward graphs alone
)

// PopART's names of the anchors of random numbers.
const (
	seedName  = "randomSeed___fromHost"
	stateName = "rngStateTensor"
)

var programNames = map[int]string{
	LoadProgram: "WeightsFromHost", OptimizerProgram: "OptimizerFromHost", SeedProgram: "RandomSeedFromHost", SaveSeedProgram: "RandomSeedToHost",
	RandomProgram: "RngStateFromHost", MainProgram: "Program", SaveRandomProgram: "RngStateToHost", SaveProgram: "WeightsToHost",
	CycleCountProgram: "CycleCountTensorToHost", EvaluateProgram: "Evaluate",
}

// TrainingLayout says what of an executable a training model is made of. A run of its main program is
//
//	repeat BatchesPerStep {
//		call Begin
//		repeat Accumulation {
//			repeat Replicas { copy inputs in; call Forward, Backward; copy out }
//		}
//		call Update; copy out
//	}
//
// so that inputs are moved for every micro-batch, those of the replicas of one side by side. Graphs are called
// in their order, read what earlier ones wrote, and have no parameters. An update finds the sums of what Backward
// accumulated over Accumulation × Replicas micro-batches. Begin clears them: a run that ended in the middle of a batch leaves
// nothing that the next one would add to.
type TrainingLayout struct {
	BatchesPerStep, Accumulation, Replicas int64 // at least 1 each

	Begin    []graph.GraphID // before the first micro-batch of a batch; not part of program 9
	Forward  []graph.GraphID
	Evaluate []graph.GraphID // are called in the place of Forward by program 9; nil for those of Forward
	Backward []graph.GraphID
	Update   []graph.GraphID

	Inputs  []Port   // local tensors that the graphs read
	Outputs []Output // tensors that they write

	// Evaluated says which tensors the graphs of Evaluate write for those of Outputs. The types are the same; an output that is not
	// there has the same tensor.
	Evaluated map[graph.TensorID]graph.TensorID

	Weights   []Weight // persistent tensors: are loaded and saved
	State     []Weight // those of the optimizer, with PopART's names such as "Accl___w"; likewise
	Optimizer []Weight // values that the optimizer reads, with PopART's names such as "learningRate___default___FLOAT"; program 1 loads them

	Seed        *Weight // random seed, U32 [2]; nil if there is none. Its anchor's name is PopART's, not that of the port
	RandomState *Weight // state of random numbers; likewise
	CycleCount  *Port   // U64 scalar that program 8 copies out; nil if there is none

	// Inference says that nothing is learnt: programs 1, 7 and 9 are left out, and the metadata says that the model is one of inference. It is for
	// models of inference whose outputs have return types, which [Inference] does not know; Backward, Update, State and Optimizer are empty.
	Inference bool
}

// Output is a tensor that runs return. What an update graph writes has one value a batch, like that of a single
// micro-batch; everything else one a micro-batch.
type Output struct {
	Port
	Return Return
	N      int64 // of [EveryN], which it belongs to: it divides the batches per step
}

// Training makes a training model of an executable that has graphs and no programs. The executable is changed: it
// gets streams, programs, and for return types that the loops alone do not give some tensors and graphs. What is left
// to do is to optimise it, and [Model.Encode]. The flow of its programs is PopART's: 0 and 1, with the random
// seed 2 and state 4, are run once after loading, 5 is a step, 7, and 3, 6 and 8 where they are there, save.
// Program 9 does what program 5 does with the forward graphs alone, or Evaluate in their place: it changes no weights, and returns the
// outputs that these graphs write. A layout of inference has programs 0, 5 and those of random numbers alone. Errors wrap [ErrLayout].
func Training(exe *graph.Executable, l TrainingLayout) (*Model, error) {
	t := training{TrainingLayout: &l, exe: exe, programs: map[int]*graph.Program{}}
	if err := t.check(); err != nil {
		return nil, err
	}
	t.m = &Model{Executable: exe, Metadata: popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IsInference: l.Inference, DeviceIterations: uint32(l.BatchesPerStep * l.Accumulation),
	}}
	for _, part := range []func() error{t.saved, t.run, t.randomOut, t.loaded, t.randomIn} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	t.finish()
	if err := graph.Verify(exe); err != nil {
		return nil, refuse("%w", err)
	}
	return t.m, nil
}

// training is the state of one [Training].
type training struct {
	*TrainingLayout
	exe      *graph.Executable
	m        *Model
	programs map[int]*graph.Program

	updated map[graph.TensorID]bool // tensors that update graphs write
	late    map[graph.TensorID]bool // those that backward graphs write
}

// check refuses what no program can be laid out for.
func (t *training) check() error {
	total := int64(1)
	for _, n := range []struct {
		what  string
		count int64
	}{{"batches per step", t.BatchesPerStep}, {"accumulation factor", t.Accumulation}, {"replicas", t.Replicas}} {
		if n.count < 1 || n.count > maxIterations {
			return refuse("%s %d: want 1 to %d", n.what, n.count, int64(maxIterations))
		}
		if total > maxIterations/n.count {
			return refuse("%d batches per step of %d × %d micro-batches: want at most %d micro-batches in a run; take fewer batches per step",
				t.BatchesPerStep, t.Accumulation, t.Replicas, int64(maxIterations))
		}
		total *= n.count
	}
	graphs := slices.Concat(t.Begin, t.Forward, t.Evaluate, t.Backward, t.Update)
	if n := len(t.exe.Programs); n > 0 {
		return refuse("the executable has %d programs already: want one of graphs alone", n)
	}
	if len(t.Forward) == 0 {
		return refuse("there are no forward graphs: a step computes nothing")
	}
	if t.Inference && len(t.Backward)+len(t.Update)+len(t.State)+len(t.Optimizer) > 0 {
		return refuse("a model of inference has backward or update graphs, or what an optimizer keeps: leave them out, or make a training model")
	}
	for _, g := range graphs {
		if g < 0 || int(g) >= len(t.exe.Graphs) {
			return refuse("graph %d is called, and the executable has %d", g, len(t.exe.Graphs))
		}
	}
	t.updated, t.late = t.written(t.Update), t.written(t.Backward)
	if err := t.checkNames(); err != nil {
		return err
	}
	for i := range t.Outputs {
		o := &t.Outputs[i]
		if _, err := o.period(t.BatchesPerStep); err != nil {
			return err
		}
		if d := t.exe.Tensors[o.Tensor].Type.DType; o.Return == Sum && !d.IsFloat() && !d.IsInteger() {
			return refuse("output %q: return type Sum of elements of type %s, which can't be added: return another type", o.Name, d)
		}
	}
	return nil
}

// checkNames refuses tensors that are not there, and anchors of one kind that share a name.
func (t *training) checkNames() error {
	given := map[string]bool{}
	for _, kind := range []struct {
		what       string
		ports      []Port
		persistent bool
	}{{"input", t.Inputs, false}, {"weight", ports(t.Weights), true}, {"state", ports(t.State), true}, {"optimizer value", ports(t.Optimizer), true}} {
		for _, p := range kind.ports {
			if err := t.checkTensor(kind.what, p, kind.persistent); err != nil {
				return err
			}
			if given[p.Name] {
				return refuse("%s %q: another anchor that the host gives has this name; rename one of them", kind.what, p.Name)
			}
			given[p.Name] = true
		}
	}
	returned := map[string]bool{}
	for i := range t.Outputs {
		o := &t.Outputs[i]
		if o.Tensor < 0 || int(o.Tensor) >= len(t.exe.Tensors) {
			return refuse("output %q is tensor %d, and the executable has %d", o.Name, o.Tensor, len(t.exe.Tensors))
		}
		if returned[o.Name] {
			return refuse("output %q: two outputs have this name, want a name for each", o.Name)
		}
		returned[o.Name] = true
	}
	for _, w := range []*Weight{t.Seed, t.RandomState} {
		if w == nil {
			continue
		}
		if err := t.checkTensor("random seed or state", w.Port, true); err != nil {
			return err
		}
	}
	if t.CycleCount != nil {
		return t.checkTensor("cycle count", *t.CycleCount, true)
	}
	return nil
}

func (t *training) checkTensor(what string, p Port, persistent bool) error {
	if p.Tensor < 0 || int(p.Tensor) >= len(t.exe.Tensors) {
		return refuse("%s %q is tensor %d, and the executable has %d", what, p.Name, p.Tensor, len(t.exe.Tensors))
	}
	switch e := &t.exe.Tensors[p.Tensor]; {
	case e.Const:
		return refuse("%s %q is a constant of the executable, want a tensor that the host can set", what, p.Name)
	case e.Persistent != persistent && persistent:
		return refuse("%s %q is a local tensor, want a persistent one: it has to keep its value between programs", what, p.Name)
	case e.Persistent != persistent:
		return refuse("%s %q is a persistent tensor, want a local one: every micro-batch has a value of its own", what, p.Name)
	}
	return nil
}

func ports(weights []Weight) []Port {
	out := make([]Port, len(weights))
	for i := range weights {
		out[i] = weights[i].Port
	}
	return out
}

// written returns the tensors that nodes of the graphs write.
func (t *training) written(graphs []graph.GraphID) map[graph.TensorID]bool {
	out := map[graph.TensorID]bool{}
	for _, g := range graphs {
		for i := range t.exe.Graphs[g].Nodes {
			for _, o := range t.exe.Graphs[g].Nodes[i].Outputs {
				out[o] = true
			}
		}
	}
	return out
}

// add appends steps to a program, which is there from then on.
func (t *training) add(program int, steps ...graph.Step) {
	p := t.programs[program]
	if p == nil {
		p = &graph.Program{Index: program, Name: programNames[program]}
		t.programs[program] = p
	}
	p.Steps = append(p.Steps, steps...)
}

// copied adds a stream that one program moves as it is.
func (t *training) copied(what string, p Port, handle string, dir graph.Direction, program int) error {
	s, err := t.m.AddStream(p, handle, dir, uint32(program))
	if err != nil {
		return refuse("%s %w", what, err)
	}
	t.add(program, s)
	return nil
}

// saved adds what program 7 copies out. In the order of PopART's files these anchors are the first.
func (t *training) saved() error {
	t.add(LoadProgram)
	if t.Inference {
		return nil
	}
	t.add(OptimizerProgram)
	t.add(SaveProgram)
	for _, w := range slices.Concat(t.Weights, t.State) {
		if err := t.copied("weight", w.Port, "weight_d2h_"+w.Name, graph.DeviceToHost, SaveProgram); err != nil {
			return err
		}
	}
	return nil
}

// randomOut adds programs 3, 6 and 8. PopART's handle of what is saved of a seed is a short one.
func (t *training) randomOut() error {
	if t.Seed != nil {
		if err := t.copied("random seed", Port{seedName, t.Seed.Tensor}, "d2h_randomSeed", graph.DeviceToHost, SaveSeedProgram); err != nil {
			return err
		}
	}
	if t.RandomState != nil {
		if err := t.copied("random state", Port{stateName, t.RandomState.Tensor}, "d2h_"+stateName, graph.DeviceToHost, SaveRandomProgram); err != nil {
			return err
		}
	}
	if t.CycleCount != nil {
		return t.copied("cycle count", *t.CycleCount, "d2h_cycleCount____"+t.CycleCount.Name, graph.DeviceToHost, CycleCountProgram)
	}
	return nil
}

// loaded adds programs 0 and 1, and the data of what they copy in.
func (t *training) loaded() error {
	for _, part := range []struct {
		what    string
		weights []Weight
		program int
	}{{"weight", t.Weights, LoadProgram}, {"state", t.State, LoadProgram}, {"optimizer value", t.Optimizer, OptimizerProgram}} {
		for _, w := range part.weights {
			if err := t.given(part.what, w.Port, w.Value, part.program); err != nil {
				return err
			}
		}
	}
	return nil
}

// randomIn adds programs 2 and 4.
func (t *training) randomIn() error {
	if t.Seed != nil {
		if err := t.given("random seed", Port{seedName, t.Seed.Tensor}, t.Seed.Value, SeedProgram); err != nil {
			return err
		}
		t.m.Metadata.SeedHandle = prefixIn + seedName
	}
	if t.RandomState != nil {
		return t.given("random state", Port{stateName, t.RandomState.Tensor}, t.RandomState.Value, RandomProgram)
	}
	return nil
}

// given adds a stream that one program copies in, and its value. Without one, whoever opens the model gives it.
func (t *training) given(what string, p Port, value []byte, program int) error {
	if err := t.copied(what, p, prefixIn+p.Name, graph.HostToDevice, program); err != nil {
		return err
	}
	if value == nil {
		return nil
	}
	if n := t.exe.Tensors[p.Tensor].Type.Bytes(); n != int64(len(value)) {
		return refuse("%s %q: its value has %d bytes, want the %d of %v", what, p.Name, len(value), n, t.exe.Tensors[p.Tensor].Type)
	}
	t.m.Data = append(t.m.Data, t.m.data(value))
	return nil
}

// finish puts the programs in order, and says when they are run.
func (t *training) finish() {
	flow := &t.m.Metadata.ProgramFlow
	for _, part := range []struct {
		to  *[]uint32
		all []int
	}{
		{&flow.Load, []int{LoadProgram, OptimizerProgram, SeedProgram, RandomProgram}}, {&flow.Main, []int{MainProgram}},
		{&flow.Save, []int{SaveProgram, SaveSeedProgram, SaveRandomProgram, CycleCountProgram}},
	} {
		for _, index := range part.all {
			if t.programs[index] != nil {
				*part.to = append(*part.to, uint32(index))
			}
		}
	}
	for index := range len(programNames) {
		p := t.programs[index]
		if p == nil {
			continue
		}
		t.exe.Programs = append(t.exe.Programs, *p)
		t.m.Metadata.Programs = append(t.m.Metadata.Programs, popef.ProgramInfo{Index: uint32(index), Name: p.Name})
	}
}

// repeat returns steps as often as count says.
func repeat(count int64, steps []graph.Step) []graph.Step {
	if count == 1 || len(steps) == 0 {
		return steps
	}
	return []graph.Step{{Kind: graph.Repeat, Count: count, Body: steps}}
}
