package nhwc

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/quant"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// nhwcMove is the kernel of [ToNHWC] and [FromNHWC].
type nhwcMove struct {
	images, channels int
	pixel, positions int // bytes of a pixel, pixels of an image
	to               bool
	flip             byte

	// The run in progress.
	planes, pixels []byte
	parts          int
}

func newMove(planes graph.TensorType) *nhwcMove {
	s := planes.Shape
	k := &nhwcMove{images: int(s[0]), channels: int(s[1]), pixel: int(pixelBytes(s[1])), positions: tensor.Elements(s[2:])}
	if planes.DType == graph.I8 {
		k.flip = quant.Int8Flip
	}
	return k
}

func bindToNHWC(_ graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	k := newMove(in[0])
	k.to = true
	return k, nil
}

func bindFromNHWC(_ graph.Op, _, out []graph.TensorType) (tensor.Kernel, error) {
	return newMove(out[0]), nil
}

// Scratch implements [Kernel].
func (k *nhwcMove) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *nhwcMove) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	if len(in[0]) == 0 {
		return nil
	}
	if k.to {
		k.planes, k.pixels = in[0], out[0]
	} else {
		k.planes, k.pixels = out[0], in[0]
	}
	k.parts = tensor.Cut(p, k.images*k.positions, (k.channels+3)/4)
	p.Run(k, k.parts)
	k.planes, k.pixels = nil, nil
	return nil
}

// Do implements [Task].
func (k *nhwcMove) Do(part int) {
	lo, hi := tensor.Span(k.images*k.positions, k.parts, part, 64)
	for lo < hi {
		image, at := lo/k.positions, lo%k.positions
		n := min(hi-lo, k.positions-at)
		k.move(k.planes[image*k.channels*k.positions+at:], k.pixels[(image*k.positions+at)*k.pixel:], n)
		lo += n
	}
}

// move converts n pixels.
func (k *nhwcMove) move(planes, pixels []byte, n int) {
	switch {
	case !k.to:
		transposeBytes(planes, k.positions, pixels, k.pixel, n, k.channels, k.flip)
	case k.channels > quant.Int8Step || quant.Int8WayOf(tensor.Path) == quant.Int8ByGo:
		transposeBytes(pixels, k.pixel, planes, k.positions, k.channels, n, k.flip)
	default:
		var rows [quant.Int8Step][]byte
		for q := range rows {
			rows[q] = planes[min(q, k.channels-1)*k.positions:]
		}
		quant.Interleave(quant.Int8WayOf(tensor.Path), pixels, rows, n, k.flip)
	}
}

// transposeBytes writes columns of src as rows of dst, flipped. From is the
// distance of rows in src, to that in dst.
func transposeBytes(dst []byte, to int, src []byte, from, rows, columns int, flip byte) {
	const high = 8
	done := 0 // rows
	for ; done+high <= rows; done += high {
		n := transposeLines(dst[done:], to, src[done*from:], from, columns, flip)
		transposeRest(dst[done:], to, src[done*from:], from, high, n, columns, flip)
	}
	if done == rows {
		return
	}
	if rows >= high {
		done = rows - high
		n := transposeLines(dst[done:], to, src[done*from:], from, columns, flip)
		transposeRest(dst[done:], to, src[done*from:], from, high, n, columns, flip)
		return
	}
	transposeRest(dst, to, src, from, rows, 0, columns, flip)
}

// transposeLines transposes eight rows with SIMD instructions, as many columns as it
// returns.
func transposeLines(dst []byte, to int, src []byte, from, columns int, flip byte) int {
	const high, wide = 8, 16
	if columns < wide && (high-1)*from+wide <= len(src) {
		// The rows have what follows them in memory as well.
		var tile [wide * high]byte
		if vectorTranspose(tile[:], high, src, from, wide, flip) == wide {
			for c := range columns {
				*(*[high]byte)(dst[c*to:]) = *(*[high]byte)(tile[c*high:])
			}
			return columns
		}
	}
	n := vectorTranspose(dst, to, src, from, columns, flip)
	if n > 0 && n < columns {
		at := columns - 16
		vectorTranspose(dst[at*to:], to, src[at:], from, 16, flip)
		return columns
	}
	return n
}

// transposeRest transposes the columns from the first on one by one.
func transposeRest(dst []byte, to int, src []byte, from, rows, first, columns int, flip byte) {
	for c := first; c < columns; c++ {
		for r := range rows {
			dst[c*to+r] = src[r*from+c] ^ flip
		}
	}
}
