package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestHistogram compares a histogram, and one that was merged from two, with
// the sorted durations.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 2000), rapid.Int64Range(0, 1<<62)), 1, 300).Draw(t, "durations")
		cut := rapid.IntRange(0, len(all)).Draw(t, "cut")
		var whole, merged, other Histogram
		sum := 0.0
		for i, d := range all {
			all[i] = d / int64(len(all)) // so that the sum is an int64
			whole.Add(time.Duration(all[i]))
			sum += float64(all[i])
		}
		for _, d := range all[:cut] {
			merged.Add(time.Duration(d))
		}
		for _, d := range all[cut:] {
			other.Add(time.Duration(d))
		}
		merged.Merge(&other)
		require.Equal(t, whole, merged)
		slices.Sort(all)
		n := len(all)
		require.EqualValues(t, n, whole.Count())
		require.EqualValues(t, all[0], whole.Min())
		require.EqualValues(t, all[n-1], whole.Max())
		require.InDelta(t, sum/float64(n), float64(whole.Mean()), 1+1e-9*sum)
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
			rank := 0
			for rank+1 < n && float64(rank+1) < q*float64(n) {
				rank++
			}
			exact := float64(all[rank])
			require.InDelta(t, exact, float64(whole.Percentile(q)), 0.004*exact, "percentile %v of %v", q, all)
		}
	})
}

func TestHistogramEmpty(t *testing.T) {
	var h, o Histogram
	h.Merge(&o)
	require.Equal(t, Histogram{}, h)
	require.Zero(t, h.Percentile(0.5)+h.Mean()+h.Min()+h.Max())
	h.Add(-time.Second)
	require.Zero(t, h.Max())
	require.EqualValues(t, 1, h.Count())
}
