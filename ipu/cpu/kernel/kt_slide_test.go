package kernel

import "pgregory.net/rapid"

// slide is how a window slides over the spatial axes of a test.
type slide struct {
	size, kernel, strides, dilations, begin, end []int64
}

// drawSlide draws a geometry whose window fits into the padded input.
func drawSlide(t *rapid.T, axes int) slide {
	var s slide
	for range axes {
		most := []int64{70, 20, 7}[min(axes, 3)-1]
		size, kernel := rapid.Int64Range(1, most).Draw(t, "size"), rapid.Int64Range(1, 5).Draw(t, "kernel")
		dilation := rapid.SampledFrom([]int64{1, 1, 1, 2, 3}).Draw(t, "dilation")
		begin, end := rapid.Int64Range(0, 3).Draw(t, "begin"), rapid.Int64Range(0, 3).Draw(t, "end")
		if missing := (kernel-1)*dilation + 1 - size - begin - end; missing > 0 {
			begin += missing / 2
			end += missing - missing/2
		}
		s.size, s.kernel = append(s.size, size), append(s.kernel, kernel)
		s.strides = append(s.strides, rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, "stride"))
		s.dilations = append(s.dilations, dilation)
		s.begin, s.end = append(s.begin, begin), append(s.end, end)
	}
	return s
}

// window calls fn for every window element of the output position at; inside
// is the input's row-major index over the spatial axes, or -1 in the padding,
// -2 beyond it.
func (s *slide) window(at []int64, fn func(tap, inside int, pos []int64)) {
	pos := make([]int64, len(at))
	coords(s.kernel, func(k []int64, tap int) {
		inside := 0
		for i := range at {
			p := at[i]*s.strides[i] + k[i]*s.dilations[i] - s.begin[i]
			pos[i] = p
			switch {
			case p >= s.size[i]+s.end[i]:
				inside = -2
			case inside >= 0 && (p < 0 || p >= s.size[i]):
				inside = -1
			case inside >= 0:
				inside = inside*int(s.size[i]) + int(p)
			}
		}
		fn(tap, inside, pos)
	})
}
