package update

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// blockLen is how many elements are computed at a time: all that a rule has of a block fits into
// the first-level cache.
const blockLen = vec.BlockLen

// The most that a rule has: states, numbers, and blocks for what is in between.
const (
	maxStates  = 3
	maxScalars = 8
	maxNumbers = 12
	temporary  = 2
)

// cost is about how many simple operations an element takes.
const cost = 8

// update is the kernel of [graph.Update] with arithmetic of T.
type update[T tensor.Float] struct {
	op       graph.Update
	loops    loops[T]
	n        int
	weight   graph.DType
	gradient graph.DType
	scalars  int // operand of the first; as many follow as there are in Values
	step     int // operand, 0 for none
	states   int // with the weight's shape
	at       [maxStates]int
	master   int  // result, 0 for none
	norms    bool // the step is scaled by norms, which takes a round before the one that changes the weight
	perPart  int  // bytes of scratch of one part

	// The run in progress.
	in, out [graph.UpdateFixed + maxStates + 1 + maxScalars][]byte
	scratch []byte
	squares []float64 // of each block: the sums of w² and of x², for a rule that scales by norms
	numbers [maxNumbers]T
	ratio   T    // of a rule that scales by norms, in its second round
	second  bool // that round is in progress
	parts   int
	pool    tensor.Pool
}

func bindUpdate(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := *op.(*graph.Update)
	for i, name := range o.States() {
		if o.Rule == graph.UpdateLamb && tensor.Operand(out, 1+i).DType == graph.Invalid {
			return nil, fmt.Errorf("result %d (%s) of rule lamb is left out, but the weight is computed from it", 1+i, name)
		}
	}
	if in[0].DType == graph.F64 {
		return newUpdate[float64](o, in), nil
	}
	return newUpdate[float32](o, in), nil
}

func newUpdate[T tensor.Float](o graph.Update, in []graph.TensorType) *update[T] {
	k := &update[T]{op: o, loops: newLoops[T](), n: tensor.Elements(in[0].Shape), weight: in[0].DType, gradient: in[1].DType,
		norms: o.Rule == graph.UpdateLamb}
	states := o.States()
	for i, name := range states {
		if name == graph.UpdateStep {
			k.step = graph.UpdateFixed + i
			continue
		}
		k.at[k.states] = graph.UpdateFixed + i
		k.states++
	}
	k.scalars = graph.UpdateFixed + len(states)
	if tensor.Operand(in, 4).DType != graph.Invalid {
		k.master = 1 + len(states)
	}
	// Blocks of what is in between, of weight and gradient where they are widened, and of states that nobody wants.
	k.perPart = (temporary + 2 + maxStates) * blockLen * tensor.ElementSize[T]()
	return k
}

// blocks returns how many blocks the weight has.
func (k *update[T]) blocks() int { return (k.n + blockLen - 1) / blockLen }

// Scratch implements [tensor.Kernel].
func (k *update[T]) Scratch() int {
	n := k.perPart*tensor.MostParts(k.n, cost) + maxNumbers*blockLen*tensor.ElementSize[T]()
	if k.norms {
		n += 16 * k.blocks()
	}
	return n
}

// InPlace implements [tensor.InPlacer].
func (k *update[T]) InPlace(operand int) bool { return k.Overwrites(0, operand) }

// Overwrites implements [tensor.Overwriter]: every result may lie where the operand is that it replaces.
func (k *update[T]) Overwrites(result, operand int) bool {
	switch {
	case result == 0:
		return operand == 0
	case result == k.master:
		return operand == 4
	}
	return operand == graph.UpdateFixed+result-1
}

