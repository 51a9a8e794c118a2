package reduce

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/popefgen/popefgen/onnx"
)

// Predicate is what is looked for.
type Predicate interface {
	// Interesting reports whether a case shows it. Cases that can't be compiled
	// or run are common, and no errors; an error ends the reduction.
	Interesting(ctx context.Context, c *Case) (bool, error)
}

// Source computes the values that a model has on the way.
type Source interface {
	// Values returns the values of a case with the given names, which nodes of the
	// graph compute. An error says that some can't be had; the reduction goes on without.
	Values(ctx context.Context, c *Case, names []string) (map[string]*onnx.Tensor, error)
}

// Options says how to reduce. The zero value reduces by all means, without a limit.
type Options struct {
	// Timeout ends the search; what was found until then is the result. 0 means
	// without end.
	Timeout time.Duration
	// Outputs, unless nil, are the only values that may be outputs of the result, and
	// nothing is done but choosing outputs and cutting: every value that is left is
	// the one that the first model computes.
	Outputs map[string]bool
	// Progress, unless nil, is called before each pass and after each success.
	Progress func(Progress)
}

// Progress says how far a reduction is.
type Progress struct {
	Pass  string // what is tried
	Size  Size   // of the smallest interesting case so far
	Tried int    // cases that were judged
}

// Result is what a reduction found.
type Result struct {
	Case *Case
	// Minimal: no pass makes it smaller, so that no node can be taken away. It is
	// false if the time was over before.
	Minimal bool
	Tried   int // cases that were judged
}

// Errors of [Reduce].
var (
	// ErrNotInteresting says that there is nothing to reduce.
	ErrNotInteresting = errors.New("the model does not show what is looked for")
	// ErrUnneeded says that what is looked for is gone without what no output needs:
	// unused nodes, initializers, inputs, functions and declared types.
	ErrUnneeded = errors.New("what is looked for lies in what no output needs: nodes, initializers, inputs, functions or declared types that nothing uses")
)

// Reduce returns the smallest case that it finds interesting, starting from c, which
// must be. No result is larger than c. The error is [ErrNotInteresting],
// [ErrUnneeded], that of the predicate or ctx's.
func Reduce(ctx context.Context, c *Case, p Predicate, s Source, o Options) (*Result, error) {
	if err := check(c); err != nil {
		return nil, err
	}
	limited := ctx
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	r := &reducer{ctx: limited, predicate: p, source: s, o: o, dull: map[[sha256.Size]byte]bool{}}
	ok, err := r.judge(c)
	if err == nil && !ok {
		err = ErrNotInteresting
	}
	if err != nil {
		return nil, fmt.Errorf("reducing: %w", err)
	}
	tidy := c.tidied()
	if ok, err = r.judge(tidy); err == nil && !ok {
		err = ErrUnneeded
	}
	if err != nil {
		return nil, fmt.Errorf("reducing: %w", err)
	}
	r.become(tidy)
	r.run()
	if ctx.Err() != nil {
		r.err = ctx.Err()
	} else if limited.Err() != nil {
		return &Result{Case: r.best, Tried: r.tried}, nil
	}
	if r.err != nil {
		return nil, fmt.Errorf("reducing: %w", r.err)
	}
	return &Result{Case: r.best, Minimal: true, Tried: r.tried}, nil
}

// check wants a value for each input.
func check(c *Case) error {
	if c == nil || c.Model == nil || c.Model.Graph == nil {
		return errors.New("reducing: the model has no graph")
	}
	ins, err := onnx.StaticInputs(c.Model, onnx.Options{})
	if err != nil {
		return fmt.Errorf("reducing: %w", err)
	}
	for _, in := range ins {
		if c.Inputs[in.Name] == nil {
			return fmt.Errorf("reducing: input %q has no value", in.Name)
		}
	}
	return nil
}

// reducer is the state of one reduction.
type reducer struct {
	ctx       context.Context
	predicate Predicate
	source    Source
	o         Options

	best *Case
	size Size // of best
	pass string

	// What best's nodes compute is what those of base compute, so that values are
	// looked up once.
	base   *Case
	values map[string]*onnx.Tensor // nil for those that can't be had

	dull  map[[sha256.Size]byte]bool // cases that are not interesting
	tried int
	err   error // ends the reduction
}

