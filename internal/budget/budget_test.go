package budget

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBudgetRefusesBeforeItCounts takes until nothing is left.
func TestBudgetRefusesBeforeItCounts(t *testing.T) {
	b := New(1000)
	require.NoError(t, b.Take(600, "tables"))
	err := b.Take(401, "node %d", 7)
	require.ErrorIs(t, err, ErrExceeded)
	require.EqualError(t, err, `node 7: it needs 401 B beside the 600 B in use, more than the limit of 1000 B; `+Advice)
	require.EqualValues(t, 600, b.Used())
	require.NoError(t, b.Take(400, "rest"))
	require.EqualValues(t, 1, b.Left(), "0 would leave the limit open")
	b.Give(400)
	require.NoError(t, b.Take(400, "again"))
	require.ErrorIs(t, b.Take(-1, "overflow"), ErrExceeded)
	require.NoError(t, New(math.MaxInt64).Take(math.MinInt64, "overflow"), "the greatest budget holds the greatest number")
}

// TestParts counts what parts take on the whole, each against its own limit, and
// gives it back once.
func TestParts(t *testing.T) {
	whole := New(1000)
	file, engine := whole.Part(0), whole.Part(700).Part(0)
	require.NoError(t, file.Take(600, "file"))
	require.EqualError(t, engine.Take(101, "tables"), `tables: it needs 101 B beside the 600 B in use, more than the limit of 700 B; `+Advice)
	require.NoError(t, engine.Take(100, "tables"))
	require.EqualValues(t, 1, engine.Left())
	require.EqualValues(t, 300, file.Left())
	require.EqualValues(t, 700, whole.Used())
	require.EqualValues(t, 600, file.Used())
	require.NoError(t, whole.Part(5000).Take(4300, "of whom more was allowed"))
	require.ErrorIs(t, whole.Take(1, "more"), ErrExceeded)
	file.Give(100)
	file.Release()
	file.Release()
	engine.Release()
	require.EqualValues(t, 4300, whole.Used())
	require.Same(t, whole, engine.Whole())
	require.Same(t, whole, whole.Whole())
}

// TestContext finds a budget in the contexts below the one it was put into.
func TestContext(t *testing.T) {
	b := New(77)
	ctx, cancel := context.WithCancel(Into(context.Background(), b))
	defer cancel()
	require.Same(t, b, From(ctx))
	require.EqualValues(t, Default(), From(context.Background()).Limit())
	//lint:ignore SA1012 an engine may be made without a context
	require.EqualValues(t, Default(), From(nil).Limit())
}

// TestBudgetCountsOnceUnderContention lets many take what is enough for some.
func TestBudgetCountsOnceUnderContention(t *testing.T) {
	b := New(1000)
	var got sync.Map
	var wait sync.WaitGroup
	for i := range 64 {
		wait.Go(func() {
			part := b.Part(0)
			if part.Take(100, "share") == nil {
				got.Store(i, true)
			} else {
				part.Release()
			}
		})
	}
	wait.Wait()
	n := 0
	got.Range(func(any, any) bool { n++; return true })
	require.Equal(t, 10, n)
	require.EqualValues(t, 1000, b.Used())
}

// TestSaturatingArithmetic adds and multiplies past 63 bits.
func TestSaturatingArithmetic(t *testing.T) {
	require.EqualValues(t, 42, Mul(2, 3, 7))
	require.EqualValues(t, 0, Mul(math.MaxInt64, 2, 0))
	require.EqualValues(t, math.MaxInt64, Mul(1<<40, 1<<40))
	require.EqualValues(t, math.MaxInt64, Mul(1<<62, 2), "one too many")
	require.EqualValues(t, math.MaxInt64-1, Mul(1<<62-1, 2), "just not")
	require.EqualValues(t, math.MaxInt64, Mul(-1, 2))
	require.EqualValues(t, 6, Add(1, 2, 3))
	require.EqualValues(t, math.MaxInt64, Add(math.MaxInt64, 1))
	require.EqualValues(t, math.MaxInt64, Add(-1))
}

// TestSetDefault sets the default and takes that back.
func TestSetDefault(t *testing.T) {
	usual := Default()
	defer SetDefault(0)
	SetDefault(1234)
	require.EqualValues(t, 1234, Default())
	require.EqualValues(t, 1234, New(0).Limit())
	require.EqualValues(t, 99, New(99).Limit())
	SetDefault(0)
	require.InDelta(t, usual, Default(), float64(usual)/2)
}

// TestSizesAsText goes from text to bytes and back.
func TestSizesAsText(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "536870912": 512 << 20, "512MiB": 512 << 20, "512m": 512 << 20, "1.5 GiB": 3 << 29, "2GB": 2e9, "1T": 1 << 40, "10 kB": 10000, "7B": 7,
	} {
		n, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "MiB", "-1", "1e3", "12 parsecs", "9999999TiB", "1.2.3"} {
		_, err := Parse(text)
		require.ErrorContains(t, err, "size", text)
	}
	require.Equal(t, "512 MiB", Text(512<<20))
	require.Equal(t, "1.5 GiB", Text(3<<29))
	require.Equal(t, "999 B", Text(999))
	require.Equal(t, "more than 8 EiB", Text(math.MaxInt64))
}
