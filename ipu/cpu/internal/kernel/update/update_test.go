package update

import (
	"bytes"
	"math"
	"math/rand"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

func TestMain(m *testing.M) {
	tensor.Grain = 4 * blockLen // a part for every block or so
	os.Exit(m.Run())
}

func bind(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	return kerneltest.BindFrom([]map[string]tensor.Binder{Kernels}, op, in, out)
}

// rules are all, with each of their attributes.
var rules = []graph.Update{
	{Rule: graph.UpdateSGD}, {Rule: graph.UpdateMomentum}, {Rule: graph.UpdateNesterov},
	{Rule: graph.UpdateAdam}, {Rule: graph.UpdateAdam, Decoupled: true}, {Rule: graph.UpdateAdam, NoBias: true},
	{Rule: graph.UpdateAdaMax}, {Rule: graph.UpdateLamb}, {Rule: graph.UpdateLamb, Decoupled: true, NoBias: true},
	{Rule: graph.UpdateAdaGrad}, {Rule: graph.UpdateAdaGrad, Momentum: true, InRoot: true},
	{Rule: graph.UpdateRMSProp}, {Rule: graph.UpdateRMSProp, InRoot: true, Decoupled: true},
	{Rule: graph.UpdateCentredRMSProp}, {Rule: graph.UpdateCentredRMSProp, Momentum: true},
	{Rule: graph.UpdateAdaDelta}, {Rule: graph.UpdateAdaDelta, Momentum: true, Decoupled: true},
}

// usual are values of scalars, all of which have an effect.
var usual = map[string]float32{
	"weightDecayScaleFactor0": 0.99, "scaledLearningRate0": 0.1, "scaledMomentum2": 0.9, "dampeningScaleFactor2": 0.75, "scaledWeightDecay1": 0.01,
	"scaledLearningRate2": 0.1, "nesterovDampeningScaleFactor2": 1.25, "nesterovGradScaleFactor2": 0.5, "sgdWeightDecay": 0.02, "sgdMomentum": 0.9,
	"learningRate": 0.05, "weightDecay": 0.03, "adamGradientScaling": 0.5, "adamBeta1": 0.8, "adamBeta2": 0.95, "adamEps": 1e-5, "maxWeightNorm": 1.5,
	"adaptiveGradientScaling": 0.5, "adaptiveEps": 1e-4, "adaptiveAlpha": 0.9, "adaptiveMomentum": 0.7,
}

// weight is one weight with its states, in float64.
type weight struct {
	w []float64
	s map[string][]float64
}

// update is the definition: the formulas of [graph.UpdateRule], one element after the other.
func (x *weight) update(o *graph.Update, g []float64, v map[string]float64, factor float64) {
	step := make([]float64, len(x.w))
	m, second, moment := x.s["Accl1"], x.s["Accl2"], x.s["Accl3"]
	c1, c2 := 1.0, 1.0
	if t, ok := x.s[graph.UpdateStep]; ok {
		t[0]++
		c1, c2 = 1-math.Pow(v["adamBeta1"], t[0]), 1-math.Pow(v["adamBeta2"], t[0])
	}
	for i := range x.w {
		g, w := g[i]*factor, x.w[i]
		switch o.Rule {
		case graph.UpdateSGD:
			x.w[i] = w*v["weightDecayScaleFactor0"] - v["scaledLearningRate0"]*g
			continue
		case graph.UpdateMomentum, graph.UpdateNesterov:
			a := x.s["Accl"]
			a[i] = v["scaledMomentum2"]*a[i] + v["dampeningScaleFactor2"]*g + v["scaledWeightDecay1"]*w
			move := a[i]
			if o.Rule == graph.UpdateNesterov {
				move = v["nesterovGradScaleFactor2"]*(v["nesterovDampeningScaleFactor2"]*v["dampeningScaleFactor2"]*g+v["sgdWeightDecay"]*w) + v["sgdMomentum"]*a[i]
			}
			x.w[i] = w - v["scaledLearningRate2"]*move
			continue
		case graph.UpdateAdam, graph.UpdateAdaMax, graph.UpdateLamb:
			g *= v["adamGradientScaling"]
		default:
			g *= v["adaptiveGradientScaling"]
		}
		if !o.Decoupled {
			g += v["weightDecay"] * w
		}
		a, eps := v["adaptiveAlpha"], v["adaptiveEps"]
		root := func(v float64) float64 {
			if o.InRoot {
				return math.Sqrt(v + eps)
			}
			return math.Sqrt(v) + eps
		}
		switch o.Rule {
		case graph.UpdateAdaMax:
			m[i] = v["adamBeta1"]*m[i] + (1-v["adamBeta1"])*g
			second[i] = max(v["adamBeta2"]*second[i], math.Abs(g))
			step[i] = m[i] / c1 / (second[i]/c2 + v["adamEps"])
		case graph.UpdateAdam, graph.UpdateLamb:
			m[i] = v["adamBeta1"]*m[i] + (1-v["adamBeta1"])*g
			second[i] = v["adamBeta2"]*second[i] + (1-v["adamBeta2"])*g*g
			step[i] = m[i] / c1 / (math.Sqrt(second[i]/c2) + v["adamEps"])
		case graph.UpdateAdaGrad:
			m[i] += g * g
			step[i] = g / root(m[i])
		case graph.UpdateRMSProp:
			m[i] = a*m[i] + (1-a)*g*g
			step[i] = g / root(m[i])
		case graph.UpdateCentredRMSProp:
			m[i] = a*m[i] + (1-a)*g*g
			second[i] = a*second[i] + (1-a)*g
			step[i] = g / root(max(0, m[i]-second[i]*second[i]))
		case graph.UpdateAdaDelta:
			m[i] = a*m[i] + (1-a)*g*g
			step[i] = g * math.Sqrt(second[i]+eps) / math.Sqrt(m[i]+eps)
			second[i] = a*second[i] + (1-a)*step[i]*step[i]
		}
		if o.Momentum {
			moment[i] = v["adaptiveMomentum"]*moment[i] + step[i]
			step[i] = moment[i]
		}
		if o.Decoupled {
			step[i] += v["weightDecay"] * w
		}
	}
	if o.Rule == graph.UpdateSGD || o.Rule == graph.UpdateMomentum || o.Rule == graph.UpdateNesterov {
		return
	}
	ratio := 1.0
	if o.Rule == graph.UpdateLamb {
		var nw, nx float64
		for i := range x.w {
			nw, nx = nw+x.w[i]*x.w[i], nx+step[i]*step[i]
		}
		if nw, nx = min(math.Sqrt(nw), v["maxWeightNorm"]), math.Sqrt(nx); nw != 0 && nx != 0 {
			ratio = nw / nx
		}
	}
	for i := range x.w {
		x.w[i] -= v["learningRate"] * ratio * step[i]
	}
}

// put makes a tensor of numbers.
func put(t graph.DType, x []float64) []byte {
	b := kerneltest.Aligned(len(x) * t.Size())
	for i, v := range x {
		switch t {
		case graph.F64:
			tensor.F64s(b)[i] = v
		case graph.F32:
			tensor.F32s(b)[i] = float32(v)
		case graph.F16:
			tensor.View[num.Float16](b)[i] = num.Float16From(float32(v))
		case graph.BF16:
			tensor.View[num.BFloat16](b)[i] = num.BFloat16From(float32(v))
		}
	}
	return b
}

// get returns the numbers of a tensor.
func get(t graph.DType, b []byte) []float64 {
	x := make([]float64, len(b)/t.Size())
	for i := range x {
		x[i] = graph.Number(t, b[i*t.Size():])
	}
	return x
}

// sketch is an update of random numbers.
type sketch struct {
	op    graph.Update
	types []graph.TensorType
	data  [][]byte
	want  *weight
}

// newSketch draws a weight of n elements. Given are the scalars that are operands.
func newSketch(r *rand.Rand, o graph.Update, n int, w, g graph.DType, master bool, given func(i int) bool) *sketch {
	s := &sketch{op: o, want: &weight{s: map[string][]float64{}}}
	shape := []int64{int64(n)}
	wide := graph.F32
	if w == graph.F64 {
		wide = w
	}
	numbers := func(scale float64) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(float32(r.NormFloat64() * scale))
		}
		return x
	}
	add := func(t graph.DType, shape []int64, x []float64) []float64 {
		b := put(t, x)
		s.types, s.data = append(s.types, graph.TensorType{DType: t, Shape: shape}), append(s.data, b)
		return get(t, b)
	}
	none := func(n int) {
		s.types, s.data = append(s.types, make([]graph.TensorType, n)...), append(s.data, make([][]byte, n)...)
	}
	values := numbers(1)
	s.want.w = add(w, shape, values)
	add(g, shape, numbers(0.5))
	none(2)
	if master {
		s.want.w = add(graph.F32, shape, values)
	} else {
		none(1)
	}
	for _, name := range o.States() {
		if name == graph.UpdateStep {
			s.want.s[name] = add(graph.F32, nil, []float64{float64(r.Intn(3))})
			continue
		}
		x := numbers(0.1)
		for i := range x {
			x[i] = math.Abs(x[i]) // sums of squares are not negative
		}
		if o.Rule == graph.UpdateCentredRMSProp && name == "Accl2" {
			for i, v := range get(wide, s.data[graph.UpdateFixed]) {
				x[i] = math.Sqrt(v) / 2 // nor what they leave
			}
		}
		s.want.s[name] = add(wide, shape, x)
	}
	s.op.Values = nil
	for i, name := range o.Scalars() {
		v := float64(usual[name])
		if given(i) {
			add(graph.F32, nil, []float64{v})
			v = 0
		} else {
			none(1)
		}
		s.op.Values = append(s.op.Values, v)
	}
	return s
}

