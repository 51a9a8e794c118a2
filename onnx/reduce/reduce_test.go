package reduce

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// predicateFunc is a predicate that looks at the model alone.
type predicateFunc func(c *Case) bool

func (f predicateFunc) Interesting(_ context.Context, c *Case) (bool, error) { return f(c), nil }

// anything is a source that has a value for everything but the names in it.
type anything map[string]bool

func (lacks anything) Values(_ context.Context, c *Case, names []string) (map[string]*onnx.Tensor, error) {
	got := map[string]*onnx.Tensor{}
	at := producers(c.Model.Graph)
	for _, name := range names {
		if _, ok := at[name]; !ok || lacks[name] {
			return nil, fmt.Errorf("there is no value %q", name)
		}
		got[name] = floats(name, []int64{2, 3}, 0.5, 1, 2, 3, 4, 5)
	}
	return got, nil
}

func floats(name string, dims []int64, values ...float32) *onnx.Tensor {
	t := &onnx.Tensor{Name: name, Elem: onnx.Float, Dims: dims}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

// validity returns what is wrong with a case.
func validity(c *Case) error {
	g := c.Model.Graph
	defined := map[string]bool{}
	define := func(name string) error {
		if name != "" && defined[name] {
			return fmt.Errorf("%q is defined twice", name)
		}
		defined[name] = true
		return nil
	}
	for _, t := range g.Initializers {
		if err := define(t.Name); err != nil {
			return err
		}
	}
	for _, v := range g.Inputs {
		if slices.ContainsFunc(g.Initializers, func(t *onnx.Tensor) bool { return t.Name == v.Name }) {
			continue
		}
		if err := define(v.Name); err != nil {
			return err
		}
		if c.Inputs[v.Name] == nil || c.Inputs[v.Name].Name != v.Name {
			return fmt.Errorf("input %q has no value", v.Name)
		}
		if d := cmp.Diff(onnx.Declare(v.Name, c.Inputs[v.Name].Elem, c.Inputs[v.Name].Dims), v); d != "" {
			return errors.New(d)
		}
	}
	for _, n := range g.Nodes {
		for _, name := range reads(n) {
			if !defined[name] {
				return fmt.Errorf("%s reads %q, which nothing defines before it", n.OpType, name)
			}
		}
		for _, name := range n.Outputs {
			if err := define(name); err != nil {
				return err
			}
		}
	}
	if len(g.Outputs) == 0 {
		return errors.New("there is no output")
	}
	for _, name := range outputNames(g) {
		if !defined[name] {
			return fmt.Errorf("output %q is not defined", name)
		}
	}
	if _, err := onnx.Encode(c.Model); err != nil {
		return err
	}
	return check(c)
}

// drawCase draws a graph of operators A to F with attributes, several outputs and a
// subgraph at times.
func drawCase(t *rapid.T) *Case {
	g := &onnx.Graph{Name: "g"}
	c := &Case{&onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}, {Domain: "other", Version: 1}}, Graph: g}, map[string]*onnx.Tensor{}}
	var names []string
	for i := range rapid.IntRange(1, 3).Draw(t, "inputs") {
		name := fmt.Sprint("x", i)
		c.Inputs[name] = floats("", []int64{2, 3}, 1, 2, 3, 4, 5, 6.5)
		g.Inputs = append(g.Inputs, onnx.Declare(name, c.Inputs[name].Elem, c.Inputs[name].Dims))
		names = append(names, name)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "initializers") {
		w := floats(fmt.Sprint("w", i), []int64{3}, 1, 0, 1)
		g.Initializers = append(g.Initializers, w)
		names = append(names, w.Name)
	}
	for i := range rapid.IntRange(1, 25).Draw(t, "nodes") {
		n := &onnx.Node{OpType: rapid.SampledFrom([]string{"A", "B", "C", "D", "E", "F", "Shape"}).Draw(t, "op")}
		n.Inputs = rapid.SliceOfN(rapid.SampledFrom(append([]string{""}, names...)), 1, 3).Draw(t, "operands")
		for k := range rapid.IntRange(0, 2).Draw(t, "attributes") {
			n.Attributes = append(n.Attributes, &onnx.Attribute{Name: fmt.Sprint("a", k), Type: onnx.AttrInt, Int: rapid.Int64Range(0, 3).Draw(t, "value")})
		}
		if rapid.IntRange(0, 9).Draw(t, "subgraph") == 0 {
			body := &onnx.Graph{Name: "b", Nodes: []*onnx.Node{{OpType: "A", Inputs: []string{rapid.SampledFrom(names).Draw(t, "captured")}, Outputs: []string{fmt.Sprint("inner", i)}}}}
			body.Outputs = []onnx.ValueInfo{{Name: fmt.Sprint("inner", i)}}
			n.Attributes = append(n.Attributes, &onnx.Attribute{Name: "body", Type: onnx.AttrGraph, Graph: body})
		}
		n.Outputs = []string{fmt.Sprint("v", i)}
		if rapid.IntRange(0, 4).Draw(t, "results") == 0 {
			n.Outputs = append(n.Outputs, fmt.Sprint("u", i))
		}
		g.Nodes = append(g.Nodes, n)
		names = append(names, n.Outputs...)
		if i == 0 || rapid.IntRange(0, 3).Draw(t, "output") == 0 {
			g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: n.Outputs[0], Elem: onnx.Float})
		}
	}
	if last := g.Nodes[len(g.Nodes)-1].Outputs[0]; !slices.Contains(outputNames(g), last) {
		g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: last})
	}
	return c
}

