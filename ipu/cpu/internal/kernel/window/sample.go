package window

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindGridSample(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.GridSample)
	switch x, grid := in[0].DType, in[1].DType; {
	case x == graph.F32 && grid == graph.F32:
		return newGridSample[float32, float32](o, in[0].Shape, out[0].Shape), nil
	case x == graph.F32 && grid == graph.F64:
		return newGridSample[float32, float64](o, in[0].Shape, out[0].Shape), nil
	case x == graph.F64 && grid == graph.F32:
		return newGridSample[float64, float32](o, in[0].Shape, out[0].Shape), nil
	case x == graph.F64 && grid == graph.F64:
		return newGridSample[float64, float64](o, in[0].Shape, out[0].Shape), nil
	}
	return nil, fmt.Errorf("no kernel for %v and a grid of %v", in[0], in[1])
}

// gridSample takes elements of T from the places that a grid of G gives.
type gridSample[T, G tensor.Float] struct {
	mode         graph.ResizeMode
	padding      graph.SamplePadding
	alignCorners bool

	batch, channels int
	axes            int // spatial axes
	size            [3]int
	plane, points   int
	x, y            []T
	grid            []G
	parts           int
}

func newGridSample[T, G tensor.Float](o *graph.GridSample, x, y []int64) *gridSample[T, G] {
	k := &gridSample[T, G]{mode: o.Mode, padding: o.Padding, alignCorners: o.AlignCorners,
		batch: int(x[0]), channels: int(x[1]), axes: len(x) - 2, plane: tensor.Elements(x[2:]), points: tensor.Elements(y[2:])}
	copy(k.size[:], tensor.Ints(x[2:]))
	return k
}

// Scratch implements [Kernel].
func (k *gridSample[T, G]) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *gridSample[T, G]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.grid, k.y = tensor.View[T](in[0]), tensor.View[G](in[1]), tensor.View[T](out[0])
	if k.plane == 0 {
		clear(k.y)
	} else if len(k.y) > 0 {
		k.parts = tensor.Cut(p, k.batch*k.points, 32+8*k.channels)
		p.Run(k, k.parts)
	}
	k.x, k.y, k.grid = nil, nil, nil
	return nil
}

// axisTaps are the elements of an axis that make a sample, and their weights.
// An index below zero is outside of the axis.
type axisTaps[T tensor.Float] struct {
	n      int
	at     [4]int
	weight [4]T
}

// Do implements [Task].
func (k *gridSample[T, G]) Do(part int) {
	var taps [3]axisTaps[T]
	for i := k.axes; i < 3; i++ {
		taps[i] = axisTaps[T]{n: 1, weight: [4]T{1}}
	}
	step := [3]int{k.size[1] * k.size[2], k.size[2], 1}
	switch k.axes {
	case 1:
		step = [3]int{1, 0, 0}
	case 2:
		step = [3]int{k.size[1], 1, 0}
	}
	for i, end := tensor.Span(k.batch*k.points, k.parts, part, 1); i < end; i++ {
		n, p := i/k.points, i%k.points
		for a := range k.axes {
			k.locate(&taps[a], k.grid[i*k.axes+k.axes-1-a], k.size[a])
		}
		for c := range k.channels {
			plane := k.x[(n*k.channels+c)*k.plane:][:k.plane]
			var v T
			for z, at0 := range taps[0].at[:taps[0].n] {
				for y, at1 := range taps[1].at[:taps[1].n] {
					if at0 < 0 || at1 < 0 {
						continue
					}
					var line T
					for x, at2 := range taps[2].at[:taps[2].n] {
						if at2 >= 0 {
							line += T(taps[2].weight[x] * plane[at0*step[0]+at1*step[1]+at2*step[2]])
						}
					}
					v += T(taps[0].weight[z] * taps[1].weight[y] * line)
				}
			}
			k.y[(n*k.channels+c)*k.points+p] = v
		}
	}
}

// locate finds the elements of an axis of n that make the one at coordinate g.
func (k *gridSample[T, G]) locate(t *axisTaps[T], g G, n int) {
	lo, hi := -0.5, float64(n)-0.5 // the borders of the axis
	if k.alignCorners {
		lo, hi = 0, float64(n-1)
		g = (g + 1) / 2 * G(n-1)
	} else {
		g = (G((g+1)*G(n)) - 1) / 2
	}
	x := float64(g)
	if k.mode == graph.ResizeNearest {
		x = math.RoundToEven(x)
	}
	if x != x {
		x = math.Inf(-1)
	}
	if x < lo || x > hi {
		switch k.padding {
		case graph.SampleBorder:
			if x = min(max(x, -8), float64(n)+8); k.mode != graph.ResizeCubic { // cubic limits each of the elements that it takes
				x = min(max(x, 0), float64(n-1))
			}
		case graph.SampleReflection:
			x = reflect(x, lo, hi)
		default:
			x = min(max(x, -8), float64(n)+8)
		}
	}
	base := math.Floor(x)
	f := T(x - base)
	first := int(base)
	switch k.mode {
	case graph.ResizeNearest:
		t.n, t.weight[0] = 1, 1
	case graph.ResizeLinear:
		t.n, t.weight = 2, [4]T{1 - f, f}
	case graph.ResizeCubic:
		const a = -0.75
		t.n = 4
		first--
		for i := range t.weight {
			t.weight[i] = T(cubic(math.Abs(float64(f)+1-float64(i)), a))
		}
	}
	for i := range t.at[:t.n] {
		at := first + i
		if at < 0 || at >= n {
			switch k.padding {
			case graph.SampleZeros:
				at = -1
			case graph.SampleBorder:
				at = min(max(at, 0), n-1)
			case graph.SampleReflection:
				at = min(max(int(reflect(float64(at), lo, hi)), 0), n-1)
			}
		}
		t.at[i] = at
	}
}

// reflect mirrors x at the borders lo and hi until it lies between them.
func reflect(x, lo, hi float64) float64 {
	width := hi - lo
	if !(width > 0) || math.IsInf(x, 0) {
		return lo
	}
	d := math.Mod(math.Abs(x-lo), 2*width)
	if d > width {
		d = 2*width - d
	}
	return lo + d
}

// Sample is an interpolation: the weights by which an element between four others
// is made of them. An index below zero is outside of the operand.
type Sample[T tensor.Float] struct {
	At     [4]int
	Weight [4]T
}

// Of returns the sample of one channel.
func (s *Sample[T]) Of(x []T) T {
	var v T
	for i, at := range s.At {
		if at >= 0 {
			v += T(s.Weight[i] * x[at])
		}
	}
	return v
}
