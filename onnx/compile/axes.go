package compile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/work"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef/family"
)

// place is an axis of an input, and how its size follows from its dimension.
type place struct {
	input, axis int
	rule        axisRule
}

// openDim is a dimension whose size differs between members.
type openDim struct {
	name    string
	symbols []string            // of the model
	at      []place             // axes that have it, and then those that follow from it
	follows map[string]axisRule // by symbol of the model, of axes that follow from it
	gone    bool                // it follows from another one
}

// of returns the dimension's size in a member.
func (d *openDim) of(m *member) int64 { return m.ins[d.at[0].input].Dims[d.at[0].axis].Value }

// openDims returns the dimensions that differ between members, in the order of the first
// axes that have them. A dimension is called by its symbol in the model; "batch" where the batch
// size gives it; by its place, as in "tokens[1]", where it has neither. Axes without a symbol are
// one dimension where they have the same sizes in each member. What follows from another dimension,
// as o.Rules says, belongs to that one.
func openDims(m *onnx.Model, o *Options, members []*member) ([]openDim, error) {
	var dims []openDim
	known := map[string]bool{} // what the model itself calls a dimension
	for _, in := range m.Graph.Inputs {
		for _, d := range in.Dims {
			known[d.Symbol] = true
		}
	}
	declared := func(input string, axis int) (symbol, address string) {
		i := slices.IndexFunc(m.Graph.Inputs, func(v onnx.ValueInfo) bool { return v.Name == input })
		if v := m.Graph.Inputs[i]; v.HasShape {
			symbol = v.Dims[axis].Symbol
		}
		return symbol, fmt.Sprintf("%s[%d]", input, axis)
	}
	batch := map[string]bool{} // symbols that have the batch size
	for _, in := range members[0].ins {
		if len(in.Dims) > 0 {
			symbol, address := declared(in.Name, 0)
			batch[symbol] = symbol != "" && !known["batch"] && o.byBatch(in.Name, symbol, address)
		}
	}
	for i, in := range members[0].ins {
		for axis := range in.Dims {
			at := place{i, axis, axisRule{mul: 1, div: 1}}
			symbol, address := declared(in.Name, axis)
			name := symbol
			one := !slices.ContainsFunc(members, func(mem *member) bool { return mem.ins[i].Dims[axis].Value != in.Dims[axis].Value })
			switch {
			case symbol == "" && one:
				name = address // a number in the model, often: no other axis is the same dimension
			case batch[symbol], axis == 0 && symbol == "" && !known["batch"] && o.byBatch(in.Name, symbol, address):
				name = "batch"
			case name == "":
				name = address
				same := slices.IndexFunc(dims, func(d openDim) bool {
					return d.symbols == nil && !slices.ContainsFunc(members, func(mem *member) bool { return d.of(mem) != mem.ins[i].Dims[axis].Value })
				})
				if same >= 0 {
					name = dims[same].name
				}
			}
			d := slices.IndexFunc(dims, func(d openDim) bool { return d.name == name })
			if d < 0 {
				d = len(dims)
				dims = append(dims, openDim{name: name})
			}
			dims[d].at = append(dims[d].at, at)
			if symbol != "" {
				dims[d].symbols = append(dims[d].symbols, symbol)
			}
		}
	}
	dims, err := o.applyRules(m, dims, members)
	return slices.DeleteFunc(dims, func(d openDim) bool { return d.same(members) }), err
}

// byBatch reports whether all members give a first dimension by the batch size alone.
func (o *Options) byBatch(input, symbol, address string) bool {
	for _, s := range o.Members {
		all := s.On(o.Options)
		_, shape := all.Shapes[input]
		_, bySymbol := all.Dims[symbol]
		_, byPlace := all.Dims[address]
		if all.Batch == 0 || shape || bySymbol || byPlace {
			return false
		}
	}
	return true
}

