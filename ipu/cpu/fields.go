package cpu

import (
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// describeFields says of streams whose transfers operators take apart what is in them.
func (e *Engine) describeFields() {
	fields := map[graph.TensorID][]ipu.FieldInfo{}
	for i := range e.exe.Graphs {
		for _, n := range e.exe.Graphs[i].Nodes {
			if f, ok := n.Op.(*graph.Field); ok {
				fields[n.Inputs[0]] = append(fields[n.Inputs[0]], ipu.FieldInfo{Handle: f.Handle, Offset: int(f.Offset), Type: f.To.String(), Shape: slices.Clone(f.Shape)})
			}
		}
	}
	if len(fields) == 0 {
		return
	}
	for i := range e.exe.Programs {
		graph.Walk(e.exe.Programs[i].Steps, func(s *graph.Step) {
			if s.Kind == graph.CopyIn {
				if f, info := fields[s.Tensor], &e.streams[s.Stream].info; f != nil && info.Fields == nil {
					info.Fields = f
				}
			}
		})
	}
}
