package popart

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx/train"
)

// Value is a number of an optimizer: [Var] or [Const]. The zero Value is PopART's default, which is constant.
type Value struct {
	given bool
	of    optim.Values
}

// Var is a number that UpdateOptimizer may change (PopART's isConst = false).
func Var(v float32) Value { return Value{true, optim.Changeable(v)} }

// Const is a number that is part of the executable.
func Const(v float32) Value { return Value{true, optim.Const(v)} }

// For returns v with another number for the weights that a pattern of path.Match matches.
func (v Value) For(pattern string, number float32, constant bool) Value {
	return Value{true, v.of.With(pattern, optim.Value{V: number, Const: constant})}
}

func set(to *optim.Values, v Value) {
	if v.given {
		*to = v.of
	}
}

// Optimizer is [SGD], [Adam] or [Adaptive].
type Optimizer interface{ rule() optim.Optimizer }

// SGD is stochastic gradient descent, with PopART's names. Defaults: learning rate 0.1, velocity and loss scaling 1, all else 0.
type SGD struct {
	LearningRate, WeightDecay, Momentum, Dampening, VelocityScaling, LossScaling Value
	Nesterov                                                                     bool
}

// ConstSGD is SGD with a constant learning rate.
func ConstSGD(learningRate float32) SGD { return SGD{LearningRate: Const(learningRate)} }

func (o SGD) rule() optim.Optimizer {
	r := optim.NewSGD()
	set(&r.LearningRate, o.LearningRate)
	set(&r.WeightDecay, o.WeightDecay)
	set(&r.Momentum, o.Momentum)
	set(&r.Dampening, o.Dampening)
	set(&r.VelocityScaling, o.VelocityScaling)
	set(&r.LossScaling, o.LossScaling)
	r.Nesterov = o.Nesterov
	return r
}

// Adam is the family of optimizers with two moments. Defaults: learning rate 0.1, β1 0.9, β2 0.999, ε 10⁻⁶, maximal weight norm 10, loss scaling 1, no weight decay.
type Adam struct {
	LearningRate, WeightDecay, Beta1, Beta2, Eps, MaxWeightNorm, LossScaling Value
	Rule                                                                     graph.UpdateRule // UpdateAdam (also if empty), UpdateAdaMax or UpdateLamb
	L2, NoBias                                                               bool             // as those of [optim.Adam]
}

func (o Adam) rule() optim.Optimizer {
	r := optim.NewAdam()
	set(&r.LearningRate, o.LearningRate)
	set(&r.WeightDecay, o.WeightDecay)
	set(&r.Beta1, o.Beta1)
	set(&r.Beta2, o.Beta2)
	set(&r.Eps, o.Eps)
	set(&r.MaxWeightNorm, o.MaxWeightNorm)
	set(&r.LossScaling, o.LossScaling)
	r.Rule, r.L2, r.NoBias = o.Rule, o.L2, o.NoBias
	return r
}

// Adaptive is AdaGrad, RMSProp, its centred form or AdaDelta. Defaults: learning rate 0.01, α 0.99, ε 10⁻⁶, loss scaling 1, no weight decay, no momentum.
type Adaptive struct {
	LearningRate, WeightDecay, Alpha, Eps, Momentum, LossScaling Value
	Rule                                                         graph.UpdateRule // as that of [optim.Adaptive]
	L2, TensorFlow                                               bool             // likewise
}

func (o Adaptive) rule() optim.Optimizer {
	r := optim.NewAdaptive(o.Rule)
	set(&r.LearningRate, o.LearningRate)
	set(&r.WeightDecay, o.WeightDecay)
	set(&r.Alpha, o.Alpha)
	set(&r.Eps, o.Eps)
	set(&r.Momentum, o.Momentum)
	set(&r.LossScaling, o.LossScaling)
	r.L2, r.TensorFlow = o.L2, o.TensorFlow
	return r
}

// TrainingLoss is [Loss], [Nll] or [LossOf].
type TrainingLoss interface{ loss() train.Loss }

// Loss is an output of the model, of one element, that is the loss.
type Loss string

func (l Loss) loss() train.Loss { return train.Loss{Kind: "output", Output: string(l)} }

// Nll is the mean cross-entropy of an output that a Softmax ends in, or of scores, with labels: an input that the model gets. Its loss is the anchor "loss".
type Nll struct {
	Output string
	Label  string // name of the input with the classes; empty stands for "labels"
	Ignore *int64 // a label that does not count
}

func (l Nll) loss() train.Loss {
	return train.Loss{Kind: "cross-entropy", Output: l.Output, Labels: l.Label, Ignore: l.Ignore}
}

// LossOf is any loss that package onnx/train knows.
type LossOf train.Loss

func (l LossOf) loss() train.Loss { return train.Loss(l) }
