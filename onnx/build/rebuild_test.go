package build_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/internal/op"
)

// rebuilder builds a model that there is already, node by node, by calls of a Builder's methods.
type rebuilder struct {
	b      *build.Builder
	opsets map[string]int64
	called map[string]bool // methods
}

// env are the values of a graph and those around it.
type env struct {
	values map[string]*build.Tensor
	around *env
}

func (e *env) get(name string) *build.Tensor {
	for ; e != nil; e = e.around {
		if t, ok := e.values[name]; ok {
			return t
		}
	}
	return nil
}

// rebuilt returns a Builder that was called for all that a model has, with the types of its outputs or without.
func rebuilt(m *onnx.Model, called map[string]bool, declare bool) (*build.Builder, error) {
	r := &rebuilder{opsets: map[string]int64{}, called: called}
	for _, o := range m.Opsets {
		r.opsets[o.Domain] = o.Version
	}
	r.b = build.New(build.Opset(r.opsets[""]))
	e := &env{values: map[string]*build.Tensor{}}
	for _, in := range m.Graph.Inputs {
		if slices.ContainsFunc(m.Graph.Initializers, func(t *onnx.Tensor) bool { return t.Name == in.Name }) {
			continue
		}
		e.values[in.Name] = r.b.Input(in.Name, in.Elem, dimsOf(in)...)
	}
	if err := r.graph(e, m.Graph); err != nil {
		return nil, err
	}
	for _, out := range m.Graph.Outputs {
		t := e.get(out.Name)
		r.b.Output(out.Name, t)
		if declare {
			r.b.Declare(t, out.Elem, dimsOf(out)...)
		}
	}
	return r.b, nil
}

func dimsOf(v onnx.ValueInfo) (dims []any) {
	for _, d := range v.Dims {
		dims = append(dims, d)
	}
	return dims
}

func (r *rebuilder) graph(e *env, g *onnx.Graph) error {
	for _, t := range g.Initializers {
		e.values[t.Name] = r.b.Initializer(t.Name, t)
	}
	for _, n := range g.Nodes {
		if err := r.node(e, n); err != nil {
			return fmt.Errorf("%s: %w", n.OpType, err)
		}
	}
	return nil
}

// method returns the method of a node's operator, and its signature.
func (r *rebuilder) method(n *onnx.Node) (reflect.Value, *op.Signature, error) {
	name, on := n.OpType, reflect.ValueOf(r.b)
	switch n.Domain {
	case "ai.graphcore":
		on = reflect.ValueOf(r.b.Graphcore())
	case "ai.onnx.preview":
		on = reflect.ValueOf(r.b.Preview())
	case "ai.onnx.preview.training":
		on = reflect.ValueOf(r.b.PreviewTraining())
	}
	if n.Domain != "" {
		name = n.Domain + "." + name
	}
	for _, s := range op.Signatures()[name] {
		if v := r.opsets[n.Domain]; v >= s.Version && (s.Until == 0 || v < s.Until) {
			r.called[on.Type().String()+"."+s.Method()] = true
			return on.MethodByName(s.Method()), s, nil
		}
	}
	return reflect.Value{}, nil, fmt.Errorf("no form of %s in operator set %d", name, r.opsets[n.Domain])
}

func (r *rebuilder) node(e *env, n *onnx.Node) error {
	method, s, err := r.method(n)
	if err != nil {
		return err
	}
	typ := method.Type()
	var args []reflect.Value
	for i, o := range s.Operands {
		var rest []*build.Tensor
		for _, name := range n.Inputs[min(i, len(n.Inputs)):] {
			rest = append(rest, e.get(name))
		}
		switch {
		case o.Repeats:
			args = append(args, reflect.ValueOf(rest))
		case len(rest) == 0:
			args = append(args, reflect.ValueOf((*build.Tensor)(nil)))
		default:
			args = append(args, reflect.ValueOf(rest[0]))
		}
	}
	if extra := len(n.Inputs) - len(s.Operands); extra > 0 && !s.Operands[len(s.Operands)-1].Repeats {
		return fmt.Errorf("%d operands, want at most %d", len(n.Inputs), len(s.Operands))
	}
	attribute := func(name string) *onnx.Attribute {
		if i := slices.IndexFunc(n.Attributes, func(a *onnx.Attribute) bool { return a.Name == name }); i >= 0 {
			return n.Attributes[i]
		}
		return nil
	}
	for _, f := range s.Attributes {
		if a := attribute(f.Name); !f.Optional {
			v, err := r.value(e, a, typ.In(len(args)))
			if err != nil {
				return err
			}
			args = append(args, v)
		}
	}
	if typ.NumIn() == len(args)+2 {
		args = append(args, reflect.ValueOf(len(n.Outputs)))
	}
	options := reflect.MakeSlice(typ.In(typ.NumIn()-1), 0, 0)
	for _, f := range s.Attributes {
		a := attribute(f.Name)
		if !f.Optional || a == nil {
			continue
		}
		o, err := r.option(e, a, options.Type().Elem())
		if err != nil {
			return err
		}
		options = reflect.Append(options, o)
	}
	results := method.CallSlice(append(args, options))
	if len(results) == 1 && results[0].Kind() == reflect.Slice {
		list := results[0].Interface().([]*build.Tensor)
		results = nil
		for _, t := range list {
			results = append(results, reflect.ValueOf(t))
		}
	}
	for i, name := range n.Outputs {
		if name != "" {
			e.values[name] = results[i].Interface().(*build.Tensor)
		}
	}
	return nil
}

