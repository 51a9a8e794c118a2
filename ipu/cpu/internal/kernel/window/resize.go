package window

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// BindResize binds a [graph.Resize].
func BindResize(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Resize)
	if o.Mode == graph.ResizeNearest && o.Coordinates != graph.CropAndResize {
		switch in[0].DType.Size() {
		case 1:
			return newNearest[uint8](o, in[0].Shape, 0), nil
		case 2:
			return newNearest[uint16](o, in[0].Shape, 0), nil
		case 4:
			return newNearest[uint32](o, in[0].Shape, 0), nil
		case 8:
			return newNearest[uint64](o, in[0].Shape, 0), nil
		}
	}
	return vec.Widened(bindResizeFloats)(op, in, out)
}

func bindResizeFloats(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Resize)
	nearest := o.Mode == graph.ResizeNearest
	switch d := in[0].DType; {
	case d == graph.F32 && nearest:
		return newNearest(o, in[0].Shape, float32(o.Extrapolation)), nil
	case d == graph.F64 && nearest:
		return newNearest(o, in[0].Shape, o.Extrapolation), nil
	case d == graph.F32:
		if k := newBilinear2[float32](o, in[0].Shape); k != nil {
			return k, nil
		}
		return newFilter[float32](o, in[0].Shape), nil
	case d == graph.F64:
		if k := newBilinear2[float64](o, in[0].Shape); k != nil {
			return k, nil
		}
		return newFilter[float64](o, in[0].Shape), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// resizeStays reports whether an axis of n elements is left as it is.
func resizeStays(o *graph.Resize, axis int, n int64) bool {
	return o.Coordinates != graph.CropAndResize && o.Scales[axis] == 1 && o.Sizes[axis] == n
}

// resizePlace returns where element j of the result lies on an axis of n
// elements of the operand, and whether it lies inside of the region to crop.
// No place is further than one element away from the operand. In which precision
// it is computed decides where a place half-way between two elements is rounded
// to: ONNX Runtime computes in float32.
func resizePlace[T tensor.Float](o *graph.Resize, axis, n, j int) (x T, inside bool) {
	s, m := T(o.Scales[axis]), T(o.Sizes[axis])
	at, most := T(j), T(n-1)
	inside = true
	switch o.Coordinates {
	case graph.HalfPixel:
		x = (at+0.5)/s - 0.5
	case graph.HalfPixelSymmetric:
		x = T(T(n)/2*(1-m/T(s*T(n)))) + (at+0.5)/s - 0.5
	case graph.PytorchHalfPixel:
		if m > 1 {
			x = (at+0.5)/s - 0.5
		}
	case graph.AlignCorners:
		if m > 1 {
			x = T(at*most) / (m - 1)
		}
	case graph.Asymmetric:
		x = at / s
	case graph.HalfPixelForNearest:
		x = (at + 0.5) / s
	case graph.CropAndResize:
		start, end := T(o.RoiStart[axis]), T(o.RoiEnd[axis])
		if m > 1 {
			x = T(T(at*(end-start))*most) / (m - 1)
		} else {
			x = T((end-start)*most) / 2
		}
		x += T(start * most)
		inside = x >= 0 && x <= most
	}
	if x != x {
		x = 0
	}
	return min(max(x, -1), T(n)), inside
}

// nearestTie is how far from half-way between two elements a place still counts
// as there: sizes that do not divide each other give places in float32 beside it.
// ONNX Runtime takes the same.
const nearestTie = 1e-6

// nearestIndex returns the element that is the nearest to x.
func nearestIndex(o *graph.Resize, axis, n int, x float64) int {
	i := math.Floor(x)
	up := false
	switch fraction := x - i; o.Rounding {
	case graph.RoundPreferFloor:
		up = fraction > 0.5+nearestTie
	case graph.RoundPreferCeil:
		up = fraction >= 0.5-nearestTie
	case graph.RoundCeil:
		up = fraction > 0
	case graph.RoundSimple:
		up = fraction > 0 && o.Scales[axis] < 1
	}
	if up {
		i++
	}
	return min(max(int(i), 0), n-1)
}

// nowhere is the offset of a position that shows no element of the operand.
const nowhere = -1

// nearest is the kernel of Resize that copies elements. The last axes that
// stay as they are move together, as one unit.
type nearest[T any] struct {
	// from tells, per axis of the result but those of the unit, which offset
	// in the operand each of its positions shows, or nowhere.
	from       [][]int
	everywhere bool // no position of the last axis is nowhere
	unit       int
	rows       int
	fill       T
	x, y       []T
	parts      int
}

func newNearest[T any](o *graph.Resize, shape []int64, fill T) *nearest[T] {
	k := &nearest[T]{unit: 1, rows: 1, fill: fill}
	last := len(shape)
	for last > 1 && resizeStays(o, last-1, shape[last-1]) {
		last--
		k.unit *= int(shape[last])
	}
	step := tensor.Strides(shape)
	for axis := range last {
		n := int(shape[axis])
		from := make([]int, o.Sizes[axis])
		for j := range from {
			switch x, inside := resizePlace[float32](o, axis, n, j); {
			case resizeStays(o, axis, shape[axis]):
				from[j] = j * step[axis]
			case inside:
				from[j] = nearestIndex(o, axis, n, float64(x)) * step[axis]
			default:
				from[j] = nowhere
			}
		}
		k.from = append(k.from, from)
		if axis < last-1 {
			k.rows *= len(from)
		}
	}
	if len(k.from) == 0 { // a scalar
		k.from = [][]int{{0}}
	}
	k.everywhere = !slices.Contains(k.from[len(k.from)-1], nowhere)
	return k
}

// Scratch implements [Kernel].
func (k *nearest[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *nearest[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.y = tensor.View[T](in[0]), tensor.View[T](out[0])
	if len(k.y) > 0 {
		k.parts = tensor.Cut(p, k.rows, 3*len(k.from[len(k.from)-1])*k.unit)
		p.Run(k, k.parts)
	}
	k.x, k.y = nil, nil
	return nil
}

// Do implements [Task].
func (k *nearest[T]) Do(part int) {
	last := k.from[len(k.from)-1]
	var before []T // the row above, which shows the operand from shown on
	shown := 0
	for row, end := tensor.Span(k.rows, k.parts, part, 1); row < end; row++ {
		y := k.y[row*len(last)*k.unit:][:len(last)*k.unit]
		base := 0
		for r, axis := row, len(k.from)-2; axis >= 0; axis-- {
			from := k.from[axis]
			if at := from[r%len(from)]; at == nowhere || base == nowhere {
				base = nowhere
			} else {
				base += at
			}
			r /= len(from)
		}
		switch {
		case base == shown && before != nil:
			copy(y, before)
		case base == nowhere:
			for i := range y {
				y[i] = k.fill
			}
		case k.unit == 1 && k.everywhere:
			x := k.x[base:]
			for i, at := range last[:len(y)] {
				y[i] = x[at]
			}
		case k.unit == 1:
			x := k.x[base:]
			for i, at := range last {
				if at == nowhere {
					y[i] = k.fill
				} else {
					y[i] = x[at]
				}
			}
		default:
			for i, at := range last { // there is nothing outside: no crop leaves an axis as it is
				copy(y[i*k.unit:][:k.unit], k.x[base+at:])
			}
		}
		before, shown = y, base
	}
}

// filter is the kernel of Resize that computes weighted sums, one axis after
// the other.
type filter[T tensor.Float] struct {
	passes  []filterPass[T]
	bytes   [2]int // of the results in between, alternating
	outside []filterOutside
	fill    T

	// The pass in progress.
	pass  *filterPass[T]
	x, y  []T
	parts int
}

// filterPass resizes one axis: element j is the sum of taps elements of the
// operand, at indices from j·taps on, times their weights.
type filterPass[T tensor.Float] struct {
	outer, in, out, inner int
	taps                  int
	index                 []int
	weight                []T
}

// filterOutside are the positions of an axis that lie outside of the region
// to crop.
type filterOutside struct {
	outer, out, inner int
	at                []int
}

func newFilter[T tensor.Float](o *graph.Resize, shape []int64) *filter[T] {
	k := &filter[T]{fill: T(o.Extrapolation)}
	dims := tensor.Ints(shape)
	var axes []int
	for axis, n := range shape {
		if !resizeStays(o, axis, n) {
			axes = append(axes, axis)
		}
	}
	// What shrinks most comes first, then the innermost axis.
	slices.SortStableFunc(axes, func(a, b int) int {
		return cmp.Or(cmp.Compare(float64(o.Sizes[a])/float64(shape[a]), float64(o.Sizes[b])/float64(shape[b])), cmp.Compare(b, a))
	})
	if tensor.Elements(o.Sizes) == 0 {
		return k
	}
	for _, axis := range axes {
		p := filterPass[T]{outer: 1, in: dims[axis], out: int(o.Sizes[axis]), inner: 1}
		for i, d := range dims {
			if i < axis {
				p.outer *= d
			} else if i > axis {
				p.inner *= d
			}
		}
		dims[axis] = p.out
		var far []int
		p.taps = filterTapCount(o, axis, p.in)
		p.index, p.weight = make([]int, 0, p.out*p.taps), make([]T, 0, p.out*p.taps)
		index, weight := make([]int, 0, p.taps), make([]float64, 0, p.taps)
		for j := range p.out {
			x, inside := resizePlace[float64](o, axis, p.in, j)
			if !inside {
				far = append(far, j)
			}
			index, weight = filterTaps(o, axis, p.in, x, index[:0], weight[:0])
			p.index = append(p.index, index...)
			for _, w := range weight {
				p.weight = append(p.weight, T(w))
			}
		}
		k.passes = append(k.passes, p)
		if slot := &k.bytes[len(k.passes)%2]; len(k.passes) < len(axes) {
			*slot = max(*slot, (p.outer*p.out*p.inner*tensor.ElementSize[T]()+63)&^63)
		}
		if far != nil {
			size := tensor.Ints(o.Sizes)
			f := filterOutside{outer: 1, out: p.out, inner: 1, at: far}
			for i, d := range size {
				if i < axis {
					f.outer *= d
				} else if i > axis {
					f.inner *= d
				}
			}
			k.outside = append(k.outside, f)
		}
	}
	return k
}

// filterReach returns by how much the filter of an axis of n is stretched, and
// its first element, counted from the one before the place that it is for.
func filterReach(o *graph.Resize, axis, n int) (scale float64, start int) {
	scale = 1
	if o.Antialias {
		scale = max(min(o.Scales[axis], 1), 0.5/float64(n))
	}
	radius := 1.0
	if o.Mode == graph.ResizeCubic {
		radius = 2
	}
	return scale, int(math.Floor(-radius/scale)) + 1
}

// filterTapCount returns how many elements of an axis of n make one.
func filterTapCount(o *graph.Resize, axis, n int) int {
	_, start := filterReach(o, axis, n)
	return max(0, 2-2*start)
}

// filterTaps appends which elements of an axis of n make the one at x, and
// with what weights.
func filterTaps(o *graph.Resize, axis, n int, x float64, index []int, weight []float64) ([]int, []float64) {
	base := math.Floor(x)
	// So the fraction is above 0, and it is the left one of two elements that
	// are equally near that counts.
	if base == x {
		base--
	}
	fraction := x - base
	function := func(d float64) float64 { return max(0, 1-d) }
	if o.Mode == graph.ResizeCubic {
		function = func(d float64) float64 { return cubic(d, o.CubicA) }
	}
	scale, start := filterReach(o, axis, n)
	sum := 0.0
	for i := start; i < 2-start; i++ {
		w := function(math.Abs(float64(i)-fraction) * scale)
		at := int(base) + i
		if o.ExcludeOutside && (at < 0 || at >= n) {
			w = 0
		}
		index = append(index, min(max(at, 0), n-1))
		weight = append(weight, w)
		sum += w
	}
	if o.Antialias || o.ExcludeOutside {
		for i := range weight {
			weight[i] /= sum
		}
	}
	return index, weight
}

// cubic is the convolution kernel of R. Keys at a distance d ≥ 0.
func cubic(d, a float64) float64 {
	switch {
	case d <= 1:
		return float64((float64((a+2)*d)-(a+3))*d*d) + 1
	case d < 2:
		return float64((float64((float64(a*d)-float64(5*a))*d)+float64(8*a))*d) - float64(4*a)
	}
	return 0
}

// Scratch implements [Kernel].
func (k *filter[T]) Scratch() int { return k.bytes[0] + k.bytes[1] }

// Run implements [Kernel].
func (k *filter[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	k.x = tensor.View[T](in[0])
	result := tensor.View[T](out[0])
	if len(k.passes) == 0 {
		copy(result, k.x)
	}
	between := [2][]byte{scratch[:k.bytes[0]], scratch[k.bytes[0]:]}
	for i := range k.passes {
		k.pass = &k.passes[i]
		k.y = result
		if i < len(k.passes)-1 {
			k.y = tensor.View[T](between[(i+1)%2])[:k.pass.outer*k.pass.out*k.pass.inner]
		}
		n, cost := k.pass.outer*k.pass.out, 2*k.pass.taps*k.pass.inner
		if k.pass.inner == 1 {
			n, cost = k.pass.outer, 2*k.pass.taps*k.pass.out
		}
		k.parts = tensor.Cut(p, n, cost)
		p.Run(k, k.parts)
		k.x = k.y
	}
	for i := range k.outside {
		k.fillOutside(&k.outside[i], result)
	}
	k.x, k.y, k.pass = nil, nil, nil
	return nil
}

// fillOutside sets what lies outside of the region to crop.
func (k *filter[T]) fillOutside(f *filterOutside, y []T) {
	for q := range f.outer {
		for _, j := range f.at {
			row := y[(q*f.out+j)*f.inner:][:f.inner]
			for i := range row {
				row[i] = k.fill
			}
		}
	}
}

// Do implements [Task].
func (k *filter[T]) Do(part int) {
	p := k.pass
	if p.inner == 1 {
		for q, end := tensor.Span(p.outer, k.parts, part, 1); q < end; q++ {
			p.row(k.y[q*p.out:][:p.out], k.x[q*p.in:][:p.in])
		}
		return
	}
	for i, end := tensor.Span(p.outer*p.out, k.parts, part, 1); i < end; i++ {
		q, j := i/p.out, i%p.out
		p.rows(k.y[i*p.inner:][:p.inner], k.x[q*p.in*p.inner:][:p.in*p.inner], j)
	}
}

// row computes a row along the axis itself.
func (p *filterPass[T]) row(y, x []T) {
	if p.taps == 2 {
		for j := range y {
			index, weight := p.index[2*j:][:2], p.weight[2*j:][:2]
			y[j] = T(weight[0]*x[index[0]]) + T(weight[1]*x[index[1]])
		}
		return
	}
	for j := range y {
		v := T(0)
		weight := p.weight[j*p.taps:]
		for i, at := range p.index[j*p.taps:][:p.taps] {
			v += T(weight[i] * x[at])
		}
		y[j] = v
	}
}

// rows computes what lies at position j of the axis, a sum of rows.
func (p *filterPass[T]) rows(y, x []T, j int) {
	index, weight := p.index[j*p.taps:][:p.taps], p.weight[j*p.taps:][:p.taps]
	for i := 0; i < len(index); i += 2 { // the number of taps is even
		a, b := x[index[i]*p.inner:][:len(y)], x[index[i+1]*p.inner:][:len(y)]
		u, v := weight[i], weight[i+1]
		if i == 0 {
			for e := range y {
				y[e] = T(u*a[e]) + T(v*b[e])
			}
			continue
		}
		for e := range y {
			y[e] += T(u*a[e]) + T(v*b[e])
		}
	}
}
