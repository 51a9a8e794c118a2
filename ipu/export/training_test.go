package export_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/popef"
)

func floats(vs ...float32) []byte {
	var b []byte
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// counter is a model whose values tell which micro-batch and which batch they are of:
//
//	begin     a = 0                         (the accumulator)
//	forward   y = x + w
//	backward  g = y + y, a = a + y
//	update    u = a·rate, w = w + u
type counter struct {
	exe     *graph.Executable
	layout  export.TrainingLayout
	x, w    graph.TensorID
	y, g, u graph.TensorID
}

// apart gives the model a graph of its own that evaluates: y = x - w.
func (c *counter) apart(t *testing.T) *counter {
	b := graph.Continue(c.exe)
	g := b.BeginGraph("evaluate")
	y, err := b.Node(&graph.Binary{Fn: graph.Sub}, "y", c.x, c.w)
	require.NoError(t, err)
	c.exe, err = b.Finish()
	require.NoError(t, err)
	c.layout.Evaluate, c.layout.Evaluated = []graph.GraphID{g}, map[graph.TensorID]graph.TensorID{c.y: y[0]}
	return c
}

func newCounter(t *testing.T, batches, accumulation, replicas int64) *counter {
	t.Helper()
	b := graph.NewBuilder("counter")
	pair, one := graph.TensorType{DType: graph.F32, Shape: []int64{2}}, graph.TensorType{DType: graph.F32}
	x, w, a, rate := b.AddLocal("x", pair), b.AddPersistent("w", pair), b.AddPersistent("Accl___w", pair), b.AddPersistent("rate", one)
	node := func(op graph.Op, name string, in ...graph.TensorID) graph.TensorID {
		out, err := b.Node(op, name, in...)
		require.NoError(t, err)
		return out[0]
	}
	add := &graph.Binary{Fn: graph.Add}
	forward := b.BeginGraph("forward")
	y := node(add, "y", x, w)
	backward := b.BeginGraph("backward")
	g := node(add, "g", y, y)
	require.NoError(t, b.NodeTo(add, "accumulate", []graph.TensorID{a}, a, y))
	update := b.BeginGraph("update")
	u := node(&graph.Binary{Fn: graph.Mul}, "u", a, rate)
	require.NoError(t, b.NodeTo(add, "update", []graph.TensorID{w}, w, u))
	begin := b.BeginGraph("begin")
	require.NoError(t, b.NodeTo(&graph.Expand{Shape: pair.Shape}, "clear", []graph.TensorID{a}, b.AddConst("zero", one, floats(0))))
	exe, err := b.Finish()
	require.NoError(t, err)
	return &counter{exe: exe, x: x, w: w, y: y, g: g, u: u, layout: export.TrainingLayout{
		BatchesPerStep: batches, Accumulation: accumulation, Replicas: replicas,
		Begin: []graph.GraphID{begin}, Forward: []graph.GraphID{forward}, Backward: []graph.GraphID{backward}, Update: []graph.GraphID{update},
		Inputs:    []export.Port{{Name: "x", Tensor: x}},
		Weights:   []export.Weight{{Port: export.Port{Name: "w", Tensor: w}, Value: floats(100, 200)}},
		State:     []export.Weight{{Port: export.Port{Name: "Accl___w", Tensor: a}, Value: floats(0, 0)}},
		Optimizer: []export.Weight{{Port: export.Port{Name: "learningRate___default___FLOAT", Tensor: rate}, Value: floats(0.5)}},
	}}
}

// returning is a return type with its period.
type returning struct {
	how export.Return
	n   int64
}

func (r returning) String() string {
	if r.how == export.EveryN {
		return fmt.Sprint(r.how, r.n)
	}
	return r.how.String()
}

// output returns y and u, each under the name of the return type.
func (c *counter) output(r returning) {
	for _, of := range []struct {
		name   string
		tensor graph.TensorID
	}{{"y", c.y}, {"u", c.u}} {
		c.layout.Outputs = append(c.layout.Outputs, export.Output{Port: export.Port{Name: of.name + " " + r.String(), Tensor: of.tensor}, Return: r.how, N: r.n})
	}
}

type pair [2]float32

// value is one value of an output: micro-batch 0 of replica 0 where it is that of a batch.
type value struct {
	batch, micro, replica int64
	v                     pair
}

// simulate returns the values of y and u in a run of the main program, or of the one that evaluates, and w after it.
func (c *counter) simulate(w pair, evaluate bool) (y, u []value, after pair) {
	l := &c.layout
	i := float32(0)
	for b := range l.BatchesPerStep {
		var a pair
		for m := range l.Accumulation {
			for r := range l.Replicas {
				i++
				v := pair{i + w[0], 10*i + w[1]}
				if evaluate && l.Evaluate != nil {
					v = pair{i - w[0], 10*i - w[1]}
				}
				y = append(y, value{b, m, r, v})
				a[0], a[1] = a[0]+v[0], a[1]+v[1]
			}
		}
		if !evaluate {
			d := pair{a[0] / 2, a[1] / 2}
			u = append(u, value{b, 0, 0, d})
			w[0], w[1] = w[0]+d[0], w[1]+d[1]
		}
	}
	return y, u, w
}

// want returns what is returned of all values, by the definition of the return types; replicas is 1 for what has
// one value a batch, and last its last micro-batch.
func (r returning) want(all []value, batches, last, replicas int64) (out []pair) {
	sums := make([]pair, replicas)
	for _, v := range all {
		switch {
		case r.how == export.All, r.how == export.EveryN && (v.batch+1)%r.n == 0,
			r.how == export.Final && v.batch == batches-1 && v.micro == last:
			out = append(out, v.v)
		case r.how == export.Sum:
			sums[v.replica][0] += v.v[0]
			sums[v.replica][1] += v.v[1]
		}
	}
	if r.how == export.Sum {
		return sums
	}
	return out
}

// stream is the host's end of a stream: it gives values or keeps those that it gets, and counts its transfers.
type stream struct {
	give  [][]byte
	got   [][]byte
	moved int
}

func (s *stream) Fetch(_ context.Context, buf []byte) error {
	s.moved++
	if s.give == nil {
		s.got = append(s.got, bytes.Clone(buf))
		return nil
	}
	if s.moved > len(s.give) {
		return fmt.Errorf("transfer %d of %d", s.moved, len(s.give))
	}
	copy(buf, s.give[s.moved-1])
	return nil
}
func (s *stream) Prefetch([]byte) bool  { return false }
func (s *stream) Complete()             {}
func (s *stream) InvalidatePrefetched() {}

// pairs returns what a stream got.
func (s *stream) pairs() (out []pair) {
	for _, b := range s.got {
		var p pair
		for i := range p {
			p[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		out = append(out, p)
	}
	return out
}

// machine runs the programs of a model.
type machine struct {
	t       *testing.T
	m       *export.Model
	engine  *cpu.Engine
	streams map[string]*stream // by handle
}

func newMachine(t *testing.T, m *export.Model) *machine {
	t.Helper()
	var exe bytes.Buffer
	require.NoError(t, encoding.Encode(&exe, m.Executable))
	e, err := cpu.New(ipu.EngineConfig{Name: t.Name(), Executable: exe.Bytes()})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	mc := &machine{t: t, m: m, engine: e, streams: map[string]*stream{}}
	for _, a := range m.Metadata.Anchors {
		s := &stream{}
		mc.streams[a.Handle] = s
		require.NoError(t, e.Connect(a.Handle, s))
	}
	for _, d := range m.Data {
		mc.streams["h2d_"+d.Name].give = [][]byte{d.Data}
	}
	ds, err := (&ipu.Manager{}).Get(t.Context(), ipu.Request{Backend: "cpu"})
	require.NoError(t, err)
	_, err = ds.Attach()
	require.NoError(t, err)
	require.NoError(t, e.Load(t.Context(), ds))
	for _, p := range m.Metadata.ProgramFlow.Load {
		require.NoError(t, e.Run(t.Context(), int(p)))
	}
	return mc
}

// run runs a program from its first transfer on.
func (mc *machine) run(program uint32) {
	mc.t.Helper()
	for _, s := range mc.streams {
		s.moved, s.got = 0, nil
	}
	require.NoError(mc.t, mc.engine.Run(mc.t.Context(), int(program)))
}

// feed gives x its values.
func (mc *machine) feed(n int64) {
	var all [][]byte
	for i := range n {
		all = append(all, floats(float32(i+1), 10*float32(i+1)))
	}
	mc.streams["h2d_x"].give = all
}

// TestReturnTypes runs the counter model with each return type alone and with all at once: values and the number of
// transfers are those of the definitions, in two steps and in an evaluation between them.
func TestReturnTypes(t *testing.T) {
	for _, batches := range []int64{1, 4, 12} {
		for _, accumulation := range []int64{1, 2} {
			for _, replicas := range []int64{1, 2} {
				all := []returning{{export.All, 0}, {export.Final, 0}, {export.Sum, 0}}
				for _, n := range []int64{1, 2, 3, 4, 6, 12} {
					if batches%n == 0 {
						all = append(all, returning{export.EveryN, n})
					}
				}
				cases := [][]returning{all}
				for _, r := range all {
					cases = append(cases, []returning{r})
				}
				for _, rs := range cases {
					t.Run(fmt.Sprintf("%d×%d×%d %v", batches, accumulation, replicas, rs), func(t *testing.T) {
						testReturns(t, newCounter(t, batches, accumulation, replicas), rs)
						if len(rs) > 1 {
							testReturns(t, newCounter(t, batches, accumulation, replicas).apart(t), rs)
						}
					})
				}
			}
		}
	}
}

// TestReturnsTogether is [TestReturnTypes] of several outputs of random return types, whose periods need not divide each other.
func TestReturnsTogether(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		batches := []int64{1, 2, 6, 12, 30}[draw.IntN(5)]
		seen, rs := map[returning]bool{}, []returning(nil)
		for range 1 + draw.IntN(5) {
			r := returning{how: export.Return(draw.IntN(4))}
			if r.how == export.EveryN {
				for r.n = 1 + draw.Int64N(batches); batches%r.n != 0; r.n-- {
				}
			}
			if !seen[r] {
				seen[r], rs = true, append(rs, r)
			}
		}
		accumulation, replicas := 1+draw.Int64N(3), 1+draw.Int64N(3)
		t.Run(fmt.Sprintf("%d×%d×%d %v", batches, accumulation, replicas, rs), func(t *testing.T) {
			testReturns(t, newCounter(t, batches, accumulation, replicas), rs)
		})
	}
}

func testReturns(t *testing.T, c *counter, rs []returning) {
	l := &c.layout
	for _, r := range rs {
		c.output(r)
	}
	m, err := export.Training(c.exe, *l)
	require.NoError(t, err)
	load := export.LoadProgram
	require.NoError(t, pass.Optimize(m.Executable, pass.OptimizeOptions{Load: &load}))
	mc := newMachine(t, m)
	total := l.BatchesPerStep * l.Accumulation * l.Replicas
	mc.feed(total)
	w, sum := pair{100, 200}, pair{}
	for _, program := range []uint32{export.MainProgram, export.EvaluateProgram, export.MainProgram} {
		evaluate := program == export.EvaluateProgram
		mc.run(program)
		y, u, after := c.simulate(w, evaluate)
		w = after
		if !evaluate { // u is half of what the accumulator holds since
			sum = pair{2 * u[len(u)-1].v[0], 2 * u[len(u)-1].v[1]}
		}
		want, got := map[string][]pair{}, map[string][]pair{}
		for _, r := range rs {
			want["y "+r.String()] = r.want(y, l.BatchesPerStep, l.Accumulation-1, l.Replicas)
			want["u "+r.String()] = r.want(u, l.BatchesPerStep, 0, 1)
			if evaluate {
				want["u "+r.String()] = nil
			}
		}
		for name := range want {
			got[name] = mc.streams["anchor_d2h_"+name].pairs()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("program %d (-want +got):\n%s", program, diff)
		}
		require.EqualValues(t, total, mc.streams["h2d_x"].moved)
	}
	mc.run(export.SaveProgram)
	require.Equal(t, []pair{w}, mc.streams["weight_d2h_w"].pairs())
	require.Equal(t, []pair{sum}, mc.streams["weight_d2h_Accl___w"].pairs())
}

// TestTrainingMetadata: programs, anchors and their order are PopART's.
func TestTrainingMetadata(t *testing.T) {
	c := newCounter(t, 4, 2, 1)
	exe := c.exe
	persistent := func(name string, typ graph.TensorType) graph.TensorID {
		exe.Tensors = append(exe.Tensors, graph.Tensor{Name: name, Type: typ, Persistent: true})
		return graph.TensorID(len(exe.Tensors) - 1)
	}
	seed := graph.TensorType{DType: graph.U32, Shape: []int64{2}}
	c.layout.Seed = &export.Weight{Port: export.Port{Tensor: persistent("seed", seed)}, Value: make([]byte, 8)}
	c.layout.RandomState = &export.Weight{Port: export.Port{Tensor: persistent("state", seed)}}
	c.layout.CycleCount = &export.Port{Name: "cycles", Tensor: persistent("cycles", graph.TensorType{DType: graph.U64})}
	c.output(returning{export.All, 0})
	c.layout.Outputs = append(c.layout.Outputs, export.Output{Port: export.Port{Name: "g", Tensor: c.g}})
	m, err := export.Training(exe, c.layout)
	require.NoError(t, err)
	require.NoError(t, m.Encode())
	file, err := m.Load(t.Context(), "counter.popef")
	require.NoError(t, err)
	defer file.Close()
	meta := &file.Metadata
	require.False(t, meta.IsInference)
	require.EqualValues(t, 8, meta.DeviceIterations)
	require.Equal(t, "h2d_randomSeed___fromHost", meta.SeedHandle)
	require.Equal(t, popef.ProgramFlow{Load: []uint32{0, 1, 2, 4}, Main: []uint32{5}, Save: []uint32{7, 3, 6, 8}}, meta.ProgramFlow)
	want := []popef.ProgramInfo{
		{Index: 0, Name: "WeightsFromHost"}, {Index: 1, Name: "OptimizerFromHost"}, {Index: 2, Name: "RandomSeedFromHost"}, {Index: 3, Name: "RandomSeedToHost"},
		{Index: 4, Name: "RngStateFromHost"}, {Index: 5, Name: "Program"}, {Index: 6, Name: "RngStateToHost"}, {Index: 7, Name: "WeightsToHost"},
		{Index: 8, Name: "CycleCountTensorToHost"}, {Index: 9, Name: "Evaluate"},
	}
	require.Equal(t, "", cmp.Diff(want, meta.Programs))
	var anchors []string
	for _, a := range meta.Anchors {
		anchors = append(anchors, fmt.Sprintf("%s %s %v %v %v", a.Name, a.Handle, a.Type, a.Programs, a.Info))
	}
	require.Equal(t, "", cmp.Diff([]string{
		"w weight_d2h_w output [7] F32 [2]",
		"Accl___w weight_d2h_Accl___w output [7] F32 [2]",
		"x h2d_x input [5 9] F32 [2]",
		"y All anchor_d2h_y All output [5 9] F32 [2]",
		"u All anchor_d2h_u All output [5] F32 [2]",
		"g anchor_d2h_g output [5] F32 [2]",
		"randomSeed___fromHost d2h_randomSeed output [3] U32 [2]",
		"rngStateTensor d2h_rngStateTensor output [6] U32 [2]",
		"cycles d2h_cycleCount____cycles output [8] U64 []",
		"w h2d_w input [0] F32 [2]",
		"Accl___w h2d_Accl___w input [0] F32 [2]",
		"learningRate___default___FLOAT h2d_learningRate___default___FLOAT input [1] F32 []",
		"randomSeed___fromHost h2d_randomSeed___fromHost input [2] U32 [2]",
		"rngStateTensor h2d_rngStateTensor input [4] U32 [2]",
	}, anchors))
}

// TestLayoutErrors: what no program can be laid out for is refused with what to do.
func TestLayoutErrors(t *testing.T) {
	every := func(n int64) func(c *counter) {
		return func(c *counter) { c.output(returning{export.EveryN, n}) }
	}
	for _, test := range []struct {
		name   string
		change func(c *counter)
		want   string
	}{
		{"no batches", func(c *counter) { c.layout.BatchesPerStep = 0 }, "batches per step 0: want 1 to 2147483648"},
		{"negative accumulation", func(c *counter) { c.layout.Accumulation = -1 }, "accumulation factor -1: want"},
		{"too many", func(c *counter) { c.layout.BatchesPerStep, c.layout.Replicas = 1<<20, 1<<20 }, "take fewer batches per step"},
		{"no N", every(0), `output "y EveryN 0": return type EveryN with N = 0: want after how many batches values are returned, one of 1, 2, 3, 4, 6, 12`},
		{"N does not divide", every(5), "N = 5, which does not divide the 12 batches per step: want N to be one of 1, 2, 3, 4, 6, 12"},
		{"N too large", every(24), "does not divide"},
		{"N of another type", func(c *counter) {
			c.output(returning{export.All, 0})
			c.layout.Outputs[0].N = 2
		}, "only EveryN has an N"},
		{"unknown type", func(c *counter) { c.output(returning{9, 0}) }, "return type 9: want one of All, EveryN, Final, Sum"},
		{"sum of truths", func(c *counter) {
			c.exe.Tensors = append(c.exe.Tensors, graph.Tensor{Name: "t", Type: graph.TensorType{DType: graph.Bool}})
			c.layout.Outputs = []export.Output{{Port: export.Port{Name: "t", Tensor: graph.TensorID(len(c.exe.Tensors) - 1)}, Return: export.Sum}}
		}, `output "t": return type Sum of elements of type bool`},
		{"no forward graph", func(c *counter) { c.layout.Forward = nil }, "no forward graphs"},
		{"no such graph", func(c *counter) { c.layout.Update[0] = 7 }, "graph 7 is called, and the executable has 4"},
		{"no such tensor", func(c *counter) { c.layout.Inputs[0].Tensor = 700 }, `input "x" is tensor 700`},
		{"local weight", func(c *counter) { c.layout.Weights[0].Tensor = c.y }, `weight "w" is a local tensor`},
		{"persistent input", func(c *counter) { c.layout.Inputs[0].Tensor = c.layout.Weights[0].Tensor }, `input "x" is a persistent tensor`},
		{"one name twice", func(c *counter) { c.layout.Weights[0].Name = "x" }, `weight "x": another anchor that the host gives has this name`},
		{"two outputs", func(c *counter) {
			c.output(returning{export.All, 0})
			c.layout.Outputs[1].Name = c.layout.Outputs[0].Name
		}, `two outputs have this name`},
		{"value too short", func(c *counter) { c.layout.Weights[0].Value = floats(1) }, "its value has 4 bytes, want the 8 of"},
		{"output of nothing", func(c *counter) {
			c.exe.Tensors = append(c.exe.Tensors, graph.Tensor{Name: "t", Type: graph.TensorType{DType: graph.F32}})
			c.layout.Outputs = []export.Output{{Port: export.Port{Name: "t", Tensor: graph.TensorID(len(c.exe.Tensors) - 1)}}}
		}, "nothing has written it yet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCounter(t, 12, 1, 1)
			test.change(c)
			_, err := export.Training(c.exe, c.layout)
			require.ErrorIs(t, err, export.ErrLayout)
			require.ErrorContains(t, err, test.want)
		})
	}
	for name, want := range map[string]export.Return{"all": export.All, "EVERYN": export.EveryN, "Final": export.Final, "sUm": export.Sum} {
		r, err := export.ParseReturn(name)
		require.NoError(t, err)
		require.Equal(t, want, r)
	}
	_, err := export.ParseReturn("last")
	require.ErrorIs(t, err, export.ErrLayout)
	require.ErrorContains(t, err, `return type "last": want one of All, EveryN, Final, Sum`)
}
