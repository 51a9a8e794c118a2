package recurrent

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// plainReference computes a GRU (gates 3) or an RNN (gates 1) one number at a
// time, from ONNX's equations, in ONNX's layout 0.
func plainReference(gates int, acts []string, alpha, beta []float64, clip float64, linear, reverse bool, h, steps, batch, input int, v [6][]float64, lens []int64) (y, yh []float64) {
	functions := (gates + 1) / 2
	dirs := len(acts) / functions
	y = make([]float64, steps*dirs*batch*h)
	at := func(s []float64, i int) float64 {
		if s == nil {
			return 0
		}
		return s[i]
	}
	for d := range dirs {
		act := func(i int, x float64) float64 {
			if clip > 0 {
				x = math.Min(math.Max(x, -clip), clip)
			}
			return activationReference(acts[functions*d+i], alpha[functions*d+i], beta[functions*d+i], x)
		}
		for b := range batch {
			ht := make([]float64, h)
			for j := range h {
				ht[j] = at(v[recurrentH], (d*batch+b)*h+j)
			}
			n := int(lens[b])
			for s := range n {
				time := s
				if d == 1 || reverse {
					time = n - 1 - s
				}
				fromX := func(g, j int) float64 {
					row := (d*gates+g)*h + j
					sum := at(v[recurrentB], d*2*gates*h+g*h+j)
					for k := range input {
						sum += v[recurrentX][(time*batch+b)*input+k] * v[recurrentW][row*input+k]
					}
					return sum
				}
				bias := func(g, j int) float64 { return at(v[recurrentB], d*2*gates*h+gates*h+g*h+j) }
				fromH := func(g, j int, h0 []float64) float64 {
					sum := 0.0
					for k := range h {
						sum += h0[k] * v[recurrentR][((d*gates+g)*h+j)*h+k]
					}
					return sum
				}
				next, reset, resetH := make([]float64, h), make([]float64, h), make([]float64, h)
				for j := range h {
					if gates == 3 {
						reset[j] = act(0, fromX(1, j)+fromH(1, j, ht)+bias(1, j))
						resetH[j] = reset[j] * ht[j]
					}
				}
				for j := range h {
					if gates == 1 {
						next[j] = act(0, fromX(0, j)+fromH(0, j, ht)+bias(0, j))
						continue
					}
					z := act(0, fromX(0, j)+fromH(0, j, ht)+bias(0, j))
					g := fromX(2, j)
					if linear {
						g += reset[j] * (fromH(2, j, ht) + bias(2, j))
					} else {
						g += fromH(2, j, resetH) + bias(2, j)
					}
					next[j] = (1-z)*act(1, g) + z*ht[j]
				}
				for j := range h {
					y[((time*dirs+d)*batch+b)*h+j] = next[j]
				}
				ht = next
			}
			yh = append(yh, ht...)
		}
	}
	return y, yh
}

