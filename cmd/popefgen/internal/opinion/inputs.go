package opinion

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/reduce"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
)

// Given is what is known of a model's inputs and outputs.
type Given struct {
	Options onnx.Options // sizes, and values of inputs that are to be constants
	Data    string       // a data set; "" for none
	Inputs  [][2]string  // an input and its value: a file or a literal, see [tensorfile.Path]
	Expect  [][2]string  // a value that the graph computes and a file
	// Draw fills the input of a number with random elements.
	Draw func(t popef.DataType, data []byte, number int)
}

// Read makes a case of a model: sizes are fixed, inputs that have to be known when
// it is compiled are initializers, and each one that is left has a value. Stored
// are the outputs of the data set, or what Expect names; drawn says which inputs
// have random values.
func (v *Given) Read(ctx context.Context, m *onnx.Model) (c *reduce.Case, stored Stored, drawn []string, err error) {
	fail := func(err error) (*reduce.Case, Stored, []string, error) { return nil, nil, nil, err }
	values := map[string]*onnx.Tensor{}
	if stored, err = v.readData(m, values); err != nil {
		return fail(err)
	}
	to := v.Options
	// Files that say their shape give it to the input; what is written down, and
	// raw bytes, need it.
	names := fedInputs(m)
	for _, f := range v.Inputs {
		if !slices.Contains(names, f[0]) {
			return fail(fmt.Errorf("--input %s=%s: the model has no such input%s", f[0], f[1], nearest.DidYouMean(f[0], names)))
		}
		if path, ok := tensorfile.Path(f[1]); ok && !strings.HasSuffix(strings.ToLower(path), ".bin") {
			if values[f[0]], err = tensorfile.ReadONNX(path); err != nil {
				return fail(fmt.Errorf("input %q: %w", f[0], err))
			}
		}
	}
	to.Shapes = map[string][]int64{}
	for name, t := range values {
		to.Shapes[name] = t.Dims
	}
	ins, err := onnx.StaticInputs(m, to)
	if err != nil {
		return fail(err)
	}
	if drawn, err = v.fill(ins, values); err != nil {
		return fail(err)
	}
	fixed, g := *m, *m.Graph
	g.Inputs = slices.Clone(g.Inputs)
	for i, old := range g.Inputs {
		if k := slices.IndexFunc(ins, func(in onnx.ValueInfo) bool { return in.Name == old.Name }); k >= 0 {
			g.Inputs[i] = ins[k]
		}
	}
	fixed.Graph = &g
	c = &reduce.Case{Model: &fixed, Inputs: values}
	var bound []string
	for name, t := range to.Values {
		c.Inputs[name] = t
		bound = append(bound, name)
	}
	if f := Fixed(c, bound); f != nil {
		c = f
	}
	c = Known(ctx, c)
	if len(v.Expect) > 0 {
		if stored, err = v.readExpected(c.Model.Graph); err != nil {
			return fail(err)
		}
	}
	_, err = onnx.Encode(c.Model)
	return c, stored, drawn, err
}

// fedInputs returns the names of the inputs that have no initializer.
func fedInputs(m *onnx.Model) (names []string) {
	for _, v := range m.Graph.Inputs {
		if !slices.ContainsFunc(m.Graph.Initializers, func(t *onnx.Tensor) bool { return t.Name == v.Name }) {
			names = append(names, v.Name)
		}
	}
	return names
}

