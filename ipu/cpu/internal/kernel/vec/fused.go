package vec

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// RoundedPointwise is a [graph.Pointwise] whose values are those of a type of
// half precision but stand in F32: every instruction's result is rounded to To.
// Operands are F32 or of type To, the result is F32.
type RoundedPointwise struct {
	graph.Pointwise
	To graph.DType
}

// Kind returns "RoundedPointwise".
func (*RoundedPointwise) Kind() string { return "RoundedPointwise" }

// Infer implements [graph.Op].
func (o *RoundedPointwise) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	wide := slices.Clone(in)
	for i, t := range in {
		if t.DType == o.To {
			wide[i].DType = graph.F32
		}
	}
	return o.Pointwise.Infer(wide)
}

// pointwise computes a [graph.Pointwise] block by block: every instruction is
// the loop of its own operator over a block that stays in the first-level
// cache. Half precision is widened on the way in and rounded after every
// instruction.
type pointwise struct {
	code     []pointwiseStep
	operands []pointwiseOperand
	to       graph.DType // what results are rounded to, or F32
	size     int         // bytes of an element of the result
	n        int         // elements of the result
	step     int         // elements of a block
	cost     int
	result   int // where a part's scratch has a block of the result before it is rounded
	rounded  int // where it has a block of half precision
	tmp      int // where it has the memory that instructions ask for
	perPart  int // bytes of scratch of one part

	// The run in progress.
	in      [graph.MaxPointwiseOperands][]byte
	out     []byte
	scratch []byte
	parts   int
	pool    tensor.Pool
}

// pointwiseStep is one instruction. Places below the number of operands are
// operands, others buffers after them; -1 is left out and -2 the result.
type pointwiseStep struct {
	compute compute
	args    [tensor.MaxOperands]int
	dst     int
	tmp     int  // bytes of temporary memory
	exact   bool // of half-precision numbers it gives such
}

// pointwiseOperand says how an operand's elements meet those of the result.
type pointwiseOperand struct {
	mode   operandMode // whole, single or spread
	loop   tensor.Loop // of a spread one, over the result
	buffer int         // where in a part's scratch its blocks are laid out
	half   graph.DType // its type if it is one of half precision, else Invalid
	size   int         // bytes of an element
	wide   int         // where in a part's scratch its blocks are widened
}

// pointwiseLen is how many elements are computed at a time, where no
// instruction asks for less.
const pointwiseLen = 2 * BlockLen

const toResult = -2

func bindPointwise(o *graph.Pointwise, to graph.DType, in, out []graph.TensorType) (tensor.Kernel, error) {
	k := &pointwise{n: tensor.Elements(out[0].Shape), to: to, size: out[0].DType.Size(), step: pointwiseLen, operands: make([]pointwiseOperand, len(in))}
	buffers, err := k.program(o, len(in))
	if err != nil {
		return nil, err
	}
	for i, t := range in {
		a := &k.operands[i]
		a.size = t.DType.Size()
		switch {
		case tensor.Elements(t.Shape) == k.n:
			a.mode = whole
		case tensor.Elements(t.Shape) == 1:
			a.mode = single
		default:
			a.mode = spread
			if a.loop, err = tensor.Broadcast(out[0].Shape, t.Shape); err != nil {
				return nil, err
			}
		}
		if a.mode != whole {
			a.buffer = k.take(4)
		}
		if isHalf(t) {
			a.half = t.DType
			a.wide = k.take(4)
		}
	}
	for range buffers {
		k.operands = append(k.operands, pointwiseOperand{mode: absent, buffer: k.take(4)})
	}
	if k.to != graph.F32 {
		k.result, k.rounded = k.take(4), k.take(2)
	}
	k.tmp = k.perPart
	for i := range k.code {
		k.perPart = max(k.perPart, k.tmp+k.code[i].tmp)
	}
	// What one instruction leaves in the first-level cache the next one finds there.
	k.cost = 1 + (k.cost-1)/2
	k.perPart = roundTo(k.perPart, 64)
	return k, nil
}

// take sets memory for a block of elements of so many bytes aside in the scratch
// of a part, and returns where that is.
func (k *pointwise) take(size int) int {
	at := k.perPart
	k.perPart += size * k.step
	return at
}

func roundTo(n, unit int) int { return (n + unit - 1) / unit * unit }

