package optim

import "github.com/popefgen/popefgen/ipu/graph"

// Adam is the family of optimizers with two moments, the states Accl1 and Accl2, and a counter of steps, Step, unless NoBias. Formulas
// are those of [graph.UpdateAdam], [graph.UpdateAdaMax] and [graph.UpdateLamb].
type Adam struct {
	LearningRate  Values
	WeightDecay   Values
	Beta1, Beta2  Values
	Eps           Values
	MaxWeightNorm Values // Lamb alone
	LossScaling   Values
	// Rule is UpdateAdam (also if empty), UpdateAdaMax or UpdateLamb.
	Rule graph.UpdateRule
	// L2 adds weight decay to the gradient; else it is added to the step, as AdamW does.
	L2 bool
	// NoBias leaves out the correction of the moments of the first steps.
	NoBias bool
}

// NewAdam returns PopART's defaults, all constant: learning rate 0.1, no weight decay, β1 0.9, β2 0.999, ε 10⁻⁶, maximal weight
// norm 10, loss scaling 1, weight decay added to the step.
func NewAdam() Adam {
	return Adam{LearningRate: Const(0.1), WeightDecay: Const(0), Beta1: Const(0.9), Beta2: Const(0.999), Eps: Const(1e-6), MaxWeightNorm: Const(10), LossScaling: Const(1)}
}

// Kind returns the name of the rule, with "L2" and "without bias correction" where that is so.
func (o Adam) Kind() string {
	kind := map[graph.UpdateRule]string{graph.UpdateAdaMax: "AdaMax", graph.UpdateLamb: "Lamb"}[o.Rule]
	if kind == "" {
		kind = "Adam"
	}
	if o.L2 {
		kind += " with L2 weight decay"
	}
	if o.NoBias {
		kind += " without bias correction"
	}
	return kind
}

func (o Adam) settings() []setting {
	return []setting{
		{"learning rate", o.LearningRate, notNegative, "0 or more"}, {"weight decay", o.WeightDecay, notNegative, "0 or more"},
		{"beta1", o.Beta1, part, "0 or more and less than 1"}, {"beta2", o.Beta2, part, "0 or more and less than 1"},
		{"eps", o.Eps, notNegative, "0 or more"}, {"maximal weight norm", o.MaxWeightNorm, notNegative, "0 or more"},
		{"loss scaling", o.LossScaling, positive, "more than 0"},
	}
}

func (o Adam) operator(string) *graph.Update {
	rule := o.Rule
	if rule == "" {
		rule = graph.UpdateAdam
	}
	return &graph.Update{Rule: rule, Decoupled: !o.L2, NoBias: o.NoBias}
}

func (o Adam) scalar(name string, m *mix, af float32) float32 {
	switch name {
	case "learningRate":
		return m.of(o.LearningRate)
	case "weightDecay":
		return m.of(o.WeightDecay)
	case "adamBeta1":
		return m.of(o.Beta1)
	case "adamBeta2":
		return m.of(o.Beta2)
	case "adamEps":
		return m.of(o.Eps)
	case "maxWeightNorm":
		return m.of(o.MaxWeightNorm)
	case "adamGradientScaling":
		return 1 / (m.of(o.LossScaling) * af)
	}
	return m.of(o.LossScaling)
}

// Adaptive is the family of optimizers that divide by a root of squared gradients: AdaGrad, RMSProp, its centred form, and
// AdaDelta, with the states Accl1, Accl2 (centred RMSProp, AdaDelta) and, unless momentum is constant and 0, Accl3. Formulas are those of
// [graph.UpdateAdaGrad] and the rules after it.
type Adaptive struct {
	LearningRate Values
	WeightDecay  Values
	Alpha        Values // how much of the average of squares stays; AdaGrad has none
	Eps          Values
	Momentum     Values
	LossScaling  Values
	// Rule is UpdateAdaGrad, UpdateRMSProp (also if empty), UpdateCentredRMSProp or UpdateAdaDelta.
	Rule graph.UpdateRule
	// L2 adds weight decay to the gradient; else it is added to the step.
	L2 bool
	// TensorFlow adds ε below the root; else it is added to the root. AdaDelta always adds it below. PopART's variant of that name
	// also has the learning rate in Accl3, where there is momentum; here it is outside, which differs once it is changed.
	TensorFlow bool
}

// NewAdaptive returns PopART's defaults, all constant: learning rate 0.01, no weight decay, α 0.99, ε 10⁻⁶, no momentum, loss scaling 1.
func NewAdaptive(rule graph.UpdateRule) Adaptive {
	return Adaptive{LearningRate: Const(0.01), WeightDecay: Const(0), Alpha: Const(0.99), Eps: Const(1e-6), Momentum: Const(0), LossScaling: Const(1), Rule: rule}
}

// Kind returns the name of the rule, with the variant where there is one.
func (o Adaptive) Kind() string {
	kind := map[graph.UpdateRule]string{graph.UpdateAdaGrad: "AdaGrad", graph.UpdateCentredRMSProp: "centred RMSProp", graph.UpdateAdaDelta: "AdaDelta"}[o.Rule]
	if kind == "" {
		kind = "RMSProp"
	}
	if o.L2 {
		kind += " with L2 weight decay"
	}
	if o.TensorFlow {
		kind += " with eps below the root"
	}
	return kind
}

func (o Adaptive) settings() []setting {
	return []setting{
		{"learning rate", o.LearningRate, notNegative, "0 or more"}, {"weight decay", o.WeightDecay, notNegative, "0 or more"},
		{"alpha", o.Alpha, part, "0 or more and less than 1"}, {"eps", o.Eps, notNegative, "0 or more"},
		{"momentum", o.Momentum, notNegative, "0 or more"}, {"loss scaling", o.LossScaling, positive, "more than 0"},
	}
}

func (o Adaptive) operator(weight string) *graph.Update {
	rule := o.Rule
	if rule == "" {
		rule = graph.UpdateRMSProp
	}
	mm, _ := o.Momentum.Of(weight)
	return &graph.Update{Rule: rule, Decoupled: !o.L2, InRoot: o.TensorFlow && rule != graph.UpdateAdaDelta, Momentum: !mm.Const || mm.V != 0}
}

func (o Adaptive) scalar(name string, m *mix, af float32) float32 {
	switch name {
	case "learningRate":
		return m.of(o.LearningRate)
	case "weightDecay":
		return m.of(o.WeightDecay)
	case "adaptiveAlpha":
		return m.of(o.Alpha)
	case "adaptiveEps":
		return m.of(o.Eps)
	case "adaptiveMomentum":
		return m.of(o.Momentum)
	case "adaptiveGradientScaling":
		return 1 / (m.of(o.LossScaling) * af)
	}
	return m.of(o.LossScaling)
}
