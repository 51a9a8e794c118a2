package served_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	familysamples "github.com/popefgen/popefgen/golden/internal/served_family_samples/want"
	served "github.com/popefgen/popefgen/golden/internal/served_samples/want"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve/oip"
	"github.com/popefgen/popefgen/serve/servetest"
)

var ctx = context.Background()

func samples(n int) (x []served.XSample, z []served.ZSample) {
	x, z = make([]served.XSample, n), make([]served.ZSample, n)
	for i := range n {
		x[i].Data = [3]float32{float32(i), 1, 2}
		z[i].Data = float32(i) / 4
	}
	return x, z
}

// TestSamples has a server compute more samples than a request has, and looks at each.
func TestSamples(t *testing.T) {
	r, err := served.Open(ctx, rt.WithBatching(rt.BatchPolicy{Linger: time.Millisecond}))
	require.NoError(t, err)
	defer r.Close()
	var requests atomic.Int64
	c := served.NewClient(servetest.Local(served.Served(r,
		served.Before(func(_ context.Context, in *served.SampleInputs) error {
			requests.Add(1)
			for i := range in.Z {
				in.Z[i].Data++
			}
			return nil
		}),
		served.After(func(_ context.Context, in *served.SampleInputs, out *served.SampleOutputs) error {
			if len(in.X) != len(out.Y) || len(out.Twice) != len(in.Z) {
				return oip.Errorf(oip.Internal, "%d samples of inputs and %d of outputs", len(in.X), len(out.Y))
			}
			return nil
		}))))
	for n := range 3*served.BatchSize + 2 {
		requests.Store(0)
		x, z := samples(n)
		y, twice := make([]served.YSample, n), make([]served.TwiceSample, n)
		require.NoError(t, c.RunSamples(ctx, x, z, y, twice))
		for i := range n {
			require.Equal(t, [2]float32{float32(i) + 3 + 10, 2*float32(i) + 4 + 12}, y[i].Data)
			require.Equal(t, float32(i)/2+2, twice[i].Data)
		}
		require.EqualValues(t, (n+served.BatchSize-1)/served.BatchSize, requests.Load())
	}
	x, z := samples(3)
	require.ErrorIs(t, c.RunSamples(ctx, x, z, make([]served.YSample, 3), make([]served.TwiceSample, 2)), rt.ErrLength)
	require.ErrorIs(t, c.RunSamples(ctx, x[:2], z, make([]served.YSample, 3), make([]served.TwiceSample, 3)), rt.ErrLength)
}

// TestCallersShareBatches has as many clients as a batch has samples: one run computes them.
func TestCallersShareBatches(t *testing.T) {
	var runs atomic.Int64
	r, err := served.Open(ctx, rt.WithBatching(rt.BatchPolicy{Linger: 10 * time.Second}), rt.WithObserver(func(e rt.Event) {
		if e.Kind == rt.EventRequestBegun {
			runs.Add(1)
		}
	}))
	require.NoError(t, err)
	defer r.Close()
	m := served.Served(r)
	require.Equal(t, served.BatchSize, m.Parallel())
	c := served.NewClient(servetest.Local(m))
	before := runs.Load()
	var all sync.WaitGroup
	for range served.BatchSize {
		all.Go(func() {
			x, z := samples(1)
			if err := c.RunSamples(ctx, x, z, make([]served.YSample, 1), make([]served.TwiceSample, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, runs.Load()-before)
}

// TestFamilySamples makes requests of every number of samples, to a model of three sizes.
func TestFamilySamples(t *testing.T) {
	r, err := familysamples.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	c := familysamples.NewClient(servetest.Local(familysamples.Served(r)))
	want, got := familysamples.NewOutputs(), familysamples.NewOutputs()
	for n := 1; n <= familysamples.BatchSize; n++ {
		in := familysamples.NewInputs(n)
		for i := range in.X.Flat() {
			in.X.Flat()[i] = float32(i%7) - 3
		}
		require.NoError(t, r.Run(ctx, in, want))
		require.NoError(t, c.Run(ctx, in, got))
		require.Equal(t, want, got)
		x, z := make([]familysamples.XSample, n), make([]familysamples.ZSample, n)
		for i, row := range in.X.Rows() {
			x[i].Data = *row
		}
		y, twice := make([]familysamples.YSample, n), make([]familysamples.TwiceSample, n)
		require.NoError(t, c.RunSamples(ctx, x, z, y, twice))
		for i, row := range want.Y.Rows() {
			require.Equal(t, *row, y[i].Data)
		}
	}
	require.ErrorContains(t, c.Run(ctx, familysamples.NewInputs(7), got), "of at most [6,3], got [7,3]")
	in := familysamples.NewInputs(2)
	in.X = nil
	require.ErrorIs(t, c.Run(ctx, in, got), rt.ErrNilAnchor)
}

func TestClientAllocatesNothing(t *testing.T) {
	r, err := served.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	c := served.NewClient(servetest.Local(served.Served(r)))
	x, z := samples(9)
	y, twice := make([]served.YSample, 9), make([]served.TwiceSample, 9)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := c.RunSamples(ctx, x, z, y, twice); err != nil {
			t.Fatal(err)
		}
	}))
}
