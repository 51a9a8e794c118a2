package graph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func init() {
	attention := &Attention{Heads: 6, KVHeads: 2, Scores: ScoresRaw}
	type types = []TensorType
	familyCases = append(familyCases,
		inferCase{"attention", attention, types{f32(2, 6, 4, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 3)}, types{f32(2, 6, 4, 3), f32(2, 6, 4, 5)}},
		inferCase{"attention, heads in the last axis", attention, types{f32(2, 4, 48), f32(2, 5, 16), f32(2, 2, 5, 3), typ(Bool, 4, 5), typ(I64, 2)},
			types{f32(2, 4, 18), f32(2, 6, 4, 5)}},
		inferCase{"gradient of attention", &AttentionGradient{Heads: 6, KVHeads: 2, Scores: ScoresRaw}, types{f32(2, 4, 48), f32(2, 5, 16), f32(2, 2, 5, 3), none, typ(I64, 2), f32(2, 4, 18)},
			types{f32(2, 4, 48), f32(2, 5, 16), f32(2, 2, 5, 3)}},
		inferCase{"viewed attention", viewedAttention(nil), types{f32(2, 5, 3, 3, 4), f32(2, 5, 3, 3, 4), f32(2, 5, 3, 3, 4), f32(5)}, types{f32(2, 5, 12)}},
		inferCase{"linear attention", &LinearAttention{Heads: 4, KVHeads: 2, Gated: true, Delta: true},
			types{typ(F16, 2, 5, 12), typ(F16, 2, 5, 6), typ(F16, 2, 5, 8), f32(2, 2, 3, 4), typ(F16, 2, 5, 6), typ(F16, 2, 5, 1)},
			types{typ(F16, 2, 5, 16), f32(2, 2, 3, 4)}},
		inferCase{"rms norm", &RMSNorm{Axis: 1}, types{f32(2, 3), f32(3)}, types{f32(2, 3)}},
		inferCase{"dft", &DFT{Axis: 1, Length: 9, OneSided: true}, types{f32(2, 7, 1)}, types{f32(2, 5, 2)}},
		inferCase{"dft back", &DFT{Axis: 0, Length: 8, Inverse: true}, types{f32(2, 7, 2)}, types{f32(8, 7, 2)}},
		inferCase{"dft back to real numbers", &DFT{Axis: 0, Length: 8, Inverse: true, OneSided: true}, types{f32(5, 2)}, types{f32(8, 1)}},
		inferCase{"gelu", &Unary{Fn: Gelu}, types{typ(BF16, 3)}, types{typ(BF16, 3)}},
		inferCase{"prelu", &Binary{Fn: PRelu}, types{typ(I32, 2, 3), typ(I32, 1)}, types{typ(I32, 2, 3)}},
	)
}

func TestAttentionGradientRefuses(t *testing.T) {
	o := &AttentionGradient{Heads: 6, KVHeads: 2, Scores: ScoresRaw}
	q, k, v := f32(2, 6, 4, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 3)
	for want, in := range map[string][]TensorType{
		"5 operands, want 6":                            {q, k, v, none, none},
		"dY is f32[2,6,4,8], want shape [2,6,4,3]":      {q, k, v, none, none, q},
		"dY is f16[2,6,4,3], want elements of type f32": {q, k, v, none, none, typ(F16, 2, 6, 4, 3)},
		"want one batch size":                           {q, f32(1, 2, 5, 8), v, none, none, q},
	} {
		_, err := o.Infer(in)
		require.ErrorContains(t, err, want)
	}
}

// viewedAttention is attention of 3 heads of 4 elements each for 2 sequences of
// 5, which lie in one tensor, as change makes it.
func viewedAttention(change func(o *ViewedAttention)) *ViewedAttention {
	o := &ViewedAttention{Heads: []int64{2, 3}, Rows: 5, Cols: 5, Size: 4, Width: 4, Q: []int64{0, 180, 4, 36, 1}, K: []int64{12, 180, 4, 36, 1},
		V: []int64{24, 180, 4, 36, 1}, Bias: []int64{0, 0, 0, 0, 1}, Y: []int64{0, 60, 4, 12, 1}, Shape: []int64{2, 5, 12}, Scale: 0.5}
	if change != nil {
		change(o)
	}
	return o
}

