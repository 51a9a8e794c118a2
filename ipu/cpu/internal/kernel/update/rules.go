package update

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// loops are the operations on blocks, each of which rounds every element once. dst may be an operand.
type loops[T tensor.Float] struct {
	add, sub, mul, div, max func(dst, a, b []T)
	sqrt, abs               func(dst, x []T)
}

func newLoops[T tensor.Float]() loops[T] {
	return loops[T]{
		add: vec.FloatBinary[T](graph.Add), sub: vec.FloatBinary[T](graph.Sub), mul: vec.FloatBinary[T](graph.Mul),
		div: vec.FloatBinary[T](graph.Div), max: vec.FloatBinary[T](graph.Max),
		sqrt: vec.FloatUnary[T](&graph.Unary{Fn: graph.Sqrt}), abs: vec.FloatUnary[T](&graph.Unary{Fn: graph.Abs}),
	}
}

// block is what a rule has of some elements.
type block[T tensor.Float] struct {
	w, g []T             // weight and gradient
	to   []T             // the new weight; may be w
	s, r [maxStates][]T  // states, and their new values, which may be where the states are
	t    [temporary][]T  // for what is in between
	c    [maxNumbers][]T // each number of the run, for all elements
	all  []T             // these one after the other, blockLen of each
}

// The numbers that all elements have in common: the factor of the gradient first, and a zero last.
const (
	numFactor = iota
	numRate
	numDecay
	numFirst // b1, or the momentum of an adaptive rule
	numFirstRest
	numSecond // b2, or a
	numSecondRest
	numEps
	numFirstBias  // 1/(1-b1^t)
	numSecondBias // 1/(1-b2^t)
	numZero       = maxNumbers - 1
)

// Those of SGD's rules after the first.
const (
	sgdRate = iota + 1
	sgdKeep // of w without momentum, of v with it
	sgdGradient
	sgdDecay
	sgdUndamp
	sgdScale
	sgdOwnDecay
	sgdOwnMomentum
)

// numbersOf returns the numbers by the scalars of a rule in the order of [graph.Update.Scalars], the factor of the
// gradient and the number of the update, 0 if that is not counted.
func numbersOf[T tensor.Float](o *graph.Update, v *[maxScalars]T, factor T, t float64) (num [maxNumbers]T) {
	num[numFactor] = factor
	switch o.Rule {
	case graph.UpdateSGD:
		num[sgdKeep], num[sgdRate] = v[0], v[1]
	case graph.UpdateMomentum, graph.UpdateNesterov:
		num[sgdKeep], num[sgdGradient], num[sgdDecay], num[sgdRate] = v[0], v[1], v[2], v[3]
		num[sgdUndamp], num[sgdScale], num[sgdOwnDecay], num[sgdOwnMomentum] = v[4], v[5], v[6], v[7]
	case graph.UpdateAdam, graph.UpdateAdaMax, graph.UpdateLamb:
		b1, b2 := v[3], v[4]
		num[numRate], num[numDecay], num[numFactor], num[numEps] = v[0], v[1], factor*v[2], v[5]
		num[numFirst], num[numFirstRest] = b1, 1-b1
		num[numSecond], num[numSecondRest] = b2, 1-b2
		num[numFirstBias], num[numSecondBias] = 1, 1
		if t > 0 {
			num[numFirstBias], num[numSecondBias] = T(1/(1-power(float64(b1), t))), T(1/(1-power(float64(b2), t)))
		}
	default:
		num[numRate], num[numDecay], num[numFactor], num[numEps] = v[0], v[1], factor*v[2], v[3]
		next := 4
		if o.Rule != graph.UpdateAdaGrad {
			num[numSecond], num[numSecondRest] = v[next], 1-v[next]
			next++
		}
		num[numFirst] = v[next]
	}
	return num
}

// step sets the states and the weight by the formulas of [graph.UpdateRule]. Of UpdateLamb it sets the states alone.
func (b *block[T]) step(l *loops[T], o *graph.Update, num *[maxNumbers]T) {
	switch o.Rule {
	case graph.UpdateSGD:
		l.mul(b.t[0], b.gradient(l, num), b.c[sgdRate])
		l.mul(b.to, b.w, b.c[sgdKeep])
		l.sub(b.to, b.to, b.t[0])
	case graph.UpdateMomentum, graph.UpdateNesterov:
		b.momentum(l, o.Rule == graph.UpdateNesterov, num)
	case graph.UpdateAdam, graph.UpdateAdaMax, graph.UpdateLamb:
		if o.Rule == graph.UpdateAdam && (num[numDecay] == 0 || o.Decoupled) && vectorAdam(b, num[numDecay] != 0) {
			return
		}
		b.moments(l, o, num)
		if o.Rule != graph.UpdateLamb {
			b.move(l, b.adam(l, o, num), numRate)
		}
	default:
		b.adaptive(l, o, num)
	}
}

// gradient returns the gradient times its factor: in t[0], or where it lies.
func (b *block[T]) gradient(l *loops[T], num *[maxNumbers]T) []T {
	if num[numFactor] == 1 {
		return b.g
	}
	l.mul(b.t[0], b.g, b.c[numFactor])
	return b.t[0]
}

// decayed returns the gradient times its factor with the weight's decay, if it is part of the gradient: in t[0],
// or where it lies.
func (b *block[T]) decayed(l *loops[T], num *[maxNumbers]T, decoupled bool) []T {
	g := b.gradient(l, num)
	if num[numDecay] == 0 || decoupled {
		return g
	}
	l.mul(b.t[1], b.w, b.c[numDecay])
	l.add(b.t[0], g, b.t[1])
	return b.t[0]
}

