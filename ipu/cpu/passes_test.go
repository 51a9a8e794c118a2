package cpu

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// passWays are the passes that a test leaves out: none, all but one, and one.
func passWays() map[string][]string {
	var all []string
	for _, p := range pass.Passes {
		all = append(all, p.Name)
	}
	ways := map[string][]string{"all passes": nil}
	for i, name := range all {
		ways["only "+name] = slices.Concat(all[:i], all[i+1:])
		ways["without "+name] = []string{name}
	}
	return ways
}

// everyQuarter is how many of the ways that leave passes out are tried on one
// drawn model: those of a quarter that is drawn with it. Over the models of a
// test each way comes up often. POPEFGEN_TESTS=all tries all on each.
const everyQuarter = 4

// someWays returns the way of all passes and a part of the others.
func someWays(t *rapid.T) map[string][]string {
	ways := passWays()
	if os.Getenv("POPEFGEN_TESTS") == "all" {
		return ways
	}
	part := rapid.IntRange(0, everyQuarter-1).Draw(t, "part of the ways")
	for i, name := range slices.Sorted(maps.Keys(ways)) {
		if i%everyQuarter != part && ways[name] != nil {
			delete(ways, name)
		}
	}
	return ways
}

// optimized decodes an executable, runs passes on it and encodes it again.
// What they leave alone when they run once more is as good as it gets.
func optimized(t require.TestingT, exe []byte, disabled []string) []byte {
	e, err := encoding.Decode(exe)
	require.NoError(t, err)
	load := 0
	require.NoError(t, pass.Optimize(e, pass.OptimizeOptions{Disabled: disabled, Load: &load, Evaluate: Eval}))
	var b bytes.Buffer
	require.NoError(t, encoding.Encode(&b, e))
	return b.Bytes()
}

// TestPassesOnRandomModels compares models of small whole numbers, for which
// every order of computation is exact, before and after the passes.
func TestPassesOnRandomModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		exe, err := encoding.Decode(m.exe)
		require.NoError(t, err)
		want := runRandom(t, newInterpreter(exe), m, nil, -1)
		for name, disabled := range someWays(t) {
			e, err := New(ipu.EngineConfig{Name: name, Executable: optimized(t, m.exe, disabled)})
			require.NoError(t, err)
			load(t, e)
			require.Equal(t, want, runRandom(t, e, m, nil, -1), name)
			require.NoError(t, e.Close())
		}
	})
}

// netDraw draws a network of what the passes look for: layers whose parts are
// written as primitives, with weights from streams and constants.
type netDraw struct {
	*rapid.T
	*model
	n    int
	pool map[string][]graph.TensorID // parameters that may be used again, by what they are; nil if none may
}

func (d *netDraw) yes(label string) bool { return rapid.Bool().Draw(d.T, label) }
func (d *netDraw) node(op graph.Op, in ...graph.TensorID) graph.TensorID {
	return node(d, d.b, op, op.Kind(), in...)
}
func (d *netDraw) unary(fn graph.UnaryFn, x graph.TensorID) graph.TensorID {
	return d.node(&graph.Unary{Fn: fn}, x)
}

// binary applies fn to its operands in either order, where fn allows it.
func (d *netDraw) binary(fn graph.BinaryFn, a, b graph.TensorID) graph.TensorID {
	if (fn == graph.Add || fn == graph.Mul) && d.yes("swap") {
		a, b = b, a
	}
	return d.node(&graph.Binary{Fn: fn}, a, b)
}

func (d *netDraw) number(v float32) graph.TensorID {
	return d.b.AddConst("number", f32(), bytesOf([]float32{v}))
}

// param returns a weight or a constant, of values around 1 if it is positive.
func (d *netDraw) param(positive bool, shape ...int64) graph.TensorID {
	key := fmt.Sprint(positive, shape)
	if n := len(d.pool[key]); n > 0 && d.yes("again") {
		id := d.pool[key][rapid.IntRange(0, n-1).Draw(d.T, "parameter")]
		if d.yes("derived") { // which networks may all do from the same parameter
			id = d.unary(graph.Tanh, id)
		}
		return id
	}
	id := d.fresh(positive, shape...)
	if d.pool != nil {
		d.pool[key] = append(d.pool[key], id)
	}
	return id
}