// option returns the option that an attribute is, made by the function that has a result of the type.
func (r *rebuilder) option(e *env, a *onnx.Attribute, typ reflect.Type) (reflect.Value, error) {
	for _, f := range optionFunctions[a.Name] {
		f := reflect.ValueOf(f)
		if !f.Type().Out(0).Implements(typ) {
			continue
		}
		v, err := r.value(e, a, f.Type().In(0))
		if err != nil {
			return v, err
		}
		if f.Type().IsVariadic() {
			return f.CallSlice([]reflect.Value{v})[0].Convert(typ), nil
		}
		return f.Call([]reflect.Value{v})[0].Convert(typ), nil
	}
	return reflect.Value{}, fmt.Errorf("no function makes attribute %s", a.Name)
}

// value returns an attribute's value in the type of the method's parameter.
func (r *rebuilder) value(e *env, a *onnx.Attribute, typ reflect.Type) (reflect.Value, error) {
	var texts []string
	for _, s := range a.Strings {
		texts = append(texts, string(s))
	}
	body := build.Body(func(in build.Tensors) (out build.Tensors) {
		inner := &env{map[string]*build.Tensor{}, e}
		for i, v := range a.Graph.Inputs {
			inner.values[v.Name] = in[i]
		}
		if err := r.graph(inner, a.Graph); err != nil {
			panic(err)
		}
		for _, v := range a.Graph.Outputs {
			out = append(out, inner.get(v.Name))
		}
		return out
	})
	for _, v := range map[onnx.AttributeType][]any{
		onnx.AttrInt: {a.Int, onnx.ElemType(a.Int), a.Int != 0}, onnx.AttrFloat: {a.Float}, onnx.AttrString: {string(a.String)}, onnx.AttrTensor: {a.Tensor},
		onnx.AttrGraph: {body}, onnx.AttrInts: {a.Ints}, onnx.AttrFloats: {a.Floats}, onnx.AttrStrings: {texts},
	}[a.Type] {
		if v := reflect.ValueOf(v); v.Type() == typ {
			return v, nil
		}
	}
	return reflect.Value{}, fmt.Errorf("attribute %s of type %v where the parameter is %v", a.Name, a.Type, typ)
}

