package move

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// concat joins operands: the result is rows, each made of a run of every
// operand in turn.
type concat struct {
	size  int   // bytes of an element
	short bool  // the runs are short
	runs  []int // bytes of each operand's run
	row   int   // their sum
	rows  int

	// The run in progress.
	in    [][]byte
	out   []byte
	parts int
}

func bindConcat(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	axis := op.(*graph.Concat).Axis
	k := &concat{rows: tensor.Elements(out[0].Shape[:axis]), in: make([][]byte, len(in))}
	for _, t := range in {
		run := tensor.Elements(t.Shape[axis:]) * t.DType.Size()
		k.runs = append(k.runs, run)
		k.row += run
	}
	k.size = out[0].DType.Size()
	k.short = k.rows > 1 && k.row <= shortRun*len(in)
	return k, nil
}

// Scratch implements Kernel.
func (k *concat) Scratch() int { return 0 }

// Run implements Kernel.
func (k *concat) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	copy(k.in, in)
	k.out = out[0]
	k.parts = tensor.Cut(p, k.rows, 4*len(k.runs)+moveCost(k.row))
	p.Run(k, k.parts)
	clear(k.in)
	k.out = nil
	return nil
}

// concatChunk is how many bytes of the result are made at a time.
const concatChunk = 1 << 14

// Do implements Task.
func (k *concat) Do(part int) {
	lo, hi := tensor.Span(k.rows, k.parts, part, 1)
	dst := k.out[lo*k.row : hi*k.row]
	if k.short {
		at := 0
		for i, run := range k.runs {
			moveShortRuns(k.size, dst[at:], k.in[i][lo*run:], hi-lo, run/k.size, k.row/k.size, run/k.size)
			at += run
		}
		return
	}
	// A few rows at a time, so that what is written stays in the first-level
	// cache until a line of it is whole.
	some := max(1, concatChunk/max(1, k.row))
	for row := lo; row < hi; row += some {
		rows, at := min(some, hi-row), 0
		for i, run := range k.runs {
			if run > 0 {
				if src, to := k.in[i][row*run:], dst[at:]; &src[0] != &to[0] { // it may lie there already
					copyRuns(to, src, rows, run, k.row, run)
				}
			}
			at += run
		}
		dst = dst[rows*k.row:]
	}
}

// gather picks runs of an operand seen as [outer, dim, run].
type gather struct {
	axis  int
	outer int
	dim   int
	run   int // bytes
	n     int // indices
	wide  bool
	// pick copies runs for the results from item lo to hi.
	pick func(k *gather, lo, hi int)
	cost int // of one result

	// The run in progress.
	x, out []byte
	i32    []int32
	i64    []int64
	parts  int
}

func bindGather(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	axis := int(op.(*graph.Gather).Axis)
	x, size := in[0], in[0].DType.Size()
	k := &gather{
		axis:  axis,
		outer: tensor.Elements(x.Shape[:axis]),
		dim:   int(x.Shape[axis]),
		run:   tensor.Elements(x.Shape[axis+1:]) * size,
		n:     tensor.Elements(in[1].Shape),
		wide:  in[1].DType == graph.I64,
		cost:  4,
	}
	if !k.wide && in[1].DType != graph.I32 {
		return nil, tensor.NoKernel("gather by indices", in[1].DType)
	}
	switch {
	case k.run == 1:
		k.pick = pickOne[uint8]
	case k.run == 2 && size == 2:
		k.pick = pickOne[uint16]
	case k.run == 4 && size == 4:
		k.pick = pickOne[uint32]
	case k.run == 8 && size == 8:
		k.pick = pickOne[uint64]
	default:
		k.pick = pickRuns
		k.cost = 24 + moveCost(k.run)
	}
	return k, nil
}

// Scratch implements Kernel.
func (k *gather) Scratch() int { return 0 }

// Run implements Kernel.
func (k *gather) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.i32, k.i64 = nil, nil
	if k.wide {
		k.i64 = tensor.View[int64](in[1])
		if err := checkIndices(k, k.i64); err != nil {
			return err
		}
	} else {
		k.i32 = tensor.View[int32](in[1])
		if err := checkIndices(k, k.i32); err != nil {
			return err
		}
	}
	k.x, k.out = in[0], out[0]
	k.parts = tensor.Cut(p, k.outer*k.n, k.cost)
	p.Run(k, k.parts)
	k.x, k.out, k.i32, k.i64 = nil, nil, nil, nil
	return nil
}

func checkIndices[I int32 | int64](k *gather, indices []I) error {
	for at, i := range indices {
		if int64(i) < -int64(k.dim) || int64(i) >= int64(k.dim) {
			return fmt.Errorf("gather along axis %d: index %d, number %d of %d, is out of range: want %d to %d",
				k.axis, i, at, k.n, -k.dim, k.dim-1)
		}
	}
	return nil
}

// Do implements Task.
func (k *gather) Do(part int) {
	lo, hi := tensor.Span(k.outer*k.n, k.parts, part, 1)
	k.pick(k, lo, hi)
}

// index returns the position that index i means, from 0 to dim-1.
func (k *gather) index(i int) int {
	var v int
	if k.wide {
		v = int(k.i64[i])
	} else {
		v = int(k.i32[i])
	}
	if v < 0 {
		v += k.dim
	}
	return v
}

// pickOne is pickRuns for runs of one element.
func pickOne[E tensor.Unsigned](k *gather, lo, hi int) {
	x, out := tensor.View[E](k.x), tensor.View[E](k.out)
	for item := lo; item < hi; {
		o, i := item/k.n, item%k.n
		row := x[o*k.dim : (o+1)*k.dim]
		for ; i < k.n && item < hi; i++ {
			out[item] = row[k.index(i)]
			item++
		}
	}
}

func pickRuns(k *gather, lo, hi int) {
	for item := lo; item < hi; {
		o, i := item/k.n, item%k.n
		row := k.x[o*k.dim*k.run : (o+1)*k.dim*k.run]
		for ; i < k.n && item < hi; i++ {
			copy(k.out[item*k.run:(item+1)*k.run], row[k.index(i)*k.run:])
			item++
		}
	}
}
