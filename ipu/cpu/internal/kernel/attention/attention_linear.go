package attention

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindLinearAttention(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.LinearAttention)
	switch in[0].DType {
	case graph.F32:
		return newLinearAttention[float32](o, in), nil
	case graph.F64:
		return newLinearAttention[float64](o, in), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// linearAttention keeps one state matrix, [size][width], for each head of K
// and V of each batch entry; these do not depend on each other.
type linearAttention[T tensor.Float] struct {
	batch, heads, kv, steps, size, width int
	scale                                T
	decays, betas                        int // elements per step; 0 if there are none
	state                                graph.DType
	task                                 linearTask[T]
}

func newLinearAttention[T tensor.Float](o *graph.LinearAttention, in []graph.TensorType) *linearAttention[T] {
	last := func(i int) int {
		if t := tensor.Operand(in, i); t.DType != graph.Invalid {
			return int(t.Shape[2])
		}
		return 0
	}
	k := &linearAttention[T]{
		batch: int(in[0].Shape[0]), steps: int(in[0].Shape[1]), heads: int(o.Heads), kv: int(o.KVHeads), scale: T(o.Scale),
		decays: last(4), betas: last(5), state: tensor.Operand(in, 3).DType,
	}
	if k.state == graph.Invalid {
		k.state = in[0].DType
	}
	k.size, k.width = last(1)/k.kv, last(2)/k.kv
	return k
}

// slot returns the elements of scratch memory for one state: the matrix and
// the value to be written.
func (k *linearAttention[T]) slot() int { return ((k.size+1)*k.width + 15) &^ 15 }

// Scratch implements [Kernel].
func (k *linearAttention[T]) Scratch() int {
	return k.batch * k.kv * k.slot() * tensor.ElementSize[T]()
}

// Run implements [Kernel].
func (k *linearAttention[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	at := func(i int) []T { return tensor.View[T](tensor.Memory(in, i)) }
	*t = linearTask[T]{linearAttention: k, q: at(0), k: at(1), v: at(2), decay: at(4), beta: at(5), erase: at(6),
		past: tensor.Memory(in, 3), y: tensor.View[T](tensor.Memory(out, 0)), present: tensor.Memory(out, 1), scratch: tensor.View[T](scratch)}
	units := k.batch * k.kv
	t.parts = tensor.Cut(p, units, k.steps*k.size*k.width*(3+k.heads/k.kv)+1)
	p.Run(t, t.parts)
	*t = linearTask[T]{}
	return nil
}

// linearTask is one run of a linearAttention.
type linearTask[T tensor.Float] struct {
	*linearAttention[T]
	q, k, v, decay, beta, erase []T
	past, present               []byte
	y, scratch                  []T
	parts                       int
}

// Do implements [Task].
func (t *linearTask[T]) Do(part int) {
	for i, end := tensor.Span(t.batch*t.kv, t.parts, part, 1); i < end; i++ {
		slot := t.scratch[i*t.slot():][:t.slot()]
		s, v := slot[:t.size*t.width], slot[t.size*t.width:][:t.width]
		loadState(s, t.past, t.state, i*len(s))
		for step := range t.steps {
			t.step(i/t.kv, i%t.kv, step, s, v)
		}
		storeState(t.present, t.state, i*len(s), s)
	}
}

// step takes one step of one head: it updates the state s and reads it for
// every head of the query that shares it.
func (t *linearTask[T]) step(b, h, step int, s, v []T) {
	row := b*t.steps + step
	key := t.k[(row*t.kv+h)*t.size:][:t.size]
	copy(v, t.v[(row*t.kv+h)*t.width:])
	if t.decays > 0 {
		decay := t.decay[row*t.decays:][:t.decays]
		for i := range t.size {
			g := i + h*t.size
			if t.decays == t.kv {
				g = h
			}
			factor := T(math.Exp(float64(decay[g])))
			for j, x := range s[i*t.width:][:t.width] {
				s[i*t.width+j] = x * factor
			}
		}
	}
	if t.betas > 0 {
		beta := t.beta[row*t.betas+min(h, t.betas-1)]
		for i, x := range key {
			if t.erase != nil {
				x *= t.erase[(row*t.kv+h)*t.size+i]
			}
			addScaled(v, -x, s[i*t.width:])
		}
		for j := range v {
			v[j] *= beta
		}
	}
	for i, x := range key {
		addScaled(s[i*t.width:][:t.width], x, v)
	}
	if t.y == nil {
		return
	}
	group := t.heads / t.kv
	for head := h * group; head < (h+1)*group; head++ {
		y := t.y[(row*t.heads+head)*t.width:][:t.width]
		clear(y)
		for i, x := range t.q[(row*t.heads+head)*t.size:][:t.size] {
			addScaled(y, t.scale*x, s[i*t.width:])
		}
	}
}

// addScaled adds a·x to y.
func addScaled[T tensor.Float](y []T, a T, x []T) {
	x = x[:len(y)]
	for i, v := range x {
		y[i] += T(a * v)
	}
}

// loadState sets s to the elements of a state from index at on, zero if there
// is none.
func loadState[T tensor.Float](s []T, from []byte, t graph.DType, at int) {
	switch {
	case from == nil:
		clear(s)
	case t == graph.F32:
		for i, v := range tensor.F32s(from)[at:][:len(s)] {
			s[i] = T(v)
		}
	default:
		for i, v := range tensor.F64s(from)[at:][:len(s)] {
			s[i] = T(v)
		}
	}
}

// storeState writes s to a state from index at on, if anybody wants it.
func storeState[T tensor.Float](to []byte, t graph.DType, at int, s []T) {
	switch {
	case to == nil:
	case t == graph.F32:
		dst := tensor.F32s(to)[at:]
		for i, v := range s {
			dst[i] = float32(v)
		}
	default:
		dst := tensor.F64s(to)[at:]
		for i, v := range s {
			dst[i] = float64(v)
		}
	}
}