// program makes the instructions of o and returns how many buffers they need:
// a value's buffer is free for another once its last reader begins, which may
// write over it.
func (k *pointwise) program(o *graph.Pointwise, operands int) (buffers int, err error) {
	last := make([]int, operands+len(o.Fns)) // the last instruction that reads a value
	at := 0
	for i, fn := range o.Fns {
		for range graph.PointwiseArity(fn) {
			if a := o.Args[at]; a >= 0 {
				last[a] = i
			}
			at++
		}
	}
	place := make([]int, len(o.Fns))
	var free []int
	at = 0
	for i, fn := range o.Fns {
		s, cost, err := pointwiseInstruction(fn, o.Alpha[i], o.Beta[i], o.Args[at:])
		if err != nil {
			return 0, fmt.Errorf("instruction %d: %w", i, err)
		}
		k.cost += cost
		if s.tmp > 0 {
			k.step = BlockLen
		}
		for j := range s.args {
			s.args[j] = -1
		}
		for j := range graph.PointwiseArity(fn) {
			a := int(o.Args[at])
			at++
			if a < operands {
				s.args[j] = a
				continue
			}
			v := a - operands
			s.args[j] = operands + place[v]
			if last[a] == i && place[v] >= 0 {
				seen := false
				for _, f := range free {
					seen = seen || f == place[v]
				}
				if !seen {
					free = append(free, place[v])
				}
			}
		}
		switch {
		case i == len(o.Fns)-1:
			s.dst = toResult
		case len(free) > 0:
			place[i] = free[len(free)-1]
			free = free[:len(free)-1]
			s.dst = operands + place[i]
		default:
			place[i] = buffers
			buffers++
			s.dst = operands + place[i]
		}
		s.exact = exactOfHalf(fn)
		if k.to != graph.F32 && !s.exact {
			k.cost += 2
		}
		if i < len(o.Fns)-1 && last[operands+i] == 0 {
			free = append(free, place[i]) // nobody reads it
		}
		k.code = append(k.code, s)
	}
	return buffers, nil
}

// exactOfHalf reports whether a function of numbers of half precision gives
// such a number.
func exactOfHalf(fn string) bool {
	switch fn {
	case graph.PointwiseClip, string(graph.Max), string(graph.Min):
		return true
	}
	return ExactOfHalf(graph.UnaryFn(fn))
}

// ExactOfHalf reports whether a function of a number of half precision is one.
func ExactOfHalf(fn graph.UnaryFn) bool {
	switch fn {
	case graph.Relu, graph.Abs, graph.Neg, graph.Sign, graph.Floor, graph.Ceil, graph.Round:
		return true
	}
	return false
}

// pointwiseInstruction returns the loop of one function and about how many
// simple operations an element takes.
func pointwiseInstruction(fn string, alpha, beta float64, args []int64) (s pointwiseStep, cost int, err error) {
	block := graph.TensorType{DType: graph.F32, Shape: []int64{BlockLen}}
	out := []graph.TensorType{block}
	var k tensor.Kernel
	switch graph.PointwiseArity(fn) {
	case 1:
		k, err = bindUnary(&graph.Unary{Fn: graph.UnaryFn(fn), Alpha: alpha, Beta: beta}, out, out)
	case 2:
		k, err = bindBinary(&graph.Binary{Fn: graph.BinaryFn(fn)}, []graph.TensorType{block, block}, out)
	case 3:
		in := []graph.TensorType{block, {}, {}}
		for i := range in {
			if args[i] >= 0 {
				in[i] = block
			}
		}
		k, err = bindClip(&graph.Clip{}, in, out)
	}
	if err != nil {
		return s, 0, err
	}
	e, ok := k.(*elementwise)
	if !ok {
		return s, 0, fmt.Errorf("function %q has no loop over blocks", fn)
	}
	return pointwiseStep{compute: e.compute, tmp: e.tmp}, e.cost, nil
}

// Scratch implements Kernel.
func (k *pointwise) Scratch() int { return k.perPart * tensor.MostParts(k.n, k.cost) }

// InPlace implements InPlacer: a block of the result is written once all that
// needs the operand's has read it.
func (k *pointwise) InPlace(i int) bool {
	return k.operands[i].mode == whole && k.operands[i].size == k.size
}

// Run implements Kernel.
func (k *pointwise) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	copy(k.in[:], in)
	k.out, k.scratch = out[0], scratch
	k.parts, k.pool = tensor.CutSlots(p, k.n, k.cost), p
	p.Run(k, k.parts)
	clear(k.in[:])
	k.out, k.scratch = nil, nil
	return nil
}