func TestInferViewedAttentionErrors(t *testing.T) {
	x, b := f32(2, 5, 3, 3, 4), f32(5)
	type types = []TensorType
	for _, tt := range []struct {
		change func(o *ViewedAttention)
		in     types
		want   string
	}{
		{nil, types{typ(F16, 360), x, x, b}, "Q is f16[360], want elements of type f32 or f64"},
		{nil, types{x, x, x, typ(Bool, 5)}, "bias is bool[5]"},
		{nil, types{x, x, x}, "attribute Bias has 5 numbers, want none without a bias"},
		{nil, types{x, x, f32(359), b}, "attribute V reaches element 359 of f32[359]"},
		{func(o *ViewedAttention) { o.Rows = 0 }, nil, "a size of heads is 0"},
		{func(o *ViewedAttention) { o.Heads = []int64{1 << 20, 1 << 20} }, nil, "2 axes of heads with"},
		{func(o *ViewedAttention) { o.Past = -1 }, nil, "attribute Past is -1"},
		{func(o *ViewedAttention) { o.K = o.K[1:] }, nil, "attribute K has 4 numbers, want 5"},
		{func(o *ViewedAttention) { o.K = []int64{0, 0, -1, 0, 0} }, nil, "attribute K is [0 0 -1 0 0], want numbers of 0 or more"},
		{func(o *ViewedAttention) { o.V = []int64{0, 0, 0, 1, 5} }, nil, "neighbours across V and Y are 5 and 1 elements away"},
		{func(o *ViewedAttention) { o.Y = []int64{0, 60, 4, 0, 1} }, nil, "which leaves out elements of f32[2,5,12]"},
		{func(o *ViewedAttention) { o.Shape = []int64{121} }, nil, "which leaves out elements of f32[121]"},
		{func(o *ViewedAttention) { o.Shape = []int64{-1} }, nil, "attribute Shape"},
	} {
		in := tt.in
		if in == nil {
			in = types{x, x, x, b}
		}
		_, err := viewedAttention(tt.change).Infer(in)
		require.ErrorContains(t, err, tt.want)
	}
}

func TestInferAttentionErrors(t *testing.T) {
	a := func(heads, kv int64) *Attention { return &Attention{Heads: heads, KVHeads: kv, Scores: ScoresRaw} }
	x := f32(2, 4, 5, 8)
	linear := &LinearAttention{Heads: 2, KVHeads: 1}
	row := func(n int64) TensorType { return f32(2, 5, n) }
	type types = []TensorType
	tests := []struct {
		name string
		op   Op
		in   types
		want string
	}{
		{"heads", a(3, 2), types{x, x, x}, "Heads and KVHeads are 3 and 2"},
		{"no heads", a(0, 0), types{x, x, x}, "Heads and KVHeads are 0 and 0"},
		{"heads of Q", a(6, 2), types{x, f32(2, 2, 5, 8), f32(2, 2, 5, 8)}, "Q is f32[2,4,5,8], want [batch,6,sequence,size]"},
		{"sizes", a(4, 4), types{x, f32(2, 4, 5, 7), x}, "heads of one size in Q and K"},
		{"bias", a(4, 4), types{x, x, x, f32(3, 5, 5)}, "bias is f32[3,5,5], want a shape that broadcasts to [2,4,5,5]"},
		{"bias type", a(4, 4), types{x, x, x, typ(I32, 5)}, "bias is i32[5], want elements of type bool or f32"},
		{"lengths", a(4, 4), types{x, x, x, none, typ(I64, 3)}, "lengths is i64[3], want shape [2]"},
		{"scores", &Attention{Heads: 4, KVHeads: 4}, types{x, x, x}, `attribute Scores is ""`},
		{"past", &Attention{Heads: 4, KVHeads: 4, Past: -1, Scores: ScoresRaw}, types{x, x, x}, "attribute Past is -1"},
		{"softcap", &Attention{Heads: 4, KVHeads: 4, Softcap: -1, Scores: ScoresRaw}, types{x, x, x}, "attribute Softcap is -1"},
		{"decay", linear, types{row(6), row(3), row(4), none, row(3)}, "operands decay, beta and erase are given: true, false, false"},
		{"erase", linear, types{row(6), row(3), row(4), none, none, none, row(3)}, "want the first with Gated"},
		{"state", linear, types{row(6), row(3), row(4), f32(2, 1, 4, 3)}, "past_state is f32[2,1,4,3], want shape [2,1,3,4]"},
		{"key", linear, types{row(6), row(4), row(4)}, "want heads of one size in query and key"},
		{"decay size", &LinearAttention{Heads: 2, KVHeads: 1, Gated: true}, types{row(6), row(3), row(4), none, row(2)}, "want a last dimension of [1 3]"},
		{"dft of a scalar", &DFT{Length: 1}, types{f32(2)}, "at least 2 dimensions"},
		{"dft axis", &DFT{Axis: 1, Length: 1}, types{f32(2, 2)}, "another axis than that"},
		{"dft length", &DFT{Length: MaxDFT + 1}, types{f32(2, 2)}, "attribute Length is 16777217"},
		{"rms scale", &RMSNorm{}, types{f32(2, 2), f32(3)}, "scale is f32[3]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.op.Infer(tt.in)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
