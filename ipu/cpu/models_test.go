package cpu

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// wave returns n values that look random but are always the same.
func wave(n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(scale * math.Sin(float64(i)*1.7+0.3))
	}
	return v
}

// model is a small network of a real kind: program 0 sets its weights and
// states, program 1 maps "x" to "y".
type model struct {
	b *graph.Builder
	// x and y are the elements of the input and of the output.
	x, y    int
	weights map[string][]float32
}

func (m *model) weight(name string, scale float64, shape ...int64) graph.TensorID {
	t := m.b.AddPersistent(name, f32(shape...))
	m.weights[name] = wave(int(f32(shape...).Elements()), scale)
	return t
}

// loads are the steps that copy the weights in.
func (m *model) loads() (loads []graph.Step) {
	for i := range graph.TensorID(1000) {
		if t := m.b.Tensor(i); t.Persistent && m.weights[t.Name] != nil {
			loads = append(loads, m.b.CopyIn(t.Name, i))
		}
	}
	return loads
}

func (m *model) finish(x, y graph.TensorID, g graph.GraphID, states ...graph.TensorID) {
	m.b.AddProgram(0, "load", m.loads()...)
	m.b.AddProgram(1, "main", m.b.CopyIn("x", x), m.b.Call(g), m.b.CopyOut("y", y))
	m.x, m.y = int(m.b.Type(x).Elements()), int(m.b.Type(y).Elements())
}

func newModel(name string) *model {
	return &model{b: graph.NewBuilder(name), weights: map[string][]float32{}}
}

// perceptron is a multilayer perceptron over wide rows, so that its products
// are worth several workers.
func perceptron(t require.TestingT) *model {
	m := newModel("perceptron")
	x := m.b.AddLocal("x", f32(32, 200))
	w1, b1, w2 := m.weight("w1", 0.1, 200, 300), m.weight("b1", 1, 300), m.weight("w2", 0.1, 300, 10)
	g := m.b.BeginGraph("main")
	y := node(t, m.b, &graph.Gemm{Alpha: 1, Beta: 1}, "fc1", x, w1, b1)
	y = node(t, m.b, &graph.Unary{Fn: graph.Tanh}, "tanh", y)
	y = node(t, m.b, &graph.MatMul{}, "fc2", y, w2)
	y = node(t, m.b, &graph.Softmax{Axis: 1}, "softmax", y)
	m.finish(x, y, g)
	return m
}

func convolutional(t require.TestingT) *model {
	m := newModel("convolutional")
	x := m.b.AddLocal("x", f32(1, 3, 17, 17))
	w1, b1, w2 := m.weight("w1", 0.3, 16, 3, 3, 3), m.weight("b1", 0.5, 16), m.weight("w2", 0.2, 10, 16*8*8)
	g := m.b.BeginGraph("main")
	ones, pads := []int64{1, 1}, []int64{0, 0}
	y := node(t, m.b, &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1}, "conv", x, w1, b1)
	y = node(t, m.b, &graph.Unary{Fn: graph.Relu}, "relu", y)
	y = node(t, m.b, &graph.MaxPool{Kernel: []int64{2, 2}, Strides: []int64{2, 2}, Dilations: ones, PadsBegin: pads, PadsEnd: pads}, "pool", y)
	y = node(t, m.b, &graph.Reshape{Shape: []int64{1, 16 * 8 * 8}}, "flatten", y)
	y = node(t, m.b, &graph.Gemm{Alpha: 1, TransB: true}, "fc", y, w2)
	m.finish(x, y, g)
	return m
}

// recurrent is an LSTM that keeps its state between runs.
func recurrent(t require.TestingT) *model {
	m := newModel("recurrent")
	x := m.b.AddLocal("x", f32(5, 2, 12))
	w, r, bias := m.weight("w", 0.3, 1, 4*8, 12), m.weight("r", 0.3, 1, 4*8, 8), m.weight("b", 0.5, 1, 8*8)
	h, c := m.b.AddPersistent("h", f32(1, 2, 8)), m.b.AddPersistent("c", f32(1, 2, 8))
	g := m.b.BeginGraph("main")
	y := m.b.AddLocal("y", f32(5, 1, 2, 8))
	op := &graph.LSTM{Hidden: 8, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"},
		ActAlpha: []float64{0, 0, 0}, ActBeta: []float64{0, 0, 0}}
	require.NoError(t, m.b.NodeTo(op, "lstm", []graph.TensorID{y, h, c}, x, w, r, bias, graph.None, h, c))
	flat := node(t, m.b, &graph.Reshape{Shape: []int64{80}}, "flat", y)
	m.finish(x, flat, g)
	return m
}

var models = map[string]func(require.TestingT) *model{
	"perceptron": perceptron, "convolutional": convolutional, "recurrent": recurrent,
}

