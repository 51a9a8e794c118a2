package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/bench/synth"
	"github.com/popefgen/popefgen/internal/bandwidth"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// group is the kind of operators that a goal speaks of.
type group string

const (
	product     group = "product"
	dense       group = "convolution"
	small       group = "convolution, 7×7 maps"
	depthwise   group = "depthwise"
	strided     group = "depthwise, stride 2"
	vector      group = "matrix × vector"
	recurrent   group = "LSTM, GRU"
	transposing group = "transposed convolution"
	pointwise   group = "pointwise, softmax"
	layerNorm   group = "layer norm"
	attending   group = "attention"
)

// operator is a model of one operator, or of a chain of equal ones.
type operator struct {
	name    string
	group   group
	flops   float64 // additions and multiplications of one run
	weights int     // bytes of weights that one run reads over and over; 0 if that is not what bounds it
	reads   int     // how often it reads them
	build   func(m *synth.Model)
}

func attr(name string, v any) synth.Attr { return synth.Attr{Name: name, Value: v} }

// matmul is x[m,k]·W[k,n].
func matmul(m, n, k int64) operator {
	op := operator{
		name: fmt.Sprintf("%d×%d · %d×%d", m, k, k, n), group: product, flops: float64(2 * m * n * k),
		build: func(g *synth.Model) {
			g.Output(g.Node("MatMul", []string{g.Input("x", m, k), g.Weights(1/math.Sqrt(float64(k)), k, n)}), m, n)
		},
	}
	if m == 1 {
		op.group, op.weights, op.reads = vector, int(4*k*n), 1
	}
	return op
}

// chained is how many layers a chain of convolutions has: enough that what
// happens once at either end does not decide.
const chained = 6

// conv is a chain of convolutions with ReLU, from channels to hidden and back.
func conv(g group, kk, channels, hidden, size, groups int64) operator {
	name := fmt.Sprintf("%d× %d×%d, %d channels, %d×%d", chained, kk, kk, channels, size, size)
	if hidden != channels {
		name = fmt.Sprintf("%d× 1×1, %d ↔ %d channels, %d×%d", chained, channels, hidden, size, size)
	}
	if groups > 1 {
		name = fmt.Sprintf("%d× depthwise %d×%d, %d channels, %d×%d", chained, kk, kk, channels, size, size)
	}
	return operator{
		name: name, group: g, flops: 2 * chained * float64(hidden*size*size*channels/groups*kk*kk),
		build: func(m *synth.Model) {
			x, in, out := m.Input("x", 1, channels, size, size), channels, hidden
			for range chained {
				x = convolve(m, x, in, out, kk, 1, groups)
				in, out = out, in
			}
			m.Output(x, 1, in, size, size)
		},
	}
}

// single is one convolution with ReLU.
func single(g group, kk, in, out, size, stride, groups int64) operator {
	name := fmt.Sprintf("%d×%d stride %d, %d → %d channels, %d×%d", kk, kk, stride, in, out, size, size)
	if groups > 1 {
		name = fmt.Sprintf("depthwise %d×%d stride %d, %d channels, %d×%d", kk, kk, stride, in, size, size)
	}
	to := (size-1)/stride + 1
	return operator{
		name: name, group: g, flops: 2 * float64(out*to*to*in/groups*kk*kk),
		build: func(m *synth.Model) {
			m.Output(convolve(m, m.Input("x", 1, in, size, size), in, out, kk, stride, groups), 1, out, to, to)
		},
	}
}

func convolve(m *synth.Model, x string, in, out, kk, stride, groups int64) string {
	p := kk / 2
	w := m.Weights(math.Sqrt(2/float64(in/groups*kk*kk)), out, in/groups, kk, kk)
	return m.Node("Relu", []string{m.Node("Conv", []string{x, w, m.Weights(0.1, out)},
		attr("pads", []int64{p, p, p, p}), attr("strides", []int64{stride, stride}), attr("group", groups), attr("kernel_shape", []int64{kk, kk}))})
}

