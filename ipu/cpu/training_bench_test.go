package cpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// network builds a training step: layers append nodes to the forward graph.
type network struct {
	t       require.TestingT
	b       *graph.Builder
	weights []optim.Weight
	count   int
}

func newNetwork(t require.TestingT) *network {
	n := &network{t: t, b: graph.NewBuilder("network")}
	n.b.BeginGraph("forward")
	return n
}

func (n *network) node(op graph.Op, in ...graph.TensorID) graph.TensorID {
	n.count++
	return node(n.t, n.b, op, fmt.Sprintf("%s %d", strings.ToLower(op.Kind()), n.count), in...)
}

func (n *network) weight(shape ...int64) graph.TensorID {
	name := fmt.Sprintf("w%d", len(n.weights))
	id := n.b.AddPersistent(name, f32(shape...))
	n.weights = append(n.weights, optim.Weight{Name: name, Tensor: id})
	return id
}

func (n *network) shape(x graph.TensorID) []int64 { return n.b.Type(x).Shape }

func (n *network) relu(x graph.TensorID) graph.TensorID {
	return n.node(&graph.Unary{Fn: graph.Relu}, x)
}

func (n *network) reshape(x graph.TensorID, shape ...int64) graph.TensorID {
	return n.node(&graph.Reshape{Shape: shape}, x)
}

func (n *network) add(x, y graph.TensorID) graph.TensorID {
	return n.node(&graph.Binary{Fn: graph.Add}, x, y)
}

func (n *network) conv(x graph.TensorID, channels int64) graph.TensorID {
	return n.node(&graph.Conv{Strides: []int64{1, 1}, Dilations: []int64{1, 1}, PadsBegin: []int64{1, 1}, PadsEnd: []int64{1, 1}, Group: 1},
		x, n.weight(channels, n.shape(x)[1], 3, 3), n.weight(channels))
}

func (n *network) pool(x graph.TensorID) graph.TensorID {
	return n.node(&graph.MaxPool{Kernel: []int64{2, 2}, Strides: []int64{2, 2}, Dilations: []int64{1, 1}, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}}, x)
}

func (n *network) dense(x graph.TensorID, to int64) graph.TensorID {
	return n.node(&graph.Gemm{TransB: true, Alpha: 1, Beta: 1}, x, n.weight(to, n.shape(x)[1]), n.weight(to))
}

// linear is a product of the last axis with a weight, and a bias.
func (n *network) linear(x graph.TensorID, to int64) graph.TensorID {
	s := n.shape(x)
	return n.add(n.node(&graph.MatMul{}, x, n.weight(s[len(s)-1], to)), n.weight(to))
}

func (n *network) norm(x graph.TensorID) graph.TensorID {
	s := n.shape(x)
	last := int64(len(s) - 1)
	return n.node(&graph.LayerNorm{Axis: last, Epsilon: 1e-5}, x, n.weight(s[last]), n.weight(s[last]))
}

// encoder is a layer of a transformer with heads heads on x of shape [batch, tokens, width].
func (n *network) encoder(x graph.TensorID, heads int64) graph.TensorID {
	s := n.shape(x)
	batch, tokens, width := s[0], s[1], s[2]
	split := func(v graph.TensorID, perm ...int64) graph.TensorID {
		return n.node(&graph.Transpose{Perm: perm}, n.reshape(v, batch, tokens, heads, width/heads))
	}
	h := n.norm(x)
	q, k, v := split(n.linear(h, width), 0, 2, 1, 3), split(n.linear(h, width), 0, 2, 3, 1), split(n.linear(h, width), 0, 2, 1, 3)
	factor := n.b.AddConst("factor", f32(), bytesOf([]float32{float32(1 / math.Sqrt(float64(width/heads)))}))
	scores := n.node(&graph.Binary{Fn: graph.Mul}, n.node(&graph.MatMul{}, q, k), factor)
	a := n.node(&graph.MatMul{}, n.node(&graph.Softmax{Axis: 3}, scores), v)
	a = n.reshape(n.node(&graph.Transpose{Perm: []int64{0, 2, 1, 3}}, a), batch, tokens, width)
	x = n.add(x, n.linear(a, width))
	h = n.node(&graph.Unary{Fn: graph.Gelu}, n.linear(n.norm(x), 4*width))
	return n.add(x, n.linear(h, width))
}