// scalars are the usual values, as the kernel gets them.
func scalars() map[string]float64 {
	v := map[string]float64{}
	for name, x := range usual {
		v[name] = float64(x)
	}
	return v
}

// near fails where a number is further from what is wanted than a part of it or of 1 allows.
func near(t require.TestingT, want, got []float64, tolerance float64, what ...any) {
	for i, w := range want {
		if d := math.Abs(got[i] - w); !(d <= tolerance*max(1, math.Abs(w))) {
			require.Empty(t, cmp.Diff(want, got, cmpopts.EquateApprox(tolerance, tolerance)), what...)
			require.Failf(t, "too far", "element %d is %g, want %g within %g: %v", i, got[i], w, tolerance, what)
		}
	}
	require.Len(t, got, len(want))
}

// same fails where bytes differ.
func same(t require.TestingT, want, got [][]byte) {
	if !slices.EqualFunc(want, got, bytes.Equal) {
		require.Empty(t, cmp.Diff(want, got))
	}
}

// TestUpdate compares ten steps of every rule with the definition, in all types and on all paths.
func TestUpdate(t *testing.T) {
	type types struct {
		w, g   graph.DType
		master bool
	}
	kerneltest.EachPath(t, func(t *testing.T) {
		for _, o := range rules {
			for _, c := range []types{{graph.F32, graph.F32, false}, {graph.F64, graph.F64, false}, {graph.F64, graph.F32, false},
				{graph.F16, graph.F16, true}, {graph.BF16, graph.F32, true}, {graph.F16, graph.F32, false}} {
				s := newSketch(rand.New(rand.NewSource(1)), o, 200, c.w, c.g, c.master, func(int) bool { return false })
				tolerance := 2e-6
				switch {
				case c.w == graph.F64:
					tolerance = 1e-12
				case c.w == graph.F16 && !c.master:
					tolerance = 1.5e-3 // of the weight's own precision, one step
				}
				steps := 10
				if tolerance > 1e-3 {
					steps = 1
				}
				for range steps {
					g := get(c.g, s.data[1])
					s.want.update(&s.op, g, scalarsOf(&s.op), 1)
					_, out := kerneltest.Run(t, bind, &s.op, s.types, s.data)
					s.data[0] = out[0]
					got := get(c.w, out[0])
					if c.master {
						s.data[4] = out[len(out)-1]
						got = get(graph.F32, s.data[4])
						same(t, [][]byte{put(c.w, got)}, out[:1]) // the weight is its master, rounded
					}
					near(t, s.want.w, got, tolerance, "%+v %+v", o, c)
					for i, name := range o.States() {
						s.data[graph.UpdateFixed+i] = out[1+i]
						near(t, s.want.s[name], get(s.types[graph.UpdateFixed+i].DType, out[1+i]), tolerance, "%+v %+v: %s", o, c, name)
					}
				}
			}
		}
	})
}

