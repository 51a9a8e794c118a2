package graph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
		inferCase{"gradient of an lstm", &RecurrentGradient{Cell: "lstm", Hidden: 5, Direction: "bidirectional", BatchFirst: true},
			[]TensorType{f32(2, 7, 3), f32(2, 20, 3), f32(2, 20, 5), none, typ(I32, 2), none, none, f32(2, 7, 2, 5), f32(2, 7, 2, 5), none, f32(2, 2, 5)},
			[]TensorType{f32(2, 7, 3), f32(2, 20, 3), f32(2, 20, 5), f32(2, 40), f32(2, 2, 5), f32(2, 2, 5)}},
		inferCase{"gradient of an rnn", &RecurrentGradient{Cell: "rnn", Hidden: 4, Direction: "forward"},
			[]TensorType{f32(7, 2, 3), f32(1, 4, 3), f32(1, 4, 4), none, none, none, none, f32(7, 1, 2, 4)},
			[]TensorType{f32(7, 2, 3), f32(1, 4, 3), f32(1, 4, 4), f32(1, 8), f32(1, 2, 4)}},
	)
}

func TestRecurrentGradientRefuses(t *testing.T) {
	x, w, r, y, state := f32(7, 2, 3), f32(1, 12, 3), f32(1, 12, 4), f32(7, 1, 2, 4), f32(1, 2, 4)
	for _, c := range []struct {
		cell string
		in   []TensorType
		want string
	}{
		{"cell", []TensorType{x, w, r, none, none, none, none, y}, `attribute Cell is "cell", want lstm, gru`},
		{"gru", []TensorType{x, w, r}, "3 operands, want 8 to 11"},
		{"gru", []TensorType{x, w, r, none, none, none, none, x}, "Y is f32[7,2,3], want shape [7,1,2,4]"},
		{"gru", []TensorType{x, w, r, none, none, none, none, y, typ(F16, 7, 1, 2, 4)}, "dY is f16[7,1,2,4], want elements of type f32"},
		{"linear gru", []TensorType{x, w, r, none, none, none, none, y, y, y}, "dY_h is f32[7,1,2,4], want shape [1,2,4]"},
		{"gru", []TensorType{x, w, r, none, none, none, state, y}, "operands initial_c and dY_c are f32[1,2,4] and"},
		{"gru", []TensorType{x, w, r, none, none, none, none, y, none, none, state}, "want none of a gru"},
		{"lstm", []TensorType{x, w, r, none, none, none, none, y}, "W is f32[1,12,3], want shape [1,16,3]"},
	} {
		_, err := (&RecurrentGradient{Cell: c.cell, Hidden: 4, Direction: "forward"}).Infer(c.in)
		require.ErrorContains(t, err, c.want)
	}
}
