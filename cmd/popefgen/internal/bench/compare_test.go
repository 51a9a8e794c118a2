package bench

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
)

// TestMedianInterval compares with tables of the binomial distribution: of 40
// numbers the 14th and the 27th bound the median, of 20 the 6th and the 15th.
func TestMedianInterval(t *testing.T) {
	for _, c := range []struct {
		n                 int
		median, low, high float64
	}{
		{6, 2.5, 0, 5}, {9, 4, 1, 7}, {20, 9.5, 5, 14}, {40, 19.5, 13, 26},
	} {
		v := make([]float64, c.n)
		for i := range v {
			v[(i*7)%c.n] = float64(i) // in another order; 7 divides none of them
		}
		median, low, high := medianInterval(v)
		require.Empty(t, cmp.Diff([]float64{c.median, c.low, c.high}, []float64{median, low, high}), "%d numbers", c.n)
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(0.5, 2), 6, 100).Draw(t, "ratios")
		median, low, high := medianInterval(v)
		require.LessOrEqual(t, low, median)
		require.LessOrEqual(t, median, high)
	})
}

// TestCompare compares an option that the engine knows and one that it doesn't.
func TestCompare(t *testing.T) {
	target := scaled(t)
	c := Config{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1, Duration: 80 * time.Millisecond}
	got, err := Compare(context.Background(), target, c, ipu.Option{Name: "layout", Value: "off"})
	require.NoError(t, err)
	require.Equal(t, "layout=off", got.Option)
	require.Equal(t, comparePairs, got.Pairs)
	require.Positive(t, got.Low)
	require.LessOrEqual(t, got.Low, got.Ratio)
	require.LessOrEqual(t, got.Ratio, got.High)
	require.Empty(t, target.Options)

	_, err = Compare(context.Background(), target, c, ipu.Option{Name: "speed", Value: "high"})
	require.ErrorContains(t, err, "compare speed=high")
	require.ErrorContains(t, err, "it is unknown")
}

// TestPairedEnds wants a comparison to end with its context.
func TestPairedEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	target := scaled(t)
	_, err := paired(ctx, [2]*Target{target, target}, Config{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1})
	require.Error(t, err, "no duration")
	cancel()
	_, err = paired(ctx, [2]*Target{target, target}, Config{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1, Duration: time.Hour})
	require.Error(t, err)
}