// TestReduceDrawn reduces drawn graphs by drawn predicates: a wrong kernel is an operator
// with an attribute, a wrong fusion one operator that reads another's result.
// Whatever is judged is a valid model; the result is interesting, not larger, and
// no node of it can be taken away.
func TestReduceDrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCase(t)
		ops := []string{"A", "B", "C", "D"}
		op, before := rapid.SampledFrom(ops).Draw(t, "wrong"), rapid.SampledFrom(append(ops, "", "")).Draw(t, "after")
		value := rapid.Int64Range(-1, 3).Draw(t, "with")
		shows := func(c *Case) bool {
			at := producers(c.Model.Graph)
			for _, n := range c.Model.Graph.Nodes {
				ok := n.OpType == op && (value < 0 || slices.ContainsFunc(n.Attributes, func(a *onnx.Attribute) bool { return a.Type == onnx.AttrInt && a.Int == value }))
				if ok && before != "" {
					ok = slices.ContainsFunc(reads(n), func(name string) bool { p, has := at[name]; return has && c.Model.Graph.Nodes[p].OpType == before })
				}
				if ok {
					return true
				}
			}
			return false
		}
		lacks := anything{}
		for _, name := range rapid.SliceOfN(rapid.StringMatching(`v[0-9]`), 0, 2).Draw(t, "unknown") {
			lacks[name] = true
		}
		judged := 0
		p := predicateFunc(func(c *Case) bool {
			judged++
			if judged > 1 { // the first one is the drawn model itself
				if err := validity(c); err != nil {
					t.Fatalf("case %d: %v", judged, err)
				}
			}
			return shows(c)
		})
		got, err := Reduce(context.Background(), c, p, lacks, Options{})
		if !shows(c.tidied()) {
			want := ErrNotInteresting
			if shows(c) {
				want = ErrUnneeded
			}
			require.ErrorIs(t, err, want)
			return
		}
		require.NoError(t, err)
		require.True(t, got.Minimal)
		require.True(t, shows(got.Case))
		require.NoError(t, validity(got.Case))
		require.LessOrEqual(t, got.Case.Size().Compare(c.Size()), 0)
		require.Equal(t, judged, got.Tried)

		// No node can go.
		r := &reducer{ctx: context.Background(), predicate: predicateFunc(shows), source: lacks, dull: map[[32]byte]bool{}}
		r.become(got.Case)
		if nodes := got.Case.Model.Graph.Nodes; len(nodes) > 1 {
			for i := range nodes {
				kept := r.all()
				kept[i] = false
				for _, outputs := range [][]string{r.left(kept), r.ends(kept)} {
					if c := r.keep(kept, outputs); c != nil {
						require.False(t, shows(c.tidied()), "node %d can go", i)
					}
				}
			}
		}
		if len(lacks) == 0 { // then the wrong node and what it reads are all
			want := 1
			if before != "" {
				want = 2
			}
			require.LessOrEqual(t, len(got.Case.Model.Graph.Nodes), want)
		}
	})
}

