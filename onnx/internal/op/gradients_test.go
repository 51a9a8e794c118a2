package op

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
)

// Gradients says of every operator whether it has a gradient: of the newest form, lowered with the operands of its case in
// TestTypes, the gradient of each operand of floats is asked for by itself. For docs/operators.md.
func Gradients(t *testing.T) map[string]string {
	said := map[string]string{}
	for _, c := range allTypeCases() { // a newer form comes later
		said[c.name] = c.gradient(t)
	}
	inGraphs := "yes, where the number of iterations is constant and there is no condition (Loop)"
	maps.Copy(said, map[string]string{"If": "yes (If)", "Loop": inGraphs, "Scan": inGraphs, "Cast": "yes, between floats (Cast)", "BitCast": ruleOf("BitCast"), "ai.onnx.preview.training.Gradient": "as the operators have that it differentiates"})
	return said
}

// ruleOf returns why an operator of the portable executable has no gradient.
func ruleOf(kind string) string {
	for _, r := range autodiff.Rules() {
		if r.Kind == kind {
			return "no: " + r.Why
		}
	}
	return ""
}

// gradient says whether a case has a gradient.
func (c *typeCase) gradient(t *testing.T) string {
	m, _ := c.model(t, c.tensors(t, c.usual()))
	low := c.lower(t, m)
	e := low.Executable
	var results []graph.TensorID
	for _, o := range low.Outputs {
		typ := e.Tensors[o.Tensor]
		if isFloat(typ.Type.DType) && !typ.Const && !slices.Contains(results, o.Tensor) {
			results = append(results, o.Tensor)
		}
	}
	kinds := map[string]bool{}
	var with []string
	why := map[string][]string{}
	for _, in := range low.Inputs {
		if !isFloat(e.Tensors[in.Tensor].Type.DType) || len(results) == 0 {
			continue
		}
		var at int
		_, err := fmt.Sscanf(in.Name, "x%d", &at)
		require.NoError(t, err)
		name := c.form.Operand(at).Name
		asked := *e
		_, err = autodiff.Backward(&asked, low.Main, autodiff.Options{Provided: results, Required: []graph.TensorID{in.Tensor}})
		var blocked *autodiff.Blocked
		if errors.As(err, &blocked) && len(results) > 1 { // what comes behind the first result may have none
			asked = *e
			_, err = autodiff.Backward(&asked, low.Main, autodiff.Options{Provided: results[:1], Required: []graph.TensorID{in.Tensor}})
		}
		switch {
		case err == nil:
			with = append(with, name)
		case errors.As(err, &blocked):
			if o := blocked.Obstacles[0]; o.Operator != "" {
				why[o.Why] = append(why[o.Why], name)
			}
		default:
			require.NoError(t, err, c.name)
		}
	}
	for _, n := range e.Graphs[low.Main].Nodes {
		if n.Outputs[0] != graph.None && isFloat(e.Tensors[n.Outputs[0]].Type.DType) {
			kinds[n.Op.Kind()] = true
		}
	}
	var text []string
	switch {
	case len(with) > 0 && len(kinds) > 0:
		text = append(text, fmt.Sprintf("yes (%s)", strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")))
	case len(with) > 0:
		text = append(text, "yes")
	case len(why) == 0:
		return "zero"
	}
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		of := "no: "
		if len(with) > 0 {
			of = "not of " + strings.Join(why[reason], ", ") + ": "
		}
		text = append(text, of+reason)
	}
	return strings.Join(text, "; ")
}

func isFloat(d graph.DType) bool {
	return d == graph.F16 || d == graph.BF16 || d == graph.F32 || d == graph.F64
}