// Run implements [tensor.Kernel].
func (k *update[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	copy(k.in[:], in)
	copy(k.out[:], out)
	k.pool = p
	if skip := k.in[3]; skip != nil && skip[0] != 0 {
		k.keep()
	} else {
		k.compute(scratch)
	}
	clear(k.in[:])
	clear(k.out[:])
	k.scratch, k.squares, k.pool = nil, nil, nil
	return nil
}

// operandOf returns the operand that a result replaces.
func (k *update[T]) operandOf(result int) int {
	switch {
	case result == 0:
		return 0
	case result == k.master:
		return 4
	}
	return graph.UpdateFixed + result - 1
}

// keep gives every result the value of the operand that it replaces.
func (k *update[T]) keep() {
	for i, out := range k.out {
		if out != nil {
			copy(out, k.in[k.operandOf(i)])
		}
	}
}

// values returns the scalars of the rule.
func (k *update[T]) values() (v [maxScalars]T) {
	for i, constant := range k.op.Values {
		v[i] = T(constant)
		if b := k.in[k.scalars+i]; b != nil {
			v[i] = T(tensor.F32s(b)[0])
		}
	}
	return v
}

func (k *update[T]) compute(scratch []byte) {
	t := 0.0
	if k.step > 0 {
		t = float64(tensor.F32s(k.in[k.step])[0]) + 1
		if out := k.out[1+k.step-graph.UpdateFixed]; out != nil {
			tensor.F32s(out)[0] = float32(t)
		}
	}
	factor := T(1)
	if f := k.in[2]; f != nil {
		factor = T(tensor.F32s(f)[0])
	}
	v := k.values()
	k.numbers = numbersOf(&k.op, &v, factor, t)
	size := blockLen * tensor.ElementSize[T]()
	filled := tensor.View[T](scratch[:maxNumbers*size])
	used := min(blockLen, tensor.RoundUp(k.n, 64)) // whole vectors
	for i, v := range k.numbers {
		vec.FillWith(filled[i*blockLen:][:used], v)
	}
	k.scratch = scratch
	k.second, k.ratio = false, 0
	if k.norms {
		end := maxNumbers*size + 16*k.blocks()
		k.squares = tensor.F64s(scratch[maxNumbers*size : end])
	}
	k.parts = tensor.CutSlots(k.pool, k.n, cost)
	k.pool.Run(k, k.parts)
	if k.norms {
		k.ratio = k.quotient(float64(v[6]))
		k.second = true
		k.pool.Run(k, k.parts)
	}
}

// quotient returns min(‖w‖, most)/‖x‖, 1 if either is 0. Sums of blocks are added in order.
func (k *update[T]) quotient(most float64) T {
	var w, x float64
	for i := 0; i < len(k.squares); i += 2 {
		w += k.squares[i]
		x += k.squares[i+1]
	}
	w, x = min(math.Sqrt(w), most), math.Sqrt(x)
	if w == 0 || x == 0 {
		return 1
	}
	return T(w / x)
}

// Do implements [tensor.Task].
func (k *update[T]) Do(part int) {
	lo, hi := tensor.Span(k.n, k.parts, part, blockLen)
	size := tensor.ElementSize[T]()
	filled := maxNumbers * blockLen * size
	own := filled + 16*(len(k.squares)/2) + part*k.perPart
	tmp := tensor.View[T](k.scratch[own:][:k.perPart])
	numbers := tensor.View[T](k.scratch[:filled])
	for next := lo; lo < hi; lo += blockLen {
		if lo >= next { // some milliseconds later
			if next = lo + tensor.Long/cost; k.pool.Ended() {
				return
			}
		}
		k.block(lo, min(blockLen, hi-lo), tmp, numbers)
	}
}

// block computes n elements from lo on.
func (k *update[T]) block(lo, n int, tmp, numbers []T) {
	b := block[T]{all: numbers}
	size := tensor.ElementSize[T]()
	part := func(all []byte) []T {
		if all == nil {
			return nil
		}
		return tensor.View[T](all[size*lo : size*(lo+n)])
	}
	for i := range b.t {
		b.t[i] = tmp[i*blockLen:][:n]
	}
	for i := range b.c {
		b.c[i] = numbers[i*blockLen:][:n]
	}
	half := k.weight.Size() < size
	source := tmp[temporary*blockLen:][:n]
	switch {
	case k.master > 0:
		b.w = part(k.in[4])
	case half:
		widen(source, k.weight, k.in[0], lo)
		b.w = source
	default:
		b.w = part(k.in[0])
	}
	if k.master > 0 || !half {
		b.to = part(k.out[k.master])
	}
	if b.to == nil {
		b.to = source // rounded from there, or not wanted
	}
	if k.gradient.Size() == size {
		b.g = part(k.in[1])
	} else {
		b.g = tmp[(temporary+1)*blockLen:][:n]
		widen(b.g, k.gradient, k.in[1], lo)
	}
	for i := range k.states {
		b.s[i] = part(k.in[k.at[i]])
		if b.r[i] = part(k.out[1+k.at[i]-graph.UpdateFixed]); b.r[i] == nil {
			b.r[i] = tmp[(temporary+2+i)*blockLen:][:n] // not wanted
		}
	}
	if !k.second {
		b.step(&k.loops, &k.op, &k.numbers)
	}
	if k.norms {
		x := b.adam(&k.loops, &k.op, &k.numbers)
		if !k.second {
			at := 2 * (lo / blockLen)
			k.squares[at], k.squares[at+1] = squares(b.w), squares(x)
			return
		}
		scale := k.ratio * k.numbers[numRate]
		for i, v := range b.w {
			b.to[i] = v - T(scale*x[i])
		}
	}
	if half && k.out[0] != nil {
		narrow(k.weight, k.out[0], lo, b.to)
	}
}

// squares returns the sum of the squares of x.
func squares[T tensor.Float](x []T) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(float64(v) * float64(v))
	}
	return sum
}

// widen sets dst to the elements of a tensor of a narrower type from lo on.
func widen[T tensor.Float](dst []T, t graph.DType, src []byte, lo int) {
	src = src[t.Size()*lo:][:t.Size()*len(dst)]
	if t == graph.F32 {
		for i, v := range tensor.F32s(src) {
			dst[i] = T(v)
		}
		return
	}
	vec.DecodeHalf(t, tensor.AsFloat32(dst), src)
}

// narrow sets the elements of a tensor of half precision from lo on to x.
func narrow[T tensor.Float](t graph.DType, dst []byte, lo int, x []T) {
	vec.EncodeHalf(t, dst[t.Size()*lo:][:t.Size()*len(x)], tensor.AsFloat32(x))
}
