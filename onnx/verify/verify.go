// Package verify runs models on stored inputs and compares what comes out
// with stored reference outputs.
package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
)

// Options says how cases are judged. The zero value has no tolerance.
type Options struct {
	Tolerance
	Compile compile.Options // shapes and values are bound from the data sets on top of it; with members it makes a family
	// Open keeps inputs whose values decide how much there is of something: only the most that there may
	// be is taken from the data set, the largest dimension of its tensors.
	Open bool
	// Members returns what stands in place of Compile for a model, as where that has to be known for the sizes
	// that are wanted; nil stands for Compile. A family is compiled once, and every data set goes through the member of its size and, filled
	// up, through the next larger one along each dimension where that is allowed.
	Members func(*onnx.Model) (compile.Options, error)
	// SizesOfData makes a family of each model: its members are those of Members and the sizes of the
	// data sets.
	SizesOfData bool
	Execute     Executor
	// Noise is how often a model that is out of tolerance is run again with inputs
	// changed by rounding alone; what one of those runs gives within the tolerance
	// passes. It is for outputs that jump, where rounding decides between values.
	Noise int
}

// Executor runs a compiled model once: it returns the bytes of every output
// anchor, by name, for the bytes of every input anchor.
type Executor func(ctx context.Context, m *popef.Model, inputs map[string][]byte) (outputs map[string][]byte, err error)

// Verdict is the outcome for one data set.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "PASS"
	Fail Verdict = "FAIL"
	Skip Verdict = "SKIP" // the model needs something that is not supported
)

// Result is the outcome for one data set of a case, and one member of a family.
type Result struct {
	Set     string        `json:"set"`              // the data set's folder
	Member  string        `json:"member,omitempty"` // sizes of the member of a family that computed it, as in "batch=4 seq=16"
	Filled  string        `json:"filled,omitempty"` // sizes of the data set, where it was filled up to those of the member
	Verdict Verdict       `json:"verdict"`
	Reason  string        `json:"reason,omitempty"` // why not PASS
	Worst   float64       `json:"worst"`            // largest absolute error over all outputs that were compared; null in JSON where it is not finite
	Noise   int64         `json:"noise,omitempty"`  // elements that pass because of Options.Noise
	Folded  bool          `json:"folded,omitempty"` // all outputs were computed when the model was compiled: nothing ran
	Elapsed time.Duration `json:"elapsed_ns"`       // compiling, running and comparing
}

// MarshalJSON writes null for a worst error that is infinite, which JSON has no
// number for.
func (r Result) MarshalJSON() ([]byte, error) {
	type fields Result
	out := struct {
		fields
		Worst *float64 `json:"worst"`
	}{fields: fields(r)}
	if !math.IsInf(r.Worst, 0) && !math.IsNaN(r.Worst) {
		out.Worst = &r.Worst
	}
	return json.Marshal(out)
}

// Run judges every data set of a case. Each is compiled for its own sizes:
// dynamic dimensions, and inputs whose value decides a shape, are bound from
// it; or all go through one family, as [Options.Members] says, with a result for each
// set and member. Whatever goes wrong is a FAIL of that set; the error is ctx's.
func Run(ctx context.Context, c Case, o Options) ([]Result, error) {
	var results []Result
	room := budget.From(ctx).Part(0)
	defer room.Release()
	ctx = budget.Into(ctx, room)
	m, err := readModel(ctx, filepath.Join(c.Dir, modelFile))
	if err == nil && o.Members != nil {
		o.Compile, err = o.Members(m)
	}
	var s *several
	if err == nil {
		if s, err = newSeveral(m, c, o); s != nil {
			defer s.close()
		}
	}
	for _, set := range c.Sets {
		if ctx.Err() != nil {
			return results, ctx.Err()
		}
		start := time.Now()
		add := func(do func(r *Result) error) {
			r := Result{Set: set, Verdict: Pass}
			e := err
			if e == nil {
				e = do(&r)
			}
			if ctx.Err() != nil { // it was not the set's
				return
			}
			r.judged(e)
			r.Elapsed, start = time.Since(start), time.Now()
			results = append(results, r)
		}
		switch {
		case err != nil || s == nil:
			add(func(r *Result) error { return runSet(ctx, m, set, o, r) })
		default:
			if err := s.run(ctx, set, add); err != nil {
				add(func(*Result) error { return err })
			}
		}
		if ctx.Err() != nil {
			return results, ctx.Err()
		}
	}
	return results, nil
}

