package lower

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/onnx"
)

// Value is an ONNX value while a model is lowered: a known constant, a tensor
// of the graph under construction, or both.
type Value struct {
	Name   string
	Type   graph.TensorType
	Known  bool
	Data   []byte         // if known
	tensor graph.TensorID // None until a node or an output needs it
	weight *weight        // the initialiser whose data this is, perhaps reshaped
	// quantised: it is an initialiser of bytes in rows, which is not converted
	// to floats now: there may be a product of bytes for it.
	quantised bool
	bad       bool      // could not be lowered; why has been reported, or
	why       *obstacle // is reported wherever something uses it
	// standIn: it could not be lowered, and has the type that the model declares
	// so that whatever depends on it is looked at, too.
	standIn bool

	counts   []*Value  // by axis: how many elements it has, nil where all; see [Value.Counted]
	dirty    bool      // what is behind the counts may be other than zero
	elements []Element // what is known of the elements of a short list, see [Value.Elements]

	// Where it comes from, for values that are not known.
	input    string   // the graph input that it is
	deps     []*Value // the operands it was computed from
	iterated bool     // it is what a loop of known trip count carries or counts
	left     error    // why it was not computed, though all operands were known
}

// weight is an initialiser, or the value of a Constant node, that stays a tensor of its own.
type weight struct {
	name   string
	typ    graph.TensorType
	data   []byte
	tensor graph.TensorID // None until used

	variable bool // [onnx.Options.Variable]: its value is not known
	read     bool // it is variable, and was taken as known all the same
}

// isWeight reports whether an initialiser of graph g is a weight and not a mere
// constant: it is of a floating-point type, and no number of a formula, such
// as the ε of a normalisation. Those have no dimensions, or are single
// elements of several dimensions that nothing but arithmetic reads.
func isWeight(g *onnx.Graph, t *onnx.Tensor, typ graph.TensorType) bool {
	switch typ.DType {
	case graph.F16, graph.BF16, graph.F32, graph.F64:
	default:
		return false
	}
	if typ.Elements() != 1 || typ.Rank() == 1 {
		return true
	}
	if typ.Rank() == 0 {
		return false
	}
	used := false
	for _, n := range g.Nodes {
		if !slices.Contains(n.Inputs, t.Name) {
			continue
		}
		switch n.OpType {
		case "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min":
			used = true
		default:
			return true
		}
	}
	return !used
}

// Weight makes of the value of a Constant node a weight that changes, if [onnx.Options.Variable] says so of its name: one, however often the node is
// lowered. In functions, which have no initialisers either, constants stay what they are.
func (c *Call) Weight(v *Value) *Value {
	name, variable := c.base(), c.l.opts.Variable
	if variable == nil || c.env.function != nil || !v.Known || !variable(name) {
		return v
	}
	w := c.l.constants[c.node]
	if w == nil {
		w = &weight{name: name, typ: v.Type, data: v.Data, tensor: graph.None, variable: true}
		c.l.constants[c.node] = w
	}
	return &Value{Name: name, Type: v.Type, tensor: w.tensor, weight: w}
}

// Constant returns the known value of a tensor.
func Constant(name string, t *onnx.Tensor) (*Value, error) {
	typ := graph.TensorType{DType: t.Elem.DType(), Shape: t.Dims}
	if !typ.DType.Valid() {
		return nil, fmt.Errorf("element type %v is not supported", t.Elem)
	}
	if err := typ.Check(); err != nil {
		return nil, err
	}
	if got, want := int64(len(t.Data)), typ.Bytes(); got != want {
		return nil, fmt.Errorf("%v holds %d bytes, want %d", typ, got, want)
	}
	return &Value{Name: name, Type: typ, Known: true, Data: t.Data, tensor: graph.None}, nil
}

// Known returns a value of the given type whose elements are known.
func Known(t graph.TensorType, data []byte) *Value {
	return &Value{Type: t, Known: true, Data: data, tensor: graph.None}
}

