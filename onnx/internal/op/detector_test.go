package op_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/internal/op"
	"github.com/popefgen/popefgen/onnx/verify"
)

// detect compiles a model with the values of a in its text as weights and k others as inputs, runs
// it on the engine and returns the outputs, cut to their counts, as float64 with their shapes.
func detect(t *testing.T, in map[string]*onnx.Tensor, weights []string, nodes, out string) (map[string][]float64, map[string][]int64) {
	m := op.TextModel(t, in, nodes, out)
	m.Graph.Inputs = slices.DeleteFunc(m.Graph.Inputs, func(v onnx.ValueInfo) bool { return slices.Contains(weights, v.Name) })
	feeds := map[string][]byte{}
	for name, x := range in {
		if slices.Contains(weights, name) {
			m.Graph.Initializers = append(m.Graph.Initializers, onnxtest.Named(x, name))
		} else {
			feeds[name] = x.Data
		}
	}
	r, err := compile.Compile(m, compile.Options{})
	require.NoError(t, err)
	require.NotNil(t, r.Family)
	got := runEngine(t, r, feeds)
	values, shapes := map[string][]float64{}, map[string][]int64{}
	for _, p := range r.Outputs {
		shape, data, err := verify.Cut(p, got)
		require.NoError(t, err)
		values[p.Name], shapes[p.Name] = op.Numbers(p.Type.DType, data), shape
	}
	return values, shapes
}

func random(r *rand.Rand, low, high float64, shape ...int64) *onnx.Tensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = low + (high-low)*r.Float64()
	}
	return onnxtest.F32s(shape, v...)
}

// overlap is the part of the union of two boxes of corners that is in both.
func overlap(a, b []float64) float64 {
	w, h := min(a[2], b[2])-max(a[0], b[0]), min(a[3], b[3])-max(a[1], b[1])
	if w <= 0 || h <= 0 {
		return 0
	}
	inter := w * h
	return inter / ((a[2]-a[0])*(a[3]-a[1]) + (b[2]-b[0])*(b[3]-b[1]) - inter)
}

// suppressed returns the boxes that are picked of a class.
func suppressed(boxes [][]float64, scores []float64, most int, limit, least float64) (picked []int) {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	for _, i := range order {
		if len(picked) < most && scores[i] > least && !slices.ContainsFunc(picked, func(j int) bool { return overlap(boxes[i], boxes[j]) > limit }) {
			picked = append(picked, i)
		}
	}
	return picked
}

func rowsOf(v []float64, width int) (rows [][]float64) {
	for ; len(v) > 0; v = v[width:] {
		rows = append(rows, v[:width])
	}
	return rows
}

// corners makes boxes of corners of 4 numbers each, as sums of what a head gives and of a grid.
const corners = `
	p = Slice(d, [0], [2], [2])
	q0 = Slice(d, [2], [4], [2])
	q1 = Abs(q0)
	q2 = Add(q1, '0.3')
	q = Add(p, q2)
	boxes = Concat(p, q) axis=2
`

// TestYOLO is an export of a one-stage detector with its suppression: rows of image, box, class
// and score of what is left, for images on which nothing is, and much.
func TestYOLO(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const classes, most = 3, 7
	in := map[string]*onnx.Tensor{
		"x": random(r, -1, 1, 2, 3, 8, 8), "w": random(r, -1, 1, 4+classes, 3, 3, 3),
	}
	nodes := `
	h = Conv(x, w) kernel_shape=3;3 strides=2;2 pads=1;1;1;1
	flat = Reshape(h, [0 7 -1])
	d = Transpose(flat) perm=0;2;1` + corners + `
	l = Slice(d, [4], [7], [2])
	s = Sigmoid(l)
	scores = Transpose(s) perm=0;2;1
	n = NonMaxSuppression(boxes, scores, [7], '0.4', k)
	bi = Gather(n, [0]) axis=1
	ci = Gather(n, [1]) axis=1
	ki = Gather(n, [2]) axis=1
	at = Concat(bi, ki) axis=1
	b = GatherND(boxes, at)
	si = GatherND(scores, n)
	sc = Unsqueeze(si, [1])
	fb = Cast(bi) to=1
	fc = Cast(ci) to=1
	o = Concat(fb, b, fc, sc) axis=1`
	for _, least := range []float64{-1, 0.3, 0.6, 2} {
		in["k"] = onnxtest.F32s(onnxtest.Dims(1), least)
		v, shapes := detect(t, in, []string{"w"}, nodes, "o boxes scores")
		var want []float64
		boxes := rowsOf(v["boxes"], 4)
		for b := range 2 {
			own := boxes[16*b:][:16]
			for c := range classes {
				scores := v["scores"][(b*classes+c)*16:][:16]
				for _, i := range suppressed(own, scores, most, 0.4, least) {
					want = append(append(append(want, float64(b)), own[i]...), float64(c), scores[i])
				}
			}
		}
		require.Equal(t, []int64{int64(len(want) / 7), 7}, shapes["o"])
		require.InDeltaSlice(t, append([]float64{0}, want...), append([]float64{0}, v["o"]...), 1e-5)
		if least < 0.5 {
			require.NotEmpty(t, want)
		}
	}
}

