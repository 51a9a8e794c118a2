package attention

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// attentionCase is one attention with its operands as float64, each [batch,
// heads, sequence, size], and the bias as it counts.
type attentionCase struct {
	o                 *graph.Attention
	batch, rows, cols int
	q, k, v           [][][][]float64
	bias              func(b, h, i, j int) float64
	lengths           []int64
}

// reference returns Y and the scores, computed from the definition.
func (c *attentionCase) reference() (y, scores [][][][]float64) {
	group := int(c.o.Heads / c.o.KVHeads)
	for b := range c.batch {
		y, scores = append(y, nil), append(scores, nil)
		for h := range int(c.o.Heads) {
			y[b], scores[b] = append(y[b], nil), append(scores[b], nil)
			k, v := c.k[b][h/group], c.v[b][h/group]
			for i, q := range c.q[b][h] {
				raw, capped, biased, p := make([]float64, c.cols), make([]float64, c.cols), make([]float64, c.cols), make([]float64, c.cols)
				most, total, look := math.Inf(-1), 0.0, false
				for j := range c.cols {
					for x := range q {
						raw[j] += q[x] * k[j][x] * c.o.Scale
					}
					if capped[j] = raw[j]; c.o.Softcap > 0 {
						capped[j] = c.o.Softcap * math.Tanh(raw[j]/c.o.Softcap)
					}
					mask, last := c.bias(b, h, i, j), i+int(c.o.Past)
					if c.lengths != nil {
						last = i + int(c.lengths[b]) - c.rows
						if j >= int(c.lengths[b]) {
							mask = math.Inf(-1)
						}
					}
					if c.o.Causal && j > last {
						mask = math.Inf(-1)
					}
					look = look || mask > math.Inf(-1)
					biased[j] = capped[j] + mask
					most = max(most, biased[j])
				}
				for j := range p {
					if look {
						p[j] = math.Exp(biased[j] - most)
						total += p[j]
					}
				}
				out := make([]float64, len(v0(v)))
				for j := range p {
					if look {
						p[j] /= total
					}
					for x := range out {
						out[x] += p[j] * v[j][x]
					}
				}
				y[b][h] = append(y[b][h], out)
				scores[b][h] = append(scores[b][h], map[graph.ScoresMode][]float64{graph.ScoresRaw: raw, graph.ScoresCapped: capped,
					graph.ScoresBiased: biased, graph.ScoresProbabilities: p}[c.o.Scores])
			}
		}
	}
	return y, scores
}

func v0(v [][]float64) []float64 {
	if len(v) == 0 {
		return nil
	}
	return v[0]
}

// byHeads arranges a tensor of either layout as [batch][heads][sequence][size].
func byHeads(tt graph.TensorType, data []float64, heads int) [][][][]float64 {
	var out [][][][]float64
	for b := range int(tt.Shape[0]) {
		out = append(out, nil)
		for h := range heads {
			out[b] = append(out[b], nil)
			for i := range int(tt.Shape[len(tt.Shape)-2]) {
				l := newHeads(tt.Shape, heads, 1)
				out[b][h] = append(out[b][h], data[l.at(b*heads+h, i):][:l.size])
			}
		}
	}
	return out
}

