package op

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/onnx"
)

func TestAttention(t *testing.T) {
	// One head of size 1 and scale 1: the scores are q·k.
	q := f32s(dims(1, 1, 2, 1), 1, 2)
	k := f32s(dims(1, 1, 2, 1), 0, math.Log(3))
	v := f32s(dims(1, 1, 2, 1), 4, 8)
	inf := math.Inf(-1)
	scores := []float64{0, math.Log(3), 0, 2 * math.Log(3)}
	y1, y2 := (4+8*3)/4., (4+8*9)/10.
	cap2 := func(x float64) float64 { return 2 * math.Tanh(x/2) }
	mode := func(n int64) *onnx.Attribute { return aInt("qk_matmul_output_mode", n) }
	scale := aFloat("scale", 1)
	two := []*onnx.Attribute{aInt("q_num_heads", 2), aInt("kv_num_heads", 1), scale}
	past := f32s(dims(1, 1, 1, 1), math.Log(2))
	pastV := f32s(dims(1, 1, 1, 1), 16)
	runCases(t, []opCase{
		{op: "Attention", opset: 23, in: []*onnx.Tensor{q, k, v}, want: []*onnx.Tensor{f32s(dims(1, 1, 2, 1), y1, y2), nil, nil, f32s(dims(1, 1, 2, 2), scores...)}},
		{op: "Attention", name: "causal", opset: 24, attrs: []*onnx.Attribute{aInt("is_causal", 1), mode(2)}, in: []*onnx.Tensor{q, k, v},
			want: []*onnx.Tensor{f32s(dims(1, 1, 2, 1), 4, y2), nil, nil, f32s(dims(1, 1, 2, 2), 0, inf, 0, scores[3])}},
		{op: "Attention", name: "mask of bools, too short", opset: 24, attrs: []*onnx.Attribute{mode(3)}, in: []*onnx.Tensor{q, k, v, bools(dims(2, 1), 1, 0)},
			want: []*onnx.Tensor{f32s(dims(1, 1, 2, 1), 4, 0), nil, nil, f32s(dims(1, 1, 2, 2), 1, 0, 0, 0)}},
		{op: "Attention", name: "softcap before the mask", opset: 23, attrs: []*onnx.Attribute{mode(1), aFloat("softcap", 2)}, in: []*onnx.Tensor{q, k, v, f32s(dims(2), inf, 0)},
			want: []*onnx.Tensor{f32s(dims(1, 1, 2, 1), 8, 8), nil, nil, f32s(dims(1, 1, 2, 2), 0, cap2(scores[1]), 0, cap2(scores[3]))}},
		{op: "Attention", name: "past", opset: 23, attrs: []*onnx.Attribute{aInt("is_causal", 1)}, in: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), 1), f32s(dims(1, 1, 1, 1), 0), f32s(dims(1, 1, 1, 1), 4), nil, past, pastV},
			want: []*onnx.Tensor{f32s(dims(1, 1, 1, 1), (2*16+4)/3.), f32s(dims(1, 1, 2, 1), math.Log(2), 0), f32s(dims(1, 1, 2, 1), 16, 4)}},
		{op: "Attention", name: "lengths", opset: 24, in: []*onnx.Tensor{q, k, v, nil, nil, nil, list1(1)}, want: []*onnx.Tensor{f32s(dims(1, 1, 2, 1), 4, 4)}},
		{op: "Attention", name: "three dimensions, shared keys", opset: 23, attrs: two, in: []*onnx.Tensor{f32s(dims(1, 1, 2), 1, 2), f32s(dims(1, 2, 1), 0, math.Log(3)), f32s(dims(1, 2, 1), 4, 8)},
			want: []*onnx.Tensor{f32s(dims(1, 1, 2), y1, y2), f32s(dims(1, 1, 2, 1), 0, math.Log(3)), f32s(dims(1, 1, 2, 1), 4, 8)}},
	})

	mod := func(op, c string, value float64) *onnx.Graph {
		return &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, "B", "H", "L", "S")}, Outputs: outputs("y"),
			Initializers: []*onnx.Tensor{named(f32s(dims(), value), c)}, Nodes: []*onnx.Node{node(op, names("x", c), names("y"))}}
	}
	flex := func(name string, attrs ...*onnx.Attribute) opCase {
		return opCase{op: "FlexAttention", name: "FlexAttention " + name, domain: "ai.onnx.preview", opset: 1, attrs: append(attrs, scale), in: []*onnx.Tensor{q, k, v}}
	}
	plain := flex("plain")
	plain.want = []*onnx.Tensor{f32s(dims(1, 1, 2, 1), y1, y2)}
	runCases(t, []opCase{plain})
	halved := flex("probabilities", aGraph("prob_mod", mod("Mul", "half", 0.5)))
	halved.want = []*onnx.Tensor{f32s(dims(1, 1, 2, 1), y1/2, y2/2)}
	doubled := flex("scores of shared keys", aGraph("score_mod", mod("Mul", "two", 2)))
	doubled.in = []*onnx.Tensor{f32s(dims(1, 2, 1, 1), 0.5, 1), k, v}
	doubled.want = []*onnx.Tensor{f32s(dims(1, 2, 1, 1), y1, y2)}
	for _, c := range []opCase{halved, doubled} {
		t.Run(c.name, func(t *testing.T) {
			m, feeds := c.model()
			m.Opsets = append(m.Opsets, onnx.Opset{Domain: "", Version: 26})
			_, out := results(t, m, onnx.Options{}, feeds)
			want := numbers(c.want[0].Elem.DType(), c.want[0].Data)
			for i := range want {
				if math.Abs(out[0][i]-want[i]) > 1e-5 {
					t.Fatalf("got %v, want %v", out[0], want)
				}
			}
		})
	}
}

