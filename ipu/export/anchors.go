package export

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
)

// prefixIn and prefixOut are what PopART puts before the names of anchors to make the handles of their streams.
const (
	prefixIn  = "h2d_"
	prefixOut = "anchor_d2h_"
)

// Port is a tensor of the executable and the name of its anchor.
type Port struct {
	Name   string
	Tensor graph.TensorID
}

// AddStream adds a stream of that handle for a tensor, with an anchor, and returns the step that moves it: for streams that no layout knows of, before [Model.Encode]. programs are those that the step is put into.
// The handle must be one that no other stream has. It is an error if the element type has no form in PopEF.
func (m *Model) AddStream(p Port, handle string, dir graph.Direction, programs ...uint32) (graph.Step, error) {
	typ := m.Executable.Tensors[p.Tensor].Type
	info, err := Info(typ)
	if err != nil {
		return graph.Step{}, fmt.Errorf("%q: %w", p.Name, err)
	}
	kind, step := popef.Input, graph.CopyIn
	if dir == graph.DeviceToHost {
		kind, step = popef.Output, graph.CopyOut
	}
	m.Metadata.Anchors = append(m.Metadata.Anchors, popef.Anchor{
		Name: p.Name, Handle: handle, Programs: programs, Info: info, Type: kind,
	})
	id := graph.StreamID(len(m.Executable.Streams))
	m.Executable.Streams = append(m.Executable.Streams, graph.Stream{Handle: handle, Direction: dir, Type: typ})
	return graph.Step{Kind: step, Stream: id, Tensor: p.Tensor}, nil
}
