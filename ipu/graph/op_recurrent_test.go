package graph

func init() {
	gru := func(direction string, dirs int, batchFirst bool) *GRU {
		acts := []string{"Sigmoid", "Tanh", "HardSigmoid", "Relu"}[:2*dirs]
		return &GRU{Hidden: 5, Direction: direction, Activations: acts, ActAlpha: make([]float64, 2*dirs), ActBeta: make([]float64, 2*dirs), BatchFirst: batchFirst}
	}
	familyCases = append(familyCases,
		inferCase{"gru", gru("reverse", 1, false), []TensorType{f32(7, 2, 3), f32(1, 15, 3), f32(1, 15, 5)}, []TensorType{f32(7, 1, 2, 5), f32(1, 2, 5)}},
		inferCase{"gru, everything", gru("bidirectional", 2, true),
			[]TensorType{f32(2, 7, 3), f32(2, 15, 3), f32(2, 15, 5), f32(2, 30), typ(I32, 2), f32(2, 2, 5)}, []TensorType{f32(2, 7, 2, 5), f32(2, 2, 5)}},
		inferCase{"rnn", &RNN{Hidden: 4, Direction: "forward", Activations: []string{"Tanh"}, ActAlpha: []float64{0}, ActBeta: []float64{0}},
			[]TensorType{f32(7, 2, 3), f32(1, 4, 3), f32(1, 4, 4), f32(1, 8)}, []TensorType{f32(7, 1, 2, 4), f32(1, 2, 4)}},
	)
}
