package popxl_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// TestReplicaShapes: inputs and outputs are [7, 2, 5, 9, 9], by number; each replica adds up its own.
//
// Row 97.
func TestReplicaShapes(t *testing.T) {
	const d, r, size = 7, 2, 5 * 9 * 9
	ir := popxl.New("replicas")
	ir.SetReplicas(r)
	ir.SetIterations(d)
	x := popxl.NewInput[int32](ir, "x", 5, 9, 9)
	sum := popxl.NewVariable(ir, "sum", make([]int32, size), 5, 9, 9)
	sum.Assign(ops.Add(sum.Tensor(), x.Load()))
	y, same := popxl.NewOutput("y", sum.Tensor()), popxl.NewOutput("same", x.Load())
	s, err := popxl.NewSession(t.Context(), ir, popxl.IPUModel)
	require.NoError(t, err)
	defer s.Close()

	data := make([]int32, (d+3)*r*size)
	for i := range data {
		data[i] = int32(i)
	}
	sums, copied := y.Make(), same.Make()
	require.Len(t, sums, d*r*size)
	var wantSums []int32
	total := make([]int32, r*size)
	for i := range d {
		for j := range total {
			total[j] += data[i*r*size+j]
		}
		wantSums = append(wantSums, total...)
	}
	used := -1
	require.NoError(t, s.In(t.Context(), func() error { return s.Run(t.Context(), x.FeedFrom(data, &used), y.Into(sums), same.Into(copied)) }))
	require.Equal(t, wantSums, sums)
	require.Equal(t, data[:d*r*size], copied)
	require.Equal(t, d, used, "the rest is not read")

	first, both := make([]int32, size), make([]int32, r*size)
	require.NoError(t, s.Variables(t.Context(), sum.Into(first)))
	require.NoError(t, s.Variables(t.Context(), sum.Into(both)))
	require.Equal(t, total[:size], first)
	require.Equal(t, total, both, "each replica has its own")

	require.NoError(t, s.In(t.Context(), func() error {
		for _, tt := range []struct {
			err  error
			is   error
			want string
		}{
			{s.Run(t.Context(), x.Feed(data)), nil, `replicas: run: input "x": 8100 elements, want the 5670 of shape [7,2,5,9,9]`},
			{s.Run(t.Context(), x.FeedFrom(data[:d*size*r-size], &used)), nil, `replicas: run: input "x": 5265 elements, want the 5670 of shape [7,2,5,9,9]`},
			{s.Run(t.Context(), x.FeedFrom(data[:(d+1)*size*r-size], &used)), nil, `replicas: run: input "x": 6075 elements, want the 5670 of shape [7,2,5,9,9]`},
			{s.Run(t.Context(), x.FeedFrom(data[:5*size*r], &used)), rt.ErrEndOfData, `replicas: run: input "x": 5 tensors of shape [5,9,9] of each of 2 replicas, want the 7 that a run loads: `},
			{s.Run(t.Context(), x.Feed(data[:5*size*r])), rt.ErrEndOfData, `5 tensors of shape [5,9,9] of each of 2 replicas`},
			{s.Run(t.Context(), x.Feed(data[:d*size*r]), y.Into(sums[1:])), nil, `replicas: run: output "y": 5669 elements, want the 5670 of shape [7,2,5,9,9]`},
			{s.Variables(t.Context(), sum.Into(both[1:])), nil, `replicas: read variables: variable "sum": 809 elements, want the 405 of shape [5,9,9]`},
		} {
			require.ErrorContains(t, tt.err, tt.want)
			if tt.is != nil {
				require.ErrorIs(t, tt.err, tt.is)
			}
		}
		require.Equal(t, d, used)
		return nil
	}))
	require.NoError(t, s.Variables(t.Context(), sum.Into(both)))
	require.Equal(t, total, both, "nothing has run")
}

// TestReplicasAreApart: each has its own variables, whose values are set and read alone or for all, its own random numbers, and the state of scopes.
func TestReplicasAreApart(t *testing.T) {
	ctx := t.Context()
	ir := popxl.New("apart")
	ir.SetReplicas(3)
	seed := popxl.NewInput[uint32](ir, "seed", 2)
	drawn := popxl.NewOutput("drawn", ops.RandomUniform[float32](seed.Load(), 0, 1, 4))
	n := popxl.NewVariable(ir, "n", []int32{5})
	n.Assign(ops.Add(n.Tensor(), n.Tensor()))
	s, err := popxl.NewSession(ctx, ir, popxl.IPUModel)
	require.NoError(t, err)
	defer s.Close()
	require.False(t, s.Attached())
	require.ErrorIs(t, s.Run(ctx), popxl.ErrDetached)
	require.ErrorIs(t, s.WeightsToHost(ctx), popxl.ErrDetached)

	all := make([]int32, 3)
	read := func() []int32 {
		require.NoError(t, s.Variables(ctx, n.Into(all)))
		return all
	}
	require.Equal(t, []int32{5, 5, 5}, read())
	require.NoError(t, s.SetVariables(ctx, n.Set([]int32{1, 2, 3})))
	scope, err := s.Attach(ctx)
	require.NoError(t, err)
	require.True(t, s.Attached())
	out := drawn.Make()
	run := func() { require.NoError(t, s.Run(ctx, seed.Feed([]uint32{1, 0, 2, 0, 1, 0}), drawn.Into(out))) }
	run()
	require.NotEqual(t, out[:4], out[4:8], "of other seeds")
	require.Equal(t, out[:4], out[8:], "of the same seed")
	require.Equal(t, []int32{2, 4, 6}, read())
	run()
	require.NoError(t, s.WeightsFromHost(ctx), "what the run changed is lost")
	require.Equal(t, []int32{2, 4, 6}, read())
	require.NoError(t, s.SetVariables(ctx, n.Set([]int32{7})))
	run()
	require.NoError(t, s.WeightsToHost(ctx))
	require.Equal(t, []int32{14, 14, 14}, read())
	require.NoError(t, s.Evaluate(ctx, seed.Feed(make([]uint32, 6)), drawn.Into(out)))
	require.Equal(t, []int32{14, 14, 14}, read())
	run()
	require.NoError(t, scope.Close())
	require.False(t, s.Attached())
	require.Equal(t, []int32{28, 28, 28}, read())
}

