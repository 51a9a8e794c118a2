package quant

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// scaled is what Quantize and Dequantize share: a walk over runs of x that
// have one scale, or one for each element.
type scaled struct {
	x, y         graph.DType
	scale        graph.DType
	zero         graph.DType // Invalid without a zero point
	tensor.Lanes             // x along the axis of the scale
	block        int         // places on the axis that share a scale; 0: all of x does
	each         bool        // the elements of a run have a scale each
	n            int
	do           func(k *scaled, at, n, scale int)

	// The run in progress.
	in, out, scales, zeros []byte
	parts                  int
}

func newScaled(axis, block int64, in []graph.TensorType, to graph.DType) *scaled {
	x, scale := in[0], in[1]
	k := &scaled{x: x.DType, y: to, scale: scale.DType, n: tensor.Elements(x.Shape)}
	if len(in) > 2 {
		k.zero = in[2].DType
	}
	switch {
	case block > 0:
		k.Lanes = tensor.LanesOf(x.Shape, axis)
		k.block, k.each = int(block), true
	case tensor.Elements(scale.Shape) == 1 && len(scale.Shape) <= 1:
		k.Lanes = tensor.Lanes{Outer: 1, Dim: 1, Inner: k.n}
	default:
		k.Lanes = tensor.LanesOf(x.Shape, axis)
		k.block = 1
		if k.Inner == 1 {
			// One scale for each element of a lane: the lanes are the runs.
			k.Lanes = tensor.Lanes{Outer: k.Outer, Dim: 1, Inner: k.Dim}
			k.block, k.each = 0, true
		}
	}
	return k
}

// Scratch implements Kernel.
func (k *scaled) Scratch() int { return 0 }

// Run implements Kernel.
func (k *scaled) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.in, k.scales, k.out, k.zeros = in[0], in[1], out[0], nil
	if k.zero != graph.Invalid {
		k.zeros = in[2]
	}
	k.parts = tensor.Cut(p, k.n, 2)
	p.Run(k, k.parts)
	k.in, k.scales, k.out, k.zeros = nil, nil, nil, nil
	return nil
}

// Do implements Task.
func (k *scaled) Do(part int) {
	lo, hi := tensor.Span(k.n, k.parts, part, 64)
	blocks := 1 // scales along the axis
	if k.block > 0 {
		blocks = (k.Dim + k.block - 1) / k.block
	}
	for at := lo; at < hi; {
		row, col := at/k.Inner, at%k.Inner
		n := min(k.Inner-col, hi-at, vec.BlockLen)
		scale := 0
		if k.block > 0 {
			scale = row % k.Dim / k.block
		}
		if k.each {
			if k.block > 0 {
				scale = (row/k.Dim*blocks+scale)*k.Inner + col
			} else {
				scale = col
			}
		}
		k.do(k, at, n, scale)
		at += n
	}
}

// parameters decodes n scales and zero points from number first on. There is
// only one where the run has one.
func (k *scaled) parameters(scales, zeros []float32, first, n int) ([]float32, []float32) {
	if !k.each {
		n = 1
	}
	scales, zeros = scales[:n], zeros[:n]
	size := k.scale.Size()
	vec.CastBlock(tensor.RawBytes(scales), graph.F32, k.scales[first*size:(first+n)*size], k.scale)
	if k.zero == graph.Invalid {
		clear(zeros)
	} else {
		size := k.zero.Size()
		vec.CastBlock(tensor.RawBytes(zeros), graph.F32, k.zeros[first*size:(first+n)*size], k.zero)
	}
	return scales, zeros
}

func bindQuantize(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Quantize)
	k := newScaled(o.Axis, o.Block, in, o.To)
	low, high := QuantRange(o.To)
	switch o.To {
	case graph.I8, graph.I4, graph.I2:
		k.do = quantizeRun[int8](low, high, o.Precision)
	case graph.U8, graph.U4, graph.U2:
		k.do = quantizeRun[uint8](low, high, o.Precision)
	case graph.I16:
		k.do = quantizeRun[int16](low, high, o.Precision)
	case graph.U16:
		k.do = quantizeRun[uint16](low, high, o.Precision)
	default:
		return nil, tensor.NoKernel("quantize to "+o.To.String(), in[0].DType)
	}
	return k, nil
}

// QuantRange returns the least and greatest number of a quantised type.
func QuantRange(t graph.DType) (low, high float32) {
	bits := 8 * t.Size()
	switch t {
	case graph.I4, graph.U4:
		bits = 4
	case graph.I2, graph.U2:
		bits = 2
	}
	if t.IsUnsigned() {
		return 0, float32(int(1)<<bits - 1)
	}
	half := float32(int(1) << (bits - 1))
	return -half, half - 1
}

