package optim_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
)

// network builds the training step of a network layer by layer.
type network struct {
	t       testing.TB
	b       *graph.Builder
	weights []optim.Weight
}

func (n *network) node(op graph.Op, inputs ...graph.TensorID) graph.TensorID {
	out, err := n.b.Node(op, fmt.Sprintf("%s of %v", op.Kind(), n.b.Type(inputs[0])), inputs...)
	require.NoError(n.t, err)
	return out[0]
}

func (n *network) weight(shape ...int64) graph.TensorID {
	name := fmt.Sprintf("w%d", len(n.weights))
	w := n.b.AddPersistent(name, graph.TensorType{DType: graph.F32, Shape: shape})
	n.weights = append(n.weights, optim.Weight{Name: name, Tensor: w})
	return w
}

// conv is a convolution of 3×3 with its bias, relu and maximum of 2×2.
func (n *network) conv(x graph.TensorID, maps int64) graph.TensorID {
	two := func(v int64) []int64 { return []int64{v, v} }
	w, bias := n.weight(maps, n.b.Type(x).Shape[1], 3, 3), n.weight(maps)
	y := n.node(&graph.Conv{Strides: two(1), Dilations: two(1), PadsBegin: two(1), PadsEnd: two(1), Group: 1}, x, w, bias)
	y = n.node(&graph.Unary{Fn: graph.Relu}, y)
	return n.node(&graph.MaxPool{Kernel: two(2), Strides: two(2), Dilations: two(1), PadsBegin: two(0), PadsEnd: two(0)}, y)
}

func (n *network) dense(x graph.TensorID, columns int64, relu bool) graph.TensorID {
	w, bias := n.weight(n.b.Type(x).Shape[1], columns), n.weight(columns)
	y := n.node(&graph.Gemm{Alpha: 1, Beta: 1}, x, w, bias)
	if relu {
		y = n.node(&graph.Unary{Fn: graph.Relu}, y)
	}
	return y
}

// stepCases are networks by name: the shape of the input and the layers that give the scores.
var stepCases = []struct {
	name   string
	in     []int64
	layers func(n *network, x graph.TensorID) graph.TensorID
}{
	{"digits", []int64{64, 1, 8, 8}, func(n *network, x graph.TensorID) graph.TensorID {
		x = n.conv(n.conv(x, 16), 32)
		return n.dense(n.node(&graph.Reshape{Shape: []int64{64, 128}}, x), 10, false)
	}},
	{"images", []int64{64, 1, 28, 28}, func(n *network, x graph.TensorID) graph.TensorID {
		x = n.conv(n.conv(x, 32), 64)
		return n.dense(n.dense(n.node(&graph.Reshape{Shape: []int64{64, 3136}}, x), 128, true), 10, false)
	}},
	{"mlp", []int64{64, 784}, func(n *network, x graph.TensorID) graph.TensorID {
		return n.dense(n.dense(n.dense(x, 512, true), 256, true), 10, false)
	}},
}

// BenchmarkStep times a step of training by Adam: forward, backward and update. It reports the sum over all nodes of the
// least time that each took, which other work on the machine changes little; with -v it lists the nodes.
func BenchmarkStep(b *testing.B) {
	for _, c := range stepCases {
		for _, threads := range []string{"1", "2"} {
			b.Run(c.name+"/threads "+threads, func(b *testing.B) {
				x := newStep(b, c.in, c.layers, ipu.Option{Name: "threads", Value: threads})
				x.run(0)
				x.run(5)
				engine := x.engine.(*cpu.Engine)
				least := map[int]cpu.NodeProfile{}
				for b.Loop() {
					engine.EnableProfile(true)
					x.run(5)
					for _, n := range engine.Profile() {
						if old, ok := least[n.Step]; n.Program == 5 && (!ok || n.Total < old.Total) {
							least[n.Step] = n
						}
					}
				}
				report(b, slices.Collect(maps.Values(least)))
			})
		}
	}
}