func TestGRUAndRNN(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		dtype := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F64, graph.F16}).Draw(t, "type")
		gates := rapid.SampledFrom([]int{1, 3, 3}).Draw(t, "gates")
		functions := (gates + 1) / 2
		h := rapid.SampledFrom([]int{1, 2, 5, 8, 31, 33, 70}).Draw(t, "hidden")
		direction := rapid.SampledFrom([]string{"forward", "reverse", "bidirectional"}).Draw(t, "direction")
		clip := rapid.SampledFrom([]float64{0, 0, 0.5}).Draw(t, "clip")
		batchFirst, linear := rapid.Bool().Draw(t, "batch first"), rapid.Bool().Draw(t, "linear before reset")
		dirs := 1
		if direction == "bidirectional" {
			dirs = 2
		}
		var acts []string
		var alpha, beta []float64
		for range functions * dirs {
			name := rapid.SampledFrom([]string{"Sigmoid", "Tanh", "Softsign", "HardSigmoid"}).Draw(t, "activation")
			if clip > 0 {
				name = rapid.SampledFrom(activationNames).Draw(t, "any activation")
			}
			acts, alpha, beta = append(acts, name), append(alpha, 0.25), append(beta, 0.5)
		}
		steps, batch := rapid.IntRange(0, 7).Draw(t, "steps"), rapid.IntRange(0, 4).Draw(t, "batch")
		input := rapid.SampledFrom([]int{0, 1, 3, 8, 33}).Draw(t, "input")
		of := func(shape ...int) graph.TensorType {
			tt := graph.TensorType{DType: dtype}
			for _, d := range shape {
				tt.Shape = append(tt.Shape, int64(d))
			}
			return tt
		}
		optional := func(name string, shape ...int) graph.TensorType {
			if rapid.Bool().Draw(t, name) {
				return of(shape...)
			}
			return graph.TensorType{}
		}
		in := []graph.TensorType{of(steps, batch, input), of(dirs, gates*h, input), of(dirs, gates*h, h),
			optional("B", dirs, 2*gates*h), {}, optional("h0", dirs, batch, h)}
		if batchFirst {
			in[0] = of(batch, steps, input)
			if in[recurrentH].DType != graph.Invalid {
				in[recurrentH] = of(batch, dirs, h)
			}
		}
		var op graph.Op = &graph.GRU{Hidden: int64(h), Direction: direction, Activations: acts, ActAlpha: alpha, ActBeta: beta, Clip: clip, LinearBeforeReset: linear, BatchFirst: batchFirst}
		if gates == 1 {
			op = &graph.RNN{Hidden: int64(h), Direction: direction, Activations: acts, ActAlpha: alpha, ActBeta: beta, Clip: clip, BatchFirst: batchFirst}
		}
		src := &kerneltest.Source{R: kerneltest.DrawSource(t).R}
		data := make([][]byte, len(in))
		var v [6][]float64
		for i, tt := range in {
			data[i] = src.Tensor(tt)
			if i == recurrentW || i == recurrentR {
				elems := kerneltest.Load(dtype, data[i])
				for j := range elems {
					elems[j].F /= 8 * math.Sqrt(1+float64(h)/8)
				}
				data[i] = kerneltest.Store(dtype, elems)
			}
			v[i] = kerneltest.Values(tt, data[i])
		}
		lens := make([]int64, batch)
		var elems []kerneltest.Elem
		for i := range lens {
			lens[i] = int64(steps)
		}
		if rapid.Bool().Draw(t, "lengths") {
			in[recurrentLens] = graph.TensorType{DType: graph.I32, Shape: []int64{int64(batch)}}
			for i := range lens {
				lens[i] = rapid.Int64Range(0, int64(steps)).Draw(t, "length")
				elems = append(elems, kerneltest.Elem{I: lens[i]})
			}
			data[recurrentLens] = kerneltest.Store(graph.I32, elems)
		}
		if batchFirst {
			v[recurrentX] = permuted(v[recurrentX], in[0].Shape, 1, 0, 2)
			v[recurrentH] = permuted(v[recurrentH], []int64{int64(batch), int64(dirs), int64(h)}, 1, 0, 2)
		}
		out, got := runPacked(t, op, in, data)
		y, yh := plainReference(gates, acts, alpha, beta, clip, linear, direction == "reverse", h, steps, batch, input, v, lens)
		if batchFirst {
			y = permuted(y, []int64{int64(steps), int64(dirs), int64(batch), int64(h)}, 2, 0, 1, 3)
			yh = permuted(yh, []int64{int64(dirs), int64(batch), int64(h)}, 1, 0, 2)
		}
		for i, ref := range [][]float64{y, yh} {
			want := make([]kerneltest.Wanted, len(ref))
			for j, w := range ref {
				want[j] = kerneltest.Wanted{Value: w, Size: 8 + math.Abs(w)}
			}
			kerneltest.CompareSums(t, op, out[i], got[i], want)
		}
	})
}

// TestGRUBySteps has so much work in one sequence that every step is divided
// among threads; the result must be that of one thread.
func TestGRUBySteps(t *testing.T) {
	for _, linear := range []bool{false, true} {
		o := &graph.GRU{Hidden: 300, Direction: "forward", Activations: []string{"Sigmoid", "Tanh"}, ActAlpha: make([]float64, 2),
			ActBeta: make([]float64, 2), LinearBeforeReset: linear}
		src := &kerneltest.Source{R: kerneltest.Seeded(11)}
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
		in := []graph.TensorType{of(3, 1, 7), of(1, 900, 7), of(1, 900, 300), of(1, 1800)}
		var data [][]byte
		for _, tt := range in {
			data = append(data, src.Tensor(tt))
		}
		out, err := o.Infer(in)
		require.NoError(t, err)
		var results [2][][]byte
		for i, p := range []tensor.Pool{tensor.Serial{}, kerneltest.Threads(2)} {
			k, err := newKernel(o, in, out)
			require.NoError(t, err)
			for _, tt := range out {
				results[i] = append(results[i], kerneltest.Aligned(tensor.Elements(tt.Shape)*4))
			}
			require.NoError(t, k.Run(p, data, results[i], kerneltest.Aligned(k.Scratch())))
		}
		require.Equal(t, results[0], results[1])
	}
}
