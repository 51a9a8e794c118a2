package export

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
)

// maxIterations is how many transfers a stream makes in a run at most.
const maxIterations = 1 << 31

// InferenceLayout says what of an executable an inference model is made of.
type InferenceLayout struct {
	Graph      graph.GraphID // is called once an iteration
	Inputs     []Port        // local tensors that the graph reads
	Outputs    []Port        // tensors that it writes
	Weights    []Weight      // persistent tensors that it reads
	Iterations int64         // how often a run of the main program computes, each time with inputs and outputs of its own; at least 1

	After       []graph.GraphID // are called after each iteration, once its outputs are copied
	Seed        *Weight         // random seed, U32 [2]; nil if there is none. Program 2 loads it, and its anchor's name is PopART's, not that of the port
	RandomState *Weight         // state of random numbers, which program 4 loads; likewise
}

// Weight is a persistent tensor of the executable, the name of its anchor, and its value.
type Weight struct {
	Port
	Value []byte // row-major, little-endian
}

// Inference makes a model of an executable that has graphs and no programs: the load program copies the
// weights in, programs 2 and 4 what random numbers follow from, the main program inputs in and outputs out. The executable is changed. What is left to do
// is to optimise it, and [Model.Encode].
func Inference(exe *graph.Executable, l InferenceLayout) (*Model, error) {
	load := graph.Program{Index: LoadProgram, Name: "WeightsFromHost"}
	main := graph.Program{Index: MainProgram, Name: "Program"}
	m := &Model{Executable: exe, Metadata: popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IsInference: true, DeviceIterations: uint32(l.Iterations),
		ProgramFlow: popef.ProgramFlow{Load: []uint32{LoadProgram}, Main: []uint32{MainProgram}},
		Programs:    []popef.ProgramInfo{{Index: LoadProgram, Name: load.Name}, {Index: MainProgram, Name: main.Name}},
	}}
	if l.Iterations > maxIterations {
		return nil, fmt.Errorf("%d device iterations: want at most %d", l.Iterations, int64(maxIterations))
	}
	var steps []graph.Step
	for _, in := range l.Inputs {
		s, err := m.AddStream(in, prefixIn+in.Name, graph.HostToDevice, MainProgram)
		if err != nil {
			return nil, fmt.Errorf("input %w", err)
		}
		steps = append(steps, s)
	}
	steps = append(steps, graph.Step{Kind: graph.Call, Graph: l.Graph})
	for _, out := range l.Outputs {
		s, err := m.AddStream(out, prefixOut+out.Name, graph.DeviceToHost, MainProgram)
		if err != nil {
			return nil, fmt.Errorf("output %w", err)
		}
		steps = append(steps, s)
	}
	for _, g := range l.After {
		steps = append(steps, graph.Step{Kind: graph.Call, Graph: g})
	}
	main.Steps = steps
	if l.Iterations > 1 {
		main.Steps = []graph.Step{{Kind: graph.Repeat, Count: l.Iterations, Body: steps}}
	}
	for _, w := range l.Weights {
		s, err := m.AddStream(w.Port, prefixIn+w.Name, graph.HostToDevice, LoadProgram)
		if err != nil {
			return nil, fmt.Errorf("weight %w", err)
		}
		load.Steps = append(load.Steps, s)
		m.Data = append(m.Data, m.data(w.Value))
	}
	exe.Programs = []graph.Program{load, main}
	for _, r := range []struct {
		of      *Weight
		name    string
		program int
	}{{l.Seed, seedName, SeedProgram}, {l.RandomState, stateName, RandomProgram}} {
		if r.of == nil {
			continue
		}
		s, err := m.AddStream(Port{r.name, r.of.Tensor}, prefixIn+r.name, graph.HostToDevice, uint32(r.program))
		if err != nil {
			return nil, fmt.Errorf("random seed or state %w", err)
		}
		m.Data = append(m.Data, m.data(r.of.Value))
		exe.Programs = append(exe.Programs, graph.Program{Index: r.program, Name: programNames[r.program], Steps: []graph.Step{s}})
		m.Metadata.Programs = append(m.Metadata.Programs, popef.ProgramInfo{Index: uint32(r.program), Name: programNames[r.program]})
		m.Metadata.ProgramFlow.Load = append(m.Metadata.ProgramFlow.Load, uint32(r.program))
	}
	if l.Seed != nil {
		m.Metadata.SeedHandle = prefixIn + seedName
	}
	slices.SortFunc(exe.Programs, func(a, b graph.Program) int { return a.Index - b.Index })
	slices.SortFunc(m.Metadata.Programs, func(a, b popef.ProgramInfo) int { return int(a.Index) - int(b.Index) })
	return m, nil
}

// data is the value of the anchor that was added last.
func (m *Model) data(value []byte) Data {
	a := &m.Metadata.Anchors[len(m.Metadata.Anchors)-1]
	return Data{a.Name, a.Info, value}
}
