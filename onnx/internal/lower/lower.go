// Package lower lowers ONNX models to the operators of the portable executable. It puts
// nodes in order, resolves names, functions and subgraphs, keeps apart what is known now and
// what is a tensor of the graph under construction, writes out branches and loops that can
// be decided, and collects all that is in the way. What an operator means says a [Table],
// which package op has; its functions see a node as a [Call].
package lower

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// Bounds on what a model can make the lowering do.
const (
	maxNodes = 1 << 18 // nodes after inlining functions and branches
	maxNeeds = 256     // missing values that one error lists
	maxErrs  = 20      // invalid nodes that one error lists
)

// Lower fixes the model's dimensions and lowers its graph with the operators of t, until ctx
// is done. Values that do not depend on inputs are computed here and now. The error is a
// [*DimError], an [*UnsupportedError] or a [*NeedValueError] where the model is
// well-formed and either the caller or the table has to give something more; any
// other error says what is wrong with the model, node by node.
func Lower(ctx context.Context, m *onnx.Model, o onnx.Options, t Table) (*onnx.Lowered, error) {
	l, err := lower(ctx, m, o, t)
	if ctx.Err() != nil {
		l, err = nil, fmt.Errorf("lowering: %w", ctx.Err())
	}
	if err != nil && m != nil && m.Path != "" {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	return l, err
}

func lower(ctx context.Context, m *onnx.Model, o onnx.Options, t Table) (*onnx.Lowered, error) {
	if m == nil || m.Graph == nil {
		return nil, errors.New("the model has no graph")
	}
	if o.NewEvaluator == nil {
		return nil, errNoEvaluator
	}
	l := &lowerer{
		ctx: ctx, evaluator: o.NewEvaluator(ctx, o.Memory), opts: o, ops: t.Operators, declared: make(map[string]onnx.ValueInfo, len(m.Graph.Outputs)), functions: make(map[functionKey]*onnx.Function, len(m.Functions)),
		scanned: make(map[any]bool), used: make(map[string]bool), repeats: make(map[string]int), byText: make(map[string]*onnx.Obstacle),
		infos: make(map[string]onnx.ValueInfo, len(m.Graph.Values)), owners: make(map[string]*weight), constants: make(map[*onnx.Node]*weight), usedMax: make(map[string]bool), counted: t.Counted,
		exe: &graph.Executable{Name: m.Graph.Name, Producer: "popefgen compile", Graphs: []graph.Graph{{Name: "main"}}},
	}
	for _, f := range m.Functions {
		k := functionKey{canonicalDomain(f.Domain), f.Name, f.Overload}
		if l.functions[k] != nil {
			return nil, fmt.Errorf("function %s is defined twice", printable.Line(k.String()))
		}
		l.functions[k] = f
	}
	for _, v := range m.Graph.Values {
		l.infos[v.Name] = v
	}
	for _, out := range m.Graph.Outputs {
		l.declared[out.Name], l.infos[out.Name] = out, out
	}
	env := &environment{opsets: opsetsOf(m.Opsets)}
	if v := env.opsets[""]; v > t.Newest {
		l.warn("operator set %d is newer than %d, the newest known: operators are taken at their newest known versions", v, t.Newest)
	}
	sc := newScope(nil)
	if err := l.define(sc, m.Graph); err != nil {
		return nil, err
	}
	order, err := schedule(m.Graph.Nodes, m.Graph.OutputNames(), sc)
	if err != nil {
		return nil, err
	}
	l.scan(env, order)
	ins, err := onnx.StaticInputs(m, o)
	if err != nil {
		l.nodes(sc, env, order) // whatever does not need the inputs is looked at all the same
		return nil, errors.Join(append(l.errs, l.unsupportedOrNil(), err)...)
	}
	l.standIns(m.Graph, ins)
	l.inputs(sc, ins)
	given := maps.Clone(sc.values)
	l.nodes(sc, env, order)
	outs := l.outputs(sc, env, m.Graph.Outputs)
	l.checkMax()
	if err := l.result(); err != nil {
		return nil, err
	}
	evaluation := l.evaluate(given, env, order, m.Graph.Outputs)
	if err := l.result(); err != nil {
		return nil, err
	}
	for i := range l.weights {
		w := &l.weights[i]
		w.Known = l.owners[w.Name].read
	}
	low := &onnx.Lowered{
		Executable: l.exe, Inputs: l.ports, Outputs: outs, Counts: l.counts, Weights: l.weights, Warnings: l.warnings, Evaluate: evaluation,
	}
	l.after(low)
	return low, nil
}

// errNoEvaluator says what to do where nothing computes known values: shapes depend on them
// in nearly every model.
var errNoEvaluator = errors.New("nothing computes what is known when the model is lowered: set onnx.Options.NewEvaluator, or call package onnx/compile, which has one")

// lowerer is the state of one lowering.
type lowerer struct {
	opts      onnx.Options
	ops       map[string]*Definition
	functions map[functionKey]*onnx.Function
	exe       *graph.Executable
	ports     []onnx.Port
	weights   []onnx.Weight
	owners    map[string]*weight     // of weights, by name
	constants map[*onnx.Node]*weight // of Constant nodes that are weights
	used      map[string]bool        // names of weights
	repeats   map[string]int         // by name, how often it was taken already
	ctx       context.Context
	evaluator onnx.Evaluator
	count     int // nodes lowered
	warnings  []string
	declared  map[string]onnx.ValueInfo   // the graph's outputs by name
	infos     map[string]onnx.ValueInfo   // values that the model declares, outputs included, by name
	usedMax   map[string]bool             // the names of Options.Max that bounded something
	counts    []onnx.Port                 // how much of counted axes of outputs is filled
	counted   map[string]bool             // see [Table.Counted]
	types     map[string]graph.TensorType // of values of the main graph, where the model declares them
	scanned   map[any]bool                // graphs and functions, by address
	current   graph.GraphID               // the graph under construction: main or, within a node, one that the node runs

	root      graph.GraphID // main, or the graph of the evaluation
	learns    bool          // a node is lowered in its training mode
	evaluates bool          // no node is

	draws      draws
	iterations []*Value // of the loops around the graph under construction, the outermost first
	kept       []kept

	differentiated []*onnx.Node // Gradient nodes under way
	gradients      int          // nodes of gradients

	// Attempts under way, and what they noted, as [attempt] says.
	attempts int
	journal  []func()
	tried    int // nodes lowered in vain
	problems int // that were reported

	// What is in the way, collected over all nodes.
	obstacles []*onnx.Obstacle
	byText    map[string]*onnx.Obstacle
	needs     []onnx.Need
	errs      []error
}

func (l *lowerer) warn(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(l.warnings, s) && len(l.warnings) < 100 {
		l.warnings = append(l.warnings, s)
	}
}

// graph returns the graph under construction.
func (l *lowerer) graph() *graph.Graph { return &l.exe.Graphs[l.current] }

// define checks a main graph's inputs and initialisers and puts the values
// that are known into sc.
func (l *lowerer) define(sc *scope, g *onnx.Graph) error {
	if err := l.initializers(sc, g); err != nil {
		return err
	}
	seen := make(map[string]bool, len(g.Inputs))
	for _, in := range g.Inputs {
		switch {
		case in.Name == "":
			return errors.New("a graph input has no name")
		case seen[in.Name]:
			return fmt.Errorf("graph input %q is declared twice", in.Name)
		}
		seen[in.Name] = true
		if bound := l.opts.Values[in.Name]; bound != nil {
			if in.Elem != onnx.Undefined && in.Elem != bound.Elem {
				return fmt.Errorf("the value bound to input %q is of type %v, want %v", in.Name, bound.Elem, in.Elem)
			}
			v, err := Constant(in.Name, bound)
			if err != nil {
				return fmt.Errorf("the value bound to input %q: %w", in.Name, err)
			}
			sc.values[in.Name] = v
		} else if sc.values[in.Name] == nil {
			sc.values[in.Name] = &Value{Name: in.Name, tensor: graph.None, bad: true}
		}
	}
	return l.opts.Check(g)
}

// initializers defines a graph's initialisers in sc.
func (l *lowerer) initializers(sc *scope, g *onnx.Graph) error {
	for i, t := range g.Initializers {
		if t.Name == "" {
			return fmt.Errorf("initializer %d has no name", i)
		}
		if sc.values[t.Name] != nil {
			return fmt.Errorf("initializer %q is defined twice", t.Name)
		}
		if !t.Elem.DType().Valid() {
			why := &obstacle{reason: fmt.Sprintf("element type %v of an initializer", t.Elem), hint: HintOf(t.Elem)}
			sc.values[t.Name] = &Value{Name: t.Name, tensor: graph.None, bad: true, why: why}
			continue
		}
		v, err := Constant(t.Name, t)
		if err != nil {
			return fmt.Errorf("initializer %q: %w", t.Name, err)
		}
		if isWeight(g, t, v.Type) && !l.opts.FoldWeights {
			v.weight = &weight{name: t.Name, typ: v.Type, data: v.Data, tensor: graph.None}
			if l.opts.Variable != nil && l.opts.Variable(t.Name) {
				v.Known, v.Data, v.weight.variable = false, nil, true
			}
		}
		v.quantised = (v.Type.DType == graph.I8 || v.Type.DType == graph.U8) && v.Rank() > 1
		sc.values[t.Name] = v
		l.evaluator.Hold(int64(len(t.Data)))
	}
	return nil
}

// inputs makes the tensors of the graph inputs, whose dimensions have sizes.
func (l *lowerer) inputs(sc *scope, ins []onnx.ValueInfo) {
	for _, in := range ins {
		v := sc.values[in.Name]
		if in.NotDense != "" {
			l.obstruct(&obstacle{reason: "graph input of type " + in.NotDense, node: in.Name, hint: hintSeries})
			continue
		}
		dt := in.Elem.DType()
		if !dt.Valid() {
			l.obstruct(&obstacle{reason: fmt.Sprintf("element type %v of a graph input", in.Elem), node: in.Name, hint: HintOf(in.Elem)})
			continue
		}
		v.Type = graph.TensorType{DType: dt, Shape: staticShape(in)}
		if err := v.Type.Check(); err != nil {
			l.fail(fmt.Errorf("graph input %q: %w", in.Name, err))
			continue
		}
		v.bad, v.input = false, in.Name
		l.used[in.Name] = true // no weight may have the name of an input
		v.tensor = l.tensor(graph.Tensor{Name: in.Name, Type: v.Type})
		l.ports = append(l.ports, onnx.Port{Name: in.Name, Elem: in.Elem, Tensor: v.tensor})
	}
}

// staticShape returns the shape of an input all of whose dimensions have a size.
func staticShape(in onnx.ValueInfo) []int64 {
	shape := make([]int64, len(in.Dims))
	for axis, d := range in.Dims {
		shape[axis] = d.Value
	}
	return shape
}

// outputs makes the ports of the graph outputs.
func (l *lowerer) outputs(sc *scope, env *environment, outs []onnx.ValueInfo) []onnx.Port {
	if len(outs) == 0 {
		l.fail(errors.New("the graph has no outputs"))
	}
	var ports []onnx.Port
	seen := make(map[string]bool, len(outs))
	for _, out := range outs {
		if seen[out.Name] {
			l.fail(fmt.Errorf("graph output %q is declared twice", out.Name))
			continue
		}
		seen[out.Name] = true
		v := sc.lookup(out.Name)
		if v != nil && v.standIn {
			continue
		}
		if v != nil && v.why != nil {
			l.obstruct(&obstacle{v.why.reason, out.Name, v.why.hint})
		}
		if v == nil || v.bad {
			continue // reported where it should have been computed
		}
		elem := onnx.ElemTypeOf(v.Type.DType)
		if out.Elem != onnx.Undefined && out.Elem != elem {
			l.fail(fmt.Errorf("graph output %q is declared as %v, but its value is %v", out.Name, out.Elem, elem))
			continue
		}
		if v.Counted() {
			ports = append(ports, l.countedOutput(env, out.Name, v, outs))
			continue
		}
		ports = append(ports, onnx.Port{Name: out.Name, Elem: elem, Tensor: l.materialise(v)})
	}
	return ports
}

// tensor adds an entry to the tensor table.
func (l *lowerer) tensor(t graph.Tensor) graph.TensorID {
	l.exe.Tensors = append(l.exe.Tensors, t)
	return graph.TensorID(len(l.exe.Tensors) - 1)
}

// materialise returns the tensor that holds v, which is made if v was a mere
// known value so far.
func (l *lowerer) materialise(v *Value) graph.TensorID {
	if v.tensor != graph.None {
		return v.tensor
	}
	l.note(func() { v.tensor = graph.None })
	w := v.weight
	if w == nil {
		v.tensor = l.tensor(graph.Tensor{Name: v.Name, Type: v.Type, Const: true, Data: v.Data})
		return v.tensor
	}
	if w.tensor == graph.None {
		name := l.unique(w.name)
		w.tensor = l.tensor(graph.Tensor{Name: name, Type: w.typ, Persistent: true})
		l.note(func() { w.tensor = graph.None })
		l.weights = append(l.weights, onnx.Weight{Name: name, Tensor: w.tensor, Data: w.data, Initializer: w.name, Variable: w.variable})
		l.owners[name] = w
	}
	v.tensor = w.tensor
	if !v.Type.Equal(w.typ) {
		v.tensor = l.tensor(graph.Tensor{Name: v.Name, Type: v.Type})
		// In the main graph, whose node that runs the current one comes later:
		// others may use the value too.
		main := &l.exe.Graphs[l.root]
		main.Nodes = append(main.Nodes, graph.Node{
			Op: &graph.Reshape{Shape: v.Type.Shape}, Name: v.Name, Inputs: []graph.TensorID{w.tensor}, Outputs: []graph.TensorID{v.tensor},
		})
	}
	return v.tensor
}

// unique returns a weight's name: an initializer of a branch may have the name
// of one elsewhere.
func (l *lowerer) unique(name string) string {
	s := name
	for l.used[s] {
		l.repeats[name]++
		s = fmt.Sprintf("%s_%d", name, l.repeats[name]+1)
	}
	l.used[s] = true
	l.note(func() { delete(l.used, s) })
	return s
}

// functionKey identifies a model-local function.
type functionKey struct{ domain, name, overload string }

// String returns the function's name with its domain.
func (k functionKey) String() string {
	s := k.name
	if k.domain != "" {
		s = k.domain + "." + s
	}
	if k.overload != "" {
		s += ":" + k.overload
	}
	return s
}