// rnn is an LSTM or a GRU over a sequence; gates is 4 or 3.
func rnn(name string, gates, hidden, inputs, steps int64) operator {
	return operator{
		name: fmt.Sprintf("%s %d, %d inputs, %d steps", name, hidden, inputs, steps), group: recurrent,
		flops: float64(2 * steps * gates * hidden * (hidden + inputs)), weights: int(4 * gates * hidden * hidden), reads: int(steps),
		build: func(m *synth.Model) {
			s := 1 / math.Sqrt(float64(hidden))
			attrs := []synth.Attr{attr("hidden_size", hidden)}
			if name == "GRU" {
				attrs = append(attrs, attr("linear_before_reset", int64(1)))
			}
			y := m.Nodes(name, []string{m.Input("x", steps, 1, inputs), m.Weights(s, 1, gates*hidden, inputs),
				m.Weights(s, 1, gates*hidden, hidden), m.Weights(s, 1, 2*gates*hidden)}, 1, attrs...)[0]
			m.Output(y, steps, 1, 1, hidden)
		},
	}
}

// unary is an operator of one operand that works along the last dimension.
func unary(name string, g group, dims []int64, attrs ...synth.Attr) operator {
	return operator{name: fmt.Sprintf("%s, %d×%d", name, dims[0], dims[1]), group: g, build: func(m *synth.Model) {
		m.Output(m.Node(name, []string{m.Input("x", dims...)}, attrs...), dims...)
	}}
}

// transposed is a transposed convolution.
func transposed(kk, in, out, size, stride, pad int64) operator {
	to := (size-1)*stride + kk - 2*pad
	return operator{
		name: fmt.Sprintf("transposed %d×%d stride %d, %d → %d channels, %d×%d", kk, kk, stride, in, out, size, size), group: transposing,
		flops: 2 * float64(out*size*size*in*kk*kk),
		build: func(m *synth.Model) {
			w := m.Weights(1/math.Sqrt(float64(in*kk*kk)), in, out, kk, kk)
			m.Output(m.Node("ConvTranspose", []string{m.Input("x", 1, in, size, size), w, m.Weights(0.1, out)},
				attr("pads", []int64{pad, pad, pad, pad}), attr("strides", []int64{stride, stride}), attr("kernel_shape", []int64{kk, kk})), 1, out, to, to)
		},
	}
}

// attention is attention of primitives as exporters write it, from the product
// that gives Q, K and V to heads that are put together again.
func attention(rows, heads, size int64, causal bool) operator {
	name := fmt.Sprintf("attention, %d×%d, %d heads", rows, heads*size, heads)
	flops := 4 * float64(heads*rows*rows*size)
	if causal {
		name, flops = name+", causal", flops/2
	}
	return operator{name: name, group: attending, flops: flops, build: func(m *synth.Model) {
		x := m.Node("Reshape", []string{m.Input("x", 1, rows, 3*heads*size), m.Ints(1, rows, 3, heads, size)})
		x = m.Node("Transpose", []string{x}, attr("perm", []int64{2, 0, 3, 1, 4}))
		var qkv [3]string
		for i := range qkv {
			qkv[i] = m.Node("Gather", []string{x, m.Ints(int64(i))}, attr("axis", int64(0)))
			qkv[i] = m.Node("Reshape", []string{qkv[i], m.Ints(1, heads, rows, size)})
		}
		s := m.Node("MatMul", []string{qkv[0], m.Node("Transpose", []string{qkv[1]}, attr("perm", []int64{0, 1, 3, 2}))})
		s = m.Node("Mul", []string{s, m.Number(float32(1 / math.Sqrt(float64(size))))})
		if causal {
			places := make([]int64, rows)
			for i := range places {
				places[i] = int64(i)
			}
			after := m.Node("Greater", []string{m.Ints(places...), m.Node("Reshape", []string{m.Ints(places...), m.Ints(rows, 1)})})
			s = m.Node("Where", []string{after, m.Number(float32(math.Inf(-1))), s})
		}
		y := m.Node("MatMul", []string{m.Node("Softmax", []string{s}, attr("axis", int64(-1))), qkv[2]})
		y = m.Node("Transpose", []string{y}, attr("perm", []int64{0, 2, 1, 3}))
		m.Output(m.Node("Reshape", []string{y, m.Ints(1, rows, heads*size)}), 1, rows, heads*size)
	}}
}