func TestAttention(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		n := func(lo, hi int64, name string) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
		dtype := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F64, graph.F16}).Draw(t, "type")
		kv := n(1, 3, "kv heads")
		o := &graph.Attention{
			Heads: kv * n(1, 3, "group"), KVHeads: kv, Scale: 0.25, Softcap: rapid.SampledFrom([]float64{0, 0, 1.5}).Draw(t, "softcap"),
			Causal: rapid.Bool().Draw(t, "causal"), Past: n(0, 3, "past"),
			Scores: rapid.SampledFrom([]graph.ScoresMode{graph.ScoresRaw, graph.ScoresCapped, graph.ScoresBiased, graph.ScoresProbabilities}).Draw(t, "scores"),
		}
		batch, rows, cols := n(0, 2, "batch"), rapid.SampledFrom([]int64{0, 1, 2, 5, 70}).Draw(t, "rows"), rapid.SampledFrom([]int64{1, 3, 33, 70}).Draw(t, "cols")
		size, width := rapid.SampledFrom([]int64{1, 4, 33}).Draw(t, "size"), rapid.SampledFrom([]int64{1, 8, 35}).Draw(t, "width")
		layout := func(name string, heads, sequence, size int64) graph.TensorType {
			if rapid.Bool().Draw(t, name) {
				return graph.TensorType{DType: dtype, Shape: []int64{batch, sequence, heads * size}}
			}
			return graph.TensorType{DType: dtype, Shape: []int64{batch, heads, sequence, size}}
		}
		in := []graph.TensorType{layout("q", o.Heads, rows, size), layout("k", kv, cols, size), layout("v", kv, cols, width)}
		src := &kerneltest.Source{R: kerneltest.DrawSource(t).R}
		var data [][]byte
		for _, tt := range in {
			data = append(data, src.Tensor(tt))
		}
		full := []int64{batch, o.Heads, rows, cols}
		c := &attentionCase{o: o, batch: int(batch), rows: int(rows), cols: int(cols), bias: func(int, int, int, int) float64 { return 0 }}
		if kind := rapid.SampledFrom([]string{"none", "bool", "float"}).Draw(t, "bias"); kind != "none" {
			tt := graph.TensorType{DType: dtype, Shape: kerneltest.DrawBroadcast(t, full)}
			if kind == "bool" {
				tt.DType = graph.Bool
			}
			elems := make([]kerneltest.Elem, tensor.Elements(tt.Shape))
			for i := range elems {
				masked := src.R.IntN(2) == 0
				elems[i].F = src.R.Float64()
				if masked {
					elems[i].F = math.Inf(-1)
				}
				if tt.DType == graph.Bool {
					elems[i] = kerneltest.FromTruth(!masked)
				}
			}
			in, data = append(in, tt), append(data, kerneltest.Store(tt.DType, elems))
			elems = kerneltest.Load(tt.DType, data[3])
			strides := tensor.BroadcastStrides(full, tt.Shape)
			c.bias = func(b, h, i, j int) float64 {
				e := elems[b*strides[0]+h*strides[1]+i*strides[2]+j*strides[3]]
				if tt.DType != graph.Bool {
					return e.F
				}
				return map[bool]float64{true: 0, false: math.Inf(-1)}[e.I != 0]
			}
		} else {
			in, data = append(in, graph.TensorType{}), append(data, nil)
		}
		if rapid.Bool().Draw(t, "lengths") {
			var elems []kerneltest.Elem
			for range batch {
				c.lengths = append(c.lengths, n(0, cols, "length"))
				elems = append(elems, kerneltest.Elem{I: c.lengths[len(c.lengths)-1]})
			}
			in, data = append(in, graph.TensorType{DType: graph.I64, Shape: []int64{batch}}), append(data, kerneltest.Store(graph.I64, elems))
		}
		c.q, c.k, c.v = byHeads(in[0], kerneltest.Values(in[0], data[0]), int(o.Heads)), byHeads(in[1], kerneltest.Values(in[1], data[1]), int(kv)), byHeads(in[2], kerneltest.Values(in[2], data[2]), int(kv))
		y, scores := c.reference()

		out, got := run(t, o, in, data)
		check := func(tt graph.TensorType, b []byte, ref [][][][]float64) {
			t.Helper()
			got := byHeads(tt, kerneltest.Values(tt, b), int(o.Heads))
			tolerance := 64*kerneltest.Roundoff(graph.F32) + 4*kerneltest.Roundoff(dtype)
			for b := range ref {
				for h := range ref[b] {
					for i := range ref[b][h] {
						for j, w := range ref[b][h][i] {
							if g := got[b][h][i][j]; g != w && !(math.Abs(g-w) <= tolerance*(1+math.Abs(w))) {
								t.Fatalf("%+v of %v: element %d of row %d of head %d of entry %d is %v, want %v", o, in, j, i, h, b, g, w)
							}
						}
					}
				}
			}
		}
		check(out[0], got[0], y)
		check(out[1], got[1], scores)

		// Without the scores less is computed.
		plain, err := newKernel(o, in, []graph.TensorType{out[0], {}})
		require.NoError(t, err)
		again := kerneltest.Aligned(len(got[0]))
		require.NoError(t, plain.Run(kerneltest.Threads(3), data, [][]byte{again, nil}, kerneltest.Aligned(plain.Scratch())))
		check(out[0], again, y)
	})
}

