package op

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/onnx"
)

// TestRecurrent checks versions, defaults and layouts with one hidden unit,
// whose numbers can be computed by hand.
func TestRecurrent(t *testing.T) {
	tanh, sigmoid := math.Tanh, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	x := f32s(dims(2, 1, 1), 0.5, -1)
	// RNN: h' = tanh(2x + 0.5h + 1)
	w, r, b := f32s(dims(1, 1, 1), 2), f32s(dims(1, 1, 1), 0.5), f32s(dims(1, 2), 0.75, 0.25)
	h1 := tanh(2)
	h2 := tanh(-1 + 0.5*h1)
	relu := max(-1+0.5*2., 0)
	// GRU: z = σ(x), r = σ(h+1), h = tanh(x + …)
	gw, gr, gb := f32s(dims(1, 3, 1), 1, 0, 1), f32s(dims(1, 3, 1), 0, 1, 2), f32s(dims(1, 6), 0, 0, 0, 0, 1, 3)
	h0 := f32s(dims(1, 1, 1), 0.5)
	one := f32s(dims(1, 1, 1), 0.25)
	z, reset := sigmoid(0.25), sigmoid(1.5)
	plain := (1-z)*tanh(0.25+2*reset*0.5+3) + z*0.5
	linear := (1-z)*tanh(0.25+reset*(2*0.5+3)) + z*0.5
	acts := func(names ...string) *onnx.Attribute {
		a := &onnx.Attribute{Name: "activations", Type: onnx.AttrStrings}
		for _, n := range names {
			a.Strings = append(a.Strings, []byte(n))
		}
		return a
	}
	// PopART's LSTM: forget, input, candidate and output gate, all of x and of h.
	sig, c0 := sigmoid, 0.25
	gates := f32s(dims(4, 2, 1), 1, 0, 2, 0, 3, 1, 4, 0)
	cell := sig(0.5+1)*c0 + sig(2*0.5)*tanh(3*0.5+0.125)
	popart := sig(4*0.5) * tanh(cell)
	runCases(t, []opCase{
		{op: "LSTM", name: "PopART's LSTM", domain: "ai.graphcore", opset: 1, in: []*onnx.Tensor{f32s(dims(1, 1, 1), 0.5), gates, f32s(dims(4, 1), 1, 0, 0, 0), f32s(dims(2, 1, 1), 0.125, c0)},
			want: []*onnx.Tensor{f32s(dims(1, 1, 1), popart), f32s(dims(1, 1), cell)}},
		{op: "LSTM", name: "PopART's LSTM, last output", domain: "ai.graphcore", opset: 1, attrs: []*onnx.Attribute{aInt("output_full_sequence", 0)},
			in: []*onnx.Tensor{f32s(dims(1, 1, 1), 0.5), gates, f32s(dims(4, 1), 1, 0, 0, 0), f32s(dims(2, 1, 1), 0.125, c0)}, want: []*onnx.Tensor{f32s(dims(1, 1), popart)}},
		{op: "RNN", opset: 1, attrs: []*onnx.Attribute{aInt("hidden_size", 1), aInt("output_sequence", 1)}, fixed: []int{1, 2, 3}, in: []*onnx.Tensor{x, w, r, b},
			want: []*onnx.Tensor{f32s(dims(2, 1, 1, 1), h1, h2), f32s(dims(1, 1, 1), h2)}},
		{op: "RNN", opset: 7, attrs: []*onnx.Attribute{aInt("hidden_size", 1), acts("relu")}, in: []*onnx.Tensor{x, w, r, b}, want: []*onnx.Tensor{nil, f32s(dims(1, 1, 1), relu)}},
		{op: "RNN", opset: 14, attrs: []*onnx.Attribute{aInt("hidden_size", 1), aInt("layout", 1)}, in: []*onnx.Tensor{f32s(dims(1, 2, 1), 0.5, -1), w, r, b},
			want: []*onnx.Tensor{f32s(dims(1, 2, 1, 1), h1, h2), f32s(dims(1, 1, 1), h2)}},
		{op: "RNN", name: "RNN-22 lengths and reverse", opset: 22, attrs: []*onnx.Attribute{aInt("hidden_size", 1), aStr("direction", "reverse")},
			in: []*onnx.Tensor{x, w, r, b, tensor(onnx.Int32, dims(1), 1)}, want: []*onnx.Tensor{f32s(dims(2, 1, 1, 1), h1, 0), f32s(dims(1, 1, 1), h1)}},
		{op: "RNN", name: "RNN double clipped", opset: 7, attrs: []*onnx.Attribute{aFloat("clip", 0.5)}, in: []*onnx.Tensor{tensor(onnx.Double, dims(1, 1, 1), 3), tensor(onnx.Double, dims(1, 1, 1), 2), tensor(onnx.Double, dims(1, 1, 1), 0)},
			want: []*onnx.Tensor{nil, tensor(onnx.Double, dims(1, 1, 1), tanh(0.5))}},
		{op: "LSTM", name: "LSTM clipped, but not its cell", opset: 7, attrs: []*onnx.Attribute{aInt("hidden_size", 1), aFloat("clip", 0.5)},
			in:   []*onnx.Tensor{f32s(dims(1, 1, 1), 1), f32s(dims(1, 4, 1), 2, 2, 2, 2), f32s(dims(1, 4, 1), 0, 0, 0, 0), nil, nil, nil, f32s(dims(1, 1, 1), 1)},
			want: []*onnx.Tensor{nil, f32s(dims(1, 1, 1), sig(0.5)*tanh(sig(0.5)+sig(0.5)*tanh(0.5)))}},
		{op: "GRU", opset: 1, attrs: []*onnx.Attribute{aInt("hidden_size", 1)}, in: []*onnx.Tensor{one, gw, gr, gb, nil, h0}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), plain), f32s(dims(1, 1, 1), plain)}},
		{op: "GRU", opset: 3, attrs: []*onnx.Attribute{aInt("linear_before_reset", 1), aInt("output_sequence", 0)}, in: []*onnx.Tensor{one, gw, gr, gb, nil, h0}, want: []*onnx.Tensor{nil, f32s(dims(1, 1, 1), linear)}},
		{op: "GRU", opset: 22, attrs: []*onnx.Attribute{aInt("layout", 1)}, in: []*onnx.Tensor{one, gw, gr, gb, nil, h0}, want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), plain)}},
	})
}
