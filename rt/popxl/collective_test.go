package popxl_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// open attaches a session of several replicas.
func open(t *testing.T, ir *popxl.Ir) *popxl.Session {
	t.Helper()
	s, err := popxl.NewSession(t.Context(), ir, popxl.IPUModel)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Attach(t.Context())
	require.NoError(t, err)
	return s
}

// TestCollectives: what each of the replicas gets of random tensors, and the gradient of Σ weight·y over all replicas, by the definitions.
func TestCollectives(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n, k := rapid.IntRange(1, 4).Draw(r, "replicas"), rapid.IntRange(1, 3).Draw(r, "rows")
		size := 2 * n * k
		small := rapid.Map(rapid.IntRange(-8, 8), func(i int) float32 { return float32(i) })
		xs := rapid.SliceOfN(small, n*size, n*size).Draw(r, "x")
		sum := make([]float32, size)
		for i, x := range xs {
			sum[i%size] += x
		}
		ofSums := func(all []float32, size int) []float32 { // of n tensors of all, in each replica
			s := make([]float32, size)
			for i, v := range all {
				s[i%size] += v
			}
			return s
		}
		collectives := []struct {
			name     string
			add      func(tensor) tensor
			y        []float32 // of all replicas
			gradient func(w []float32) []float32
		}{
			{"all-reduce", ops.AllReduce[float32], slices.Repeat(sum, n), func(w []float32) []float32 { return slices.Repeat(ofSums(w, size), n) }},
			{"identical", ops.AllReduceIdenticalInputs[float32], xs, func(w []float32) []float32 { return slices.Repeat(ofSums(w, size), n) }},
			{"identical grads", ops.AllReduceIdenticalGradInputs[float32], slices.Repeat(sum, n), func(w []float32) []float32 { return w }},
			{"all-gather", ops.AllGather[float32], slices.Repeat(xs, n), func(w []float32) []float32 { return ofSums(w, n*size) }},
			{"reduce-scatter", ops.ReduceScatter[float32], sum, func(w []float32) []float32 { return slices.Repeat(w, n) }},
		}
		ir := popxl.New("collectives")
		ir.SetReplicas(n)
		in := popxl.NewInput[float32](ir, "x", int64(n*k), 2)
		x := in.Load()
		bindings := []popxl.Binding{in.Feed(xs)}
		ys, ws, ds := make([][]float32, len(collectives)), make([][]float32, len(collectives)), make([][]float32, len(collectives))
		for i, c := range collectives {
			y := c.add(x)
			weight := popxl.NewInput[float32](ir, "weight of "+c.name, y.Shape()...)
			d := popxl.Gradients(ops.Sum(ops.Mul(y, weight.Load())), x)
			out, dx := popxl.NewOutput(c.name, y), popxl.NewOutput("gradient of "+c.name, popxl.GradOf(d, x))
			ys[i], ds[i] = out.Make(), dx.Make()
			ws[i] = make([]float32, len(ys[i]))
			for j := range ws[i] {
				ws[i][j] = float32((i+j)%7) - 3
			}
			bindings = append(bindings, weight.Feed(ws[i]), out.Into(ys[i]), dx.Into(ds[i]))
		}
		s := open(t, ir)
		require.NoError(t, s.Run(t.Context(), bindings...))
		for i, c := range collectives {
			require.Equal(t, c.y, ys[i], c.name)
			require.Equal(t, c.gradient(ws[i]), ds[i], c.name)
		}
		require.NoError(t, s.Close())
	})
}

