package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestHeavyRunsAllocateNothing runs every kernel of matrices, convolutions,
// pools, norms and recurrences with a pool that cuts the work.
func TestHeavyRunsAllocateNothing(t *testing.T) { kerneltest.EachPath(t, heavyRunsAllocateNothing) }

func heavyRunsAllocateNothing(t *testing.T) {
	for _, d := range []graph.DType{graph.F32, graph.F64, graph.F16} {
		for _, c := range heavyCases(d) {
			out, err := c.Op.Infer(c.In)
			require.NoError(t, err)
			k, err := New(c.Op, c.In, out)
			require.NoError(t, err)
			s := &kerneltest.Source{R: kerneltest.Seeded(1)}
			var data, results [][]byte
			for _, tt := range c.In {
				data = append(data, s.Tensor(tt))
			}
			for _, tt := range out {
				results = append(results, kerneltest.Aligned(tensor.Elements(tt.Shape)*tt.DType.Size()))
			}
			scratch := kerneltest.Aligned(k.Scratch())
			for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.InTurn(4)} {
				n := testing.AllocsPerRun(2, func() {
					if err := k.Run(p, data, results, scratch); err != nil {
						t.Fatal(err)
					}
				})
				require.Zero(t, n, "%s of %v with %d workers", c.Op.Kind(), c.In, p.Workers())
			}
		}
	}
}

func heavyCases(d graph.DType) []kerneltest.HeavyCase {
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	ones, zeros := []int64{1, 1}, []int64{0, 0}
	return []kerneltest.HeavyCase{
		{Op: &graph.MatMul{}, In: []graph.TensorType{of(3, 40, 50), of(3, 50, 60)}},
		{Op: &graph.MatMul{}, In: []graph.TensorType{of(50), of(50, 60)}},
		{Op: &graph.Gemm{Alpha: 1, Beta: 1, TransB: true}, In: []graph.TensorType{of(40, 50), of(60, 50), of(60)}},
		{Op: &graph.Gemm{Alpha: 1, Bounded: d != graph.F64}, In: []graph.TensorType{of(40, 50), of(50, 60)}},
		{Op: &graph.Gemm{Alpha: 1, Beta: 1, TransB: true}, In: []graph.TensorType{of(1, 50), of(60, 50), of(60)}},
		{Op: &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1},
			In: []graph.TensorType{of(1, 8, 12, 12), of(16, 8, 3, 3), of(16)}},
		{Op: &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 8},
			In: []graph.TensorType{of(1, 8, 12, 12), of(8, 1, 3, 3)}},
		{Op: &graph.MaxPool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: ones},
			In: []graph.TensorType{of(1, 8, 12, 12)}},
		{Op: &graph.AveragePool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: ones},
			In: []graph.TensorType{of(1, 8, 12, 12)}},
		{Op: &graph.BatchNorm{Epsilon: 1e-5}, In: []graph.TensorType{of(2, 8, 50), of(8), of(8), of(8), of(8)}},
		{Op: &graph.Softmax{Axis: 2}, In: []graph.TensorType{of(2, 8, 50)}},
		{Op: &graph.Softmax{Axis: 1, Log: true}, In: []graph.TensorType{of(2, 8, 50)}},
		{Op: &graph.LayerNorm{Axis: 2, Epsilon: 1e-5}, In: []graph.TensorType{of(2, 8, 50), of(50), of(50)}},
		{Op: &graph.RMSNorm{Axis: 2, Epsilon: 1e-5}, In: []graph.TensorType{of(2, 8, 50), of(50)}},
		{Op: &graph.Attention{Heads: 4, KVHeads: 2, Scale: 0.2, Softcap: 3, Causal: true, Scores: graph.ScoresBiased},
			In: []graph.TensorType{of(2, 40, 4*16), of(2, 2, 50, 16), of(2, 2, 50, 8), of(50)}},
		{Op: &graph.LinearAttention{Heads: 4, KVHeads: 2, Scale: 0.2, Gated: true, Delta: true},
			In: []graph.TensorType{of(2, 9, 4*16), of(2, 9, 2*16), of(2, 9, 2*8), of(2, 2, 16, 8), of(2, 9, 2), of(2, 9, 2)}},
		{Op: &graph.DFT{Axis: 1, Length: 74, OneSided: true}, In: []graph.TensorType{of(8, 64, 2)}},
		{Op: &graph.GRU{Hidden: 40, Direction: "reverse", Activations: []string{"Sigmoid", "Tanh"}, ActAlpha: make([]float64, 2), ActBeta: make([]float64, 2)},
			In: []graph.TensorType{of(7, 2, 30), of(1, 120, 30), of(1, 120, 40)}},
		{Op: &graph.RecurrentGradient{Cell: "gru", Hidden: 40, Direction: "reverse"},
			In: []graph.TensorType{of(7, 2, 30), of(1, 120, 30), of(1, 120, 40), {}, {}, {}, {}, of(7, 1, 2, 40), of(7, 1, 2, 40)}},
		kerneltest.HeavyLSTM(d),
	}
}