// scalarsOf returns an update's constant scalars by name.
func scalarsOf(o *graph.Update) map[string]float64 {
	v := map[string]float64{}
	for i, name := range o.Scalars() {
		v[name] = o.Values[i]
	}
	return v
}

// TestConstantAndOperand: a scalar gives the same bits in the operator and as an operand, so does every path, one thread
// and several (kerneltest.Run), and every result over its operand.
func TestConstantAndOperand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := rapid.SampledFrom(rules).Draw(t, "rule")
		n, seed := rapid.IntRange(0, 1500).Draw(t, "n"), rapid.Int64().Draw(t, "seed")
		w := rapid.SampledFrom([]graph.DType{graph.F32, graph.F64, graph.F16, graph.BF16}).Draw(t, "type")
		master := w.Size() == 2 && rapid.Bool().Draw(t, "master")
		mask := rapid.Uint16().Draw(t, "operands")
		var want [][]byte
		chosen := tensor.Path
		defer func() { tensor.Path = chosen }()
		for p := tensor.PathGo; p <= tensor.FastestPath(); p++ {
			tensor.Path = p
			for _, given := range []func(int) bool{func(int) bool { return false }, func(i int) bool { return mask>>i&1 == 1 }} {
				s := newSketch(rand.New(rand.NewSource(seed)), o, n, w, w, master, given)
				s.types[2], s.data[2] = graph.TensorType{DType: graph.F32, Shape: []int64{1}}, put(graph.F32, []float64{0.25})
				out, got := kerneltest.Run(t, bind, &s.op, s.types, s.data)
				if want == nil {
					want = got
				}
				same(t, want, got)
				s.overwritten(t, out, want)
			}
		}
	})
}