// checkPads checks what is declared for padding.
func checkPads(pads map[string][]family.Pad, dims []openDim, ins []onnx.ValueInfo) error {
	names := make([]string, len(dims))
	for i := range dims {
		names[i] = dims[i].name
	}
	type along struct{ dim, value string }
	corner := map[string]along{} // by input, along which dimension it is padded, and with what
	for _, name := range slices.Sorted(maps.Keys(pads)) {
		i := slices.Index(names, name)
		if i < 0 {
			return noFamily("padding is declared for the dimension %q, want one of several sizes (%s)%s", name, printable.List(names), cmp.Or(paddedBy(name, dims), nearest.DidYouMean(name, names)))
		}
		has := map[string]onnx.ElemType{}
		for _, at := range dims[i].at {
			has[ins[at.input].Name] = ins[at.input].Elem
		}
		all := slices.Sorted(maps.Keys(has))
		for _, p := range pads[name] {
			elem, ok := has[p.Input]
			switch {
			case !ok && slices.Contains(all, p.Input):
				return noFamily("padding of the dimension %q is declared twice for %q, want it once", name, p.Input)
			case !ok:
				return noFamily("padding of the dimension %q is declared for %q, want an input of that dimension (%s)%s", name, p.Input, printable.List(all), nearest.DidYouMean(p.Input, all))
			}
			delete(has, p.Input)
			if err := checkPad(p.Value, elem.DType()); err != nil {
				return noFamily("padding of the dimension %q for %q: %w", name, p.Input, err)
			}
			if other, ok := corner[p.Input]; ok && other.value != p.Value {
				return noFamily("%q is padded with %s along the dimension %q and with %s along %q: what lies behind both can't be both; declare one value",
					p.Input, other.value, other.dim, p.Value, name)
			}
			corner[p.Input] = along{name, p.Value}
		}
		if len(has) > 0 {
			return noFamily("padding of the dimension %q is declared for some of the inputs that have it, want a value for %s too", name, printable.List(slices.Sorted(maps.Keys(has))))
		}
	}
	return nil
}

// checkPad checks that a value is a number of an element type.
func checkPad(value string, t graph.DType) error {
	var err error
	switch bits := 8 * t.Size(); {
	case t == graph.Bool:
		if _, err = strconv.ParseUint(value, 10, 1); err != nil {
			return fmt.Errorf("found %q, want 0 or 1 (%s)", value, t)
		}
	case t.IsSigned():
		_, err = strconv.ParseInt(value, 10, bits)
	case t.IsUnsigned():
		_, err = strconv.ParseUint(value, 10, bits)
	default:
		_, err = strconv.ParseFloat(value, max(bits, 32))
	}
	if err != nil {
		return fmt.Errorf("found %q, want a number of type %s", value, t)
	}
	return nil
}

// describe says what the members' anchors have in common. r has the anchors of one member
// after the other.
func describe(ctx context.Context, m *onnx.Model, o *Options, dims []openDim, members []*member, r *Result) *family.Family {
	f := &family.Family{}
	for _, d := range dims {
		f.Dims = append(f.Dims, family.Dim{Name: d.name, Pads: o.Pads[d.name]})
	}
	for i, mem := range members {
		f.Members = append(f.Members, family.Member{Program: r.Metadata.ProgramFlow.Main[i], Sizes: mem.sizes, Cost: mem.cost})
	}
	count := r.runAnchors()
	for k, a := range r.Metadata.Anchors[:count] {
		t := family.Tensor{Name: a.Name, Type: a.Type, Elem: a.Info.DataType}
		for i := range members {
			t.Anchors = append(t.Anchors, i*count+k)
		}
		for axis, n := range a.Info.Shape {
			x := family.Axis{Size: n, Dim: -1, Count: r.countOf(k, axis)}
			sizes := make([]int64, len(members))
			same := true
			for i := range members {
				sizes[i] = r.Metadata.Anchors[t.Anchors[i]].Info.Shape[axis]
				same = same && sizes[i] == n
			}
			if !same {
				x.Size, x.Sizes = 0, sizes
			}
			t.Axes = append(t.Axes, x)
		}
		f.Tensors = append(f.Tensors, t)
	}
	for d := range dims {
		for _, at := range dims[d].at {
			x := &f.Tensors[at.input].Axes[at.axis]
			x.Dim, x.Mul, x.Add, x.Div = d, at.rule.mul, at.rule.add(), at.rule.div
		}
	}
	p := &probes{ctx: ctx, m: m, o: o, dims: dims, first: members[0], shapes: map[[2]int64][][]int64{}}
	for k := len(members[0].ins); k < count; k++ {
		declared := slices.IndexFunc(m.Graph.Outputs, func(v onnx.ValueInfo) bool { return v.Name == f.Tensors[k].Name })
		for axis := range f.Tensors[k].Axes {
			if f.Tensors[k].Axes[axis].Sizes == nil {
				continue
			}
			symbol := ""
			if declared >= 0 && axis < len(m.Graph.Outputs[declared].Dims) { // labels and the loss are none of the ONNX model's
				symbol = m.Graph.Outputs[declared].Dims[axis].Symbol
			}
			p.follow(f, &f.Tensors[k].Axes[axis], k-len(r.Inputs), axis, symbol)
		}
	}
	return f
}

