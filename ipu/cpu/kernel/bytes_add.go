package kernel

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// bytesAddArgs are the arguments of the loop that adds bytes, 64 at a time.
type bytesAddArgs struct {
	a, b     *byte
	out      *byte
	chunks   int
	mask     uint64 // of the last chunk
	zero     [2]int32
	scale    [2]float32
	step, by float32 // the scale of the result and what is nearest to 1 divided by it
	end      bytesEnd
}

// pixelsAdd adds bytes of pixels.
type pixelsAdd struct {
	op    PixelsAdd
	args  bytesAddArgs // of the run in progress
	parts int
	n     int
	in    [2][]byte
	out   []byte
}

func bindPixelsAdd(op graph.Op, in, _ []graph.TensorType) (Kernel, error) {
	return &pixelsAdd{op: *op.(*PixelsAdd), n: elements(in[0].Shape)}, nil
}

// Scratch implements [Kernel].
func (k *pixelsAdd) Scratch() int { return 0 }

// InPlace implements [InPlacer].
func (k *pixelsAdd) InPlace(i int) bool { return i < 2 }

// Run implements [Kernel].
func (k *pixelsAdd) Run(p Pool, in, out [][]byte, _ []byte) error {
	if k.n == 0 {
		return nil
	}
	number := func(i int) float32 { return f32s(in[i])[0] }
	// Of an operand of I8 the bytes are 128 more, and so is the zero point.
	zero := func(i int) int32 {
		v, t := int32(0), byteType(k.op.Signed[i])
		if z := memory(in, 5+i); z != nil {
			v = byteValue(t, z[0])
		}
		return v
	}
	k.in, k.out = [2][]byte{in[0], in[1]}, out[0]
	k.args = bytesAddArgs{scale: [2]float32{number(2), number(3)}, step: number(4), by: 1 / number(4)}
	for i := range k.in {
		k.args.zero[i] = zero(i)
		if k.op.Signed[i] {
			k.args.zero[i] += 128
		}
	}
	to, z := byteType(k.op.Signed[2]), zero(2)
	low, high := quantRange(to)
	low, high = low-float32(z), high-float32(z)
	if k.op.Bounded {
		l, h := float32(k.op.Low)/k.args.step, float32(k.op.High)/k.args.step
		low, high = max(low, min(l, high)), min(high, max(h, low))
	}
	k.args.end = newBytesEnd(to, z, low, high)
	k.parts = cut(p, (k.n+63)/64, 40)
	p.Run(k, k.parts)
	k.in, k.out = [2][]byte{}, nil
	return nil
}

// Do implements [Task].
func (k *pixelsAdd) Do(part int) {
	lo, hi := span(k.n, k.parts, part, 64)
	if lo >= hi {
		return
	}
	args := k.args
	if n := (hi - lo) &^ 63; n > 0 {
		args.a, args.b, args.out, args.chunks, args.mask = &k.in[0][lo], &k.in[1][lo], &k.out[lo], n/64, math.MaxUint64
		bytesAdd(&args)
		lo += n
	}
	if lo < hi {
		var rest [3][64]byte
		copy(rest[0][:], k.in[0][lo:hi])
		copy(rest[1][:], k.in[1][lo:hi])
		args.a, args.b, args.out, args.chunks, args.mask = &rest[0][0], &rest[1][0], &rest[2][0], 1, math.MaxUint64
		bytesAdd(&args)
		copy(k.out[lo:hi], rest[2][:])
	}
}
