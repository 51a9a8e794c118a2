package optim

import (
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/graph"
)

// NonFinite says what becomes of a step whose loss or gradients are infinite or no numbers.
type NonFinite string

// What may become of it. Weights and states stay as they were, but for Ignored.
const (
	Refused NonFinite = "error"  // the run ends with an error that says so
	Skipped NonFinite = "skip"   // the step is skipped, and told by [Trained.Skipped]
	Ignored NonFinite = "ignore" // nobody looks
)

// Clip bounds the norm of gradients: those of a group of weights are multiplied by min(1, MaxNorm/‖g‖₂), where ‖g‖₂ is over all of the
// group, of the gradients without loss scaling and, where that is wanted, of their mean.
type Clip struct {
	Pattern string  // of [path.Match], of the names of the weights; empty for all. A weight belongs to the first that matches
	MaxNorm float64 // more than 0
}

// Training says what is done with the gradients of a loss. Use [NewTraining].
type Training struct {
	Optimizer Optimizer
	Weights   []Weight // with the gradients that the backward graph computes
	// Loss is the loss, of any shape; or graph.None if nobody looks whether it is finite.
	Loss graph.TensorID
	// LossGradient is the local tensor from which the backward graph takes the gradient of the loss.
	LossGradient graph.TensorID
	Backward     graph.GraphID

	// MicroBatches is over how many micro-batches an update adds gradients up: those of the accumulation times those of the replicas; 1 to 2²⁴.
	MicroBatches int64
	// Sum takes their sum as the gradient, else it is their mean.
	Sum bool
	// Apart says that each replica computes its part of the MicroBatches, and that something adds [Trained.Sums] up over replicas before Update.
	Apart bool
	// Running keeps the mean of the gradients so far in place of their sum, as gradients of which the sum has no number want it.
	Running bool
	Clips   []Clip
	// NonFinite is Refused, Skipped or Ignored; empty stands for Skipped with automatic scaling, else for Refused. Looking costs a pass over the
	// gradients, unless their norms are computed anyway.
	NonFinite NonFinite
	// Scaling, if it is not nil, changes the loss scaling, which begins as the optimizer's.
	Scaling *AutomaticScaling
	// NoMaster leaves out the copies in F32 of weights of half precision: what a step changes of a weight is then rounded to its type.
	NoMaster bool
}

// NewTraining returns a training by one micro-batch an update, with the mean, without clipping, that refuses what is not finite.
func NewTraining() Training {
	return Training{Loss: graph.None, LossGradient: graph.None, MicroBatches: 1}
}

// Trained is what [Train] has added. Graphs are called in the order Begin, then for each micro-batch the forward graphs, Start and the backward graph, then Update.
type Trained struct {
	Begin  []graph.GraphID // clears what micro-batches add to; none if there is nothing
	Start  graph.GraphID   // gives the loss its gradient
	Update graph.GraphID
	States []State // those of the optimizer, and what automatic scaling remembers; accumulators keep nothing from one batch to the next
	Inputs []Input
	// Skipped is one I32 that Update writes: 1 if the step was skipped, else 0; graph.None if none is.
	Skipped graph.TensorID
	// LossScale is one F32 that Update writes if the scaling is automatic: the loss scaling of the batch; else graph.None.
	LossScale graph.TensorID
	// Norms are one F32 for each of Training.Clips, which Update writes: the norm before it is bounded.
	Norms []graph.TensorID
	// Sums are the persistent tensors that micro-batches add to and Update reads, of Training.Apart: the gradients of the weights, in their order, and what is looked at besides.
	Sums []graph.TensorID
}

// maxMicroBatches is how many a counter in F32 counts.
const maxMicroBatches = 1 << 24