// chain is x → n0 → … → y, with an attribute each.
func chain(n int) *Case {
	g := &onnx.Graph{Name: "chain", Inputs: []onnx.ValueInfo{{Name: "x", Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Known: true, Value: 2}, {Known: true, Value: 3}}}}}
	c := &Case{&onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: g}, map[string]*onnx.Tensor{"x": floats("x", []int64{2, 3}, 1, 2, 3, 4, 5, 6)}}
	for i := range n {
		in, out := fmt.Sprint("t", i), fmt.Sprint("t", i+1)
		if i == 0 {
			in = "x"
		}
		g.Nodes = append(g.Nodes, &onnx.Node{Name: fmt.Sprint("n", i), OpType: "Op", Inputs: []string{in}, Outputs: []string{out},
			Attributes: []*onnx.Attribute{{Name: "i", Type: onnx.AttrInt, Int: int64(i)}}})
	}
	g.Outputs = []onnx.ValueInfo{{Name: fmt.Sprint("t", n)}}
	return c
}

func has(names ...string) predicateFunc {
	return func(c *Case) bool {
		for _, name := range names {
			if !slices.ContainsFunc(c.Model.Graph.Nodes, func(n *onnx.Node) bool { return n.Name == name }) {
				return false
			}
		}
		return true
	}
}

// TestReduceBisects finds one node of a thousand within some dozens of tries.
func TestReduceBisects(t *testing.T) {
	for _, at := range []int{0, 1, 500, 998, 999} {
		name := fmt.Sprint("n", at)
		got, err := Reduce(t.Context(), chain(1000), has(name), anything{}, Options{})
		require.NoError(t, err)
		g := got.Case.Model.Graph
		require.Len(t, g.Nodes, 1)
		require.Equal(t, name, g.Nodes[0].Name)
		require.Empty(t, g.Nodes[0].Attributes)
		require.Empty(t, g.Inputs, "nothing asks for the operand")
		require.Less(t, got.Tried, 60, name)
	}
	got, err := Reduce(t.Context(), chain(300), has("n7", "n100", "n211"), anything{}, Options{})
	require.NoError(t, err)
	require.Len(t, got.Case.Model.Graph.Nodes, 3)
	require.Less(t, got.Tried, 150)
}