func (d *netDraw) fresh(positive bool, shape ...int64) graph.TensorID {
	d.n++
	v := wave(int(f32(shape...).Elements()), 0.5)
	for i := range v {
		if positive {
			v[i] += 1
		}
	}
	if d.yes("constant") {
		return d.b.AddConst("constant", f32(shape...), bytesOf(v))
	}
	name := "w" + string(rune('A'+d.n))
	d.weights[name] = v
	id := d.b.AddPersistent(name, f32(shape...))
	return id
}

// activation draws an activation in one of the forms that exporters write.
func (d *netDraw) activation(x graph.TensorID) graph.TensorID {
	switch rapid.SampledFrom([]string{"gelu", "gelu tanh", "swish", "hard-swish", "hard-sigmoid", "mish", "clip", "pow", "relu", "exp"}).Draw(d.T, "activation") {
	case "gelu":
		u := d.binary(graph.Div, x, d.number(1.4142135))
		if d.yes("factor") {
			u = d.binary(graph.Mul, x, d.number(0.70710677))
		}
		e := d.binary(graph.Add, d.unary(graph.Erf, u), d.number(1))
		if d.yes("late half") {
			return d.binary(graph.Mul, d.binary(graph.Mul, x, e), d.number(0.5))
		}
		return d.binary(graph.Mul, d.binary(graph.Mul, x, d.number(0.5)), e)
	case "gelu tanh":
		q := d.binary(graph.Mul, x, x)
		c := d.binary(graph.Mul, d.number(0.044715), d.binary(graph.Mul, q, x))
		if d.yes("power") {
			c = d.binary(graph.Mul, d.node(&graph.Binary{Fn: graph.Pow}, x, d.number(3)), d.number(0.044715))
		}
		u := d.binary(graph.Mul, d.number(0.7978845608), d.binary(graph.Add, x, c))
		return d.binary(graph.Mul, d.binary(graph.Mul, d.number(0.5), d.binary(graph.Add, d.unary(graph.Tanh, u), d.number(1))), x)
	case "swish":
		return d.binary(graph.Mul, x, d.unary(graph.Sigmoid, x))
	case "hard-swish":
		c := d.node(&graph.Clip{}, d.binary(graph.Add, x, d.number(3)), d.number(0), d.number(6))
		return d.binary(graph.Div, d.binary(graph.Mul, x, c), d.number(6))
	case "hard-sigmoid":
		c := d.node(&graph.Clip{}, d.binary(graph.Add, x, d.number(3)), d.number(0), d.number(6))
		return d.binary(graph.Div, c, d.number(6))
	case "mish":
		return d.binary(graph.Mul, x, d.unary(graph.Tanh, d.unary(graph.Softplus, x)))
	case "clip":
		return d.node(&graph.Clip{}, x, d.number(-0.5), graph.None)
	case "pow":
		return d.node(&graph.Binary{Fn: graph.Pow}, x, d.number(rapid.SampledFrom([]float32{2, 3}).Draw(d.T, "power")))
	case "relu":
		return d.binary(graph.Max, x, d.number(0))
	}
	return d.unary(graph.Tanh, d.unary(graph.Exp, d.unary(graph.Neg, d.unary(graph.Abs, x))))
}

// affine draws what follows a convolution or product: factors, addends and
// normalisation by channel, which lie along an axis.
func (d *netDraw) affine(x graph.TensorID, axis int) graph.TensorID {
	typ := d.b.Type(x)
	channels := typ.Shape[axis]
	along := make([]int64, typ.Rank()-axis)
	for i := range along {
		along[i] = 1
	}
	along[0] = channels
	for range rapid.IntRange(0, 3).Draw(d.T, "affine") {
		switch rapid.SampledFrom([]string{"factor", "addend", "difference", "number", "norm", "residual"}).Draw(d.T, "affine") {
		case "factor":
			x = d.binary(graph.Mul, x, d.param(true, along...))
		case "addend":
			x = d.binary(graph.Add, x, d.param(false, along...))
		case "difference":
			x = d.binary(graph.Sub, x, d.param(false, along...))
		case "number":
			x = d.binary(graph.Div, x, d.number(1.5))
		case "norm":
			if axis == 1 {
				p := func(positive bool) graph.TensorID { return d.param(positive, channels) }
				x = d.node(&graph.BatchNorm{Epsilon: 1e-3}, x, p(true), p(false), p(false), p(true))
			}
		case "residual":
			x = d.binary(graph.Add, x, d.param(false, typ.Shape...))
		}
	}
	return x
}