// TestReplicasAllocateNothing: a run of several replicas neither.
func TestReplicasAllocateNothing(t *testing.T) {
	ir, x, y := doubling(2)
	s, err := popxl.NewSession(t.Context(), ir, popxl.IPUModel, rt.WithThreads(1))
	require.NoError(t, err)
	defer s.Close()
	in, out := make([]float32, 4), y.Make()
	ctx := t.Context()
	require.NoError(t, s.In(ctx, func() error {
		feed, into := x.Feed(in), y.Into(out)
		require.Zero(t, testing.AllocsPerRun(20, func() { _ = s.Run(ctx, feed, into) }))
		return nil
	}))
}

// TestNarrow: numbers of 64 bits become those of 32 that the input has, and one that does not fit is an error with its place; a longer slice of them is as any other.
//
// Row 97.
func TestNarrow(t *testing.T) {
	ir := popxl.New("narrow")
	i, u, f := popxl.NewInput[int32](ir, "i", 2), popxl.NewInput[uint32](ir, "u", 2), popxl.NewInput[float32](ir, "f", 2)
	is, us, fs := popxl.NewOutput("is", i.Load()), popxl.NewOutput("us", u.Load()), popxl.NewOutput("fs", f.Load())
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	defer s.Close()
	ints, uints, floats := is.Make(), us.Make(), fs.Make()
	run := func(bindings ...popxl.Binding) error {
		return s.In(t.Context(), func() error {
			return s.Run(t.Context(), append(bindings, is.Into(ints), us.Into(uints), fs.Into(floats))...)
		})
	}
	require.NoError(t, run(popxl.Narrow(i, []int64{math.MinInt32, math.MaxInt32}), popxl.Narrow(u, []uint64{0, math.MaxUint32}), popxl.Narrow(f, []float64{0.1, math.Inf(1)})))
	require.Equal(t, []int32{math.MinInt32, math.MaxInt32}, ints)
	require.Equal(t, []uint32{0, math.MaxUint32}, uints)
	require.Equal(t, []float32{0.1, float32(math.Inf(1))}, floats)
	require.NoError(t, run(popxl.Narrow(i, []float64{-3, 4}), popxl.Narrow(u, []int64{5, 6}), popxl.Narrow(f, []int64{7, 1 << 60})))
	require.Equal(t, []int32{-3, 4}, ints)
	require.Equal(t, []float32{7, 1 << 60}, floats)

	good := []popxl.Binding{i.Feed([]int32{1, 2}), u.Feed([]uint32{1, 2}), f.Feed([]float32{1, 2})}
	for want, b := range map[string]popxl.Binding{
		`narrow: run: input "i": element 1 is 2147483648, which i32 does not hold`:           popxl.Narrow(i, []int64{0, 1 << 31}),
		`narrow: run: input "i": element 0 is -2147483649, which i32 does not hold`:          popxl.Narrow(i, []int64{-1<<31 - 1, 0}),
		`narrow: run: input "i": element 0 is 18446744073709551615, which i32 does not hold`: popxl.Narrow(i, []uint64{math.MaxUint64, 0}),
		`narrow: run: input "i": element 1 is 0.5, which i32 does not hold`:                  popxl.Narrow(i, []float64{0, 0.5}),
		`narrow: run: input "i": element 0 is NaN, which i32 does not hold`:                  popxl.Narrow(i, []float64{math.NaN(), 0}),
		`narrow: run: input "u": element 1 is -1, which u32 does not hold`:                   popxl.Narrow(u, []int64{0, -1}),
		`narrow: run: input "u": element 0 is 4294967296, which u32 does not hold`:           popxl.Narrow(u, []uint64{1 << 32, 0}),
		`narrow: run: input "f": element 0 is 1e+300, which f32 does not hold`:               popxl.Narrow(f, []float64{1e300, 0}),
		`narrow: run: input "f": 3 elements, want the 2 of shape [2]`:                        popxl.Narrow(f, []float64{1, 2, 3}),
	} {
		bindings := append([]popxl.Binding{}, good...)
		bindings[map[byte]int{'i': 0, 'u': 1, 'f': 2}[want[len(`narrow: run: input "`)]]] = b
		require.ErrorContains(t, run(bindings...), want)
	}
}

// TestFeedBytes: 8-bit floats are fed as what they are, a byte each.
//
// Row 97.
func TestFeedBytes(t *testing.T) {
	ir := popxl.New("bytes")
	x := popxl.NewInput[num.Float8E4M3](ir, "x", 3)
	y := popxl.NewOutput("y", x.Load())
	s, err := popxl.NewSession(t.Context(), ir)
	require.NoError(t, err)
	defer s.Close()
	in, out := []num.Float8E4M3{0x38, 0x80, 0x01}, y.Make()
	require.NoError(t, s.In(t.Context(), func() error { return s.Run(t.Context(), x.Feed(in), y.Into(out)) }))
	require.Equal(t, in, out)
}
