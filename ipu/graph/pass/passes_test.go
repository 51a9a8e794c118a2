package pass

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// symbolic runs programs on symbols instead of numbers: the value of a tensor
// is a hash of how it was computed, in which operators that change nothing
// leave no trace.
type symbolic struct {
	e      *graph.Executable
	value  map[graph.TensorID]uint64
	copies map[graph.StreamID]int
	trace  []string // what was copied out
}

func hash(format string, args ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, format, args...)
	return h.Sum64()
}

func (s *symbolic) run(steps []graph.Step) {
	for _, st := range steps {
		switch st.Kind {
		case graph.CopyIn:
			s.copies[st.Stream]++
			s.value[st.Tensor] = hash("in %s %d", s.e.Streams[st.Stream].Handle, s.copies[st.Stream])
		case graph.CopyOut:
			s.trace = append(s.trace, fmt.Sprintf("%s %x", s.e.Streams[st.Stream].Handle, s.get(st.Tensor)))
		case graph.Call:
			for i := range s.e.Graphs[st.Graph].Nodes {
				s.node(&s.e.Graphs[st.Graph].Nodes[i])
			}
		case graph.Repeat:
			for range st.Count {
				s.run(st.Body)
			}
		}
	}
}

func (s *symbolic) get(id graph.TensorID) uint64 {
	if t := &s.e.Tensors[id]; t.Const {
		return hash("const %s %x", t.Name, t.Data)
	}
	return s.value[id]
}

func (s *symbolic) node(n *graph.Node) {
	in := make([]uint64, len(n.Inputs))
	for i, id := range n.Inputs {
		if id == graph.None {
			continue
		}
		in[i] = s.get(id)
	}
	for i, id := range n.Outputs {
		switch {
		case id == graph.None:
		case isIdentity(s.e, n):
			s.value[id] = in[0]
		default:
			s.value[id] = hash("%s %d %x", graph.OpString(n.Op), i, in)
		}
	}
}

// traces runs all programs twice over, so that state that outlives a program
// shows.
func traces(e *graph.Executable) []string {
	s := &symbolic{e: e, value: map[graph.TensorID]uint64{}, copies: map[graph.StreamID]int{}}
	for range 2 {
		for _, p := range e.Programs {
			s.run(p.Steps)
		}
	}
	return s.trace
}

// identities are operators that change nothing about an f32[2,2].
var identities = []graph.Op{
	&graph.Reshape{Shape: []int64{2, 2}}, &graph.Expand{Shape: []int64{2, 2}}, &graph.Cast{To: graph.F32}, &graph.Transpose{Perm: []int64{0, 1}}, &graph.Concat{},
	&graph.Slice{Start: []int64{0, 0}, Size: []int64{2, 2}, Step: []int64{1, 1}}, &graph.Pad{Before: make([]int64, 2), After: make([]int64, 2), Mode: graph.PadConstant},
}

// look-alikes of identities that do change an f32[2,2].
var lookAlikes = []graph.Op{
	&graph.Transpose{Perm: []int64{1, 0}}, &graph.Slice{Start: []int64{1, 0}, Size: []int64{2, 2}, Step: []int64{-1, 1}},
	&graph.Pad{Before: []int64{1, 0}, After: []int64{-1, 0}, Mode: graph.PadConstant}, &graph.Unary{Fn: graph.Neg},
}

// square is the type of almost all tensors here.
var square = graph.TensorType{DType: graph.F32, Shape: []int64{2, 2}}

