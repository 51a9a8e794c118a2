package kernel

import (
	"math"
	"runtime"

	"github.com/popefgen/popefgen/internal/budget"
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
	if o, ok := op.(*Chain); ok {
		return budget.Add(n, chainTables(o, in))
	}
	if d := tables[op.Kind()]; d != nil {
		n = budget.Add(n, grown(d(op, in, out)))
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
	case *RoundedPointwise:
		return int64(1024 * len(o.Fns))
	}
	return 0
}

// declared returns the bytes of the tables of an operator's kernels; in and out
// are as for [New].
type declared func(op graph.Op, in, out []graph.TensorType) int64

// tables lists the operators whose kernels have tables.
var tables = map[string]declared{
	"Attention":       attentionTables,
	"AveragePool":     poolTables,
	"BlockedConv":     blockedConvTables,
	"BlockedPool":     poolTables,
	"BlockedResize":   resizeTables,
	"Conv":            convTables,
	"ConvTranspose":   convTransposeTables,
	"DFT":             dftTables,
	"DeformConv":      convTables,
	"IntegerConv":     integerConvTables,
	"IntegerMatMul":   matMulTables,
	"MatMul":          matMulTables,
	"MaxPool":         poolTables,
	"Pad":             padTables,
	"PixelsConv":      pixelsConvTables,
	"Resize":          resizeTables,
	"ViewedAttention": viewedAttentionTables,
}

func dimension(t graph.TensorType, axis int) int64 {
	if axis < 0 || axis >= t.Rank() {
		return 1
	}
	return t.Shape[axis]
}

// product returns the product of sizes, each taken for 1 at least.
func atLeastOne(sizes []int64) int64 {
	n := int64(1)
	for _, d := range sizes {
		n = budget.Mul(n, max(1, d))
	}
	return n
}

// attentionTables: where every head begins in Q, K, V, the bias and the result.
func attentionTables(op graph.Op, in, _ []graph.TensorType) int64 {
	return budget.Mul(5*8, max(1, dimension(in[0], 0)), max(1, op.(*graph.Attention).Heads))
}

// viewedAttentionTables: the same, axis by axis.
func viewedAttentionTables(op graph.Op, _, _ []graph.TensorType) int64 {
	return budget.Mul(2*5*8, atLeastOne(op.(*graph.ViewedAttention).Heads))
}

// poolTables: how many elements of a window count at every position of the last
// axis, in every lane of a block; the rows of the input under each row of windows;
// divisors by how many rows these are; and ones for windows at every place.
func poolTables(op graph.Op, _, out []graph.TensorType) int64 {
	var kernel, strides []int64
	switch o := op.(type) {
	case *graph.MaxPool:
		kernel, strides = o.Kernel, o.Strides
	case *graph.AveragePool:
		kernel, strides = o.Kernel, o.Strides
	case *BlockedPool:
		return poolTables(o.Pool, nil, out)
	}
	last := len(kernel) - 1
	columns, rows := budget.Add(out[0].Shape[2+last], 16), int64(1)
	if last > 0 {
		rows = out[0].Shape[1+last]
	} else {
		rows = budget.Mul(out[0].Shape[0], out[0].Shape[1])
	}
	sets := min(rows, kernel[max(0, last-1)]+1)
	if last == 0 {
		sets = 1
	}
	return budget.Add(budget.Mul(8*16, columns), budget.Mul(12, rows), budget.Mul(6*8, columns, sets), budget.Mul(64, sets),
		budget.Mul(8, columns, strides[last]))
}

// resizeTables: an offset for every position of an axis, or elements and their
// weights.
func resizeTables(op graph.Op, in, _ []graph.TensorType) int64 {
	var o *graph.Resize
	switch r := op.(type) {
	case *graph.Resize:
		o = r
	case *BlockedResize:
		o = &r.Resize
	}
	total := int64(0)
	for axis, size := range o.Sizes {
		taps := 4.0 // of a line between two elements, cut off at both ends
		if o.Mode != graph.ResizeNearest {
			scale := 1.0
			if o.Antialias && axis < len(o.Scales) {
				scale = max(min(o.Scales[axis], 1), 0.5/float64(max(1, dimension(in[0], axis))))
			}
			taps = max(taps, 2*math.Ceil(2/scale)+2)
		}
		each := budget.Mul(16, int64(min(taps, math.MaxInt32)))
		total = budget.Add(total, budget.Mul(max(1, size), each), each)
		if o.Coordinates == graph.CropAndResize {
			total = budget.Add(total, budget.Mul(6*8, size))
		}
	}
	return total
}

// padTables: where every position of an axis but the last comes from, and the
// segments of an axis.
func padTables(op graph.Op, in, out []graph.TensorType) int64 {
	o := op.(*graph.Pad)
	total := int64(0)
	for axis, size := range out[0].Shape {
		segments := int64(4)
		left := in[0].Shape[axis] + min(0, o.Before[axis]) + min(0, o.After[axis])
		switch o.Mode {
		case graph.PadWrap:
			segments += size / max(1, left)
		case graph.PadReflect:
			segments += size / max(1, left-1)
		}
		total = budget.Add(total, budget.Mul(8, size), budget.Mul(24, segments))
	}
	return total
}

// dftTables: roots of unity and, where the length has a great prime factor, the
// chirp and its transform.
func dftTables(op graph.Op, _, _ []graph.TensorType) int64 {
	n := max(1, op.(*graph.DFT).Length)
	power := int64(1)
	for power < n {
		if power > math.MaxInt64/4 {
			return math.MaxInt64
		}
		power *= 2
	}
	return budget.Mul(16, budget.Add(budget.Mul(6, power), n))
}