// Do implements Task.
func (k *pointwise) Do(part int) {
	lo, hi := tensor.Span(k.n, k.parts, part, 64)
	if lo == hi {
		return
	}
	scratch := k.scratch[part*k.perPart:][:k.perPart]
	tmp := scratch[k.tmp:]
	var values [graph.MaxPointwiseOperands + graph.MaxPointwiseInstructions][]byte
	var filled [graph.MaxPointwiseOperands]filling
	most := min(k.step, hi-lo)
	for i := range k.operands {
		switch a := &k.operands[i]; a.mode {
		case single:
			values[i] = scratch[a.buffer:][:4*most]
			if a.half == graph.Invalid {
				Fill[uint32](values[i], k.in[i])
				break
			}
			DecodeHalf(a.half, tensor.F32s(values[i][:4]), k.in[i][:2])
			Fill[uint32](values[i][4:], values[i][:4])
		case absent:
			values[i] = scratch[a.buffer:][:4*most]
		}
	}
	for at, next := lo, lo; at < hi; at += k.step {
		if at >= next { // some milliseconds later
			if next = at + tensor.Long/max(1, k.cost); at > lo && k.pool.Ended() {
				return
			}
		}
		n := min(k.step, hi-at)
		out := k.out[k.size*at:][:k.size*n]
		for i := range k.operands {
			a := &k.operands[i]
			if a.mode != whole && a.mode != spread {
				values[i] = values[i][:4*n]
				continue
			}
			v := k.in[i]
			if a.mode == whole {
				v = v[a.size*at:][:a.size*n]
			} else {
				v = a.spread(scratch, v, at, n, &filled[i])
			}
			if a.half != graph.Invalid {
				wide := scratch[a.wide:][:4*n]
				DecodeHalf(a.half, tensor.F32s(wide), v)
				v = wide
			}
			values[i] = v
		}
		for i := range k.code {
			s := &k.code[i]
			dst := out
			switch {
			case s.dst != toResult:
				dst = values[s.dst]
			case k.size < 4:
				dst = scratch[k.result:][:4*n]
			}
			var args [tensor.MaxOperands][]byte
			for j, a := range s.args {
				if a >= 0 {
					args[j] = values[a]
				}
			}
			s.compute(dst, args[0], args[1], args[2], tmp)
			switch {
			case s.dst == toResult && k.size < 4:
				EncodeHalf(k.to, out, tensor.F32s(dst))
			case k.to != graph.F32 && !s.exact:
				half := scratch[k.rounded:][:2*n]
				EncodeHalf(k.to, half, tensor.F32s(dst))
				DecodeHalf(k.to, tensor.F32s(dst), half)
			}
		}
	}
}

// spread returns the operand's elements for n of the result's from at on: its
// own memory where they lie there one after the other, or a copy, which may be
// there already.
func (a *pointwiseOperand) spread(scratch, in []byte, at, n int, filled *filling) []byte {
	var c tensor.Cursor
	inner, stride := a.loop.Inner, a.loop.Stride(0)
	a.loop.Seek(&c, at/inner)
	col := at % inner
	if stride == 1 && n <= inner-col {
		return in[a.size*(c.Off[0]+col):][:a.size*n]
	}
	dst := scratch[a.buffer:][:a.size*n]
	if stride == 0 && n <= inner-col {
		if filled.wants(c.Off[0], n) {
			a.fill(dst, in[a.size*c.Off[0]:])
		}
		return dst
	}
	*filled = filling{}
	again := len(a.loop.Shape) - 2 // the axis on which rows repeat, if they do
	if stride != 1 || again >= 0 && a.loop.Strides[0][again] != 0 {
		again = -1
	}
	for done := 0; done < n; {
		if again >= 0 && col == 0 && n-done >= 2*inner {
			rows := min((n-done)/inner, a.loop.Shape[again]-c.At[again])
			Repeat(dst[a.size*done:][:a.size*rows*inner], in[a.size*c.Off[0]:][:a.size*inner])
			done += rows * inner
			c.At[again] += rows - 1
			a.loop.Next(&c)
			continue
		}
		run := min(inner-col, n-done)
		to := dst[a.size*done:][:a.size*run]
		if stride == 0 {
			a.fill(to, in[a.size*c.Off[0]:])
		} else {
			copy(to, in[a.size*(c.Off[0]+col):])
		}
		done += run
		if col += run; col == inner {
			col = 0
			a.loop.Next(&c)
		}
	}
	return dst
}

// fill sets all elements of dst to the first one of src.
func (a *pointwiseOperand) fill(dst, src []byte) {
	if a.size == 2 {
		Fill[uint16](dst, src[:2])
	} else {
		Fill[uint32](dst, src[:4])
	}
}
