package eval

import (
	"context"
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/work"
)

// ErrNotFolded is wrapped by the error of [Folder.Fold] where an operator is
// better left to the executable: it would take too long, give too much, or
// nothing says what it takes. It is [graph.ErrNotFolded].
var ErrNotFolded = graph.ErrNotFolded

// Bounds on what a [Folder] computes. Beyond them an operator on known operands
// is left to the executable, which is right as well, only slower. What a model
// holds itself, as weights, may be converted some times over.
const (
	foldResult = 32 << 20 // bytes of one result that is larger than its operands
	foldBytes  = 64 << 20 // of all results, beside some copies of what the model holds
	foldCopies = 4
	foldWork   = 1 << 28 // operations of one operator, beside some for each byte of its operands
	foldTotal  = 1 << 29 // and of all, beside some for each byte that the model holds
	foldEach   = 32
)

// Folder computes operators on constants while a model is compiled, within
// bounds and until its context is done.
type Folder struct {
	ctx               context.Context
	memory            *budget.Budget
	held, bytes, work int64
}

// NewFolder returns a Folder whose results count on the budget of ctx, with a limit of
// memory bytes, 0 for what that budget has (see the engine option "memory"), and which stops
// when ctx is done.
func NewFolder(ctx context.Context, memory int64) *Folder {
	room := budget.From(ctx)
	if memory > 0 {
		room = room.Part(memory)
	}
	return &Folder{ctx: ctx, memory: room}
}

// Hold counts bytes of constants that the model holds: what is computed may be
// some times as much.
func (f *Folder) Hold(n int64) { f.held = budget.Add(f.held, n) }

// Fold computes one operator as [Op] does. The error wraps [ErrNotFolded]
// where it is not worth it, and the context's where that is done.
func (f *Folder) Fold(op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte, error) {
	if err := f.ctx.Err(); err != nil {
		return nil, nil, err
	}
	out, err := op.Infer(in)
	if err != nil {
		return nil, nil, fmt.Errorf("evaluate %s: %w", op.Kind(), err)
	}
	inBytes, outBytes := int64(0), int64(0)
	for _, d := range data {
		inBytes += int64(len(d))
	}
	for _, t := range out {
		outBytes = budget.Add(outBytes, t.Bytes())
	}
	ops, known := work.Of(op, in, out)
	switch {
	case !known:
		return nil, nil, fmt.Errorf("%s has no declared cost: %w", op.Kind(), ErrNotFolded)
	case outBytes > foldResult && outBytes > inBytes,
		f.bytes > budget.Add(foldBytes, budget.Mul(foldCopies, f.held))-outBytes,
		ops > budget.Add(foldWork, budget.Mul(foldEach, inBytes)),
		f.work > budget.Add(foldTotal, budget.Mul(foldEach, f.held))-ops:
		return nil, nil, fmt.Errorf("%s gives %s with some %d operations: %w", op.Kind(), budget.Text(outBytes), ops, ErrNotFolded)
	}
	if err := f.memory.Take(outBytes, "constants computed at compile time"); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotFolded, err)
	}
	types, results, err := eval(f.ctx, budget.New(f.memory.Left()), op, in, data)
	if err != nil {
		if errors.Is(err, budget.ErrExceeded) {
			err = fmt.Errorf("%w: %w", ErrNotFolded, err)
		}
		return nil, nil, err
	}
	f.bytes += outBytes
	f.work += ops
	return types, results, nil
}

// Make counts a constant of n bytes that somebody is about to make without an
// operator, element by element. The error wraps [ErrNotFolded].
func (f *Folder) Make(n int64) error {
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if n > foldResult || f.bytes > budget.Add(foldBytes, budget.Mul(foldCopies, f.held))-n {
		return fmt.Errorf("a constant of %s beside %s made before: %w", budget.Text(n), budget.Text(f.bytes), ErrNotFolded)
	}
	if err := f.memory.Take(n, "constants made at compile time"); err != nil {
		return fmt.Errorf("%w: %w", ErrNotFolded, err)
	}
	f.bytes += n
	return nil
}

// alone is a [kernel.Pool] of one worker whose run ends with a context.
type alone struct {
	tensor.Serial
	ctx   context.Context
	ended bool
}

// Ended implements [kernel.Pool].
func (a *alone) Ended() bool {
	a.ended = a.ended || a.ctx.Err() != nil
	return a.ended
}

// Run implements [kernel.Pool].
func (a *alone) Run(t tensor.Task, parts int) {
	for i := range parts {
		if i > 0 && a.Ended() {
			break
		}
		t.Do(i)
	}
	if a.ended {
		panic(workers.Interrupted{})
	}
}

// RunRounds implements [kernel.Pool].
func (a *alone) RunRounds(t tensor.RoundTask, rounds, items int) {
	for r := 0; r < rounds && !a.Ended(); r++ {
		t.DoRound(r, 0, items)
	}
	if a.ended {
		panic(workers.Interrupted{})
	}
}
