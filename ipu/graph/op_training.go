package graph

import (
	"fmt"
	"slices"
)

// UpdateRule names how [Update] changes a weight.
type UpdateRule string

// The rules of Update. The formulas stand in the documentation of each; g is the gradient,
// w the weight.
const (
	// w ← w·weightDecayScaleFactor0 - scaledLearningRate0·g.
	UpdateSGD UpdateRule = "sgd"
	// v ← scaledMomentum2·v + dampeningScaleFactor2·g + scaledWeightDecay1·w, then w ← w - scaledLearningRate2·v.
	UpdateMomentum UpdateRule = "momentum"
	// v as with [UpdateMomentum], then
	// w ← w - scaledLearningRate2·(nesterovGradScaleFactor2·(nesterovDampeningScaleFactor2·dampeningScaleFactor2·g + sgdWeightDecay·w) + sgdMomentum·v).
	UpdateNesterov UpdateRule = "nesterov"
	// m ← b1·m + (1-b1)·g, v ← b2·v + (1-b2)·g²; x = (m/(1-b1^t))/(√(v/(1-b2^t)) + eps); w ← w - learningRate·x.
	UpdateAdam UpdateRule = "adam"
	// As [UpdateAdam] with v ← max(b2·v, |g|) and x = (m/(1-b1^t))/(v/(1-b2^t) + eps), as in PopART; other
	// libraries do not correct v.
	UpdateAdaMax UpdateRule = "adamax"
	// x as with [UpdateAdam]; w ← w - learningRate·min(‖w‖, maxWeightNorm)/‖x‖·x, where the quotient is 1 if
	// one of its parts is 0.
	UpdateLamb UpdateRule = "lamb"
	// v ← v + g²; x = g/(√v + eps); w ← w - learningRate·x.
	UpdateAdaGrad UpdateRule = "adagrad"
	// v ← a·v + (1-a)·g²; x = g/(√v + eps); w ← w - learningRate·x.
	UpdateRMSProp UpdateRule = "rmsprop"
	// As [UpdateRMSProp] with u ← a·u + (1-a)·g and √(v-u²) for √v.
	UpdateCentredRMSProp UpdateRule = "centred rmsprop"
	// v ← a·v + (1-a)·g²; x = g·√(u+eps)/√(v+eps); u ← a·u + (1-a)·x²; w ← w - learningRate·x.
	UpdateAdaDelta UpdateRule = "adadelta"
)

// Update is a step of an optimizer for one weight: it reads the weight, its gradient and what
// the optimizer remembers of it once each, and gives their new values, which an engine may write
// over the old ones (UpdateLamb, which needs norms, reads them twice). Formulas, defaults and names are PopART's.
//
// Operands: weight (F16, BF16, F32 or F64); gradient, of the weight's type and shape or F32; factor,
// one F32 that multiplies the gradient, for clipping by a norm; skip, one Bool: if it is true
// nothing changes; master, the weight in F32 where the weight itself is of half precision: it is what
// changes, and the weight becomes its rounded copy; then the states ([Update.States]), of the weight's shape or one
// element, F64 for a weight of F64, else F32; then one F32 for each of [Update.Scalars]. Factor, skip, master and
// any scalar may be left out; of a scalar that is, Values has the value.
//
// Results: weight, the states in the order of the operands, and master if there is one.
//
// The gradient comes multiplied by adamGradientScaling or adaptiveGradientScaling, if the rule names it.
// weightDecay·w is then added to the gradient, or, if Decoupled, to x. Arithmetic is that of the states' type.
type Update struct {
	Rule      UpdateRule
	Decoupled bool      // weight decay is added to the step x, not to the gradient: AdamW
	NoBias    bool      // Adam, AdaMax and Lamb: t is not counted, and moments are not divided by 1-b^t
	Momentum  bool      // AdaGrad, RMSProp and AdaDelta: u ← adaptiveMomentum·u + x takes the place of x
	InRoot    bool      // AdaGrad and RMSProp: √(v+eps) takes the place of √v + eps, as in TensorFlow
	Values    []float64 // of each scalar; 0 for those that are operands
}

// UpdateFixed is how many operands of an Update come before the states.
const UpdateFixed = 5

// updateRule is what the weights of a rule need.
type updateRule struct{ states, scalars []string }

var sgdScalars = []string{"scaledMomentum2", "dampeningScaleFactor2", "scaledWeightDecay1", "scaledLearningRate2"}
var adamScalars = []string{"learningRate", "weightDecay", "adamGradientScaling", "adamBeta1", "adamBeta2", "adamEps"}
var adaptiveScalars = []string{"learningRate", "weightDecay", "adaptiveGradientScaling", "adaptiveEps", "adaptiveAlpha"}