// last is the last step of a recurrence of hidden units over 28 steps.
func (n *network) last(o graph.Op, gates, hidden, batch int64) (x, scores graph.TensorID) {
	x = n.b.AddLocal("x", f32(28, batch, 28))
	y := n.node(o, x, n.weight(1, gates*hidden, 28), n.weight(1, gates*hidden, hidden), n.weight(1, 2*gates*hidden))
	y = n.reshape(y, 28, batch, hidden)
	y = n.node(&graph.Slice{Start: []int64{27, 0, 0}, Size: []int64{1, batch, hidden}, Step: []int64{1, 1, 1}}, y)
	return x, n.dense(n.reshape(y, batch, hidden), 10)
}

// networks are the networks whose steps are measured, by name: each returns its input and its scores.
var networks = map[string]func(n *network, batch int64) (x, scores graph.TensorID){
	"cnn": func(n *network, batch int64) (x, scores graph.TensorID) {
		x = n.b.AddLocal("x", f32(batch, 1, 28, 28))
		h := n.pool(n.relu(n.conv(x, 32)))
		h = n.pool(n.relu(n.conv(h, 64)))
		return x, n.dense(n.relu(n.dense(n.reshape(h, batch, 3136), 128)), 10)
	},
	"mlp": func(n *network, batch int64) (x, scores graph.TensorID) {
		x = n.b.AddLocal("x", f32(batch, 784))
		return x, n.dense(n.relu(n.dense(n.relu(n.dense(x, 512)), 256)), 10)
	},
	"lstm": func(n *network, batch int64) (x, scores graph.TensorID) {
		o := graph.RecurrentGradient{Cell: "lstm", Hidden: 128, Direction: "forward"}
		return n.last(o.Forward(), 4, 128, batch)
	},
	"gru": func(n *network, batch int64) (x, scores graph.TensorID) {
		o := graph.RecurrentGradient{Cell: "linear gru", Hidden: 128, Direction: "forward"}
		return n.last(o.Forward(), 3, 128, batch)
	},
	"transformer": func(n *network, batch int64) (x, scores graph.TensorID) {
		x = n.b.AddLocal("x", f32(batch, 28, 28))
		h := n.linear(x, 128)
		for range 2 {
			h = n.encoder(h, 4)
		}
		h = n.node(&graph.Reduce{Fn: graph.ReduceMean, Axes: []int64{1}}, n.norm(h))
		return x, n.dense(h, 10)
	},
}

// training is a network with its programs: 0 loads weights, 1 is the forward graph with the loss, 2 that and the backward
// graph, 5 the whole step, and 7 copies the weights out.
func training(t require.TestingT, build func(n *network, batch int64) (x, scores graph.TensorID), batch int64, r autodiff.Recompute) *graph.Executable {
	n := newNetwork(t)
	x, scores := build(n, batch)
	labels := n.b.AddLocal("labels", graph.TensorType{DType: graph.I32, Shape: []int64{batch}})
	entropy, err := optim.FindLoss("softmax-cross-entropy")
	require.NoError(t, err)
	loss, err := entropy.Add(n.b, "loss", scores, labels, optim.NewLossOptions())
	require.NoError(t, err)
	forward := n.b.CurrentGraph()
	exe, err := n.b.Finish()
	require.NoError(t, err)
	o := autodiff.Options{Provided: []graph.TensorID{loss}, Recompute: r}
	for _, w := range n.weights {
		o.Required = append(o.Required, w.Tensor)
	}
	info, err := autodiff.Backward(exe, forward, o)
	require.NoError(t, err)
	b := graph.Continue(exe)
	update := b.BeginGraph("update")
	for i := range n.weights {
		n.weights[i].Gradient = info.Outputs[i].Tensor
	}
	applied, err := optim.Apply(b, optim.NewAdam(), n.weights, optim.NewStep())
	require.NoError(t, err)
	start := b.BeginGraph("start")
	one := b.AddConst("one", f32(), bytesOf([]float32{1}))
	require.NoError(t, b.NodeTo(&graph.Reshape{Shape: []int64{}}, "start", []graph.TensorID{info.Inputs[0].Tensor}, one))
	var load, save []graph.Step
	for i, w := range n.weights {
		load = append(load, b.CopyIn(w.Name+" in", w.Tensor))
		save = append(save, b.CopyOut(w.Name, w.Tensor), b.CopyOut("d"+w.Name, info.Outputs[i].Tensor))
	}
	for _, s := range applied.States {
		load = append(load, b.CopyIn(s.Name+" in", s.Tensor))
	}
	begin := []graph.Step{b.CopyIn("x", x), b.CopyIn("labels", labels), b.Call(forward)}
	done := b.CopyOut("loss", loss)
	back := slices.Concat(begin, []graph.Step{b.Call(start), b.Call(info.Graph)})
	b.AddProgram(0, "WeightsFromHost", load...)
	b.AddProgram(1, "forward", append(slices.Clone(begin), done)...)
	b.AddProgram(2, "gradients", append(slices.Clone(back), slices.DeleteFunc(save, func(s graph.Step) bool { return b.Tensor(s.Tensor).Persistent })...)...)
	b.AddProgram(5, "step", append(slices.Clone(back), b.Call(update), done)...)
	save = nil
	for _, w := range n.weights {
		save = append(save, b.CopyOut(w.Name, w.Tensor))
	}
	b.AddProgram(7, "WeightsToHost", save...)
	exe, err = b.Finish()
	require.NoError(t, err)
	return exe
}