// drawExecutable draws an executable whose programs call graphs, copy tensors
// and repeat steps in any order that is allowed.
func drawExecutable(t *rapid.T) *graph.Executable {
	b := graph.NewBuilder("random")
	typ := square
	var inputs, persistent, readable []graph.TensorID
	for i := range rapid.IntRange(1, 3).Draw(t, "inputs") {
		inputs = append(inputs, b.AddLocal(fmt.Sprintf("in%d", i), typ))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "persistent") {
		persistent = append(persistent, b.AddPersistent(fmt.Sprintf("state%d", i), typ))
	}
	readable = append(append(readable, inputs...), persistent...)
	for i := range rapid.IntRange(0, 2).Draw(t, "constants") {
		readable = append(readable, b.AddConst(fmt.Sprintf("c%d", i), typ, []byte{15: byte(i)}))
	}
	pick := func(from []graph.TensorID) graph.TensorID { return rapid.SampledFrom(from).Draw(t, "tensor") }
	var graphs []graph.GraphID
	var calls []graph.Step
	for i := range rapid.IntRange(1, 3).Draw(t, "graphs") {
		g := b.BeginGraph(fmt.Sprintf("g%d", i))
		graphs = append(graphs, g)
		calls = append(calls, b.Call(g))
		for j := range rapid.IntRange(0, 5).Draw(t, "nodes") {
			name := fmt.Sprintf("n%d.%d", i, j)
			op, in := graph.Op(&graph.Binary{Fn: graph.Add}), []graph.TensorID{pick(readable)}
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1, 2:
				op = rapid.SampledFrom(identities).Draw(t, "identity")
			case 3:
				op = rapid.SampledFrom(lookAlikes).Draw(t, "other")
			default:
				in = append(in, pick(readable))
			}
			if len(persistent) > 0 && rapid.IntRange(0, 4).Draw(t, "update") == 0 {
				require.NoError(t, b.NodeTo(op, name, []graph.TensorID{pick(persistent)}, in...))
				continue
			}
			out, err := b.Node(op, name, in...)
			require.NoError(t, err)
			readable = append(readable, out[0])
		}
	}
	copyIn := func(id graph.TensorID) graph.Step { return b.CopyIn("h2d "+b.Tensor(id).Name, id) }
	var draw func(depth int) []graph.Step
	draw = func(depth int) []graph.Step {
		var steps []graph.Step
		for range rapid.IntRange(0, 5).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				steps = append(steps, copyIn(pick(append(inputs[:len(inputs):len(inputs)], persistent...))))
			case 1:
				steps = append(steps, b.Call(rapid.SampledFrom(graphs).Draw(t, "graph")))
			case 2:
				if depth < 2 {
					steps = append(steps, b.Repeat(rapid.Int64Range(1, 3).Draw(t, "count"), draw(depth+1)...))
				}
			default:
				id := pick(readable)
				steps = append(steps, b.CopyOut("d2h "+b.Tensor(id).Name, id))
			}
		}
		return steps
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "programs") {
		var steps []graph.Step
		if rapid.Bool().Draw(t, "load only") {
			for _, p := range persistent {
				steps = append(steps, copyIn(p))
			}
		} else {
			for _, in := range inputs {
				steps = append(steps, copyIn(in))
			}
			steps = append(append(steps, calls...), draw(0)...)
		}
		b.AddProgram(i, "p", steps...)
	}
	e, err := b.Finish()
	require.NoError(t, err)
	return e
}

// symbolicPasses only move and remove nodes, so that symbols show whether they
// are right. Package ipu/cpu tests all passes with numbers.
var symbolicPasses = []string{"identity", "common", "dead-code"}

// Every such pass alone, and all together, leave what programs deliver alone.
func TestPassesKeepResults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawExecutable(t)
		for _, only := range append([]string{"all"}, symbolicPasses...) {
			var disabled []string
			for _, name := range passNames() {
				if name != only && (only != "all" || !slices.Contains(symbolicPasses, name)) {
					disabled = append(disabled, name)
				}
			}
			var buf strings.Builder
			require.NoError(t, encoding.Encode(&buf, want))
			got, err := encoding.Decode([]byte(buf.String()))
			require.NoError(t, err)
			require.NoError(t, Optimize(got, OptimizeOptions{Disabled: disabled}))
			require.Equal(t, traces(want), traces(got), "pass %s\nfrom %v\nto %v", only, want, got)
			require.Equal(t, want.Streams, got.Streams)
			got.Passes = nil
			again := dump.String(got)
			require.NoError(t, Optimize(got, OptimizeOptions{Disabled: disabled}))
			got.Passes = nil
			require.Equal(t, again, dump.String(got), "pass %s run again", only)
		}
	})
}

func passNames() []string {
	var names []string
	for _, p := range Passes {
		names = append(names, p.Name)
	}
	return names
}

func TestOptimizeErrors(t *testing.T) {
	require.EqualError(t, Optimize(chain(t), OptimizeOptions{Disabled: []string{"inline"}}),
		`optimise executable "chain": there is no pass "inline" to disable, want one of `+strings.Join(passNames(), ", "))
	e := chain(t)
	e.Programs[0].Index = -1
	require.ErrorIs(t, Optimize(e, OptimizeOptions{}), graph.ErrInvalid)
}