// TestTypesOfCollectives: sums and gathers of other elements, of variables and constants too.
func TestTypesOfCollectives(t *testing.T) {
	ir := popxl.New("types")
	ir.SetReplicas(2)
	i8, u64, flag := popxl.NewInput[int8](ir, "i8"), popxl.NewInput[uint64](ir, "u64"), popxl.NewInput[bool](ir, "flag", 2)
	h, b, d := popxl.NewInput[num.Float16](ir, "h"), popxl.NewInput[num.BFloat16](ir, "b"), popxl.NewInput[float64](ir, "d")
	i16, i32 := popxl.NewInput[int16](ir, "i16"), popxl.NewInput[int32](ir, "i32", 2)
	v := popxl.NewVariable(ir, "v", []int32{5})
	i8s, u64s, flags := popxl.NewOutput("i8s", ops.AllReduce(i8.Load())), popxl.NewOutput("u64s", ops.AllReduce(u64.Load())), popxl.NewOutput("flags", ops.AllGather(flag.Load()))
	hs, bs, ds := popxl.NewOutput("hs", ops.AllReduce(h.Load())), popxl.NewOutput("bs", ops.AllReduce(b.Load())), popxl.NewOutput("ds", ops.AllReduce(d.Load()))
	i16s, i32s := popxl.NewOutput("i16s", ops.AllReduce(i16.Load())), popxl.NewOutput("i32s", ops.ReduceScatter(i32.Load()))
	vs, cs := popxl.NewOutput("vs", ops.AllReduce(v.Tensor())), popxl.NewOutput("cs", ops.AllReduce(popxl.Constant(ir, []float32{1.5})))
	again := popxl.NewOutput("again", ops.AllReduce(ops.AllReduce(popxl.Constant(ir, []float32{1.5}))))
	s := open(t, ir)
	require.NoError(t, s.SetVariables(t.Context(), v.Set([]int32{5, 7})))
	gotI8, gotU64, gotFlags, gotH, gotB, gotD, gotI16, gotI32 := i8s.Make(), u64s.Make(), flags.Make(), hs.Make(), bs.Make(), ds.Make(), i16s.Make(), i32s.Make()
	gotV, gotC, gotAgain := vs.Make(), cs.Make(), again.Make()
	half, brain := func(v ...float32) (all []num.Float16) {
		for _, f := range v {
			all = append(all, num.Float16From(f))
		}
		return all
	}, func(v ...float32) (all []num.BFloat16) {
		for _, f := range v {
			all = append(all, num.BFloat16From(f))
		}
		return all
	}
	require.NoError(t, s.Run(t.Context(), i8.Feed([]int8{100, 100}), u64.Feed([]uint64{1 << 63, 3}), flag.Feed([]bool{true, false, false, true}), h.Feed(half(1.5, -4)), b.Feed(brain(2, 3)), d.Feed([]float64{1e300, 2}),
		i16.Feed([]int16{-3, 1}), i32.Feed([]int32{1, 2, 3, 4}), i8s.Into(gotI8), u64s.Into(gotU64), flags.Into(gotFlags), hs.Into(gotH), bs.Into(gotB), ds.Into(gotD), i16s.Into(gotI16), i32s.Into(gotI32), vs.Into(gotV), cs.Into(gotC), again.Into(gotAgain)))
	require.Equal(t, []int8{-56, -56}, gotI8)
	require.Equal(t, []uint64{1<<63 + 3, 1<<63 + 3}, gotU64)
	require.Equal(t, []bool{true, false, false, true, true, false, false, true}, gotFlags)
	require.Equal(t, half(-2.5, -2.5), gotH)
	require.Equal(t, brain(5, 5), gotB)
	require.Equal(t, []float64{1e300, 1e300}, gotD)
	require.Equal(t, []int16{-2, -2}, gotI16)
	require.Equal(t, []int32{4, 6}, gotI32)
	require.Equal(t, []int32{12, 12}, gotV)
	require.Equal(t, []float32{3, 3}, gotC)
	require.Equal(t, []float32{6, 6}, gotAgain)
}

