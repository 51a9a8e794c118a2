package recurrent

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

var activationNames = []string{"Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
	"HardSigmoid", "Elu", "Softsign", "Softplus"}

// activationReference computes an activation as the ONNX specification
// spells it.
func activationReference(name string, alpha, beta, x float64) float64 {
	switch name {
	case "Relu":
		return math.Max(0, x)
	case "Tanh":
		return (1 - math.Exp(-2*x)) / (1 + math.Exp(-2*x))
	case "Sigmoid":
		return 1 / (1 + math.Exp(-x))
	case "Affine":
		return alpha*x + beta
	case "LeakyRelu":
		return map[bool]float64{true: x, false: alpha * x}[x >= 0]
	case "ThresholdedRelu":
		return map[bool]float64{true: x, false: 0}[x >= alpha]
	case "ScaledTanh":
		return alpha * math.Tanh(beta*x)
	case "HardSigmoid":
		return math.Min(math.Max(alpha*x+beta, 0), 1)
	case "Elu":
		return map[bool]float64{true: x, false: alpha * (math.Exp(x) - 1)}[x >= 0]
	case "Softsign":
		return x / (1 + math.Abs(x))
	}
	return math.Log(1 + math.Exp(x))
}

// lstmReference computes an LSTM one number at a time, from ONNX's equations.
// It returns Y, Y_h and Y_c in ONNX's layout 0.
func lstmReference(o *graph.LSTM, steps, batch, input int, v [8][]float64, lens []int64) (y, yh, yc []float64) {
	h := int(o.Hidden)
	dirs := len(o.Activations) / 3
	y = make([]float64, steps*dirs*batch*h)
	act := func(d, i int, x float64) float64 {
		if o.Clip > 0 {
			x = math.Min(math.Max(x, -o.Clip), o.Clip)
		}
		return activationReference(o.Activations[3*d+i], o.ActAlpha[3*d+i], o.ActBeta[3*d+i], x)
	}
	at := func(s []float64, i int) float64 {
		if s == nil {
			return 0
		}
		return s[i]
	}
	for d := range dirs {
		for b := range batch {
			ht, ct := make([]float64, h), make([]float64, h)
			for j := range h {
				ht[j], ct[j] = at(v[recurrentH], (d*batch+b)*h+j), at(v[recurrentC], (d*batch+b)*h+j)
			}
			n := int(lens[b])
			for s := range n {
				time := s
				if d == 1 || o.Direction == "reverse" {
					time = n - 1 - s
				}
				gate := func(g, j int) float64 { // iofc
					row := (d*4+g)*h + j
					sum := at(v[recurrentB], d*8*h+g*h+j) + at(v[recurrentB], d*8*h+4*h+g*h+j)
					for k := range input {
						sum += v[recurrentX][(time*batch+b)*input+k] * v[recurrentW][row*input+k]
					}
					for k := range h {
						sum += ht[k] * v[recurrentR][row*h+k]
					}
					return sum
				}
				hn, cn := make([]float64, h), make([]float64, h)
				for j := range h {
					i := act(d, 0, gate(0, j)+at(v[recurrentP], d*3*h+j)*ct[j])
					f := act(d, 0, gate(2, j)+at(v[recurrentP], d*3*h+2*h+j)*ct[j])
					if o.InputForget {
						f = 1 - i
					}
					cn[j] = f*ct[j] + i*act(d, 1, gate(3, j))
					out := act(d, 0, gate(1, j)+at(v[recurrentP], d*3*h+h+j)*cn[j])
					// The clip does not limit the cell, as in ONNX Runtime.
					hn[j] = out * activationReference(o.Activations[3*d+2], o.ActAlpha[3*d+2], o.ActBeta[3*d+2], cn[j])
					y[((time*dirs+d)*batch+b)*h+j] = hn[j]
				}
				ht, ct = hn, cn
			}
			yh, yc = append(yh, ht...), append(yc, ct...)
		}
	}
	return y, yh, yc
}