// norm draws a normalisation over the last axis.
func (d *netDraw) norm(x graph.TensorID) graph.TensorID {
	last := int64(d.b.Type(x).Rank() - 1)
	reduce := func(fn graph.ReduceFn, x graph.TensorID) graph.TensorID {
		return d.node(&graph.Reduce{Fn: fn, Axes: []int64{last}, KeepDims: true}, x)
	}
	if d.yes("softmax") {
		e := d.unary(graph.Exp, d.binary(graph.Sub, x, reduce(graph.ReduceMax, x)))
		return d.binary(graph.Div, e, reduce(graph.ReduceSum, e))
	}
	if d.yes("centred") {
		x = d.binary(graph.Sub, x, reduce(graph.ReduceMean, x))
	}
	q := d.binary(graph.Mul, x, x)
	if d.yes("power") {
		q = d.node(&graph.Binary{Fn: graph.Pow}, x, d.number(2))
	}
	s := d.unary(graph.Sqrt, d.binary(graph.Add, reduce(graph.ReduceMean, q), d.number(1e-2)))
	if d.yes("inverse") {
		x = d.binary(graph.Mul, x, d.unary(graph.Reciprocal, s))
	} else {
		x = d.binary(graph.Div, x, s)
	}
	width := d.b.Type(x).Shape[last]
	if d.yes("scale") {
		x = d.binary(graph.Mul, x, d.param(true, width))
	}
	if d.yes("shift") {
		x = d.binary(graph.Add, x, d.param(false, width))
	}
	return x
}

// move draws operators that move elements, in pairs that passes merge.
func (d *netDraw) move(x graph.TensorID) graph.TensorID {
	shape := slices.Clone(d.b.Type(x).Shape)
	for range 2 {
		x = d.node(&graph.Reshape{Shape: []int64{shape[0], 1, f32(shape[1:]...).Elements()}}, x)
		x = d.node(&graph.Transpose{Perm: rapid.SampledFrom([][]int64{{0, 2, 1}, {1, 0, 2}, {2, 1, 0}}).Draw(d.T, "perm")}, x)
		x = d.node(&graph.Transpose{Perm: rapid.SampledFrom([][]int64{{0, 2, 1}, {1, 0, 2}, {2, 1, 0}}).Draw(d.T, "perm")}, x)
	}
	return d.node(&graph.Reshape{Shape: shape}, x)
}

// quantised draws conversions to integers and back around moves, of which the
// second changes nothing if it has the scale and zero point of the first.
func (d *netDraw) quantised(x graph.TensorID) graph.TensorID {
	scale := d.number(rapid.SampledFrom([]float32{0.05, 0.1}).Draw(d.T, "scale"))
	zero := d.b.AddConst("zero", graph.TensorType{DType: graph.I8}, []byte{3})
	for range 2 {
		q := d.node(&graph.Quantize{To: graph.I8, Precision: graph.F32}, x, scale, zero)
		x = d.node(&graph.Dequantize{To: graph.F32}, q, scale, zero)
		switch rapid.SampledFrom([]string{"move", "pool", "rescale"}).Draw(d.T, "between") {
		case "move":
			x = d.move(x)
		case "pool":
			one := []int64{1, 1}
			x = d.node(&graph.MaxPool{Kernel: one, Strides: one, Dilations: one, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}}, x)
		case "rescale":
			scale = d.number(0.2)
		}
	}
	return x
}

// drawNet draws a network: an image through convolutions, then products.
func drawNet(t *rapid.T) (*model, []byte) {
	d := &netDraw{T: t, model: newModel("net")}
	x := d.b.AddLocal("x", f32(2, 4, 5, 6))
	g := d.b.BeginGraph("main")
	d.finish(x, d.layers(x), g)
	return d.model, executable(t, d.b)
}

