package rows

import (
	"cmp"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// digit is a factor with the number of elements of memory that one step of it is.
type digit struct{ stride, size, weight int64 }

// digits returns those of a tensor's memory, the outermost first.
func (l layout) digits() []digit {
	fs := canonical(slices.Concat(l...))
	out := make([]digit, len(fs))
	stride := int64(1)
	for i, f := range slices.Backward(fs) {
		out[i] = digit{stride, f.size, f.weight}
		stride *= f.size
	}
	return out
}

// within returns what a distance in memory is within a row: what it would be if there were
// one row.
func within(digits []digit, distance int64) (int64, bool) {
	row := int64(1)
	for _, d := range slices.Backward(digits) {
		if distance < d.stride*d.size {
			steps := distance / d.stride
			return row * steps, distance%d.stride == 0 && (steps == 1 || d.weight <= 0)
		}
		if d.weight <= 0 {
			row *= d.size
		}
	}
	return row, distance == 0
}

// perRow returns how many elements of a row lie within an axis of a view.
func perRow(digits []digit, stride, size int64) int64 {
	n := size
	for _, d := range digits {
		if d.weight <= 0 {
			continue
		}
		// Digits that the axis begins or ends in were cut there, or it would not be proven.
		lo, hi := max(d.stride, stride), min(d.stride*d.size, stride*size)
		if lo < hi {
			n /= hi / lo
		}
	}
	return n
}

// viewed returns what a ViewedAttention computes of a row, as numbers: equal ones compute
// the same. The axes of its grid are in the order of the result's memory, without rows and
// without those of one element.
func (a *analysis) viewed(n *graph.Node) ([]int64, bool) {
	o := n.Op.(*graph.ViewedAttention)
	y := a.values[n.Outputs[0]].at.digits()
	views := [][]int64{o.Q, o.K, o.V, o.Bias, o.Y}
	memory := [][]digit{nil, nil, nil, nil, y}
	for i, t := range n.Inputs {
		if t != graph.None {
			memory[i] = a.values[t].at.digits()
		}
	}
	type axis struct {
		size    int64
		strides []int64
	}
	var axes []axis
	ok := true
	row := func(view int, distance int64) int64 {
		d, fits := within(memory[view], distance)
		ok = ok && fits
		return d
	}
	for i, size := range o.Heads {
		x := axis{size: perRow(y, o.Y[1+i], size)}
		if x.size == 1 {
			continue
		}
		for k, v := range views {
			x.strides = append(x.strides, 0)
			if len(v) > 0 && v[1+i] > 0 {
				x.strides[k] = row(k, v[1+i])
			}
		}
		axes = append(axes, x)
	}
	slices.SortStableFunc(axes, func(a, b axis) int { return cmp.Compare(b.strides[4], a.strides[4]) })
	out := []int64{o.Rows, o.Cols, o.Size, o.Width}
	for _, x := range axes {
		out = append(append(out, x.size), x.strides...)
	}
	sizes := [][2]int64{{o.Rows, o.Size}, {o.Cols, o.Size}, {o.Cols, o.Width}, {o.Rows, o.Cols}, {o.Rows, o.Width}}
	for k, v := range views {
		if len(v) == 0 {
			continue
		}
		begin := int64(0) // digit by digit, none of which counts rows
		for _, d := range memory[k] {
			if steps := v[0] / d.stride % d.size; steps > 0 {
				ok = ok && d.weight <= 0
				begin += steps * row(k, d.stride)
			}
		}
		out = append(out, begin)
		for i, size := range sizes[k] {
			if stride := v[len(v)-2+i]; size > 1 && stride > 0 {
				out = append(out, row(k, stride))
			} else {
				out = append(out, 0)
			}
		}
	}
	return out, ok
}
