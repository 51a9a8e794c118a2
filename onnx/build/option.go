package build

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/popefgen/popefgen/onnx"
)

// option is what a call of an operator's method may say besides operands.
type option interface{ apply(*call) }

// attribute is an attribute of a node. The options that are made of attributes embed it.
type attribute struct {
	onnx.Attribute
	body   Body   // of a subgraph
	inputs int    // of the subgraph; -1: as many as the operator says
	graph  *frame // the subgraph, once it is made
	wrong  error  // why there is none
}

func (a attribute) apply(c *call) { c.attribute(a) }

// Body is the function that makes a subgraph: it is called once, with the subgraph's inputs, while nodes go to the subgraph, and returns
// its outputs. It may use the values of the graphs around it.
type Body func(inputs Tensors) Tensors

// Say what attributes a node has.
func ofInt(name string, v int64) attribute {
	return attribute{Attribute: onnx.Attribute{Name: name, Type: onnx.AttrInt, Int: v}}
}

func ofBool(name string, v bool) attribute {
	if v {
		return ofInt(name, 1)
	}
	return ofInt(name, 0)
}

func ofType(name string, v onnx.ElemType) attribute { return ofInt(name, int64(v)) }

func ofFloat(name string, v float32) attribute {
	return attribute{Attribute: onnx.Attribute{Name: name, Type: onnx.AttrFloat, Float: v}}
}

func ofString(name, v string) attribute {
	return attribute{Attribute: onnx.Attribute{Name: name, Type: onnx.AttrString, String: []byte(v)}}
}

func ofInts(name string, v []int64) attribute {
	return attribute{Attribute: onnx.Attribute{Name: name, Type: onnx.AttrInts, Ints: slices.Clone(v)}}
}

func ofFloats(name string, v []float32) attribute {
	return attribute{Attribute: onnx.Attribute{Name: name, Type: onnx.AttrFloats, Floats: slices.Clone(v)}}
}

func ofStrings(name string, v []string) attribute {
	a := attribute{Attribute: onnx.Attribute{Name: name, Type: onnx.AttrStrings}}
	for _, s := range v {
		a.Strings = append(a.Strings, []byte(s))
	}
	return a
}

func ofTensor(name string, v *onnx.Tensor) attribute {
	return attribute{Attribute: onnx.Attribute{Name: name, Type: onnx.AttrTensor, Tensor: v}}
}

func ofGraph(name string, v Body) attribute {
	return attribute{Attribute: onnx.Attribute{Name: name, Type: onnx.AttrGraph}, body: v, inputs: -1}
}

// check refuses an attribute that a file can't hold.
func (a *attribute) check() error {
	switch {
	case a.wrong != nil:
		return a.wrong
	case a.Name == "":
		return errors.New("it has no name")
	case len(a.Name) > onnx.MaxName || !utf8.ValidString(a.Name):
		return fmt.Errorf("its name is longer than %d bytes, or not UTF-8", onnx.MaxName)
	case a.Type == onnx.AttrTensor:
		return check(a.Tensor)
	case a.Type == onnx.AttrGraph && a.body == nil:
		return errors.New("the function is nil")
	}
	return nil
}

// NodeOption is an option that nodes of all operators may have: a name, where the node is to run, or an attribute of somebody's own. A zero NodeOption says nothing.
type NodeOption struct {
	label     string
	attribute *attribute
}

func (o NodeOption) apply(c *call) {
	if o.label != "" {
		if !c.b.usableName(c.place, o.label) {
			c.wrong = true
		} else if c.label != "" {
			c.fail("the names %q and %q are given, want one", c.label, o.label)
		}
		c.label = o.label
	}
	if o.attribute != nil {
		c.attribute(*o.attribute)
	}
}

func ofNode(a attribute) NodeOption { return NodeOption{attribute: &a} }

// Name gives a node a name: PopART's debug name, which pages, profiles and errors show. Its results are called after it: Name("conv1") makes "conv1:0".
func Name(name string) NodeOption { return NodeOption{label: name} }

// VirtualGraph says which IPU is to run a node: the attribute __ipu_number of PopART. It is kept in the file and shown; the CPU engine runs all nodes.
func VirtualGraph(ipu int64) NodeOption { return ofNode(ofInt("__ipu_number", ipu)) }

// PipelineStage says in which stage of a pipeline a node runs: __pipeline_stage of PopART. See [VirtualGraph].
func PipelineStage(stage int64) NodeOption { return ofNode(ofInt("__pipeline_stage", stage)) }

// ExecutionPhase says in which phase of a program a node runs: __execution_phase of PopART. See [VirtualGraph].
func ExecutionPhase(phase int64) NodeOption { return ofNode(ofInt("__execution_phase", phase)) }

// Recompute is PopART's RecomputeType.
type Recompute int64

// What a backward pass does about the results of a node.
const (
	RecomputeUndefined Recompute = iota
	RecomputeCheckpoint
	RecomputeRecompute
	RecomputeRecomputed
)

// RecomputeOutput says whether a backward pass computes the results of a node again: __recompute_output_in_backward_pass of PopART. See [VirtualGraph].
func RecomputeOutput(r Recompute) NodeOption {
	return ofNode(ofInt("__recompute_output_in_backward_pass", int64(r)))
}

// AvailableMemory says which part of a tile's memory a node may use while it runs, from 0 to 1: __available_memory of PopART. See [VirtualGraph].
func AvailableMemory(proportion float32) NodeOption {
	return ofNode(ofFloat("__available_memory", proportion))
}

// SchedulePriority says which of the nodes that could run next does: __schedule_priority of PopART, the largest first. See [VirtualGraph].
func SchedulePriority(priority float32) NodeOption {
	return ofNode(ofFloat("__schedule_priority", priority))
}

// PartialSums says in which type a node adds up, "FLOAT" or "HALF": __partials_type of PopART, whose setPartialsType this is. See [VirtualGraph].
func PartialSums(elem string) NodeOption { return ofNode(ofString("__partials_type", elem)) }

// Attribute gives a node an attribute: one of a custom operator, one of the operator's own, or one of another compiler, whose name begins with "__". value is an int, int64, bool (1 or 0),
// [onnx.ElemType], float32, string, a slice of int64, float32 or string, or an *[onnx.Tensor]. For subgraphs see [Subgraph].
func Attribute(name string, value any) NodeOption {
	switch v := value.(type) {
	case int:
		return ofNode(ofInt(name, int64(v)))
	case int64:
		return ofNode(ofInt(name, v))
	case bool:
		return ofNode(ofBool(name, v))
	case onnx.ElemType:
		return ofNode(ofType(name, v))
	case float32:
		return ofNode(ofFloat(name, v))
	case string:
		return ofNode(ofString(name, v))
	case []int64:
		return ofNode(ofInts(name, v))
	case []float32:
		return ofNode(ofFloats(name, v))
	case []string:
		return ofNode(ofStrings(name, v))
	case *onnx.Tensor:
		return ofNode(ofTensor(name, v))
	}
	return ofNode(attribute{Attribute: onnx.Attribute{Name: name},
		wrong: fmt.Errorf("it is of type %T, want int, int64, bool, onnx.ElemType, float32, string, []int64, []float32, []string or *onnx.Tensor", value)})
}

// Subgraph gives a node of a custom operator an attribute that is a graph with so many inputs.
func Subgraph(name string, inputs int, body Body) NodeOption {
	a := ofGraph(name, body)
	if a.inputs = inputs; inputs < 0 || inputs > mostResults {
		a.wrong = fmt.Errorf("%d inputs, want 0 to %d", inputs, mostResults)
	}
	return ofNode(a)
}