// layers draws the layers of a network that reads images x of 4×5×6, and returns its flat
// result.
func (d *netDraw) layers(y graph.TensorID) graph.TensorID {
	t, ones, shape := d.T, []int64{1, 1}, d.b.Type(y).Shape
	for range rapid.IntRange(0, 2).Draw(t, "convolutions") {
		in := []graph.TensorID{y, d.param(false, 4, 2, 3, 3), graph.None}
		if d.yes("bias") {
			in[2] = d.param(false, 4)
		}
		y = d.affine(d.node(&graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 2}, in...), 1)
		if d.yes("activation") {
			y = d.activation(y)
		}
	}
	if d.yes("move") {
		y = d.move(y)
	}
	for range rapid.IntRange(0, 2).Draw(t, "products") {
		if d.yes("flat") {
			flat := d.node(&graph.Reshape{Shape: []int64{shape[0] * 20, 6}}, y)
			flat = d.affine(d.node(&graph.Gemm{TransB: true, Alpha: 1, Beta: 1}, flat, d.param(false, 6, 6), graph.None), 1)
			y = d.node(&graph.Reshape{Shape: shape}, flat)
		} else {
			y = d.affine(d.node(&graph.MatMul{}, y, d.param(false, 6, 6)), 3)
		}
		if d.yes("activation") {
			y = d.activation(y)
		}
	}
	if d.yes("norm") {
		y = d.norm(y)
	}
	return d.node(&graph.Reshape{Shape: []int64{shape[0] * 120}}, y)
}

// reference returns what the network gives without passes, and how far that
// moves when every result of an operator is changed by a millionth: what rounding
// is amplified to by cubes and by differences of large numbers.
func (m *model) reference(t require.TestingT, plain *graph.Executable) (y []float32, sway float64) {
	e := newInterpreter(plain)
	_, y = m.start(t, e)
	run(t, e, 1)
	changed := newInterpreter(plain)
	changed.noise = rand.New(rand.NewPCG(1, 2))
	_, z := m.start(t, changed)
	run(t, changed, 1)
	for i, v := range y {
		if d := math.Abs(float64(z[i]) - float64(v)); d > sway {
			sway = d
		}
	}
	return y, sway
}

// TestPassesOnRandomNets compares networks before and after the passes, also
// after their weights have changed.
func TestPassesOnRandomNets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, exe := drawNet(t)
		plain, err := encoding.Decode(exe)
		require.NoError(t, err)
		want, sway := m.reference(t, plain)
		for name, disabled := range someWays(t) {
			e, err := New(ipu.EngineConfig{Name: name, Executable: optimized(t, exe, disabled), Options: opt("threads", "1")})
			require.NoError(t, err)
			load(t, e)
			_, got := m.start(t, e)
			run(t, e, 1)
			require.InDeltaSlice(t, want, got, 2e-3+sway, name)

			for _, v := range m.weights {
				for i := range v {
					v[i] *= 1.25
				}
			}
			changed, sway := m.reference(t, plain)
			_, got = m.start(t, e)
			run(t, e, 1)
			require.InDeltaSlice(t, changed, got, 5e-3+sway, "%s: new weights", name)
			for _, v := range m.weights {
				for i := range v {
					v[i] /= 1.25
				}
			}
			require.NoError(t, e.Close())
		}
	})
}

// TestPassesOnQuantisedValues compares exactly: a difference of rounding would
// show as a step of the quantisation.
func TestPassesOnQuantisedValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &netDraw{T: t, model: newModel("quantised")}
		x := d.b.AddLocal("x", f32(2, 4, 5, 6))
		g := d.b.BeginGraph("main")
		y := d.node(&graph.Reshape{Shape: []int64{240}}, d.quantised(x))
		d.finish(x, y, g)
		exe := executable(t, d.b)
		plain, err := encoding.Decode(exe)
		require.NoError(t, err)
		reference := newInterpreter(plain)
		_, want := d.start(t, reference)
		run(t, reference, 1)
		for name, disabled := range someWays(t) {
			e, err := New(ipu.EngineConfig{Name: name, Executable: optimized(t, exe, disabled)})
			require.NoError(t, err)
			load(t, e)
			_, got := d.start(t, e)
			run(t, e, 1)
			require.Equal(t, want, got, name)
			require.NoError(t, e.Close())
		}
	})
}