// probes are sizes that no member has, at which the model is lowered to see how large its
// outputs are.
type probes struct {
	ctx    context.Context
	m      *onnx.Model
	o      *Options
	dims   []openDim
	first  *member
	shapes map[[2]int64][][]int64 // of the outputs, by dimension and size; nil if it has none
}

// follow finds the dimension that the size of an output's axis follows from, and how: the one that the
// model calls so first.
func (p *probes) follow(f *family.Family, x *family.Axis, output, axis int, symbol string) {
	order := make([]int, len(p.dims))
	for d := range order {
		order[d] = d
	}
	own := func(d int) int {
		if symbol != "" && slices.Contains(p.dims[d].symbols, symbol) {
			return 0
		}
		return 1
	}
	for _, d := range order {
		rule, ok := p.dims[d].follows[symbol]
		for i := range f.Members {
			ok = ok && rule.at(f.Members[i].Sizes[d]) == x.Sizes[i]
		}
		if ok {
			x.Dim, x.Mul, x.Add, x.Div = d, rule.mul, rule.add(), rule.div
			return
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return own(a) - own(b) })
	for _, simple := range []bool{true, false} {
		for _, d := range order {
			var all []point
			for i := range f.Members {
				all = append(all, point{f.Members[i].Sizes[d], x.Sizes[i]})
			}
			rule, ok := findRule(all)
			if !ok || simple && rule != (axisRule{1, 1, 0, 0}) {
				continue
			}
			// Between members the rule only matters where something smaller is padded.
			if len(f.Dims[d].Pads) > 0 && (own(d) == 1 || !simple) {
				if rule, ok = p.refine(all, rule, d, output, axis); !ok {
					continue
				}
			}
			x.Dim, x.Mul, x.Add, x.Div = d, rule.mul, rule.add(), rule.div
			return
		}
	}
}

// refine lowers the model at sizes that tell apart the rules that the points allow. ok is
// false if the size follows no rule.
func (p *probes) refine(all []point, rule axisRule, d, output, axis int) (found axisRule, ok bool) {
	const most = 8
	least := slices.MinFunc(all, func(a, b point) int { return cmp.Compare(a.dim, b.dim) }).dim
	at := least + 1
	for range most {
		if shapes := p.at(d, at); shapes != nil && output < len(shapes) && axis < len(shapes[output]) {
			all = append(all, point{at, shapes[output][axis]})
			if rule, ok = findRule(all); !ok {
				return rule, false
			}
		}
		if rule.low == rule.high {
			break
		}
		// The size at which the middle of what is allowed makes one more than the least.
		at++
		for middle := rule.low + (rule.high-rule.low+1)/2; (rule.mul*at+middle)%rule.div != 0 && at <= least+rule.div; {
			at++
		}
	}
	return rule, true
}

