package cpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestFLOPs(t *testing.T) {
	lstm := func(direction string, batchFirst bool) *graph.LSTM {
		n := 3
		if direction == "bidirectional" {
			n = 6
		}
		return &graph.LSTM{Hidden: 5, Direction: direction, BatchFirst: batchFirst,
			Activations: []string{"Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Tanh"}[:n], ActAlpha: make([]float64, n), ActBeta: make([]float64, n)}
	}
	one := []int64{1, 1}
	for _, c := range []struct {
		name string
		op   graph.Op
		in   []graph.TensorType
		want float64
	}{
		{"matrix product", &graph.MatMul{}, []graph.TensorType{f32(3, 5), f32(5, 7)}, 2 * 3 * 5 * 7},
		{"batch of products", &graph.MatMul{}, []graph.TensorType{f32(2, 3, 5), f32(5, 7)}, 2 * 2 * 3 * 5 * 7},
		{"inner product", &graph.MatMul{}, []graph.TensorType{f32(9), f32(9)}, 2 * 9},
		{"gemm", &graph.Gemm{Alpha: 1}, []graph.TensorType{f32(3, 5), f32(5, 7)}, 2 * 3 * 5 * 7},
		{"gemm of transposed", &graph.Gemm{Alpha: 1, TransA: true, TransB: true}, []graph.TensorType{f32(5, 3), f32(7, 5)}, 2 * 3 * 5 * 7},
		{"convolution", &graph.Conv{Strides: one, Dilations: one, PadsBegin: one, PadsEnd: one, Group: 1},
			[]graph.TensorType{f32(1, 4, 8, 8), f32(6, 4, 3, 3)}, 2 * 6 * 8 * 8 * 4 * 9},
		{"depthwise convolution", &graph.Conv{Strides: one, Dilations: one, PadsBegin: one, PadsEnd: one, Group: 4},
			[]graph.TensorType{f32(1, 4, 8, 8), f32(4, 1, 3, 3)}, 2 * 4 * 8 * 8 * 9},
		{"transposed convolution", &graph.ConvTranspose{Strides: []int64{2, 2}, Dilations: one, PadsBegin: []int64{0, 0}, Output: []int64{8, 8}, Group: 1},
			[]graph.TensorType{f32(1, 4, 4, 4), f32(4, 6, 2, 2)}, 2 * 4 * 4 * 4 * 6 * 4},
		{"gradient of weights", &graph.ConvWeightGradient{Kernel: []int64{3, 3}, Strides: one, Dilations: one, PadsBegin: one, Group: 2},
			[]graph.TensorType{f32(5, 4, 8, 8), f32(5, 6, 8, 8)}, 2 * 6 * 2 * 9 * 5 * 8 * 8},
		{"lstm", lstm("forward", false), []graph.TensorType{f32(7, 2, 3), f32(1, 20, 3), f32(1, 20, 5)}, 2 * 7 * 2 * (20*3 + 20*5)},
		{"lstm both ways", lstm("bidirectional", true), []graph.TensorType{f32(2, 7, 3), f32(2, 20, 3), f32(2, 20, 5)}, 2 * 7 * 2 * 2 * (20*3 + 20*5)},
		{"gradient of a recurrence", &graph.RecurrentGradient{Cell: "lstm", Hidden: 5, Direction: "forward"},
			[]graph.TensorType{f32(7, 2, 3), f32(1, 20, 3), f32(1, 20, 5), {}, {}, {}, {}, f32(7, 1, 2, 5)}, 3 * 2 * 7 * 2 * (20*3 + 20*5)},
		{"attention", &graph.Attention{Heads: 2, KVHeads: 2, Scale: 1, Scores: graph.ScoresRaw},
			[]graph.TensorType{f32(1, 2, 3, 8), f32(1, 2, 5, 8), f32(1, 2, 5, 8)}, 2 * 2 * (2 * 3 * 5 * 8)},
		{"attention over flat heads", &graph.Attention{Heads: 2, KVHeads: 2, Scale: 1, Scores: graph.ScoresRaw},
			[]graph.TensorType{f32(1, 3, 16), f32(1, 5, 16), f32(1, 5, 16)}, 2 * 2 * (2 * 3 * 5 * 8)},
		{"attention of heads in one tensor", &graph.ViewedAttention{Heads: []int64{2}, Rows: 3, Cols: 3, Size: 8, Width: 8, Q: []int64{0, 8, 48, 1},
			K: []int64{16, 8, 48, 1}, V: []int64{32, 8, 48, 1}, Y: []int64{0, 8, 16, 1}, Shape: []int64{3, 16}},
			[]graph.TensorType{f32(3, 48), f32(3, 48), f32(3, 48)}, 2 * 2 * (2 * 3 * 3 * 8)},
		{"gradient of attention", &graph.AttentionGradient{Heads: 2, KVHeads: 2, Scale: 1, Scores: graph.ScoresRaw},
			[]graph.TensorType{f32(1, 2, 3, 8), f32(1, 2, 5, 8), f32(1, 2, 5, 4), {}, {}, f32(1, 2, 3, 4)}, 2 * 2 * 3 * 5 * (3*8 + 2*4)},
		{"linear attention", &graph.LinearAttention{Heads: 2, KVHeads: 2, Scale: 1},
			[]graph.TensorType{f32(1, 3, 16), f32(1, 3, 16), f32(1, 3, 8)}, 2 * 2 * (3 * 2 * 8 * 4)},
		{"elementwise", &graph.Unary{Fn: graph.Relu}, []graph.TensorType{f32(9)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := c.op.Infer(c.in)
			require.NoError(t, err)
			require.Equal(t, c.want, FLOPs(c.op, c.in, out))
		})
	}
}

