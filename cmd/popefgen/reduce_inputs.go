package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/opinion"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/reduce"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
)

// read makes the model's case: sizes are fixed, values that flags bind are
// initializers, and each input that is left has a value.
func (j *reduction) read(m *onnx.Model) error {
	o, err := optionsOf(j.c)
	if err != nil {
		return err
	}
	to, err := o.compileOptions(m)
	if err != nil {
		return err
	}
	given, err := assignments("input", j.c.StringSlice("input"))
	if err != nil {
		return err
	}
	values := map[string]*onnx.Tensor{}
	if err := j.readData(m, values); err != nil {
		return err
	}
	// Files that say their shape give it to the input; what is written down, and
	// raw bytes, need it.
	names := fedInputs(m)
	for _, f := range given {
		if !slices.Contains(names, f[0]) {
			return unknownInput(f, names)
		}
		if path, ok := tensorfile.Path(f[1]); ok && !strings.HasSuffix(strings.ToLower(path), ".bin") {
			if values[f[0]], err = tensorfile.ReadONNX(path); err != nil {
				return fmt.Errorf("input %q: %w", f[0], err)
			}
		}
	}
	to.Shapes = map[string][]int64{}
	for name, t := range values {
		to.Shapes[name] = t.Dims
	}
	ins, err := onnx.StaticInputs(m, to.Options)
	if err != nil {
		return err
	}
	if err := j.fill(ins, values, given); err != nil {
		return err
	}
	fixed, g := *m, *m.Graph
	g.Inputs = slices.Clone(g.Inputs)
	for i, v := range g.Inputs {
		if k := slices.IndexFunc(ins, func(in onnx.ValueInfo) bool { return in.Name == v.Name }); k >= 0 {
			g.Inputs[i] = ins[k]
		}
	}
	fixed.Graph, fixed.Path = &g, ""
	c := &reduce.Case{Model: &fixed, Inputs: values}
	var bound []string
	for name, t := range to.Values {
		c.Inputs[name] = t
		bound = append(bound, name)
	}
	if f := opinion.Fixed(c, bound); f != nil {
		c = f
	}
	j.start = opinion.Known(j.c.Context, c)
	if err := j.readStored(); err != nil {
		return err
	}
	if _, err := onnx.Encode(j.start.Model); err != nil {
		return fmt.Errorf("%s: %w", j.model, err)
	}
	return nil
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

// readData takes values of inputs, and stored outputs, from a data set.
func (j *reduction) readData(m *onnx.Model, values map[string]*onnx.Tensor) error {
	path := j.c.String("data")
	if path == "" {
		return nil
	}
	set, err := tensorfile.OpenDataSet(path)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	defer set.Close()
	ins, outs := fedInputs(m), []string(nil)
	for _, v := range m.Graph.Outputs {
		outs = append(outs, v.Name)
	}
	for _, s := range set.Stored {
		t, err := set.Tensor(s)
		if err != nil {
			return fmt.Errorf("--data: %w", err)
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
			if j.stored == nil {
				j.stored = opinion.Stored{}
			}
			j.stored[out] = t
		default:
			return fmt.Errorf("--data: %s is neither an input nor an output of the model (inputs %s; outputs %s)", s.Where, strings.Join(ins, ", "), strings.Join(outs, ", "))
		}
	}
	if j.c.IsSet("against") || j.c.IsSet("check") || j.c.IsSet("error") {
		j.stored = nil // these say what is right
	}
	return nil
}

// readStored reads what --expect names.
func (j *reduction) readStored() error {
	files, err := assignments("expect", j.c.StringSlice("expect"))
	if err != nil || len(files) == 0 {
		return err
	}
	j.stored = opinion.Stored{}
	var names []string
	for _, v := range j.start.Model.Graph.Outputs {
		names = append(names, v.Name)
	}
	for _, n := range j.start.Model.Graph.Nodes {
		names = append(names, n.Outputs...)
	}
	for _, f := range files {
		if !slices.Contains(names, f[0]) {
			return fmt.Errorf("--expect %s=%s: the model computes no value %q%s", f[0], f[1], f[0], nearest.DidYouMean(f[0], names))
		}
		path, _ := tensorfile.Path(f[1])
		if j.stored[f[0]], err = tensorfile.ReadONNX(path); err != nil {
			return fmt.Errorf("--expect %s: %w", f[0], err)
		}
	}
	return nil
}

// fill gives every input a value: what is given, or random numbers.
func (j *reduction) fill(ins []onnx.ValueInfo, values map[string]*onnx.Tensor, given [][2]string) error {
	room := budget.New(0)
	var drawn []string
	for i, in := range ins {
		dt := in.Elem.DType()
		if in.NotDense != "" || !dt.Valid() {
			return fmt.Errorf("input %q is %s, which popefgen does not read", in.Name, in)
		}
		if t := values[in.Name]; t != nil {
			if t.Elem != in.Elem {
				return fmt.Errorf("input %q is %s in its file, want %s", in.Name, t.Elem, in.Elem)
			}
			continue
		}
		t := &onnx.Tensor{Name: in.Name, Elem: in.Elem, Dims: make([]int64, len(in.Dims))}
		for k, d := range in.Dims {
			t.Dims[k] = d.Value
		}
		typ := graph.TensorType{DType: dt, Shape: t.Dims}
		if err := typ.Check(); err != nil {
			return fmt.Errorf("input %q: %w", in.Name, err)
		}
		if err := room.Take(typ.Bytes(), "input %q", in.Name); err != nil {
			return err
		}
		info, err := compile.Info(typ)
		if err != nil {
			return fmt.Errorf("input %q: %w", in.Name, err)
		}
		if k := slices.IndexFunc(given, func(f [2]string) bool { return f[0] == in.Name }); k >= 0 {
			if t.Data, err = readInput(given[k][1], info, 1); err != nil {
				return fmt.Errorf("input %q: %w", in.Name, err)
			}
		} else {
			t.Data = make([]byte, typ.Bytes())
			randomTensor(t, info.DataType, j.c.Uint64("random")+uint64(i))
			drawn = append(drawn, printable.Line(in.Name)+" "+in.String())
		}
		values[in.Name] = t
	}
	if drawn != nil {
		j.say("drawn at random (--random %d): %s", j.c.Uint64("random"), strings.Join(drawn, ", "))
	}
	return nil
}

// randomTensor is [fillRandom] of a tensor of ONNX, whose type PopEF may not have.
func randomTensor(t *onnx.Tensor, as popef.DataType, seed uint64) {
	if t.Elem == onnx.BFloat16 { // the upper halves of float32
		wide := make([]byte, 2*len(t.Data))
		fillRandom(popef.F32, wide, seed)
		for i := range len(t.Data) / 2 {
			copy(t.Data[2*i:], wide[4*i+2:4*i+4])
		}
		return
	}
	fillRandom(as, t.Data, seed)
}