// at returns the shapes of the outputs where a dimension has a size that no member has.
func (p *probes) at(d int, n int64) [][]int64 {
	key := [2]int64{int64(d), n}
	if shapes, ok := p.shapes[key]; ok || p.ctx.Err() != nil {
		return shapes
	}
	var shapes [][]int64
	low, err := LowerContext(p.ctx, p.m, resized(p.o.Options, p.first, &p.dims[d], n))
	if err == nil {
		for _, out := range low.Outputs {
			shapes = append(shapes, low.Executable.Tensors[out.Tensor].Type.Shape)
		}
	}
	p.shapes[key] = shapes
	return shapes
}

// resized returns o with the shapes of a member in which a dimension has the size n.
func resized(o onnx.Options, m *member, d *openDim, n int64) onnx.Options {
	o.Dims, o.Batch, o.Shapes = nil, 0, map[string][]int64{}
	for i, in := range m.ins {
		shape := make([]int64, len(in.Dims))
		for axis, dim := range in.Dims {
			shape[axis] = dim.Value
		}
		for _, at := range d.at {
			if at.input == i {
				shape[at.axis] = at.rule.at(n)
			}
		}
		o.Shapes[in.Name] = shape
	}
	return o
}

// point is the size of an axis where a dimension has a size.
type point struct{ dim, size int64 }

// axisRule is ⌊(mul·n+a)/div⌋ for every a from low to high.
type axisRule struct{ mul, div, low, high int64 }

// add returns the addend that is closest to 0.
func (r axisRule) add() int64 { return min(max(0, r.low), r.high) }

// Bounds on rules: strides and factors of models are small numbers.
const (
	maxMul = 64
	maxDiv = 128
)

// findRule returns the simplest rule that all points follow.
func findRule(all []point) (axisRule, bool) {
	for sum := int64(2); sum <= maxMul+maxDiv; sum++ {
		for mul := max(1, sum-maxDiv); mul <= min(maxMul, sum-1); mul++ {
			r := axisRule{mul: mul, div: sum - mul, low: math.MinInt64, high: math.MaxInt64}
			for _, p := range all {
				// size·div ≤ mul·dim + a < (size+1)·div
				r.low, r.high = max(r.low, p.size*r.div-mul*p.dim), min(r.high, p.size*r.div-mul*p.dim+r.div-1)
			}
			if r.low <= r.high {
				return r, true
			}
		}
	}
	return axisRule{}, false
}

// operations estimates how many operations a program takes.
func operations(e *graph.Executable, program int) float64 {
	var graphWork func(g graph.GraphID) float64
	nodeWork := func(n *graph.Node) float64 {
		switch op := n.Op.(type) {
		case *graph.If:
			return max(graphWork(op.Then), graphWork(op.Else))
		case *graph.Loop:
			return float64(max(1, op.Count)) * graphWork(op.Body)
		}
		types := func(ids []graph.TensorID) []graph.TensorType {
			out := make([]graph.TensorType, len(ids))
			for i, t := range ids {
				if t != graph.None {
					out[i] = e.Tensors[t].Type
				}
			}
			return out
		}
		ops, _ := work.Of(n.Op, types(n.Inputs), types(n.Outputs))
		return float64(ops)
	}
	graphWork = func(g graph.GraphID) (sum float64) {
		for i := range e.Graphs[g].Nodes {
			sum += nodeWork(&e.Graphs[g].Nodes[i])
		}
		return sum
	}
	var steps func(list []graph.Step) float64
	steps = func(list []graph.Step) (sum float64) {
		for _, s := range list {
			switch s.Kind {
			case graph.Call:
				sum += graphWork(s.Graph)
			case graph.Repeat:
				sum += float64(s.Count) * steps(s.Body)
			}
		}
		return sum
	}
	for i := range e.Programs {
		if e.Programs[i].Index == program {
			return steps(e.Programs[i].Steps)
		}
	}
	return 0
}
