package nchwc

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// What of the image a unit of work reads and what of the weights several units
// may read again, in bytes: both stay in the second-level cache. They are
// variables for the tests.
var (
	blockedBandBytes   = 384 << 10
	blockedWeightBytes = 768 << 10
)

func bindConv(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*Conv)
	types, y, err := o.planarOperands(in)
	if err != nil {
		return nil, err
	}
	if k := newBlockedDepthwise(o, types, y); k != nil {
		return k, nil
	}
	if k := newBlockedDense(o, types, y); k != nil {
		return k, nil
	}
	return newPlainBlockedConv(o, types, y)
}

// planarOperands returns the types of operands and result of a blocked
// convolution on NCHW.
func (o *Conv) planarOperands(in []graph.TensorType) (types []graph.TensorType, out graph.TensorType, err error) {
	x := in[0]
	if o.In {
		shape, err := planarShape(x, o.Channels)
		if err != nil {
			return nil, out, err
		}
		x = graph.TensorType{DType: graph.F32, Shape: shape}
	}
	types = append([]graph.TensorType{x}, in[1:min(len(in), 3)]...)
	same := make([]graph.TensorType, len(types))
	for i, t := range types {
		if same[i] = t; t.DType == graph.F16 {
			same[i].DType = graph.F32
		}
	}
	results, err := o.Conv.Infer(same)
	if err != nil {
		return nil, out, err
	}
	return types, results[0], nil
}

// plainBlockedConv computes a blocked convolution by the kernel for planes, for
// those that no other kernel takes.
type plainBlockedConv struct {
	inner     tensor.Kernel
	in, out   bool // x is, the result and r are, in NCHWc
	half      bool
	low, high float32
	x         blockMove
	y         blockShape

	yAt, innerAt int // in scratch memory
	operands     [3][]byte
	results      [1][]byte

	// The run in progress.
	planes []float32 // of the result, without r
	r, to  []byte
	parts  int
}

func newPlainBlockedConv(o *Conv, types []graph.TensorType, y graph.TensorType) (tensor.Kernel, error) {
	plain := o.Conv
	plain.Bounded = false
	inner, err := conv.Kernels[plain.Kind()](&plain, types, []graph.TensorType{y})
	if err != nil {
		return nil, err
	}
	k := &plainBlockedConv{inner: inner, in: o.In, out: o.Out, half: o.Half, low: float32(math.Inf(-1)), high: float32(math.Inf(1))}
	if o.Bounded {
		k.low, k.high = float32(o.Low), float32(o.High)
	}
	k.x.blockShape, k.y = newBlockShape(types[0].Shape, int(o.Lanes)), newBlockShape(y.Shape, int(o.Lanes))
	if o.In {
		k.yAt = tensor.RoundUp(4*tensor.Elements(types[0].Shape), 64)
	}
	k.innerAt = k.yAt + tensor.RoundUp(4*tensor.Elements(y.Shape), 64)
	return k, nil
}

// Scratch implements [Kernel].
func (k *plainBlockedConv) Scratch() int { return k.innerAt + k.inner.Scratch() }

// Packed implements [Packer].
func (k *plainBlockedConv) Packed(i int) int {
	if p, ok := k.inner.(tensor.Packer); ok && (i == 1 || i == 2) {
		return p.Packed(i)
	}
	return 0
}

// Pack implements [Packer].
func (k *plainBlockedConv) Pack(i int, dst, src []byte) { k.inner.(tensor.Packer).Pack(i, dst, src) }

// Packing implements [Packer].
func (k *plainBlockedConv) Packing(i int) tensor.Packing { return k.inner.(tensor.Packer).Packing(i) }

// InPlace implements [InPlacer].
func (k *plainBlockedConv) InPlace(i int) bool { return i == 3 }

// UsePacked implements [Packer].
func (k *plainBlockedConv) UsePacked(i int) { k.inner.(tensor.Packer).UsePacked(i) }

// Run implements [Kernel].
func (k *plainBlockedConv) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	k.operands = [3][]byte{in[0], in[1], tensor.Memory(in, 2)}
	if k.in {
		k.operands[0] = scratch[:4*k.x.images*k.x.channels*k.x.pixels]
		k.x.run(p, k.operands[0], in[0])
	}
	k.results[0] = scratch[k.yAt:][:4*k.y.images*k.y.channels*k.y.pixels]
	err := k.inner.Run(p, k.operands[:], k.results[:], scratch[k.innerAt:])
	if err == nil && len(out[0]) > 0 {
		k.planes, k.r, k.to = tensor.F32s(k.results[0]), tensor.Memory(in, 3), out[0]
		n := k.y.images * k.y.blocks
		k.parts = tensor.Cut(p, n, k.y.pixels*k.y.lanes)
		p.Run(k, k.parts)
	}
	k.operands, k.results, k.planes, k.r, k.to = [3][]byte{}, [1][]byte{}, nil, nil, nil
	return err
}

// Do implements [Task].
func (k *plainBlockedConv) Do(part int) {
	s := &k.y
	for block, end := tensor.Span(s.images*s.blocks, k.parts, part, 1); block < end; block++ {
		planes, channels := s.of(block)
		if k.out && channels < s.lanes {
			for i := range s.pixels {
				clear(tensor.F32s(k.to)[(block*s.pixels+i)*s.lanes:][channels:s.lanes])
			}
		}
		for c := range channels {
			for i := 0; i < s.pixels; i += vec.BlockLen {
				from := planes + c*s.pixels + i
				x := k.planes[from:][:min(vec.BlockLen, s.pixels-i)]
				if k.out {
					k.finish(x, (block*s.pixels+i)*s.lanes+c, s.lanes)
				} else {
					k.finish(x, from, 1)
				}
			}
		}
	}
}

// finish rounds, adds to and limits sums, which it writes over, and stores
// them where the result has them: from its element at on, step by step. What
// nothing is added to is limited before it is rounded, as it is in rows, so
// that what is just below 0 does not become -0.
func (k *plainBlockedConv) finish(x []float32, at, step int) {
	wide := k.out || !k.half
	if k.r == nil {
		k.limit(x)
	}
	if k.half {
		vec.RoundHalf(graph.F16, x)
	}
	if k.r != nil {
		if wide {
			r := tensor.F32s(k.r)[at:]
			for i := range x {
				x[i] += r[i*step]
			}
		} else {
			for i, r := range tensor.View[num.Float16](k.r)[at:][:len(x)] {
				x[i] += r.Float32()
			}
		}
		if k.half {
			vec.RoundHalf(graph.F16, x)
		}
		k.limit(x)
	}
	if !wide {
		vec.EncodeHalf(graph.F16, k.to[2*at:][:2*len(x)], x)
		return
	}
	to := tensor.F32s(k.to)[at:]
	for i, v := range x {
		to[i*step] = v
	}
}

// limit keeps sums within the bounds. Not a number stays what it is, and so
// does -0.
func (k *plainBlockedConv) limit(x []float32) {
	for i, v := range x {
		if v < k.low {
			v = k.low
		}
		if v > k.high {
			v = k.high
		}
		x[i] = v
	}
}