func TestAttentionRefusesLengths(t *testing.T) {
	o := &graph.Attention{Heads: 1, KVHeads: 1, Scale: 1, Scores: graph.ScoresRaw}
	one := graph.TensorType{DType: graph.F32, Shape: []int64{1, 1, 2, 1}}
	in := []graph.TensorType{one, one, one, {}, {DType: graph.I64, Shape: []int64{1}}}
	out, err := o.Infer(in)
	require.NoError(t, err)
	k, err := newKernel(o, in, out)
	require.NoError(t, err)
	for _, n := range []int64{-1, 3} {
		data := [][]byte{kerneltest.Aligned(8), kerneltest.Aligned(8), kerneltest.Aligned(8), nil, kerneltest.Store(graph.I64, []kerneltest.Elem{{I: n}})}
		require.ErrorContains(t, k.Run(tensor.Serial{}, data, [][]byte{kerneltest.Aligned(8), kerneltest.Aligned(16)}, kerneltest.Aligned(k.Scratch())), "want 0 to 2")
	}
}

func TestLinearAttention(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(lo, hi int64, name string) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
		dtype := rapid.SampledFrom([]graph.DType{graph.F32, graph.F64, graph.F16}).Draw(t, "type")
		kv := n(1, 3, "kv heads")
		o := &graph.LinearAttention{Heads: kv * n(1, 2, "group"), KVHeads: kv, Scale: 0.5, Gated: rapid.Bool().Draw(t, "gated"), Delta: rapid.Bool().Draw(t, "delta")}
		batch, steps, size, width := n(0, 2, "batch"), n(0, 4, "steps"), n(1, 5, "size"), n(1, 5, "width")
		of := func(last int64) graph.TensorType {
			return graph.TensorType{DType: dtype, Shape: []int64{batch, steps, last}}
		}
		in := []graph.TensorType{of(o.Heads * size), of(kv * size), of(kv * width), {}, {}, {}, {}}
		if rapid.Bool().Draw(t, "past") {
			in[3] = graph.TensorType{DType: rapid.SampledFrom([]graph.DType{dtype, graph.F32}).Draw(t, "past type"), Shape: []int64{batch, kv, size, width}}
		}
		if o.Gated {
			in[4] = of(rapid.SampledFrom([]int64{kv, kv * size}).Draw(t, "decay"))
		}
		if o.Delta {
			in[5] = of(rapid.SampledFrom([]int64{kv, 1}).Draw(t, "beta"))
			if rapid.Bool().Draw(t, "erase") {
				in[6] = of(kv * size)
			}
		}
		src := &kerneltest.Source{R: kerneltest.DrawSource(t).R}
		var data [][]byte
		var v [7][]float64
		for i, tt := range in {
			b := src.Tensor(tt)
			if tt.DType != graph.Invalid {
				elems := kerneltest.Load(tt.DType, b)
				for j := range elems {
					elems[j].F /= 4
				}
				b = kerneltest.Store(tt.DType, elems)
			}
			data = append(data, b)
			v[i] = kerneltest.Values(tt, b)
		}
		out, got := run(t, o, in, data)

		S, W, KV := int(size), int(width), int(kv)
		wantY, wantS := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape)), make([]kerneltest.Wanted, tensor.Elements(out[1].Shape))
		at := func(i, row, j int) float64 { return v[i][row*int(in[i].Shape[2])+j] }
		for b := range int(batch) {
			for h := range KV {
				s := make([]float64, S*W)
				if v[3] != nil {
					copy(s, v[3][(b*KV+h)*S*W:])
				}
				for step := range int(steps) {
					row := b*int(steps) + step
					for i := range S {
						if o.Gated {
							g := h*S + i
							if in[4].Shape[2] == kv {
								g = h
							}
							for j := range W {
								s[i*W+j] *= math.Exp(at(4, row, g))
							}
						}
					}
					for j := range W {
						value := at(2, row, h*W+j)
						if o.Delta {
							for i := range S {
								k := at(1, row, h*S+i)
								if v[6] != nil {
									k *= at(6, row, h*S+i)
								}
								value -= s[i*W+j] * k
							}
							value *= at(5, row, min(h, int(in[5].Shape[2])-1))
						}
						for i := range S {
							s[i*W+j] += at(1, row, h*S+i) * value
						}
						for group := range int(o.Heads / kv) {
							head := h*int(o.Heads/kv) + group
							w := &wantY[(row*int(o.Heads)+head)*W+j]
							for i := range S {
								w.Value += 0.5 * at(0, row, head*S+i) * s[i*W+j]
							}
							w.Size = 4
						}
					}
				}
				for i, x := range s {
					wantS[(b*KV+h)*S*W+i] = kerneltest.Wanted{Value: x, Size: 4}
				}
			}
		}
		kerneltest.CompareSums(t, o, out[0], got[0], wantY)
		kerneltest.CompareSums(t, o, out[1], got[1], wantS)
	})
}

