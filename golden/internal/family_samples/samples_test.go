package samples_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	samples "github.com/popefgen/popefgen/golden/internal/family_samples/want"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/rt"
)

var ctx = context.Background()

// numbers returns n samples that say whose they are.
func numbers(n int, base float32) (x []samples.XSample, z []samples.ZSample) {
	x, z = make([]samples.XSample, n), make([]samples.ZSample, n)
	for i := range n {
		x[i].Data = [3]float32{base + float32(i), 0, 1}
		z[i].Data[0] = base - float32(i)
	}
	return x, z
}

func wrong(base float32, y []samples.YSample, twice []samples.TwiceSample) error {
	for i := range y {
		v := base + float32(i)
		if y[i].Data != [2]float32{v + 5, 2*v + 6} || twice[i].Data[0] != 2*(base-float32(i)) {
			return fmt.Errorf("sample %d of %v: %v and %v", i, base, y[i], twice[i])
		}
	}
	return nil
}

// TestEachGetsItsOwn has 64 callers with 1 to 15 samples each, synchronous and submitted, on one replica and two.
func TestEachGetsItsOwn(t *testing.T) {
	for _, opts := range [][]rt.RunnerOption{nil, {rt.WithReplicas(2)}, {rt.WithBatching(rt.BatchPolicy{Linger: 50_000})}, {rt.Timed()}} {
		r, err := samples.Open(ctx, opts...)
		require.NoError(t, err)
		var all sync.WaitGroup
		failed := make(chan error, 64)
		for caller := range 64 {
			all.Go(func() {
				for round := range 20 {
					n := 1 + (caller+round*7)%15
					base := float32(caller*1000 + round*20)
					x, z := numbers(n, base)
					y, twice := make([]samples.YSample, n), make([]samples.TwiceSample, n)
					var err error
					if caller%3 == 0 {
						var ticket rt.Ticket
						if ticket, err = r.SubmitSamples(ctx, x, z, y, twice); err == nil {
							err = ticket.Wait(ctx)
						}
					} else {
						err = r.RunSamples(ctx, x, z, y, twice)
					}
					if err == nil {
						err = wrong(base, y, twice)
					}
					if err != nil {
						failed <- err
						return
					}
				}
			})
		}
		all.Wait()
		require.NoError(t, r.Shutdown(ctx))
		close(failed)
		for err := range failed {
			t.Error(err)
		}
	}
}

// TestRequestsBesideSamples has requests of any size run between samples.
func TestRequestsBesideSamples(t *testing.T) {
	r, err := samples.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	var all sync.WaitGroup
	failed := make(chan error, 64)
	for caller := range 64 {
		all.Go(func() {
			in, out := samples.NewInputs(1), samples.NewOutputs()
			for round := range 20 {
				n, base := 1+(caller+round)%6, float32(100*caller+round)
				x, z := numbers(n, base)
				y, twice := make([]samples.YSample, n), make([]samples.TwiceSample, n)
				if caller%2 == 0 {
					in.X.Resize(n)
					in.Z.Resize(n)
					for i := range n {
						*in.X.At(i) = x[i].Data
						*in.Z.At(0, i) = z[i].Data[0]
					}
					if err := r.Run(ctx, in, out); err != nil {
						failed <- err
						return
					}
					for i := range n {
						y[i].Data, twice[i].Data[0] = *out.Y.At(i), *out.Twice.At(0, i)
					}
				} else if err := r.RunSamples(ctx, x, z, y, twice); err != nil {
					failed <- err
					return
				}
				if err := wrong(base, y, twice); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
}

// TestBatchesCountOnTheBudget has the memory of a batch refused with one byte less than the runner needs with it. What
// needs no batch is computed, and once the runner is closed nothing is left.
func TestBatchesCountOnTheBudget(t *testing.T) {
	whole := budget.New(1 << 40)
	gather := rt.WithBatching(rt.BatchPolicy{Linger: time.Microsecond})
	three := func(r *samples.Runner) error {
		x, z := numbers(3, 7)
		y, twice := make([]samples.YSample, 3), make([]samples.TwiceSample, 3)
		if err := r.RunSamples(ctx, x, z, y, twice); err != nil {
			return err
		}
		return wrong(7, y, twice)
	}
	r, err := samples.Open(budget.Into(ctx, whole), gather)
	require.NoError(t, err)
	opened := whole.Used()
	require.NoError(t, three(r))
	need := whole.Used()
	require.EqualValues(t, 2*6*4*(3+1+2+1), need-opened, "what two of the largest members take, of four tensors")
	require.NoError(t, three(r))
	require.Equal(t, need, whole.Used())
	require.NoError(t, r.Close())
	require.Zero(t, whole.Used())

	r, err = samples.Open(budget.Into(ctx, whole), gather, rt.WithEngineOption("memory", strconv.FormatInt(need-1, 10)))
	require.NoError(t, err)
	require.ErrorIs(t, three(r), budget.ErrExceeded)
	x, z := numbers(6, 7)
	y, twice := make([]samples.YSample, 6), make([]samples.TwiceSample, 6)
	require.NoError(t, r.RunSamples(ctx, x, z, y, twice), "a whole batch, in the caller's memory")
	require.NoError(t, wrong(7, y, twice))
	require.NoError(t, r.Shutdown(ctx), "nobody is left inside")
	require.Zero(t, whole.Used())
}