func report(b *testing.B, nodes []cpu.NodeProfile) {
	slices.SortFunc(nodes, func(x, y cpu.NodeProfile) int { return int(y.Total - x.Total) })
	sum := time.Duration(0)
	for _, n := range nodes {
		sum += n.Total
	}
	b.ReportMetric(float64(sum)/1e6, "nodes-ms")
	if !testing.Verbose() {
		return
	}
	for _, n := range nodes {
		b.Logf("%8.1f µs %4.1f %% %6.1f GFLOP/s  %s %s %q", float64(n.Total)/1e3, 100*float64(n.Total)/float64(sum), n.FLOPs/float64(n.Total), n.Op, n.Function, n.Name)
	}
}

func newStep(t testing.TB, in []int64, layers func(*network, graph.TensorID) graph.TensorID, options ...ipu.Option) *trainer {
	n := &network{t: t, b: graph.NewBuilder("step")}
	x := n.b.AddLocal("x", graph.TensorType{DType: graph.F32, Shape: in})
	labels := n.b.AddLocal("labels", graph.TensorType{DType: graph.I32, Shape: in[:1]})
	forward := n.b.BeginGraph("forward")
	l, err := optim.FindLoss("softmax-cross-entropy")
	require.NoError(t, err)
	loss, err := l.Add(n.b, "loss", layers(n, x), labels, optim.NewLossOptions())
	require.NoError(t, err)
	exe, err := n.b.Finish()
	require.NoError(t, err)
	var required []graph.TensorID
	for _, w := range n.weights {
		required = append(required, w.Tensor)
	}
	info, err := autodiff.Backward(exe, forward, autodiff.Options{Provided: []graph.TensorID{loss}, Required: required})
	require.NoError(t, err)
	b := graph.Continue(exe)
	update := b.BeginGraph("update")
	for i := range n.weights {
		n.weights[i].Gradient = info.Outputs[i].Tensor
	}
	o := optim.NewAdam()
	o.LearningRate = optim.Const(0.001)
	a, err := optim.Apply(b, o, n.weights, optim.NewStep())
	require.NoError(t, err)
	start := b.BeginGraph("start")
	require.NoError(t, b.NodeTo(&graph.Expand{}, "start", []graph.TensorID{info.Inputs[0].Tensor}, a.LossScale))
	var load, save []graph.Step
	for _, w := range n.weights {
		load, save = append(load, b.CopyIn(w.Name+" in", w.Tensor)), append(save, b.CopyOut(w.Name, w.Tensor))
	}
	b.AddProgram(0, "load", load...)
	b.AddProgram(5, "main", b.CopyIn("x", x), b.CopyIn("labels", labels), b.Call(forward), b.Call(start), b.Call(info.Graph), b.Call(update), b.CopyOut("loss", loss))
	b.AddProgram(7, "save", save...)
	m := newTrainer(t, b, true, options...)
	for i, v := range floats(m.streams["x"]) {
		_ = v
		floats(m.streams["x"])[i] = float32(math.Sin(float64(i * i)))
	}
	for i := range in[0] {
		m.streams["labels"][4*i] = byte(i % 10)
	}
	for _, w := range n.weights {
		m := floats(m.streams[w.Name+" in"])
		for i := range m {
			m[i] = float32(math.Sin(float64(i*i+1)) / 20)
		}
	}
	return m
}

// TestStepOfNetworks: steps with one thread and with two give equal bits, allocate nothing, and make the loss smaller.
func TestStepOfNetworks(t *testing.T) {
	for _, c := range stepCases {
		if c.name == "images" {
			continue // what the others have, more of it
		}
		t.Run(c.name, func(t *testing.T) {
			var want map[string][]byte
			for _, threads := range []string{"1", "2"} {
				x := newStep(t, c.in, c.layers, ipu.Option{Name: "threads", Value: threads})
				x.run(0)
				x.run(5)
				first := floats(x.streams["loss"])[0]
				require.Zero(t, testing.AllocsPerRun(20, func() { x.run(5) }))
				require.Less(t, floats(x.streams["loss"])[0], first)
				x.run(7)
				if want == nil {
					want = x.streams
				}
				for name, m := range x.streams {
					require.True(t, bytes.Equal(want[name], m), name)
				}
			}
		})
	}
}