// check reports what is wrong with numbers and patterns.
func (t *Training) check() error {
	switch t.NonFinite {
	case "":
		if t.NonFinite = Refused; t.Scaling != nil {
			t.NonFinite = Skipped
		}
	case Refused, Skipped, Ignored:
	default:
		return fmt.Errorf("a step that is not finite is to be %q, want error, skip or ignore", string(t.NonFinite))
	}
	if t.MicroBatches < 1 || t.MicroBatches > maxMicroBatches {
		return fmt.Errorf("an update adds up gradients of %d micro-batches, want 1 to 2^24", t.MicroBatches)
	}
	if t.Apart && (t.Running || t.MicroBatches < 2) {
		return fmt.Errorf("replicas compute parts of %d micro-batches, and a running mean is %v: want 2 at least, and their sum or mean", t.MicroBatches, t.Running)
	}
	if t.Running && t.Sum {
		return fmt.Errorf("the sum of gradients is wanted and their running mean too, want one of them")
	}
	if a := t.Scaling; a != nil {
		switch {
		case !(a.Edge > 0 && a.Edge < 1):
			return fmt.Errorf("automatic loss scaling: the edge is %g, want more than 0 and less than 1", a.Edge)
		case a.Period < 1 || a.Period > maxMicroBatches:
			return fmt.Errorf("automatic loss scaling: the period is %d steps, want 1 to 2^24", a.Period)
		case !(a.Threshold >= 0 && a.Threshold < 1):
			return fmt.Errorf("automatic loss scaling: the threshold is %g, want 0 or more and less than 1", a.Threshold)
		case t.NonFinite != Skipped:
			return fmt.Errorf("automatic loss scaling: a step that is not finite is to be %q, want skip: such steps are how it finds its limit", string(t.NonFinite))
		}
	}
	return nil
}

// groups returns the number of each weight's clip, -1 for none.
func (t *Training) groups() ([]int, error) {
	groups, used := make([]int, len(t.Weights)), make([]bool, len(t.Clips))
	for i := range groups {
		groups[i] = -1
	}
	for c, clip := range t.Clips {
		if !(clip.MaxNorm > 0) || math.IsInf(clip.MaxNorm, 0) {
			return nil, fmt.Errorf("clipping of weights %q: the largest norm is %g, want a finite number of more than 0", clip.Pattern, clip.MaxNorm)
		}
		for i, w := range t.Weights {
			ok, err := path.Match(clip.Pattern, w.Name)
			if err != nil {
				return nil, fmt.Errorf("clipping: pattern %q is malformed: write weights' names with *, ? and [a-z]", clip.Pattern)
			}
			if (ok || clip.Pattern == "") && groups[i] < 0 {
				groups[i], used[c] = c, true
			}
		}
		if !used[c] {
			left := []string{}
			for i, w := range t.Weights {
				if groups[i] < 0 {
					left = append(left, w.Name)
				}
			}
			if len(left) == 0 {
				return nil, fmt.Errorf("clipping of weights %q: all weights are clipped already; leave it out, or put it first", clip.Pattern)
			}
			return nil, fmt.Errorf("clipping of weights %q: no weight has such a name that is not clipped already%s", clip.Pattern, nearest.DidYouMean(clip.Pattern, left))
		}
	}
	return groups, nil
}

// Train adds what is done with gradients to an executable: graphs that give the loss its gradient, add up gradients of micro-batches behind the nodes of the backward graph that
// compute them, look whether all is finite, bound norms, change the loss scaling, and change weights and states ([Apply]). An error leaves
// e unchanged.
func Train(e *graph.Executable, t Training) (*Trained, error) {
	x := &trainer{Training: t, out: &Trained{Skipped: graph.None, LossScale: graph.None}}
	if err := x.train(e); err != nil {
		return nil, fmt.Errorf("training: %w", err)
	}
	return x.out, nil
}

// trainer is the state of one [Train].
type trainer struct {
	Training
	out       *Trained
	e         emitter
	behind    []splice
	cleared   []graph.TensorID // by Begin
	counter   graph.TensorID   // of the micro-batches of a batch so far, for a running mean
	weights   []Weight         // with what the update takes as gradients
	scale     graph.TensorID   // the optimizer's loss scaling
	factor    graph.TensorID   // of automatic scaling
	over      graph.TensorID
	counted   graph.TensorID // what micro-batches add to over: over itself, or what is added up over replicas
	badLosses graph.TensorID // a sum of zeros unless a loss is not finite
	applied   *Applied
}

// splice are nodes of the last graph, from one up to another, that are to follow the node which computes a tensor.
type splice struct {
	tensor   graph.TensorID
	from, to int
}

