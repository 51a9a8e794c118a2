package popxl_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// randomIr is an Ir of random calls: of streams, loops, choices and graphs, within each other.
type randomIr struct {
	*rapid.T
	ir      *popxl.Ir
	wild    bool     // also what is not to be used where it is
	pool    []tensor // all of shape [2]
	inputs  []popxl.Input[float32]
	outputs []popxl.Output[float32]
	vars    []popxl.Variable[float32]
	graphs  []randomGraph
}

type randomGraph struct {
	*popxl.Graph
	p popxl.Param[float32]
	v popxl.Ref[float32]
	r popxl.Result[float32]
}

func newRandomIr(t *rapid.T) *randomIr {
	r := &randomIr{T: t, ir: popxl.New("random"), wild: rapid.Bool().Draw(t, "wild")}
	for _, name := range []string{"a", "b"} {
		r.inputs = append(r.inputs, popxl.NewInput[float32](r.ir, name, 2))
		r.vars = append(r.vars, popxl.NewVariable(r.ir, "v"+name, []float32{1, 2}, 2))
	}
	r.pool = []tensor{r.vars[0].Tensor(), popxl.Constant(r.ir, []float32{3, -1}, 2)}
	r.outputs = []popxl.Output[float32]{popxl.DeclareOutput[float32](r.ir, "y", 2)}
	return r
}

func (r *randomIr) pick() tensor { return rapid.SampledFrom(r.pool).Draw(r.T, "tensor") }

func (r *randomIr) args(g randomGraph, from bool) []popxl.Argument {
	first := g.p.Is(r.pick())
	if from {
		first = g.p.From(r.pick(), g.r)
	}
	if r.wild && rapid.IntRange(0, 9).Draw(r.T, "forgotten") == 0 {
		return []popxl.Argument{first}
	}
	return []popxl.Argument{first, g.v.Is(rapid.SampledFrom(r.vars).Draw(r.T, "variable"))}
}

// inside makes calls within a function, whose tensors are used there alone, unless it is wild.
func (r *randomIr) inside(depth int, x tensor) tensor {
	before := len(r.pool)
	r.pool = append(r.pool, x)
	r.calls(depth+1, rapid.IntRange(0, 3).Draw(r.T, "calls"))
	y := r.pick()
	if !r.wild {
		r.pool = r.pool[:before]
	}
	return y
}

func (r *randomIr) calls(depth, n int) {
	for range n {
		most := 13
		if depth > 2 {
			most = 5 // nothing deeper
		} else if depth > 0 && !r.wild {
			most = 8 // nothing that belongs to the main graph
		}
		var x tensor
		switch rapid.IntRange(0, most).Draw(r.T, "call") {
		case 0:
			x = ops.Add(r.pick(), r.pick())
		case 1:
			x = ops.Tanh(r.pick())
		case 2, 3:
			x = rapid.SampledFrom(r.inputs).Draw(r.T, "input").Next()
		case 4:
			r.outputs[0].Store(r.pick())
			continue
		case 5:
			ops.PrintTensor(r.pick(), "x")
			continue
		case 6:
			x = ops.Repeat(rapid.Int64Range(0, 3).Draw(r.T, "count"), r.pick(), func(x tensor) tensor { return r.inside(depth, x) })
		case 7:
			y := r.pick()
			x = ops.Conditional(ops.Greater(ops.Sum(y), popxl.Constant(r.ir, []float32{0})), func() tensor { return ops.Negate(y) }, func() tensor {
				if r.wild {
					return r.inside(depth, y)
				}
				return y
			})
		case 8:
			if len(r.graphs) == 0 || depth > 0 && !r.wild { // graphs change a variable
				continue
			}
			g := rapid.SampledFrom(r.graphs).Draw(r.T, "graph")
			x = g.r.Of(g.Call(r.args(g, false)...))
		case 9:
			if len(r.graphs) == 0 {
				continue
			}
			g := rapid.SampledFrom(r.graphs).Draw(r.T, "graph")
			x = g.r.Of(g.Repeat(rapid.Int64Range(0, 3).Draw(r.T, "count"), r.args(g, true)...))
		case 10:
			var g randomGraph
			g.Graph = popxl.NewGraph(r.ir, "g", func(in *popxl.Graph) {
				g.p, g.v = popxl.NewParam[float32](in, "p", 2), popxl.NewRef[float32](in, "v", 2)
				y := r.inside(depth, g.p.Tensor())
				g.v.Assign(ops.Add(g.v.Tensor(), y))
				g.r = popxl.NewResult(in, y)
			})
			r.graphs = append(r.graphs, g)
			continue
		case 11:
			if !r.wild {
				continue
			}
			g := randomGraph{}
			if len(r.graphs) > 0 {
				g = r.graphs[0]
			}
			call := g.Call(r.args(g, false)...)
			x = popxl.GradientOf(g.Autodiff(popxl.GradOptions{}).Call(call, g.r.Gradient(r.pick())), g.p)
		case 12:
			rapid.SampledFrom(r.vars).Draw(r.T, "variable").Assign(r.pick())
			continue
		case 13:
			v := r.vars[1]
			accumulation := rapid.Int64Range(0, 2).Draw(r.T, "accumulation")
			if len(r.outputs) > 1 && !r.wild {
				continue // once
			}
			loss := ops.Sum(ops.Mul(v.Tensor(), r.pick()))
			popxl.Minimize(loss, popxl.Training{Optimizer: optim.NewSGD(), Accumulation: accumulation, NonFinite: optim.Ignored}, v)
			r.outputs = append(r.outputs, popxl.Tap("tap", r.pick()))
			continue
		}
		if x.Valid() || r.wild {
			r.pool = append(r.pool, x)
		}
	}
}

