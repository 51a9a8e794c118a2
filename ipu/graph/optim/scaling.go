package optim

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// AutomaticScaling says how loss scaling changes by itself, as in PopART: every Period steps the loss scaling is halved if more than the part Threshold of the
// gradients' elements exceeds Edge times the largest number of their type, else it is doubled. A step that is skipped halves it at once.
// It stays within 2²⁴ times and 2⁻²⁴ times of what the optimizer has.
type AutomaticScaling struct {
	Edge      float64 // more than 0, less than 1
	Period    int64   // at least 1
	Threshold float64 // 0 or more, less than 1
}

// NewAutomaticScaling returns PopART's defaults: an edge of 0.125, a period of 1 and a threshold of 10⁻⁷.
func NewAutomaticScaling() AutomaticScaling {
	return AutomaticScaling{Edge: 0.125, Period: 1, Threshold: 1e-7}
}

// scalingRange is how far automatic scaling goes from where it began, both ways.
const scalingRange = 1 << 24

// The names of what automatic scaling remembers.
const (
	lossScaleFactor = "lossScaleUpdateFactor" // by which the optimizer's loss scaling is multiplied
	lossScaleSteps  = "lossScaleUpdateSteps"  // how many steps of the period have been taken
	lossScaleOver   = "lossScaleUpdateOver"   // how many elements of gradients were over the edge in them
)

// rescale changes the factor of automatic scaling, and what it remembers.
func (x *trainer) rescale(skip graph.TensorID) {
	e, a := &x.e, x.Scaling
	e.name = "loss scaling"
	number := func(v float64) graph.TensorID { return e.number(graph.F32, v) }
	var elements int64
	for _, w := range x.Weights {
		elements += e.b.Type(w.Gradient).Elements()
	}
	if x.counted != x.over {
		e.to(&graph.Binary{Fn: graph.Add}, x.over, x.over, x.counted)
	}
	many := e.binary(graph.Greater, x.over, number(a.Threshold*float64(elements)*float64(x.MicroBatches)*float64(a.Period)))
	due := graph.None
	if a.Period > 1 {
		steps := x.state(lossScaleSteps, scalar, 0)
		taken := e.binary(graph.Add, steps, number(1))
		due = e.binary(graph.Or, skip, e.binary(graph.GreaterEqual, taken, number(float64(a.Period))))
		e.to(&graph.Where{}, steps, due, number(0), taken)
	}
	by := e.node(&graph.Where{}, e.binary(graph.Or, skip, many), number(0.5), number(2))
	next := e.binary(graph.Max, e.binary(graph.Min, e.binary(graph.Mul, x.factor, by), number(scalingRange)), number(1./scalingRange))
	if due == graph.None {
		e.to(&graph.Reshape{}, x.factor, next)
		e.to(&graph.Reshape{}, x.over, number(0))
		return
	}
	e.to(&graph.Where{}, x.factor, due, next, x.factor)
	e.to(&graph.Where{}, x.over, due, number(0), x.over)
}

// count adds how many elements of a gradient are over the edge.
func (x *trainer) count(w Weight) {
	e := &x.e
	e.name = "loss scaling of " + w.Name
	t := e.b.Type(w.Gradient).DType
	largest := map[graph.DType]float64{graph.F16: 65504, graph.BF16: 0x1.fep127, graph.F32: math.MaxFloat32, graph.F64: math.MaxFloat64}[t]
	size := e.cast(e.node(&graph.Unary{Fn: graph.Abs}, w.Gradient), wide(t))
	over := e.node(&graph.Unary{Fn: graph.Not}, e.binary(graph.LessEqual, size, e.number(wide(t), largest*x.Scaling.Edge))) // what is no number is over it too
	e.to(&graph.Binary{Fn: graph.Add}, x.counted, x.counted, e.reduce(e.cast(over, graph.F32), graph.ReduceSum))
}
