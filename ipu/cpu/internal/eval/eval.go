// Package eval computes single operators: one of which everything is known (Op), or
// many at compile time within bounds (Folder).
package eval

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Op computes one operator: in are the types of its operands, of which a
// left-out one has the zero type, and data their elements, row-major and
// little-endian. It returns the types and elements of all results. It is
// meant for computing single operators; a [Folder] has bounds besides, and an
// engine plans whole graphs.
func Op(op graph.Op, in []graph.TensorType, data [][]byte) (out []graph.TensorType, outData [][]byte, err error) {
	return eval(context.Background(), budget.New(0), op, in, data)
}

// eval is [Op] within the given memory, until ctx is done.
func eval(ctx context.Context, room *budget.Budget, op graph.Op, in []graph.TensorType, data [][]byte) (out []graph.TensorType, outData [][]byte, err error) {
	fail := func(err error) ([]graph.TensorType, [][]byte, error) {
		return nil, nil, fmt.Errorf("evaluate %s: %w", op.Kind(), err)
	}
	if len(data) != len(in) {
		return fail(fmt.Errorf("%d operands with data for %d", len(in), len(data)))
	}
	operands := make([][]byte, len(in))
	for i, t := range in {
		if t.DType == graph.Invalid {
			continue
		}
		if err := t.Check(); err != nil {
			return fail(fmt.Errorf("operand %d: %w", i, err))
		}
		if want := t.Bytes(); int64(len(data[i])) != want {
			return fail(fmt.Errorf("operand %d of type %v has %d bytes, want %d", i, t, len(data[i]), want))
		}
		operands[i] = data[i]
		if data[i] == nil || !align.To(data[i], t.DType.Size()) {
			operands[i] = align.Bytes(t.Bytes())
			copy(operands[i], data[i])
		}
	}
	if out, err = op.Infer(in); err != nil {
		return fail(err)
	}
	k, err := bind.Op(op, in, out, room)
	if err != nil {
		return fail(err)
	}
	need := int64(k.Scratch())
	for _, t := range out {
		need = budget.Add(need, t.Bytes())
	}
	if err := room.Take(need, "results and scratch memory"); err != nil {
		return fail(bind.TooMuch(err))
	}
	outData = make([][]byte, len(out))
	for i, t := range out {
		outData[i] = align.Bytes(t.Bytes())
	}
	if err := evalKernel(ctx, k, operands, outData); err != nil {
		return fail(err)
	}
	return out, outData, nil
}

func evalKernel(ctx context.Context, k tensor.Kernel, in, out [][]byte) (err error) {
	defer func() {
		if v := recover(); v == (workers.Interrupted{}) {
			err = ctx.Err()
		} else if v != nil {
			err = ipu.NewPanicError(v)
		}
	}()
	p := &alone{ctx: ctx}
	if err := k.Run(p, in, out, align.Bytes(int64(k.Scratch()))); err != nil {
		return err
	}
	if p.ended { // it may have left out what is not done in parts
		return ctx.Err()
	}
	return nil
}
