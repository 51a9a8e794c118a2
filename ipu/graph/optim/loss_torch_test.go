package optim_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/num"
)

// put sets element i of a stream of elements of type t.
func put(t graph.DType, b []byte, i int, v float64) {
	le := binary.LittleEndian
	switch t {
	case graph.I32:
		le.PutUint32(b[4*i:], uint32(int32(v)))
	case graph.I64:
		le.PutUint64(b[8*i:], uint64(int64(v)))
	case graph.F16:
		le.PutUint16(b[2*i:], uint16(num.Float16From64(v)))
	case graph.BF16:
		le.PutUint16(b[2*i:], uint16(num.BFloat16From64(v)))
	case graph.F32:
		le.PutUint32(b[4*i:], math.Float32bits(float32(v)))
	case graph.F64:
		le.PutUint64(b[8*i:], math.Float64bits(v))
	}
}

// numbers returns the elements of a stream of elements of type t.
func numbers(t graph.DType, b []byte) (all []float64) {
	for ; len(b) > 0; b = b[t.Size():] {
		all = append(all, graph.Number(t, b))
	}
	return all
}

// lossCase is a case of testdata/losses.json, whose script says what scores, labels and weights are.
type lossCase struct {
	Loss      string
	Shape     []int64
	Reduction string
	Axis      int64
	Ignore    *int64
	Weights   int64
	Threshold float64
	Value     []float64
	Gradient  []float64
}

func (c *lossCase) label(i int, classes int64) float64 {
	switch {
	case classes > 0 && c.Ignore != nil && i%3 == 0:
		return float64(*c.Ignore)
	case classes > 0:
		return float64((7*i + i/3) % int(classes))
	case c.Loss == "bce-with-logits":
		return (1 + math.Cos(2.3*float64(i))) / 2
	}
	return math.Cos(2.3 * float64(i))
}

// lossModel computes a loss of scores and its gradient.
func lossModel(t *testing.T, l optim.Loss, scores, labels graph.TensorType, o optim.LossOptions, weights int64) (x *trainer, loss graph.TensorType) {
	b := graph.NewBuilder(l.Name)
	s, y := b.AddLocal("scores", scores), b.AddLocal("labels", labels)
	if weights > 0 {
		data := make([]byte, 8*weights)
		for i := range weights {
			put(graph.F32, data, int(i), 0.5+float64(i)/2)
		}
		o.Weights = b.AddConst("weights", vector(weights), data[:4*weights])
	}
	forward := b.BeginGraph("forward")
	out, err := l.Add(b, "loss", s, y, o)
	require.NoError(t, err)
	exe, err := b.Finish()
	require.NoError(t, err)
	info, err := autodiff.Backward(exe, forward, autodiff.Options{Provided: []graph.TensorID{out}, Required: []graph.TensorID{s}})
	require.NoError(t, err)
	b = graph.Continue(exe)
	start := info.Inputs[0].Tensor
	b.AddProgram(5, "main", b.CopyIn("scores", s), b.CopyIn("labels", y), b.CopyIn("start", start), b.Call(forward), b.Call(info.Graph),
		b.CopyOut("loss", out), b.CopyOut("gradient", info.Outputs[0].Tensor))
	loss = b.Type(out)
	x = newTrainer(t, b, true)
	for i := range int(loss.Elements()) {
		put(loss.DType, x.streams["start"], i, 1)
	}
	return x, loss
}