// permuted returns data with its axes in another order.
func permuted(data []float64, shape []int64, perm ...int) []float64 {
	if data == nil {
		return nil
	}
	to := make([]int64, len(shape))
	for i, p := range perm {
		to[i] = shape[p]
	}
	out := make([]float64, len(data))
	kerneltest.Coords(to, func(at []int64, flat int) {
		from := make([]int64, len(at))
		for i, p := range perm {
			from[p] = at[i]
		}
		out[flat] = data[kerneltest.Flatten(shape, from)]
	})
	return out
}

func drawLSTM(t *rapid.T) (*graph.LSTM, int) {
	o := &graph.LSTM{
		Hidden:      rapid.SampledFrom([]int64{1, 2, 5, 8, 31, 33, 40}).Draw(t, "hidden"),
		Direction:   rapid.SampledFrom([]string{"forward", "reverse", "bidirectional"}).Draw(t, "direction"),
		Clip:        rapid.SampledFrom([]float64{0, 0, 0.5}).Draw(t, "clip"),
		InputForget: rapid.Bool().Draw(t, "input forget"),
		BatchFirst:  rapid.Bool().Draw(t, "batch first"),
	}
	dirs := 1
	if o.Direction == "bidirectional" {
		dirs = 2
	}
	usual := rapid.Bool().Draw(t, "usual")
	for i := range 3 * dirs {
		name := "Tanh"
		if i%3 == 0 {
			name = "Sigmoid"
		}
		if !usual {
			name = rapid.SampledFrom(activationNames).Draw(t, "activation")
			if o.Clip == 0 && name != "Sigmoid" && name != "Softsign" {
				name = "HardSigmoid" // else numbers may grow without limit
			}
		}
		o.Activations = append(o.Activations, name)
		o.ActAlpha = append(o.ActAlpha, 0.25)
		o.ActBeta = append(o.ActBeta, 0.5)
	}
	return o, dirs
}

func TestLSTM(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F64, graph.F16}).Draw(t, "type")
		o, n := drawLSTM(t)
		dirs, h := int64(n), o.Hidden
		steps, batch := rapid.Int64Range(0, 7).Draw(t, "steps"), rapid.Int64Range(0, 4).Draw(t, "batch")
		input := rapid.SampledFrom([]int64{0, 1, 3, 8, 33}).Draw(t, "input")
		optional := func(name string, shape ...int64) graph.TensorType {
			if rapid.Bool().Draw(t, name) {
				return graph.TensorType{DType: d, Shape: shape}
			}
			return graph.TensorType{}
		}
		x, state := []int64{steps, batch, input}, []int64{dirs, batch, h}
		if o.BatchFirst {
			x, state = []int64{batch, steps, input}, []int64{batch, dirs, h}
		}
		in := []graph.TensorType{
			{DType: d, Shape: x}, {DType: d, Shape: []int64{dirs, 4 * h, input}}, {DType: d, Shape: []int64{dirs, 4 * h, h}},
			optional("B", dirs, 8*h), {}, optional("h0", state...), optional("c0", state...), optional("P", dirs, 3*h),
		}
		src := &kerneltest.Source{R: kerneltest.DrawSource(t).R}
		data := make([][]byte, len(in))
		var v [8][]float64
		for i, tt := range in {
			data[i] = src.Tensor(tt)
			if i == recurrentW || i == recurrentR {
				// Keep the sums moderate, else errors grow from step to step.
				elems := kerneltest.Load(d, data[i])
				for j := range elems {
					elems[j].F /= 8 * math.Sqrt(1+float64(h)/8)
				}
				data[i] = kerneltest.Store(d, elems)
			}
			v[i] = kerneltest.Values(tt, data[i])
		}
		lens := make([]int64, batch)
		for i := range lens {
			lens[i] = steps
		}
		if rapid.Bool().Draw(t, "lengths") {
			in[recurrentLens] = graph.TensorType{DType: graph.I32, Shape: []int64{batch}}
			var elems []kerneltest.Elem
			for i := range lens {
				lens[i] = rapid.Int64Range(0, steps).Draw(t, "length")
				elems = append(elems, kerneltest.Elem{I: lens[i]})
			}
			data[recurrentLens] = kerneltest.Store(graph.I32, elems)
		}
		out, got := runPacked(t, o, in, data)

		if o.BatchFirst {
			v[recurrentX] = permuted(v[recurrentX], x, 1, 0, 2)
			v[recurrentH], v[recurrentC] = permuted(v[recurrentH], state, 1, 0, 2), permuted(v[recurrentC], state, 1, 0, 2)
		}
		y, yh, yc := lstmReference(o, int(steps), int(batch), int(input), v, lens)
		if o.BatchFirst {
			y = permuted(y, []int64{steps, dirs, batch, h}, 2, 0, 1, 3)
			yh, yc = permuted(yh, []int64{dirs, batch, h}, 1, 0, 2), permuted(yc, []int64{dirs, batch, h}, 1, 0, 2)
		}
		for i, ref := range [][]float64{y, yh, yc} {
			want := make([]kerneltest.Wanted, len(ref))
			for j, w := range ref {
				want[j] = kerneltest.Wanted{Value: w, Size: 8 + math.Abs(w)}
			}
			kerneltest.CompareSums(t, o, out[i], got[i], want)
		}
	})
}

