package main

// networkSketches are networks of convolutions.
var networkSketches = map[string]func(*sketch){
	"Networks": func(s *sketch) { // convolutions and what follows them
		c := pick(s, 1, 3, 4, 16, 17)
		size := s.list(2, 6, 14)
		x := s.input(f32, append([]int{1 + s.IntN(2), c}, size...), s.normal)
		for range 1 + s.IntN(4) {
			switch s.IntN(9) {
			case 0, 1, 2:
				group := pick(s, 1, 1, 1, c)
				out := group * pick(s, 1, 2, 5, 16)
				if out > 64 {
					out = c
				}
				k := pick(s, 1, 3, 3, 5)
				small := func() float64 { return 0.3 * s.normal() }
				ops := []string{x, s.constant(f32, []int{out, c / group, k, k}, s.data(f32, out*c/group*k*k, small))}
				if s.coin() {
					ops = append(ops, s.constant(f32, []int{out}, s.data(f32, out, s.normal)))
				}
				stride := 1 + s.IntN(2)
				x, c = s.node("Conv", 1, attrs{"group": group, "pads": []int{k / 2, k / 2, k / 2, k / 2}, "strides": []int{stride, stride}}, ops...)[0], out
			case 3:
				x = s.node(pick(s, "Relu", "LeakyRelu", "Sigmoid", "HardSwish", "Elu"), 1, nil, x)[0]
			case 4:
				per := func() string {
					d := pick(s, []int{c, 1, 1}, []int{1, c, 1, 1}, []int{1}, []int{1, 1, 1, 1})
					return s.constant(f32, d, s.data(f32, volume(d), s.normal))
				}
				x = s.node(pick(s, "Add", "Mul", "Sub", "Div", "PRelu"), 1, nil, x, per())[0]
			case 5:
				x = s.node("BatchNormalization", 1, nil, x, s.constant(f32, []int{c}, s.data(f32, c, s.normal)), s.constant(f32, []int{c}, s.data(f32, c, s.normal)), s.constant(f32, []int{c}, s.data(f32, c, s.normal)), s.constant(f32, []int{c}, s.data(f32, c, s.positive)))[0]
			case 6:
				x = s.node(pick(s, "MaxPool", "AveragePool"), 1, attrs{"kernel_shape": []int{3, 3}, "pads": []int{1, 1, 1, 1}, "strides": pick(s, []int{1, 1}, []int{2, 2})}, x)[0]
			case 7:
				x = s.node("Add", 1, nil, x, s.node(pick(s, "Relu", "Neg", "Identity"), 1, nil, x)[0])[0]
			default:
				x = s.node("Clip", 1, nil, x, s.scalar(f32, pick[float64](s, 0, -1)), s.scalar(f32, pick[float64](s, 6, 1)))[0]
			}
		}
		s.output(x, f32)
	},
}
