package popxl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// Export returns the PopEF model: program 0 loads the variables, program 5
// copies the inputs in, computes, and copies the outputs out. If a run changes variables, the model is one that trains: program 7
// saves them, and program 9 computes what comes before the first change. [export.Model] writes it to a
// file or opens it from memory. The Ir can't be changed any more, also if an error
// is returned: that of [Ir.Err], an Ir without outputs, or what hinders the passes that optimise the graph.
func (ir *Ir) Export(ctx context.Context) (*export.Model, error) { return ir.export(ctx, false) }

// export returns the model, for a session with what is there for debugging.
func (ir *Ir) export(ctx context.Context, session bool) (*export.Model, error) {
	if !ir.usable() {
		return nil, ErrNoIr
	}
	if ir.taken {
		return nil, ErrTaken
	}
	if len(ir.nest) > 0 {
		return nil, errNested
	}
	for i := range ir.written {
		ir.written[i].late = ir.late(i)
	}
	ir.taken = true
	if err := ir.Err(); err != nil {
		return nil, err
	}
	if err := errors.Join(ir.remote...); err != nil {
		return nil, err
	}
	if err := errors.Join(ir.sessionsOnly...); err != nil && !session {
		return nil, err
	}
	outputs := ir.returned(session)
	if len(outputs) == 0 {
		return nil, errors.New("the Ir returns nothing: add an output with popxl.NewOutput")
	}
	if err := ir.checkTransfers(outputs); err != nil {
		return nil, fmt.Errorf("%s: %w", ir.name, err)
	}
	several, err := ir.streams(outputs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ir.name, err)
	}
	all, err := ir.b.Finish()
	if err != nil {
		return nil, err
	}
	exe := new(graph.Executable)
	*exe = *all
	exe.Tensors = slices.Clone(all.Tensors) // passes number them anew; the Ir goes on knowing its own
	for i, l := range ir.loaded {
		if l.rows != graph.None {
			exe.Tensors[l.rows].Type.Shape[0] = ir.loads(i)
		}
	}
	m, err := ir.lay(exe, outputs, session)
	if err != nil {
		return nil, err
	}
	for i := range exe.Programs {
		exe.Programs[i].Steps = spread(exe.Programs[i].Steps, several)
	}
	if session {
		if err := ir.exchanged(m); err != nil {
			return nil, fmt.Errorf("%s: %w", ir.name, err)
		}
	}
	if err := graph.Verify(exe); err != nil {
		return nil, err
	}
	load := export.LoadProgram
	if err := pass.OptimizeContext(ctx, exe, pass.OptimizeOptions{Load: &load, Held: ir.held}); err != nil {
		return nil, err
	}
	return m, m.Encode()
}

// returned returns the outputs of the model, for a session also those for debugging.
func (ir *Ir) returned(session bool) (all []int) {
	for i := range ir.outputs {
		if session || !ir.written[i].debug {
			all = append(all, i)
		}
	}
	return all
}

// lay lays the programs out. What replicas learn together, an exported model learns from their micro-batches one after the other, as PopART's do on one device.
func (ir *Ir) lay(exe *graph.Executable, outputs []int, session bool) (*export.Model, error) {
	var returned []export.Port
	for _, i := range outputs {
		returned = append(returned, ir.outputs[i])
	}
	if ir.stage < update {
		main := &exe.Graphs[ir.calls[forward][0]]
		for _, g := range slices.Concat(ir.calls[:]...)[1:] {
			main.Nodes = append(main.Nodes, exe.Graphs[g].Nodes...)
			exe.Graphs[g].Nodes = nil
		}
		return export.Inference(exe, export.InferenceLayout{Graph: ir.calls[forward][0], Inputs: ir.inputs, Outputs: returned, Weights: ir.weights, Iterations: ir.iterations})
	}
	replicas := int64(1)
	if !session && len(ir.exchanges) > 0 {
		replicas = int64(ir.replicas())
	}
	l := export.TrainingLayout{
		BatchesPerStep: ir.iterations, Accumulation: ir.accumulation(), Replicas: replicas,
		Begin: ir.cleared, Forward: ir.calls[forward], Backward: ir.calls[backward], Update: ir.calls[update],
		Inputs: ir.inputs, Weights: ir.weights, State: ir.states, Optimizer: ir.fed,
	}
	for _, p := range returned {
		l.Outputs = append(l.Outputs, export.Output{Port: p})
	}
	return export.Training(exe, l)
}