// TestLSTMInChunks has more time steps than one chunk of gates holds.
func TestLSTMInChunks(t *testing.T) {
	for _, direction := range []string{"forward", "reverse"} {
		for _, batchFirst := range []bool{false, true} {
			o := &graph.LSTM{Hidden: 3, Direction: direction, BatchFirst: batchFirst,
				Activations: []string{"Sigmoid", "Tanh", "Tanh"}, ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3)}
			src := &kerneltest.Source{R: kerneltest.Seeded(7)}
			of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
			in := []graph.TensorType{of(11, 2, 4), of(1, 12, 4), of(1, 12, 3)}
			if batchFirst {
				in[0] = of(2, 11, 4)
			}
			var data [][]byte
			for _, tt := range in {
				data = append(data, src.Tensor(tt))
			}
			out, want := run(t, o, in, data)
			k, err := newKernel(o, in, out)
			require.NoError(t, err)
			l := k.(*recurrent[float32])
			require.Equal(t, 11, l.chunk)
			l.chunk = 4
			l.place()
			var got [][]byte
			for _, tt := range out {
				got = append(got, kerneltest.Aligned(tensor.Elements(tt.Shape)*4))
			}
			require.NoError(t, k.Run(kerneltest.Threads(2), data, got, kerneltest.Aligned(k.Scratch())))
			require.Equal(t, want, got)
		}
	}
}

func TestLSTMLeavesOutResults(t *testing.T) {
	c := kerneltest.HeavyLSTM(graph.F32)
	o, in := c.Op, c.In
	src := &kerneltest.Source{R: kerneltest.Seeded(3)}
	var data [][]byte
	for _, tt := range in {
		data = append(data, src.Tensor(tt))
	}
	out, want := run(t, o, in, data)
	for i := range want {
		k, err := newKernel(o, in, out)
		require.NoError(t, err)
		got := make([][]byte, 3)
		got[i] = kerneltest.Aligned(len(want[i]))
		require.NoError(t, k.Run(tensor.Serial{}, data, got, kerneltest.Aligned(k.Scratch())))
		require.True(t, slices.Equal(want[i], got[i]), "result %d", i)
	}
}

func TestLSTMRefusesLengthsBeyondX(t *testing.T) {
	o := &graph.LSTM{Hidden: 1, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"},
		ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3)}
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	in := []graph.TensorType{of(2, 1, 1), of(1, 4, 1), of(1, 4, 1), {}, {DType: graph.I32, Shape: []int64{1}}}
	out, err := o.Infer(in)
	require.NoError(t, err)
	k, err := newKernel(o, in, out)
	require.NoError(t, err)
	data := [][]byte{kerneltest.Aligned(8), kerneltest.Aligned(16), kerneltest.Aligned(16), nil, kerneltest.Store(graph.I32, []kerneltest.Elem{{I: 3}})}
	err = k.Run(tensor.Serial{}, data, [][]byte{kerneltest.Aligned(8), kerneltest.Aligned(4), kerneltest.Aligned(4)}, kerneltest.Aligned(k.Scratch()))
	require.ErrorContains(t, err, "sequence_lens[0] is 3, want 0 to 2")
}