var updateRules = map[UpdateRule]updateRule{
	UpdateSGD:      {nil, []string{"weightDecayScaleFactor0", "scaledLearningRate0"}},
	UpdateMomentum: {[]string{"Accl"}, sgdScalars},
	UpdateNesterov: {[]string{"Accl"}, append(slices.Clone(sgdScalars),
		"nesterovDampeningScaleFactor2", "nesterovGradScaleFactor2", "sgdWeightDecay", "sgdMomentum")},
	UpdateAdam:           {[]string{"Accl1", "Accl2"}, adamScalars},
	UpdateAdaMax:         {[]string{"Accl1", "Accl2"}, adamScalars},
	UpdateLamb:           {[]string{"Accl1", "Accl2"}, append(slices.Clone(adamScalars), "maxWeightNorm")},
	UpdateAdaGrad:        {[]string{"Accl1"}, adaptiveScalars[:4]},
	UpdateRMSProp:        {[]string{"Accl1"}, adaptiveScalars},
	UpdateCentredRMSProp: {[]string{"Accl1", "Accl2"}, adaptiveScalars},
	UpdateAdaDelta:       {[]string{"Accl1", "Accl2"}, adaptiveScalars},
}

// UpdateStep is the state that counts the updates of a weight: one element, where
// all others have the weight's shape.
const UpdateStep = "Step"

func (o *Update) isAdam() bool {
	return o.Rule == UpdateAdam || o.Rule == UpdateAdaMax || o.Rule == UpdateLamb
}

func (o *Update) isAdaptive() bool {
	switch o.Rule {
	case UpdateAdaGrad, UpdateRMSProp, UpdateCentredRMSProp, UpdateAdaDelta:
		return true
	}
	return false
}

// States returns the names of what the rule remembers of a weight, in the order of the
// operands: Accl or Accl1 to Accl3 (the moments), [UpdateStep]. There are none for a rule that is not known.
func (o *Update) States() []string {
	s := slices.Clone(updateRules[o.Rule].states)
	if o.isAdam() && !o.NoBias {
		s = append(s, UpdateStep)
	}
	if o.isAdaptive() && o.Momentum {
		s = append(s, "Accl3")
	}
	return s
}

// Scalars returns the names of the numbers in the rule's formulas, in the order of the operands and of
// Values: PopART's prefixes of optimizer tensors. There are none for a rule that is not known.
func (o *Update) Scalars() []string {
	s := slices.Clone(updateRules[o.Rule].scalars)
	if o.isAdaptive() && o.Momentum {
		s = append(s, "adaptiveMomentum")
	}
	return s
}

// Kind returns "Update".
func (*Update) Kind() string { return "Update" }

