package packing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/rt"
)

// at is a place without separator, by row and column of rows of 8.
func at(row, column, n int) Place { return Place{Start: 8*row + column, N: n} }

// TestPackingPlan compares the places of sequences in 4 rows of 8 with tables that were
// made by hand.
// Feature 89.
func TestPackingPlan(t *testing.T) {
	lengths := []int{3, 5, 2, 8, 1, 4, 6}
	for name, c := range map[string]struct {
		policy rt.PackPolicy
		want   []Place
	}{
		"end to end": {rt.PackPolicy{Algorithm: rt.PackEndToEnd},
			[]Place{at(0, 0, 3), at(0, 3, 5), at(1, 0, 2), at(1, 2, 8), at(2, 2, 1), at(2, 3, 4), at(2, 7, 6)}},
		"first fit": {rt.PackPolicy{Algorithm: rt.PackFirstFit},
			[]Place{at(0, 0, 3), at(0, 3, 5), at(1, 0, 2), at(2, 0, 8), at(1, 2, 1), at(1, 3, 4), at(3, 0, 6)}},
		"next fit": {rt.PackPolicy{Algorithm: rt.PackNextFit}, // 6 would not fit behind 1 and 4
			[]Place{at(0, 0, 3), at(0, 3, 5), at(1, 0, 2), at(2, 0, 8), at(3, 0, 1), at(3, 1, 4)}},
		"next fit, 4 entries": {rt.PackPolicy{MaxEntries: 4},
			[]Place{at(0, 0, 3), at(0, 3, 5), at(1, 0, 2), at(2, 0, 8)}},
		"first fit, a zero between": {rt.PackPolicy{Algorithm: rt.PackFirstFit, Separator: 1}, // 5 + 1 + 3 is more than 8
			[]Place{at(0, 0, 3), at(1, 0, 5), {Start: 4, N: 2, Gap: 1}, at(2, 0, 8), {Start: 7, N: 1, Gap: 1}, at(3, 0, 4)}},
		"next fit, two zeros between": {rt.PackPolicy{Separator: 2},
			[]Place{at(0, 0, 3), at(1, 0, 5), at(2, 0, 2), at(3, 0, 8)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Plan(lengths, 4, 8, c.policy)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	for _, c := range []struct {
		n         int
		algorithm rt.PackAlgorithm
		fits      bool
	}{{9, rt.PackNextFit, false}, {9, rt.PackFirstFit, false}, {9, rt.PackEndToEnd, true}, {32, rt.PackEndToEnd, true}, {33, rt.PackEndToEnd, false}, {0, rt.PackNextFit, false}} {
		_, err := Plan([]int{1, c.n}, 4, 8, rt.PackPolicy{Algorithm: c.algorithm})
		if c.fits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, rt.ErrSequence, "%d, %v", c.n, c.algorithm)
			require.ErrorContains(t, err, "sequence 1: ")
		}
	}
}

// TestPlaces puts random sequences into random inputs: they never overlap, keep
// their rows and their distance, and first fit takes at least what next fit does.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, length := rapid.IntRange(1, 6).Draw(t, "rows"), rapid.IntRange(1, 12).Draw(t, "length")
		lengths := rapid.SliceOf(rapid.IntRange(1, length)).Draw(t, "lengths")
		p := rt.PackPolicy{Separator: rapid.IntRange(0, 3).Draw(t, "separator"), MaxEntries: rapid.IntRange(0, 9).Draw(t, "most"), Timeout: time.Second}
		taken := map[rt.PackAlgorithm]int{}
		for _, p.Algorithm = range []rt.PackAlgorithm{rt.PackNextFit, rt.PackFirstFit, rt.PackEndToEnd} {
			if p.Algorithm == rt.PackEndToEnd {
				p.Separator = 0
			}
			places, err := Plan(lengths, rows, length, p)
			require.NoError(t, err)
			l := New(rows, length, rows*length, p)
			owner := make([]int, rows*length)
			end := 0
			for i, place := range places {
				require.Equal(t, lengths[i], place.N)
				require.False(t, l.Full(), "%d were taken", i)
				_, ok := l.Add(lengths[i])
				require.True(t, ok)
				for at := place.Start - place.Gap; at < place.Start+place.N; at++ {
					require.Zero(t, owner[at], "%d lies over %d", i, owner[at]-1)
					owner[at] = i + 1
				}
				switch {
				case p.Algorithm == rt.PackEndToEnd:
					require.Equal(t, end, place.Start)
				case place.Start%length != 0:
					require.Equal(t, p.Separator, place.Gap)
					require.NotZero(t, owner[place.Start-place.Gap-1], "something stands before the separator")
				default:
					require.Zero(t, place.Gap)
				}
				if p.Algorithm != rt.PackEndToEnd {
					require.Equal(t, place.Start/length, (place.Start+place.N-1)/length, "rows")
				}
				if p.Algorithm == rt.PackNextFit {
					require.GreaterOrEqual(t, place.Start, end, "order")
				}
				end = place.Start + place.N
			}
			l.Rest(func(start, n int) {
				for i := start; i < start+n; i++ {
					require.Zero(t, owner[i])
					owner[i] = -1
				}
			})
			require.NotContains(t, owner, 0)
			if n := len(places); n < len(lengths) {
				_, ok := l.Add(lengths[n])
				require.False(t, ok)
			} else if l.Full() {
				_, ok := l.Add(1)
				require.False(t, ok)
			} else {
				_, ok := l.Add(1)
				require.True(t, ok, "it is not full")
			}
			taken[p.Algorithm] = len(places)
			l.Reset()
			require.Zero(t, testing.AllocsPerRun(1, func() { l.Add(1); l.Reset() }))
		}
		require.GreaterOrEqual(t, taken[rt.PackFirstFit], taken[rt.PackNextFit])
		require.GreaterOrEqual(t, taken[rt.PackEndToEnd], taken[rt.PackFirstFit], "rows waste nothing")
	})
}