// canonical returns a graph with names that follow from places, for comparison: without names of nodes, types of values, and results that may be left out and are not read.
func canonical(m *onnx.Model) *onnx.Graph {
	opsets := map[string]int64{}
	for _, o := range m.Opsets {
		opsets[o.Domain] = o.Version
	}
	read := map[string]bool{}
	var look func(g *onnx.Graph)
	look = func(g *onnx.Graph) {
		for _, v := range g.Outputs {
			read[v.Name] = true
		}
		for _, n := range g.Nodes {
			for _, name := range n.Inputs {
				read[name] = true
			}
			for _, a := range n.Attributes {
				if a.Graph != nil {
					look(a.Graph)
				}
			}
		}
	}
	look(m.Graph)
	type names struct {
		of     map[string]string
		around *names
	}
	count := 0
	var rename func(g *onnx.Graph, around *names) *onnx.Graph
	rename = func(g *onnx.Graph, around *names) *onnx.Graph {
		here := &names{map[string]string{}, around}
		fresh := func(name string) string {
			count++
			here.of[name] = fmt.Sprintf("v%d", count)
			return here.of[name]
		}
		get := func(name string) string {
			for e := here; e != nil && name != ""; e = e.around {
				if of, ok := e.of[name]; ok {
					return of
				}
			}
			return ""
		}
		out := &onnx.Graph{}
		for _, v := range g.Inputs {
			if around == nil && slices.ContainsFunc(g.Initializers, func(t *onnx.Tensor) bool { return t.Name == v.Name }) {
				continue
			}
			if v.Name = fresh(v.Name); around != nil {
				v = onnx.ValueInfo{Name: v.Name}
			}
			out.Inputs = append(out.Inputs, v)
		}
		for _, t := range g.Initializers {
			c := *t
			c.Name = fresh(t.Name)
			out.Initializers = append(out.Initializers, &c)
		}
		for _, n := range g.Nodes {
			c := &onnx.Node{OpType: n.OpType, Domain: n.Domain}
			for _, name := range n.Inputs {
				c.Inputs = append(c.Inputs, get(name))
			}
			for len(c.Inputs) > 0 && c.Inputs[len(c.Inputs)-1] == "" {
				c.Inputs = c.Inputs[:len(c.Inputs)-1]
			}
			attributes := slices.SortedFunc(slices.Values(n.Attributes), func(a, b *onnx.Attribute) int { return strings.Compare(a.Name, b.Name) })
			for _, a := range attributes {
				x := *a
				if a.Graph != nil {
					x.Graph = rename(a.Graph, here)
				}
				if a.Tensor != nil {
					t := *a.Tensor
					t.Name = ""
					x.Tensor = &t
				}
				c.Attributes = append(c.Attributes, &x)
			}
			name := n.OpType
			if n.Domain != "" {
				name = n.Domain + "." + name
			}
			var form *op.Signature
			for _, s := range op.Signatures()[name] {
				if opsets[n.Domain] >= s.Version {
					form = s
				}
			}
			for i, name := range n.Outputs {
				if !read[name] && form != nil && i < len(form.Results) && form.Results[i].Optional {
					name = ""
				}
				if name != "" {
					name = fresh(name)
				}
				c.Outputs = append(c.Outputs, name)
			}
			for len(c.Outputs) > 0 && c.Outputs[len(c.Outputs)-1] == "" {
				c.Outputs = c.Outputs[:len(c.Outputs)-1]
			}
			out.Nodes = append(out.Nodes, c)
		}
		for _, v := range g.Outputs {
			out.Outputs = append(out.Outputs, onnx.ValueInfo{Name: get(v.Name)})
		}
		return out
	}
	return rename(m.Graph, nil)
}

func encoded(t *testing.T, g *onnx.Graph) []byte {
	b, err := onnx.Encode(&onnx.Model{Graph: g})
	require.NoError(t, err)
	return b
}

// TestRebuildPublicModels builds every public model with the methods of a Builder. What it writes is read again, and has the nodes, attributes and types of the original.
func TestRebuildPublicModels(t *testing.T) {
	data := filepath.Join(onnxtest.Data(t), "data")
	called := map[string]bool{}
	total := 0
	for _, set := range []string{"onnx-node-tests", "onnx-node-tests-older", "onnx-model-tests"} {
		index, err := os.ReadFile(filepath.Join(data, set, "INDEX.tsv"))
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(string(index)), "\n")[1:] {
			name, _, _ := strings.Cut(line, "\t")
			if strings.HasPrefix(name, "light/") {
				continue
			}
			total++
			requireRebuilt(t, set+"/"+name, filepath.Join(data, set, name, "model.onnx"), called)
		}
	}
	t.Logf("%d models, %d methods", total, len(called))
}

func requireRebuilt(t *testing.T, name, path string, called map[string]bool) {
	t.Helper()
	m, err := onnx.ReadFile(path)
	require.NoError(t, err, name)
	b, err := rebuilt(m, called, false)
	require.NoError(t, err, name)
	got, err := b.Model(context.Background())
	if err != nil && strings.Contains(err.Error(), "say it with Declare") {
		b, err = rebuilt(m, called, true)
		require.NoError(t, err, name)
		got, err = b.Model(context.Background())
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	written, err := onnx.Encode(got)
	require.NoError(t, err, name)
	got, err = onnx.Decode(written, "")
	require.NoError(t, err, name)
	if !bytes.Equal(encoded(t, canonical(m)), encoded(t, canonical(got))) {
		t.Errorf("%s: %s", name, cmp.Diff(canonical(m), canonical(got), cmpopts.EquateEmpty(), cmpopts.EquateNaNs()))
	}
	for i, out := range m.Graph.Outputs {
		for axis, d := range got.Graph.Outputs[i].Dims {
			if !d.Known && axis < len(out.Dims) { // what data decides, or what no input says
				out.Dims[axis] = d
			}
		}
		if out.HasShape {
			require.Equal(t, out.String(), got.Graph.Outputs[i].String(), "%s: output %s", name, out.Name)
		}
	}
}
