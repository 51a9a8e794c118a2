package main

import (
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// movementSketches are operators that move elements.
var movementSketches = map[string]func(*sketch){
	"Pad": func(s *sketch) {
		rank := 1 + s.IntN(4)
		mode := pick(s, "constant", "reflect", "edge", "wrap")
		s.opset = pick(s, 11, 13, 18)
		if mode == "wrap" {
			s.opset = 19
		}
		dims := s.list(rank, 3, 6)
		pads := s.list(2*rank, 0, 2)
		if mode == "constant" && s.rare() {
			pads = s.list(2*rank, -1, 2)
		}
		ops := []string{s.input(f32, dims, s.normal), s.ints(pads...)}
		if mode == "constant" && s.coin() {
			ops = append(ops, s.scalar(f32, 2.5))
		}
		s.output(s.node("Pad", 1, attrs{"mode": mode}, ops...)[0], f32)
	},
	"Slice": func(s *sketch) {
		dims := s.list(1+s.IntN(4), 1, 7)
		axes := s.axes(len(dims))
		n := len(axes)
		steps := s.list(n, 1, 3)
		for i := range steps {
			if s.rare() {
				steps[i] = -steps[i]
			}
		}
		x := s.input(pick(s, numbers...), dims, s.whole)
		e := onnx.ElemType(s.inputs[0].Elem)
		s.output(s.node("Slice", 1, nil, x, s.ints(s.list(n, -9, 9)...), s.ints(s.list(n, -9, 9)...), s.ints(axes...), s.ints(steps...))[0], e)
	},
	"Expand": func(s *sketch) {
		dims := s.dims(1+s.IntN(3), 4)
		to := append(s.dims(s.IntN(2), 3), dims...)
		x := slices.Clone(dims)
		for i := range x {
			if s.coin() {
				x[i] = 1
			}
		}
		for i := range to {
			if s.rare() {
				to[i] = 1
			}
		}
		s.output(s.node("Expand", 1, nil, s.input(f32, x, s.normal), s.ints(to...))[0], f32)
	},
	"Tile": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 4)
		s.output(s.node("Tile", 1, nil, s.input(f32, dims, s.normal), s.ints(s.list(len(dims), 1, 3)...))[0], f32)
	},
	"Concat": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 4)
		axis := s.axis(len(dims))
		var ops []string
		for range 1 + s.IntN(4) {
			d := slices.Clone(dims)
			d[(axis+len(d))%len(d)] = 1 + s.IntN(5)
			ops = append(ops, s.input(f32, d, s.normal))
		}
		s.output(s.node("Concat", 1, attrs{"axis": axis}, ops...)[0], f32)
	},
	"Split": func(s *sketch) {
		dims := s.dims(1+s.IntN(3), 4)
		axis := s.axis(len(dims))
		at := (axis + len(dims)) % len(dims)
		n := 1 + s.IntN(3)
		a := attrs{"axis": axis}
		var ops []string
		if s.coin() {
			parts := s.list(n, 1, 4)
			dims[at] = 0
			for _, p := range parts {
				dims[at] += p
			}
			ops = []string{s.input(f32, dims, s.normal), s.ints(parts...)}
		} else if s.coin() {
			s.opset = 18
			a["num_outputs"] = n
			dims[at] = n + s.IntN(5)
			ops = []string{s.input(f32, dims, s.normal)}
		} else {
			dims[at] = n * (1 + s.IntN(3))
			ops = []string{s.input(f32, dims, s.normal)}
		}
		for _, o := range s.node("Split", n, a, ops...) {
			s.output(o, f32)
		}
	},
	"Transpose": func(s *sketch) {
		dims := s.dims(1+s.IntN(5), 6)
		a := attrs{}
		if s.IntN(5) > 0 {
			a["perm"] = s.Perm(len(dims))
		}
		e := pick(s, f32, onnx.Double, onnx.Uint8, onnx.Int64)
		s.output(s.node("Transpose", 1, a, s.input(e, dims, func() float64 { return float64(s.IntN(200)) }))[0], e)
	},
	"Squeeze": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 2)
		var ones []int
		for i, d := range dims {
			if d == 1 && s.coin() {
				ones = append(ones, i-len(dims)*s.IntN(2))
			}
		}
		x := s.input(f32, dims, s.normal)
		if len(ones) == 0 || s.rare() {
			s.output(s.node("Squeeze", 1, nil, x)[0], f32)
			return
		}
		s.output(s.node("Squeeze", 1, nil, x, s.ints(ones...))[0], f32)
	},
	"Flatten": func(s *sketch) {
		dims := s.dims(1+s.IntN(4), 4)
		s.output(s.node("Flatten", 1, attrs{"axis": s.IntN(2*len(dims)+1) - len(dims)}, s.input(f32, dims, s.normal))[0], f32)
	},
	"Reshape": func(s *sketch) {
		dims := s.dims(3, 4)
		to := pick(s, []int{-1}, []int{0, -1}, []int{0, 0, -1}, []int{-1, dims[2]}, []int{dims[0] * dims[1], 1, 0}, []int{1, -1, 1})
		s.output(s.node("Reshape", 1, nil, s.input(f32, dims, s.normal), s.ints(to...))[0], f32)
	},
	"ReverseSequence": func(s *sketch) {
		b := s.IntN(2)
		dims := append([]int{1 + s.IntN(4), 1 + s.IntN(4)}, s.dims(s.IntN(2), 3)...)
		s.output(s.node("ReverseSequence", 1, attrs{"batch_axis": b, "time_axis": 1 - b}, s.input(f32, dims, s.normal), s.input(onnx.Int64, []int{dims[b]}, func() float64 { return float64(1 + s.IntN(dims[1-b])) }))[0], f32)
	},
	"Trilu": func(s *sketch) {
		s.output(s.node("Trilu", 1, attrs{"upper": s.IntN(2)}, s.input(f32, s.dims(2+s.IntN(2), 6), s.normal), s.scalar(onnx.Int64, float64(s.IntN(9)-4)))[0], f32)
	},
	"EyeLike": func(s *sketch) {
		s.output(s.node("EyeLike", 1, attrs{"k": s.IntN(7) - 3, "dtype": int(f32)}, s.input(f32, s.dims(2, 6), s.normal))[0], f32)
	},
	"Where": func(s *sketch) {
		dims := s.dims(1+s.IntN(3), 5)
		part := func() []int {
			d := slices.Clone(dims[s.IntN(len(dims)):])
			for i := range d {
				if s.rare() {
					d[i] = 1
				}
			}
			return d
		}
		s.output(s.node("Where", 1, nil, s.input(onnx.Bool, part(), func() float64 { return float64(s.IntN(2)) }), s.input(f32, dims, s.normal), s.input(f32, part(), s.normal))[0], f32)
	},
	"Movements": func(s *sketch) { // chains of what moves elements, with arithmetic between
		dims := s.list(1+s.IntN(4), 1, 6)
		x := s.input(f32, dims, s.normal)
		for range 2 + s.IntN(6) {
			x, dims = s.move(x, dims)
		}
		s.output(x, f32)
	},
}

