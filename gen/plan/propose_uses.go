package plan

import (
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// uses finds out what makes and what reads the tensors of a portable executable.
type uses struct {
	exe    *graph.Executable // nil if the model has none
	makers map[graph.TensorID]*graph.Node
	copied map[string]graph.TensorID // tensors by stream handle
	reads  map[graph.TensorID][]read
}

// read is an operand of a node.
type read struct {
	node    *graph.Node
	operand int
}

// mostHops bounds how far a use is followed through operators that move or
// scale elements alone.
const mostHops = 12

func usesOf(m *popef.Model) *uses {
	u := &uses{makers: map[graph.TensorID]*graph.Node{}, copied: map[string]graph.TensorID{}, reads: map[graph.TensorID][]read{}}
	if m.ExecutableBlob() == nil {
		return u
	}
	data, err := m.Executable()
	if err != nil || ipu.Identify(data) != ipu.FormatPortable {
		return u
	}
	if u.exe, err = encoding.Decode(data); err != nil {
		return u // whoever opens the model says why
	}
	for g := range u.exe.Graphs {
		for n := range u.exe.Graphs[g].Nodes {
			node := &u.exe.Graphs[g].Nodes[n]
			for _, t := range node.Outputs {
				u.makers[t] = node
			}
			for i, t := range node.Inputs {
				u.reads[t] = append(u.reads[t], read{node, i})
			}
		}
	}
	for _, p := range u.exe.Programs {
		u.transfers(p.Steps)
	}
	return u
}

func (u *uses) transfers(steps []graph.Step) {
	for _, s := range steps {
		switch s.Kind {
		case graph.CopyIn, graph.CopyOut:
			u.copied[u.exe.Streams[s.Stream].Handle] = s.Tensor
		case graph.Repeat:
			u.transfers(s.Body)
		}
	}
}

// name returns what a tensor can be called after its use, or "".
func (u *uses) name(a *popef.Anchor, r contract.Role) string {
	t, ok := u.copied[a.Handle]
	if !ok {
		return ""
	}
	switch r {
	case contract.RunOutput:
		return u.madeName(t, a.Info.Shape)
	case contract.RunInput:
		if u.isImage(t, a.Info.Shape) {
			return "Image"
		}
	}
	return ""
}

// madeName names a result after the operator that gave it its meaning.
func (u *uses) madeName(t graph.TensorID, shape []int64) string {
	for range mostHops {
		n := u.makers[t]
		if n == nil || len(n.Inputs) == 0 {
			return ""
		}
		switch op := n.Op.(type) {
		case *graph.Softmax:
			return "Probabilities"
		case *graph.ArgMax:
			return "Indices"
		case *graph.TopK:
			if len(n.Outputs) > 1 && n.Outputs[1] == t {
				return "Indices"
			}
			return ""
		case *graph.Unary:
			if op.Fn == graph.Sigmoid {
				return scoresOf(shape)
			}
			return ""
		case *graph.Pointwise:
			if op.Fns[len(op.Fns)-1] == string(graph.Sigmoid) {
				return scoresOf(shape)
			}
			return ""
		case *graph.Reshape, *graph.Transpose, *graph.Cast, *graph.Dequantize, *graph.Quantize:
			t = n.Inputs[0]
		default:
			return ""
		}
	}
	return ""
}

// scoresOf is what sigmoids of a shape are called: per class, if there are rows of
// classes; of more dimensions they may be a mask or gates.
func scoresOf(shape []int64) string {
	if len(shape) > 2 {
		return ""
	}
	return "Scores"
}

// isImage reports whether a tensor has the shape of images and is convolved,
// after operators that move or scale its elements at most.
func (u *uses) isImage(t graph.TensorID, shape []int64) bool {
	const least = 8 // pixels of a side
	if len(shape) != 4 || !colours(shape[1]) && !colours(shape[3]) || shape[2] < least {
		return false
	}
	for range mostHops {
		if len(u.reads[t]) == 0 {
			return false
		}
		r := u.reads[t][0]
		if r.operand != 0 || len(r.node.Outputs) == 0 {
			return false
		}
		switch r.node.Op.(type) {
		case *graph.Conv, *graph.IntegerConv:
			return true
		case *graph.Transpose, *graph.Cast, *graph.Pad, *graph.Pointwise, *graph.Binary, *graph.Unary, *graph.Quantize, *graph.Dequantize, *graph.Slice, *graph.Reshape:
			t = r.node.Outputs[0]
		default:
			return false
		}
	}
	return false
}

// colours reports whether an image may have that many channels.
func colours(n int64) bool { return n == 1 || n == 3 || n == 4 }
