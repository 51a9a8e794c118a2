package ops

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/rt/popxl"
)

// Label is a constraint: the types of labels that are classes.
type Label interface{ int32 | int64 }

// LossOption is an option of a loss.
type LossOption func(*optim.LossOptions)

// Reduce makes a loss the sum of the losses of all places ([optim.Sum]), or leaves them as they are ([optim.None]), in place of their mean.
func Reduce(r optim.Reduction) LossOption { return func(o *optim.LossOptions) { o.Reduction = r } }

// IgnoreIndex leaves places with this label out: their loss is 0, and a mean is over the others.
func IgnoreIndex(label int64) LossOption {
	return func(o *optim.LossOptions) { o.Ignores, o.Ignore = true, label }
}

func loss[T popxl.Scores, L popxl.Element](call, kind string, axis int64, scores popxl.Tensor[T], labels popxl.Tensor[L], opts []LossOption) popxl.Tensor[float32] {
	o := optim.NewLossOptions()
	o.Axis = axis
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	l, err := optim.FindLoss(kind)
	if err != nil {
		return popxl.Fail[float32](scores.Ir(), call, err)
	}
	return popxl.Loss(call, l, scores, labels, o)
}

// NLLLoss returns the negative log likelihood -log p[y], p being probabilities along the last axis of probs, such as [Softmax] gives, and y the
// labels, of the shape of probs without that axis. The mean of all places unless an option says otherwise. [SoftmaxCrossEntropy] of what goes into the softmax is more exact.
func NLLLoss[T popxl.Scores, L Label](probs popxl.Tensor[T], labels popxl.Tensor[L], opts ...LossOption) popxl.Tensor[float32] {
	logarithms := popxl.Apply[T]("ops.NLLLoss", &graph.Unary{Fn: graph.Log}, probs)
	return loss("ops.NLLLoss", "nll", -1, logarithms, labels, opts)
}

// SoftmaxCrossEntropy returns -log softmax(x)[y], x being scores along the last axis and y the labels, of the shape of scores without that axis. The
// mean of all places unless an option says otherwise.
func SoftmaxCrossEntropy[T popxl.Scores, L Label](scores popxl.Tensor[T], labels popxl.Tensor[L], opts ...LossOption) popxl.Tensor[float32] {
	return loss("ops.SoftmaxCrossEntropy", "softmax-cross-entropy", -1, scores, labels, opts)
}

// MSELoss returns the squared error (x-y)² of predictions x and labels y of one shape: the mean of all places unless an option says otherwise.
func MSELoss[T popxl.Scores](predictions, labels popxl.Tensor[T], opts ...LossOption) popxl.Tensor[float32] {
	return loss("ops.MSELoss", "mse", 1, predictions, labels, opts)
}

// NLLLossWithSoftmaxGrad returns [NLLLoss] of probabilities that are the [Softmax] of scores, and the gradient of the scores, (probs - onehot(labels))·lossGrad, of a mean divided by the number of places that
// count, and 0 for a place that is ignored. lossGrad is a scalar, or with [optim.None] of the labels' shape. It is what goes back through both at once, without dividing by a probability.
func NLLLossWithSoftmaxGrad[T popxl.Scores, L Label](probs popxl.Tensor[T], labels popxl.Tensor[L], lossGrad popxl.Tensor[float32], opts ...LossOption) (popxl.Tensor[float32], popxl.Tensor[T]) {
	const call = "ops.NLLLossWithSoftmaxGrad"
	l := NLLLoss(probs, labels, opts...)
	if !l.Valid() || !lossGrad.Valid() {
		return l, popxl.Failed[T](probs.Ir())
	}
	o := optim.NewLossOptions()
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	ir, shape := probs.Ir(), probs.Shape()
	one := func(v float32) popxl.Tensor[float32] { return popxl.Constant(ir, []float32{v}, 1) }
	values := popxl.Apply[float32](call, &graph.Concat{}, one(0), one(1))
	hot := popxl.Apply[float32](call, &graph.OneHot{Axis: int64(len(shape) - 1), Depth: shape[len(shape)-1]}, labels, values)
	d := popxl.Apply[float32](call, &graph.Binary{Fn: graph.Sub}, popxl.Apply[float32](call, &graph.Cast{To: graph.F32}, probs), hot)
	counts := popxl.Apply[float32](call, &graph.Expand{Shape: append(labels.Shape(), 1)}, one(1))
	if o.Ignores {
		same := popxl.Apply[bool](call, &graph.Binary{Fn: graph.Equal}, labels, popxl.Constant(ir, []L{L(o.Ignore)}))
		counts = popxl.Apply[float32](call, &graph.Where{}, popxl.Apply[bool](call, &graph.Reshape{Shape: counts.Shape()}, same), one(0), counts)
	}
	if o.Reduction == optim.Mean {
		all := popxl.Apply[float32](call, &graph.Reduce{Fn: graph.ReduceSum, Axes: upTo(len(counts.Shape()))}, counts)
		lossGrad = popxl.Apply[float32](call, &graph.Binary{Fn: graph.Div}, lossGrad, all)
	}
	if o.Reduction == optim.None {
		lossGrad = popxl.Apply[float32](call, &graph.Reshape{Shape: append(lossGrad.Shape(), 1)}, lossGrad)
	}
	d = popxl.Apply[float32](call, &graph.Binary{Fn: graph.Mul}, d, popxl.Apply[float32](call, &graph.Binary{Fn: graph.Mul}, counts, lossGrad))
	return l, popxl.Apply[T](call, &graph.Cast{To: popxl.TypeOf[T]()}, d)
}