// KnownInts returns a known value of a new int64 tensor of rank 1.
func KnownInts(v ...int64) *Value {
	return Known(graph.TensorType{DType: graph.I64, Shape: []int64{int64(len(v))}}, encodeInts(v))
}

// Scalar returns a known value of one element without dimensions.
func Scalar(t graph.DType, x float64) *Value {
	return Known(graph.TensorType{DType: t}, EncodeFloat(t, x))
}

func encodeInts(v []int64) []byte {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

// EncodeFloat returns x as one element of type t; integer types take the
// value with its fraction cut off and limited to their range.
func EncodeFloat(t graph.DType, x float64) []byte {
	le := binary.LittleEndian
	switch t {
	case graph.F64:
		return le.AppendUint64(nil, math.Float64bits(x))
	case graph.F32:
		return le.AppendUint32(nil, math.Float32bits(float32(x)))
	case graph.F16:
		return le.AppendUint16(nil, uint16(num.Float16From64(x)))
	case graph.BF16:
		return le.AppendUint16(nil, uint16(num.BFloat16From64(x)))
	case graph.F8E4M3:
		return []byte{byte(num.Float8E4M3From64(x))}
	case graph.F8E5M2:
		return []byte{byte(num.Float8E5M2From64(x))}
	case graph.Bool:
		if x != 0 {
			return []byte{1}
		}
		return []byte{0}
	case graph.U64:
		return le.AppendUint64(nil, limitUint(x))
	}
	return EncodeInt(t, limitInt(t, x))
}

// EncodeInt returns x as one element of the integer type t, wrapped around.
func EncodeInt(t graph.DType, x int64) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(x))[:t.Size()]
}

func limitUint(x float64) uint64 {
	switch {
	case !(x > 0):
		return 0
	case x >= math.MaxUint64:
		return math.MaxUint64
	}
	return uint64(x)
}

// limitInt converts x to the nearest number in the range of an integer type
// of at most 63 bits.
func limitInt(t graph.DType, x float64) int64 {
	lo, hi := IntRange(t)
	switch {
	case x != x:
		return 0
	case x <= float64(lo):
		return lo
	case x >= float64(hi):
		return hi
	}
	return int64(x)
}

// IntRange returns the least and greatest numbers of an integer type, those
// of int64 at most.
func IntRange(t graph.DType) (lo, hi int64) {
	bits := 8 * t.Size()
	switch t {
	case graph.I4, graph.U4:
		bits = 4
	case graph.I2, graph.U2:
		bits = 2
	}
	if t.IsUnsigned() {
		return 0, int64(1)<<min(bits, 62) - 1
	}
	return -1 << (bits - 1), 1<<(bits-1) - 1
}

var errNotInteger = errors.New("its element type is not int32 or int64")

// Ints returns the elements of a known int32 or int64 value.
func (v *Value) Ints() ([]int64, error) {
	switch v.Type.DType {
	case graph.I64:
		out := make([]int64, len(v.Data)/8)
		for i := range out {
			out[i] = int64(binary.LittleEndian.Uint64(v.Data[8*i:]))
		}
		return out, nil
	case graph.I32:
		out := make([]int64, len(v.Data)/4)
		for i := range out {
			out[i] = int64(int32(binary.LittleEndian.Uint32(v.Data[4*i:])))
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: it is %v", errNotInteger, v.Type)
}

// Constant returns the value of an operand that parametrises an operator: if it is
// known, it is a constant and not a weight, and a weight that changes is what the model says. It is nil for nil.
func (v *Value) Constant() *Value {
	if v == nil || v.weight == nil {
		return v
	}
	p := *v
	v.weight.read = v.weight.variable
	p.Known, p.Data, p.weight, p.tensor = true, v.weight.data, nil, graph.None
	return &p
}

// Rank returns the number of dimensions.
func (v *Value) Rank() int64 { return int64(len(v.Type.Shape)) }

// One is the result list of an operator with one result.
func One(v *Value) []*Value { return []*Value{v} }
