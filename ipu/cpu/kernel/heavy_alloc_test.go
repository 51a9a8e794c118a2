package kernel

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/stretchr/testify/require"
)

// TestHeavyRunsAllocateNothing runs every kernel of matrices, convolutions,
// pools, norms and recurrences with a pool that cuts the work.
func TestHeavyRunsAllocateNothing(t *testing.T) { eachPath(t, heavyRunsAllocateNothing) }

func heavyRunsAllocateNothing(t *testing.T) {
	for _, d := range []graph.DType{graph.F32, graph.F64, graph.F16} {
		for _, c := range heavyCases(d) {
			out, err := c.op.Infer(c.in)
			require.NoError(t, err)
			k, err := New(c.op, c.in, out)
			require.NoError(t, err)
			s := &source{r: seeded(1)}
			var data, results [][]byte
			for _, tt := range c.in {
				data = append(data, s.tensor(tt))
			}
			for _, tt := range out {
				results = append(results, aligned(elements(tt.Shape)*tt.DType.Size()))
			}
			scratch := aligned(k.Scratch())
			for _, p := range []Pool{Serial{}, inTurn(4)} {
				n := testing.AllocsPerRun(2, func() {
					if err := k.Run(p, data, results, scratch); err != nil {
						t.Fatal(err)
					}
				})
				require.Zero(t, n, "%s of %v with %d workers", c.op.Kind(), c.in, p.Workers())
			}
		}
	}
}

func heavyCases(d graph.DType) []heavyCase {
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	ones, zeros := []int64{1, 1}, []int64{0, 0}
	return []heavyCase{
		{&graph.MatMul{}, []graph.TensorType{of(3, 40, 50), of(3, 50, 60)}},
		{&graph.MatMul{}, []graph.TensorType{of(50), of(50, 60)}},
		{&graph.Gemm{Alpha: 1, Beta: 1, TransB: true}, []graph.TensorType{of(40, 50), of(60, 50), of(60)}},
		{&graph.Gemm{Alpha: 1, Bounded: d != graph.F64}, []graph.TensorType{of(40, 50), of(50, 60)}},
		{&graph.Gemm{Alpha: 1, Beta: 1, TransB: true}, []graph.TensorType{of(1, 50), of(60, 50), of(60)}},
		{&graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1},
			[]graph.TensorType{of(1, 8, 12, 12), of(16, 8, 3, 3), of(16)}},
		{&graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 8},
			[]graph.TensorType{of(1, 8, 12, 12), of(8, 1, 3, 3)}},
		{&graph.MaxPool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: ones},
			[]graph.TensorType{of(1, 8, 12, 12)}},
		{&graph.AveragePool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: ones},
			[]graph.TensorType{of(1, 8, 12, 12)}},
		{&graph.BatchNorm{Epsilon: 1e-5}, []graph.TensorType{of(2, 8, 50), of(8), of(8), of(8), of(8)}},
		{&graph.Softmax{Axis: 2}, []graph.TensorType{of(2, 8, 50)}},
		{&graph.Softmax{Axis: 1, Log: true}, []graph.TensorType{of(2, 8, 50)}},
		{&graph.LayerNorm{Axis: 2, Epsilon: 1e-5}, []graph.TensorType{of(2, 8, 50), of(50), of(50)}},
		{&graph.RMSNorm{Axis: 2, Epsilon: 1e-5}, []graph.TensorType{of(2, 8, 50), of(50)}},
		{&graph.Attention{Heads: 4, KVHeads: 2, Scale: 0.2, Softcap: 3, Causal: true, Scores: graph.ScoresBiased},
			[]graph.TensorType{of(2, 40, 4*16), of(2, 2, 50, 16), of(2, 2, 50, 8), of(50)}},
		{&graph.LinearAttention{Heads: 4, KVHeads: 2, Scale: 0.2, Gated: true, Delta: true},
			[]graph.TensorType{of(2, 9, 4*16), of(2, 9, 2*16), of(2, 9, 2*8), of(2, 2, 16, 8), of(2, 9, 2), of(2, 9, 2)}},
		{&graph.DFT{Axis: 1, Length: 74, OneSided: true}, []graph.TensorType{of(8, 64, 2)}},
		{&graph.GRU{Hidden: 40, Direction: "reverse", Activations: []string{"Sigmoid", "Tanh"}, ActAlpha: make([]float64, 2), ActBeta: make([]float64, 2)},
			[]graph.TensorType{of(7, 2, 30), of(1, 120, 30), of(1, 120, 40)}},
		heavyLSTM(d),
	}
}