// TestLosses compares every loss and its gradient with PyTorch's, computed in float64 and in float32, and with scores and labels of
// half precision, as the rounded numbers.
func TestLosses(t *testing.T) {
	text, err := os.ReadFile("testdata/losses.json")
	require.NoError(t, err)
	var all []lossCase
	require.NoError(t, json.Unmarshal(text, &all))
	used := map[string]bool{}
	for _, c := range all {
		used[c.Loss] = true
		l, err := optim.FindLoss(c.Loss)
		require.NoError(t, err)
		o := optim.NewLossOptions()
		o.Reduction, o.Axis, o.Threshold = optim.Reduction(c.Reduction), c.Axis, c.Threshold
		if c.Ignore != nil {
			o.Ignores, o.Ignore = true, *c.Ignore
		}
		for typ, within := range map[graph.DType]float64{graph.F64: 1e-11, graph.F32: 2e-6, graph.F16: 5e-3, graph.BF16: 4e-2} {
			scores := graph.TensorType{DType: typ, Shape: c.Shape}
			labels, err := l.Labels(scores, o)
			require.NoError(t, err)
			classes := int64(0)
			if labels.DType == graph.I32 {
				classes = scores.Elements() / labels.Elements()
			}
			if classes > 0 && typ == graph.F64 {
				labels.DType = graph.I64
			}
			if classes == 0 && typ == graph.BF16 {
				labels.DType = graph.BF16
			}
			x, loss := lossModel(t, l, scores, labels, o, c.Weights)
			for i := range int(scores.Elements()) {
				put(typ, x.streams["scores"], i, 3*math.Sin(1.7*float64(i)))
			}
			for i := range int(labels.Elements()) {
				put(labels.DType, x.streams["labels"], i, c.label(i, classes))
			}
			x.run(5)
			near := func(what string, want, got []float64) {
				require.Len(t, got, len(want))
				for i, v := range want {
					require.InDelta(t, v, got[i], within*max(1, math.Abs(v)), "%s %v, %s: %s %d", l.Name, c, typ, what, i)
				}
			}
			near("loss", c.Value, numbers(loss.DType, x.streams["loss"]))
			near("gradient", c.Gradient, numbers(typ, x.streams["gradient"]))
		}
	}
	require.Len(t, used, len(optim.Losses()))
}

// TestLossesFarOut has scores at which sums of exponentials, or differences of large numbers, would give nothing.
func TestLossesFarOut(t *testing.T) {
	for _, c := range []struct {
		loss             string
		scores           []float64
		label            float64
		want, derivative float64
	}{
		{"softmax-cross-entropy", []float64{1000, 0}, 1, 1000, 1},
		{"softmax-cross-entropy", []float64{-1000, 0}, 1, 0, 0},
		{"bce-with-logits", []float64{1000}, 0, 1000, 1},
		{"bce-with-logits", []float64{-1000}, 1, 1000, -1},
		{"bce-with-logits", []float64{20}, 1, 2.0611536203e-9, -2.0611536181e-9},
		{"bce-with-logits", []float64{-20}, 0, 2.0611536203e-9, 2.0611536181e-9},
	} {
		l, err := optim.FindLoss(c.loss)
		require.NoError(t, err)
		o := optim.NewLossOptions()
		scores := graph.TensorType{DType: graph.F32, Shape: []int64{1, int64(len(c.scores))}}
		labels, err := l.Labels(scores, o)
		require.NoError(t, err)
		x, _ := lossModel(t, l, scores, labels, o, 0)
		for i, v := range c.scores {
			put(graph.F32, x.streams["scores"], i, v)
		}
		put(labels.DType, x.streams["labels"], 0, c.label)
		x.run(5)
		require.InDelta(t, c.want, floats(x.streams["loss"])[0], 1e-5*c.want, "%v", c)
		require.InDelta(t, c.derivative, floats(x.streams["gradient"])[0], 1e-5*math.Abs(c.derivative), "%v", c)
	}
}

// TestBadLabels has labels that are none: they are named, and the run ends.
func TestBadLabels(t *testing.T) {
	for _, c := range []struct {
		loss   string
		scores []int64
		ignore bool
		at     int
		label  float64
		want   string
	}{
		{loss: "softmax-cross-entropy", scores: []int64{4, 3}, at: 2, label: 3, want: "label 2 is 3, want 0 to 2: check the labels"},
		{loss: "nll", scores: []int64{4, 3}, at: 0, label: -1, want: "label 0 is -1, want 0 to 2: check the labels"},
		{loss: "nll", scores: []int64{2, 3, 5}, at: 7, label: 9, ignore: true, want: "label [1,2] is 9, want 0 to 2, or -100 for one that does not count"},
		{loss: "bce-with-logits", scores: []int64{2, 3}, at: 4, label: 1.5, want: "label [1,1] is 1.5, want 0 to 1: check the labels"},
		{loss: "bce-with-logits", scores: []int64{3}, at: 1, label: math.NaN(), want: "label 1 is NaN, want 0 to 1"},
	} {
		l, err := optim.FindLoss(c.loss)
		require.NoError(t, err)
		o := optim.NewLossOptions()
		if c.ignore {
			o.Ignores, o.Ignore = true, -100
		}
		scores := graph.TensorType{DType: graph.F32, Shape: c.scores}
		labels, err := l.Labels(scores, o)
		require.NoError(t, err)
		x, _ := lossModel(t, l, scores, labels, o, 0)
		x.run(5)
		put(labels.DType, x.streams["labels"], c.at, c.label)
		var assertion *ipu.AssertionError
		require.ErrorAs(t, x.engine.Run(context.Background(), 5), &assertion)
		require.Contains(t, assertion.Message, c.want)
	}
}