// TestCollectivesLearn: replicas that normalise by the mean of all of them, and learn by gradients through it, learn what one replica learns of the whole batch; with Minimize in two micro-batches, and with Optimize of gradients that AllReduce has added up.
func TestCollectivesLearn(t *testing.T) {
	const steps, batch = 4, 8
	build := func(replicas int, given bool, micro int64) (ir *popxl.Ir, x, y popxl.Input[float32], w popxl.Variable[float32], loss popxl.Output[float32]) {
		ir = popxl.New("normalised")
		ir.SetReplicas(replicas)
		ir.SetIterations(steps)
		n := int64(batch / replicas)
		x, y = popxl.NewInput[float32](ir, "x", n), popxl.NewInput[float32](ir, "y", n)
		w = popxl.NewVariable(ir, "w", []float32{0.5, -0.25}, 2)
		h := ops.Tanh(ops.Mul(x.Load(), ops.Slice(w.Tensor(), 0, 0, 1, 1)))
		mean := ops.Div(ops.AllReduce(ops.Mean(h)), popxl.Constant(ir, []float32{float32(replicas)}))
		squares := ops.MSELoss(ops.Mul(ops.Sub(h, mean), ops.Slice(w.Tensor(), 0, 1, 2, 1)), y.Load())
		loss = popxl.NewOutput("loss", squares)
		sgd := optim.NewSGD()
		if !given {
			popxl.Minimize(squares, popxl.Training{Optimizer: sgd, Accumulation: micro}, w)
			return ir, x, y, w, loss
		}
		d := popxl.GradOf(popxl.Gradients(squares, w.Tensor()), w.Tensor())
		popxl.Optimize(sgd, w.By(ops.Div(ops.AllReduce(d), popxl.Constant(ir, []float32{float32(replicas)}))))
		return ir, x, y, w, loss
	}
	for _, micro := range []int64{1, 2} {
		xs, ys := make([]float32, steps*batch*micro), make([]float32, steps*batch*micro)
		r := rand.New(rand.NewPCG(3, 3))
		for i := range xs {
			xs[i], ys[i] = r.Float32(), r.Float32()
		}
		learnt := func(replicas int, given bool) (ws, losses []float32) {
			ir, x, y, w, loss := build(replicas, given, micro)
			require.NoError(t, ir.Err())
			s := open(t, ir)
			losses, ws = loss.Make(), make([]float32, 2*replicas)
			evaluated := loss.Make()
			require.NoError(t, s.Evaluate(t.Context(), x.Feed(xs), y.Feed(ys), loss.Into(evaluated)))
			require.NoError(t, s.Run(t.Context(), x.Feed(xs), y.Feed(ys), loss.Into(losses)))
			require.Equal(t, losses[:replicas*int(micro)], evaluated[:replicas*int(micro)])
			require.NoError(t, s.Variables(t.Context(), w.Into(ws)))
			return ws, losses
		}
		want, _ := learnt(1, false)
		for _, given := range []bool{false, true} {
			if given && micro > 1 {
				continue
			}
			for _, replicas := range []int{2, 4} {
				got, _ := learnt(replicas, given)
				require.InDeltaSlice(t, slices.Repeat(want, replicas), got, 1e-5)
				require.Equal(t, slices.Repeat(got[:2], replicas), got)
			}
		}
	}
}

// TestMistakesOfCollectives: they are added to the main graph, once the number of replicas is known, and no exported model has them.
func TestMistakesOfCollectives(t *testing.T) {
	ir := popxl.New("mistakes")
	ir.SetReplicas(2)
	x := popxl.NewInput[float32](ir, "x", 3).Load()
	ops.Repeat(2, x, func(x tensor) tensor { return ops.AllReduce(x) })
	ops.ReduceScatter(x)
	ops.ReduceScatter(ops.Sum(x))
	popxl.Collect("call", popxl.Collective(9), x)
	popxl.NewOutput("y", ops.AllGather(x))
	ir.SetReplicas(3)
	all := errors(ir)
	require.Len(t, all, 5)
	require.ErrorContains(t, all[0], "ops.AllReduce: it is called within the function of a loop, a choice or a graph")
	require.ErrorContains(t, all[1], "ops.ReduceScatter: x is f32[3], want a first axis that 2 replicas can divide")
	require.ErrorContains(t, all[2], "ops.ReduceScatter: x is f32")
	require.ErrorContains(t, all[3], "call: there is no collective 9")
	require.ErrorContains(t, all[4], "popxl.Ir.SetReplicas: the Ir has an optimizer or a collective already, which depends on the number of replicas: call it before")

	ir = popxl.New("exported")
	ir.SetReplicas(2)
	popxl.NewOutput("y", ops.AllReduce(popxl.NewInput[float32](ir, "x").Load()))
	_, err := ir.Export(t.Context())
	require.ErrorContains(t, err, "collective_test.go:")
	require.ErrorContains(t, err, "ops.AllReduce: 2 replicas exchange a tensor, which only a session computes")
}