// TestProfileCost wants the work of every step of a run, whether weights are
// packed or not.
func TestProfileCost(t *testing.T) {
	type step struct {
		name, function string
		calls          int64
		flops          float64
		bytes          int64
	}
	e := newLoaded(t, twoLayers(t), opt("prepack", "off")...)
	connect(t, e, map[string]ipu.Stream{"x": in(t, xValues), "y": out(t, make([]float32, 4))})
	e.EnableProfile(true)
	run(t, e, 1)
	run(t, e, 1)
	var got []step
	for _, n := range e.Profile() {
		require.Greater(t, n.Total, time.Duration(0), n.Name)
		got = append(got, step{n.Name, n.Function, n.Calls, n.FLOPs, n.Bytes})
	}
	require.Equal(t, []step{
		{"x", "", 2, 0, 0}, // the host's memory is used in place
		{"mm1", "", 2, 2 * 2 * 3 * 4, 4 * (6 + 12 + 8)},
		{"add", "add", 2, 0, 4 * (8 + 4 + 8)},
		{"relu", "relu", 2, 0, 4 * (8 + 8)},
		{"mm2", "", 2, 2 * 2 * 4 * 2, 4 * (8 + 8 + 4)},
		{"y", "", 2, 0, 0},
	}, got)

	e = newLoaded(t, twoLayers(t), opt("prepack", "off", "alias", "off")...)
	connect(t, e, map[string]ipu.Stream{"x": in(t, xValues), "y": out(t, make([]float32, 4))})
	e.EnableProfile(true)
	run(t, e, 1)
	p := e.Profile()
	require.Equal(t, int64(2*4*6), p[0].Bytes)
	require.Equal(t, int64(2*4*4), p[len(p)-1].Bytes)
}

// TestCostOfSelection wants the bytes of the chosen rows alone, and those of a
// recurrence's weights as often as they are needed.
func TestCostOfSelection(t *testing.T) {
	b := graph.NewBuilder("rows")
	table := b.AddConst("table", f32(1000, 8), make([]byte, 4*8000))
	i := b.AddLocal("i", graph.TensorType{DType: graph.I32, Shape: []int64{3}})
	g := b.BeginGraph("main")
	y := node(t, b, &graph.Gather{}, "gather", table, i)
	b.AddProgram(1, "main", b.CopyIn("i", i), b.Call(g), b.CopyOut("y", y))
	e := newLoaded(t, b)
	connect(t, e, map[string]ipu.Stream{"i": in(t, make([]float32, 3)), "y": out(t, make([]float32, 24))})
	e.EnableProfile(true)
	run(t, e, 1)
	for _, n := range e.Profile() {
		if n.Op == "Gather" {
			require.Equal(t, int64(4*(24+3+24)), n.Bytes)
		}
	}
	lstm := []graph.TensorType{f32(7, 2, 3), f32(1, 20, 3), f32(1, 20, 5)}
	require.Equal(t, int64(7), reads(&graph.LSTM{}, lstm, 2))
	require.Equal(t, int64(2), reads(&graph.LSTM{BatchFirst: true}, lstm, 2))
	require.Equal(t, int64(1), reads(&graph.LSTM{}, lstm, 1))
}