// matMulTables: where the matrices of every index of the batch begin, found axis
// by axis, and a row that adds up bytes.
func matMulTables(_ graph.Op, in, out []graph.TensorType) int64 {
	batch := int64(1)
	for _, t := range in[:2] {
		lead := t.Shape[:max(0, t.Rank()-2)]
		batch = max(batch, atLeastOne(lead))
	}
	lead := out[0].Shape[:max(0, out[0].Rank()-2)]
	batch = max(batch, atLeastOne(lead))
	return budget.Add(budget.Mul(2*3*8, batch), budget.Mul(2, budget.Add(dimension(in[0], in[0].Rank()-1), 64)))
}

// window returns the elements of a convolution's window over all channels.
func windowElements(w graph.TensorType) int64 { return atLeastOne(w.Shape[1:]) }

// convTables: where every element of a window lies in a band of the image, the
// phases of a line, a strip for every few columns, and a row of zeros.
func convTables(_ graph.Op, in, out []graph.TensorType) int64 {
	w, last := in[1], in[1].Rank()-1
	return budget.Add(budget.Mul(4, windowElements(w)), budget.Mul(8, w.Shape[last]), budget.Mul(4, w.Shape[1]),
		budget.Mul(4, budget.Add(w.Shape[0], 64)), budget.Mul(4, budget.Add(dimension(in[0], in[0].Rank()-1), 64)),
		budget.Mul(88, budget.Add(dimension(out[0], out[0].Rank()-1), 16)))
}

// blockedConvTables: the same for blocks of channels, of which a line has as many
// elements as vectors have lanes.
func blockedConvTables(op graph.Op, in, out []graph.TensorType) int64 {
	w, x := in[1], in[0]
	line := budget.Mul(max(1, op.(*BlockedConv).Lanes), atLeastOne(x.Shape[max(0, x.Rank()-2):]))
	return budget.Add(budget.Mul(4, windowElements(w)), budget.Mul(8, w.Shape[w.Rank()-1]), budget.Mul(4, budget.Add(line, 64)),
		convTables(&op.(*BlockedConv).Conv, in, out))
}

// convTransposeTables: which positions every element of the last axis meets.
func convTransposeTables(_ graph.Op, in, _ []graph.TensorType) int64 {
	return budget.Mul(16, max(1, dimension(in[1], in[1].Rank()-1)))
}

// integerConvTables: phases and distances of every element of an axis, where
// every step of a window lies, a row that adds up bytes, and the tiles of a
// plane, whose lines reach as far as windows do.
func integerConvTables(op graph.Op, in, out []graph.TensorType) int64 {
	o, w := op.(*graph.IntegerConv), in[1]
	spatial := w.Rank() - 2
	total := int64(0)
	reach := func(i int) int64 {
		if i < 0 {
			return 1
		}
		return budget.Add(out[0].Shape[2+i], budget.Mul(w.Shape[2+i]-1, o.Dilations[i])/max(1, o.Strides[i]))
	}
	for i := range spatial {
		total = budget.Add(total, budget.Mul(16+8*6+64, w.Shape[2+i]))
	}
	steps := windowElements(w)
	if last := w.Shape[w.Rank()-1]; last > 0 { // of four channels, or of four elements of a line
		steps = min(budget.Mul(steps/last, (last+3)/4), budget.Mul(steps/max(1, w.Shape[1]), (w.Shape[1]+3)/4))
	}
	rows := int64(1)
	if spatial > 1 {
		rows = out[0].Shape[out[0].Rank()-2]
	}
	span := budget.Add(budget.Mul(rows, reach(spatial-1)), 32)
	return budget.Add(total, budget.Mul(8+8+8, budget.Add(steps, 64)), budget.Mul(64, span/32+2))
}

// pixelsConvTables: where every pixel of the result and every line of a window
// lies, and tiles of columns.
func pixelsConvTables(_ graph.Op, in, out []graph.TensorType) int64 {
	w := in[1]
	pixels := atLeastOne(out[0].Shape[1 : out[0].Rank()-1])
	return budget.Add(budget.Mul(4, pixels), budget.Mul(4+3*8*8, atLeastOne(w.Shape[2:])), budget.Mul(6*64, budget.Add(w.Shape[0]/8, 8)))
}

// chainTables are those of the kernels of every shape of a piece, for every
// worker, and what is kept of each piece. Pieces are few where there are chains:
// one takes as much memory as stays in a cache.
func chainTables(o *Chain, in []graph.TensorType) int64 {
	types, err := o.Types(in)
	if err != nil || len(types) == 0 {
		return 0 // newChain says so
	}
	result := types[len(types)-1][len(types[len(types)-1])-1]
	blocks, rows := max(1, (o.Channels+o.Lanes-1)/max(1, o.Lanes)), int64(1)
	if o.Rows > 0 {
		rows = (dimension(result, 2) + o.Rows - 1) / o.Rows
	}
	pieces := budget.Mul(max(1, dimension(result, 0)), max(1, rows), (blocks+max(1, o.Blocks)-1)/max(1, o.Blocks))
	perPiece := int64(0)
	for _, t := range types {
		perPiece += 4<<10 + int64(512*len(t))
	}
	total := budget.Mul(pieces, perPiece)
	if total > maxChainPieces*perPiece {
		return total
	}
	c := &chain{op: o}
	if c.cut(types, result) != nil {
		return total // newChain says so
	}
	slots := int64(max(1, min(maxParts, len(c.pieces), runtime.GOMAXPROCS(0))))
	for _, s := range c.shapes {
		for m, op := range s.ops {
			n := len(s.types[m]) - 1
			total = budget.Add(total, budget.Mul(slots, Tables(op, s.types[m][:n], s.types[m][n:])))
		}
	}
	return total
}

// maxChainPieces bounds the pieces of a chain that [Tables] looks at one by one.
const maxChainPieces = 1 << 16
