// Package net is a small transformer that reads handwritten digits, written with popxl: the eight rows of a scan are its tokens, and one graph is the block that it calls twice.
package net

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// Sizes of the network.
const (
	Rows     = 8 // of a scan, and tokens
	Columns  = 8 // of a scan
	Features = 32
	Heads    = 2
	Hidden   = 64
	Blocks   = 2
	Classes  = 10
)

type tensor = popxl.Tensor[float32]

// Net is the network in an Ir.
type Net struct {
	Ir            *popxl.Ir
	Images        popxl.Input[float32]  // [batch, Rows, Columns], from 0 to 1
	Labels        popxl.Input[int32]    // [batch], of a network that learns
	Loss          popxl.Output[float32] // the mean cross-entropy, likewise
	Probabilities popxl.Output[float32] // [batch, Classes], of one that reads
	Variables     []popxl.Variable[float32]

	batch  int64
	random *rand.Rand
	values map[string][]float32
}

// Learner returns a network that learns, with initial weights of a seed: a run is so many steps, each of so many scans in each of the replicas.
func Learner(batch, steps int64, replicas int, seed uint64, o optim.Optimizer) *Net {
	n := start("learner", batch, seed, nil)
	n.Ir.SetReplicas(replicas)
	n.Ir.SetIterations(steps)
	n.Labels = popxl.NewInput[int32](n.Ir, "labels", batch)
	loss := ops.SoftmaxCrossEntropy(n.scores(), n.Labels.Load())
	n.Loss = popxl.NewOutput("loss", loss)
	trained := make([]popxl.Trainable, len(n.Variables))
	for i, v := range n.Variables {
		trained[i] = v
	}
	popxl.Minimize(loss, popxl.Training{Optimizer: o}, trained...)
	return n
}

// Reader returns a network that reads so many scans in a run, with weights by the names of the variables; those that are not there are initial ones.
func Reader(batch int64, weights map[string][]float32) *Net {
	n := start("reader", batch, 1, weights)
	n.Probabilities = popxl.NewOutput("probabilities", ops.Softmax(n.scores(), -1))
	return n
}

func start(name string, batch int64, seed uint64, values map[string][]float32) *Net {
	ir := popxl.New(name)
	return &Net{Ir: ir, Images: popxl.NewInput[float32](ir, "images", batch, Rows, Columns), batch: batch, random: rand.New(rand.NewPCG(seed, 0)), values: values}
}

// variable adds weights, at first drawn from -limit to limit, about a number.
func (n *Net) variable(name string, about, limit float64, shape ...int64) tensor {
	size := int64(1)
	for _, d := range shape {
		size *= d
	}
	value := make([]float32, size)
	for i := range value {
		value[i] = float32(about) + float32(limit*(2*n.random.Float64()-1))
	}
	if given, ok := n.values[name]; ok {
		value = given
	}
	v := popxl.NewVariable(n.Ir, name, value, shape...)
	n.Variables = append(n.Variables, v)
	return v.Tensor()
}

// matrix adds weights of a product that leaves the variance of its operand as it is.
func (n *Net) matrix(name string, from, to int64) tensor {
	return n.variable(name, 0, math.Sqrt(3/float64(from)), from, to)
}

// scores adds the network.
func (n *Net) scores() tensor {
	b := n.block()
	x := ops.Add(ops.MatMul(n.Images.Load(), n.matrix("embedding", Columns, Features)), n.variable("position", 0, 0.1, Rows, Features))
	for i := range Blocks {
		n.Ir.Scope(fmt.Sprintf("block %d", i+1), func() { x = b.call(n, i+1, x) })
	}
	x = ops.LayerNorm(x, n.variable("norm_weight", 1, 0, Features), n.variable("norm_bias", 0, 0, Features), epsilon)
	x = ops.Reshape(x, n.batch, Rows*Features)
	return ops.Add(ops.MatMul(x, n.matrix("head", Rows*Features, Classes)), n.variable("head_bias", 0, 0, Classes))
}

const epsilon = 1e-5

// block is the graph of attention and perceptron, with its parameters.
type block struct {
	graph  *popxl.Graph
	x      popxl.Param[float32]
	params []param
	y      popxl.Result[float32]
}

// param is a parameter for weights, and what these are at first.
type param struct {
	popxl.Param[float32]
	name  string
	shape []int64
	about float64
}

func (n *Net) block() *block {
	b := &block{}
	b.graph = popxl.NewGraph(n.Ir, "block", func(g *popxl.Graph) {
		weights := func(name string, about float64, shape ...int64) tensor {
			p := param{popxl.NewParam[float32](g, name, shape...), name, shape, about}
			b.params = append(b.params, p)
			return p.Tensor()
		}
		norm := func(x tensor, name string) tensor {
			return ops.LayerNorm(x, weights(name+"_weight", 1, Features), weights(name+"_bias", 0, Features), epsilon)
		}
		// [batch, Rows, Features] to [batch, Heads, Rows, Features/Heads]
		heads := func(x tensor) tensor {
			return ops.Transpose(ops.Reshape(x, n.batch, Rows, Heads, Features/Heads), 0, 2, 1, 3)
		}
		b.x = popxl.NewParam[float32](g, "x", n.batch, Rows, Features)
		x := b.x.Tensor()
		h := norm(x, "first_norm")
		query := heads(ops.MatMul(h, weights("query", 0, Features, Features)))
		key := heads(ops.MatMul(h, weights("key", 0, Features, Features)))
		value := heads(ops.MatMul(h, weights("value", 0, Features, Features)))
		scale := popxl.Constant(n.Ir, []float32{float32(1 / math.Sqrt(Features/Heads))})
		attention := ops.Softmax(ops.Mul(ops.MatMul(query, ops.Transpose(key, 0, 1, 3, 2)), scale), -1)
		mixed := ops.Reshape(ops.Transpose(ops.MatMul(attention, value), 0, 2, 1, 3), n.batch, Rows, Features)
		x = ops.Add(x, ops.MatMul(mixed, weights("mix", 0, Features, Features)))

		h = norm(x, "second_norm")
		h = ops.Gelu(ops.Add(ops.MatMul(h, weights("widen", 0, Features, Hidden)), weights("widen_bias", 0, Hidden)))
		b.y = popxl.NewResult(g, ops.Add(x, ops.Add(ops.MatMul(h, weights("narrow", 0, Hidden, Features)), weights("narrow_bias", 0, Features))))
	})
	return b
}

// call adds a call of the block with weights of its own.
func (b *block) call(n *Net, number int, x tensor) tensor {
	args := []popxl.Argument{b.x.Is(x)}
	for _, p := range b.params {
		name := fmt.Sprintf("block%d_%s", number, p.name)
		limit := 0.0
		if len(p.shape) == 2 {
			limit = math.Sqrt(3 / float64(p.shape[0]))
		}
		args = append(args, p.Is(n.variable(name, p.about, limit, p.shape...)))
	}
	return b.y.Of(b.graph.Call(args...))
}