// judged is the verdict of what ended with err.
func (r *Result) judged(err error) {
	var unsupported *onnx.UnsupportedError
	switch {
	case errors.As(err, &unsupported):
		r.Verdict, r.Reason = Skip, obstacles(unsupported)
	case err != nil:
		r.Verdict, r.Reason = Fail, err.Error()
	}
}

// readModel is [onnx.ReadFile] of a regular file: a pipe would be waited for.
func readModel(ctx context.Context, path string) (*onnx.Model, error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file (%v)", path, st.Mode())
	}
	return onnx.ReadFileContext(ctx, path)
}

func obstacles(u *onnx.UnsupportedError) string {
	var what []string
	for _, o := range u.Obstacles {
		what = append(what, o.What)
	}
	return "not supported: " + strings.Join(what, "; ")
}

// Compiled is a model compiled for one data set.
type Compiled struct {
	*compile.Result
	Named map[string]*onnx.Tensor // what the data set has for the model's inputs, also for those whose value was bound
	Fed   map[string][]byte       // the bytes of those that are still inputs
	Wants []*onnx.Tensor          // the reference outputs, in the model's order
}

// Compile compiles m for the data set in a folder, on top of o: dynamic
// dimensions, and inputs whose value decides a shape, are bound from it. The
// errors are those of [compile.Compile] and of reading the set.
func Compile(m *onnx.Model, set string, o compile.Options) (*Compiled, error) {
	return CompileContext(context.Background(), m, set, o)
}

// CompileContext is [Compile] until ctx is done, whose error it returns then.
func CompileContext(ctx context.Context, m *onnx.Model, set string, o compile.Options) (*Compiled, error) {
	return compileSet(ctx, m, set, o, 0)
}

// compileSet compiles m for a data set. What sizes that data decides may be at most, where nothing
// else says, is most; 0 binds the inputs that decide instead.
func compileSet(ctx context.Context, m *onnx.Model, set string, o compile.Options, most int64) (*Compiled, error) {
	if err := tensorsOnly(m); err != nil {
		return nil, err
	}
	named, wants, err := readSet(m, set)
	if err != nil {
		return nil, err
	}
	o.Shapes, o.Values = maps.Clone(o.Shapes), maps.Clone(o.Values)
	if o.Shapes == nil {
		o.Shapes = map[string][]int64{}
	}
	if o.Values == nil {
		o.Values = map[string]*onnx.Tensor{}
	}
	for name, t := range named {
		o.Shapes[name] = t.Dims
	}
	r, err := compileBinding(ctx, m, named, o, most)
	if err != nil {
		return nil, err
	}
	if err := fits(r.Inputs, named); err != nil {
		return nil, err
	}
	fed := map[string][]byte{}
	for _, p := range r.Inputs {
		fed[p.Name] = named[p.Name].Data
	}
	return &Compiled{r, named, fed, wants}, nil
}

// readSet reads a data set: the model's inputs by name, and the reference outputs.
func readSet(m *onnx.Model, set string) (map[string]*onnx.Tensor, []*onnx.Tensor, error) {
	ins, err := readTensors(set, "input")
	if err != nil {
		return nil, nil, err
	}
	wants, err := readTensors(set, "output")
	if err != nil {
		return nil, nil, err
	}
	named, err := nameInputs(m.Graph, ins)
	return named, wants, err
}

