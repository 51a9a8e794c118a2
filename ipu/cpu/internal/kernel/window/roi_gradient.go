package window

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindRoiAlignGradient(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := graph.RoiAlign(*op.(*graph.RoiAlignGradient))
	switch in[0].DType {
	case graph.F32:
		return &roiAlignGradient[float32]{roiAlign: newRoiAlign[float32](&o, in)}, nil
	case graph.F64:
		return &roiAlignGradient[float64]{roiAlign: newRoiAlign[float64](&o, in)}, nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// roiAlignGradient goes back through a roiAlign. A part adds up the gradient of some channels of x over all regions, in their
// order, or that of some regions, so that the bits do not depend on the number of parts.
type roiAlignGradient[T tensor.Float] struct {
	*roiAlign[T]
	dy, dx, drois []T
	ofRois        bool // parts are of regions
}

// Run implements [Kernel].
func (k *roiAlignGradient[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.rois, k.images, k.dy = tensor.View[T](in[0]), tensor.View[T](in[1]), in[2], tensor.View[T](in[3])
	k.dx, k.drois = tensor.View[T](tensor.Memory(out, 0)), tensor.View[T](tensor.Memory(out, 1))
	defer func() { k.x, k.rois, k.images, k.dy, k.dx, k.drois = nil, nil, nil, nil, nil, nil }()
	if err := k.check(); err != nil {
		return err
	}
	cells := k.outHeight * k.outWidth
	if len(k.dx) > 0 {
		k.ofRois = false
		k.parts = tensor.Cut(p, k.channels, k.batch*k.height*k.width+32*k.regions*cells)
		p.Run(k, k.parts)
	}
	if len(k.drois) > 0 {
		k.ofRois = true
		k.parts = tensor.Cut(p, k.regions, 64*k.channels*cells)
		p.Run(k, k.parts)
	}
	return nil
}

// Do implements [Task].
func (k *roiAlignGradient[T]) Do(part int) {
	if k.ofRois {
		for roi, end := tensor.Span(k.regions, k.parts, part, 1); roi < end; roi++ {
			k.region(roi)
		}
		return
	}
	first, end := tensor.Span(k.channels, k.parts, part, 1)
	plane := k.height * k.width
	for n := range k.batch {
		clear(k.dx[(n*k.channels+first)*plane : (n*k.channels+end)*plane])
	}
	for roi := range k.regions {
		k.spread(roi, first, end)
	}
}

// roiCell is a cell of a region.
type roiCell[T tensor.Float] struct {
	across, down   roiAxis[T]
	row, col       int
	y0, y1, x0, x1 int // samples that may be near enough to x
}

// cell returns a cell of a region.
func (k *roiAlignGradient[T]) cell(roi, i int) roiCell[T] {
	r := k.rois[4*roi:][:4]
	c := roiCell[T]{across: k.newRoiAxis(r[0], r[2], k.outWidth), down: k.newRoiAxis(r[1], r[3], k.outHeight), row: i / k.outWidth, col: i % k.outWidth}
	c.y0, c.y1 = c.down.inside(c.row, k.height)
	c.x0, c.x1 = c.across.inside(c.col, k.width)
	return c
}

// sampleOf returns sample (i, j) of a cell.
func (k *roiAlignGradient[T]) sampleOf(c *roiCell[T], i, j int) (Sample[T], bool) {
	return k.sample(c.down.at(c.row, i), c.across.at(c.col, j))
}

// count is what the sum over a cell is divided by.
func (c *roiCell[T]) count() T { return T(max(c.down.count*c.across.count, 1)) }

// most returns which sample of a cell, and which of its four neighbours, gives the maximum in a plane of x. There is none if that is
// the zero of samples beyond x.
func (k *roiAlignGradient[T]) most(c *roiCell[T], x []T) (i, j, neighbour int, ok bool) {
	var best T
	seen := 0.0
	for y := c.y0; y < c.y1; y++ {
		for z := c.x0; z < c.x1; z++ {
			s, near := k.sampleOf(c, y, z)
			if !near {
				continue
			}
			for n, at := range s.At {
				if v := s.Weight[n] * x[at]; !ok || v > best || v != v && best == best {
					best, i, j, neighbour, ok = v, y, z, n, true
				}
			}
			seen++
		}
	}
	return i, j, neighbour, ok && !(best < 0 && seen < c.down.count*c.across.count)
}

// spread adds what a region gives to channels [first, end) of its image.
func (k *roiAlignGradient[T]) spread(roi, first, end int) {
	plane, cells := k.height*k.width, k.outHeight*k.outWidth
	image := int(k.image(roi)) * k.channels * plane
	for cell := range cells {
		c := k.cell(roi, cell)
		dy := k.dy[roi*k.channels*cells+cell:]
		if k.max {
			for channel := first; channel < end; channel++ {
				at := image + channel*plane
				if i, j, n, ok := k.most(&c, k.x[at:][:plane]); ok {
					s, _ := k.sampleOf(&c, i, j)
					k.dx[at+s.At[n]] += T(s.Weight[n] * dy[channel*cells])
				}
			}
			continue
		}
		count := c.count()
		for i := c.y0; i < c.y1; i++ {
			for j := c.x0; j < c.x1; j++ {
				s, ok := k.sampleOf(&c, i, j)
				if !ok {
					continue
				}
				for channel := first; channel < end; channel++ {
					d, g := k.dx[image+channel*plane:][:plane], dy[channel*cells]/count
					for n, at := range s.At {
						d[at] += T(s.Weight[n] * g)
					}
				}
			}
		}
	}
}

// region computes the gradient of the borders of a region.
func (k *roiAlignGradient[T]) region(roi int) {
	plane, cells := k.height*k.width, k.outHeight*k.outWidth
	image := int(k.image(roi)) * k.channels * plane
	var sum [4]float64 // x1, y1, x2, y2
	for cell := range cells {
		c := k.cell(roi, cell)
		dy := k.dy[roi*k.channels*cells+cell:]
		// move adds what there is for sample (i, j) being moved.
		move := func(i, j int, down, across float64) {
			first, second := c.down.along(c.row, i, k.outHeight)
			sum[1] += float64(down * first)
			sum[3] += float64(down * second)
			first, second = c.across.along(c.col, j, k.outWidth)
			sum[0] += float64(across * first)
			sum[2] += float64(across * second)
		}
		if k.max {
			for channel := range k.channels {
				x := k.x[image+channel*plane:][:plane]
				if i, j, n, ok := k.most(&c, x); ok {
					s, down, across := k.slopes(&c, i, j)
					v := float64(dy[channel*cells] * x[s.At[n]])
					move(i, j, v*float64(down[n]), v*float64(across[n]))
				}
			}
			continue
		}
		count := float64(c.count())
		for i := c.y0; i < c.y1; i++ {
			for j := c.x0; j < c.x1; j++ {
				if _, ok := k.sampleOf(&c, i, j); !ok {
					continue
				}
				s, down, across := k.slopes(&c, i, j)
				v, h := 0.0, 0.0
				for channel := range k.channels {
					x, g := k.x[image+channel*plane:][:plane], float64(dy[channel*cells])
					for n, at := range s.At {
						v += float64(float64(down[n]*x[at]) * g)
						h += float64(float64(across[n]*x[at]) * g)
					}
				}
				move(i, j, v/count, h/count)
			}
		}
	}
	for i, v := range sum {
		k.drois[4*roi+i] = T(v * float64(k.scale))
	}
}

// along returns by how much of each of the two borders of a region sample i of a cell moves with them, before their scaling.
func (a *roiAxis[T]) along(cell, i, cells int) (first, second float64) {
	if a.fixed {
		return 1, 0
	}
	second = (float64(cell) + (float64(i)+0.5)/a.count) / float64(cells)
	return 1 - second, second
}

// slopes returns a sample, which is near enough to x, and the derivatives of its weights by its place.
func (k *roiAlignGradient[T]) slopes(c *roiCell[T], i, j int) (s Sample[T], down, across [4]T) {
	v, h := c.down.at(c.row, i), c.across.at(c.col, j)
	s, _ = k.sample(v, h)
	y0, y1, fy := roiNeighbours(v, k.height)
	x0, x1, fx := roiNeighbours(h, k.width)
	if v >= 0 && y0 != y1 { // else all of it is the element at the border
		down = [4]T{fx - 1, -fx, 1 - fx, fx}
	}
	if h >= 0 && x0 != x1 {
		across = [4]T{fy - 1, 1 - fy, -fy, fy}
	}
	return s, down, across
}
