package optim

import (
	"encoding/binary"
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// emitter appends nodes and keeps the first error.
type emitter struct {
	b     *graph.Builder
	name  string
	nodes int // how many have been appended
	err   error
}

func (e *emitter) node(op graph.Op, in ...graph.TensorID) graph.TensorID {
	if e.err != nil {
		return graph.None
	}
	out, err := e.b.Node(op, e.name, in...)
	if err != nil {
		e.err = err
		return graph.None
	}
	e.nodes++
	if len(out) == 0 {
		return graph.None
	}
	return out[0]
}

// to appends a node that writes a tensor that is there.
func (e *emitter) to(op graph.Op, out graph.TensorID, in ...graph.TensorID) {
	if e.err != nil {
		return
	}
	e.err = e.b.NodeTo(op, e.name, []graph.TensorID{out}, in...)
	e.nodes++
}

func (e *emitter) binary(fn graph.BinaryFn, a, b graph.TensorID) graph.TensorID {
	return e.node(&graph.Binary{Fn: fn}, a, b)
}

// reduce sums or averages all elements.
func (e *emitter) reduce(x graph.TensorID, fn graph.ReduceFn) graph.TensorID {
	var axes []int64
	for i := range e.b.Type(x).Shape {
		axes = append(axes, int64(i))
	}
	return e.node(&graph.Reduce{Fn: fn, Axes: axes}, x)
}

// cast returns x in type t.
func (e *emitter) cast(x graph.TensorID, t graph.DType) graph.TensorID {
	if e.b.Type(x).DType == t {
		return x
	}
	return e.node(&graph.Cast{To: t}, x)
}

// number returns a constant of no dimensions, F32 or F64.
func (e *emitter) number(t graph.DType, v float64) graph.TensorID {
	if e.err != nil {
		return graph.None
	}
	data := binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))
	if t == graph.F32 {
		data = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
	}
	return e.b.AddConst(e.name, graph.TensorType{DType: t}, data)
}

// integer returns a constant of no dimensions, I32 or I64.
func (e *emitter) integer(t graph.DType, v int64) graph.TensorID {
	if e.err != nil {
		return graph.None
	}
	return e.b.AddConst(e.name, graph.TensorType{DType: t}, binary.LittleEndian.AppendUint64(nil, uint64(v))[:t.Size()])
}
