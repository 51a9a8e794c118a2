package pass

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// phases are neighbouring results of a transposed convolution along one axis,
// up to the stride, that take the same number of the kernel's elements.
type phases struct{ first, count, taps int64 }

// convolveTransposed writes a transposed convolution as convolutions. Along an
// axis with stride s, result o is the sum of w[r+s·j]·x[q-j] over j, where q
// and r are the quotient and the remainder of o+PadsBegin by s: for a fixed r
// a convolution with every s-th element of the kernel, in reverse. All r that
// take equally many elements are output channels of one convolution; a
// transpose puts their results in turn.
func convolveTransposed(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		op, ok := n.Op.(*graph.ConvTranspose)
		if !ok || len(n.Outputs) == 0 || n.Outputs[0] == graph.None || r.Tensors[n.Outputs[0]].Type.DType != graph.F32 {
			return false
		}
		return r.convolveTransposed(n, op)
	})
}

func (r *rewriter) convolveTransposed(n *graph.Node, op *graph.ConvTranspose) bool {
	const mostSpatial = 2
	x, w, b := n.Inputs[0], n.Inputs[1], graph.None
	if len(n.Inputs) > 2 {
		b = n.Inputs[2]
	}
	in, weights, out := r.Tensors[x].Type.Shape, r.Tensors[w].Type.Shape, r.Tensors[n.Outputs[0]].Type.Shape
	spatial := len(in) - 2
	if spatial > mostSpatial || !r.settled(w) || b != graph.None && !r.settled(b) || slices.Contains(in, 0) || slices.Contains(out, 0) {
		return false
	}
	var (
		parts = make([][]phases, spatial) // along each axis
		first = make([]int64, spatial)    // the first q computed
		count = make([]int64, spatial)    // how many are
		after = make([]int64, spatial)    // of x, beyond its end, that the last q meets
		whole = make([]int64, spatial)    // elements of the kernel for the first phases, rounded up
	)
	for i := range spatial {
		k, s, pad := weights[2+i], op.Strides[i], op.PadsBegin[i]
		if op.Dilations[i] != 1 || k < s {
			return false
		}
		whole[i] = (k + s - 1) / s
		least := k / s
		if rest := k % s; rest > 0 {
			parts[i] = append(parts[i], phases{0, rest, whole[i]})
			parts[i] = append(parts[i], phases{rest, s - rest, least})
		} else {
			parts[i] = append(parts[i], phases{0, s, least})
		}
		first[i] = min(floorDiv(pad, s), least-1)
		count[i] = max(floorDiv(out[2+i]-1+pad, s)-first[i]+1, in[2+i]-first[i])
		after[i] = count[i] - in[2+i] + first[i]
		if pad < -graph.MostReach/8 || count[i] > 4*(in[2+i]+out[2+i]+k) {
			return false
		}
	}

	y, ok := r.phases(x, r.padded(w, whole, op.Strides), b, op, parts, first, after, nil)
	if !ok {
		return false
	}
	// [N, G, s…, M/G, q…] to [N, G, M/G, (q, s)…].
	group, maps := op.Group, weights[1]
	shape := append(append([]int64{out[0], group}, op.Strides...), maps)
	y = r.shaped(y, append(shape, count...)...)
	perm, sizes := []int64{0, 1, int64(2 + spatial)}, []int64{out[0], group * maps}
	for i := range int64(spatial) {
		perm = append(perm, int64(3+spatial)+i, 2+i)
		sizes = append(sizes, count[i]*op.Strides[i])
	}
	if !slices.Equal(op.Strides, slices.Repeat([]int64{1}, spatial)) {
		y = r.emit(&graph.Transpose{Perm: perm}, y)
	}
	const what = "transposed convolutions made convolutions"
	if slices.Equal(sizes, out) {
		return r.replace(what, &graph.Reshape{Shape: out}, y)
	}
	y = r.shaped(y, sizes...)
	cut := graph.Slice{Start: make([]int64, len(out)), Size: out, Step: slices.Repeat([]int64{1}, len(out))}
	for i := range spatial {
		cut.Start[2+i] = op.PadsBegin[i] - first[i]*op.Strides[i]
	}
	return r.replace(what, &cut, y)
}