var operators = []operator{
	matmul(4, 512, 512), matmul(8, 128, 784), matmul(64, 64, 64), matmul(128, 128, 128), matmul(256, 256, 256), matmul(512, 512, 512),
	matmul(1024, 1024, 1024), matmul(49, 512, 4608), matmul(128, 768, 3072),
	conv(dense, 3, 64, 64, 56, 1), conv(dense, 3, 128, 128, 28, 1), conv(dense, 3, 256, 256, 14, 1), conv(small, 3, 512, 512, 7, 1),
	conv(dense, 1, 64, 256, 56, 1), conv(dense, 1, 128, 512, 28, 1), conv(dense, 1, 256, 1024, 14, 1), conv(small, 1, 512, 2048, 7, 1),
	conv(dense, 3, 24, 24, 40, 1),
	single(dense, 3, 128, 128, 56, 2, 1), single(dense, 7, 3, 64, 224, 2, 1), single(dense, 3, 3, 16, 160, 2, 1),
	conv(depthwise, 3, 32, 32, 112, 32), conv(depthwise, 3, 144, 144, 56, 144), conv(depthwise, 3, 512, 512, 14, 512), conv(depthwise, 5, 144, 144, 28, 144),
	single(strided, 3, 96, 96, 112, 2, 96), single(strided, 3, 192, 192, 56, 2, 192),
	transposed(2, 128, 64, 28, 2, 0), transposed(4, 64, 32, 56, 2, 1), transposed(3, 64, 64, 28, 1, 1), transposed(3, 64, 32, 28, 2, 1),
	matmul(1, 128, 784), matmul(1, 512, 512), matmul(1, 1024, 1024), matmul(1, 4096, 4096),
	rnn("LSTM", 4, 64, 64, 50), rnn("LSTM", 4, 128, 64, 50), rnn("LSTM", 4, 256, 256, 50), rnn("LSTM", 4, 512, 512, 20),
	rnn("GRU", 3, 64, 64, 50), rnn("GRU", 3, 128, 64, 50), rnn("GRU", 3, 256, 256, 50),
	attention(64, 4, 32, false), attention(128, 12, 64, false), attention(197, 3, 64, false), attention(512, 8, 64, true), attention(1024, 4, 64, true),
	unary("Exp", pointwise, []int64{64, 1024}), unary("Tanh", pointwise, []int64{64, 1024}), unary("Sigmoid", pointwise, []int64{64, 1024}),
	unary("Erf", pointwise, []int64{64, 1024}), unary("Softmax", pointwise, []int64{64, 1000}, attr("axis", int64(-1))),
	unary("Softmax", pointwise, []int64{512, 128}, attr("axis", int64(-1))),
	{name: "LayerNormalization, 128×768", group: layerNorm, build: func(m *synth.Model) {
		m.Output(m.Node("LayerNormalization", []string{m.Input("x", 128, 768), m.Weights(1, 768), m.Weights(1, 768)}, attr("axis", int64(-1))), 128, 768)
	}},
	{name: "LayerNormalization, 64×256", group: layerNorm, build: func(m *synth.Model) {
		m.Output(m.Node("LayerNormalization", []string{m.Input("x", 64, 256), m.Weights(1, 256), m.Weights(1, 256)}, attr("axis", int64(-1))), 64, 256)
	}},
}

// operatorResult is what was measured of an operator.
type operatorResult struct {
	operator
	runs   [2][]outcome // by threads-1 and entrant
	peak   float64      // of one thread, measured before and after
	memory float64      // bytes a second that one thread reads of as many bytes as the weights have
}

