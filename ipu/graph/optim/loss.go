package optim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Reduction says what a loss makes of the losses of all places.
type Reduction string

// The reductions, with ONNX's and PyTorch's names.
const (
	Mean Reduction = "mean" // of the places, or over the sum of the weights of the labels that count; no number if none does
	Sum  Reduction = "sum"
	None Reduction = "none"
)

// LossOptions are what a loss can be asked for. Use [NewLossOptions].
type LossOptions struct {
	Reduction Reduction
	// Axis is the axis of the classes in the scores of "softmax-cross-entropy" and "nll"; a negative one counts from
	// the end.
	Axis int64
	// Ignores says that labels of the value Ignore do not count: their loss is 0, and a mean is over the others. For the same
	// two losses.
	Ignores bool
	Ignore  int64
	// Weights are graph.None, or multiply: the losses of each class of the same two losses, a tensor of one dimension with a
	// number for each class; the losses of the labels of 1 of "bce-with-logits" (PyTorch's pos_weight), one that the scores' shape broadcasts.
	Weights graph.TensorID
	// Threshold is the distance at which "smooth-l1" (PyTorch's beta) and "huber" (its delta) go from a square to a line; more than 0.
	Threshold float64
}

// NewLossOptions returns the defaults, those of ONNX and PyTorch: the mean, classes in axis 1, all labels count, no weights, a threshold of 1.
func NewLossOptions() LossOptions {
	return LossOptions{Reduction: Mean, Axis: 1, Weights: graph.None, Threshold: 1}
}

// Loss is a kind of loss: a number for each place, from the scores that a model computes and the labels that are fed.
type Loss struct {
	Name    string
	Formula string // of one place, x being the score and y the label
	classes bool   // labels are classes, and have no axis for them
	build   func(e *emitter, c *lossCase) (loss, weights graph.TensorID)
	takes   string // what of Weights, Ignore, Axis and Threshold it has
}

// lossCase is what a loss is built from, in arithmetic of at least float32.
type lossCase struct {
	LossOptions
	x, y graph.TensorID
	t    graph.DType
}

var losses = []Loss{
	{"softmax-cross-entropy", "-log softmax(x)[y]", true, (*emitter).softmaxCrossEntropy, "Weights Ignore Axis"},
	{"nll", "-x[y], x being logarithms of probabilities", true, (*emitter).likelihood, "Weights Ignore Axis"},
	{"mse", "(x-y)²", false, (*emitter).squared, ""},
	{"l1", "|x-y|", false, (*emitter).absolute, ""},
	{"smooth-l1", "(x-y)²/2t if |x-y| < t, else |x-y| - t/2", false, (*emitter).smooth, "Threshold"},
	{"huber", "(x-y)²/2 if |x-y| < t, else t·(|x-y| - t/2)", false, (*emitter).huber, "Threshold"},
	{"bce-with-logits", "-y·log σ(x) - (1-y)·log(1-σ(x)), σ being the sigmoid", false, (*emitter).binaryCrossEntropy, "Weights"},
}

// Losses returns all losses.
func Losses() []Loss { return slices.Clone(losses) }

// FindLoss returns the loss of that name. Its error lists the names that there are.
func FindLoss(name string) (Loss, error) {
	var names []string
	for _, l := range losses {
		if l.Name == name {
			return l, nil
		}
		names = append(names, l.Name)
	}
	return Loss{}, fmt.Errorf("there is no loss %q: choose one of %s", name, strings.Join(names, ", "))
}

// Labels returns the type of the labels for scores of a type: of losses of classes, I32 without the scores' axis of classes, from 0 to
// the number of classes - 1 (I64 is taken as well); of all others, numbers of the scores' shape, F64 for scores of F64, else F32 (the scores' own type is
// taken as well).
func (l Loss) Labels(scores graph.TensorType, o LossOptions) (graph.TensorType, error) {
	if !scores.DType.IsFloat() || scores.DType.Size() < 2 {
		return graph.TensorType{}, fmt.Errorf("loss %s: scores are %v, want f16, bf16, f32 or f64", l.Name, scores)
	}
	if !l.classes {
		return graph.TensorType{DType: wide(scores.DType), Shape: slices.Clone(scores.Shape)}, nil
	}
	axis, err := l.axis(scores, o)
	if err != nil {
		return graph.TensorType{}, err
	}
	return graph.TensorType{DType: graph.I32, Shape: slices.Delete(slices.Clone(scores.Shape), axis, axis+1)}, nil
}

