package nhwc

import (
	"errors"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// bytesMapArgs are the arguments of the loop that looks bytes up, 64 at a time.
type bytesMapArgs struct {
	x, out, table *byte
	rows, chunks  int
	mask          uint64 // of a row's last chunk
	skip, to      int    // bytes of x and of out after a row's last chunk
}

// mapRows looks rows of width bytes up that are so many apart in dst; in src
// one follows the other. Without a table they stay what they are.
func mapRows(dst, src, table []byte, width, apart, rows int) {
	if table == nil {
		for i := range rows {
			copy(dst[i*apart:], src[i*width:][:width])
		}
		return
	}
	if rows == 0 {
		return
	}
	chunks := (width + 63) / 64
	bytesMap(&bytesMapArgs{x: &src[0], out: &dst[0], table: &table[0], rows: rows, chunks: chunks, mask: math.MaxUint64 >> (64*chunks - width),
		skip: width - 64*chunks, to: apart - 64*chunks})
}

// nhwcLookup is the kernel of a [Lookup].
type nhwcLookup struct {
	n, parts    int
	x, y, table []byte // of the run in progress
}

func bindLookup(_ graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	return &nhwcLookup{n: tensor.Elements(in[0].Shape)}, nil
}

// Scratch implements [Kernel].
func (k *nhwcLookup) Scratch() int { return 0 }

// InPlace implements [InPlacer].
func (k *nhwcLookup) InPlace(i int) bool { return i == 0 }

// Run implements [Kernel].
func (k *nhwcLookup) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.y, k.table = in[0], out[0], in[1]
	k.parts = tensor.Cut(p, (k.n+63)/64, 12)
	p.Run(k, k.parts)
	k.x, k.y, k.table = nil, nil, nil
	return nil
}

// Do implements [Task].
func (k *nhwcLookup) Do(part int) {
	lo, hi := tensor.Span(k.n, k.parts, part, 64)
	if lo < hi {
		mapRows(k.y[lo:hi], k.x[lo:hi], k.table, hi-lo, hi-lo, 1)
	}
}

// nhwcConcat is the kernel of a [Concat].
type nhwcConcat struct {
	widths  []int // bytes of a pixel of each operand
	width   int
	pixels  int
	parts   int
	in, out [][]byte // of the run in progress
}

func bindConcat(_ graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	if !HasLookup() && slices.ContainsFunc(in[len(in)/2:], func(table graph.TensorType) bool { return table.DType.Valid() }) {
		return nil, errors.New("the instructions that look bytes up are not to be used")
	}
	k := &nhwcConcat{}
	for _, x := range in[:len(in)/2] {
		n := int(x.Shape[x.Rank()-1])
		k.widths = append(k.widths, n)
		k.width += n
	}
	k.pixels = tensor.Elements(out[0].Shape) / max(1, k.width)
	return k, nil
}

// Scratch implements [Kernel].
func (k *nhwcConcat) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *nhwcConcat) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.in, k.out = in, out
	k.parts = tensor.Cut(p, k.pixels, 4*len(k.widths)+k.width/4)
	p.Run(k, k.parts)
	k.in, k.out = nil, nil
	return nil
}

// Do implements [Task].
func (k *nhwcConcat) Do(part int) {
	lo, hi := tensor.Span(k.pixels, k.parts, part, 1)
	if lo >= hi {
		return
	}
	at := lo * k.width
	for i, n := range k.widths {
		mapRows(k.out[0][at:], k.in[i][lo*n:hi*n], k.in[len(k.widths)+i], n, k.width, hi-lo)
		at += n
	}
}
