package main

import "github.com/popefgen/popefgen/onnx"

// The draws that sketches share.

func (s *sketch) coin() bool        { return s.IntN(2) == 0 }
func (s *sketch) rare() bool        { return s.IntN(4) == 0 }
func (s *sketch) normal() float64   { return s.NormFloat64() }
func (s *sketch) whole() float64    { return float64(s.IntN(41) - 20) }
func (s *sketch) positive() float64 { return 0.1 + 2*s.Float64() }

func pick[T any](s *sketch, v ...T) T { return v[s.IntN(len(v))] }

// dims draws a shape.
func (s *sketch) dims(rank, most int) []int {
	d := make([]int, rank)
	for i := range d {
		d[i] = 1 + s.IntN(most)
	}
	return d
}

func (s *sketch) list(n, least, most int) []int {
	d := make([]int, n)
	for i := range d {
		d[i] = least + s.IntN(most-least+1)
	}
	return d
}

// axis draws an axis of a rank, perhaps a negative one.
func (s *sketch) axis(rank int) int { return s.IntN(2*rank) - rank }

// axes draws different axes.
func (s *sketch) axes(rank int) []int {
	p := s.Perm(rank)[:1+s.IntN(rank)]
	for i := range p {
		if s.coin() {
			p[i] -= rank
		}
	}
	return p
}

// window gives strides, dilations and padding of a window to a, for operators with
// axes of so many dimensions.
func (s *sketch) window(a attrs, axes int, dilate bool) {
	if s.coin() {
		a["strides"] = s.list(axes, 1, 3)
	}
	if dilate && s.rare() {
		a["dilations"] = s.list(axes, 1, 2)
	}
	switch s.IntN(4) {
	case 0:
		a["auto_pad"] = pick(s, "SAME_UPPER", "SAME_LOWER", "VALID")
	case 1, 2:
		a["pads"] = s.list(2*axes, 0, 2)
	}
}

// poolPadding gives padding of a pool to a. ONNX Runtime's pools ignore dilations
// in SAME padding.
func (s *sketch) poolPadding(a attrs, axes int) {
	switch s.IntN(4) {
	case 0:
		if a["auto_pad"] = pick(s, "SAME_UPPER", "SAME_LOWER", "VALID"); a["auto_pad"] != "VALID" {
			delete(a, "dilations")
		}
	case 1, 2:
		a["pads"] = s.list(2*axes, 0, 1)
	}
}

func kernelOf(s *sketch, axes int) []int { return s.list(axes, 1, 3) }

const f32 = onnx.Float

var numbers = []onnx.ElemType{onnx.Float, onnx.Float, onnx.Double, onnx.Int32, onnx.Int64}

// floatsOf adds an input of which each element is drawn by its place.
func (s *sketch) floatsOf(dims []int, draw func(i int) float64) string {
	i := -1
	return s.input(f32, dims, func() float64 { i++; return draw(i) })
}