func (l Loss) axis(scores graph.TensorType, o LossOptions) (int, error) {
	rank, axis := int64(scores.Rank()), o.Axis
	if axis < 0 {
		axis += rank
	}
	if rank < 1 || axis < 0 || axis >= rank {
		return 0, fmt.Errorf("loss %s: classes are to be axis %d of the scores, which are %v, want an axis that they have", l.Name, o.Axis, scores)
	}
	if scores.Shape[axis] < 1 {
		return 0, fmt.Errorf("loss %s: scores are %v, want at least one class in axis %d", l.Name, scores, axis)
	}
	return int(axis), nil
}

// wide returns the type in which losses are computed and returned: half precision would lose what a mean over many is made of.
func wide(t graph.DType) graph.DType {
	if t == graph.F64 {
		return t
	}
	return graph.F32
}

// check reports an option that the loss does not have, or whose value is none.
func (l Loss) check(o LossOptions) error {
	has := func(option string) bool { return strings.Contains(l.takes, option) }
	switch {
	case o.Reduction != Mean && o.Reduction != Sum && o.Reduction != None:
		return fmt.Errorf("loss %s: reduction is %q, want mean, sum or none", l.Name, string(o.Reduction))
	case o.Axis != 1 && !has("Axis"):
		return fmt.Errorf("loss %s: classes are to be axis %d of the scores, but it has no classes", l.Name, o.Axis)
	case o.Ignores && !has("Ignore"):
		return fmt.Errorf("loss %s: labels of %d are not to count, but its labels are no classes", l.Name, o.Ignore)
	case o.Weights != graph.None && !has("Weights"):
		return fmt.Errorf("loss %s: it has no weights", l.Name)
	case o.Threshold != 1 && !has("Threshold"):
		return fmt.Errorf("loss %s: the threshold is %g, but it has none", l.Name, o.Threshold)
	case !(o.Threshold > 0) || o.Threshold-o.Threshold != 0:
		return fmt.Errorf("loss %s: the threshold is %g, want a finite number of more than 0", l.Name, o.Threshold)
	}
	return nil
}

// Add appends the loss to the current graph and returns it: F64 for scores of F64, else F32; of the labels' shape, or of no
// dimensions if it is reduced. A label that is no class, or, of "bce-with-logits", not from 0 to 1, ends the run with an error that names its
// place and value.
func (l Loss) Add(b *graph.Builder, name string, scores, labels graph.TensorID, o LossOptions) (graph.TensorID, error) {
	x, y := b.Type(scores), b.Type(labels)
	want, err := l.Labels(x, o)
	if err != nil {
		return graph.None, fmt.Errorf("%q: %w", name, err)
	}
	if err := l.check(o); err != nil {
		return graph.None, fmt.Errorf("%q: %w", name, err)
	}
	fits := y.DType == want.DType || l.classes && y.DType == graph.I64 || !l.classes && y.DType == x.DType
	if !fits || !slices.Equal(y.Shape, want.Shape) {
		return graph.None, fmt.Errorf("%q: loss %s: labels are %v, want %v for scores of %v", name, l.Name, y, want, x)
	}
	e := &emitter{b: b, name: name}
	c := &lossCase{LossOptions: o, y: labels, t: wide(x.DType)}
	c.x = e.cast(scores, c.t)
	if l.classes {
		axis, _ := l.axis(x, o)
		c.Axis = int64(axis)
	} else {
		c.y = e.cast(labels, c.t)
	}
	loss, weights := l.build(e, c)
	switch {
	case e.err != nil:
	case o.Reduction == Sum:
		loss = e.reduce(loss, graph.ReduceSum)
	case o.Reduction == Mean && weights == graph.None:
		loss = e.reduce(loss, graph.ReduceMean)
	case o.Reduction == Mean:
		loss = e.binary(graph.Div, e.reduce(loss, graph.ReduceSum), e.reduce(weights, graph.ReduceSum))
	}
	if e.err != nil {
		return graph.None, fmt.Errorf("%q: loss %s: %w", name, l.Name, e.err)
	}
	return loss, nil
}

func (e *emitter) softmaxCrossEntropy(c *lossCase) (loss, weights graph.TensorID) {
	c.x = e.node(&graph.Softmax{Axis: c.Axis, Log: true}, c.x)
	return e.likelihood(c)
}