// move adds an operator that moves the elements of x, and returns its result and
// shape.
func (s *sketch) move(x string, dims []int) (string, []int) {
	n := len(dims)
	switch s.IntN(11) {
	case 0, 1:
		perm := s.Perm(n)
		to := make([]int, n)
		for i, p := range perm {
			to[i] = dims[p]
		}
		return s.node("Transpose", 1, attrs{"perm": perm}, x)[0], to
	case 2:
		all := volume(dims)
		to := []int{all}
		for _, d := range []int{2, 3, 5} {
			if last := to[len(to)-1]; last%d == 0 && s.coin() {
				to = append(to[:len(to)-1], d, last/d)
			}
		}
		s.Shuffle(len(to), func(i, j int) { to[i], to[j] = to[j], to[i] })
		return s.node("Reshape", 1, nil, x, s.ints(to...))[0], to
	case 3:
		axis := s.IntN(n)
		d := dims[axis]
		start, step := s.IntN(d), pick(s, 1, 1, 2, -1)
		end := d
		if step < 0 {
			end = -d - 1
		}
		to := slices.Clone(dims)
		if to[axis] = (d - start + step - 1) / step; step < 0 {
			to[axis] = start + 1
		}
		return s.node("Slice", 1, nil, x, s.ints(start), s.ints(end), s.ints(axis), s.ints(step))[0], to
	case 4:
		axis := s.IntN(n)
		to := slices.Clone(dims)
		to[axis] *= 2
		return s.node("Concat", 1, attrs{"axis": axis}, x, pick(s, x, s.node("Neg", 1, nil, x)[0]))[0], to
	case 5:
		pads := s.list(2*n, 0, 1)
		to := slices.Clone(dims)
		for i := range to {
			to[i] += pads[i] + pads[n+i]
		}
		return s.node("Pad", 1, attrs{"mode": pick(s, "constant", "edge")}, x, s.ints(pads...))[0], to
	case 6:
		at := s.IntN(n + 1)
		return s.node("Unsqueeze", 1, nil, x, s.ints(at))[0], slices.Insert(slices.Clone(dims), at, 1)
	case 7:
		axis := s.IntN(n)
		pickAt := s.list(1+s.IntN(3), 0, dims[axis]-1)
		to := slices.Clone(dims)
		to[axis] = len(pickAt)
		return s.node("Gather", 1, attrs{"axis": axis}, x, s.ints(pickAt...))[0], to
	case 8:
		repeats := s.list(n, 1, 2)
		to := slices.Clone(dims)
		for i := range to {
			to[i] *= repeats[i]
		}
		return s.node("Tile", 1, nil, x, s.ints(repeats...))[0], to
	case 9:
		d := slices.Clone(dims[s.IntN(n):])
		for i := range d {
			if s.coin() {
				d[i] = 1
			}
		}
		return s.node(pick(s, "Add", "Mul", "Max"), 1, nil, x, s.constant(f32, d, s.data(f32, volume(d), s.normal)))[0], dims
	}
	return s.node(pick(s, "Relu", "Abs", "Identity"), 1, nil, x)[0], dims
}
