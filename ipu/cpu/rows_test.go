package cpu

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/ipu/graph/rows"
)

// TestRowKinds: the draws know all operators.
func TestRowKinds(t *testing.T) {
	require.ElementsMatch(t, graph.Kinds(), slices.Concat(rowKinds, rowsTogether))
}

// drawRows draws a graph and what its weights are.
func drawRows(t *rapid.T) *rowDraw {
	d := &rowDraw{T: t, b: graph.NewBuilder("rows"), rows: map[graph.TensorID]int{}, weights: map[string][]float32{}}
	d.rand = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
	d.n = rapid.SampledFrom([]int64{2, 3, 4, 6}).Draw(t, "rows")
	d.each = rowElements / d.n
	d.careful = d.one(2, "careful")
	x := d.b.AddLocal("x", f32(d.n, d.each))
	d.rows[x] = 0
	d.pool = []graph.TensorID{x}
	in := d.b.CopyIn("x", x)
	g := d.b.BeginGraph("main")
	d.nodes(5)
	y := d.exactly(d.pool[len(d.pool)-1], d.each)
	if d.one(8, "state") {
		s := d.b.AddPersistent("state", f32(d.n, d.each))
		old := y
		y = d.node(&graph.Binary{Fn: graph.Add}, y, s)
		require.NoError(t, d.b.NodeTo(&graph.Unary{Fn: graph.Tanh}, "update", []graph.TensorID{s}, old))
	}
	d.b.AddProgram(0, "load", d.loads...)
	d.b.AddProgram(1, "main", in, d.b.Call(g), d.b.CopyOut("y", y))
	return d
}

// rowRunner runs a drawn graph with given inputs.
type rowRunner struct {
	t    *rapid.T
	e    *Engine
	d    *rowDraw
	x, y []byte
}

func newRowRunner(t *rapid.T, d *rowDraw, e *graph.Executable) *rowRunner {
	var buf bytes.Buffer
	require.NoError(t, encoding.Encode(&buf, e))
	engine, err := New(ipu.EngineConfig{Name: "rows", Executable: buf.Bytes(), Options: opt("threads", "1")})
	require.NoError(t, err)
	r := &rowRunner{t: t, e: engine, d: d, x: make([]byte, 4*rowElements), y: make([]byte, 4*rowElements)}
	load(t, engine)
	for name, v := range d.weights {
		require.NoError(t, engine.Connect(name, direct{newHost(t, slices.Clone(bytesOf(v)))}))
	}
	return r
}

// run returns the rows of the output, or nil if the run ends with an error.
func (r *rowRunner) run(rows [][]float32) [][]byte {
	require.NoError(r.t, r.e.Connect("x", direct{newHost(r.t, bytesOf(slices.Concat(rows...)))}))
	h := newHost(r.t, make([]byte, 4*rowElements))
	require.NoError(r.t, r.e.Connect("y", direct{h}))
	run(r.t, r.e, 0)
	if err := r.e.Run(context.Background(), 1); err != nil {
		return nil
	}
	return slices.Collect(slices.Chunk(h.items[0], int(4*r.d.each)))
}

// garbage is what other rows may hold.
var garbage = []func(r *rand.Rand) float32{
	func(r *rand.Rand) float32 { return float32(r.IntN(9)) - 4 },
	func(r *rand.Rand) float32 { return 4*r.Float32() - 2 },
	func(r *rand.Rand) float32 { return float32(math.NaN()) },
	func(r *rand.Rand) float32 { return float32(math.Inf(1 - 2*r.IntN(2))) },
	func(r *rand.Rand) float32 { return (r.Float32() - 0.5) * 1e38 },
	func(r *rand.Rand) float32 { return 0 },
}

func drawRow(r *rand.Rand, n int64, kind int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = garbage[kind](r)
	}
	return v
}

// independent computes with other rows changed, and reports what comes of it: ok unless a
// row changed with the others, or with its place, or could not be run beside zeros.
// known is false where that says little: the run fails anyway, or what comes of it
// is the same whatever its input is.
func (r *rowRunner) independent(rnd *rand.Rand) (ok, known bool) {
	d := r.d
	base := make([][]float32, d.n)
	for i := range base {
		base[i] = drawRow(rnd, d.each, rnd.IntN(2))
	}
	want := r.run(base)
	if want == nil {
		return false, false
	}
	ok, known = true, false
	for kind := range garbage {
		for i := range base {
			in := make([][]float32, d.n)
			for j := range in {
				if in[j] = base[i]; j != i {
					in[j] = drawRow(rnd, d.each, kind)
				}
			}
			in[i] = base[i]
			got := r.run(in)
			if got == nil { // numbers of real rows may be refused, zeros not
				ok = ok && kind != len(garbage)-1
				continue
			}
			ok = ok && bytes.Equal(got[i], want[i])
			known = known || !bytes.Equal(got[(i+1)%len(got)], want[(i+1)%len(got)])
			// In another place it is computed alike, in other registers perhaps.
			j := (i + 1) % int(d.n)
			in[i], in[j] = in[j], in[i]
			if got := r.run(in); got != nil {
				ok = ok && near(floats(got[j]), floats(want[i]))
			}
		}
	}
	return ok, known || !ok
}

func near(a, b []float32) bool {
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		if math.IsNaN(x) != math.IsNaN(y) || math.Abs(x-y) > 1e-3*(1+math.Abs(x)) {
			return false
		}
	}
	return true
}

// TestRandomRows: the proof is never wrong, for graphs as they are drawn and as the passes
// leave them. How many graphs it could have proven stands in the log.
func TestRandomRows(t *testing.T) {
	var drawn, really, proven [2]int
	why := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		d := drawRows(t)
		e, err := d.b.Finish()
		require.NoError(t, err)
		seed := rapid.Uint64().Draw(t, "seed")
		for i, optimised := range []bool{false, true} {
			if optimised {
				require.NoError(t, pass.Optimize(e, pass.OptimizeOptions{}))
			}
			proof := rows.Independent(e, 1, d.n, map[string]int{"x": 0, "y": 0})
			r := newRowRunner(t, d, e)
			ok, known := r.independent(rand.New(rand.NewPCG(seed, 1)))
			require.NoError(t, r.e.Close())
			drawn[i]++
			if proof == nil && !ok && known {
				t.Fatalf("optimised: %t: proven, but rows change with others\n%s", optimised, dump.String(e))
			}
			if ok && known && !d.asserts {
				really[i]++
				if proof == nil {
					proven[i]++
				} else {
					why[proof.(*rows.Finding).Kind+" "+proof.(*rows.Finding).Reason.String()]++
				}
			}
		}
	})
	for i, what := range []string{"drawn", "optimised"} {
		t.Logf("%s: %d graphs, %d independent as far as runs tell, %d of them proven (%.0f %%)", what, drawn[i], really[i], proven[i], 100*float64(proven[i])/float64(max(really[i], 1)))
	}
	t.Log(why)
}
