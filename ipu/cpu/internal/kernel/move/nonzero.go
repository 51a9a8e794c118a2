package move

import (
	"math/bits"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// nonZero looks at eight bools at a time. Each part first counts what it will find,
// so that it knows where its columns begin.
type nonZero struct {
	shape []int
	bound int
	n     int // elements of x

	// The run in progress.
	x     []byte
	out   []int64
	parts int
	found [tensor.MaxParts]int // by part: how many it has, then how many are before them
	fill  bool
	watch tensor.Watch
}

func bindNonZero(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.NonZero)
	return &nonZero{shape: tensor.Ints(in[0].Shape), bound: int(o.Bound), n: tensor.Elements(in[0].Shape)}, nil
}

// Scratch implements Kernel.
func (k *nonZero) Scratch() int { return 0 }

// Run implements Kernel.
func (k *nonZero) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.out = in[0], tensor.View[int64](tensor.Memory(out, 0))
	k.parts, k.watch = tensor.CutSlots(p, k.n, 1), tensor.NewWatch(p, 1)
	k.fill = false
	p.Run(k, k.parts)
	total := 0
	for i, n := range k.found[:k.parts] {
		k.found[i] = total
		total += n
	}
	if count := tensor.Memory(out, 1); count != nil {
		tensor.View[int64](count)[0] = int64(total)
	}
	if k.out != nil {
		k.fill = true
		p.Run(k, k.parts)
		for d := range k.shape {
			clear(k.out[d*k.bound+min(total, k.bound) : (d+1)*k.bound])
		}
	}
	k.x, k.out = nil, nil
	return nil
}

// Do implements Task.
func (k *nonZero) Do(part int) {
	lo, hi := tensor.Span(k.n, k.parts, part, 64)
	at := k.found[part]
	n := 0
	for lo < hi {
		to := k.watch.Next(lo, hi)
		if to == lo {
			return
		}
		if k.fill {
			at = k.columns(lo, to, at)
		} else {
			n += setBools(k.x[lo:to])
		}
		lo = to
	}
	if !k.fill {
		k.found[part] = n
	}
}

// setBools counts the bools that are set.
func setBools(x []byte) (n int) {
	words := len(x) / 8 * 8
	for i := 0; i < words; i += 8 {
		n += bits.OnesCount64(setBytes(x[i : i+8]))
	}
	for _, b := range x[words:] {
		if b != 0 {
			n++
		}
	}
	return n
}

// setBytes returns a bit for each of eight bytes that is not zero: the lowest one of
// the byte.
func setBytes(x []byte) uint64 {
	_ = x[7]
	w := uint64(x[0]) | uint64(x[1])<<8 | uint64(x[2])<<16 | uint64(x[3])<<24 | uint64(x[4])<<32 | uint64(x[5])<<40 | uint64(x[6])<<48 | uint64(x[7])<<56
	w |= w >> 4
	w |= w >> 2
	w |= w >> 1
	return w & 0x0101010101010101
}

// columns writes the places of what is set from lo to hi, from column at on, and
// returns the column after the last.
func (k *nonZero) columns(lo, hi, at int) int {
	i := lo
	for ; i+8 <= hi && at < k.bound; i += 8 {
		for w := setBytes(k.x[i : i+8]); w != 0 && at < k.bound; w &= w - 1 {
			k.column(i+bits.TrailingZeros64(w)/8, at)
			at++
		}
	}
	for ; i < hi && at < k.bound; i++ {
		if k.x[i] != 0 {
			k.column(i, at)
			at++
		}
	}
	return at
}

// column writes the place of element i.
func (k *nonZero) column(i, at int) {
	for d := len(k.shape) - 1; d > 0; d-- {
		size := k.shape[d]
		k.out[d*k.bound+at] = int64(i % size)
		i /= size
	}
	if len(k.shape) > 0 {
		k.out[at] = int64(i)
	}
}