// padded gives weights zeros until there are as many on each axis as phases
// with the most elements take, and an axis of its own for the phases: [G, C/G,
// M/G, (elements, phases)…].
func (r *rewriter) padded(w graph.TensorID, whole, strides []int64) graph.TensorID {
	shape := r.Tensors[w].Type.Shape
	pad := graph.Pad{Before: make([]int64, len(shape)), After: make([]int64, len(shape)), Mode: graph.PadConstant}
	out := slices.Clone(shape[:2])
	for i, n := range whole {
		pad.After[2+i] = n*strides[i] - shape[2+i]
		out = append(out, n, strides[i])
	}
	if slices.ContainsFunc(pad.After, func(n int64) bool { return n > 0 }) {
		w = r.emit(&pad, w)
	}
	return r.shaped(w, out...)
}

// phases computes the phases of all axes from len(chosen) on, those of the
// axes before being chosen, as [N, G·phases…·M/G, q…]: those of each axis one
// after the other.
func (r *rewriter) phases(x, w, b graph.TensorID, op *graph.ConvTranspose, parts [][]phases, first, after []int64, chosen []phases) (graph.TensorID, bool) {
	if len(chosen) == len(parts) {
		return r.phase(x, w, b, op, first, after, chosen), true
	}
	axis := len(chosen)
	var all []graph.TensorID
	for _, p := range parts[axis] {
		y, ok := r.phases(x, w, b, op, parts, first, after, append(slices.Clone(chosen), p))
		if !ok {
			return graph.None, false
		}
		all = append(all, y)
	}
	if len(all) == 1 {
		return all[0], true
	}
	// Phases lie behind the groups and the axes before this one.
	maps := r.Tensors[w].Type.Shape[1]
	for i, y := range all {
		shape := r.Tensors[y].Type.Shape
		split := []int64{shape[0], op.Group}
		rest := shape[1] / op.Group / maps
		for _, p := range chosen {
			split = append(split, p.count)
			rest /= p.count
		}
		all[i] = r.shaped(y, append(append(split, rest, maps), shape[2:]...)...)
	}
	y := r.emit(&graph.Concat{Axis: int64(2 + axis)}, all...)
	shape := r.Tensors[y].Type.Shape
	channels := int64(1)
	for _, d := range shape[1 : 4+axis] {
		channels *= d
	}
	return r.shaped(y, append([]int64{shape[0], channels}, shape[4+axis:]...)...), true
}

// phase is the convolution for one phase, or neighbouring ones, of every axis.
func (r *rewriter) phase(x, w, b graph.TensorID, op *graph.ConvTranspose, first, after []int64, chosen []phases) graph.TensorID {
	spatial := len(chosen)
	all := r.Tensors[w].Type.Shape
	channels, maps := all[0]/op.Group, all[1]
	conv := graph.Conv{Group: op.Group, Strides: slices.Repeat([]int64{1}, spatial), Dilations: slices.Repeat([]int64{1}, spatial), PadsEnd: after}
	cut := graph.Slice{Start: []int64{0, 0, 0}, Size: []int64{op.Group, channels, maps}, Step: []int64{1, 1, 1}}
	perm, split := []int64{0}, []int64{op.Group, channels, maps}
	outputs, window := op.Group*maps, []int64{channels}
	counts := []int64{op.Group}
	for i, p := range chosen {
		split = append(split, all[2+2*i], all[3+2*i])
		cut.Start = append(cut.Start, p.taps-1, p.first)
		cut.Size = append(cut.Size, p.taps, p.count)
		cut.Step = append(cut.Step, -1, 1)
		perm = append(perm, int64(4+2*i))
		conv.PadsBegin = append(conv.PadsBegin, p.taps-1-first[i])
		outputs *= p.count
		window = append(window, p.taps)
		counts = append(counts, p.count)
	}
	perm = append(perm, 2, 1)
	for i := range spatial {
		perm = append(perm, int64(3+2*i))
	}
	w = r.emit(&graph.Transpose{Perm: perm}, r.emit(&cut, r.shaped(w, split...)))
	w = r.shaped(w, append([]int64{outputs}, window...)...)
	if b == graph.None {
		return r.emit(&conv, x, w)
	}
	one := slices.Repeat([]int64{1}, spatial)
	b = r.shaped(b, append(append([]int64{op.Group}, one...), maps)...)
	b = r.emit(&graph.Expand{Shape: append(counts, maps)}, b)
	return r.emit(&conv, x, w, r.shaped(b, outputs))
}

// floorDiv returns a/b rounded down, for positive b.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
