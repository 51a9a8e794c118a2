package kernel

import (
	"math"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/attention"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/fourier"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/move"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/quant"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
	"github.com/popefgen/popefgen/ipu/graph"
)

// tableBase is what a kernel of any operator may allocate when it is bound,
// besides what [tables] declares and what [attributeBytes] counts: its fields,
// and lists with an entry for each operand or axis.
const tableBase = 24 << 10

// tableSlack is how much more than its elements memory takes: sizes are rounded
// up to those that the allocator has.
const tableSlack = 1.25

// Tables returns an upper bound of the bytes that [New] allocates for op: what
// has an entry for each position of an axis, element of a window or matrix of a
// batch. Whoever binds kernels of a model that is not to be trusted counts them
// before. The types of results are those that op.Infer gives, also of those that
// are left out. An operator without an entry in the list below has none; a test binds
// all operators and compares.
func Tables(op graph.Op, in, out []graph.TensorType) int64 {
	n := int64(tableBase)
	if o, ok := op.(*nchwc.FusedTiles); ok {
		return budget.Add(n, nchwc.FusedTilesTableBytes(Tables, o, in))
	}
	for _, family := range tables {
		if d := family[op.Kind()]; d != nil {
			n = budget.Add(n, grown(d(op, in, out)))
		}
	}
	return budget.Add(n, attributeBytes(op), int64(256*(len(in)+len(out))))
}

// grown adds what the allocator rounds up.
func grown(n int64) int64 {
	if n > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return int64(float64(n) * tableSlack)
}

// attributeBytes bounds the copies of attributes that are lists.
func attributeBytes(op graph.Op) int64 {
	switch o := op.(type) {
	case *graph.TfIdf:
		return int64(256 * (len(o.Pool) + len(o.Columns) + len(o.Counts)))
	case *graph.Pointwise:
		return int64(1024 * len(o.Fns))
	case *vec.RoundedPointwise:
		return int64(1024 * len(o.Fns))
	}
	return 0
}

// tables lists, per family, the operators whose kernels have tables.
var tables = []map[string]tensor.Declared{
	gemm.Tables,
	conv.Tables,
	window.Tables,
	nchwc.Tables,
	nhwc.Tables,
	quant.Tables,
	move.Tables,
	attention.Tables,
	fourier.Tables,
}