func (x *trainer) train(e *graph.Executable) error {
	if err := x.check(); err != nil {
		return err
	}
	groups, err := x.groups()
	if err != nil {
		return err
	}
	if x.Backward < 0 || int(x.Backward) >= len(e.Graphs) {
		return fmt.Errorf("graph %d is to compute the gradients, and the executable has %d", x.Backward, len(e.Graphs))
	}
	x.e.b = graph.Continue(e)
	if typ := x.e.b.Type(x.LossGradient); !typ.DType.IsFloat() {
		return fmt.Errorf("the gradient of the loss is tensor %d of type %v, want a tensor of floats", x.LossGradient, typ)
	}
	for _, w := range x.Weights {
		if !x.e.b.Type(w.Gradient).DType.IsFloat() {
			return fmt.Errorf("weight %q: its gradient is tensor %d of type %v, want a tensor of floats", w.Name, w.Gradient, x.e.b.Type(w.Gradient))
		}
	}
	x.weights = slices.Clone(x.Weights)
	if err := x.update(groups); err != nil {
		return err
	}
	for _, part := range []func(){x.start, x.begin, x.micro} {
		if part(); x.e.err != nil {
			return x.e.err
		}
	}
	done, err := x.e.b.Finish()
	if err != nil {
		return err
	}
	x.insert(done)
	*e = *done
	return nil
}

// state adds a tensor that keeps its value, is loaded and saved.
func (x *trainer) state(name string, t graph.TensorType, init float32) graph.TensorID {
	id := x.e.b.AddPersistent(name, t)
	x.out.States = append(x.out.States, State{Name: name, Tensor: id, Init: init, Master: graph.None})
	return id
}

// sums returns whether gradients are added up.
func (x *trainer) sums() bool { return x.MicroBatches > 1 }

var scalar = graph.TensorType{DType: graph.F32}

// update begins the graph that changes the weights: what it takes as gradients, the optimizer's steps, and the next loss scaling.
func (x *trainer) update(groups []int) error {
	x.out.Update = x.e.b.BeginGraph("update")
	x.e.name = "update"
	x.counter, x.factor, x.over, x.badLosses = graph.None, graph.None, graph.None, graph.None
	for i := range x.weights {
		if w := &x.weights[i]; x.sums() {
			// No state that is saved, as in PopART: it is cleared before it is used, and may be no number after a step that was not finite.
			w.Gradient = x.e.b.AddPersistent("Accum___"+w.Name, graph.TensorType{DType: wide(x.e.b.Type(w.Gradient).DType), Shape: x.e.b.Type(w.Gradient).Shape})
			x.cleared = append(x.cleared, w.Gradient)
		}
	}
	if x.Scaling != nil {
		x.factor, x.over = x.state(lossScaleFactor, scalar, 1), x.state(lossScaleOver, scalar, 0)
		if x.counted = x.over; x.Apart { // over keeps its value from one step to the next, which must not be added up again
			x.counted = x.e.b.AddPersistent("elements over the edge", scalar)
			x.cleared = append(x.cleared, x.counted)
		}
	}
	step := NewStep()
	step.Master = !x.NoMaster
	if !x.Sum && !x.Running {
		step.Divisor = x.MicroBatches
	}
	// What a step multiplies the gradients by takes the loss scaling, which is among the optimizer's tensors.
	inputs, scale, err := optimizerTensors(x.e.b, x.Optimizer, x.Weights, step.Divisor)
	if err != nil {
		return err
	}
	x.scale = scale
	finite := x.bounds(groups, &step)
	if x.NonFinite == Refused && finite != graph.None {
		x.e.node(&graph.Assert{Want: true, Message: "the loss or a gradient is infinite or no number, so no weight was changed: take a lower learning rate, bound the norm of the gradients, " +
			"look for inputs that are no numbers, or let such steps be skipped"}, finite)
	}
	if x.NonFinite == Skipped && finite != graph.None {
		step.Skip = x.e.node(&graph.Unary{Fn: graph.Not}, finite)
		x.out.Skipped = x.e.node(&graph.Cast{To: graph.I32}, step.Skip)
	}
	if x.e.err != nil {
		return x.e.err
	}
	if x.applied, err = apply(x.e.b, x.Optimizer, x.weights, step, inputs, scale); err != nil {
		return err
	}
	x.out.States = append(x.applied.States, x.out.States...)
	x.out.Inputs = x.applied.Inputs
	if x.Scaling != nil {
		x.rescale(step.Skip)
	}
	if x.Apart {
		x.out.Sums = slices.Clone(x.cleared)
	}
	return x.e.err
}

