package golden

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
)

// portable builds the executable that a description's compute statements and
// anchors ask for. Anchors of load and save programs are persistent tensors;
// a main program copies its inputs in, runs its statements and copies its
// outputs out, as often as there are device iterations.
func (m *Model) portable(meta *popef.Metadata) (*graph.Executable, error) {
	b := graph.NewBuilder(m.Executable.Name)
	b.SetProducer("popefgen golden case")
	flow := meta.ProgramFlow
	state := map[string]graph.TensorID{}
	for _, a := range meta.Anchors {
		if !uses(a, flow.Load) && !uses(a, flow.Save) {
			continue
		}
		if _, ok := state[a.Name]; ok {
			continue
		}
		t, err := tensorType(a.Info)
		if err != nil {
			return nil, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		state[a.Name] = b.AddPersistent(a.Name, t)
	}
	for _, p := range slices.Concat(flow.Load, flow.Save) {
		var steps []graph.Step
		for _, a := range meta.Anchors {
			switch {
			case !slices.Contains(a.Programs, p):
			case a.Type == popef.Output:
				steps = append(steps, b.CopyOut(a.Handle, state[a.Name]))
			default:
				steps = append(steps, b.CopyIn(a.Handle, state[a.Name]))
			}
		}
		b.AddProgram(int(p), m.Programs[p], steps...)
	}
	for _, p := range slices.Concat(flow.Main, m.Evaluate) {
		steps, last, err := m.mainProgram(b, meta, p, state)
		if err != nil {
			return nil, fmt.Errorf("program %d: %w", p, err)
		}
		if n := int64(m.DeviceIterations); n > 1 {
			steps = []graph.Step{b.Repeat(n, steps...)}
		}
		b.AddProgram(int(p), m.Programs[p], append(steps, last...)...)
	}
	return b.Finish()
}

// mainProgram returns the steps of one iteration of main program p, and those behind all iterations.
func (m *Model) mainProgram(b *graph.Builder, meta *popef.Metadata, p uint32, state map[string]graph.TensorID) (steps, last []graph.Step, err error) {
	scope := map[string]graph.TensorID{}
	for name, id := range state {
		scope[name] = id
	}
	fields := map[int]bool{}
	joined := m.joined(meta)
	whole := make([]graph.TensorID, len(joined))
	for i, j := range joined {
		whole[i] = b.AddLocal(j.Anchor.Name, graph.TensorType{DType: graph.U64, Shape: j.Anchor.Info.Shape})
		steps = append(steps, b.CopyIn(j.Anchor.Handle, whole[i]))
		for _, f := range j.Fields {
			fields[f.Anchor] = true
		}
	}
	for i, a := range meta.Anchors {
		if a.Type == popef.Output || !slices.Contains(a.Programs, p) || fields[i] {
			continue
		}
		t, err := tensorType(a.Info)
		if err != nil {
			return nil, nil, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		scope[a.Name] = b.AddLocal(a.Name, t)
		steps = append(steps, b.CopyIn(a.Handle, scope[a.Name]))
	}
	g := b.BeginGraph(fmt.Sprintf("program %d", p))
	for i, j := range joined {
		for _, f := range j.Fields {
			a := &meta.Anchors[f.Anchor]
			t, err := tensorType(a.Info)
			if err != nil {
				return nil, nil, fmt.Errorf("anchor %q: %w", a.Name, err)
			}
			out, err := b.Node(&graph.Field{Handle: a.Handle, Offset: f.Offset, To: t.DType, Shape: t.Shape}, a.Name, whole[i])
			if err != nil {
				return nil, nil, fmt.Errorf("joined %q: %w", j.Anchor.Name, err)
			}
			scope[a.Name] = out[0]
		}
	}
	for _, statement := range m.Executable.Compute[int(p)] {
		if err := compute(b, statement, scope); err != nil {
			return nil, nil, fmt.Errorf("%q: %w", statement, err)
		}
	}
	steps = append(steps, b.Call(g))
	for _, a := range meta.Anchors {
		if a.Type != popef.Output || !slices.Contains(a.Programs, p) {
			continue
		}
		id, ok := scope[a.Name]
		if !ok {
			return nil, nil, fmt.Errorf("output %q is never computed", a.Name)
		}
		if slices.Contains(m.Final, a.Name) {
			last = append(last, b.CopyOut(a.Handle, id))
		} else {
			steps = append(steps, b.CopyOut(a.Handle, id))
		}
	}
	return steps, last, nil
}

// compute appends the node of one statement, "result = operator(a, b)".
func compute(b *graph.Builder, statement string, scope map[string]graph.TensorID) error {
	result, call, ok := strings.Cut(statement, " = ")
	fn, list, ok2 := strings.Cut(strings.TrimSuffix(call, ")"), "(")
	if !ok || !ok2 {
		return fmt.Errorf(`want "result = operator(a, b)"`)
	}
	var in []graph.TensorID
	for name := range strings.SplitSeq(list, ", ") {
		id, ok := scope[name]
		if !ok {
			return fmt.Errorf("there is no tensor %q", name)
		}
		in = append(in, id)
	}
	var op graph.Op
	switch {
	case fn == "matmul":
		op = &graph.MatMul{}
	case fn == "softmax":
		op = &graph.Softmax{Axis: int64(len(b.Tensor(in[0]).Type.Shape)) - 1}
	case strings.HasPrefix(fn, "concat"):
		axis, err := strconv.ParseInt(strings.TrimPrefix(fn, "concat"), 10, 8)
		if err != nil {
			return fmt.Errorf("want concat and an axis, such as concat1: %w", err)
		}
		op = &graph.Concat{Axis: axis}
	case len(in) == 1:
		op = &graph.Unary{Fn: graph.UnaryFn(fn)}
	default:
		op = &graph.Binary{Fn: graph.BinaryFn(fn)}
	}
	if id, ok := scope[result]; ok && b.Tensor(id).Persistent {
		return b.NodeTo(op, result, []graph.TensorID{id}, in...)
	}
	out, err := b.Node(op, result, in...)
	if err != nil {
		return err
	}
	scope[result] = out[0]
	return nil
}

// uses reports whether one of the programs moves a.
func uses(a popef.Anchor, programs []uint32) bool {
	return slices.ContainsFunc(a.Programs, func(p uint32) bool { return slices.Contains(programs, p) })
}

// tensorType translates a tensor's type and shape.
func tensorType(info popef.TensorInfo) (graph.TensorType, error) {
	types := map[popef.DataType]graph.DType{
		popef.Bool: graph.Bool, popef.S8: graph.I8, popef.U8: graph.U8, popef.S16: graph.I16, popef.U16: graph.U16,
		popef.S32: graph.I32, popef.U32: graph.U32, popef.S64: graph.I64, popef.U64: graph.U64,
		popef.F16: graph.F16, popef.F32: graph.F32, popef.F64: graph.F64,
		popef.F8143: graph.F8E4M3, popef.F8152: graph.F8E5M2,
	}
	t, ok := types[info.DataType]
	if !ok {
		return graph.TensorType{}, fmt.Errorf("type %s has no counterpart in a portable executable", info.DataType)
	}
	return graph.TensorType{DType: t, Shape: info.Shape}, nil
}

// joined returns the inputs that the main program moves as one.
func (m *Model) joined(meta *popef.Metadata) []popef.JoinedInput {
	var all []popef.JoinedInput
	for _, j := range m.Joined {
		in := popef.JoinedInput{}
		for i, a := range meta.Anchors {
			if at, ok := j.Fields[a.Name]; ok && a.Type == popef.Input {
				in.Anchor = a
				in.Fields = append(in.Fields, popef.JoinedField{Anchor: i, Offset: at})
			}
		}
		in.Anchor.Name, in.Anchor.Handle, in.Anchor.Info = j.Name, j.Handle, popef.TensorInfo{Shape: []int64{j.Words}, DataType: popef.U64}
		all = append(all, in)
	}
	return all
}