func TestLinearAttention(t *testing.T) {
	one := func(v ...float64) *onnx.Tensor { return f32s(dims(1, int64(len(v)), 1), v...) }
	heads := []*onnx.Attribute{aInt("q_num_heads", 1), aInt("kv_num_heads", 1)}
	rule := func(s string) []*onnx.Attribute {
		return append(heads[:2:2], aStr("update_rule", s), aFloat("scale", 2))
	}
	past := f32s(dims(1, 1, 1, 1), 3)
	runCases(t, []opCase{
		{op: "LinearAttention", opset: 27, attrs: rule("linear"), in: []*onnx.Tensor{one(1, 2), one(3, 4), one(5, 6)}, want: []*onnx.Tensor{one(30, 156), f32s(dims(1, 1, 1, 1), 39)}},
		{op: "LinearAttention", name: "gated", opset: 27, attrs: append(rule("gated"), aInt("chunk_size", 8)), in: []*onnx.Tensor{one(1), one(1), one(5), past, one(math.Log(2))}, want: []*onnx.Tensor{one(22), f32s(dims(1, 1, 1, 1), 11)}},
		{op: "LinearAttention", name: "delta", opset: 27, attrs: rule("delta"), in: []*onnx.Tensor{one(1), one(2), one(5), past, nil, one(0.5)}, want: []*onnx.Tensor{one(4), f32s(dims(1, 1, 1, 1), 2)}},
		{op: "LinearAttention", name: "gated delta with erase gate", opset: 27, attrs: heads, in: []*onnx.Tensor{one(1), one(2), one(5), past, one(0), one(0.5), one(0.5)}, want: []*onnx.Tensor{one(5), f32s(dims(1, 1, 1, 1), 5)}},
	})
}

func TestRotaryEmbedding(t *testing.T) {
	// A quarter turn for position 1, none for position 0.
	cos, sin := f32s(dims(2, 1), 1, 0), f32s(dims(2, 1), 0, 1)
	x := f32s(dims(1, 1, 2, 2), 1, 2, 3, 4)
	at := i64s(dims(1, 2), 0, 1)
	four := f32s(dims(1, 1, 4), 1, 2, 3, 4)
	quarter := f32s(dims(1, 1, 2), 0, 0)
	ones := f32s(dims(1, 1, 2), 1, 1)
	runCases(t, []opCase{
		{op: "RotaryEmbedding", opset: 23, in: []*onnx.Tensor{x, cos, sin, at}, want: []*onnx.Tensor{f32s(dims(1, 1, 2, 2), 1, 2, -4, 3)}},
		{op: "RotaryEmbedding", name: "by halves", opset: 23, attrs: []*onnx.Attribute{aInt("num_heads", 1)}, in: []*onnx.Tensor{four, quarter, ones}, want: []*onnx.Tensor{f32s(dims(1, 1, 4), -3, -4, 1, 2)}},
		{op: "RotaryEmbedding", name: "interleaved", opset: 23, attrs: []*onnx.Attribute{aInt("num_heads", 1), aInt("interleaved", 1)}, in: []*onnx.Tensor{four, quarter, ones}, want: []*onnx.Tensor{f32s(dims(1, 1, 4), -2, 1, -4, 3)}},
		{op: "RotaryEmbedding", name: "a part", opset: 23, attrs: []*onnx.Attribute{aInt("num_heads", 1), aInt("rotary_embedding_dim", 2), aInt("interleaved", 1)},
			in: []*onnx.Tensor{four, f32s(dims(1, 1, 1), 0), f32s(dims(1, 1, 1), 1)}, want: []*onnx.Tensor{f32s(dims(1, 1, 4), -2, 1, 3, 4)}},
	})
}

