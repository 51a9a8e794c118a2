package autodiff_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// net builds executables by hand.
type net struct {
	t testing.TB
	b *graph.Builder
}

func newNet(t testing.TB) *net {
	n := &net{t, graph.NewBuilder("net")}
	n.b.BeginGraph("main")
	return n
}

func (n *net) op(name string, op graph.Op, in ...graph.TensorID) graph.TensorID {
	out, err := n.b.Node(op, name, in...)
	require.NoError(n.t, err)
	return out[0]
}

func (n *net) finish() *graph.Executable {
	e, err := n.b.Finish()
	require.NoError(n.t, err)
	return e
}

func f32(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }

// TestErrors has an entry for each way in which a gradient is refused.
func TestErrors(t *testing.T) {
	type nodes struct{ x, w, idx, loss graph.TensorID }
	build := func(middle func(n *net, v *nodes) graph.TensorID) (*graph.Executable, nodes) {
		n := newNet(t)
		v := nodes{x: n.b.AddLocal("x", f32(2, 3)), w: n.b.AddPersistent("w", f32(3)), idx: n.b.AddLocal("idx", graph.TensorType{DType: graph.I64, Shape: []int64{2, 3}})}
		y := n.op("product", &graph.Binary{Fn: graph.Mul}, v.x, v.w)
		y = n.op("join", &graph.Binary{Fn: graph.Add}, y, middle(n, &v))
		v.loss = n.op("loss", &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0, 1}}, y)
		return n.finish(), v
	}
	for _, c := range []struct {
		name    string
		middle  func(n *net, v *nodes) graph.TensorID
		options func(o *autodiff.Options, v nodes)
		want    string
	}{
		{"everything at once", func(n *net, v *nodes) graph.TensorID {
			a := n.op("twist", &graph.BitCast{To: graph.F32}, v.x)
			b := n.op("turn", &graph.BitCast{To: graph.F32}, v.w)
			return n.op("both", &graph.Binary{Fn: graph.Mul}, a, b)
		}, nil, `differentiate graph "main": 2 obstacles
  node "turn" (BitCast): it takes the bits of numbers for others, which has no useful gradient
  node "twist" (BitCast): it takes the bits of numbers for others, which has no useful gradient`},
		{"behind an obstacle", func(n *net, v *nodes) graph.TensorID {
			a := n.op("twist", &graph.BitCast{To: graph.F32}, v.x)
			return n.op("again", &graph.BitCast{To: graph.F32}, a)
		}, nil, `2 obstacles
  node "again" (BitCast): it takes the bits of numbers for others, which has no useful gradient
  node "twist"`},
		{"no influence", func(n *net, v *nodes) graph.TensorID {
			v.w = n.b.AddPersistent("unused", f32(3))
			return v.x
		}, nil, `tensor "unused": it has no influence on what gradients are provided of, so its gradient would be zero whatever it is: leave it out of what is required`},
		{"through a step", func(n *net, v *nodes) graph.TensorID {
			v.w = n.b.AddPersistent("stepped", f32(3))
			return n.op("round it", &graph.Unary{Fn: graph.Round}, v.w)
		}, nil, `tensor "stepped": all that it does to what gradients are provided of goes through node "round it" (Unary), whose gradient is zero`},
		{"unknown number of iterations", func(n *net, v *nodes) graph.TensorID {
			i, a := n.b.AddLocal("i", graph.TensorType{DType: graph.I64}), n.b.AddLocal("a", f32(2, 3))
			count := n.b.AddLocal("count", graph.TensorType{DType: graph.I64})
			main := n.b.CurrentGraph()
			body := n.b.BeginGraph("body")
			n.b.SetParams(body, []graph.TensorID{i, a}, []graph.TensorID{n.op("double", &graph.Binary{Fn: graph.Add}, a, a)})
			n.b.SetGraph(main)
			return n.op("loop", &graph.Loop{Body: body, Count: -1}, count, graph.None, v.x)
		}, nil, `node "loop" (Loop): how often it runs is known only when it runs`},
		{"bounded product", func(n *net, v *nodes) graph.TensorID {
			return n.op("gemm", &graph.Gemm{Alpha: 1, Bounded: true, TransB: true}, v.x, n.op("rows", &graph.Expand{Shape: []int64{3, 3}}, v.w))
		}, nil, `node "gemm" (Gemm): optimisation made it: differentiate the executable before its optimisation`},
		{"persistent result", func(n *net, v *nodes) graph.TensorID {
			s := n.b.AddPersistent("state", f32(2, 3))
			require.NoError(t, n.b.NodeTo(&graph.Unary{Fn: graph.Exp}, "update", []graph.TensorID{s}, v.x))
			return s
		}, nil, `node "update" (Unary): it writes a persistent tensor on the way`},
		{"overwritten weight", func(n *net, v *nodes) graph.TensorID {
			require.NoError(t, n.b.NodeTo(&graph.Unary{Fn: graph.Exp}, "update", []graph.TensorID{v.w}, v.w))
			return v.x
		}, nil, `tensor "w": the forward graph writes it (node "update"): its gradient is that of neither value`},
		{"overwritten state", func(n *net, v *nodes) graph.TensorID {
			s := n.b.AddPersistent("state", f32(2, 3))
			y := n.op("times state", &graph.Binary{Fn: graph.Mul}, s, v.w)
			require.NoError(t, n.b.NodeTo(&graph.Unary{Fn: graph.Exp}, "update", []graph.TensorID{s}, v.x))
			return y
		}, nil, `tensor "state": gradients need the value that it had before the forward graph wrote it (node "update")`},
		{"detached weight", func(_ *net, v *nodes) graph.TensorID { return v.x },
			func(o *autodiff.Options, v nodes) { o.Detached = []graph.TensorID{v.w} }, `tensor "w": its gradient is required, but it is detached: leave it out of one of the two`},
		{"integers", func(_ *net, v *nodes) graph.TensorID { return v.x },
			func(o *autodiff.Options, v nodes) { o.Required = []graph.TensorID{v.idx} }, `required tensor "idx" is i64[2,3], want elements of type f16, bf16, f32 or f64`},
		{"nothing required", func(_ *net, v *nodes) graph.TensorID { return v.x },
			func(o *autodiff.Options, v nodes) { o.Required = nil }, `no tensor's gradient is required, want at least one: is every weight frozen?`},
		{"nothing provided", func(_ *net, v *nodes) graph.TensorID { return v.x },
			func(o *autodiff.Options, v nodes) { o.Provided = nil }, `no tensor's gradient is provided, want that of the loss at least`},
		{"twice", func(_ *net, v *nodes) graph.TensorID { return v.x },
			func(o *autodiff.Options, v nodes) { o.Required = append(o.Required, v.w) }, `required tensor "w" is listed twice`},
		{"no tensor", func(_ *net, v *nodes) graph.TensorID { return v.x },
			func(o *autodiff.Options, v nodes) { o.Provided = []graph.TensorID{99} }, `provided tensor 99 does not exist`},
		{"no graph", func(_ *net, v *nodes) graph.TensorID { return v.x },
			func(o *autodiff.Options, v nodes) { o.Before = []graph.GraphID{7} }, `differentiate graph 7: it does not exist, want 0 to 0`},
		{"no recomputation", func(_ *net, v *nodes) graph.TensorID { return v.x },
			func(o *autodiff.Options, v nodes) { o.Recompute = "most" }, `recomputation "most" is none of "" (none), norms, standard, all, marked`},
		{"checkpoints without need", func(_ *net, v *nodes) graph.TensorID { return v.x },
			func(o *autodiff.Options, v nodes) { o.Checkpoints = []graph.TensorID{v.x} }, `checkpoints are marked, but the recomputation is "": want "marked"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, v := build(c.middle)
			o := autodiff.Options{Provided: []graph.TensorID{v.loss}, Required: []graph.TensorID{v.x, v.w}}
			if c.name == "no influence" || c.name == "through a step" || strings.HasPrefix(c.name, "overwritten") {
				o.Required = []graph.TensorID{v.w}
			}
			if c.options != nil {
				c.options(&o, v)
			}
			before := dump.String(e)
			info, err := autodiff.Backward(e, 0, o)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, info)
			require.Empty(t, cmp.Diff(before, dump.String(e)), "an error changes the executable")
		})
	}
}

// TestTooBig asks for gradients that need more than an executable may hold.
func TestTooBig(t *testing.T) {
	n := newNet(t)
	x := n.b.AddPersistent("x", f32(1<<37))
	y := n.op("square", &graph.Binary{Fn: graph.Mul}, x, x)
	y = n.op("again", &graph.Binary{Fn: graph.Mul}, y, y)
	loss := n.op("loss", &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}}, y)
	e := n.finish()
	_, err := autodiff.Backward(e, 0, autodiff.Options{Provided: []graph.TensorID{loss}, Required: []graph.TensorID{x}})
	require.ErrorIs(t, err, autodiff.ErrTooBig)
	require.ErrorContains(t, err, `with what is computed for node "grad/square" all tensors need`)
}

// TestCycles gives Backward executables that nobody verified: graphs that use themselves, directly and by way of another, and nodes in a circle.
func TestCycles(t *testing.T) {
	recursive := func(through bool) func(e *graph.Executable) {
		return func(e *graph.Executable) {
			inner, cond := graph.GraphID(1), e.Graphs[0].Nodes[0].Inputs
			if through {
				inner = 2
				e.Graphs = append(e.Graphs, graph.Graph{Name: "other", Results: e.Graphs[1].Results,
					Nodes: []graph.Node{{Op: &graph.If{Then: 1, Else: 1}, Name: "back", Inputs: e.Graphs[0].Nodes[0].Inputs, Outputs: e.Graphs[0].Nodes[0].Outputs}}})
			}
			out := e.Graphs[1].Results[0]
			e.Graphs[1].Nodes = []graph.Node{{Op: &graph.If{Then: inner, Else: inner}, Name: "again", Inputs: cond, Outputs: []graph.TensorID{out}}}
		}
	}
	for name, c := range map[string]struct {
		change func(e *graph.Executable)
		want   string
	}{
		"itself":       {recursive(false), `graph 1 "branch" uses itself`},
		"another":      {recursive(true), `uses itself`},
		"circle":       {func(e *graph.Executable) { e.Graphs[0].Nodes[1].Inputs[0] = e.Graphs[0].Nodes[2].Outputs[0] }, `node "double" reads tensor "more", which node "more" behind it writes: want nodes in the order in which they run, without a cycle`},
		"no such node": {func(e *graph.Executable) { e.Graphs[0].Nodes[1].Inputs[0] = 99 }, "99"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNet(t)
			w := n.b.AddPersistent("w", f32(2))
			main := n.b.CurrentGraph()
			cond := n.b.AddLocal("cond", graph.TensorType{DType: graph.Bool})
			branch := n.b.BeginGraph("branch")
			n.b.SetParams(branch, nil, []graph.TensorID{n.op("exp", &graph.Unary{Fn: graph.Exp}, w)})
			n.b.SetGraph(main)
			y := n.op("if", &graph.If{Then: branch, Else: branch}, cond)
			y = n.op("double", &graph.Binary{Fn: graph.Add}, y, y)
			y = n.op("more", &graph.Binary{Fn: graph.Add}, y, w)
			loss := n.op("loss", &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}}, y)
			e := n.finish()
			o := autodiff.Options{Provided: []graph.TensorID{loss}, Required: []graph.TensorID{w}}
			c.change(e)
			before := len(e.Tensors)
			_, err := autodiff.Backward(e, main, o)
			require.ErrorIs(t, err, graph.ErrInvalid)
			require.ErrorContains(t, err, c.want)
			require.Len(t, e.Tensors, before)
		})
	}
}

// TestOrderOfGraphs differentiates two graphs in the wrong order.
func TestOrderOfGraphs(t *testing.T) {
	n := newNet(t)
	w := n.b.AddPersistent("w", f32(2))
	first := n.b.CurrentGraph()
	y := n.op("exp", &graph.Unary{Fn: graph.Exp}, w)
	second := n.b.BeginGraph("second")
	loss := n.op("loss", &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}}, y)
	e := n.finish()
	o := autodiff.Options{Provided: []graph.TensorID{loss}, Required: []graph.TensorID{w}, Before: []graph.GraphID{second}}
	_, err := autodiff.Backward(e, first, o)
	require.ErrorIs(t, err, graph.ErrInvalid)
	require.ErrorContains(t, err, `node "loss" reads tensor "exp", which node "exp" behind it writes: want nodes in the order in which they run, without a cycle, and Options.Before too`)
	o.Before = []graph.GraphID{first}
	_, err = autodiff.Backward(e, second, o)
	require.NoError(t, err)
}

// TestSharedGraphs has branches that use the same graph for both in many layers, whose copies would be 2^30.
func TestSharedGraphs(t *testing.T) {
	n := newNet(t)
	x := n.b.AddPersistent("x", f32(2))
	cond := n.b.AddLocal("cond", graph.TensorType{DType: graph.Bool})
	inner := n.b.CurrentGraph()
	main := inner
	var sub graph.GraphID
	for depth := range 31 {
		sub = n.b.BeginGraph(fmt.Sprint("depth", depth))
		y := x
		if depth == 0 {
			y = n.op("sin", &graph.Unary{Fn: graph.Sin}, x)
		} else {
			y = n.op("if", &graph.If{Then: inner, Else: inner}, cond)
		}
		n.b.SetParams(sub, nil, []graph.TensorID{y})
		inner = sub
	}
	n.b.SetGraph(main)
	y := n.op("if", &graph.If{Then: sub, Else: sub}, cond)
	e := n.finish()
	_, err := autodiff.Backward(e, main, autodiff.Options{Provided: []graph.TensorID{y}, Required: []graph.TensorID{x}})
	require.ErrorIs(t, err, autodiff.ErrTooBig)
}

// TestInfo wants the links in order, and gradients of tensors on the way.
func TestInfo(t *testing.T) {
	n := newNet(t)
	x, w := n.b.AddLocal("x", f32(2, 3)), n.b.AddPersistent("w", f32(3))
	h := n.op("h", &graph.Binary{Fn: graph.Mul}, x, w)
	s := n.op("s", &graph.Unary{Fn: graph.Sin}, h)
	a := n.op("a", &graph.Unary{Fn: graph.Exp}, s)
	e := n.finish()
	info, err := autodiff.Backward(e, 0, autodiff.Options{Provided: []graph.TensorID{a, s}, Required: []graph.TensorID{w, h}})
	require.NoError(t, err)
	require.Equal(t, "main/grad", e.Graphs[info.Graph].Name)
	da, ds := info.Inputs[0].Tensor, info.Inputs[1].Tensor
	require.Equal(t, []autodiff.Link{{Kind: autodiff.FwdGrad, Forward: a, Tensor: da}, {Kind: autodiff.FwdGrad, Forward: s, Tensor: ds},
		{Forward: x, Tensor: x}, {Forward: h, Tensor: h}, {Forward: a, Tensor: a}}, info.Inputs)
	require.Equal(t, "Fwd FwdGrad", fmt.Sprint(info.Inputs[2].Kind, " ", info.Outputs[0].Kind))
	require.Equal(t, []graph.TensorID{w, h}, []graph.TensorID{info.Outputs[0].Forward, info.Outputs[1].Forward})
}

// TestDetached lets no gradient through a tensor, inside of branches neither.
func TestDetached(t *testing.T) {
	n := newNet(t)
	x, cond := n.b.AddLocal("x", f64(2)), n.b.AddLocal("cond", graph.TensorType{DType: graph.Bool})
	then := n.b.BeginGraph("then")
	inner := n.op("inner", &graph.Unary{Fn: graph.Sin}, x)
	product := n.op("product", &graph.Binary{Fn: graph.Mul}, inner, x)
	n.b.SetParams(then, nil, []graph.TensorID{product})
	n.b.SetGraph(0)
	y := n.op("if", &graph.If{Then: then, Else: then}, cond)
	e := n.finish()
	info, err := autodiff.Backward(e, 0, autodiff.Options{Provided: []graph.TensorID{y}, Required: []graph.TensorID{x}, Detached: []graph.TensorID{inner}})
	require.NoError(t, err)
	p := newInterpreter(e, map[graph.TensorID][]byte{x: encode(graph.F64, []float64{0.5, 2}), cond: {1}, info.Inputs[0].Tensor: encode(graph.F64, []float64{1, 1})})
	require.NoError(t, p.run(0))
	require.NoError(t, p.run(info.Graph))
	require.Equal(t, []float64{math.Sin(0.5), math.Sin(2)}, decode(graph.F64, p.values[info.Outputs[0].Tensor]))
}

// TestSecondGradients differentiates the gradients of small networks again.
func TestSecondGradients(t *testing.T) {
	for _, name := range []string{"Unary", "Binary", "MatMul", "Gemm", "Softmax", "LayerNorm", "GroupNorm", "Conv", "MaxPool", "AveragePool", "Gather", "Slice", "Concat", "LSTM", "GRU", "RNN", "Loop", "If", "Attention", "Det"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, 4, func(r *rapid.T) {
				d := newDraw(r)
				cases[name](d)
				// Squares, so that the second gradient is none of zeros, of every operand and result.
				total := graph.None
				for _, x := range append(d.results, d.inputs...) {
					all := make([]int64, len(d.b.Type(x).Shape))
					for i := range all {
						all[i] = int64(i)
					}
					s := d.node1(&graph.Reduce{Fn: graph.ReduceSumSquare, Axes: all}, x)
					if total != graph.None {
						s = d.binary(graph.Add, total, s)
					}
					total = s
				}
				d.results = []graph.TensorID{total}
				d.checkSecond()
			})
		})
	}
}

// checkSecond compares gradients of weighted sums of the gradients of the inputs with central differences of these.
func (d *draw) checkSecond() {
	e, err := d.b.Finish()
	require.NoError(d, err)
	first, err := autodiff.Backward(e, d.main, autodiff.Options{Provided: d.results, Required: d.inputs})
	require.NoError(d, err)
	var provided []graph.TensorID
	for _, l := range first.Outputs {
		if !containsID(provided, l.Tensor) {
			provided = append(provided, l.Tensor)
		}
	}
	second, err := autodiff.Backward(e, first.Graph, autodiff.Options{Before: []graph.GraphID{d.main}, Provided: provided, Required: d.inputs})
	require.NoError(d, err)
	require.NoError(d, graph.Verify(e))
	d.values[first.Inputs[0].Tensor] = encode(graph.F64, []float64{1})
	weights := map[graph.TensorID][]float64{}
	for i, y := range provided {
		weights[y] = d.numbers(e.Tensors[y].Type.Elements(), -1, 1)
		d.values[second.Inputs[i].Tensor] = encode(graph.F64, weights[y])
	}
	p := newInterpreter(e, d.values)
	for _, g := range []graph.GraphID{d.main, first.Graph, second.Graph} {
		require.NoError(d, p.run(g))
	}
	d.results = provided
	for i, x := range d.inputs {
		got := decode(graph.F64, p.values[second.Outputs[i].Tensor])
		want := d.differences(e, x, weights, d.main, first.Graph)
		greatest := 1.0
		for _, v := range want {
			greatest = max(greatest, math.Abs(v))
		}
		for k, v := range want {
			if !(math.Abs(v-got[k]) <= 1e-6*greatest) {
				d.Fatalf("element %d of the second gradient of input %d is %v, central differences give %v", k, i, got[k], v)
			}
		}
	}
}

func containsID(list []graph.TensorID, t graph.TensorID) bool {
	for _, u := range list {
		if u == t {
			return true
		}
	}
	return false
}

// TestRecompute trains a step of a small network with every recomputation, the optimised executable on the engine: bits are
// equal, and what is kept is as much as they say.
func TestRecompute(t *testing.T) {
	build := func(o autodiff.Options) (*graph.Executable, *autodiff.Info, map[string][]byte, []graph.TensorID) {
		n := newNet(t)
		x := n.b.AddLocal("x", f32(4, 6))
		given := map[graph.TensorID][]byte{x: ramp(24)}
		h := x
		var layers, weights []graph.TensorID
		for layer := range 9 {
			w, scale := n.b.AddPersistent(fmt.Sprint("w", layer), f32(6, 6)), n.b.AddPersistent(fmt.Sprint("scale", layer), f32(6))
			given[w], given[scale] = ramp(36), ramp(6)
			weights = append(weights, w, scale)
			h = n.op("product", &graph.MatMul{}, h, w)
			h = n.op("norm", &graph.LayerNorm{Axis: 1, Epsilon: 0.125}, h, scale)
			h = n.op("gelu", &graph.Unary{Fn: graph.Gelu}, h)
			layers = append(layers, h)
		}
		loss := n.op("loss", &graph.Reduce{Fn: graph.ReduceSumSquare, Axes: []int64{0, 1}}, h)
		e := n.finish()
		o.Provided, o.Required = []graph.TensorID{loss}, weights
		if o.Recompute == autodiff.RecomputeMarked {
			o.Checkpoints = []graph.TensorID{layers[3]}
		}
		info, err := autodiff.Backward(e, 0, o)
		require.NoError(t, err)
		given[info.Inputs[0].Tensor] = encode(graph.F32, []float64{1})
		var wanted []graph.TensorID
		for _, l := range info.Outputs {
			wanted = append(wanted, l.Tensor)
		}
		addProgram(e, given, wanted, 0, info.Graph)
		handles := map[string][]byte{}
		for x, v := range given {
			handles[fmt.Sprint("in", x)] = v
		}
		require.NoError(t, graph.Verify(e))
		return e, info, handles, wanted
	}
	var want, optimised map[string][]byte
	kept := map[autodiff.Recompute]int{}
	for _, r := range []autodiff.Recompute{autodiff.RecomputeNone, autodiff.RecomputeNorms, autodiff.RecomputeStandard, autodiff.RecomputeAll, autodiff.RecomputeMarked} {
		e, info, handles, _ := build(autodiff.Options{Recompute: r})
		for _, l := range info.Inputs {
			if l.Kind == autodiff.Fwd && !e.Tensors[l.Tensor].Persistent {
				kept[r]++
			}
		}
		got := runEngine(t, e, handles)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got, "recomputation %q", r)
		require.NoError(t, pass.Optimize(e, pass.OptimizeOptions{Held: info.Held, Evaluate: cpu.Eval}))
		got = runEngine(t, e, handles)
		if optimised == nil {
			optimised = got
		}
		require.Equal(t, optimised, got, "recomputation %q, optimised", r)
	}
	require.Equal(t, map[autodiff.Recompute]int{autodiff.RecomputeNone: 28, autodiff.RecomputeNorms: 10, autodiff.RecomputeStandard: 6, autodiff.RecomputeAll: 1, autodiff.RecomputeMarked: 2}, kept)
}

// ramp is n numbers of F32 around 0.
func ramp(n int) []byte {
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Sin(float64(3*i + 1))
	}
	return encode(graph.F32, v)
}