// TestSSD suppresses class by class, takes the best of all classes and gathers what belongs to
// them, as the models of MLPerf do.
func TestSSD(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const classes, best = 4, 6
	in := map[string]*onnx.Tensor{"d": random(r, 0, 3, 1, 20, 4), "l": random(r, -2, 2, 1, 20, classes+1), "k": onnxtest.F32s(onnxtest.Dims(1), 0.2)}
	nodes := corners + `
	a = Softmax(l) axis=2
	a1 = Transpose(a) perm=0;2;1
	scores = Slice(a1, [1], [5], [1])
	n = NonMaxSuppression(boxes, scores, [5], '0.5', k)
	ns = GatherND(scores, n)
	sh = Shape(ns)
	kk = Min(sh, [6])
	o i = TopK(ns, kk) axis=0
	sel = Gather(n, i) axis=0
	c1 = Slice(sel, [1], [2], [1])
	c2 = Squeeze(c1, [1])
	p1 = Add(c2, #1)
	labels = Unsqueeze(p1, [0])
	bi = Slice(sel, [2], [3], [1])
	bs = Squeeze(bi, [1])
	found = Gather(boxes, bs) axis=1`
	for _, least := range []float64{0.01, 0.3, 0.45, 1} {
		in["k"] = onnxtest.F32s(onnxtest.Dims(1), least)
		v, shapes := detect(t, in, nil, nodes, "o labels found boxes scores")
		boxes := rowsOf(v["boxes"], 4)
		type hit struct {
			class, box int
			score      float64
		}
		var all []hit
		for c := range classes {
			scores := v["scores"][c*20:][:20]
			for _, i := range suppressed(boxes, scores, 5, 0.5, least) {
				all = append(all, hit{c, i, scores[i]})
			}
		}
		slices.SortStableFunc(all, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
		all = all[:min(len(all), best)]
		n := int64(len(all))
		require.Equal(t, [][]int64{{n}, {1, n}, {1, n, 4}}, [][]int64{shapes["o"], shapes["labels"], shapes["found"]})
		for i, h := range all {
			require.InDelta(t, h.score, v["o"][i], 1e-6)
			require.Equal(t, float64(h.class+1), v["labels"][i])
			require.Equal(t, boxes[h.box], v["found"][4*i:][:4])
		}
	}
}

// TestTwoStages is a detector of two stages: the best places of a first one are suppressed, looked at
// by RoiAlign and a head of their own, divided by classes, filtered by score and suppressed again.
func TestTwoStages(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	in := map[string]*onnx.Tensor{
		"x": random(r, -1, 1, 1, 4, 12, 12), "d": random(r, 0, 6, 1, 30, 4), "s": random(r, 0, 1, 1, 1, 30), "k": onnxtest.F32s(onnxtest.Dims(1), 0.2),
		"w": random(r, -1, 1, 16, 3), "cw": random(r, -1, 1, 4, 4, 3, 3),
	}
	nodes := corners + `
	n = NonMaxSuppression(boxes, s, [10], '0.5', k)
	k0 = Slice(n, [2], [3], [1])
	k1 = Squeeze(k0, [1])
	all = Squeeze(boxes, [0])
	rois = Gather(all, k1) axis=0
	rs = Shape(k1)
	zero = ConstantOfShape(rs)
	bi = Cast(zero) to=7
	f = RoiAlign(x, rois, bi) output_height=2 output_width=2 sampling_ratio=2
	f1 = Conv(f, cw) pads=1;1;1;1
	f2 = Relu(f1)
	flat = Flatten(f2)
	logits = MatMul(flat, w)
	prob = Softmax(logits) axis=1
	pt = Transpose(prob) perm=1;0
	ps = Unsqueeze(pt, [0])
	rb = Unsqueeze(rois, [0])
	high = Greater(prob, '0.4')
	z = NonZero(high)
	zt = Transpose(z) perm=1;0
	zs = GatherND(prob, zt)
	m = NonMaxSuppression(rb, ps, [5], '0.3', '0.4')
	mi = Slice(m, [2], [3], [1])
	m1 = Squeeze(mi, [1])
	o = Gather(rois, m1) axis=0
	mc = Slice(m, [1], [2], [1])
	labels = Squeeze(mc, [1])`
	found := 0
	for _, least := range []float64{0.1, 0.7, 0.9, 3} {
		in["k"] = onnxtest.F32s(onnxtest.Dims(1), least)
		v, shapes := detect(t, in, []string{"w", "cw"}, nodes, "o labels zs rois prob boxes")
		// The first stage, from its inputs.
		boxes := rowsOf(v["boxes"], 4)
		first := suppressed(boxes, op.Numbers(in["s"].Elem.DType(), in["s"].Data), 10, 0.5, least)
		require.Equal(t, []int64{int64(len(first)), 4}, shapes["rois"])
		rois := rowsOf(v["rois"], 4)
		for i, at := range first {
			require.Equal(t, boxes[at], rois[i])
		}
		// What the head says of a place does not depend on the others.
		prob := rowsOf(v["prob"], 3)
		require.Len(t, prob, len(first))
		var high []float64
		for _, p := range prob {
			require.InDelta(t, 1, p[0]+p[1]+p[2], 1e-5)
			for _, q := range p {
				if q > 0.4 {
					high = append(high, q)
				}
			}
		}
		require.Equal(t, append([]float64{0}, high...), append([]float64{0}, v["zs"]...))
		var labels []float64
		var out [][]float64
		for c := range 3 {
			scores := make([]float64, len(prob))
			for i, p := range prob {
				scores[i] = p[c]
			}
			for _, i := range suppressed(rois, scores, 5, 0.3, 0.4) {
				labels, out = append(labels, float64(c)), append(out, rois[i])
			}
		}
		require.Equal(t, append([]float64{0}, labels...), append([]float64{0}, v["labels"]...))
		require.Equal(t, slices.Concat(out...), append([]float64(nil), v["o"]...))
		found += len(out)
	}
	require.Positive(t, found)
}
