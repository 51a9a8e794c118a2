package verify

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// several are the data sets of a case that go through the members of a family.
type several struct {
	m       *onnx.Model
	o       Options
	options compile.Options // with members
	// made are the families that were compiled: one for all sets whose inputs that had to be bound
	// are equal.
	made []*compiled
}

// compiled is a family, with the values of the inputs that it does not have any more.
type compiled struct {
	*compile.Result
	values map[string]*onnx.Tensor
	model  *popef.Model
}

// newSeveral prepares a case for a family, nil if its model, compiled as o.Compile says, is to have one size.
func newSeveral(m *onnx.Model, c Case, o Options) (*several, error) {
	if !o.SizesOfData && len(o.Compile.Members) == 0 {
		return nil, nil
	}
	s := &several{m: m, o: o, options: o.Compile}
	if err := tensorsOnly(m); err != nil {
		return nil, err
	}
	if o.SizesOfData {
		for _, set := range c.Sets {
			named, _, err := readSet(m, set)
			if err != nil {
				return nil, err
			}
			if err := s.add(named); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// add makes the sizes of a data set those of a member, unless one has them.
func (s *several) add(named map[string]*onnx.Tensor) error {
	shapes := map[string][]int64{}
	for name, t := range named {
		shapes[name] = t.Dims
	}
	own := compile.Sizes{Shapes: shapes}
	o := s.options.Options
	o.Shapes = shapes
	want, err := onnx.StaticInputs(s.m, o)
	if err != nil {
		return err
	}
	for _, other := range s.options.Members {
		o := s.options.Options
		o.Dims, o.Batch, o.Shapes = other.Dims, other.Batch, other.Shapes
		have, err := onnx.StaticInputs(s.m, o)
		if err == nil && slices.EqualFunc(want, have, func(a, b onnx.ValueInfo) bool { return slices.Equal(a.Dims, b.Dims) }) {
			return nil
		}
	}
	s.options.Members = append(s.options.Members, own)
	return nil
}

// close closes the models.
func (s *several) close() {
	for _, c := range s.made {
		c.model.Close()
	}
}

// of returns the family for a data set.
func (s *several) of(ctx context.Context, set string, named map[string]*onnx.Tensor) (*compiled, error) {
	for _, c := range s.made {
		if equalValues(c.values, named) {
			return c, nil
		}
	}
	o := s.options
	o.Values = maps.Clone(o.Values)
	if o.Values == nil {
		o.Values = map[string]*onnx.Tensor{}
	}
	given := maps.Clone(o.Values)
	most := int64(0)
	if s.o.Open {
		var err error
		if most, err = mostOf(set); err != nil {
			return nil, err
		}
	}
	r, err := compileBinding(ctx, s.m, named, o, most)
	if err != nil {
		return nil, err
	}
	c := &compiled{Result: r, values: map[string]*onnx.Tensor{}}
	for name, t := range named {
		if given[name] == nil && !slices.ContainsFunc(r.Inputs, func(p compile.Port) bool { return p.Name == name }) {
			c.values[name] = t
		}
	}
	if c.model, err = r.ModelContext(ctx, filepath.Base(filepath.Dir(set))); err != nil {
		return nil, err
	}
	s.made = append(s.made, c)
	return c, nil
}

func equalValues(values, named map[string]*onnx.Tensor) bool {
	for name, v := range values {
		t := named[name]
		if t == nil || !slices.Equal(t.Dims, v.Dims) || !slices.Equal(t.Data, v.Data) {
			return false
		}
	}
	return true
}

// run judges one data set by each member that is to compute it: the one of its sizes or else that which
// [family.Family.Choose] gives, and the next larger one along each dimension that may be filled up.
func (s *several) run(ctx context.Context, set string, results func(func(r *Result) error)) error {
	named, wants, err := readSet(s.m, set)
	if err != nil {
		return err
	}
	c, err := s.of(ctx, set, named)
	if err != nil {
		return err
	}
	if len(wants) != len(c.Outputs) {
		return fmt.Errorf("the model has %d outputs, %s holds %d", len(c.Outputs), set, len(wants))
	}
	if err := fits(c.Inputs, named); err != nil {
		return err
	}
	f := c.Family
	if f == nil { // all data sets have one size
		fed := map[string][]byte{}
		for _, p := range c.Inputs {
			fed[p.Name] = named[p.Name].Data
		}
		results(func(r *Result) error {
			r.Folded = folded(c.Executable)
			return judge(ctx, s.o, &trial{model: c.model, fed: fed, inputs: c.Inputs, outputs: c.Outputs, wants: wants,
				cut: func(i int, outs map[string][]byte) ([]int64, []byte, error) { return Cut(c.Outputs[i], outs) }}, r)
		})
		return nil
	}
	shapes := map[string][]int64{}
	for name, t := range named {
		shapes[name] = t.Dims
	}
	sizes, err := f.Sizes(shapes)
	if err != nil {
		return err
	}
	first, _, err := f.Choose(sizes)
	if exact := f.Member(sizes); exact >= 0 {
		first, err = exact, nil
	}
	if err != nil {
		return err
	}
	members := []int{first}
	for d := range f.Dims {
		if k := larger(f, sizes, d); k >= 0 && f.Dims[d].Padded() && !slices.Contains(members, k) {
			if _, _, err := f.Choose(sizes); err == nil {
				members = append(members, k)
			}
		}
	}
	for _, member := range members {
		results(func(r *Result) error {
			r.Member = f.Named(f.Members[member].Sizes)
			if !slices.Equal(f.Members[member].Sizes, sizes) {
				r.Filled = f.Named(sizes)
			}
			t := &trial{model: f.Single(c.model, member), inputs: c.Inputs, outputs: c.Outputs, wants: wants}
			if t.fed, err = filled(f, member, sizes, named); err != nil {
				return err
			}
			t.cut = func(i int, outs map[string][]byte) ([]int64, []byte, error) {
				return cutMember(f, f.Tensor(c.Outputs[i].Name, popef.Output), member, sizes, outs)
			}
			r.Folded = foldedProgram(c.Executable, f.Members[member].Program)
			return judge(ctx, s.o, t, r)
		})
	}
	return nil
}

// larger returns the member that is the next larger one in dimension d alone, -1 if there is none.
func larger(f *family.Family, sizes []int64, d int) int {
	best := -1
	for i, m := range f.Members {
		same := slices.Clone(m.Sizes)
		same[d] = sizes[d]
		if slices.Equal(same, sizes) && m.Sizes[d] > sizes[d] && (best < 0 || m.Sizes[d] < f.Members[best].Sizes[d]) {
			best = i
		}
	}
	return best
}

// filled returns the inputs of a request of some sizes as a member takes them.
func filled(f *family.Family, member int, sizes []int64, named map[string]*onnx.Tensor) (map[string][]byte, error) {
	ins := map[string][]byte{}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Type != popef.Input {
			continue
		}
		value := make([]byte, t.Elem.Size())
		for d := range f.Dims {
			for _, p := range f.Dims[d].Pads {
				if p.Input == t.Name && f.Members[member].Sizes[d] != sizes[d] {
					var err error
					if value, err = tensorfile.ReadValue(p.Value, popef.TensorInfo{DataType: t.Elem}, 1); err != nil {
						return nil, err
					}
				}
			}
		}
		to := t.Shape(member, f.Members[member].Sizes)
		ins[t.Name] = make([]byte, sizeIn(t, to))
		family.Move(ins[t.Name], to, named[t.Name].Data, named[t.Name].Dims, t.Elem.Size(), value)
	}
	return ins, nil
}

// cutMember is [Cut] of what a member gave for a request of some sizes.
func cutMember(f *family.Family, t *family.Tensor, member int, sizes []int64, outs map[string][]byte) ([]int64, []byte, error) {
	shape := t.Shape(member, sizes)
	for axis := range t.Axes {
		name := t.Axes[axis].Count
		if name == "" {
			continue
		}
		n, err := countIn(outs[name], t.Name, name, axis, shape[axis])
		if err != nil {
			return nil, nil, err
		}
		shape[axis] = n
	}
	got := make([]byte, sizeIn(t, shape))
	family.Move(got, shape, outs[t.Name], t.Shape(member, f.Members[member].Sizes), t.Elem.Size(), nil)
	return shape, got, nil
}

// foldedProgram is [folded] of one program.
func foldedProgram(e *graph.Executable, program uint32) bool {
	i := slices.IndexFunc(e.Programs, func(p graph.Program) bool { return p.Index == int(program) })
	one := *e
	one.Programs = e.Programs[i : i+1]
	return i >= 0 && folded(&one)
}
