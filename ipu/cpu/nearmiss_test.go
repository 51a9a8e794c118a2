package cpu

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/ipu/num"
)

// nearMiss is a family of graphs: what a pass looks for, and graphs that are one
// step off it, which a guard of the pass must tell apart. All of them must give
// the same numbers with the pass and without it, and those of float64.
type nearMiss struct {
	pass string
	what string   // what the pass reports where it finds what it looks for, if it does
	off  []string // the steps; the draws ask for them with [missDraw.is]
	// left are the steps with right numbers but more work if the pass took them for
	// what it looks for: it must not report it.
	left []string
	// tolerance is how far results may differ, relative to 1 + their size, besides
	// what rounding is amplified to; 0 means 1e-4, a negative one not by a bit.
	tolerance float64
	integers  bool // there is nothing to compare with in float64
	build     func(d *missDraw) []graph.TensorID
}

// nearMisses are the families, by file.
var nearMisses []nearMiss

// missDraw draws one graph of a family.
type missDraw struct {
	*rapid.T
	b     *graph.Builder
	rand  *rand.Rand
	steps []string
	off   string // the step that the graph is off; empty for what the pass looks for
	dtype graph.DType
	data  map[string][]float32 // by the handle of a stream
	loads []graph.Step
	feeds []graph.Step
	n     int
}

// is reports whether the graph is off by that step.
func (d *missDraw) is(step string) bool {
	if !slices.Contains(d.steps, step) {
		panic(fmt.Sprintf("step %q is not in the family's list", step))
	}
	return d.off == step
}

func (d *missDraw) yes(label string) bool { return rapid.Bool().Draw(d.T, label) }

func (d *missDraw) between(lo, hi int64, label string) int64 {
	return rapid.Int64Range(lo, hi).Draw(d.T, label)
}

func (d *missDraw) typ(shape ...int64) graph.TensorType {
	return graph.TensorType{DType: d.dtype, Shape: shape}
}

// some returns random numbers from -2 to 2, no two alike.
func (d *missDraw) some(shape ...int64) []float32 {
	v := make([]float32, f32(shape...).Elements())
	for i := range v {
		v[i] = 4*d.rand.Float32() - 2
	}
	return v
}

// input returns what the host feeds.
func (d *missDraw) input(shape ...int64) graph.TensorID { return d.fed(d.some(shape...), shape...) }

// fed is input with given numbers.
func (d *missDraw) fed(v []float32, shape ...int64) graph.TensorID {
	d.n++
	name := fmt.Sprintf("x%d", d.n)
	id := d.b.AddLocal(name, f32(shape...))
	d.data[name] = v
	d.feeds = append(d.feeds, d.b.CopyIn(name, id))
	return d.cast(id)
}

// cast makes numbers of the family's type of x, if they are not.
func (d *missDraw) cast(x graph.TensorID) graph.TensorID {
	if d.b.Type(x).DType == d.dtype {
		return x
	}
	return d.node(&graph.Cast{To: d.dtype}, x)
}

// weight returns a weight.
func (d *missDraw) weight(shape ...int64) graph.TensorID { return d.loaded(d.some(shape...), shape...) }

func (d *missDraw) loaded(v []float32, shape ...int64) graph.TensorID {
	d.n++
	name := fmt.Sprintf("w%d", d.n)
	id := d.b.AddPersistent(name, f32(shape...))
	d.data[name] = v
	d.loads = append(d.loads, d.b.CopyIn(name, id))
	return d.cast(id)
}

// param returns a weight or a constant.
func (d *missDraw) param(shape ...int64) graph.TensorID {
	if d.yes("constant") {
		return d.constant(d.some(shape...), shape...)
	}
	return d.weight(shape...)
}

// positive is param with numbers from 1 to 3.
func (d *missDraw) positive(shape ...int64) graph.TensorID {
	v := d.some(shape...)
	for i := range v {
		v[i] = 2 + v[i]/2
	}
	if d.yes("constant") {
		return d.constant(v, shape...)
	}
	return d.loaded(v, shape...)
}

func (d *missDraw) constant(v []float32, shape ...int64) graph.TensorID {
	typ := d.typ(shape...)
	switch d.dtype {
	case graph.F16:
		h := make([]num.Float16, len(v))
		for i := range v {
			h[i] = num.Float16From(v[i])
		}
		return d.b.AddConst("constant", typ, bytesOf(h))
	case graph.F64:
		h := make([]float64, len(v))
		for i := range v {
			h[i] = float64(v[i])
		}
		return d.b.AddConst("constant", typ, bytesOf(h))
	}
	return d.b.AddConst("constant", typ, bytesOf(v))
}

// number returns a constant without dimensions.
func (d *missDraw) number(v float32) graph.TensorID { return d.constant([]float32{v}) }

// node adds a node of whose results only the first is wanted.
func (d *missDraw) node(op graph.Op, in ...graph.TensorID) graph.TensorID {
	types := make([]graph.TensorType, len(in))
	for i, t := range in {
		if t != graph.None {
			types[i] = d.b.Type(t)
		}
	}
	results, err := op.Infer(types)
	require.NoError(d, err, op.Kind())
	y := d.b.AddLocal(op.Kind(), results[0])
	require.NoError(d, d.b.NodeTo(op, op.Kind(), []graph.TensorID{y}, in...))
	return y
}

