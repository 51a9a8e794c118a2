package rows

import "slices"

// factor is one digit of an axis' coordinate. A coordinate of an axis with the factors
// (a, b, c) is the number with the digits i, j, k to the bases a, b, c: (i·b+j)·c+k.
type factor struct {
	size int64
	// weight is what one step of the digit adds to the number of the row, fixed where
	// the digit does not count rows, level where it does not and all elements along it
	// are equal.
	weight int64
}

const (
	fixed = 0
	level = -1
)

// layout says where the rows of a tensor are: factors for each axis, the outermost
// first. The number of an element's row is the sum of its digits times their
// weights. So it stays known through whatever reshapes and transposes do.
type layout [][]factor

// plain returns the layout of a tensor that has no rows.
func plain(shape []int64) layout {
	l := make(layout, len(shape))
	for i, d := range shape {
		l[i] = canonical([]factor{{d, fixed}})
	}
	return l
}

// counting returns the layout of a tensor whose given axis is n rows, one after the
// other. n divides the axis.
func counting(shape []int64, axis int, n int64) layout {
	l := plain(shape)
	l[axis] = canonical([]factor{{n, 1}, {shape[axis] / n, fixed}})
	return l
}

// canonical leaves out digits of one value and joins neighbours that are one digit.
func canonical(fs []factor) []factor {
	var out []factor // innermost first
	for _, f := range slices.Backward(fs) {
		if f.size == 1 {
			continue
		}
		if n := len(out) - 1; n >= 0 {
			in := &out[n]
			if f.weight <= 0 && f.weight == in.weight || in.weight > 0 && f.weight == in.weight*in.size {
				in.size *= f.size
				continue
			}
		}
		out = append(out, f)
	}
	slices.Reverse(out)
	return out
}

// counts reports whether an axis' factors count rows.
func counts(fs []factor) bool {
	return slices.ContainsFunc(fs, func(f factor) bool { return f.weight > 0 })
}

// even reports whether all elements along an axis are known to be equal.
func even(fs []factor) bool {
	return !slices.ContainsFunc(fs, func(f factor) bool { return f.weight != level })
}

// axis returns the first axis that counts rows, or -1.
func (l layout) axis() int { return slices.IndexFunc(l, counts) }

func (l layout) equal(m layout) bool {
	return slices.EqualFunc(l, m, slices.Equal[[]factor])
}

// regroup returns the layout of the same elements in another shape with as many. It fails
// where an axis of the new shape begins or ends within a digit, and where there are no
// elements.
func (l layout) regroup(shape []int64) (layout, bool) {
	rest := canonical(slices.Concat(l...))
	if slices.Contains(shape, 0) || slices.ContainsFunc(rest, func(f factor) bool { return f.size == 0 }) {
		return nil, false
	}
	out := make(layout, len(shape))
	for i, d := range slices.Backward(shape) {
		var fs []factor // innermost first
		for need := d; need > 1; {
			if len(rest) == 0 {
				return nil, false
			}
			f := &rest[len(rest)-1]
			switch {
			case need%f.size == 0:
				need /= f.size
				fs, rest = append(fs, *f), rest[:len(rest)-1]
			case f.size%need == 0:
				fs = append(fs, factor{need, f.weight})
				f.size /= need
				if f.weight > 0 {
					f.weight *= need
				}
				need = 1
			default:
				return nil, false
			}
		}
		slices.Reverse(fs)
		out[i] = canonical(fs)
	}
	return out, len(rest) == 0
}
