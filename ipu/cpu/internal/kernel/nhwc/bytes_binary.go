package nhwc

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/quant"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// bytesAddArgs are the arguments of the loops that add or multiply bytes, 64 at
// a time, in rows of as many chunks.
type bytesAddArgs struct {
	a, b         *byte
	out          *byte
	chunks       int
	mask         uint64 // of a row's last chunk
	zero         [2]int32
	scale        [2]float32
	step, by     float32 // the scale of the result and what is nearest to 1 divided by it
	end          bytesEnd
	rows         int
	skipA, skipB int // bytes after a row's last chunk
	skip         int // of the result
}

// nhwcBinary is the kernel of a [Binary].
type nhwcBinary struct {
	op     Binary
	n      int // bytes of an image, or of all where b has as many
	images int
	row    int // bytes for which b is the same, or 0
	parts  int // of the run in progress
	args   bytesAddArgs
	a, b   []byte
	out    []byte
}

func bindBinary(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	k := &nhwcBinary{op: *op.(*Binary), n: tensor.Elements(in[0].Shape), images: 1}
	if s := in[0].Shape; !in[0].Equal(in[1]) {
		k.images = int(s[0])
		k.n /= max(1, k.images)
		k.row = int(s[len(s)-1])
	}
	return k, nil
}

// Scratch implements [Kernel].
func (k *nhwcBinary) Scratch() int { return 0 }

// InPlace implements [InPlacer].
func (k *nhwcBinary) InPlace(i int) bool { return i == 0 || i == 1 && k.row == 0 }

// Run implements [Kernel].
func (k *nhwcBinary) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	if k.n*k.images == 0 {
		return nil
	}
	number := func(i int) float32 { return tensor.F32s(in[i])[0] }
	zero := func(i int) (v int32) {
		if z := tensor.Memory(in, 5+i); z != nil {
			v = quant.ByteValue(byteType(k.op.Signed[i]), z[0])
		}
		return v
	}
	k.args = bytesAddArgs{scale: [2]float32{number(2), number(3)}, step: number(4), by: 1 / number(4)}
	for i := range k.args.zero {
		k.args.zero[i] = zero(i)
		if k.op.Signed[i] {
			k.args.zero[i] += 128 // as the bytes are
		}
	}
	to, z := byteType(k.op.Signed[2]), zero(2)
	low, high := quant.QuantRange(to)
	low, high = low-float32(z), high-float32(z)
	if k.op.Bounded {
		l, h := float32(k.op.Low)/k.args.step, float32(k.op.High)/k.args.step
		low, high = max(low, min(l, high)), min(high, max(h, low))
	}
	k.args.end = newBytesEnd(to, z, low, high)
	unit := 64
	if k.row > 0 {
		unit = k.row
	}
	for i := range k.images {
		k.a, k.out, k.b = in[0][i*k.n:][:k.n], out[0][i*k.n:][:k.n], in[1]
		if k.row > 0 {
			k.b = in[1][i*k.row:][:k.row]
		}
		k.parts = tensor.Cut(p, (k.n+unit-1)/unit, (unit+63)/64*40)
		p.Run(k, k.parts)
	}
	k.a, k.b, k.out = nil, nil, nil
	return nil
}

// Do implements [Task].
func (k *nhwcBinary) Do(part int) {
	if k.row == 0 {
		lo, hi := tensor.Span(k.n, k.parts, part, 64)
		k.rows(k.out[lo:hi], k.a[lo:hi], k.b[lo:hi], hi-lo, 1)
		return
	}
	lo, hi := tensor.Span(k.n, k.parts, part, k.row)
	k.rows(k.out[lo:hi], k.a[lo:hi], k.b, k.row, (hi-lo)/k.row)
}

// rows computes rows of so many bytes, all with the same b. Those of which the last
// vectors reach beyond memory are copied.
func (k *nhwcBinary) rows(out, a, b []byte, width, rows int) {
	if width == 0 || rows == 0 {
		return
	}
	args := k.args
	whole := width &^ 63
	if whole > 0 {
		args.a, args.b, args.out, args.rows, args.chunks, args.mask = &a[0], &b[0], &out[0], rows, whole/64, math.MaxUint64
		args.skipA, args.skipB, args.skip = width-whole, -whole, width-whole
		k.compute(&args)
	}
	if whole == width {
		return
	}
	var rest [3][64]byte
	copy(rest[1][:], b[whole:width])
	args.b, args.chunks, args.mask = &rest[1][0], 1, math.MaxUint64>>(64+whole-width)
	args.skipA, args.skipB, args.skip = width-64, -64, width-64
	at := whole
	if n := (len(a) - 64 - whole) / width; n > 0 && len(a) >= 64+whole {
		args.a, args.out, args.rows = &a[whole], &out[whole], n
		k.compute(&args)
		at += n * width
	}
	for ; at < len(a); at += width {
		n := width - whole
		copy(rest[0][:], a[at:at+n])
		args.a, args.out, args.rows = &rest[0][0], &rest[2][0], 1
		k.compute(&args)
		copy(out[at:at+n], rest[2][:])
	}
}

func (k *nhwcBinary) compute(args *bytesAddArgs) {
	if k.op.Fn == graph.Mul {
		bytesMul(args)
	} else {
		bytesAdd(args)
	}
}