func (d *missDraw) unary(fn graph.UnaryFn, x graph.TensorID) graph.TensorID {
	return d.node(&graph.Unary{Fn: fn}, x)
}

// binary applies fn to its operands, in either order where that is the same.
func (d *missDraw) binary(fn graph.BinaryFn, a, b graph.TensorID) graph.TensorID {
	if (fn == graph.Add || fn == graph.Mul || fn == graph.Max || fn == graph.Equal) && d.yes("swap") {
		a, b = b, a
	}
	return d.node(&graph.Binary{Fn: fn}, a, b)
}

func (d *missDraw) reduce(fn graph.ReduceFn, keep bool, x graph.TensorID, axes ...int64) graph.TensorID {
	return d.node(&graph.Reduce{Fn: fn, Axes: axes, KeepDims: keep}, x)
}

func (d *missDraw) reshape(x graph.TensorID, shape ...int64) graph.TensorID {
	return d.node(&graph.Reshape{Shape: shape}, x)
}

func (d *missDraw) transpose(x graph.TensorID, perm ...int64) graph.TensorID {
	return d.node(&graph.Transpose{Perm: perm}, x)
}

// draw draws a graph of the family: program 0 sets the weights, program 1
// computes from x… to y….
func (m *nearMiss) draw(t *rapid.T, off string) (*missDraw, []byte) {
	d := &missDraw{T: t, b: graph.NewBuilder("near miss"), rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "numbers"), 1)),
		steps: m.off, off: off, dtype: graph.F32, data: map[string][]float32{}}
	g := d.b.BeginGraph("main")
	results := m.build(d)
	var out []graph.Step
	for i, y := range results {
		if d.b.Type(y).DType != graph.F32 {
			y = d.node(&graph.Cast{To: graph.F32}, y)
		}
		out = append(out, d.b.CopyOut(fmt.Sprintf("y%d", i), y))
	}
	d.b.AddProgram(0, "load", d.loads...)
	d.b.AddProgram(1, "main", slices.Concat(d.feeds, []graph.Step{d.b.Call(g)}, out)...)
	return d, executable(t, d.b)
}

// compute loads the weights, times a factor, runs the program twice and returns
// all that it gives.
func (d *missDraw) compute(t require.TestingT, exe *graph.Executable, e runner, factor float32) []float64 {
	outs := map[string][]byte{}
	var names []string
	for _, s := range exe.Streams {
		wide := s.Type.DType == graph.F64
		if s.Direction == graph.DeviceToHost {
			outs[s.Handle] = align.Bytes(s.Type.Bytes())
			names = append(names, s.Handle)
			require.NoError(t, e.Connect(s.Handle, sink{outs[s.Handle]}))
			continue
		}
		v := slices.Clone(d.data[s.Handle])
		if s.Handle[0] == 'w' {
			for i := range v {
				v[i] *= factor
			}
		}
		b := bytesOf(v)
		if wide {
			b = bytesOf(inFloat64(v))
		}
		if s.Handle[0] == 'w' {
			require.NoError(t, e.Connect(s.Handle, constant{direct{newHost(t, b)}}))
		} else {
			require.NoError(t, e.Connect(s.Handle, sink{b}))
		}
	}
	slices.Sort(names)
	run(t, e, 0)
	var all []float64
	for range 2 {
		run(t, e, 1)
		for _, name := range names {
			if len(outs[name]) > 0 && exe.Streams[slices.IndexFunc(exe.Streams, func(s graph.Stream) bool { return s.Handle == name })].Type.DType == graph.F64 {
				v := make([]float64, len(outs[name])/8)
				copy(bytesOf(v), outs[name])
				all = append(all, v...)
				continue
			}
			all = append(all, inFloat64(floats(outs[name]))...)
		}
	}
	return all
}

func inFloat64(v []float32) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

// widened is an executable with float64 in place of float32, false if some
// operator does not compute with that.
func widened(exe []byte) (*graph.Executable, bool) {
	e, err := encoding.Decode(exe)
	if err != nil {
		return nil, false
	}
	for i := range e.Tensors {
		if t := &e.Tensors[i]; t.Type.DType == graph.F32 {
			t.Type.DType = graph.F64
			if t.Const {
				t.Data = bytesOf(inFloat64(floats(t.Data)))
			}
		}
	}
	for i := range e.Streams {
		if t := &e.Streams[i].Type; t.DType == graph.F32 {
			t.DType = graph.F64
		}
	}
	for g := range e.Graphs {
		for _, n := range e.Graphs[g].Nodes {
			v := reflect.ValueOf(n.Op).Elem()
			for i := range v.NumField() {
				if f := v.Field(i); f.Type() == reflect.TypeFor[graph.DType]() && f.Interface() == graph.F32 {
					f.Set(reflect.ValueOf(graph.F64))
				}
			}
		}
	}
	return e, graph.Verify(e) == nil
}