// decay adds the weight's decay to a step, if it is part of that, by means of t[1].
func (b *block[T]) decay(l *loops[T], num *[maxNumbers]T, decoupled bool, x []T) {
	if num[numDecay] != 0 && decoupled {
		l.mul(b.t[1], b.w, b.c[numDecay])
		l.add(x, x, b.t[1])
	}
}

// blend sets state i to a part of it and the rest of x, by means of tmp, which may be x.
func (b *block[T]) blend(l *loops[T], i int, tmp, x []T, part, rest int) {
	l.mul(tmp, x, b.c[rest])
	l.mul(b.r[i], b.s[i], b.c[part])
	l.add(b.r[i], b.r[i], tmp)
}

// move takes x, which it overwrites, times a rate from the weight.
func (b *block[T]) move(l *loops[T], x []T, rate int) {
	l.mul(x, x, b.c[rate])
	l.sub(b.to, b.w, x)
}

func (b *block[T]) momentum(l *loops[T], nesterov bool, num *[maxNumbers]T) {
	v, x := b.r[0], b.t[0]
	l.mul(x, b.gradient(l, num), b.c[sgdGradient])
	l.mul(v, b.s[0], b.c[sgdKeep])
	l.add(v, v, x)
	if num[sgdDecay] != 0 {
		l.mul(b.t[1], b.w, b.c[sgdDecay])
		l.add(v, v, b.t[1])
	}
	if !nesterov {
		l.mul(x, v, b.c[sgdRate])
		l.sub(b.to, b.w, x)
		return
	}
	l.mul(x, x, b.c[sgdUndamp])
	if num[sgdOwnDecay] != 0 {
		l.mul(b.t[1], b.w, b.c[sgdOwnDecay])
		l.add(x, x, b.t[1])
	}
	l.mul(x, x, b.c[sgdScale])
	l.mul(b.t[1], v, b.c[sgdOwnMomentum])
	l.add(x, x, b.t[1])
	b.move(l, x, sgdRate)
}

// moments sets the states of Adam's rules.
func (b *block[T]) moments(l *loops[T], o *graph.Update, num *[maxNumbers]T) {
	g := b.decayed(l, num, o.Decoupled)
	if o.Rule == graph.UpdateAdaMax {
		l.abs(b.t[1], g)
		l.mul(b.r[1], b.s[1], b.c[numSecond])
		l.max(b.r[1], b.r[1], b.t[1])
	} else {
		l.mul(b.t[1], g, g)
		b.blend(l, 1, b.t[1], b.t[1], numSecond, numSecondRest)
	}
	b.blend(l, 0, b.t[0], g, numFirst, numFirstRest)
}

// adam returns what the weight is changed by, but for the learning rate, from the new states: in t[0].
func (b *block[T]) adam(l *loops[T], o *graph.Update, num *[maxNumbers]T) []T {
	x, root := b.t[0], b.t[1]
	l.mul(root, b.r[1], b.c[numSecondBias])
	if o.Rule != graph.UpdateAdaMax {
		l.sqrt(root, root)
	}
	l.add(root, root, b.c[numEps])
	l.mul(x, b.r[0], b.c[numFirstBias])
	l.div(x, x, root)
	b.decay(l, num, o.Decoupled, x)
	return x
}

func (b *block[T]) adaptive(l *loops[T], o *graph.Update, num *[maxNumbers]T) {
	g := b.decayed(l, num, o.Decoupled)
	x, root := b.t[0], b.t[1]
	l.mul(root, g, g)
	if o.Rule == graph.UpdateAdaGrad {
		l.add(b.r[0], b.s[0], root)
	} else {
		b.blend(l, 0, root, root, numSecond, numSecondRest)
	}
	v, last := b.r[0], 1 // the state that momentum is kept in is the last
	switch o.Rule {
	case graph.UpdateCentredRMSProp:
		b.blend(l, 1, root, g, numSecond, numSecondRest)
		l.mul(root, b.r[1], b.r[1])
		l.sub(root, v, root)
		l.max(root, root, b.c[numZero]) // but for rounding it is not negative
		v, last = root, 2
	case graph.UpdateAdaDelta:
		last = 2
		l.add(root, v, b.c[numEps])
		l.sqrt(root, root)
		l.div(x, g, root)
		l.add(root, b.s[1], b.c[numEps])
		l.sqrt(root, root)
		l.mul(x, x, root)
		l.mul(root, x, x)
		b.blend(l, 1, root, root, numSecond, numSecondRest)
	}
	switch {
	case o.Rule == graph.UpdateAdaDelta:
	case o.InRoot:
		l.add(root, v, b.c[numEps])
		l.sqrt(root, root)
		l.div(x, g, root)
	default:
		l.sqrt(root, v)
		l.add(root, root, b.c[numEps])
		l.div(x, g, root)
	}
	if o.Momentum {
		l.mul(b.r[last], b.s[last], b.c[numFirst])
		l.add(b.r[last], b.r[last], x)
		copy(x, b.r[last])
	}
	b.decay(l, num, o.Decoupled, x)
	b.move(l, x, numRate)
}

// power returns b^t for a whole number t: products alone, so that all machines agree.
func power(b, t float64) float64 {
	p := 1.0
	for n := uint64(min(max(t, 0), 1<<40)); n > 0; n >>= 1 {
		if n&1 == 1 {
			p *= b
		}
		b *= b
	}
	return p
}