// TestReduceShrinks looks at what is left of tensors, operands and attributes.
func TestReduceShrinks(t *testing.T) {
	c := chain(1)
	g := c.Model.Graph
	g.Initializers = []*onnx.Tensor{floats("w", []int64{3, 2}, 1.25, -7, 3, 900, 5, 6), floats("b", []int64{2}, 1, 1)}
	g.Nodes[0].Inputs = []string{"x", "w", "", "b"}
	g.Nodes[0].Attributes = append(g.Nodes[0].Attributes, &onnx.Attribute{Name: "needed", Type: onnx.AttrInt, Int: 3}, &onnx.Attribute{Name: "other", Type: onnx.AttrInt})
	tensorOf := func(c *Case, name string) *onnx.Tensor {
		i := slices.IndexFunc(c.tensors(), func(t *onnx.Tensor) bool { return t.Name == name })
		if i < 0 {
			return nil
		}
		return c.tensors()[i]
	}
	p := predicateFunc(func(c *Case) bool {
		n := c.Model.Graph.Nodes[0]
		x, w := tensorOf(c, "x"), tensorOf(c, "w")
		return x != nil && w != nil && len(n.Inputs) > 1 && n.Inputs[1] == "w" && x.Dims[1] == w.Dims[0] && w.Dims[1] == 2 && graph.Number(w.Elem.DType(), w.Data[4:]) < 0 &&
			slices.ContainsFunc(n.Attributes, func(a *onnx.Attribute) bool { return a.Name == "needed" && a.Int == 3 })
	})
	got, err := Reduce(t.Context(), c, p, anything{}, Options{})
	require.NoError(t, err)
	n := got.Case.Model.Graph.Nodes[0]
	require.Equal(t, []string{"x", "w"}, n.Inputs)
	require.Len(t, n.Attributes, 1)
	require.Equal(t, []int64{1, 1}, tensorOf(got.Case, "x").Dims)
	require.Empty(t, cmp.Diff(floats("w", []int64{1, 2}, 1, -7), tensorOf(got.Case, "w")))
	require.Empty(t, cmp.Diff(floats("x", []int64{1, 1}, 0), tensorOf(got.Case, "x")))
	require.Len(t, got.Case.Model.Graph.Initializers, 1)
}

// TestReduceCutsOnly chooses among outputs and values that are known, and changes
// none.
func TestReduceCutsOnly(t *testing.T) {
	lacks := anything{}
	outputs := map[string]bool{}
	for i := range 101 {
		if name := fmt.Sprint("t", i); i%10 == 0 {
			outputs[name] = true
		} else {
			lacks[name] = true
		}
	}
	c := chain(100)
	got, err := Reduce(t.Context(), c, has("n55"), lacks, Options{Outputs: outputs})
	require.NoError(t, err)
	g := got.Case.Model.Graph
	require.Len(t, g.Nodes, 10)
	require.Equal(t, []string{"t60"}, outputNames(g))
	require.Equal(t, "t50", g.Inputs[0].Name)
	require.Equal(t, []int64{2, 3}, got.Case.Inputs["t50"].Dims)
	for _, n := range g.Nodes {
		require.Len(t, n.Attributes, 1)
	}
}

// TestReduceEnds stops at the time limit, with the context, and at an error.
func TestReduceEnds(t *testing.T) {
	slow := predicateFunc(func(c *Case) bool { time.Sleep(time.Millisecond); return has("n3", "n90")(c) })
	got, err := Reduce(t.Context(), chain(100), slow, anything{}, Options{Timeout: 5 * time.Millisecond})
	if err == nil { // else it was over before the first answer
		require.False(t, got.Minimal)
		require.True(t, slow(got.Case))
		require.NoError(t, validity(got.Case))
	} else {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}

	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	_, err = Reduce(ctx, chain(100), predicateFunc(func(c *Case) bool {
		if asked++; asked == 7 {
			cancel()
		}
		return has("n3")(c)
	}), anything{}, Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 7, asked)

	broken := errors.New("broken")
	_, err = Reduce(t.Context(), chain(100), failing{broken}, anything{}, Options{})
	require.ErrorIs(t, err, broken)
	_, err = Reduce(t.Context(), chain(3), has("nowhere"), anything{}, Options{})
	require.ErrorIs(t, err, ErrNotInteresting)

	c := chain(3)
	c.Inputs = nil
	_, err = Reduce(t.Context(), c, has("n1"), anything{}, Options{})
	require.ErrorContains(t, err, `input "x" has no value`)
	_, err = Reduce(t.Context(), nil, has("n1"), anything{}, Options{})
	require.ErrorContains(t, err, "no graph")
}

// failing is a predicate that has an error from the third case on.
type failing struct{ err error }

func (f failing) Interesting(_ context.Context, c *Case) (bool, error) {
	if len(c.Model.Graph.Nodes) < 100 {
		return false, f.err
	}
	return true, nil
}