func TestLossRefused(t *testing.T) {
	typ := func(d graph.DType, shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	scores, class := typ(graph.F32, 2, 3), typ(graph.I32, 2)
	for _, c := range []struct {
		loss           string
		scores, labels graph.TensorType
		weights        graph.TensorType
		change         func(o *optim.LossOptions)
		want           string
	}{
		{loss: "nll", scores: scores, labels: scores, want: "labels are f32[2,3], want i32[2] for scores of f32[2,3]"},
		{loss: "mse", scores: scores, labels: class, want: "labels are i32[2], want f32[2,3]"},
		{loss: "mse", scores: typ(graph.I32, 2), labels: class, want: "scores are i32[2], want f16, bf16, f32 or f64"},
		{loss: "nll", scores: typ(graph.F32, 2), labels: class, want: "classes are to be axis 1 of the scores, which are f32[2]"},
		{loss: "nll", scores: typ(graph.F32, 2, 0), labels: class, want: "at least one class"},
		{loss: "nll", scores: scores, labels: class, weights: typ(graph.F32, 2), want: "weights are f32[2], want one for each of 3 classes"},
		{loss: "bce-with-logits", scores: scores, labels: scores, weights: typ(graph.F32, 4, 2, 3), want: "weights are f32[4,2,3], want a shape that broadcasts"},
		{loss: "mse", scores: scores, labels: scores, weights: scores, want: "it has no weights"},
		{loss: "mse", scores: scores, labels: scores, change: func(o *optim.LossOptions) { o.Reduction = "most" }, want: `reduction is "most"`},
		{loss: "mse", scores: scores, labels: scores, change: func(o *optim.LossOptions) { o.Axis = 0 }, want: "but it has no classes"},
		{loss: "mse", scores: scores, labels: scores, change: func(o *optim.LossOptions) { o.Ignores = true }, want: "its labels are no classes"},
		{loss: "mse", scores: scores, labels: scores, change: func(o *optim.LossOptions) { o.Threshold = 2 }, want: "threshold is 2, but it has none"},
		{loss: "huber", scores: scores, labels: scores, change: func(o *optim.LossOptions) { o.Threshold = math.NaN() }, want: "threshold is NaN, want a finite"},
		{loss: "nll", scores: scores, labels: class, change: func(o *optim.LossOptions) { o.Ignores, o.Ignore = true, 1<<40 }, want: "labels of 1099511627776 are not to count"},
	} {
		b := graph.NewBuilder("refused")
		s, y := b.AddLocal("scores", c.scores), b.AddLocal("labels", c.labels)
		o := optim.NewLossOptions()
		if c.weights.DType != graph.Invalid {
			o.Weights = b.AddLocal("weights", c.weights)
		}
		if c.change != nil {
			c.change(&o)
		}
		b.BeginGraph("main")
		l, err := optim.FindLoss(c.loss)
		require.NoError(t, err)
		_, err = l.Add(b, "loss", s, y, o)
		require.ErrorContains(t, err, c.want, fmt.Sprint(c))
		require.ErrorContains(t, err, "loss "+c.loss+": ")
	}
	_, err := optim.FindLoss("cross")
	require.ErrorContains(t, err, `there is no loss "cross": choose one of softmax-cross-entropy, nll, mse`)
}
