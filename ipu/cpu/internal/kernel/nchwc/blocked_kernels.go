package nchwc

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// blockShape is the geometry of a tensor in NCHWc.
type blockShape struct {
	images, channels int
	blocks, lanes    int
	pixels           int // of a channel
}

// newBlockShape returns the shape of a tensor of planes.
func newBlockShape(planar []int64, lanes int) blockShape {
	s := blockShape{images: int(planar[0]), channels: int(planar[1]), lanes: lanes, pixels: tensor.Elements(planar[2:])}
	s.blocks = (s.channels + lanes - 1) / lanes
	return s
}

// of returns the channels [lo, hi) of the block with the given number among
// those of all images, and where its planes begin.
func (s *blockShape) of(block int) (planes, channels int) {
	image, b := block/s.blocks, block%s.blocks
	return (image*s.channels + b*s.lanes) * s.pixels, min(s.lanes, s.channels-b*s.lanes)
}

// blockMove converts between NCHW of F32 or F16 and NCHWc.
type blockMove struct {
	blockShape
	half bool // the planes are of F16
	to   bool // to NCHWc

	// The run in progress.
	blocked []float32
	planar  []float32
	halves  []num.Float16
	cuts    int // parts of a block
	units   int
	parts   int
}

func bindToNCHWc(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	s := newBlockShape(in[0].Shape, int(op.(*ToNCHWc).Lanes))
	return &blockMove{blockShape: s, half: in[0].DType == graph.F16, to: true}, nil
}

func bindFromNCHWc(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	lanes := int(in[0].Shape[in[0].Rank()-1])
	switch out[0].DType {
	case graph.F32, graph.F16:
		return &blockMove{blockShape: newBlockShape(out[0].Shape, lanes), half: out[0].DType == graph.F16}, nil
	}
	return nil, fmt.Errorf("no kernel for %v", out[0])
}

// Scratch implements [Kernel].
func (k *blockMove) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *blockMove) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	if k.to {
		k.run(p, in[0], out[0])
	} else {
		k.run(p, out[0], in[0])
	}
	return nil
}

// movedPixels is how many pixels of a block a part moves at least.
const movedPixels = 64

// run converts from or to planes.
func (k *blockMove) run(p tensor.Pool, planar, blocked []byte) {
	if len(blocked) == 0 {
		return
	}
	k.blocked = tensor.F32s(blocked)
	if k.half {
		k.halves = tensor.View[num.Float16](planar)
	} else {
		k.planar = tensor.F32s(planar)
	}
	k.cuts = max(1, min(k.pixels/movedPixels, 16))
	k.units = k.images * k.blocks * k.cuts
	k.parts = tensor.Cut(p, k.units, k.pixels*k.lanes/k.cuts)
	p.Run(k, k.parts)
	k.blocked, k.planar, k.halves = nil, nil, nil
}

// Do implements [Task].
func (k *blockMove) Do(part int) {
	for i, end := tensor.Span(k.units, k.parts, part, 1); i < end; i++ {
		block := i / k.cuts
		lo, hi := tensor.Span(k.pixels, k.cuts, i%k.cuts, k.lanes)
		if lo < hi {
			k.move(block, lo, hi)
		}
	}
}

// move converts the pixels [lo, hi) of a block.
func (k *blockMove) move(block, lo, hi int) {
	planes, channels := k.of(block)
	if k.moveVectors(block, planes, channels, lo, hi) {
		return
	}
	b := k.blocked[block*k.pixels*k.lanes:][lo*k.lanes : hi*k.lanes]
	if k.to && channels < k.lanes {
		clear(b)
	}
	for c := range channels {
		at := planes + c*k.pixels
		switch {
		case k.half && k.to:
			for i, v := range k.halves[at+lo : at+hi] {
				b[i*k.lanes+c] = v.Float32()
			}
		case k.half:
			for i := range hi - lo {
				k.halves[at+lo+i] = num.Float16From(b[i*k.lanes+c])
			}
		case k.to:
			for i, v := range k.planar[at+lo : at+hi] {
				b[i*k.lanes+c] = v
			}
		default:
			for i := range hi - lo {
				k.planar[at+lo+i] = b[i*k.lanes+c]
			}
		}
	}
}

// throughPlanes runs a kernel for NCHW of float32 on NCHWc.
type throughPlanes struct {
	inner   tensor.Kernel
	x, y    blockMove
	yAt     int // in scratch memory
	innerAt int
	in, out [1][]byte
}

// newThroughPlanes returns a kernel for an operand in NCHWc of op, whose
// kernels take planes.
func newThroughPlanes(bind tensor.Binder, op graph.Op, in graph.TensorType) (tensor.Kernel, error) {
	lanes := in.Shape[in.Rank()-1]
	shape, err := planarShape(in, in.Shape[1]*lanes)
	if err != nil {
		return nil, err
	}
	x := graph.TensorType{DType: graph.F32, Shape: shape}
	y, err := op.Infer([]graph.TensorType{x})
	if err != nil {
		return nil, err
	}
	inner, err := bind(op, []graph.TensorType{x}, y)
	if err != nil {
		return nil, err
	}
	k := &throughPlanes{inner: inner}
	k.x.blockShape, k.y.blockShape = newBlockShape(shape, int(lanes)), newBlockShape(y[0].Shape, int(lanes))
	k.y.to = true
	k.yAt = tensor.RoundUp(4*tensor.Elements(shape), 64)
	k.innerAt = k.yAt + tensor.RoundUp(4*tensor.Elements(y[0].Shape), 64)
	return k, nil
}

// Scratch implements [Kernel].
func (k *throughPlanes) Scratch() int { return k.innerAt + k.inner.Scratch() }

// Run implements [Kernel].
func (k *throughPlanes) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	k.in[0], k.out[0] = scratch[:len(in[0])], scratch[k.yAt:][:len(out[0])]
	k.x.run(p, k.in[0], in[0])
	err := k.inner.Run(p, k.in[:], k.out[:], scratch[k.innerAt:])
	if err == nil {
		k.y.run(p, k.out[0], out[0])
	}
	k.in[0], k.out[0] = nil, nil
	return err
}

func bindPool(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	pool := op.(*Pool).Pool
	if k := newBlockedPool(pool, in[0], out[0]); k != nil {
		return k, nil
	}
	bind := window.Kernels[pool.Kind()]
	if bind == nil {
		return nil, fmt.Errorf("no kernel for %s", pool.Kind())
	}
	return newThroughPlanes(bind, pool, in[0])
}

// bindResize binds a Resize that leaves the last axis, the lanes of
// blocks, as it is.
func bindResize(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*Resize).Resize
	last := in[0].Rank() - 1
	lanes := in[0].Shape[last]
	o.Sizes = append(append([]int64{}, o.Sizes[:last]...), lanes)
	o.Sizes[1] = in[0].Shape[1]
	o.Scales = append(append([]float64{}, o.Scales[:last]...), 1)
	if len(o.RoiStart) > 0 {
		o.RoiStart, o.RoiEnd = append(append([]float64{}, o.RoiStart...), 0), append(append([]float64{}, o.RoiEnd...), 1)
	}
	return window.BindResize(&o, in, out)
}