// TestRandomSessions: whatever is called on an Ir and then on its session, in whatever order, nothing panics, an Ir without mistakes runs, and as many tensors are moved as it says.
func TestRandomSessions(t *testing.T) {
	ran := 0
	rapid.Check(t, func(t *rapid.T) {
		r := newRandomIr(t)
		r.calls(0, rapid.IntRange(1, 10).Draw(t, "calls"))
		r.outputs[0].Store(r.vars[0].Tensor())
		r.ir.UnequalTransfers()
		if rapid.Bool().Draw(t, "iterations") {
			r.ir.SetIterations(2)
		}
		var in, out []popxl.Binding
		lengths := map[string]int64{}
		for _, m := range r.ir.Transfers() {
			lengths[m.Name] = m.Count
			if m.Count == 0 {
				return // which is a mistake
			}
		}
		failed := r.ir.Err()
		s, err := popxl.NewSession(t.Context(), r.ir)
		if failed != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		defer s.Close()
		s.PrintTo(io.Discard)
		more := rapid.SampledFrom([]int64{0, 0, 0, 1, -1}).Draw(t, "more")
		y := r.outputs[0].Make()
		out = append(out, r.outputs[0].Into(y))
		for _, x := range r.inputs {
			// Loads that nobody makes leave one tensor for the whole run.
			n := 2 * lengths[x.Name()] * int64(len(y)) / 2 / lengths["y"]
			in = append(in, x.Feed(make([]float32, max(0, n+more))))
		}
		for range rapid.IntRange(1, 8).Draw(t, "session calls") {
			v := []float32{0, 0}
			switch rapid.IntRange(0, 7).Draw(t, "session call") {
			case 0, 1:
				_, _ = s.Attach(t.Context())
			case 2:
				err := s.Run(t.Context(), append(in, out...)...)
				require.False(t, more != 0 && err == nil, "data of another length")
			case 3:
				_ = s.Evaluate(t.Context(), in...)
			case 4:
				require.NoError(t, s.Variables(t.Context(), r.vars[0].Into(v)))
			case 5:
				require.NoError(t, s.SetVariables(t.Context(), r.vars[0].Set(v)))
			case 6:
				_ = s.In(t.Context(), func() error { return s.Run(t.Context(), in...) })
			case 7:
				_ = s.WeightsToHost(t.Context())
				_ = s.WeightsFromHost(t.Context())
			}
		}
		if more == 0 {
			_, err := s.Attach(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Run(t.Context(), append(in, out...)...))
			ran++
		}
	})
	require.Positive(t, ran)
}
