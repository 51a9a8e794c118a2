package measure

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSeries(t *testing.T) {
	s := Series{Batch: 2, Rounds: [][]time.Duration{{10, 20, 90}, {12, 14, 16, 400}}}
	require.Equal(t, 5.0, s.Best())
	require.Equal(t, 7.0, s.Median(), "of the second round, whose lower middle is 14")
	require.Equal(t, 200.0, s.P99())
	require.True(t, s.Measured())

	none := Series{}
	require.False(t, none.Measured())
	require.True(t, math.IsNaN(none.Best()))
	require.True(t, math.IsNaN(none.Median()))
	require.True(t, math.IsNaN(none.P99()))
}

func TestQuantile(t *testing.T) {
	times := make([]time.Duration, 100)
	for i := range times {
		times[i] = time.Duration(i + 1)
	}
	require.EqualValues(t, 50, quantile(times, 0.5))
	require.EqualValues(t, 99, quantile(times, 0.99))
	require.EqualValues(t, 1, quantile(times, 0))
	require.EqualValues(t, 100, quantile(times, 1))
	require.EqualValues(t, 1, quantile(times[:1], 0.99))
}

func TestGeometricMean(t *testing.T) {
	require.InDelta(t, 2, GeometricMean([]float64{1, 2, 4}), 1e-12)
	require.True(t, math.IsNaN(GeometricMean(nil)))
}

// TestInterleave checks who runs when, and how often.
func TestInterleave(t *testing.T) {
	var order []byte
	run := func(name byte) func() error {
		return func() error { order = append(order, name); return nil }
	}
	got, err := Interleave(Config{Rounds: 2, Runs: 3},
		Runner{Run: run('a'), Batch: 10}, Runner{}, Runner{Run: run('b'), Slow: true})
	require.NoError(t, err)
	require.Equal(t, "aaaaabbaaaaabb", string(order))
	require.Len(t, got, 3)
	require.Len(t, got[0].Rounds, 2)
	require.Len(t, got[0].Rounds[0], 3)
	require.Equal(t, 10, got[0].Batch)
	require.False(t, got[1].Measured())
	require.Len(t, got[2].Rounds[1], 1)

	broken := errors.New("broken")
	n := 0
	_, err = Interleave(Config{Rounds: 5}, Runner{Run: func() error {
		if n++; n == 3 {
			return broken
		}
		return nil
	}})
	require.ErrorIs(t, err, broken)
	require.Equal(t, 3, n)

	n = 0
	got, err = Interleave(Config{Rounds: 2, Runs: 1},
		Runner{Optional: true, Run: func() error { n++; return broken }},
		Runner{Run: func() error { return nil }})
	require.NoError(t, err, "it goes on without the one that may fail")
	require.Equal(t, 1, n, "which gets no further turn")
	require.ErrorIs(t, got[0].Err, broken)
	require.False(t, got[0].Measured())
	require.Len(t, got[1].Rounds, 2)
}

// TestSlice checks that a turn lasts as long as it should.
func TestSlice(t *testing.T) {
	start := time.Now()
	got, err := Interleave(Config{Rounds: 1, Slice: 20 * time.Millisecond}, Runner{Run: func() error {
		time.Sleep(time.Millisecond)
		return nil
	}})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
	require.NotEmpty(t, got[0].Rounds[0])
	require.GreaterOrEqual(t, got[0].Best(), 1e6)
}

// TestDisturbed checks which turns are repeated.
func TestDisturbed(t *testing.T) {
	n := 0
	asked := []bool{false, true, false, false, true, false, true, true, true, true}
	c := Config{Rounds: 2, Runs: 1, Patience: time.Hour, Disturbed: func() bool {
		was := len(asked) > 0 && asked[0]
		asked = asked[min(1, len(asked)):]
		return was
	}}
	run := func() error { n++; return nil }
	got, err := Interleave(c, Runner{Run: run})
	require.NoError(t, err)
	require.Len(t, got[0].Rounds, 2)
	require.Equal(t, 3*6, n, "after, none; before, both, both, none; every turn has three runs")

	c.Disturbed, c.Patience = func() bool { return true }, 0
	n = 0
	_, err = Interleave(c, Runner{Run: run}, Runner{Run: run, Slow: true})
	require.NoError(t, err)
	require.Equal(t, 2*3+2*2, n, "without patience nothing is repeated")

	c.Patience = time.Hour
	c.Disturbed = func() bool { t.Error("a slow contestant is not watched"); return false }
	_, err = Interleave(c, Runner{Run: run, Slow: true})
	require.NoError(t, err)
}

// TestClock checks that times are read from the clock that is given.
func TestClock(t *testing.T) {
	now := time.Duration(0)
	got, err := Interleave(Config{Rounds: 1, Runs: 4, Clock: func() time.Duration { return now }}, Runner{Run: func() error {
		now += 7
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, []time.Duration{7, 7, 7, 7}, got[0].Rounds[0])
}

func TestJoin(t *testing.T) {
	second := errors.New("second")
	one := []Series{{Batch: 2, Rounds: [][]time.Duration{{4, 6}}}, {}}
	two := []Series{{Batch: 2, Rounds: [][]time.Duration{{2, 8}}}, {Err: second}}
	got := Join(Join(nil, one), two)
	require.Len(t, got, 2)
	require.Equal(t, 1.0, got[0].Best())
	require.Len(t, got[0].Rounds, 2)
	require.ErrorIs(t, got[1].Err, second)
}