// start connects streams of a model to a runner and sets its weights. The
// weights come from constant memory.
func (m *model) start(t require.TestingT, e runner) (x, y []float32) {
	for name, v := range m.weights {
		require.NoError(t, e.Connect(name, constant{direct{newHost(t, bytesOf(v))}}))
	}
	x, y = wave(m.x, 1), make([]float32, m.y)
	require.NoError(t, e.Connect("x", sink{bytesOf(x)}))
	require.NoError(t, e.Connect("y", sink{bytesOf(y)}))
	run(t, e, 0)
	return x, y
}

func TestModels(t *testing.T) {
	for name, build := range models {
		m := build(t)
		exe, err := m.b.Finish()
		require.NoError(t, err)
		reference := newInterpreter(exe)
		_, want := m.start(t, reference)
		for variant, options := range variants {
			t.Run(name+" "+variant, func(t *testing.T) {
				e := newLoaded(t, build(t).b, options...)
				_, got := m.start(t, e)
				reference := newInterpreter(exe)
				_, want = m.start(t, reference)
				for range 3 {
					run(t, reference, 1)
					run(t, e, 1)
					require.InDeltaSlice(t, want, got, 1e-5)
				}
				require.NotEqual(t, make([]float32, m.y), got)
			})
		}
	}
}

func TestModelsAllocateNothing(t *testing.T) {
	for name, build := range models {
		for _, threads := range []string{"1", "2"} {
			t.Run(name+" "+threads+" threads", func(t *testing.T) {
				m := build(t)
				e := newLoaded(t, m.b, opt("threads", threads)...)
				m.start(t, e)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				require.Zero(t, testing.AllocsPerRun(20, func() {
					if err := e.Run(ctx, 1); err != nil {
						t.Fatal(err)
					}
				}))
			})
		}
	}
}

func TestEval(t *testing.T) {
	x := append([]byte{0}, bytesOf([]float32{-1, 2, 3})...)[1:] // not aligned
	types, data, err := Eval(&graph.Clip{}, []graph.TensorType{f32(3), {}, f32()}, [][]byte{x, nil, bytesOf([]float32{2.5})})
	require.NoError(t, err)
	require.Equal(t, []graph.TensorType{f32(3)}, types)
	require.Equal(t, []float32{-1, 2, 2.5}, floats(data[0]))

	types, data, err = Eval(&graph.Concat{}, []graph.TensorType{f32(0), f32(0)}, [][]byte{nil, nil})
	require.NoError(t, err)
	require.Equal(t, int64(0), types[0].Elements())
	require.NotNil(t, data[0])

	for want, c := range map[string]struct {
		op    graph.Op
		types []graph.TensorType
		data  [][]byte
	}{
		"operand 0 of type f32[3] has 4 bytes, want 12": {&graph.Clip{}, []graph.TensorType{f32(3)}, [][]byte{make([]byte, 4)}},
		"1 operands with data for 0":                    {&graph.Clip{}, []graph.TensorType{f32(3)}, nil},
		"evaluate Gather":                               {&graph.Gather{}, []graph.TensorType{f32(1), {DType: graph.I32}}, [][]byte{make([]byte, 4), bytesOf([]int32{4})}},
		"evaluate MatMul":                               {&graph.MatMul{}, []graph.TensorType{f32(1), f32(2)}, [][]byte{make([]byte, 4), make([]byte, 8)}},
		"than the":                                      {&graph.Expand{Shape: []int64{1 << 37}}, []graph.TensorType{f32(1)}, [][]byte{make([]byte, 4)}},
	} {
		_, _, err := Eval(c.op, c.types, c.data)
		require.ErrorContains(t, err, want)
	}
}

// BenchmarkOverhead measures what a request costs besides computing: a copy of
// 784 floats in, which nothing reads, and 10 floats out.
func BenchmarkOverhead(b *testing.B) {
	g := graph.NewBuilder("noop")
	x := g.AddLocal("x", f32(784))
	k := g.AddConst("k", f32(10), make([]byte, 40))
	g.AddProgram(0, "main", g.CopyIn("x", x), g.CopyOut("y", k))
	for name, ctx := range map[string]context.Context{"background": context.Background(), "cancellable": cancellable(b)} {
		b.Run(name, func(b *testing.B) {
			e, err := New(ipu.EngineConfig{Executable: executable(b, g)})
			require.NoError(b, err)
			defer e.Close()
			load(b, e)
			connect(b, e, map[string]ipu.Stream{"x": sink{make([]byte, 4*784)}, "y": sink{make([]byte, 40)}})
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Run(ctx, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func cancellable(b *testing.B) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	return ctx
}

func BenchmarkModels(b *testing.B) {
	for name, build := range models {
		for _, threads := range []string{"1", "2"} {
			b.Run(name+"/threads="+threads, func(b *testing.B) {
				m := build(b)
				e := newLoaded(b, m.b, opt("threads", threads)...)
				m.start(b, e)
				b.ReportAllocs()
				for b.Loop() {
					if err := e.Run(context.Background(), 1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