// pass is a way to make a case smaller.
type pass struct {
	name string
	use  func(r *reducer) bool
	run  func(r *reducer)
}

// When passes are used: where few values are known, which change no value.
func always(*reducer) bool     { return true }
func fewKnown(r *reducer) bool { return r.o.Outputs != nil }
func allKnown(r *reducer) bool { return r.o.Outputs == nil }

// passes are in the order in which they pay: the first ones take most away.
var passes = []pass{
	{"one known value from the others", fewKnown, (*reducer).oneKnown},
	{"one output", always, (*reducer).oneOutput},
	{"the first node that shows it", always, (*reducer).firstNode},
	{"the last cut before it", always, (*reducer).lastCut},
	{"fewer nodes", always, (*reducer).fewerNodes},
	{"nodes left out", allKnown, (*reducer).bypass},
	{"fewer operands", allKnown, (*reducer).fewerOperands},
	{"fewer attributes", allKnown, (*reducer).fewerAttributes},
	{"smaller dimensions", allKnown, (*reducer).smallerDims},
	{"plainer numbers", allKnown, (*reducer).plainerNumbers},
}

// run goes through all passes until none of them makes the case smaller.
func (r *reducer) run() {
	for done := false; !done; {
		before := r.size
		for _, p := range passes {
			if !p.use(r) {
				continue
			}
			if r.stopped() {
				return
			}
			r.pass = p.name
			r.report()
			p.run(r)
		}
		done = r.size.Compare(before) == 0
	}
}

func (r *reducer) stopped() bool { return r.err != nil || r.ctx.Err() != nil }

func (r *reducer) report() {
	if r.o.Progress != nil {
		r.o.Progress(Progress{r.pass, r.size, r.tried})
	}
}

// judge asks the predicate, unless it was asked before.
func (r *reducer) judge(c *Case) (bool, error) {
	key, ok := c.key()
	if ok && r.dull[key] {
		return false, nil
	}
	r.tried++
	yes, err := r.predicate.Interesting(r.ctx, c)
	if err == nil {
		err = r.ctx.Err()
	}
	if ok && err == nil && !yes {
		r.dull[key] = true
	}
	return yes, err
}

// become makes c the best case and the one whose values count.
func (r *reducer) become(c *Case) {
	r.best, r.size = c, c.Size()
	r.base, r.values = c, map[string]*onnx.Tensor{}
}

// cut makes a case the best one if it is smaller and interesting. Its values are
// those of the best case.
func (r *reducer) cut(c *Case) bool {
	if c == nil || r.stopped() {
		return false
	}
	c = c.tidied()
	if len(c.Model.Graph.Outputs) == 0 {
		return false
	}
	size := c.Size()
	if size.Compare(r.size) >= 0 {
		return false
	}
	ok, err := r.judge(c)
	if err != nil {
		r.err = err
		return false
	}
	if ok {
		r.best, r.size = c, size
		r.report()
	}
	return ok
}

// change is cut for a case that computes other values.
func (r *reducer) change(c *Case) bool {
	if !r.cut(c) {
		return false
	}
	r.base, r.values = r.best, map[string]*onnx.Tensor{}
	return true
}

// fetch looks values of the best case up; r.values has nil for those that can't
// be had.
func (r *reducer) fetch(names []string) {
	var missing []string
	for _, name := range names {
		if _, ok := r.values[name]; !ok {
			missing = append(missing, name)
			r.values[name] = nil // also of a name that is repeated
		}
	}
	r.ask(missing)
}

// ask asks the source for values, for half of them at a time where it has not all.
func (r *reducer) ask(names []string) {
	if len(names) == 0 || r.stopped() {
		return
	}
	got, err := r.source.Values(r.ctx, r.base, names)
	if err == nil {
		for _, name := range names {
			r.values[name] = got[name]
		}
		return
	}
	if len(names) > 1 {
		r.ask(names[:len(names)/2])
		r.ask(names[len(names)/2:])
	}
}
