package popart_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/popart"
)

// classifier is probabilities = softmax(x·w), of three numbers and two classes, as bytes of an ONNX file.
func classifier(t testing.TB) popart.Model {
	t.Helper()
	m := onnxtest.Model(13, &onnx.Graph{
		Name:         "classifier",
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(3, 2), 1, -2, 3, 0, 1, 2), "w")},
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "n", 3)},
		Nodes: []*onnx.Node{
			onnxtest.Node("MatMul", onnxtest.Names("x", "w"), onnxtest.Names("scores")),
			onnxtest.Node("Softmax", onnxtest.Names("scores"), onnxtest.Names("probabilities"), onnxtest.AInt("axis", 1)),
		},
		Outputs: onnxtest.Outputs("probabilities"),
	})
	b, err := onnx.Encode(m)
	require.NoError(t, err)
	return popart.Bytes(b)
}

// trained makes a session of one batch a step and runs it.
func trained(t testing.TB, m popart.Model, anchors popart.Anchors, loss popart.TrainingLoss, o popart.Optimizer, in map[string]popart.Array, steps int) (*popart.TrainingSession, map[string]popart.Array) {
	t.Helper()
	s, err := popart.NewTrainingSession(t.Context(), m, popart.DataFlow{1, anchors}, loss, o, popart.CPU(), shapes, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.PrepareDevice(t.Context()))
	require.NoError(t, s.WeightsFromHost(t.Context()))
	out := s.InitAnchorArrays()
	for range steps {
		require.NoError(t, s.Run(t.Context(), popart.Arrays(in, out)))
	}
	return s, out
}

// TestLosses computes losses of a model that has none by hand: the mean cross-entropy, with a label that does not count, and the mean square of differences.
// Feature 104.
func TestLosses(t *testing.T) {
	x := []float32{1, 0, 2, -1, 1, 1}
	ignored := int64(7)
	for _, test := range []struct {
		name   string
		loss   popart.TrainingLoss
		label  string
		labels popart.Array
		want   func(p []float32) float64
	}{
		{"nll", popart.Nll{Output: "probabilities", Label: "class"}, "class", popart.Of([]int32{1, 0}), func(p []float32) float64 {
			return -(math.Log(float64(p[1])) + math.Log(float64(p[2]))) / 2
		}},
		{"nll that ignores", popart.Nll{Output: "probabilities", Ignore: &ignored}, "labels", popart.Of([]int32{7, 0}), func(p []float32) float64 {
			return -math.Log(float64(p[2]))
		}},
		{"mse", popart.LossOf{Kind: "mse", Output: "probabilities", Labels: "want"}, "want", popart.Of([]float32{0, 1, 1, 0}), func(p []float32) float64 {
			sum := 0.0
			for i, want := range []float64{0, 1, 1, 0} {
				sum += (float64(p[i]) - want) * (float64(p[i]) - want)
			}
			return sum / 4
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := map[string]popart.Array{"x": popart.Of(x), test.label: test.labels}
			s, out := trained(t, classifier(t), popart.Anchors{"loss": popart.All, "probabilities": popart.All}, test.loss, popart.ConstSGD(0.1), in, 1)
			want := map[string]popart.Array{"x": {Type: in["x"].Type, Shape: []int64{2, 3}}, test.label: {Type: test.labels.Type, Shape: s.Inputs()[test.label].Shape}}
			require.Equal(t, want, s.Inputs())
			require.InDelta(t, test.want(popart.In[float32](out["probabilities"])), popart.In[float32](out["loss"])[0], 1e-6)
		})
	}
}