// bounds sets what the gradients are multiplied by, and returns one Bool that says whether all is finite, graph.None if nobody looks.
func (x *trainer) bounds(groups []int, step *Step) (finite graph.TensorID) {
	e := &x.e
	e.name = "norm"
	parts := make([][]graph.TensorID, len(x.Clips)+1) // norms of the weights of each group, and of those that are in none
	looked := x.NonFinite != Ignored
	for i, w := range x.weights {
		g := groups[i]
		if g < 0 && !looked {
			continue
		}
		if g < 0 {
			g = len(x.Clips)
		}
		parts[g] = append(parts[g], e.cast(e.reduce(e.cast(w.Gradient, wide(e.b.Type(w.Gradient).DType)), graph.ReduceL2), graph.F32))
	}
	var norms []graph.TensorID
	for _, p := range parts {
		norms = append(norms, e.norm(p))
	}
	unscale := graph.None // 1 over the factor of automatic scaling
	divisor := x.e.number(graph.F32, float64(step.Divisor))
	scale := x.scale
	if x.Scaling != nil {
		unscale = e.node(&graph.Unary{Fn: graph.Reciprocal}, x.factor)
		scale = e.binary(graph.Mul, scale, x.factor)
		x.out.LossScale = scale
	}
	step.Factor = unscale
	factors := make([]graph.TensorID, len(x.Clips))
	for i, c := range x.Clips {
		norm := e.binary(graph.Div, norms[i], e.binary(graph.Mul, scale, divisor))
		x.out.Norms = append(x.out.Norms, norm)
		factors[i] = e.binary(graph.Min, e.binary(graph.Div, e.number(graph.F32, c.MaxNorm), norm), e.number(graph.F32, 1))
		if unscale != graph.None {
			factors[i] = e.binary(graph.Mul, factors[i], unscale)
		}
	}
	for i, w := range x.weights {
		if groups[i] >= 0 {
			if step.Factors == nil {
				step.Factors = map[string]graph.TensorID{}
			}
			step.Factors[w.Name] = factors[groups[i]]
		}
	}
	if !looked {
		return graph.None
	}
	return x.finite(norms)
}

// norm returns the norm of a vector of which there are norms of parts; graph.None if there is none. A reduction adds up in float64, so that squares
// of what F32 holds do not overflow.
func (e *emitter) norm(parts []graph.TensorID) graph.TensorID {
	if len(parts) == 0 {
		return graph.None
	}
	if len(parts) == 1 {
		return parts[0]
	}
	for i, p := range parts {
		parts[i] = e.node(&graph.Reshape{Shape: []int64{1}}, p)
	}
	return e.reduce(e.node(&graph.Concat{}, parts...), graph.ReduceL2)
}

// finite returns whether norms and the losses are finite.
func (x *trainer) finite(norms []graph.TensorID) graph.TensorID {
	e := &x.e
	if x.Loss != graph.None {
		norms = append(norms, e.node(&graph.Unary{Fn: graph.Abs}, x.losses()))
	}
	all := graph.None
	for _, n := range norms {
		if n == graph.None {
			continue
		}
		ok := e.binary(graph.LessEqual, n, e.number(graph.F32, math.MaxFloat32))
		if all == graph.None {
			all = ok
		} else {
			all = e.binary(graph.And, all, ok)
		}
	}
	return all
}

// losses returns one F32 that is finite if the losses of all micro-batches are.
func (x *trainer) losses() graph.TensorID {
	if !x.sums() {
		return x.e.cast(x.e.reduce(x.Loss, graph.ReduceSum), graph.F32)
	}
	x.badLosses = x.e.b.AddPersistent("losses of the batch", scalar)
	x.cleared = append(x.cleared, x.badLosses)
	return x.badLosses
}