// chain is x through all identities and an operator, to two streams.
func chain(t *testing.T) *graph.Executable {
	b := graph.NewBuilder("chain")
	x := b.AddLocal("x", square)
	w := b.AddPersistent("w", square)
	b.AddConst("unused", graph.TensorType{DType: graph.F32, Shape: []int64{1}}, []byte{0, 0, 0x80, 0x3f})
	g := b.BeginGraph("main")
	y, v := x, w
	for i, op := range identities {
		for _, id := range []*graph.TensorID{&y, &v} {
			out, err := b.Node(op, fmt.Sprintf("id%d", i), *id)
			require.NoError(t, err)
			*id = out[0]
		}
	}
	pool := &graph.MaxPool{Kernel: []int64{1}, Strides: []int64{1}, Dilations: []int64{1}, PadsBegin: []int64{0}, PadsEnd: []int64{0}}
	three, err := b.Node(&graph.Reshape{Shape: []int64{1, 2, 2}}, "three", y)
	require.NoError(t, err)
	p, err := b.Node(pool, "pool", three[0])
	require.NoError(t, err)
	_, err = b.Node(&graph.Unary{Fn: graph.Neg}, "dead", y)
	require.NoError(t, err)
	b.BeginGraph("never")
	_, err = b.Node(&graph.Unary{Fn: graph.Neg}, "uncalled", y)
	require.NoError(t, err)
	b.AddProgram(0, "load", b.CopyIn("w", w))
	b.AddProgram(1, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y), b.CopyOut("v", v), b.CopyOut("p", p[0]))
	e, err := b.Finish()
	require.NoError(t, err)
	return e
}

func TestOptimizeText(t *testing.T) {
	e := chain(t)
	require.NoError(t, Optimize(e, OptimizeOptions{}))
	require.Equal(t, "identity: 18 → 2 nodes, 14 operators that change nothing", e.Passes[1].String())
	require.Contains(t, dump.String(e), fmt.Sprintf("\npasses: %d\n", len(Passes))+"  movement: 18 → 18 nodes\n  identity: 18 → 2 nodes, 14 operators that change nothing\n")
	var file bytes.Buffer
	require.NoError(t, encoding.Encode(&file, e))
	again, err := encoding.Decode(file.Bytes())
	require.NoError(t, err)
	require.Equal(t, dump.String(e), dump.String(again))
	e.Passes = nil
	require.Equal(t, `executable "chain", made by ""
streams: 5
  "w" host-to-device f32[2,2]
  "x" host-to-device f32[2,2]
  "y" device-to-host f32[2,2]
  "v" device-to-host f32[2,2]
  "p" device-to-host f32[1,2,2]
programs: 2
  0 "load"
    %1:w <- "w"
  1 "main"
    %0:x <- "x"
    call graph 0 "main"
    %0:x -> "y"
    %1:w -> "v"
    %3:pool -> "p"
constants: 0, 0 bytes
persistent: 1, 16 bytes
  %1:w f32[2,2], 16 bytes
graphs: 2
  graph 0 "main", 2 nodes
    %2:three = Reshape(%0:x) f32[1,2,2]; shape 1,2,2  # three
    %3:pool = MaxPool(%2:three) f32[1,2,2]; kernel 1  # pool
  graph 1 "never", 0 nodes
`, dump.String(e))

	off := chain(t)
	require.NoError(t, Optimize(off, OptimizeOptions{Disabled: passNames()}))
	off.Passes = nil
	require.Equal(t, dump.String(chain(t)), dump.String(off))
}

// TestSubgraphsAreRead: what only branches and bodies read is not dead.
func TestSubgraphsAreRead(t *testing.T) {
	b := graph.NewBuilder("subgraphs")
	x, cond := b.AddLocal("x", square), b.AddLocal("cond", graph.TensorType{DType: graph.Bool, Shape: nil})
	then, body := b.BeginGraph("then"), b.BeginGraph("body")
	otherwise, g := b.BeginGraph("else"), b.BeginGraph("main")
	node := func(in graph.GraphID, op graph.Op, from ...graph.TensorID) graph.TensorID {
		b.SetGraph(in)
		out, err := b.Node(op, op.Kind(), from...)
		require.NoError(t, err)
		return out[0]
	}
	neg := node(g, &graph.Unary{Fn: graph.Neg}, x)
	double := node(then, &graph.Binary{Fn: graph.Add}, neg, neg)
	b.SetParams(then, nil, []graph.TensorID{double})
	b.SetParams(otherwise, nil, []graph.TensorID{x})
	i, a := b.AddLocal("i", graph.TensorType{DType: graph.I64, Shape: nil}), b.AddLocal("a", square)
	b.SetParams(body, []graph.TensorID{i, a}, []graph.TensorID{node(body, &graph.Binary{Fn: graph.Mul}, a, neg)})
	y := node(g, &graph.If{Then: then, Else: otherwise}, cond)
	z := node(g, &graph.Loop{Body: body, Count: 3}, graph.None, graph.None, x)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.CopyIn("cond", cond), b.Call(g), b.CopyOut("y", y), b.CopyOut("z", z))
	e, err := b.Finish()
	require.NoError(t, err)
	before := dump.String(e)
	require.NoError(t, Optimize(e, OptimizeOptions{}))
	e.Passes = nil
	require.Equal(t, before, dump.String(e))
}