// Infer implements [Op].
func (o *Update) Infer(in []TensorType) ([]TensorType, error) {
	if _, ok := updateRules[o.Rule]; !ok {
		return nil, fmt.Errorf("attribute Rule is %q, want sgd, momentum, nesterov, adam, adamax, lamb, adagrad, rmsprop, centred rmsprop or adadelta", string(o.Rule))
	}
	states, scalars := o.States(), o.Scalars()
	switch {
	case o.NoBias && !o.isAdam(), o.Momentum && !o.isAdaptive(), o.Decoupled && !o.isAdam() && !o.isAdaptive(),
		o.InRoot && (!o.isAdaptive() || o.Rule == UpdateAdaDelta):
		return nil, fmt.Errorf("attributes Decoupled, NoBias, Momentum and InRoot are %v, %v, %v and %v, which rule %s does not have",
			o.Decoupled, o.NoBias, o.Momentum, o.InRoot, o.Rule)
	case len(o.Values) != len(scalars):
		return nil, fmt.Errorf("attribute Values has %d numbers, want one for each scalar of rule %s: %v", len(o.Values), o.Rule, scalars)
	}
	names := slices.Concat([]string{"weight", "gradient", "factor?", "skip?", "master?"}, states)
	for _, s := range scalars {
		names = append(names, s+"?")
	}
	in, err := operands(in, names...)
	if err != nil {
		return nil, err
	}
	w, g := in[0], in[1]
	wide := TensorType{F32, w.Shape}
	if w.DType == F64 {
		wide.DType = F64
	}
	if err := floats.want("weight", w); err != nil {
		return nil, err
	}
	if !g.Equal(w) && !g.Equal(TensorType{F32, w.Shape}) {
		return nil, fmt.Errorf("gradient is %v, want the weight's type, %v, or f32", g, w)
	}
	one := func(name string, t TensorType, d DType) error {
		if present(t) && (t.DType != d || t.Elements() != 1) {
			return fmt.Errorf("%s is %v, want one element of type %v", name, t, d)
		}
		return nil
	}
	if err := firstError(one("factor", in[2], F32), one("skip", in[3], Bool)); err != nil {
		return nil, err
	}
	if m := in[4]; present(m) && (w.DType != F16 && w.DType != BF16 || !m.Equal(wide)) {
		return nil, fmt.Errorf("master is %v, want %v for a weight of half precision, and none for others: the weight is %v", m, wide, w)
	}
	out := []TensorType{w}
	for i, name := range states {
		t, want := in[UpdateFixed+i], wide
		if name == UpdateStep {
			err = one(name, t, F32)
		} else if !t.Equal(want) {
			err = fmt.Errorf("%s is %v, want %v", name, t, want)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	for i, name := range scalars {
		t := in[UpdateFixed+len(states)+i]
		if err := one(name, t, F32); err != nil {
			return nil, err
		}
		if present(t) && o.Values[i] != 0 {
			return nil, fmt.Errorf("attribute Values has %g for %s, which is an operand too, want one of them", o.Values[i], name)
		}
	}
	if present(in[4]) {
		out = append(out, in[4])
	}
	return results(out...)
}

// RandomFn names a distribution of [Random].
type RandomFn string

// The distributions of Random.
const (
	RandomBits    RandomFn = "bits"    // U32, each number as likely
	RandomUniform RandomFn = "uniform" // A + u·(B-A), u a multiple of 2^-24 from 0 to 1-2^-24; rounding may give B
	RandomNormal  RandomFn = "normal"  // of mean A and standard deviation B
)

// Random makes a tensor of Shape and type To of random numbers (F32 or, rounded from that, F16, BF16 or F64; U32 of RandomBits). Operands: seed, U32[2], and step, one I64.
//
// The numbers are a function of seed, step, Number and their place alone, the same on every machine: Philox4x32-10
// (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) with the seed as key and the counter
// (i/4, Number, low word of step, high word of step) gives the four words of the elements i to i+3. Two nodes
// with the same Number therefore draw the same, which is how what was drawn is recomputed, and those of different Numbers
// draw independently. Elements i and i+1 of a normal distribution, i even, are
// √(-2·ln u)·cos 2πv and √(-2·ln u)·sin 2πv with u = (⌊word/2⁸⌋+1)·2⁻²⁴ and v = ⌊word/2⁸⌋·2⁻²⁴ of their words.
type Random struct {
	Fn     RandomFn
	A, B   float64
	Number int64 // 0 to 2³²-1
	To     DType
	Shape  []int64
}

// maxRandom bounds the elements of a Random: four for each value of the counter's first word.
const maxRandom = 1 << 34

// Kind returns "Random".
func (*Random) Kind() string { return "Random" }

// Infer implements [Op].
func (o *Random) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "seed", "step")
	if err != nil {
		return nil, err
	}
	if in[0].DType != U32 || in[0].Elements() != 2 {
		return nil, fmt.Errorf("seed is %v, want u32[2]", in[0])
	}
	if in[1].DType != I64 || in[1].Elements() != 1 {
		return nil, fmt.Errorf("step is %v, want one element of type i64", in[1])
	}
	out, err := results(TensorType{o.To, o.Shape})
	if err != nil {
		return nil, err
	}
	switch {
	case out[0].Elements() > maxRandom:
		return nil, fmt.Errorf("attribute Shape is %s, want at most 2^34 elements", ShapeString(o.Shape))
	case o.Number < 0 || o.Number >= 1<<32:
		return nil, fmt.Errorf("attribute Number is %d, want 0 to 2^32-1", o.Number)
	case o.Fn == RandomBits && (o.To != U32 || o.A != 0 || o.B != 0):
		return nil, fmt.Errorf("attributes To, A and B of bits are %v, %g and %g, want u32, 0 and 0", o.To, o.A, o.B)
	case o.Fn == RandomBits:
		return out, nil
	case o.Fn != RandomUniform && o.Fn != RandomNormal:
		return nil, fmt.Errorf("attribute Fn is %q, want bits, uniform or normal", string(o.Fn))
	}
	return out, floats.want("the result", out[0])
}
