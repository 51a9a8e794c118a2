package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

func TestSpanCoversAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5000).Draw(t, "n")
		parts := rapid.IntRange(1, tensor.MaxParts).Draw(t, "parts")
		unit := rapid.IntRange(1, 512).Draw(t, "unit")
		end := 0
		for part := range parts {
			lo, hi := tensor.Span(n, parts, part, unit)
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
		shape := kerneltest.DrawShape(t, 0)
		operands := [][]int64{kerneltest.DrawBroadcast(t, shape), kerneltest.DrawBroadcast(t, shape)}
		l, err := tensor.Broadcast(shape, operands...)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if l.Rows*l.Inner != tensor.Elements(shape) {
			t.Fatalf("%d rows of %d for %v", l.Rows, l.Inner, shape)
		}
		if l.Rows == 0 {
			return
		}
		var c, s tensor.Cursor
		l.Seek(&c, 0)
		kerneltest.Coords(shape, func(at []int64, flat int) {
			row, col := flat/l.Inner, flat%l.Inner
			if col == 0 && row > 0 {
				l.Next(&c)
			}
			l.Seek(&s, row)
			for k, o := range operands {
				if got, want := c.Off[k]+col*l.Stride(k), kerneltest.Flatten(o, at); got != want || c.Off[k] != s.Off[k] {
					t.Fatalf("operand %d at %v is %d, after a seek %d, want %d", k, at, got, s.Off[k]+col*l.Stride(k), want)
				}
			}
		})
	})
}

func TestCut(t *testing.T) {
	require.Equal(t, 0, tensor.Cut(kerneltest.Threads(8), 0, 1))
	require.Equal(t, 1, tensor.Cut(kerneltest.Threads(8), tensor.Grain, 1))
	require.Equal(t, 2, tensor.Cut(kerneltest.Threads(8), 2*tensor.Grain, 1))
	require.Equal(t, 1, tensor.Cut(tensor.Serial{}, 100*tensor.Grain, 1))
	require.Equal(t, 32, tensor.Cut(kerneltest.Threads(8), 100*tensor.Grain, 1))
	require.Equal(t, tensor.MaxParts, tensor.Cut(kerneltest.Threads(1000), 100*tensor.Grain, 1))
}
