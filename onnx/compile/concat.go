package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
)

// joinedName is the name of the anchor of a joined input, and of its stream behind "h2d_".
const joinedName = "popefgen.concat"

// joinInputs makes one stream of those run inputs of each main program that have at most limit
// bytes, where there are two of them or more.
func (r *Result) joinInputs(limit int64) {
	for i := range r.Executable.Programs {
		p := &r.Executable.Programs[i]
		if slices.Contains(r.Metadata.ProgramFlow.Main, uint32(p.Index)) {
			p.Steps = r.joinSteps(p, p.Steps, limit)
		}
	}
	if len(r.Joined) == 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("no inputs were joined: fewer than two have at most %d bytes", limit))
		return
	}
	dropStreams(r.Executable)
}

// small is an input that is to be joined.
type small struct {
	anchor int // index in the metadata's anchors
	tensor graph.TensorID
	typ    graph.TensorType
	offset int64
}

// joinSteps returns the steps of a program, or of a loop in it, with one transfer in place of those of
// small inputs.
func (r *Result) joinSteps(p *graph.Program, steps []graph.Step, limit int64) []graph.Step {
	exe := r.Executable
	var all []small
	var out []graph.Step
	first := -1
	for i := range steps {
		s := &steps[i]
		if s.Kind == graph.Repeat {
			s.Body = r.joinSteps(p, s.Body, limit)
		}
		if s.Kind != graph.CopyIn || exe.Tensors[s.Tensor].Type.Bytes() > limit {
			out = append(out, *s)
			continue
		}
		if first < 0 {
			first = len(out)
		}
		handle := exe.Streams[s.Stream].Handle
		at := slices.IndexFunc(r.Metadata.Anchors, func(a popef.Anchor) bool { return a.Handle == handle })
		all = append(all, small{anchor: at, tensor: s.Tensor, typ: exe.Tensors[s.Tensor].Type})
	}
	bytes := layJoined(all)
	if len(all) < 2 || bytes == 0 {
		return steps
	}
	anchor := r.Metadata.Anchors[all[0].anchor]
	anchor.Name = joinedName
	handle := "h2d_" + joinedName
	if len(r.Joined) > 0 { // of another member of a family
		handle += fmt.Sprintf("#%d", p.Index)
	}
	for slices.ContainsFunc(exe.Streams, func(s graph.Stream) bool { return s.Handle == handle }) {
		handle += "_"
	}
	// Elements of 8 bytes, so that whoever reads the host's memory in place asks for the alignment of every field.
	anchor.Handle, anchor.Info = handle, popef.TensorInfo{Shape: []int64{bytes / 8}, DataType: popef.U64}
	typ := graph.TensorType{DType: graph.U64, Shape: anchor.Info.Shape}
	whole := graph.TensorID(len(exe.Tensors))
	exe.Tensors = append(exe.Tensors, graph.Tensor{Name: joinedName, Type: typ})
	stream := graph.StreamID(len(exe.Streams))
	exe.Streams = append(exe.Streams, graph.Stream{Handle: handle, Direction: graph.HostToDevice, Type: typ})
	g := graph.Graph{Name: joinedName}
	j := popef.JoinedInput{Anchor: anchor}
	for _, f := range all {
		a := &r.Metadata.Anchors[f.anchor]
		g.Nodes = append(g.Nodes, graph.Node{Op: &graph.Field{Handle: a.Handle, Offset: f.offset, To: f.typ.DType, Shape: f.typ.Shape}, Name: a.Name,
			Inputs: []graph.TensorID{whole}, Outputs: []graph.TensorID{f.tensor}})
		j.Fields = append(j.Fields, popef.JoinedField{Anchor: f.anchor, Offset: f.offset})
	}
	r.Joined = append(r.Joined, j)
	id := graph.GraphID(len(exe.Graphs))
	exe.Graphs = append(exe.Graphs, g)
	return slices.Insert(out, first, graph.Step{Kind: graph.CopyIn, Stream: stream, Tensor: whole}, graph.Step{Kind: graph.Call, Graph: id})
}

// layJoined gives inputs their places in a transfer, whose bytes it returns, a multiple of 8: those
// of larger elements first, which leaves no gaps.
func layJoined(all []small) int64 {
	order := make([]*small, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortStableFunc(order, func(a, b *small) int { return cmp.Compare(b.typ.DType.Size(), a.typ.DType.Size()) })
	at := int64(0)
	for _, f := range order {
		if n := f.typ.Bytes(); n > 0 {
			f.offset, at = at, at+n
		}
	}
	return (at + 7) &^ 7
}

// dropStreams drops the streams that no program moves.
func dropStreams(e *graph.Executable) {
	to := make([]graph.StreamID, len(e.Streams))
	each := func(visit func(*graph.Step)) {
		for i := range e.Programs {
			graph.Walk(e.Programs[i].Steps, func(s *graph.Step) {
				if s.Kind == graph.CopyIn || s.Kind == graph.CopyOut {
					visit(s)
				}
			})
		}
	}
	for i := range to {
		to[i] = -1
	}
	each(func(s *graph.Step) { to[s.Stream] = 0 })
	var streams []graph.Stream
	for i := range to {
		if to[i] == 0 {
			to[i] = graph.StreamID(len(streams))
			streams = append(streams, e.Streams[i])
		}
	}
	each(func(s *graph.Step) { s.Stream = to[s.Stream] })
	e.Streams = streams
}
