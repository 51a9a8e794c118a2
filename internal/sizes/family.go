package sizes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef/family"
)

// Shares says what programs of an executable have in common.
type Shares struct {
	Operators     []int // by program
	Bytes, Common int64 // of weights and constants: all, and of those that several programs read
}

// Sharing counts what the programs of an executable share; the first one loads weights.
func Sharing(e *graph.Executable) (s Shares) {
	readers := make([]int, len(e.Tensors)) // programs that read a tensor, other than the load program
	for p := range e.Programs {
		seen := make([]bool, len(e.Tensors))
		count := 0
		read := func(ids []graph.TensorID) {
			for _, t := range ids {
				if t != graph.None && !seen[t] {
					seen[t] = true
					readers[t] += min(p, 1)
				}
			}
		}
		done := make([]bool, len(e.Graphs))
		var visit func(g graph.GraphID)
		visit = func(g graph.GraphID) {
			if done[g] {
				return
			}
			done[g] = true
			count += len(e.Graphs[g].Nodes)
			read(e.Graphs[g].Results)
			for i := range e.Graphs[g].Nodes {
				n := &e.Graphs[g].Nodes[i]
				read(n.Inputs)
				for _, sub := range graph.Subgraphs(n.Op) {
					visit(sub)
				}
			}
		}
		graph.Walk(e.Programs[p].Steps, func(step *graph.Step) {
			switch step.Kind {
			case graph.Call:
				visit(step.Graph)
			case graph.CopyOut:
				read([]graph.TensorID{step.Tensor})
			}
		})
		s.Operators = append(s.Operators, count)
	}
	for i := range e.Tensors {
		if t := &e.Tensors[i]; (t.Const || t.Persistent) && readers[i] > 0 {
			s.Bytes += t.Type.Bytes()
			if readers[i] > 1 {
				s.Common += t.Type.Bytes()
			}
		}
	}
	return s
}

// ShapeText shows the shape of a tensor of a family: an open axis by its dimension, as in
// [batch,(seq+1)/2,64], or by the sizes that it has where it follows from none.
func ShapeText(f *family.Family, t *family.Tensor) string {
	if len(t.Axes) == 0 {
		return "scalar"
	}
	words := make([]string, len(t.Axes))
	for i := range t.Axes {
		words[i] = axisText(f, &t.Axes[i])
	}
	return "[" + strings.Join(words, ",") + "]"
}

func axisText(f *family.Family, a *family.Axis) string {
	switch {
	case a.Sizes == nil:
		return fmt.Sprint(a.Size)
	case a.Dim < 0:
		var sizes []string
		for _, n := range a.Sizes {
			if s := fmt.Sprint(n); !slices.Contains(sizes, s) {
				sizes = append(sizes, s)
			}
		}
		return strings.Join(sizes, "|")
	}
	s := f.Dims[a.Dim].Name
	if a.Mul != 1 {
		s = fmt.Sprintf("%d%s", a.Mul, s)
	}
	if a.Add != 0 {
		s += fmt.Sprintf("%+d", a.Add)
	}
	if a.Div != 1 {
		if a.Add != 0 {
			s = "(" + s + ")"
		}
		s += fmt.Sprintf("/%d", a.Div)
	}
	return s
}
