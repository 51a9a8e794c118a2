package plan

import (
	"context"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestInUse compares what the index finds with what a look at every buffer does.
func TestInUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const steps = 40
		draw := func() *Buffer {
			first := rapid.IntRange(0, steps-1).Draw(t, "first")
			return &Buffer{First: first, Last: rapid.IntRange(first, steps-1).Draw(t, "last")}
		}
		index, all := newInUse(steps), map[*Buffer]bool{}
		for range rapid.IntRange(0, 30).Draw(t, "buffers") {
			u := draw()
			index.add(u)
			all[u] = true
		}
		u := draw()
		found := map[*Buffer]bool{}
		for _, o := range index.with(u, nil) {
			require.False(t, found[o], "found twice")
			found[o] = true
		}
		for o := range all {
			require.Equal(t, o.First <= u.Last && u.First <= o.Last, found[o], "%+v beside %+v", o, u)
		}
	})
}

// TestLayOutManyAtOnce lays out as many buffers as a plan may have steps, all of
// them in use at the end: to compare each with all others would take minutes.
func TestLayOutManyAtOnce(t *testing.T) {
	buffers := make([]Buffer, maxSteps)
	for i := range buffers {
		buffers[i] = Buffer{Bytes: 64, First: i, Last: maxSteps}
	}
	total, err := layOut(context.Background(), buffers, 1<<20)
	require.NoError(t, err)
	require.EqualValues(t, 64*maxSteps, total)
	taken := map[int64]bool{}
	for _, u := range buffers {
		require.False(t, taken[u.Offset], "two at %d", u.Offset)
		taken[u.Offset] = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = layOut(ctx, buffers, placeEffort)
	require.ErrorIs(t, err, context.Canceled)
}

// TestRoundUp bounds what rounding adds.
func TestRoundUp(t *testing.T) {
	for n := int64(0); n < 1<<16; n += 61 {
		r := roundUp(n)
		require.Zero(t, r%align.Line)
		require.GreaterOrEqual(t, r, n)
		require.LessOrEqual(t, r, max(align.Up(n), n+n/3))
	}
}

func TestLayOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		buffers := make([]Buffer, rapid.IntRange(0, 40).Draw(t, "buffers"))
		live := map[int]int64{}
		var sum, peak int64
		for i := range buffers {
			first := rapid.IntRange(0, 20).Draw(t, "first")
			u := Buffer{Bytes: int64(rapid.IntRange(0, 1000).Draw(t, "bytes")), First: first, Last: first + rapid.IntRange(0, 8).Draw(t, "steps")}
			buffers[i] = u
			sum += align.Up(u.Bytes)
			for k := u.First; k <= u.Last; k++ {
				live[k] += align.Up(u.Bytes)
				peak = max(peak, live[k])
			}
		}
		effort := rapid.SampledFrom([]int{placeEffort, 100, 0}).Draw(t, "effort")
		total, err := layOut(context.Background(), buffers, effort)
		require.NoError(t, err)
		if effort < placeEffort {
			sum += sum / 3 // rounded up
		}
		require.GreaterOrEqual(t, total, peak)
		require.LessOrEqual(t, total, sum)
		for i, a := range buffers {
			require.Zero(t, a.Offset%align.Line)
			require.LessOrEqual(t, a.Offset+a.Bytes, total)
			for _, b := range buffers[:i] {
				if a.First <= b.Last && b.First <= a.Last && a.Bytes > 0 && b.Bytes > 0 {
					require.True(t, a.Offset+a.Bytes <= b.Offset || b.Offset+b.Bytes <= a.Offset, "%+v and %+v overlap", a, b)
				}
			}
		}
	})
}

func TestLayOutReusesMemory(t *testing.T) {
	buffers := []Buffer{{Bytes: 64, First: 0, Last: 1}, {Bytes: 128, First: 1, Last: 2}, {Bytes: 64, First: 2, Last: 3}, {Bytes: 100, First: 3, Last: 4}}
	total, err := layOut(t.Context(), buffers, placeEffort)
	require.NoError(t, err)
	require.Equal(t, int64(192), total)
}