// start adds the graph that gives the loss its gradient, and counts micro-batches.
func (x *trainer) start() {
	e := &x.e
	x.out.Start = e.b.BeginGraph("gradient of the loss")
	e.name = "gradient of the loss"
	typ, scale := e.b.Type(x.LossGradient), x.scale
	if x.Scaling != nil {
		scale = e.binary(graph.Mul, scale, x.factor)
	}
	e.to(&graph.Expand{Shape: typ.Shape}, x.LossGradient, e.cast(scale, typ.DType))
	if x.badLosses != graph.None { // 0 for a finite loss, no number for any other
		e.name = "losses of the batch"
		e.to(&graph.Binary{Fn: graph.Add}, x.badLosses, x.badLosses, e.binary(graph.Mul, e.cast(e.reduce(x.Loss, graph.ReduceSum), graph.F32), e.number(graph.F32, 0)))
	}
	if x.Running && x.sums() {
		e.name = "micro-batches"
		x.counter = e.b.AddPersistent("micro-batches so far", scalar)
		x.cleared = append(x.cleared, x.counter)
		e.to(&graph.Binary{Fn: graph.Add}, x.counter, x.counter, e.number(graph.F32, 1))
	}
}

// micro makes the nodes that follow those which compute gradients: they are added up, and counted if they are large.
func (x *trainer) micro() {
	e := &x.e
	old, part := graph.None, graph.None
	if x.counter != graph.None {
		e.b.SetGraph(x.out.Start)
		e.name = "micro-batches"
		part = e.node(&graph.Unary{Fn: graph.Reciprocal}, x.counter)
		old = e.binary(graph.Mul, e.binary(graph.Sub, x.counter, e.number(graph.F32, 1)), part)
	}
	if !x.sums() && x.Scaling == nil {
		return
	}
	e.b.BeginGraph("behind gradients") // insert takes it away again
	e.nodes = 0
	for i, w := range x.Weights {
		from := e.nodes
		if x.Scaling != nil {
			x.count(w)
		}
		if x.sums() {
			e.name = "accumulate " + w.Name
			sum := x.weights[i].Gradient
			t := e.b.Type(sum).DType
			g := e.cast(w.Gradient, t)
			switch {
			case part == graph.None:
				e.to(&graph.Binary{Fn: graph.Add}, sum, sum, g)
			case t == graph.F32: // no pass joins operators around a tensor that they change
				mul, add := string(graph.Mul), string(graph.Add)
				e.to(&graph.Pointwise{Fns: []string{mul, mul, add}, Args: []int64{0, 1, 2, 3, 4, 5}, Alpha: make([]float64, 3), Beta: make([]float64, 3)}, sum, sum, old, g, part)
			default:
				e.to(&graph.Binary{Fn: graph.Add}, sum, e.binary(graph.Mul, sum, e.cast(old, t)), e.binary(graph.Mul, g, e.cast(part, t)))
			}
		}
		x.behind = append(x.behind, splice{w.Gradient, from, e.nodes})
	}
}

// begin adds the graph that clears what micro-batches add to.
func (x *trainer) begin() {
	if len(x.cleared) == 0 {
		return
	}
	e := &x.e
	x.out.Begin = []graph.GraphID{e.b.BeginGraph("begin")}
	for _, t := range x.cleared {
		typ := e.b.Type(t)
		e.name = "clear " + e.b.Tensor(t).Name
		e.to(&graph.Expand{Shape: typ.Shape}, t, e.number(typ.DType, 0))
	}
}

// insert puts nodes behind the last one of the backward graph that writes the tensor they read, so that its memory is free from then on.
func (x *trainer) insert(e *graph.Executable) {
	if len(x.behind) == 0 {
		return
	}
	rest := len(e.Graphs) - 1
	behind := e.Graphs[rest].Nodes
	e.Graphs = slices.Clone(e.Graphs[:rest])
	g := &e.Graphs[x.Backward]
	last := map[graph.TensorID]int{}
	for i := range g.Nodes {
		for _, o := range g.Nodes[i].Outputs {
			last[o] = i
		}
	}
	at := make([][]graph.Node, len(g.Nodes)+1)
	for _, s := range x.behind {
		i, ok := last[s.tensor]
		if !ok {
			i = len(g.Nodes) - 1
		}
		at[i+1] = append(at[i+1], behind[s.from:s.to]...)
	}
	nodes := slices.Clone(at[0])
	for i, n := range g.Nodes {
		nodes = append(append(nodes, n), at[i+1]...)
	}
	g.Nodes = nodes
}