// readData takes values of inputs, and stored outputs, from the data set.
func (v *Given) readData(m *onnx.Model, values map[string]*onnx.Tensor) (stored Stored, err error) {
	if v.Data == "" {
		return nil, nil
	}
	set, err := tensorfile.OpenDataSet(v.Data)
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	defer set.Close()
	ins, outs := fedInputs(m), outputNames(m.Graph)
	for _, s := range set.Stored {
		t, err := set.Tensor(s)
		if err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
		// By name, where the names are the model's, else in order.
		place := func(names []string) string {
			switch {
			case slices.Contains(names, s.Name):
				return s.Name
			case s.Number >= 0 && s.Number < len(names):
				return names[s.Number]
			}
			return ""
		}
		switch in, out := place(ins), place(outs); {
		case s.Role != tensorfile.OutputRole && in != "":
			values[in] = t
		case s.Role != tensorfile.InputRole && out != "":
			if stored == nil {
				stored = Stored{}
			}
			stored[out] = t
		default:
			return nil, fmt.Errorf("--data: %s is neither an input nor an output of the model (inputs %s; outputs %s)", s.Where, strings.Join(ins, ", "), strings.Join(outs, ", "))
		}
	}
	return stored, nil
}

// readExpected reads what Expect names.
func (v *Given) readExpected(g *onnx.Graph) (Stored, error) {
	stored := Stored{}
	names := outputNames(g)
	for _, n := range g.Nodes {
		names = append(names, n.Outputs...)
	}
	for _, f := range v.Expect {
		if !slices.Contains(names, f[0]) {
			return nil, fmt.Errorf("--expect %s=%s: the model computes no such value%s", f[0], f[1], nearest.DidYouMean(f[0], names))
		}
		path, _ := tensorfile.Path(f[1])
		t, err := tensorfile.ReadONNX(path)
		if err != nil {
			return nil, fmt.Errorf("--expect %s: %w", f[0], err)
		}
		stored[f[0]] = t
	}
	return stored, nil
}

func outputNames(g *onnx.Graph) (names []string) {
	for _, out := range g.Outputs {
		names = append(names, out.Name)
	}
	return names
}

// fill gives every input a value: what is given, or random numbers.
func (v *Given) fill(ins []onnx.ValueInfo, values map[string]*onnx.Tensor) (drawn []string, err error) {
	room := budget.New(0)
	for i, in := range ins {
		dt := in.Elem.DType()
		if in.NotDense != "" || !dt.Valid() {
			return nil, fmt.Errorf("input %q is %s, which popefgen does not read", in.Name, in)
		}
		if t := values[in.Name]; t != nil {
			if t.Elem != in.Elem {
				return nil, fmt.Errorf("input %q is %s in its file, want %s", in.Name, t.Elem, in.Elem)
			}
			continue
		}
		t := &onnx.Tensor{Name: in.Name, Elem: in.Elem, Dims: make([]int64, len(in.Dims))}
		for k, d := range in.Dims {
			t.Dims[k] = d.Value
		}
		typ := graph.TensorType{DType: dt, Shape: t.Dims}
		if err := typ.Check(); err != nil {
			return nil, fmt.Errorf("input %q: %w", in.Name, err)
		}
		if err := room.Take(typ.Bytes(), "input %q", in.Name); err != nil {
			return nil, err
		}
		info, err := export.Info(typ)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", in.Name, err)
		}
		if k := slices.IndexFunc(v.Inputs, func(f [2]string) bool { return f[0] == in.Name }); k >= 0 {
			if t.Data, err = tensorfile.ReadValue(v.Inputs[k][1], info, 1); err != nil {
				return nil, fmt.Errorf("input %q: %w", in.Name, err)
			}
		} else {
			t.Data = make([]byte, typ.Bytes())
			v.draw(t, info.DataType, i)
			drawn = append(drawn, printable.Line(in.Name)+" "+in.String())
		}
		values[in.Name] = t
	}
	return drawn, nil
}

// draw fills a tensor of ONNX, whose type PopEF may not have.
func (v *Given) draw(t *onnx.Tensor, as popef.DataType, number int) {
	if t.Elem == onnx.BFloat16 { // the upper halves of float32
		wide := make([]byte, 2*len(t.Data))
		v.Draw(popef.F32, wide, number)
		for i := range len(t.Data) / 2 {
			copy(t.Data[2*i:], wide[4*i+2:4*i+4])
		}
		return
	}
	v.Draw(as, t.Data, number)
}