func quantizeRun[D int8 | uint8 | int16 | uint16](low, high float32, precision graph.DType) func(k *scaled, at, n, scale int) {
	return func(k *scaled, at, n, scale int) {
		size := k.x.Size()
		if k.x == graph.F32 && precision == graph.F32 && !k.each {
			var s, z [1]float32
			k.parameters(s[:], z[:], scale, 1)
			quantizeAll(tensor.View[D](k.out)[at:at+n], tensor.F32s(k.in[at*size:(at+n)*size]), s[0], low, high, z[0])
			return
		}
		var bufs [3][vec.BlockLen]float32
		x := bufs[0][:n]
		switch src := k.in[at*size : (at+n)*size]; k.x {
		case graph.F32:
			x = tensor.F32s(src)
		default:
			vec.CastBlock(tensor.RawBytes(x), graph.F32, src, k.x)
		}
		scales, zeros := k.parameters(bufs[1][:], bufs[2][:], scale, n)
		dst := tensor.View[D](k.out)[at : at+n]
		if precision != graph.F32 {
			// The operands and the quotient are of the narrower type.
			half := bufs[0][:n]
			copy(half, x)
			vec.RoundHalf(precision, half)
			vec.RoundHalf(precision, scales)
			for i := range half {
				s := scales[0]
				if k.each {
					s = scales[i]
				}
				half[i] /= s
			}
			vec.RoundHalf(precision, half)
			if k.each {
				for i := range dst {
					dst[i] = D(quantise(half[i], low, high, zeros[i]))
				}
				return
			}
			quantizeAll(dst, half, 1, low, high, zeros[0])
			return
		}
		if k.each {
			for i := range dst {
				dst[i] = D(quantise(x[i]/scales[i], low, high, zeros[i]))
			}
			return
		}
		quantizeAll(dst, x, scales[0], low, high, zeros[0])
	}
}

func quantizeAll[D int8 | uint8 | int16 | uint16](dst []D, x []float32, scale, low, high, zero float32) {
	if vec.VectorQuantise(dst, x, scale, low, high, zero) {
		return
	}
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = D(quantise(x[i]/scale, low, high, zero))
	}
}

// quantise rounds v to nearest even, adds the zero point and limits the sum.
// Limiting first keeps v so small that adding and taking off 1.5·2^23 rounds.
func quantise(v, low, high, zero float32) int32 {
	const shift = 3 << 22
	lo, hi := low-zero, high-zero
	if !(v > lo) { // or NaN
		v = lo
	}
	if v > hi {
		v = hi
	}
	return int32(math.Float32bits(v+shift)-math.Float32bits(shift)) + int32(zero)
}

func bindDequantize(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Dequantize)
	k := newScaled(o.Axis, o.Block, in, o.To)
	k.do = dequantizeRun
	return k, nil
}

func dequantizeRun(k *scaled, at, n, scale int) {
	size, outSize := k.x.Size(), k.y.Size()
	if size == 1 && !k.each && k.y == graph.F32 && (k.x.IsSigned() || k.x.IsUnsigned()) {
		var s, z [1]float32
		k.parameters(s[:], z[:], scale, 1)
		if vec.VectorDequantise(tensor.F32s(k.out[at*outSize:(at+n)*outSize]), k.in[at*size:(at+n)*size], k.x.IsSigned(), s[0], z[0]) {
			return
		}
	}
	var bufs [3][vec.BlockLen]float32
	x := bufs[0][:n]
	dst := k.out[at*outSize : (at+n)*outSize]
	if k.y == graph.F32 {
		x = tensor.F32s(dst)
	}
	scales, zeros := k.parameters(bufs[1][:], bufs[2][:], scale, n)
	src := k.in[at*size : (at+n)*size]
	if size == 1 && !k.each && (k.x.IsSigned() || k.x.IsUnsigned()) && vec.VectorDequantise(x, src, k.x.IsSigned(), scales[0], zeros[0]) {
		if k.y != graph.F32 {
			vec.EncodeHalf(k.y, dst, x)
		}
		return
	}
	if k.x == graph.I32 && k.zero != graph.Invalid {
		// The difference is exact before it becomes a float.
		k.differences(x, tensor.View[int32](src), scale)
		clear(zeros)
	} else {
		vec.CastBlock(tensor.RawBytes(x), graph.F32, src, k.x)
	}
	if k.each {
		for i, s := range scales {
			x[i] = (x[i] - zeros[i]) * s
		}
	} else {
		s, z := scales[0], zeros[0]
		for i, v := range x {
			x[i] = (v - z) * s
		}
	}
	if k.y != graph.F32 {
		vec.EncodeHalf(k.y, dst, x)
	}
}

func (k *scaled) differences(dst []float32, x []int32, first int) {
	zeros := tensor.View[int32](k.zeros)[first:]
	for i, v := range x {
		z := zeros[0]
		if k.each {
			z = zeros[i]
		}
		dst[i] = float32(int64(v) - int64(z))
	}
}