// TestOptimizers compares two steps of each kind of optimizer with its formula, in float64, and with the numbers of its defaults. The loss is the mean square of x·w.
// Feature 104.
func TestOptimizers(t *testing.T) {
	x := []float32{1, 0.5, 2, -1, 1, 3}
	gradient := func(w []float64) []float64 { // 2/n · xᵀ·(x·w)
		g := make([]float64, 3)
		for r := range 2 {
			y := 0.0
			for i := range 3 {
				y += float64(x[3*r+i]) * w[i]
			}
			for i := range 3 {
				g[i] += float64(x[3*r+i]) * y
			}
		}
		return g
	}
	for name, test := range map[string]struct {
		o    popart.Optimizer
		step func(w, g, state float64, n int) (nextW, nextState float64) // n counts from 1
	}{
		"constant SGD":  {popart.ConstSGD(0.05), func(w, g, _ float64, _ int) (float64, float64) { return w - 0.05*g, 0 }},
		"SGD's default": {popart.SGD{}, func(w, g, _ float64, _ int) (float64, float64) { return w - 0.1*g, 0 }},
		"momentum of one weight": {popart.SGD{LearningRate: popart.Const(0.05), Momentum: popart.Const(0).For("w", 0.5, true)}, func(w, g, v float64, _ int) (float64, float64) {
			v = 0.5*v + g
			return w - 0.05*v, v
		}},
		"AdaMax without a first moment": {popart.Adam{LearningRate: popart.Const(0.05), Beta1: popart.Const(0), Beta2: popart.Const(0.5), Rule: graph.UpdateAdaMax}, func(w, g, m float64, n int) (float64, float64) {
			m = max(0.5*m, math.Abs(g))
			return w - 0.05*g/(m/(1-math.Pow(0.5, float64(n)))+1e-6), m
		}},
		"RMSProp": {popart.Adaptive{LearningRate: popart.Const(0.05), Alpha: popart.Const(0.9), Rule: graph.UpdateRMSProp}, func(w, g, m float64, _ int) (float64, float64) {
			m = 0.9*m + 0.1*g*g
			return w - 0.05*g/(math.Sqrt(m)+1e-6), m
		}},
		"AdaGrad's default": {popart.Adaptive{Rule: graph.UpdateAdaGrad}, func(w, g, m float64, _ int) (float64, float64) {
			m += g * g
			return w - 0.01*g/(math.Sqrt(m)+1e-6), m
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := trained(t, popart.ONNX(regression()), popart.Anchors{"loss": popart.Final}, popart.Loss("loss"), test.o, map[string]popart.Array{"x": popart.Of(x)}, 2)
			w, state := []float64{1, -2, 3}, make([]float64, 3)
			for n := range 2 {
				g := gradient(w)
				for i := range w {
					w[i], state[i] = test.step(w[i], g[i], state[i], n+1)
				}
			}
			for i, got := range popart.In[float32](weights(t, s)["w"]) {
				require.InDelta(t, w[i], got, 1e-5, "weight %d", i)
			}
		})
	}
}

// TestWarnings: an input that no anchor needs is left out of the session, which says so.
func TestWarnings(t *testing.T) {
	m := onnxtest.Model(13, &onnx.Graph{
		Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 2), onnxtest.Info("other", onnx.Float, 2)},
		Nodes: []*onnx.Node{
			onnxtest.Node("Neg", onnxtest.Names("x"), onnxtest.Names("y")),
			onnxtest.Node("Neg", onnxtest.Names("other"), onnxtest.Names("z")),
		}, Outputs: onnxtest.Outputs("y", "z")})
	s, err := popart.NewInferenceSession(t.Context(), popart.ONNX(m), popart.DataFlow{1, popart.Anchors{"y": popart.All}}, popart.CPU(), nil, nil)
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, []string{`input "other": no anchor depends on it, and data for it is not read`}, s.Warnings())
	require.NotContains(t, s.Inputs(), "other")
	require.NoError(t, s.PrepareDevice(t.Context()))
	in := map[string]popart.Array{"x": popart.Of([]float32{1, 2}), "other": popart.Of([]float32{3, 4})}
	out := s.InitAnchorArrays()
	require.NoError(t, s.Run(t.Context(), popart.Arrays(in, out)))
	require.Equal(t, []float32{-1, -2}, popart.In[float32](out["y"]))
	delete(in, "other")
	require.NoError(t, s.Run(t.Context(), popart.Arrays(in, out)))
}