func TestRMSNorm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		x := graph.TensorType{DType: d, Shape: kerneltest.DrawShape(t, 1)}
		scale := graph.TensorType{DType: d, Shape: kerneltest.DrawBroadcast(t, x.Shape)}
		o := &graph.RMSNorm{Axis: rapid.Int64Range(0, int64(len(x.Shape)-1)).Draw(t, "axis"), Epsilon: 0.125}
		s := &kerneltest.Source{R: kerneltest.DrawSource(t).R}
		data := [][]byte{s.Tensor(x), s.Tensor(scale)}
		out, got := runPacked(t, o, []graph.TensorType{x, scale}, data)
		v, w := kerneltest.Values(x, data[0]), kerneltest.Values(scale, data[1])
		strides := tensor.BroadcastStrides(x.Shape, scale.Shape)
		row := tensor.Elements(x.Shape[o.Axis:])
		want := make([]kerneltest.Wanted, len(v))
		kerneltest.Coords(x.Shape, func(at []int64, flat int) {
			sum := 0.0
			for _, y := range v[flat/row*row:][:row] {
				sum += y * y
			}
			k := 0
			for i, c := range at {
				k += int(c) * strides[i]
			}
			want[flat].Value = v[flat] / math.Sqrt(sum/float64(row)+0.125) * w[k]
			want[flat].Size = math.Abs(want[flat].Value)
		})
		kerneltest.CompareSums(t, o, out[0], got[0], want)
	})
}