// learning is an engine that trains, with the memory of its streams.
type learning struct {
	*Engine
	streams map[string][]byte
}

func newLearning(t testing.TB, exe *graph.Executable, options ...ipu.Option) *learning {
	var file bytes.Buffer
	require.NoError(t, encoding.Encode(&file, exe))
	e, err := New(ipu.EngineConfig{Name: t.Name(), Executable: file.Bytes(), Options: options})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	l := &learning{e, map[string][]byte{}}
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range exe.Streams {
		v := make([]float32, s.Type.Elements())
		m := bytesOf(v)
		l.streams[s.Handle] = m
		switch {
		case s.Handle == "labels":
			for i := range v {
				binary.LittleEndian.PutUint32(m[4*i:], uint32(r.IntN(10)))
			}
		case strings.HasPrefix(s.Handle, "w"):
			scale := 1.0
			if shape := s.Type.Shape; len(shape) > 1 {
				scale = math.Sqrt(2 / float64(s.Type.Elements()/max(shape[0], 1)))
			}
			for i := range v {
				v[i] = float32(scale * r.NormFloat64())
			}
		case s.Handle == "x":
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
		}
		require.NoError(t, e.Connect(s.Handle, direct{newHost(t, m)}))
	}
	load(t, e)
	run(t, e, 0)
	return l
}

func optimised(t require.TestingT, exe *graph.Executable) *graph.Executable {
	load := 0
	require.NoError(t, pass.Optimize(exe, pass.OptimizeOptions{Load: &load}))
	return exe
}

// BenchmarkTraining runs whole steps of small networks with Adam, batch 64. With -v it prints where the time goes, node by
// node, by a profile of one thread.
func BenchmarkTraining(b *testing.B) {
	for _, name := range []string{"cnn", "mlp", "lstm", "gru", "transformer"} {
		for _, threads := range []string{"1", "2"} {
			b.Run(name+"/threads="+threads, func(b *testing.B) {
				l := newLearning(b, optimised(b, training(b, networks[name], 64, autodiff.RecomputeNone)), opt("threads", threads)...)
				ctx := context.Background()
				require.NoError(b, l.Run(ctx, 5))
				for b.Loop() {
					require.NoError(b, l.Run(ctx, 5))
				}
				if testing.Verbose() {
					l.EnableProfile(true)
					const runs = 20
					start := time.Now()
					for range runs {
						require.NoError(b, l.Run(ctx, 5))
					}
					printProfile(l.Profile(), time.Since(start), runs)
				}
			})
		}
	}
}

// printProfile prints the steps of a profile, the longest first, and what is left besides them.
func printProfile(list []NodeProfile, total time.Duration, runs int) {
	var sum time.Duration
	for _, p := range list {
		sum += p.Total
	}
	slices.SortStableFunc(list, func(a, b NodeProfile) int { return int(b.Total - a.Total) })
	fmt.Printf("a step: %v, its %d kernels: %v\n", total/time.Duration(runs), len(list), sum/time.Duration(runs))
	for _, p := range list {
		each := p.Total / time.Duration(runs)
		if each > total/time.Duration(runs)/500 {
			fmt.Printf("%10v %5.1f %% %6.1f GB/s %-20s %-12s %s\n", each, 100*float64(p.Total)/float64(total), float64(p.Bytes)/float64(each), p.Op, p.Function, p.Name)
		}
	}
}
