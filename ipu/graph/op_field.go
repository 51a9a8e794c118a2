package graph

import "fmt"

// Field is a tensor of type To and of Shape whose elements stand, row-major, in the bytes of x from
// Offset on. It is how a transfer that has several inputs side by side is taken apart: no data
// is moved where an engine can read x in place.
type Field struct {
	Handle string // stream handle that the tensor has where it is an input of its own; see [Unjoined]
	Offset int64  // bytes; a multiple of the size of an element
	To     DType
	Shape  []int64
}

// Kind returns "Field".
func (*Field) Kind() string { return "Field" }

// Infer implements [Op].
func (o *Field) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	out, err := results(TensorType{o.To, o.Shape})
	if err != nil {
		return nil, err
	}
	size, have := int64(o.To.Size()), in[0].Bytes()
	switch {
	case o.Handle == "":
		return nil, fmt.Errorf("attribute Handle is empty, want the stream handle of the field")
	case o.Offset < 0 || o.Offset%size != 0:
		return nil, fmt.Errorf("attribute Offset is %d, want a multiple of the %d bytes of an element of %v", o.Offset, size, o.To)
	case o.Offset > have || out[0].Bytes() > have-o.Offset:
		return nil, fmt.Errorf("%v from byte %d on ends behind x, %v of %d bytes", out[0], o.Offset, in[0], have)
	}
	return out, nil
}

// Unjoined returns the executable as it is with a stream for each field of a transfer that has
// several inputs side by side: a tensor that is written by one stream and read by [Field]
// operators alone. It shares all else with e, which it is itself if there is nothing to take apart.
func (e *Executable) Unjoined() *Executable {
	fields := e.joined()
	if len(fields) == 0 {
		return e
	}
	out := *e
	out.Streams = append([]Stream(nil), e.Streams...)
	streams := map[TensorID][]Step{} // that take the place of the one that writes a joined tensor
	out.Graphs = append([]Graph(nil), e.Graphs...)
	for g := range out.Graphs {
		var rest []Node
		for _, n := range out.Graphs[g].Nodes {
			f, ok := n.Op.(*Field)
			if !ok || !fields[n.Inputs[0]] {
				rest = append(rest, n)
				continue
			}
			streams[n.Inputs[0]] = append(streams[n.Inputs[0]], Step{Kind: CopyIn, Stream: StreamID(len(out.Streams)), Tensor: n.Outputs[0]})
			out.Streams = append(out.Streams, Stream{Handle: f.Handle, Direction: HostToDevice, Type: TensorType{f.To, f.Shape}})
		}
		out.Graphs[g].Nodes = rest
	}
	out.Programs = append([]Program(nil), e.Programs...)
	for p := range out.Programs {
		out.Programs[p].Steps = unjoinedSteps(out.Programs[p].Steps, streams)
	}
	return &out
}

// unjoinedSteps returns the steps with others in the place of those that write joined tensors.
func unjoinedSteps(steps []Step, streams map[TensorID][]Step) []Step {
	var out []Step
	for _, s := range steps {
		if own := streams[s.Tensor]; s.Kind == CopyIn && own != nil {
			out = append(out, own...)
			continue
		}
		s.Body = unjoinedSteps(s.Body, streams)
		out = append(out, s)
	}
	return out
}

// joined returns the tensors that one stream writes and only fields read.
func (e *Executable) joined() map[TensorID]bool {
	fields := map[TensorID]bool{}
	for _, g := range e.Graphs {
		for _, n := range g.Nodes {
			if _, ok := n.Op.(*Field); ok && len(n.Outputs) == 1 && n.Outputs[0] != None && !e.Tensors[n.Outputs[0]].Persistent {
				fields[n.Inputs[0]] = true
			}
		}
	}
	if len(fields) == 0 {
		return nil
	}
	writers := map[TensorID]int{}
	not := func(t TensorID) { delete(fields, t) }
	for _, p := range e.Programs {
		Walk(p.Steps, func(s *Step) {
			switch s.Kind {
			case CopyIn:
				writers[s.Tensor]++
			case CopyOut:
				not(s.Tensor)
			}
		})
	}
	for _, g := range e.Graphs {
		for _, list := range [][]TensorID{g.Params, g.Results} {
			for _, t := range list {
				not(t)
			}
		}
		for _, n := range g.Nodes {
			for _, t := range n.Outputs {
				not(t)
			}
			if _, ok := n.Op.(*Field); ok && len(n.Outputs) == 1 && n.Outputs[0] != None && !e.Tensors[n.Outputs[0]].Persistent {
				continue
			}
			for _, t := range n.Inputs {
				not(t)
			}
		}
	}
	for t := range fields {
		if writers[t] != 1 || e.Tensors[t].Const || e.Tensors[t].Persistent {
			not(t)
		}
	}
	return fields
}