func TestRMSNormalization(t *testing.T) {
	x := f32s(dims(1, 2), 3, 4)
	r := math.Sqrt(12.5)
	runCases(t, []opCase{
		{op: "RMSNormalization", opset: 23, attrs: []*onnx.Attribute{aFloat("epsilon", 0)}, in: []*onnx.Tensor{x, list32(1, 2)}, want: []*onnx.Tensor{f32s(dims(1, 2), 3/r, 8/r)}},
		{op: "RMSNormalization", name: "other type of scale", opset: 23, attrs: []*onnx.Attribute{aInt("axis", 0), aInt("stash_type", 1)}, in: []*onnx.Tensor{tensor(onnx.Float16, dims(2), 3, 4), list32(1)}, want: []*onnx.Tensor{list32(3/r, 4/r)}},
	})
}

func TestLosses(t *testing.T) {
	x := f32s(dims(2, 3), -1, -2, -3, -4, -5, -6)
	target, w := i64s(dims(2), 2, 0), list32(10, 20, 30)
	reduction := func(s string) *onnx.Attribute { return aStr("reduction", s) }
	space := f32s(dims(1, 2, 2), -1, -2, -3, -4)
	log := func(n float64) float64 { return math.Log(n) }
	flat := f32s(dims(1, 2), 0, log(3))
	runCases(t, []opCase{
		{op: "NegativeLogLikelihoodLoss", opset: 12, attrs: []*onnx.Attribute{reduction("none")}, in: []*onnx.Tensor{x, target}, want: []*onnx.Tensor{list32(3, 4)}},
		{op: "NegativeLogLikelihoodLoss", opset: 13, attrs: []*onnx.Attribute{reduction("sum")}, in: []*onnx.Tensor{x, target, w}, want: []*onnx.Tensor{f32s(dims(), 130)}},
		{op: "NegativeLogLikelihoodLoss", opset: 22, in: []*onnx.Tensor{x, target, w}, want: []*onnx.Tensor{f32s(dims(), 130./40)}},
		{op: "NegativeLogLikelihoodLoss", name: "mean without weights", opset: 22, in: []*onnx.Tensor{x, target}, want: []*onnx.Tensor{f32s(dims(), 3.5)}},
		{op: "NegativeLogLikelihoodLoss", name: "ignored", opset: 13, attrs: []*onnx.Attribute{aInt("ignore_index", -9)}, in: []*onnx.Tensor{x, i64s(dims(2), -9, 1)}, want: []*onnx.Tensor{f32s(dims(), 5)}},
		{op: "NegativeLogLikelihoodLoss", name: "ignored with weights", opset: 13, attrs: []*onnx.Attribute{aInt("ignore_index", 7), reduction("none")}, in: []*onnx.Tensor{x, i64s(dims(2), 7, 1), w}, want: []*onnx.Tensor{list32(0, 100)}},
		{op: "NegativeLogLikelihoodLoss", name: "places", opset: 13, attrs: []*onnx.Attribute{reduction("none")}, in: []*onnx.Tensor{space, tensor(onnx.Int32, dims(1, 2), 0, 1)}, want: []*onnx.Tensor{f32s(dims(1, 2), 1, 4)}},
		{op: "SoftmaxCrossEntropyLoss", opset: 12, in: []*onnx.Tensor{flat, i64s(dims(1), 1)}, want: []*onnx.Tensor{f32s(dims(), log(4./3))}},
		{op: "SoftmaxCrossEntropyLoss", opset: 13, attrs: []*onnx.Attribute{reduction("none")}, in: []*onnx.Tensor{flat, i64s(dims(1), 0), list32(2, 1)}, want: []*onnx.Tensor{list32(2 * log(4)), f32s(dims(1, 2), -log(4), log(3./4))}},
	})
}
