// Package bind makes the kernels of operators and of nodes, within a budget: what
// their tables and results take is checked before a kernel is made.
package bind

import (
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Op makes a kernel if its tables, which room counts, and each of its results
// fit into memory. A kernel that panics on types it did not expect gives an
// error.
func Op(op graph.Op, in, out []graph.TensorType, room *budget.Budget) (k tensor.Kernel, err error) {
	return bindSome(op, in, out, out, room)
}

// Made is a kernel that was made before its node is bound, with what it was made for.
type Made struct {
	Kernel tensor.Kernel // nil for none
	Tables int64         // bytes of its tables, at most, which count on no budget yet
	in     []graph.TensorType
	out    int // results
}

// Make is [Op] for a kernel whose tables take less than memory says, and count later.
func Make(op graph.Op, in, out []graph.TensorType, memory int64) (Made, error) {
	room := budget.New(memory)
	k, err := Op(op, in, out, room)
	if err != nil {
		return Made{}, err
	}
	return Made{k, room.Used(), in, len(out)}, nil
}

// bindSome is [Op] where all are the types of the results, those that are left out
// included.
func bindSome(op graph.Op, in, out, all []graph.TensorType, room *budget.Budget) (k tensor.Kernel, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("operator %s: bind kernel: %w", op.Kind(), ipu.NewPanicError(v))
		}
	}()
	for i, t := range out {
		if t.DType == graph.Invalid {
			continue
		}
		if n := t.Bytes(); n > room.Limit() {
			return nil, TooMuch(&budget.Error{What: fmt.Sprintf("operator %s: result %d of type %v", op.Kind(), i, t), Need: n, Limit: room.Limit()})
		}
	}
	if err := takeTables(op, kernel.Tables(op, in, all), room); err != nil {
		return nil, err
	}
	if k, err = kernel.New(op, in, out); err == nil && k.Scratch() < 0 {
		return nil, TooMuch(&budget.Error{What: fmt.Sprintf("operator %s: scratch memory", op.Kind()), Need: math.MaxInt64, Limit: room.Limit()})
	}
	return k, err
}

func takeTables(op graph.Op, n int64, room *budget.Budget) error {
	if err := room.Take(n, "operator %s: the tables of its kernel", op.Kind()); err != nil {
		return TooMuch(err)
	}
	return nil
}

// TooMuch makes a refusal of a budget one of the device.
func TooMuch(err error) error { return &ipu.Error{Kind: ipu.KindMemory, Err: err} }

// Node makes a node's kernel, or takes the one that was made for it, and returns how many
// results it has, left-out ones included.
func Node(exe *graph.Executable, node *graph.Node, made Made, room *budget.Budget) (k tensor.Kernel, results int, err error) {
	in := make([]graph.TensorType, len(node.Inputs))
	for i, t := range node.Inputs {
		if t != graph.None {
			in[i] = exe.Tensors[t].Type
		}
	}
	if made.Kernel != nil && made.out == 1 && slices.EqualFunc(in, made.in, graph.TensorType.Equal) {
		if err := takeTables(node.Op, made.Tables, room); err != nil {
			return nil, 0, err
		}
		return made.Kernel, 1, nil
	}
	out, err := node.Op.Infer(in)
	if err != nil {
		return nil, 0, err
	}
	all := slices.Clone(out)
	for i := range out {
		if i >= len(node.Outputs) || node.Outputs[i] == graph.None {
			out[i] = graph.TensorType{}
		}
	}
	k, err = bindSome(node.Op, in, out, all, room)
	return k, len(out), err
}
