package compile

import (
	"slices"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef/family"
)

// runOutputs returns what a run gives: the model's outputs, then the counts of those whose
// sizes data decides.
func runOutputs(low *onnx.Lowered) []onnx.Port { return slices.Concat(low.Outputs, low.Counts) }

// countedFamily describes a model of one size of whose outputs data decides sizes; nil where it
// decides none.
func countedFamily(r *Result) *family.Family {
	if len(r.Counts) == 0 {
		return nil
	}
	f := &family.Family{Members: []family.Member{{Program: r.Metadata.ProgramFlow.Main[0], Sizes: []int64{}, Cost: operations(r.Executable, MainProgram)}}}
	for k, a := range r.Metadata.Anchors[:r.runAnchors()] {
		t := family.Tensor{Name: a.Name, Type: a.Type, Elem: a.Info.DataType, Anchors: []int{k}}
		for axis, n := range a.Info.Shape {
			t.Axes = append(t.Axes, family.Axis{Size: n, Dim: -1, Count: r.countOf(k, axis)})
		}
		f.Tensors = append(f.Tensors, t)
	}
	return f
}

// runAnchors is how many anchors a main program has: inputs, outputs, counts.
func (r *Result) runAnchors() int { return len(r.Inputs) + len(r.Outputs) + len(r.Counts) }

// countOf names the count of an axis of a main program's anchor, "" if it has none.
func (r *Result) countOf(anchor, axis int) string {
	if i := anchor - len(r.Inputs); i >= 0 && i < len(r.Outputs) && r.Outputs[i].Counts != nil {
		return r.Outputs[i].Counts[axis]
	}
	return ""
}
