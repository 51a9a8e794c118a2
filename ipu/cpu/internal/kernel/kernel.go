// Package kernel holds the kernels of the CPU engine: one operator bound to
// the types and shapes of one node, ready to run again and again without
// allocating. Kernels know nothing of plans, arenas or programs; the engine
// knows nothing of how they compute.
//
// On amd64 the heavy kernels for float32 compute in assembly where the
// processor has AVX-512 (F, VL, BW and DQ) or AVX2 with FMA and F16C.
// The environment variable POPEFGEN_CPU chooses a slower way than the fastest:
// avx512, avx2 or go; it is read once, when the program starts, and a value
// that the machine can't honour is ignored. Results differ between the three
// by rounding, but never with the number of threads.
//
// Convolutions of float32 by assembly sum in the order that ONNX Runtime does
// with its optimisations off. Products in the order (channel, line, column) of
// the weights are added in blocks of 128, each a chain of fused multiply-adds
// that begins with 0; the blocks' sums are added one after the other, the bias
// last. Elements outside the image are zeros that take part. A convolution of
// groups with one channel and one output channel each rounds every product by
// itself, adds four of them, then adds those sums one after the other; of the
// products left over at the end, a pair is added as one.
package kernel

//go:generate go -C internal/asm run . ../..

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/attention"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/fourier"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gradient"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/move"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/quant"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/random"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/recurrent"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/reduce"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/update"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
	"github.com/popefgen/popefgen/ipu/graph"
)

// families lists, per family of kernels, the binders by operator kind.
var families = []map[string]tensor.Binder{
	vec.Kernels,
	gemm.Kernels,
	conv.Kernels,
	window.Kernels,
	nchwc.Kernels,
	nhwc.Kernels,
	quant.Kernels,
	reduce.Kernels,
	move.Kernels,
	recurrent.Kernels,
	attention.Kernels,
	fourier.Kernels,
	random.Kernels,
	update.Kernels,
	gradient.Kernels,
}

// New binds op to its operand and result types, which must be those that
// op.Infer gives. The error says which operator or type has no kernel.
func New(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	if o, ok := op.(*nchwc.FusedTiles); ok {
		return nchwc.NewFusedTiles(New, o, in, out[0])
	}
	for _, f := range families {
		if b := f[op.Kind()]; b != nil {
			k, err := b(op, in, out)
			if err != nil {
				return nil, fmt.Errorf("operator %s: %w", op.Kind(), err)
			}
			return k, nil
		}
	}
	return nil, fmt.Errorf("operator %s has no CPU kernel", op.Kind())
}
