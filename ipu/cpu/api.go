package cpu

import (
	"context"

	"github.com/popefgen/popefgen/ipu/cpu/internal/costs"
	"github.com/popefgen/popefgen/ipu/cpu/internal/eval"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Costs is a record of what steps of a plan take on one machine, from which the engine
// estimates which layout activations get and where operators are fused tile by
// tile. No result depends on it. [github.com/popefgen/popefgen/ipu/cpu/calibrate]
// measures it, and the engine option "costs" takes its JSON form.
type Costs = costs.Record

// ErrCosts is what errors about records of costs wrap.
var ErrCosts = costs.ErrRecord

// ParseCosts reads a record of costs from its JSON form and checks it. Errors
// wrap [ErrCosts].
func ParseCosts(data []byte) (Costs, error) { return costs.Parse(data) }

// UsualCosts returns the costs that the engine takes where the option "costs"
// gives no others: those of one machine for each path of the kernels, zero where
// kernels are in plain Go.
func UsualCosts() Costs { return costs.Usual() }

// Layout sums up which activations of a plan have another layout than the model's.
type Layout = layout.Summary

// ErrNotFolded is wrapped by the error of [Folder.Fold] where an operator is
// better left to the executable: it would take too long, give too much, or
// nothing says what it takes.
var ErrNotFolded = eval.ErrNotFolded

// Folder computes operators on constants while a model is compiled, within
// bounds and until its context is done.
type Folder = eval.Folder

// NewFolder returns a Folder whose results count on the budget of ctx, with a limit of
// memory bytes, 0 for what that budget has (see the engine option "memory"), and which stops
// when ctx is done.
func NewFolder(ctx context.Context, memory int64) *Folder { return eval.NewFolder(ctx, memory) }

// Eval computes one operator: in are the types of its operands, of which a
// left-out one has the zero type, and data their elements, row-major and
// little-endian. It returns the types and elements of all results. It is
// meant for computing single operators; a [Folder] has bounds besides, and an
// engine plans whole graphs.
func Eval(op graph.Op, in []graph.TensorType, data [][]byte) (out []graph.TensorType, outData [][]byte, err error) {
	return eval.Op(op, in, data)
}
