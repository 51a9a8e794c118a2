package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSpanCoversAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5000).Draw(t, "n")
		parts := rapid.IntRange(1, maxParts).Draw(t, "parts")
		unit := rapid.IntRange(1, 512).Draw(t, "unit")
		end := 0
		for part := range parts {
			lo, hi := span(n, parts, part, unit)
			if lo != end || hi < lo || hi != n && hi%unit != 0 {
				t.Fatalf("part %d of %d is %d to %d after %d", part, parts, lo, hi, end)
			}
			end = hi
		}
		if end != n {
			t.Fatalf("the parts end at %d, want %d", end, n)
		}
	})
}

func TestLoopVisitsEveryRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := drawShape(t, 0)
		operands := [][]int64{drawBroadcast(t, shape), drawBroadcast(t, shape)}
		l, err := broadcast(shape, operands...)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if l.rows*l.inner != elements(shape) {
			t.Fatalf("%d rows of %d for %v", l.rows, l.inner, shape)
		}
		if l.rows == 0 {
			return
		}
		var c, s cursor
		l.seek(&c, 0)
		coords(shape, func(at []int64, flat int) {
			row, col := flat/l.inner, flat%l.inner
			if col == 0 && row > 0 {
				l.next(&c)
			}
			l.seek(&s, row)
			for k, o := range operands {
				if got, want := c.off[k]+col*l.stride(k), flatten(o, at); got != want || c.off[k] != s.off[k] {
					t.Fatalf("operand %d at %v is %d, after a seek %d, want %d", k, at, got, s.off[k]+col*l.stride(k), want)
				}
			}
		})
	})
}

func TestCut(t *testing.T) {
	require.Equal(t, 0, cut(threads(8), 0, 1))
	require.Equal(t, 1, cut(threads(8), grain, 1))
	require.Equal(t, 2, cut(threads(8), 2*grain, 1))
	require.Equal(t, 1, cut(Serial{}, 100*grain, 1))
	require.Equal(t, 32, cut(threads(8), 100*grain, 1))
	require.Equal(t, maxParts, cut(threads(1000), 100*grain, 1))
}
