package sizes_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt/internal/sizes"
)

// TestPiecesTakeTheLeast compares sequences of members with all that there are.
func TestPiecesTakeTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(rapid.IntRange(1, 12), 1, 4, rapid.ID).Draw(t, "sizes")
		took := make([]float64, len(all))
		f := &family.Family{Dims: []family.Dim{{Name: "batch", Rows: true}}}
		for i, n := range all {
			took[i] = float64(rapid.IntRange(1, 20).Draw(t, "took"))
			f.Members = append(f.Members, family.Member{Sizes: []int64{int64(n)}, Cost: float64(n)})
		}
		p := sizes.NewPieces(f)
		for i := range all {
			p.Took(i, took[i])
		}
		var least func(n int, padded bool) float64
		least = func(n int, padded bool) float64 {
			if n <= 0 {
				return 0
			}
			best := math.Inf(1)
			for i, size := range all {
				if size <= n || padded {
					best = min(best, took[i]+least(n-size, padded))
				}
			}
			return best
		}
		for n := 1; n <= p.Most(); n++ {
			sum, tight, rest := 0.0, 0.0, n
			for rest > 0 {
				m := p.First(rest)
				sum, rest = sum+took[m], rest-p.Size(m)
			}
			require.Equal(t, least(n, true), sum, "%d samples of %v, that take %v", n, all, took)
			require.Equal(t, -rest, p.Over(n))
			for rest = n; rest > 0 && !math.IsInf(tight, 1); {
				m := p.Tight(rest)
				if m < 0 {
					tight = math.Inf(1)
					break
				}
				tight, rest = tight+took[m], rest-p.Size(m)
			}
			require.Equal(t, least(n, false), tight)
		}
	})
}

// TestPiecesAreTriedAgain has a member that was slow while the machine was busy: it is tried again when the others
// were measured for long, and stays away if it is slow still. The first run counts for nothing.
func TestPiecesAreTriedAgain(t *testing.T) {
	f := &family.Family{Dims: []family.Dim{{Name: "batch", Rows: true}}}
	for _, n := range []int64{1, 4} {
		f.Members = append(f.Members, family.Member{Sizes: []int64{n}, Cost: float64(n)})
	}
	p := sizes.NewPieces(f)
	tried := 0
	run := func(times int, four float64) {
		for range times {
			m := p.First(4)
			took := 100.0
			if p.Size(m) == 4 {
				took = four
				tried++
			}
			if p.Due(m) {
				p.Took(m, took)
			}
		}
	}
	for m, first := range []float64{1e6, 1e6} {
		p.Due(m)
		p.Took(m, first)
	}
	p.Due(0)
	p.Took(0, 100)
	require.Equal(t, 4, p.Size(p.First(4)), "its first run is no measurement")
	run(10000, 800)
	require.Equal(t, 1, p.Size(p.First(4)))
	require.LessOrEqual(t, tried, 8)
	run(10000, 800)
	require.LessOrEqual(t, tried, 16)
	run(10000, 200)
	require.Equal(t, 4, p.Size(p.First(4)))
	require.Greater(t, tried, 1000)
}

// TestPiecesUntilMeasured computes nothing twice that a smaller member saves, and takes members whose
// operations may be as fast as those that ran.
func TestPiecesUntilMeasured(t *testing.T) {
	f := &family.Family{Dims: []family.Dim{{Name: "batch", Rows: true}}}
	for _, n := range []int64{1, 4, 16} {
		f.Members = append(f.Members, family.Member{Sizes: []int64{n}, Cost: float64(100 * n)})
	}
	p := sizes.NewPieces(f)
	runs := func(n int) (all []int) {
		for n > 0 {
			m := p.First(n)
			all, n = append(all, p.Size(m)), n-p.Size(m)
		}
		return all
	}
	require.Equal(t, []int{16}, runs(16))
	require.ElementsMatch(t, []int{4, 1}, runs(5))
	p.Took(0, 50)
	require.Equal(t, []int{16}, runs(16))
	p.Took(2, 160) // much less than 16 times as long
	require.Equal(t, []int{4, 4, 4}, runs(9), "that may be as fast, and is tried")
	require.Equal(t, 3, p.Over(9))
	require.Equal(t, []int{4}, runs(4))
	p.Took(1, 1000)
	require.Equal(t, []int{16}, runs(4))
	require.Equal(t, []int{1, 1}, runs(2))
	require.False(t, func() bool { p.Due(0); p.Due(0); p.Due(0); p.Due(0); return p.Due(0) }())
}
