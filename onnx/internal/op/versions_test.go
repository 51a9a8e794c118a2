package op

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

// TestOldVersions checks forms that later versions changed and of which ONNX
// has no test.
func TestOldVersions(t *testing.T) {
	x := f32s(dims(1, 1, 4, 4), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	kernel := aInts("kernel_shape", 2, 2)
	runCases(t, []opCase{
		{op: "MaxPool", name: "MaxPool-11 dilated", opset: 11, attrs: []*onnx.Attribute{kernel, aInts("dilations", 2, 2)}, in: []*onnx.Tensor{x},
			want: []*onnx.Tensor{f32s(dims(1, 1, 2, 2), 11, 12, 15, 16), i64s(dims(1, 1, 2, 2), 10, 11, 14, 15)}},
		{op: "MaxPool", name: "MaxPool-11 rounded up", opset: 11, attrs: []*onnx.Attribute{aInts("kernel_shape", 3, 3), aInts("strides", 2, 2), aInt("ceil_mode", 1)}, in: []*onnx.Tensor{x},
			want: []*onnx.Tensor{f32s(dims(1, 1, 2, 2), 11, 12, 15, 16), i64s(dims(1, 1, 2, 2), 10, 11, 14, 15)}},
		{op: "Tile", name: "Tile-1 with floats", opset: 1, fixed: []int{1, 2}, in: []*onnx.Tensor{f32s(dims(2, 1), 1, 2), list32(3), list32(0)}, want: []*onnx.Tensor{f32s(dims(6, 1), 1, 2, 1, 2, 1, 2)}},
		{op: "Dropout", name: "Dropout-6 in training", opset: 6, in: []*onnx.Tensor{list32(1, 2)}, want: []*onnx.Tensor{list32(1, 2), list32(1, 1)}},
		{op: "BatchNormalization", opset: 9, attrs: []*onnx.Attribute{aFloat("epsilon", 0), aFloat("momentum", 0.5)}, in: []*onnx.Tensor{f32s(dims(1, 2), 3, 5), list32(1, 2), list32(0, 1), list32(1, 1), list32(4, 16)},
			want: []*onnx.Tensor{f32s(dims(1, 2), 1, 3)}},
		{op: "Gemm", name: "Gemm-6 broadcast", opset: 6, attrs: []*onnx.Attribute{aInt("broadcast", 1), aInt("transB", 1)}, in: []*onnx.Tensor{f32s(dims(1, 2), 1, 2), f32s(dims(2, 2), 1, 0, 0, 1), list32(10, 20)},
			want: []*onnx.Tensor{f32s(dims(1, 2), 11, 22)}},
		{op: "Clip", name: "Clip-6 one limit", opset: 6, attrs: []*onnx.Attribute{aFloat("max", 1)}, in: []*onnx.Tensor{list32(-3, 3)}, want: []*onnx.Tensor{list32(-3, 1)}},
		{op: "Cast", name: "Cast-1 by name", opset: 1, attrs: []*onnx.Attribute{aStr("to", "INT32")}, in: []*onnx.Tensor{list32(-1.5, 2.5)}, want: []*onnx.Tensor{tensor(onnx.Int32, dims(2), -1, 2)}},
		{op: "TopK", opset: 1, attrs: []*onnx.Attribute{aInt("k", 1), aInt("axis", 0)}, in: []*onnx.Tensor{list32(1, 3, 2)}, want: []*onnx.Tensor{list32(3), list1(1)}},
		{op: "ArgMax", opset: 1, attrs: []*onnx.Attribute{aInt("axis", 1), aInt("keepdims", 0)}, in: []*onnx.Tensor{f32s(dims(1, 3), 1, 3, 2)}, want: []*onnx.Tensor{list1(1)}},
		{op: "Reshape", name: "Reshape-1 copies", opset: 1, attrs: []*onnx.Attribute{aInts("shape", 0, -1, 1)}, in: []*onnx.Tensor{f32s(dims(1, 2), 1, 2)}, want: []*onnx.Tensor{f32s(dims(1, 2, 1), 1, 2)}},
	})

	// What came later is refused.
	for name, c := range map[string]opCase{
		"want the shape of operand 0":         {op: "Max", opset: 6, in: []*onnx.Tensor{list32(1, 2), list32(1)}},
		`has no attribute "broadcast"`:        {op: "Add", opset: 7, attrs: []*onnx.Attribute{aInt("broadcast", 1)}, in: []*onnx.Tensor{list32(1), list32(1)}},
		"takes at most 1":                     {op: "Squeeze", opset: 11, fixed: []int{1}, in: []*onnx.Tensor{f32s(dims(1, 2), 1, 2), list1(0)}},
		`has no attribute "axes"`:             {op: "Unsqueeze", opset: 13, attrs: []*onnx.Attribute{aInts("axes", 0)}, fixed: []int{1}, in: []*onnx.Tensor{list32(1), list1(0)}},
		`attribute "to" is of type int`:       {op: "Cast", opset: 5, attrs: []*onnx.Attribute{aInt("to", 6)}, in: []*onnx.Tensor{list32(1)}},
		`attribute "to" is of type string`:    {op: "Cast", opset: 6, attrs: []*onnx.Attribute{aStr("to", "INT32")}, in: []*onnx.Tensor{list32(1)}},
		"operator Gelu of operator set 19":    {op: "Gelu", opset: 19, in: []*onnx.Tensor{list32(1)}},
		"(ONNX dropped it in 10)":             {op: "Upsample", opset: 10, in: []*onnx.Tensor{x, list32(1, 1, 2, 2)}},
		`attribute "num_groups" is missing`:   {op: "GroupNormalization", opset: 21, in: []*onnx.Tensor{x, list32(1), list32(1)}},
		`attribute "kernel_shape" is missing`: {op: "MaxPool", opset: 11, in: []*onnx.Tensor{x}},
	} {
		c.want = []*onnx.Tensor{{}}
		m, _ := c.model()
		_, err := Lower(m, onnx.Options{})
		require.ErrorContains(t, err, name)
	}
}

// TestIf1 has both branches of an If of operator set 1, with a condition that
// is fed and with one that is known.
func TestIf1(t *testing.T) {
	m := model(1, &onnx.Graph{
		Inputs: []onnx.ValueInfo{info("cond", onnx.Bool, 1), info("x", onnx.Float, 2)},
		Nodes: []*onnx.Node{node("If", names("cond"), names("y"),
			aGraph("then_branch", &onnx.Graph{Nodes: []*onnx.Node{node("Neg", names("x"), names("r"))}, Outputs: outputs("r")}),
			aGraph("else_branch", &onnx.Graph{Nodes: []*onnx.Node{node("Add", names("x", "x"), names("r"))}, Outputs: outputs("r")}))},
		Outputs: outputs("y"),
	})
	for cond, want := range [][]float64{{2, 4}, {-1, -2}} {
		t.Run(fmt.Sprint(cond), func(t *testing.T) {
			feeds := map[string][]byte{"cond": {byte(cond)}, "x": list32(1, 2).Data}
			low, out := results(t, m, onnx.Options{}, feeds)
			require.Equal(t, want, out[0])
			require.Equal(t, []string{"If"}, kinds(low))
			low, out = results(t, m, onnx.Options{Values: map[string]*onnx.Tensor{"cond": bools(dims(1), float64(cond))}}, feeds)
			require.Equal(t, want, out[0])
			require.NotContains(t, kinds(low), "If")
		})
	}
}
