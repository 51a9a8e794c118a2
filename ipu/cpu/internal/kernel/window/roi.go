package window

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindRoiAlign(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.RoiAlign)
	switch in[0].DType {
	case graph.F32:
		return newRoiAlign[float32](o, in), nil
	case graph.F64:
		return newRoiAlign[float64](o, in), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// roiShape is the geometry of an operator on regions of interest.
type roiShape struct {
	batch, channels, height, width int // of x
	regions, outHeight, outWidth   int
}

func newRoiShape(x, rois []int64, height, width int64) roiShape {
	return roiShape{batch: int(x[0]), channels: int(x[1]), height: int(x[2]), width: int(x[3]),
		regions: int(rois[0]), outHeight: int(height), outWidth: int(width)}
}

// roiAlign samples regions of interest on a grid of cells.
type roiAlign[T tensor.Float] struct {
	roiShape
	max, halfPixel bool
	ratio          int
	scale          T
	wide           bool // images are I64, not I32
	x, rois, y     []T
	images         []byte
	parts          int
}

func newRoiAlign[T tensor.Float](o *graph.RoiAlign, in []graph.TensorType) *roiAlign[T] {
	return &roiAlign[T]{
		roiShape: newRoiShape(in[0].Shape, in[1].Shape, o.Height, o.Width),
		max:      o.Mode == graph.RoiMax, halfPixel: o.HalfPixel, ratio: int(o.SamplingRatio),
		scale: T(o.SpatialScale), wide: in[2].DType == graph.I64,
	}
}

// Scratch implements [Kernel].
func (k *roiAlign[T]) Scratch() int { return 0 }

// image returns the image of a region.
func (k *roiAlign[T]) image(roi int) int64 {
	if k.wide {
		return tensor.View[int64](k.images)[roi]
	}
	return int64(tensor.View[int32](k.images)[roi])
}

// Run implements [Kernel].
func (k *roiAlign[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.rois, k.images, k.y = tensor.View[T](in[0]), tensor.View[T](in[1]), in[2], tensor.View[T](out[0])
	defer func() { k.x, k.rois, k.images, k.y = nil, nil, nil, nil }()
	if err := k.check(); err != nil {
		return err
	}
	if len(k.y) > 0 {
		k.parts = tensor.Cut(p, k.regions*k.outHeight, k.outWidth*k.channels*32)
		p.Run(k, k.parts)
	}
	return nil
}

// check refuses regions that are none.
func (k *roiAlign[T]) check() error {
	for i := range k.rois {
		if i%4 == 0 {
			if n := k.image(i / 4); n < 0 || n >= int64(k.batch) {
				return fmt.Errorf("region %d is in image %d, want 0 to %d", i/4, n, k.batch-1)
			}
		}
		if v := float64(k.rois[i] * k.scale); math.IsNaN(v) || math.Abs(v) > 1<<40 {
			return fmt.Errorf("region %d is %v, want numbers below 2^40 in size", i/4, k.rois[i/4*4:i/4*4+4])
		}
	}
	return nil
}

// Do implements [Task].
func (k *roiAlign[T]) Do(part int) {
	for i, end := tensor.Span(k.regions*k.outHeight, k.parts, part, 1); i < end; i++ {
		k.row(i/k.outHeight, i%k.outHeight)
	}
}

// roiAxis is how the samples of one cell lie on an axis.
type roiAxis[T tensor.Float] struct {
	start, cell T
	count       float64 // samples
	fixed       bool    // the size of the cell does not depend on that of the region
}

// newRoiAxis returns the samples of a region from lo to hi that is cut into a
// number of cells.
func (k *roiAlign[T]) newRoiAxis(lo, hi T, cells int) roiAxis[T] {
	offset := T(0)
	if k.halfPixel {
		offset = 0.5
	}
	lo, hi = T(lo*k.scale)-offset, T(hi*k.scale)-offset
	size := hi - lo
	if !k.halfPixel {
		size = max(size, 1)
	}
	a := roiAxis[T]{start: lo, cell: size / T(cells), count: float64(k.ratio), fixed: size != hi-lo}
	if k.ratio == 0 {
		a.count = max(math.Ceil(float64(size/T(cells))), 0)
	}
	return a
}

// inside returns the samples [lo, hi) of a cell that are not further than one
// element away from an axis of n elements, or a few more.
func (a *roiAxis[T]) inside(cell, n int) (lo, hi int) {
	first := float64(a.start) + float64(float64(cell)*float64(a.cell))
	step := float64(a.cell) / a.count
	if step > 0 {
		lo = int(min(max((-1-first)/step-2, 0), a.count))
		hi = int(min(max((float64(n)-first)/step+2, 0), a.count))
		return lo, max(lo, hi)
	}
	return 0, int(min(a.count, graph.MaxSamples)) // a region that is turned around
}

// at returns where sample i of a cell lies.
func (a *roiAxis[T]) at(cell, i int) T {
	return a.start + T(T(cell)*a.cell) + (T(i)+0.5)*a.cell/T(a.count)
}

// row computes a row of cells of a region, for all channels.
func (k *roiAlign[T]) row(roi, row int) {
	r := k.rois[4*roi:][:4]
	across, down := k.newRoiAxis(r[0], r[2], k.outWidth), k.newRoiAxis(r[1], r[3], k.outHeight)
	plane, cells := k.height*k.width, k.outHeight*k.outWidth
	x := k.x[int(k.image(roi))*k.channels*plane:][:k.channels*plane]
	y0, y1 := down.inside(row, k.height)
	for col := range k.outWidth {
		y := k.y[roi*k.channels*cells+row*k.outWidth+col:]
		for c := range k.channels {
			y[c*cells] = 0
		}
		x0, x1 := across.inside(col, k.width)
		seen := 0.0
		for i := y0; i < y1; i++ {
			for j := x0; j < x1; j++ {
				s, ok := k.sample(down.at(row, i), across.at(col, j))
				if !ok {
					continue
				}
				for c := range k.channels {
					p := x[c*plane:][:plane]
					v := &y[c*cells]
					if !k.max {
						*v += s.Of(p)
						continue
					}
					w := max(s.Weight[0]*p[s.At[0]], s.Weight[1]*p[s.At[1]], s.Weight[2]*p[s.At[2]], s.Weight[3]*p[s.At[3]])
					if seen > 0 {
						w = max(w, *v)
					}
					*v = w
				}
				seen++
			}
		}
		count := max(down.count*across.count, 1)
		for c := range k.channels {
			switch v := &y[c*cells]; {
			case !k.max:
				*v /= T(count)
			case seen < down.count*across.count: // samples beyond x are 0
				*v = max(*v, 0)
			}
		}
	}
}

// sample returns how the element at (v, h) is made of its neighbours, and
// whether it is near enough to x to be made at all.
func (k *roiAlign[T]) sample(v, h T) (s Sample[T], ok bool) {
	if k.height == 0 || k.width == 0 || v < -1 || v > T(k.height) || h < -1 || h > T(k.width) {
		return s, false
	}
	y0, y1, fy := roiNeighbours(v, k.height)
	x0, x1, fx := roiNeighbours(h, k.width)
	s.At = [4]int{y0*k.width + x0, y0*k.width + x1, y1*k.width + x0, y1*k.width + x1}
	s.Weight = [4]T{(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx}
	return s, true
}

// roiNeighbours returns the elements of an axis of n around v, and how far
// from the first of them to the second v is.
func roiNeighbours[T tensor.Float](v T, n int) (lo, hi int, fraction T) {
	v = max(v, 0)
	lo = int(v)
	if lo >= n-1 {
		return n - 1, n - 1, 0
	}
	return lo, lo + 1, v - T(lo)
}

func bindMaxRoiPool(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.MaxRoiPool)
	s := newRoiShape(in[0].Shape, in[1].Shape, o.Height, o.Width)
	switch in[0].DType {
	case graph.F32:
		return &maxRoiPool[float32]{roiShape: s, scale: float32(o.SpatialScale)}, nil
	case graph.F64:
		return &maxRoiPool[float64]{roiShape: s, scale: o.SpatialScale}, nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// maxRoiPool computes the largest elements of the cells of regions of
// interest.
type maxRoiPool[T tensor.Float] struct {
	roiShape
	scale      T
	x, rois, y []T
	places     []int64 // nil if they are not wanted
	parts      int
}

// Scratch implements [Kernel].
func (k *maxRoiPool[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *maxRoiPool[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.rois, k.y, k.places = tensor.View[T](in[0]), tensor.View[T](in[1]), tensor.View[T](tensor.Memory(out, 0)), tensor.View[int64](tensor.Memory(out, 1))
	defer func() { k.x, k.rois, k.y, k.places = nil, nil, nil, nil }()
	for i := range k.regions {
		r := k.rois[5*i:][:5]
		if !(r[0] >= 0 && r[0] < T(k.batch)) {
			return fmt.Errorf("region %d is in image %v, want 0 to %d", i, r[0], k.batch-1)
		}
		for _, v := range r[1:] {
			if v := float64(v * k.scale); math.IsNaN(v) || math.Abs(v) > 1<<40 {
				return fmt.Errorf("region %d is %v, want numbers below 2^40 in size", i, r[1:])
			}
		}
	}
	if max(len(k.y), len(k.places)) > 0 {
		k.parts = tensor.Cut(p, k.regions*k.channels, k.height*k.width+k.outHeight*k.outWidth)
		p.Run(k, k.parts)
	}
	return nil
}

// Do implements [Task].
func (k *maxRoiPool[T]) Do(part int) {
	cells := k.outHeight * k.outWidth
	for i, end := tensor.Span(k.regions*k.channels, k.parts, part, 1); i < end; i++ {
		r := k.rois[i/k.channels*5:][:5]
		from := (int(r[0])*k.channels + i%k.channels) * k.height * k.width
		x := k.x[from:][:k.height*k.width]
		for cell := range cells {
			y0, y1 := k.cell(r[2], r[4], cell/k.outWidth, k.outHeight, k.height)
			x0, x1 := k.cell(r[1], r[3], cell%k.outWidth, k.outWidth, k.width)
			m, place := T(0), int64(-1)
			if y0 < y1 && x0 < x1 {
				m = x[y0*k.width+x0]
				for row := y0; row < y1; row++ {
					for _, v := range x[row*k.width+x0 : row*k.width+x1] {
						m = max(m, v)
					}
				}
				if k.places != nil {
					place = int64(from + k.first(x, m, y0, y1, x0, x1))
				}
			}
			if k.y != nil {
				k.y[i*cells+cell] = m
			}
			if k.places != nil {
				k.places[i*cells+cell] = place
			}
		}
	}
}

// first returns where the first m of a cell is, which is there; that of no numbers if m is none.
func (k *maxRoiPool[T]) first(x []T, m T, y0, y1, x0, x1 int) int {
	for row := y0; row < y1; row++ {
		for at := row*k.width + x0; at < row*k.width+x1; at++ {
			if v := x[at]; v == m || v != v {
				return at
			}
		}
	}
	return y0*k.width + x0
}

// cell returns the elements [first, end) of an axis of n that cell i, one of
// cells, of a region from lo to hi takes.
func (k *maxRoiPool[T]) cell(lo, hi T, i, cells, n int) (first, end int) {
	start, stop := math.Round(float64(lo*k.scale)), math.Round(float64(hi*k.scale))
	size := max(stop-start+1, 1) / float64(cells)
	limit := func(v float64) int { return int(min(max(v+start, 0), float64(n))) }
	return limit(math.Floor(float64(i) * size)), limit(math.Ceil(float64(i+1) * size))
}
