package train

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// findConstants finds the Constant nodes whose values are weights, as some exporters write them: these are trained like initialisers. They are
// those that layers read as matrices, kernels or tables, and where there is one such, also as biases, scales and statistics. Others write ones and
// zeros there that nobody learns, next to weights that are initialisers.
func (t *trainer) findConstants() {
	t.constants = map[string]bool{}
	var vectors, others []string
	everyValue(t.model, func(name string, value *onnx.Tensor, constant bool) {
		if !constant || !isFloat(value.Elem) {
			return
		}
		switch kind := t.readAs(name, value.Dims, map[string]bool{}); {
		case kind == aMatrix:
			t.constants[name] = true
		case kind == aVector || t.statistics(name):
			vectors = append(vectors, name)
		}
		if varied(value) {
			others = append(others, name)
		}
	})
	if len(t.constants) > 0 {
		for _, name := range vectors {
			t.constants[name] = true
		}
	}
	for _, name := range others {
		if !t.constants[name] && !t.frozen(name) && !slices.Contains(t.left, name) {
			t.left = append(t.left, name)
		}
	}
}

// varied reports whether a tensor has elements that differ.
func varied(t *onnx.Tensor) bool {
	size := t.Elem.DType().Size()
	return len(t.Data) > size && !bytes.Equal(t.Data[size:], t.Data[:len(t.Data)-size])
}

// everyValue visits the initialisers of the main graph and the graphs in it, and the tensors of their Constant nodes, by name.
func everyValue(m *onnx.Model, visit func(name string, value *onnx.Tensor, constant bool)) {
	everyGraph(m.Graph, func(g *onnx.Graph) {
		for _, w := range g.Initializers {
			visit(w.Name, w, false)
		}
		for _, n := range g.Nodes {
			if n.OpType != "Constant" || n.Domain != "" && n.Domain != "ai.onnx" || len(n.Outputs) != 1 {
				continue
			}
			for _, a := range n.Attributes {
				if a.Name == "value" && a.Tensor != nil {
					visit(n.Outputs[0], a.Tensor, true)
				}
			}
		}
	})
}

// isFloat reports whether elements of a type can be trained.
func isFloat(e onnx.ElemType) bool {
	switch e.DType() {
	case graph.F16, graph.BF16, graph.F32, graph.F64:
		return true
	}
	return false
}

// weightKind says as what kind of weight a layer reads a constant.
type weightKind uint8

const (
	noWeight weightKind = iota
	aVector             // a bias, a scale, slopes
	aMatrix             // or a kernel, or a table
)

// readAs returns as what layers read a constant, or what moves of its elements give. What is added or multiplied is a weight where it has a single
// axis, as biases and scales do: masks and tables of positions have more, and what is subtracted or divided by prepares inputs. seen is as
// for [trainer.schemeOf].
func (t *trainer) readAs(name string, shape []int64, seen map[string]bool) weightKind {
	kind := noWeight
	if seen[name] {
		return kind
	}
	seen[name] = true
	for _, u := range t.consumed[name] {
		switch u.node.OpType {
		case "Add", "Mul":
			if long(shape) == 1 {
				kind = max(kind, aVector)
			}
		case "Sub", "Div":
		default:
			switch byUse(u, shape).kind {
			case uniform, normal:
				return aMatrix
			case filled:
				kind = max(kind, aVector)
			}
		}
		if to, after := moved(u, shape); to != nil {
			kind = max(kind, t.readAs(to.Outputs[0], after, seen))
		}
	}
	return kind
}

// long returns how many axes have more than one element.
func long(dims []int64) (n int) {
	for _, d := range dims {
		if d > 1 {
			n++
		}
	}
	return n
}

// aboutConstants says which constants are trained, since models of inference have them as constants, and which are not.
func (t *trainer) aboutConstants() {
	var trained []string
	for _, name := range t.result.Trained {
		if t.constants[name] {
			trained = append(trained, name)
		}
	}
	warn := func(format string, args ...any) {
		t.result.Warnings = append(t.result.Warnings, fmt.Sprintf(format, args...))
	}
	if len(trained) > 0 {
		warn("%s: values of Constant nodes, which are trained; a package of inference has them as constants and can't be given others: compile the model that popefgen extract makes, or freeze them (--freeze PATTERN)", list(trained))
	}
	if len(t.left) > 0 {
		warn("%s: values of Constant nodes, which stay as they are since no layer reads them as its matrix, kernel or table; make an initializer of what is to be trained", list(t.left))
	}
}