// overwritten computes s with every result over the operand that it replaces.
func (s *sketch) overwritten(t require.TestingT, out []graph.TensorType, want [][]byte) {
	k, err := bind(&s.op, s.types, out)
	require.NoError(t, err)
	data := slices.Clone(s.data)
	results := make([][]byte, len(out))
	for i := range out {
		for j := range data {
			if s.data[j] != nil && k.(tensor.Overwriter).Overwrites(i, j) {
				require.Nil(t, results[i], "result %d may be over two operands", i)
				data[j] = kerneltest.Aligned(len(s.data[j]))
				copy(data[j], s.data[j])
				results[i] = data[j]
			}
		}
		require.NotNil(t, results[i])
	}
	require.NoError(t, k.Run(kerneltest.Threads(2), data, results, kerneltest.Aligned(k.Scratch())))
	same(t, want, results)
}

// TestFactorAndSkip: the factor multiplies the gradient, and nothing changes where the step is skipped.
func TestFactorAndSkip(t *testing.T) {
	for _, o := range rules {
		s := newSketch(rand.New(rand.NewSource(2)), o, 700, graph.F32, graph.F32, false, func(int) bool { return true })
		s.types[2], s.data[2] = graph.TensorType{DType: graph.F32}, put(graph.F32, []float64{0.5})
		s.types[3], s.data[3] = graph.TensorType{DType: graph.Bool}, []byte{0}
		s.want.update(&s.op, get(graph.F32, s.data[1]), scalars(), 0.5)
		_, out := kerneltest.Run(t, bind, &s.op, s.types, s.data)
		near(t, s.want.w, get(graph.F32, out[0]), 2e-6, "%+v", o)
		s.data[3][0] = 1
		tensor.F32s(s.data[1])[3] = float32(math.NaN())
		_, out = kerneltest.Run(t, bind, &s.op, s.types, s.data)
		same(t, s.data[:1], out[:1])
		for i := range o.States() {
			same(t, s.data[graph.UpdateFixed+i:][:1], out[1+i:][:1])
		}
	}
}

// TestLeftOut: results that nobody wants are not written, but Lamb needs its own.
func TestLeftOut(t *testing.T) {
	for _, o := range rules {
		s := newSketch(rand.New(rand.NewSource(2)), o, 700, graph.F32, graph.F32, false, func(int) bool { return false })
		all, want := kerneltest.Run(t, bind, &s.op, s.types, s.data)
		for i := range all {
			out := slices.Clone(all)
			out[i] = graph.TensorType{}
			k, err := bind(&s.op, s.types, out)
			if o.Rule == graph.UpdateLamb && i > 0 {
				require.ErrorContains(t, err, "of rule lamb is left out")
				continue
			}
			require.NoError(t, err)
			results := make([][]byte, len(out))
			for j := range results {
				if j != i {
					results[j] = kerneltest.Aligned(len(want[j]))
				}
			}
			require.NoError(t, k.Run(tensor.Serial{}, s.data, results, kerneltest.Aligned(k.Scratch())))
			for j := range results {
				if j != i {
					same(t, want[j:j+1], results[j:j+1])
				}
			}
		}
	}
}

// BenchmarkAdam moves 28 bytes for each of 10 million weights.
func BenchmarkAdam(b *testing.B) {
	x := graph.TensorType{DType: graph.F32, Shape: []int64{10 << 20}}
	none, one := graph.TensorType{}, graph.TensorType{DType: graph.F32}
	o := &graph.Update{Rule: graph.UpdateAdam, Values: []float64{0.001, 0, 1, 0.9, 0.999, 1e-6}}
	in := []graph.TensorType{x, x, none, none, none, x, x, one}
	out, err := o.Infer(in)
	require.NoError(b, err)
	k, err := bind(o, in, out)
	require.NoError(b, err)
	data := make([][]byte, len(in))
	for i, t := range in {
		if t.DType != graph.Invalid {
			data[i] = kerneltest.Aligned(int(t.Bytes()))
		}
	}
	results := [][]byte{data[0], data[5], data[6], data[7]}
	scratch := kerneltest.Aligned(k.Scratch())
	b.SetBytes(28 * x.Elements())
	for b.Loop() {
		require.NoError(b, k.Run(tensor.Serial{}, data, results, scratch))
	}
}
