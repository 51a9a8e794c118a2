package autodiff_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

var movementCases = map[string]func(*draw){
	"Reshape": func(d *draw) {
		s := d.shape(3)
		d.give(&graph.Reshape{Shape: []int64{s[0] * s[2], s[1]}}, d.x(s, -2, 2))
	},
	"Transpose": func(d *draw) {
		d.give(&graph.Transpose{Perm: rapid.Permutation([]int64{0, 1, 2}).Draw(d.T, "perm")}, d.x(d.shape(3), -2, 2))
	},
	"Expand": func(d *draw) {
		shape := d.shape(3)
		d.give(&graph.Expand{Shape: shape}, d.x(d.broadcast(shape), -2, 2))
	},
	"Concat": func(d *draw) {
		axis, shape := d.size("axis", 0, 2), d.shape(3)
		var in []graph.TensorID
		for range d.size("operands", 1, 3) {
			s := slices.Clone(shape)
			s[axis] = d.size("size", 1, 3)
			in = append(in, d.x(s, -2, 2))
		}
		if d.yes("twice") {
			in = append(in, in[0])
		}
		d.give(&graph.Concat{Axis: axis}, in...)
	},
	"Slice": func(d *draw) {
		shape := []int64{d.size("axis", 1, 6), d.size("axis", 1, 3)}
		o := &graph.Slice{Step: []int64{1, 1}, Start: []int64{0, 0}, Size: slices.Clone(shape)}
		for i, n := range shape {
			step := d.size("step", 1, 4)
			first := d.size("first", 0, n-1)
			count := d.size("count", 0, 1+(n-1-first)/step)
			o.Start[i], o.Size[i], o.Step[i] = first, count, step
			if count > 0 && d.yes("backwards") {
				o.Start[i], o.Step[i] = first+(count-1)*step, -step
			}
		}
		d.give(o, d.x(shape, -2, 2))
	},
	"Pad": func(d *draw) {
		shape := []int64{d.size("axis", 2, 4), d.size("axis", 2, 3)}
		o := &graph.Pad{Mode: rapid.SampledFrom([]graph.PadMode{graph.PadConstant, graph.PadReflect, graph.PadEdge, graph.PadWrap}).Draw(d.T, "mode")}
		for _, n := range shape {
			least := -n / 2
			o.Before = append(o.Before, d.size("before", least, 2))
			o.After = append(o.After, d.size("after", min(least, -1)+1, 2))
		}
		in := []graph.TensorID{d.x(shape, -2, 2)}
		if o.Mode == graph.PadConstant && d.yes("value") {
			in = append(in, d.x([]int64{}, -2, 2))
		}
		d.give(o, in...)
	},
}

var indexCases = map[string]func(*draw){
	"Gather": func(d *draw) {
		shape, axis := d.shape(3), d.size("axis", 0, 2)
		idx := d.shape(int(d.size("rank", 0, 2)))
		d.give(&graph.Gather{Axis: axis}, d.x(shape, -2, 2), d.indices(idx, -shape[axis], shape[axis]-1))
	},
	"GatherElements": func(d *draw) {
		shape, axis := d.shape(3), d.size("axis", 0, 2)
		idx := slices.Clone(shape)
		idx[axis] = d.size("indices", 1, 4)
		d.give(&graph.GatherElements{Axis: axis}, d.x(shape, -2, 2), d.indices(idx, -shape[axis], shape[axis]-1))
	},
	"GatherND": func(d *draw) {
		shape := []int64{d.size("axis", 1, 3), 2, 2}
		b := d.size("batch axes", 0, 1)
		idx := append(slices.Clone(shape[:b]), d.size("tuples", 1, 3), d.size("coordinates", 1, 2))
		d.give(&graph.GatherND{BatchDims: b}, d.x(shape, -2, 2), d.indices(idx, -1, min(shape[b], 2)-1))
	},
	"ScatterElements": func(d *draw) {
		shape, axis := d.shape(3), d.size("axis", 0, 2)
		idx := slices.Clone(shape)
		idx[axis] = d.size("indices", 1, 4)
		fn := rapid.SampledFrom(scatterFns).Draw(d.T, "function")
		x, u := d.scattered(fn, shape, idx)
		d.give(&graph.ScatterElements{Axis: axis, Fn: fn}, x, d.indices(idx, -shape[axis], shape[axis]-1), u)
	},
	"ScatterND": func(d *draw) {
		shape := []int64{2, 2, d.size("axis", 1, 3)}
		k := d.size("coordinates", 1, 2)
		lead := d.shape(2)
		fn := rapid.SampledFrom(scatterFns).Draw(d.T, "function")
		x, u := d.scattered(fn, shape, slices.Concat(lead, shape[k:]))
		d.give(&graph.ScatterND{Fn: fn}, x, d.indices(append(slices.Clone(lead), k), -2, 1), u)
	},
	"MaxUnpool": func(d *draw) {
		shape := []int64{1, 2, d.size("axis", 1, 3)}
		out := []int64{1, 2, shape[2] + 1}
		d.give(&graph.MaxUnpool{Shape: out}, d.x(shape, -2, 2), d.indices(shape, 0, 2*out[2]-1))
	},
	"OneHot": func(d *draw) {
		idx := d.shape(2)
		d.give(&graph.OneHot{Axis: d.size("axis", 0, 2), Depth: d.size("depth", 1, 4)}, d.indices(idx, -5, 5), d.x([]int64{2}, -2, 2))
	},
	"TopK": func(d *draw) {
		shape, axis := d.shape(3), d.size("axis", 0, 2)
		o := &graph.TopK{Axis: axis, K: d.size("k", 1, shape[axis]), Least: d.yes("least")}
		d.give(o, d.apart(shape))
	},
}

var scatterFns = []graph.ScatterFn{graph.ScatterNone, graph.ScatterAdd, graph.ScatterMul, graph.ScatterMax, graph.ScatterMin}

// scattered adds what is written to and what is written: all numbers differ where the greatest or least counts, and some factors are zero.
func (d *draw) scattered(fn graph.ScatterFn, to, from []int64) (x, u graph.TensorID) {
	switch fn {
	case graph.ScatterMax, graph.ScatterMin:
		n := f64(to...).Elements()
		v := make([]float64, n+f64(from...).Elements())
		for i := range v {
			v[i] = (float64(i)-float64(len(v)/2))/8 + 0x1p-10
		}
		v = rapid.Permutation(v).Draw(d.T, "values")
		return d.input(to, v[:n]), d.input(from, v[n:])
	case graph.ScatterMul:
		factors := d.numbers(f64(from...).Elements(), -2, 2)
		for i := range factors {
			if d.size("zero", 0, 3) == 0 {
				factors[i] = 0
			}
		}
		return d.x(to, -2, 2), d.input(from, factors)
	}
	return d.x(to, -2, 2), d.x(from, -2, 2)
}
