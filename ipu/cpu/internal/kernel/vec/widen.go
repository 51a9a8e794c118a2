package vec

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Widened returns a binder like b for operators on half precision too: the kernel is bound
// to single precision, operands are converted before it and results rounded,
// once, after it.
func Widened(b tensor.Binder) tensor.Binder {
	return func(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
		if !slices.ContainsFunc(in, isHalf) && !slices.ContainsFunc(out, isHalf) {
			return b(op, in, out)
		}
		k, err := b(op, widenTypes(in), widenTypes(out))
		if err != nil {
			return nil, err
		}
		return newWidening(k, in, out), nil
	}
}

func isHalf(t graph.TensorType) bool { return t.DType == graph.F16 || t.DType == graph.BF16 }

func widenTypes(types []graph.TensorType) []graph.TensorType {
	wide := slices.Clone(types)
	for i, t := range wide {
		if isHalf(t) {
			wide[i].DType = graph.F32
		}
	}
	return wide
}

// widening runs a single-precision kernel on half-precision operands.
type widening struct {
	kernel  tensor.Kernel
	in, out []widenedTensor
	inner   int // offset of the kernel's own scratch memory
	total   int

	wideIn, wideOut [][]byte // what the kernel is given
	task            WidenTask
}

// widenedTensor is an operand or result of a widening.
type widenedTensor struct {
	dtype  graph.DType // F16 or BF16 if it is converted, else Invalid
	n      int         // elements
	offset int         // of its single-precision form in scratch memory
	packed bool        // it comes converted
}

func newWidening(k tensor.Kernel, in, out []graph.TensorType) *widening {
	w := &widening{kernel: k, wideIn: make([][]byte, len(in)), wideOut: make([][]byte, len(out))}
	for _, t := range in {
		w.in = append(w.in, newWidened(t))
	}
	for _, t := range out {
		w.out = append(w.out, newWidened(t))
	}
	w.place()
	return w
}

func newWidened(t graph.TensorType) widenedTensor {
	if !isHalf(t) {
		return widenedTensor{}
	}
	return widenedTensor{dtype: t.DType, n: tensor.Elements(t.Shape)}
}

// place lays out the scratch memory.
func (w *widening) place() {
	w.total = 0
	for _, list := range [][]widenedTensor{w.in, w.out} {
		for i := range list {
			if t := &list[i]; t.dtype != graph.Invalid && !t.packed {
				t.offset = w.total
				w.total += (4*t.n + 63) &^ 63
			}
		}
	}
	w.inner = w.total
	w.total += w.kernel.Scratch()
}

// Scratch implements [Kernel].
func (w *widening) Scratch() int { return w.total }

// Packed implements [Packer]: seldom changing operands come converted, and in
// the kernel's own layout if it has one.
func (w *widening) Packed(i int) int {
	if p, ok := w.kernel.(tensor.Packer); ok {
		if n := p.Packed(i); n > 0 {
			return n
		}
	}
	if w.in[i].dtype == graph.Invalid {
		return 0
	}
	return 4 * w.in[i].n
}

// Pack implements [Packer].
func (w *widening) Pack(i int, dst, src []byte) {
	p, ok := w.kernel.(tensor.Packer)
	own := ok && p.Packed(i) > 0
	t := w.in[i]
	switch {
	case !own:
		DecodeHalf(t.dtype, tensor.F32s(dst), src)
	case t.dtype == graph.Invalid:
		p.Pack(i, dst, src)
	default:
		wide := make([]float32, t.n)
		DecodeHalf(t.dtype, wide, src)
		p.Pack(i, dst, tensor.RawBytes(wide))
	}
}

// Packing implements [Packer].
func (w *widening) Packing(i int) tensor.Packing {
	p, ok := w.kernel.(tensor.Packer)
	own := ok && p.Packed(i) > 0
	t := w.in[i]
	switch {
	case !own:
		return HalfPacking(t.dtype, "")
	case t.dtype == graph.Invalid:
		return p.Packing(i)
	}
	return HalfPacking(t.dtype, p.Packing(i))
}

// Takes implements [tensor.Taker].
func (w *widening) Takes(i int) tensor.Packing {
	if t, ok := w.kernel.(tensor.Taker); ok && w.in[i].dtype != graph.Invalid {
		if p := t.Takes(i); p != "" {
			return HalfPacking(w.in[i].dtype, p)
		}
	}
	return ""
}

// Take implements [tensor.Taker].
func (w *widening) Take(i int) {
	w.kernel.(tensor.Taker).Take(i)
	w.in[i].packed = true
	w.place()
}

// HalfPacking describes the layout of an operand of half precision that comes converted to
// float32, in the layout of the operator on float32.
func HalfPacking(t graph.DType, of tensor.Packing) tensor.Packing {
	return tensor.PackingOf("widened", int(t)) + " " + of
}

// UsePacked implements [Packer].
func (w *widening) UsePacked(i int) {
	if p, ok := w.kernel.(tensor.Packer); ok && p.Packed(i) > 0 {
		p.UsePacked(i)
	}
	w.in[i].packed = true
	w.place()
}

// InPlace implements [InPlacer]: the kernel sees neither the memory of a
// converted operand nor that of a converted result.
func (w *widening) InPlace(i int) bool {
	in, out := w.in[i], w.out[0]
	return in.dtype != graph.Invalid && out.dtype != graph.Invalid && in.n == out.n
}

// Run implements [Kernel].
func (w *widening) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	for i, b := range in {
		w.wideIn[i] = b
		if t := w.in[i]; b != nil && t.dtype != graph.Invalid && !t.packed {
			w.wideIn[i] = scratch[t.offset:][:4*t.n]
			w.task.Run(p, WidenTask{Dtype: t.dtype, Wide: tensor.F32s(w.wideIn[i]), Half: b})
		}
	}
	for i, b := range out {
		w.wideOut[i] = b
		if t := w.out[i]; b != nil && t.dtype != graph.Invalid {
			w.wideOut[i] = scratch[t.offset:][:4*t.n]
		}
	}
	err := w.kernel.Run(p, w.wideIn[:len(in)], w.wideOut[:len(out)], scratch[w.inner:])
	for i, b := range out {
		if t := w.out[i]; b != nil && t.dtype != graph.Invalid && err == nil {
			w.task.Run(p, WidenTask{Dtype: t.dtype, Wide: tensor.F32s(w.wideOut[i]), Half: b, round: true})
		}
	}
	clear(w.wideIn)
	clear(w.wideOut)
	return err
}

// WidenTask converts one tensor between half and single precision.
type WidenTask struct {
	Dtype graph.DType
	Wide  []float32
	Half  []byte
	round bool // from single to half precision
	parts int
}

// Run runs the conversion v on the workers of p.
func (t *WidenTask) Run(p tensor.Pool, v WidenTask) {
	v.parts = tensor.Cut(p, len(v.Wide), 3)
	*t = v
	p.Run(t, t.parts)
	*t = WidenTask{}
}

// Do implements [Task].
func (t *WidenTask) Do(part int) {
	lo, hi := tensor.Span(len(t.Wide), t.parts, part, 64)
	if t.round {
		EncodeHalf(t.Dtype, t.Half[2*lo:2*hi], t.Wide[lo:hi])
	} else {
		DecodeHalf(t.Dtype, t.Wide[lo:hi], t.Half[2*lo:2*hi])
	}
}