// fits reports what of a data set is not what a model takes.
func fits(inputs []compile.Port, named map[string]*onnx.Tensor) error {
	for _, p := range inputs {
		t := named[p.Name]
		if t == nil {
			return fmt.Errorf("input %q has no value in the data set", p.Name)
		}
		if t.Elem != p.Elem {
			return fmt.Errorf("input %q is %s in the data set, want %s", p.Name, t.Elem, p.Elem)
		}
	}
	return nil
}

// CompileOpen is [CompileContext] as [Options.Open] says.
func CompileOpen(ctx context.Context, m *onnx.Model, set string, o compile.Options) (*Compiled, error) {
	most, err := mostOf(set)
	if err != nil {
		return nil, err
	}
	return compileSet(ctx, m, set, o, most)
}

// mostOf returns the largest dimension of a data set.
func mostOf(set string) (int64, error) {
	most := int64(1)
	for _, prefix := range []string{"input", "output"} {
		all, err := readTensors(set, prefix)
		if err != nil {
			return 0, err
		}
		for _, t := range all {
			for _, d := range t.Dims {
				most = max(most, d)
			}
		}
	}
	return most, nil
}

// tensorsOnly returns an [*onnx.UnsupportedError] if an input or output is a
// sequence or an optional: data sets hold other messages than tensors for them.
func tensorsOnly(m *onnx.Model) error {
	if m.Graph == nil {
		return nil
	}
	var all []onnx.Obstacle
	for _, v := range []struct {
		kind   string
		values []onnx.ValueInfo
	}{{"input", m.Graph.Inputs}, {"output", m.Graph.Outputs}} {
		for _, i := range v.values {
			if i.NotDense != "" {
				all = append(all, onnx.Obstacle{What: fmt.Sprintf("graph %s of type %s", v.kind, i.NotDense), Nodes: []string{i.Name}, Count: 1})
			}
		}
	}
	if all == nil {
		return nil
	}
	return &onnx.UnsupportedError{Obstacles: all}
}

// folded reports whether all that a program delivers is constant.
func folded(e *graph.Executable) bool {
	delivers := false
	var constant func(steps []graph.Step) bool
	constant = func(steps []graph.Step) bool {
		for i := range steps {
			s := &steps[i]
			if s.Kind == graph.CopyOut {
				delivers = true
				if !e.Tensors[s.Tensor].Const {
					return false
				}
			}
			if !constant(s.Body) {
				return false
			}
		}
		return true
	}
	for i := range e.Programs {
		if !constant(e.Programs[i].Steps) {
			return false
		}
	}
	return delivers
}

// runSet compiles the model for one data set, runs it and compares.
func runSet(ctx context.Context, m *onnx.Model, set string, o Options, result *Result) error {
	compile := CompileContext
	if o.Open {
		compile = CompileOpen
	}
	r, err := compile(ctx, m, set, o.Compile)
	if err != nil {
		return err
	}
	result.Folded = folded(r.Executable)
	fed, wants := r.Fed, r.Wants
	if len(wants) != len(r.Outputs) {
		return fmt.Errorf("the model has %d outputs, %s holds %d", len(r.Outputs), set, len(wants))
	}
	model, err := r.Model(filepath.Base(set))
	if err != nil {
		return err
	}
	defer model.Close()
	return judge(ctx, o, &trial{model: model, fed: fed, inputs: r.Inputs, outputs: r.Outputs, wants: wants,
		cut: func(i int, outs map[string][]byte) ([]int64, []byte, error) { return Cut(r.Outputs[i], outs) }}, result)
}

// trial is a data set with what computes it.
type trial struct {
	model   *popef.Model
	fed     map[string][]byte
	inputs  []compile.Port
	outputs []compile.Port
	wants   []*onnx.Tensor
	// cut returns the shape and the elements of output i of what a run gave.
	cut func(i int, outs map[string][]byte) ([]int64, []byte, error)
}

