package random

import (
	"encoding/binary"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// words is how many numbers one counter gives.
const words = 4

// chunk is how many numbers are drawn before they are rounded to the type of the result.
const chunk = 64

// random is the kernel of [graph.Random].
type random struct {
	op graph.Random
	n  int // elements

	// The run in progress.
	key   [2]uint32
	step  uint64
	out   []byte
	parts int
	pool  tensor.Pool
}

func bindRandom(op graph.Op, _, out []graph.TensorType) (tensor.Kernel, error) {
	return &random{op: *op.(*graph.Random), n: tensor.Elements(out[0].Shape)}, nil
}

// Scratch returns 0.
func (*random) Scratch() int { return 0 }

// cost is how many simple operations an element takes.
const cost = 24

// Run implements [tensor.Kernel].
func (k *random) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	seed := in[0]
	k.key = [2]uint32{binary.LittleEndian.Uint32(seed), binary.LittleEndian.Uint32(seed[4:])}
	k.step = binary.LittleEndian.Uint64(in[1])
	k.out, k.pool = out[0], p
	k.parts = tensor.Cut(p, k.n, cost)
	p.Run(k, k.parts)
	k.out, k.pool = nil, nil
	return nil
}

// Do implements [tensor.Task].
func (k *random) Do(part int) {
	lo, hi := tensor.Span(k.n, k.parts, part, chunk)
	for next := lo; lo < hi; lo += chunk {
		if lo >= next { // some milliseconds later
			if next = lo + tensor.Long/cost; k.pool.Ended() {
				return
			}
		}
		k.draw(lo, min(lo+chunk, hi))
	}
}

// draw sets the elements from lo, a multiple of chunk, to hi.
func (k *random) draw(lo, hi int) {
	var drawn [chunk]uint32
	for i := 0; i < hi-lo; i += words {
		w := philox([4]uint32{uint32((lo + i) / words), uint32(k.op.Number), uint32(k.step), uint32(k.step >> 32)}, k.key)
		copy(drawn[i:], w[:])
	}
	if k.op.Fn == graph.RandomBits {
		copy(tensor.View[uint32](k.out)[lo:hi], drawn[:])
		return
	}
	var x [chunk]float32
	a, b := k.op.A, k.op.B
	switch k.op.Fn {
	case graph.RandomUniform:
		width := b - a
		for i, w := range drawn {
			x[i] = float32(a + float64(float64(w>>8)*0x1p-24*width))
		}
	case graph.RandomNormal:
		for i := 0; i < hi-lo; i += 2 {
			u, v := pair(drawn[i], drawn[i+1])
			x[i], x[i+1] = float32(a+float64(b*u)), float32(a+float64(b*v))
		}
	}
	size := k.op.To.Size()
	out := k.out[size*lo : size*hi]
	switch k.op.To {
	case graph.F32:
		copy(tensor.F32s(out), x[:])
	case graph.F64:
		for i, y := 0, tensor.F64s(out); i < len(y); i++ {
			y[i] = float64(x[i])
		}
	default:
		vec.EncodeHalf(k.op.To, out, x[:hi-lo])
	}
}
