package window

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// bilinear2 is the kernel of Resize that interpolates linearly along two
// adjacent axes at once: every element is the sum of four corners times
// weights, added row by row. ONNX Runtime does the same, so that the results
// are equal bit by bit.
type bilinear2[T tensor.Float] struct {
	outer, unit   int // sizes before and after the two axes
	height, width int // of the operand
	rows, columns bilinearAxis[T]
	// gathered is set if parts keep the corners of a row of the result, from
	// two rows of the operand, for the rows that follow: they meet the same
	// ones where the result is higher.
	gathered bool

	x, y    []T
	corners []T
	parts   int
	watch   tensor.Watch
}

// bilinearAxis are the two elements of the operand next to every position of
// an axis, and their weights.
type bilinearAxis[T tensor.Float] struct {
	near, far             []int // offsets in elements
	nearWeight, farWeight []T
}

// newBilinear2 returns a kernel for o, nil if it is of another kind.
func newBilinear2[T tensor.Float](o *graph.Resize, shape []int64) tensor.Kernel {
	if o.Mode != graph.ResizeLinear || o.Antialias || o.ExcludeOutside || o.Coordinates == graph.CropAndResize {
		return nil
	}
	first := -1
	for axis, n := range shape {
		if resizeStays(o, axis, n) {
			continue
		}
		switch first {
		case -1:
			first = axis
		case axis - 1:
		default:
			return nil
		}
	}
	if first < 0 || first+1 >= len(shape) || resizeStays(o, first+1, shape[first+1]) {
		return nil
	}
	k := &bilinear2[T]{outer: tensor.Elements(shape[:first]), unit: tensor.Elements(shape[first+2:]), height: int(shape[first]), width: int(shape[first+1])}
	if k.outer*k.unit*k.height*k.width == 0 {
		return nil
	}
	k.rows = newBilinearAxis[T](o, first, k.height, k.width*k.unit)
	k.columns = newBilinearAxis[T](o, first+1, k.width, k.unit)
	const least = 16
	k.gathered = k.unit == 1 && interpolatesCorners[T]() && len(k.rows.near) >= 2*k.height && len(k.columns.near) >= least
	return k
}

func newBilinearAxis[T tensor.Float](o *graph.Resize, axis, n, step int) (a bilinearAxis[T]) {
	size := int(o.Sizes[axis])
	a.near, a.far = make([]int, 0, size), make([]int, 0, size)
	a.nearWeight, a.farWeight = make([]T, 0, size), make([]T, 0, size)
	for j := range size {
		x, _ := resizePlace[float64](o, axis, n, j)
		x = min(max(x, 0), float64(n-1))
		near := int(x)
		far := min(near+1, n-1)
		u, v := float64(near+1)-x, x-float64(near)
		if near == far {
			u, v = 0.5, 0.5
		}
		a.near, a.far = append(a.near, near*step), append(a.far, far*step)
		a.nearWeight, a.farWeight = append(a.nearWeight, T(u)), append(a.farWeight, T(v))
	}
	return a
}

// Scratch implements [Kernel].
func (k *bilinear2[T]) Scratch() int {
	if !k.gathered {
		return 0
	}
	return tensor.MostParts(k.outer*len(k.rows.near), k.cost()) * 4 * len(k.columns.near) * tensor.ElementSize[T]()
}

// cost is what a row of the result costs.
func (k *bilinear2[T]) cost() int {
	n := 7 * len(k.columns.near) * k.unit
	if k.gathered {
		n /= 3
	}
	return n
}

// Run implements [Kernel].
func (k *bilinear2[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	k.x, k.y, k.corners = tensor.View[T](in[0]), tensor.View[T](out[0]), tensor.View[T](scratch)
	k.parts, k.watch = tensor.CutSlots(p, k.outer*len(k.rows.near), k.cost()), tensor.NewWatch(p, k.cost())
	p.Run(k, k.parts)
	k.x, k.y, k.corners = nil, nil, nil
	return nil
}

// Do implements [Task].
func (k *bilinear2[T]) Do(part int) {
	height, width := len(k.rows.near), len(k.columns.near)*k.unit
	plane := k.height * k.width * k.unit
	if k.gathered {
		k.byCorners(part)
		return
	}
	i, end := tensor.Span(k.outer*height, k.parts, part, 1)
	for to := i; i < end; i++ {
		if i == to {
			if to = k.watch.Next(i, end); to == i {
				return
			}
		}
		x, j := k.x[i/height*plane:][:plane], i%height
		near, far := x[k.rows.near[j]:][:k.width*k.unit], x[k.rows.far[j]:][:k.width*k.unit]
		y := k.y[i*width:][:width]
		switch u, v := k.rows.nearWeight[j], k.rows.farWeight[j]; {
		case k.unit == 1:
			k.row(y, near, far, u, v)
		case !interpolateUnits(y, near, far, u, v, k.unit, &k.columns):
			k.units(y, near, far, u, v)
		}
	}
}

// byCorners computes a part with SIMD instructions.
func (k *bilinear2[T]) byCorners(part int) {
	height, width := len(k.rows.near), len(k.columns.near)
	var corners [4][]T
	for i := range corners {
		corners[i] = k.corners[(4*part+i)*width:][:width]
	}
	have := [2]int{-1, -1} // the rows of the operand that corners are from
	i, end := tensor.Span(k.outer*height, k.parts, part, 1)
	for to := i; i < end; i++ {
		if i == to {
			if to = k.watch.Next(i, end); to == i {
				return
			}
		}
		at, j := i/height*k.height*k.width, i%height
		for r, row := range [2]int{at + k.rows.near[j], at + k.rows.far[j]} {
			if row != have[r] {
				have[r] = row
				gatherCorners(corners[2*r], corners[2*r+1], k.x[row:][:k.width], k.columns.near, k.columns.far)
			}
		}
		interpolateCorners(k.y[i*width:][:width], &k.columns, &corners, k.rows.nearWeight[j], k.rows.farWeight[j])
	}
}

// gatherCorners takes the elements on either side of every column.
func gatherCorners[T tensor.Float](left, right, row []T, near, far []int) {
	right, near, far = right[:len(left)], near[:len(left)], far[:len(left)]
	for i := range left {
		left[i], right[i] = row[near[i]], row[far[i]]
	}
}

// row computes a row of single elements. The conversions keep compilers from
// fusing a product and a sum.
func (k *bilinear2[T]) row(y, near, far []T, u, v T) {
	c := &k.columns
	left, right, lw, rw := c.near[:len(y)], c.far[:len(y)], c.nearWeight[:len(y)], c.farWeight[:len(y)]
	for i := range y {
		l, r, p, q := left[i], right[i], lw[i], rw[i]
		y[i] = T(T(T(T(p*u)*near[l])+T(T(q*u)*near[r]))+T(T(p*v)*far[l])) + T(T(q*v)*far[r])
	}
}

// units computes a row of units.
func (k *bilinear2[T]) units(y, near, far []T, u, v T) {
	c := &k.columns
	for i, l := range c.near {
		r := c.far[i]
		lu, ru, lv, rv := T(c.nearWeight[i]*u), T(c.farWeight[i]*u), T(c.nearWeight[i]*v), T(c.farWeight[i]*v)
		y := y[i*k.unit:][:k.unit]
		nl, nr, fl, fr := near[l:][:len(y)], near[r:][:len(y)], far[l:][:len(y)], far[r:][:len(y)]
		for e := range y {
			y[e] = T(T(T(lu*nl[e])+T(ru*nr[e]))+T(lv*fl[e])) + T(rv*fr[e])
		}
	}
}