// TestViewedAttention compares attention of heads that lie anywhere with the
// definition, and among numbers of workers.
func TestViewedAttention(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		n := func(lo, hi int64, name string) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
		dtype := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F64}).Draw(t, "type")
		o := &graph.ViewedAttention{Heads: []int64{n(1, 2, "batch"), n(1, 3, "heads")}, Rows: n(1, 70, "rows"), Cols: n(1, 90, "cols"),
			Size: n(1, 35, "size"), Width: n(1, 35, "width"), Scale: 0.4, Causal: rapid.Bool().Draw(t, "causal"), NoNaN: rapid.Bool().Draw(t, "no NaN"), Past: n(0, 40, "past")}
		s := &kerneltest.Source{R: kerneltest.DrawSource(t).R}
		var in []graph.TensorType
		var data [][]byte
		// view makes a tensor and says where the elements are: axes come in any
		// order, and some have all elements in one place.
		view := func(sizes []int64, close bool) []int64 {
			at := make([]int64, 5)
			at[0] = n(0, 3, "first")
			step := int64(1)
			order := rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "order")
			if close {
				at[4], step = 1, sizes[3]+n(0, 3, "gap")
			}
			for _, axis := range order {
				if close && axis == 3 || rapid.IntRange(0, 5).Draw(t, "broadcast") == 0 {
					continue
				}
				at[1+axis] = step
				step = step*sizes[axis] + n(0, 3, "gap")
			}
			tt := graph.TensorType{DType: dtype, Shape: []int64{at[0] + step*2}}
			in = append(in, tt)
			elems := make([]kerneltest.Elem, tensor.Elements(tt.Shape))
			for i := range elems {
				elems[i].F = s.R.Float64()*4 - 2
			}
			data = append(data, kerneltest.Store(dtype, elems))
			return at
		}
		o.Q = view([]int64{o.Heads[0], o.Heads[1], o.Rows, o.Size}, false)
		o.K = view([]int64{o.Heads[0], o.Heads[1], o.Cols, o.Size}, false)
		o.V = view([]int64{o.Heads[0], o.Heads[1], o.Cols, o.Width}, true)
		if rapid.Bool().Draw(t, "bias") {
			o.Bias = view([]int64{o.Heads[0], o.Heads[1], o.Rows, o.Cols}, false)
			elems := kerneltest.Load(dtype, data[3])
			hidden := rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "hidden")
			for i := range elems {
				if s.R.Float64() < hidden {
					elems[i].F = math.Inf(-1)
				}
			}
			data[3] = kerneltest.Store(dtype, elems)
		}
		if o.Shape = []int64{o.Heads[0], o.Rows, o.Heads[1] * o.Width}; rapid.Bool().Draw(t, "by heads") {
			o.Shape = []int64{o.Heads[0], o.Heads[1], o.Rows, o.Width}
			o.Y = []int64{0, o.Heads[1] * o.Rows * o.Width, o.Rows * o.Width, o.Width, 1}
		} else {
			o.Y = []int64{0, o.Heads[1] * o.Rows * o.Width, o.Width, o.Heads[1] * o.Width, 1}
		}
		out, err := o.Infer(in)
		require.NoError(t, err)
		var got []byte
		for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.Threads(2), kerneltest.Threads(3)} {
			k, err := newKernel(o, in, out)
			require.NoError(t, err)
			y := kerneltest.Aligned(int(out[0].Bytes()))
			require.NoError(t, k.Run(p, data, [][]byte{y}, kerneltest.Aligned(k.Scratch())))
			if got != nil {
				require.Equal(t, got, y, "%d workers", p.Workers())
			}
			got = y
		}

		v := make([][]float64, len(in))
		for i, tt := range in {
			v[i] = kerneltest.Values(tt, data[i])
		}
		result := kerneltest.Values(out[0], got)
		// An error of a score is one of the probability's exponent.
		tolerance := 1e-5 * (1 + float64(o.Size))
		at := func(view []int64, a, b, i, j int64) int64 {
			return view[0] + a*view[1] + b*view[2] + i*view[3] + j*view[4]
		}
		kerneltest.Coords([]int64{o.Heads[0], o.Heads[1], o.Rows}, func(row []int64, _ int) {
			a, b, i := row[0], row[1], row[2]
			p := make([]float64, o.Cols)
			most, total := math.Inf(-1), 0.0
			for j := range p {
				j := int64(j)
				for x := range o.Size {
					p[j] += o.Scale * v[0][at(o.Q, a, b, i, x)] * v[1][at(o.K, a, b, j, x)]
				}
				if o.Bias != nil {
					p[j] += v[3][at(o.Bias, a, b, i, j)]
				}
				if o.Causal && j > i+o.Past {
					p[j] = math.Inf(-1)
				}
				most = max(most, p[j])
			}
			for j := range p {
				p[j] = math.Exp(p[j] - most)
				total += p[j]
			}
			if math.IsNaN(total) && o.NoNaN {
				clear(p)
				total = 1
			}
			for x := range o.Width {
				want := 0.0
				for j := range p {
					want += p[j] / total * v[2][at(o.V, a, b, int64(j), x)]
				}
				g := result[at(o.Y, a, b, i, x)]
				if math.IsNaN(want) != math.IsNaN(g) || math.Abs(g-want) > tolerance*(1+math.Abs(want)) {
					t.Fatalf("%+v: element %d of row %d of head %d, %d is %v, want %v", o, x, i, a, b, g, want)
				}
			}
		})
	})
}

func TestViewedAttentionAllocatesNothing(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		o, in := kerneltest.JoinedHeads(40, 4, 16, true)
		out, err := o.Infer(in)
		require.NoError(t, err)
		k, err := newKernel(o, in, out)
		require.NoError(t, err)
		data, y, scratch := kerneltest.Aligned(int(in[0].Bytes())), kerneltest.Aligned(int(out[0].Bytes())), kerneltest.Aligned(k.Scratch())
		operands, results := [][]byte{data, data, data}, [][]byte{y}
		for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.InTurn(2)} {
			require.Zero(t, testing.AllocsPerRun(2, func() {
				if err := k.Run(p, operands, results, scratch); err != nil {
					t.Fatal(err)
				}
			}))
		}
	})
}