// measureOperators lets the engines run the operators with one thread and,
// up to most, with two. The machine's speed changes in time, so the peak is measured beside each.
func measureOperators(cfg measure.Config, engines []entrant, m *machine, only string, most int) ([]*operatorResult, error) {
	var out []*operatorResult
	for _, o := range operators {
		if !strings.Contains(o.name, only) {
			continue
		}
		c, err := synthetic(o.name, o.build)
		if err != nil {
			return nil, err
		}
		r := &operatorResult{operator: o}
		if o.weights > 0 {
			r.memory = bandwidth.Read(o.weights)
		}
		tol := rounding
		if o.group == quantised {
			tol = steps
		}
		for i := range most {
			r.peak = max(r.peak, m.measure())
			if r.runs[i], err = contest(cfg, c, tol, i+1, engines); err != nil {
				return nil, err
			}
		}
		if o.weights > 0 {
			r.memory = max(r.memory, bandwidth.Read(o.weights))
		}
		r.peak = max(r.peak, m.measure())
		out = append(out, r)
	}
	return out, nil
}

func (r *operatorResult) median(threads, who int) float64 {
	if runs := r.runs[threads-1]; who < len(runs) {
		return runs[who].Median()
	}
	return math.NaN()
}

// ofPeak returns the share of the machine's peak that an entrant reaches with
// one thread; NaN if operations are not counted.
func (r *operatorResult) ofPeak(who int) float64 {
	if r.flops == 0 {
		return math.NaN()
	}
	return r.flops / (r.median(1, who) * 1e-9) / r.peak
}

// ofMemory returns the share of the memory's speed at which one thread of ours
// reads weights; NaN if they do not bound the operator.
func (r *operatorResult) ofMemory() float64 {
	if r.weights == 0 || r.memory == 0 {
		return math.NaN()
	}
	return float64(r.weights*r.reads) / (r.median(1, ours) * 1e-9) / r.memory
}

// ratio returns our time by ONNX Runtime's.
func (r *operatorResult) ratio(threads int) float64 {
	return r.median(threads, ours) / r.median(threads, ort)
}

// speedup returns how much faster two threads of ours are than one.
func (r *operatorResult) speedup() float64 { return r.median(1, ours) / r.median(2, ours) }

func operatorTable(results []*operatorResult) string {
	t := report.NewTable("operator", "popefgen, 1 thread", "of peak", "of bandwidth", "ONNX Runtime", "of peak", "ratio", "popefgen, 2 threads", "1 / 2 threads", "ONNX Runtime", "ratio")
	for _, r := range results {
		t.Row(r.name, report.Time(r.median(1, ours)), report.Share(r.ofPeak(ours)), report.Share(r.ofMemory()), report.Time(r.median(1, ort)),
			report.Share(r.ofPeak(ort)), report.Ratio(r.ratio(1)),
			report.Time(r.median(2, ours)), report.Ratio(r.speedup()), report.Time(r.median(2, ort)), report.Ratio(r.ratio(2)))
	}
	return t.String()
}

// synthetic makes a case of a model that is built here, with random inputs.
func synthetic(name string, build func(m *synth.Model)) (*peer.Case, error) {
	m := synth.New(opset)
	build(m)
	c := &peer.Case{Name: name, ONNX: m.Bytes()}
	r := rand.New(rand.NewPCG(3, 4))
	for _, in := range m.Inputs {
		n := int64(1)
		for _, d := range in.Dims {
			n *= d
		}
		data := make([]byte, 0, 4*n)
		for range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(r.NormFloat64())))
		}
		c.Inputs = append(c.Inputs, peer.Tensor{Name: in.Name, Elem: peer.Float, Dims: in.Dims, Size: len(data), Data: data})
	}
	model, err := onnx.Decode(c.ONNX, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	result, err := compile.Compile(model, compile.Options{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, complete(c, result)
}

// opset is the operator set of the models that are built here: the first with
// LayerNormalization.
const opset = 17