// judge runs a data set and compares.
func judge(ctx context.Context, o Options, t *trial, result *Result) error {
	outs, err := o.Execute(ctx, t.model, t.fed)
	if err != nil {
		return err
	}
	var bad []string
	var others []map[string][]byte
	for i, p := range t.outputs {
		want := t.wants[i]
		shape, got, err := t.cut(i, outs)
		if err != nil {
			return err
		}
		if p.Elem != want.Elem || !slices.Equal(shape, want.Dims) {
			bad = append(bad, fmt.Sprintf("output %q is %s %v, want %s %v", p.Name, p.Elem, shape, want.Elem, want.Dims))
			continue
		}
		d, err := Compare(want.Type(), got, want.Data, o.Tolerance)
		if err == nil && d.Bad > 0 && o.Noise > 0 {
			if others == nil {
				if others, err = noisy(ctx, t, o); err != nil {
					return err
				}
			}
			var runs [][]byte
			for k := range others { // those of as many elements
				if s, run, err := t.cut(i, others[k]); err == nil && slices.Equal(s, shape) {
					runs = append(runs, run)
				}
			}
			d, err = Compare(want.Type(), got, want.Data, o.Tolerance, runs...)
		}
		if err != nil {
			return fmt.Errorf("output %q: %w", p.Name, err)
		}
		result.Noise += d.Noise
		result.Worst = max(result.Worst, d.Worst)
		if d.Bad > 0 {
			bad = append(bad, fmt.Sprintf("output %q: %s", p.Name, d))
		}
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}

// compileBinding compiles m and binds the inputs whose values it needs, to those that are
// named, or, where most is not 0, bounds the sizes that they decide by it.
func compileBinding(ctx context.Context, m *onnx.Model, named map[string]*onnx.Tensor, o compile.Options, most int64) (*compile.Result, error) {
	given := o.Max
	o.Max = maps.Clone(given)
	if o.Max == nil {
		o.Max = map[string]int64{}
	}
	for {
		r, err := compile.CompileContext(ctx, m, o)
		var need *onnx.NeedValueError
		if errors.As(err, &need) {
			if most > 0 && bound(o.Max, need, most) {
				continue
			}
			if bind(o.Values, need.Inputs(), named) {
				// What was bounded may be known now.
				clear(o.Max)
				maps.Copy(o.Max, given)
				continue
			}
		}
		return r, err
	}
}

// bound bounds sizes that data decides and reports whether any had no bound before.
func bound(to map[string]int64, need *onnx.NeedValueError, most int64) bool {
	progress := false
	for _, n := range need.Needs {
		if n.Max != "" && to[n.Max] == 0 {
			to[n.Max], progress = most, true
		}
	}
	return progress
}

// bind gives values to the inputs and reports whether any had none before.
func bind(values map[string]*onnx.Tensor, inputs []string, from map[string]*onnx.Tensor) bool {
	progress := false
	for _, in := range inputs {
		if t := from[in]; t != nil && values[in] == nil && t.Elem.DType() != graph.Invalid {
			values[in] = t
			progress = true
		}
	}
	return progress
}

// nameInputs matches a data set's tensors to the graph's inputs: by name where
// they have the names of inputs, else in order, leaving out initializers.
func nameInputs(g *onnx.Graph, ins []*onnx.Tensor) (map[string]*onnx.Tensor, error) {
	var names []string
	for _, v := range g.Inputs {
		if !slices.ContainsFunc(g.Initializers, func(t *onnx.Tensor) bool { return t.Name == v.Name }) {
			names = append(names, v.Name)
		}
	}
	if len(ins) > len(names) {
		return nil, fmt.Errorf("the data set holds %d inputs, the model has %d", len(ins), len(names))
	}
	byName := map[string]*onnx.Tensor{}
	for _, t := range ins {
		if slices.Contains(names, t.Name) {
			byName[t.Name] = t
		}
	}
	if len(byName) == len(ins) {
		return byName, nil
	}
	inOrder := map[string]*onnx.Tensor{}
	for i, t := range ins {
		inOrder[names[i]] = t
	}
	return inOrder, nil
}