// likelihood returns the losses of all places and their weights, which the mean is over, if not all are 1.
func (e *emitter) likelihood(c *lossCase) (loss, weights graph.TensorID) {
	t, classes := e.b.Type(c.y), e.b.Type(c.x).Shape[c.Axis]
	check := &graph.AssertLabels{Classes: classes, Ignores: c.Ignores}
	counts, y := graph.None, c.y
	weights = graph.None
	if c.Ignores {
		check.Ignore = c.Ignore
	}
	e.node(check, y)
	if c.Ignores {
		if int64(int32(c.Ignore)) != c.Ignore && t.DType == graph.I32 {
			e.err = fmt.Errorf("labels of %d are not to count, but labels are %v and can't be that", c.Ignore, t)
		}
		counts = e.node(&graph.Unary{Fn: graph.Not}, e.binary(graph.Equal, y, e.integer(t.DType, c.Ignore)))
		y = e.node(&graph.Where{}, counts, y, e.integer(t.DType, 0))
	}
	at := e.node(&graph.Reshape{Shape: slices.Insert(slices.Clone(t.Shape), int(c.Axis), 1)}, y)
	loss = e.node(&graph.GatherElements{Axis: c.Axis}, c.x, at)
	loss = e.node(&graph.Unary{Fn: graph.Neg}, e.node(&graph.Reshape{Shape: t.Shape}, loss))
	if c.Weights != graph.None {
		if w := e.b.Type(c.Weights); e.err == nil && (w.Rank() != 1 || w.Shape[0] != classes) {
			e.err = fmt.Errorf("weights are %v, want one for each of %d classes", w, classes)
		}
		weights = e.node(&graph.Gather{}, e.cast(c.Weights, c.t), y)
		loss = e.binary(graph.Mul, loss, weights)
	}
	if c.Ignores {
		zero := e.number(c.t, 0)
		loss = e.node(&graph.Where{}, counts, loss, zero)
		if weights == graph.None {
			weights = e.number(c.t, 1)
		}
		weights = e.node(&graph.Where{}, counts, weights, zero)
	}
	return loss, weights
}

func (e *emitter) squared(c *lossCase) (loss, weights graph.TensorID) {
	d := e.binary(graph.Sub, c.x, c.y)
	return e.binary(graph.Mul, d, d), graph.None
}

func (e *emitter) absolute(c *lossCase) (loss, weights graph.TensorID) {
	return e.node(&graph.Unary{Fn: graph.Abs}, e.binary(graph.Sub, c.x, c.y)), graph.None
}

// huber is q·(a - q/2) where a is the distance and q what of it is below the threshold.
func (e *emitter) huber(c *lossCase) (loss, weights graph.TensorID) {
	a, _ := e.absolute(c)
	q := e.binary(graph.Min, a, e.number(c.t, c.Threshold))
	return e.binary(graph.Mul, q, e.binary(graph.Sub, a, e.binary(graph.Mul, q, e.number(c.t, 0.5)))), graph.None
}

func (e *emitter) smooth(c *lossCase) (loss, weights graph.TensorID) {
	loss, _ = e.huber(c)
	if c.Threshold != 1 {
		loss = e.binary(graph.Mul, loss, e.number(c.t, 1/c.Threshold))
	}
	return loss, graph.None
}

// binaryCrossEntropy is (1-y)·softplus(x) + w·y·softplus(-x): neither term is a difference of large numbers.
func (e *emitter) binaryCrossEntropy(c *lossCase) (loss, weights graph.TensorID) {
	e.node(&graph.AssertLabels{Classes: 2}, c.y)
	softplus := func(x graph.TensorID) graph.TensorID { return e.node(&graph.Unary{Fn: graph.Softplus}, x) }
	yes := e.binary(graph.Mul, c.y, softplus(e.node(&graph.Unary{Fn: graph.Neg}, c.x)))
	no := e.binary(graph.Mul, e.binary(graph.Sub, e.number(c.t, 1), c.y), softplus(c.x))
	if c.Weights != graph.None {
		yes = e.binary(graph.Mul, yes, e.cast(c.Weights, c.t))
		if s := e.b.Type(yes).Shape; e.err == nil && !slices.Equal(s, e.b.Type(c.x).Shape) {
			e.err = fmt.Errorf("weights are %v, want a shape that broadcasts to that of the scores, %v", e.b.Type(c.Weights), e.b.Type(c.x))
		}
	}
	return e.binary(graph.Add, no, yes), graph.None
}
