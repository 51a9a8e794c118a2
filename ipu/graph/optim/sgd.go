package optim

import "github.com/popefgen/popefgen/ipu/graph"

// SGD is stochastic gradient descent. With momentum, a weight has the state Accl (PopART's separate tensors of
// accumulator and momentum); a momentum that is constant and 0 needs none. Formulas are those of [graph.UpdateSGD], [graph.UpdateMomentum]
// and [graph.UpdateNesterov] with
//
//	weightDecayScaleFactor0       1 - lr·(1-dm)·wd
//	scaledLearningRate0           lr·(1-dm)/(ls·af)
//	scaledWeightDecay1            (1-dm)·wd·vs
//	dampeningScaleFactor2         (1-dm)·vs/(ls·af)
//	scaledLearningRate2           lr/vs
//	scaledMomentum2, sgdMomentum  mm
//	nesterovDampeningScaleFactor2 1/((1-dm)·vs)
//	nesterovGradScaleFactor2      vs
//	sgdWeightDecay                wd
//
// where af is the divisor of the gradients. PopART does not divide by af in Nesterov's step; dividing is what the mean means.
type SGD struct {
	LearningRate    Values // lr
	WeightDecay     Values // wd
	Momentum        Values // mm
	Dampening       Values // dm
	VelocityScaling Values // vs
	LossScaling     Values // ls
	Nesterov        bool
}

// NewSGD returns PopART's defaults, all constant: learning rate 0.1; velocity and loss scaling 1; all else 0.
func NewSGD() SGD {
	return SGD{LearningRate: Const(0.1), WeightDecay: Const(0), Momentum: Const(0), Dampening: Const(0), VelocityScaling: Const(1), LossScaling: Const(1)}
}

// Kind returns "SGD" or "SGD with Nesterov momentum".
func (o SGD) Kind() string {
	if o.Nesterov {
		return "SGD with Nesterov momentum"
	}
	return "SGD"
}

func (o SGD) settings() []setting {
	return []setting{
		{"learning rate", o.LearningRate, notNegative, "0 or more"}, {"weight decay", o.WeightDecay, notNegative, "0 or more"},
		{"momentum", o.Momentum, notNegative, "0 or more"}, {"dampening", o.Dampening, nil, ""},
		{"velocity scaling", o.VelocityScaling, positive, "more than 0"}, {"loss scaling", o.LossScaling, positive, "more than 0"},
	}
}

func (o SGD) operator(weight string) *graph.Update {
	mm, _ := o.Momentum.Of(weight)
	switch {
	case mm.Const && mm.V == 0 && !o.Nesterov:
		return &graph.Update{Rule: graph.UpdateSGD}
	case o.Nesterov:
		return &graph.Update{Rule: graph.UpdateNesterov}
	}
	return &graph.Update{Rule: graph.UpdateMomentum}
}

func (o SGD) scalar(name string, m *mix, af float32) float32 {
	switch name {
	case "weightDecayScaleFactor0":
		return 1 - m.of(o.LearningRate)*(1-m.of(o.Dampening))*m.of(o.WeightDecay)
	case "scaledLearningRate0":
		return m.of(o.LearningRate) * (1 - m.of(o.Dampening)) / (m.of(o.LossScaling) * af)
	case "scaledWeightDecay1":
		return (1 - m.of(o.Dampening)) * m.of(o.WeightDecay) * m.of(o.VelocityScaling)
	case "dampeningScaleFactor2":
		return (1 - m.of(o.Dampening)) * m.of(o.VelocityScaling) / (m.of(o.LossScaling) * af)
	case "scaledLearningRate2":
		return m.of(o.LearningRate) / m.of(o.VelocityScaling)
	case "scaledMomentum2", "sgdMomentum":
		return m.of(o.Momentum)
	case "nesterovDampeningScaleFactor2":
		return 1 / ((1 - m.of(o.Dampening)) * m.of(o.VelocityScaling))
	case "nesterovGradScaleFactor2":
		return m.of(o.VelocityScaling)
	case "sgdWeightDecay":
		return m.of(o.WeightDecay)
	}
	return m.of(o.LossScaling)
}
