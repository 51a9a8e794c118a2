package graph

import (
	"errors"
	"fmt"
	"slices"
)

// Builder makes an [Executable] piece by piece. Nodes go to the graph begun
// last (or chosen with SetGraph), in execution order. Nothing is checked
// before Finish but what Node needs to infer types.
type Builder struct {
	exe     Executable
	current GraphID
	streams map[string]StreamID
}

// NewBuilder returns a builder of an executable of that name.
func NewBuilder(name string) *Builder {
	return &Builder{exe: Executable{Name: name}, current: -1, streams: map[string]StreamID{}}
}

// SetProducer sets what made the executable, such as "popefgen compile".
func (b *Builder) SetProducer(producer string) { b.exe.Producer = producer }

func (b *Builder) add(t Tensor) TensorID {
	b.exe.Tensors = append(b.exe.Tensors, t)
	return TensorID(len(b.exe.Tensors) - 1)
}

// AddConst adds a constant; data is kept, not copied.
func (b *Builder) AddConst(name string, t TensorType, data []byte) TensorID {
	return b.add(Tensor{Name: name, Type: t, Const: true, Data: data})
}

// AddPersistent adds a tensor that keeps its value between programs.
func (b *Builder) AddPersistent(name string, t TensorType) TensorID {
	return b.add(Tensor{Name: name, Type: t, Persistent: true})
}

// AddLocal adds a tensor that lives within one run of a program.
func (b *Builder) AddLocal(name string, t TensorType) TensorID {
	return b.add(Tensor{Name: name, Type: t})
}

// Tensor returns a tensor that was added, or the zero Tensor for [None] and
// other numbers that are not in the table.
func (b *Builder) Tensor(id TensorID) Tensor {
	if id < 0 || int(id) >= len(b.exe.Tensors) {
		return Tensor{}
	}
	return b.exe.Tensors[id]
}

// Type returns the type of a tensor that was added, or the zero TensorType.
func (b *Builder) Type(id TensorID) TensorType { return b.Tensor(id).Type }

// BeginGraph adds an empty graph and makes it the one that nodes go to.
func (b *Builder) BeginGraph(name string) GraphID {
	b.exe.Graphs = append(b.exe.Graphs, Graph{Name: name})
	b.current = GraphID(len(b.exe.Graphs) - 1)
	return b.current
}

// CurrentGraph returns the graph that nodes go to, or -1 before the first.
func (b *Builder) CurrentGraph() GraphID { return b.current }

// Graph returns a graph as it is so far, whose slices must not be changed.
func (b *Builder) Graph(g GraphID) Graph { return b.exe.Graphs[g] }

// SetGraph makes nodes go to a graph begun earlier.
func (b *Builder) SetGraph(g GraphID) { b.current = g }

// SetParams sets the parameters and results of a graph that an operator uses.
func (b *Builder) SetParams(g GraphID, params, results []TensorID) {
	b.exe.Graphs[g].Params, b.exe.Graphs[g].Results = params, results
}

// Node infers the types of op's results, adds a local tensor for each and
// appends the node. The results are named after the node: "name", "name:1" and
// so on. Inputs may be [None] where op allows it.
func (b *Builder) Node(op Op, name string, inputs ...TensorID) ([]TensorID, error) {
	types, err := b.infer(op, name, inputs)
	if err != nil {
		return nil, err
	}
	outputs := make([]TensorID, len(types))
	for i, t := range types {
		n := name
		if i > 0 {
			n = fmt.Sprintf("%s:%d", name, i)
		}
		outputs[i] = b.AddLocal(n, t)
	}
	b.append(Node{op, name, inputs, outputs})
	return outputs, nil
}

// NodeTo appends a node that writes existing tensors: how a persistent tensor
// is updated. Results may be [None] where nobody wants them.
func (b *Builder) NodeTo(op Op, name string, outputs []TensorID, inputs ...TensorID) error {
	types, err := b.infer(op, name, inputs)
	if err != nil {
		return err
	}
	if len(outputs) > len(types) {
		return fmt.Errorf("node %q (%s): %d results, want at most %d", name, op.Kind(), len(outputs), len(types))
	}
	b.append(Node{op, name, inputs, outputs})
	return nil
}

var errNoGraph = errors.New("no graph has been begun")

// infer checks that a node can be appended and returns its results' types.
func (b *Builder) infer(op Op, name string, inputs []TensorID) ([]TensorType, error) {
	if b.current < 0 || int(b.current) >= len(b.exe.Graphs) {
		return nil, fmt.Errorf("node %q (%s): %w", name, op.Kind(), errNoGraph)
	}
	in := make([]TensorType, len(inputs))
	for i, id := range inputs {
		if id < None || int(id) >= len(b.exe.Tensors) {
			return nil, fmt.Errorf("node %q (%s): operand %d is tensor %d, want one of the %d added", name, op.Kind(), i, id, len(b.exe.Tensors))
		}
		in[i] = b.Type(id)
	}
	types, err := b.exe.Infer(op, in)
	if err != nil {
		return nil, fmt.Errorf("node %q (%s): %w", name, op.Kind(), err)
	}
	return types, nil
}

func (b *Builder) append(n Node) {
	g := &b.exe.Graphs[b.current]
	g.Nodes = append(g.Nodes, n)
}

// stream returns the stream of that handle, which it adds if it is new.
func (b *Builder) stream(handle string, d Direction, t TensorType) StreamID {
	if id, ok := b.streams[handle]; ok {
		return id
	}
	id := StreamID(len(b.exe.Streams))
	b.exe.Streams = append(b.exe.Streams, Stream{Handle: handle, Direction: d, Type: t})
	b.streams[handle] = id
	return id
}

// CopyIn returns the step that copies the input stream named handle, which is
// added if it is new, to a tensor.
func (b *Builder) CopyIn(handle string, t TensorID) Step {
	return Step{Kind: CopyIn, Stream: b.stream(handle, HostToDevice, b.Type(t)), Tensor: t}
}

// CopyOut returns the step that copies a tensor to the output stream named
// handle, which is added if it is new.
func (b *Builder) CopyOut(handle string, t TensorID) Step {
	return Step{Kind: CopyOut, Stream: b.stream(handle, DeviceToHost, b.Type(t)), Tensor: t}
}

// Call returns the step that runs a graph.
func (b *Builder) Call(g GraphID) Step { return Step{Kind: Call, Graph: g} }

// Repeat returns the step that runs steps count times.
func (b *Builder) Repeat(count int64, body ...Step) Step {
	return Step{Kind: Repeat, Count: count, Body: body}
}

// AddProgram adds a program; programs may be added in any order.
func (b *Builder) AddProgram(index int, name string, steps ...Step) {
	at := len(b.exe.Programs)
	for at > 0 && b.exe.Programs[at-1].Index > index {
		at--
	}
	b.exe.Programs = slices.Insert(b.exe.Programs, at, Program{Index: index, Name: name, Steps: steps})
}

// Finish verifies the executable and returns it. The builder must not be used
// afterwards.
func (b *Builder) Finish() (*Executable, error) {
	if err := Verify(&b.exe); err != nil {
		return nil, err
	}
	return &b.exe, nil
}

// Continue returns a builder that adds to a verified executable, which must not be used besides until
// [Builder.Finish] has returned the whole. No graph is the current one.
func Continue(e *Executable) *Builder {
	b := &Builder{exe: *e, current: -1, streams: map[string]StreamID{}}
	for i := range e.Streams {
		b.streams[e.Streams[i].Handle] = StreamID(i)
	}
	return b
}
