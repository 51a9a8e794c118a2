package kerneltest

import "pgregory.net/rapid"

// Slide is how a window slides over the spatial axes of a test.
type Slide struct {
	Size, Kernel, Strides, Dilations, Begin, End []int64
}

// DrawSlide draws a geometry whose window fits into the padded input.
func DrawSlide(t *rapid.T, axes int) Slide {
	var s Slide
	for range axes {
		most := []int64{70, 20, 7}[min(axes, 3)-1]
		size, kernel := rapid.Int64Range(1, most).Draw(t, "size"), rapid.Int64Range(1, 5).Draw(t, "kernel")
		dilation := rapid.SampledFrom([]int64{1, 1, 1, 2, 3}).Draw(t, "dilation")
		begin, end := rapid.Int64Range(0, 3).Draw(t, "begin"), rapid.Int64Range(0, 3).Draw(t, "end")
		if missing := (kernel-1)*dilation + 1 - size - begin - end; missing > 0 {
			begin += missing / 2
			end += missing - missing/2
		}
		s.Size, s.Kernel = append(s.Size, size), append(s.Kernel, kernel)
		s.Strides = append(s.Strides, rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, "stride"))
		s.Dilations = append(s.Dilations, dilation)
		s.Begin, s.End = append(s.Begin, begin), append(s.End, end)
	}
	return s
}

// Window calls fn for every window element of the output position at; inside
// is the input's row-major index over the spatial axes, or -1 in the padding,
// -2 beyond it.
func (s *Slide) Window(at []int64, fn func(tap, inside int, pos []int64)) {
	pos := make([]int64, len(at))
	Coords(s.Kernel, func(k []int64, tap int) {
		inside := 0
		for i := range at {
			p := at[i]*s.Strides[i] + k[i]*s.Dilations[i] - s.Begin[i]
			pos[i] = p
			switch {
			case p >= s.Size[i]+s.End[i]:
				inside = -2
			case inside >= 0 && (p < 0 || p >= s.Size[i]):
				inside = -1
			case inside >= 0:
				inside = inside*int(s.Size[i]) + int(p)
			}
		}
		fn(tap, inside, pos)
	})
}