// sameNumbers fails unless two results agree: to the bit if tolerance is
// negative. NaN is NaN, and an infinity itself.
func sameNumbers(t require.TestingT, want, got []float64, tolerance, sway float64, way string) {
	require.Len(t, got, len(want), way)
	for i, w := range want {
		g := got[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		if tolerance < 0 || !(math.Abs(g-w) <= tolerance*(1+math.Abs(w))+sway) {
			require.FailNow(t, fmt.Sprintf("%s: element %d is %v, want %v (± %g)", way, i, g, w, sway))
		}
	}
}

// check compares one draw of a family in all ways.
func (m *nearMiss) check(t *rapid.T, off string) {
	d, exe := m.draw(t, off)
	plain, err := encoding.Decode(exe)
	require.NoError(t, err)
	tolerance := m.tolerance
	if tolerance == 0 {
		tolerance = 1e-4
	}
	want := map[float32][]float64{}
	sway := map[float32]float64{}
	for _, factor := range []float32{1, 1.25} {
		want[factor] = d.compute(t, plain, newInterpreter(plain), factor)
		if tolerance < 0 || m.integers {
			continue
		}
		noisy := newInterpreter(plain)
		noisy.noise = rand.New(rand.NewPCG(1, 2))
		for i, v := range d.compute(t, plain, noisy, factor) {
			if by := math.Abs(v - want[factor][i]); by > sway[factor] {
				sway[factor] = by
			}
		}
	}
	if wide, ok := widened(exe); ok && !m.integers {
		sameNumbers(t, want[1], d.compute(t, wide, newInterpreter(wide), 1), 1e-3, sway[1], "in float64")
	}
	var others, all []string
	for _, p := range pass.Passes {
		all = append(all, p.Name)
		if p.Name != m.pass {
			others = append(others, p.Name)
		}
	}
	threads := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "threads")
	for _, way := range []struct {
		name     string
		disabled []string
		nchwc    func() bool
	}{{"all passes", nil, nil}, {"only " + m.pass, others, nil}, {"all passes, in blocks", nil, always}, {"no passes, in blocks", all, always}} {
		image := optimized(t, exe, way.disabled)
		if len(way.disabled) == 0 && m.what != "" {
			if off == "" {
				require.True(t, m.found(t, image), "pass %s does not find %q:\n%s", m.pass, m.what, plain)
			} else if slices.Contains(m.left, off) {
				require.False(t, m.found(t, image), "pass %s finds %q", m.pass, m.what)
			}
		}
		restore := layout.Force(layout.Forced{NCHWc: way.nchwc})
		e, err := New(ipu.EngineConfig{Name: way.name, Executable: image, Options: opt("threads", threads)})
		restore()
		require.NoError(t, err)
		load(t, e)
		for _, factor := range []float32{1, 1.25} {
			sameNumbers(t, want[factor], d.compute(t, plain, e, factor), tolerance, sway[factor], fmt.Sprintf("%s, weights times %g", way.name, factor))
		}
		require.NoError(t, e.Close())
	}
}

// found reports whether the pass found what it looks for.
func (m *nearMiss) found(t require.TestingT, image []byte) bool {
	e, err := encoding.Decode(image)
	require.NoError(t, err)
	return slices.ContainsFunc(e.Passes, func(p graph.PassReport) bool {
		return p.Name == m.pass && slices.ContainsFunc(p.Rewrites, func(w graph.Rewrite) bool { return w.What == m.what })
	})
}

// fewerChecks lets rapid draw so many examples each, unless the command line
// says how many.
func fewerChecks(t *testing.T, n string) {
	f := flag.Lookup("rapid.checks")
	if f == nil || f.Value.String() != f.DefValue {
		return
	}
	require.NoError(t, flag.Set("rapid.checks", n))
	t.Cleanup(func() { require.NoError(t, flag.Set("rapid.checks", f.DefValue)) })
}

// TestNearMisses compares what passes look for, and what is one step off that,
// with all passes off and in float64.
func TestNearMisses(t *testing.T) {
	fewerChecks(t, "4")
	for i := range nearMisses {
		m := &nearMisses[i]
		for _, off := range append([]string{""}, m.off...) {
			name := off
			if off == "" {
				name = "found"
			}
			t.Run(m.pass+"/"+m.what+"/"+name, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) { m.check(t, off) })
			})
		}
	}
}

// TestEveryPassHasNearMisses fails for a pass without a family, or whose families
// are never off, and for a family of no pass.
func TestEveryPassHasNearMisses(t *testing.T) {
	steps := map[string]int{}
	for _, m := range nearMisses {
		if m.pass != layoutFamilies {
			steps[m.pass] += len(m.off)
		}
	}
	for _, p := range pass.Passes {
		require.Positive(t, steps[p.Name], "pass %q has no graphs that are one step off what it looks for: see CONTRIBUTING.md", p.Name)
		delete(steps, p.Name)
	}
	require.Empty(t, steps, "there is no such pass")
}
