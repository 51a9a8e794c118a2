package rt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/genrt"
)

func TestRows(t *testing.T) {
	var x [4][1 << 16]float32
	var seen []int
	for i, row := range genrt.Rows(x[:]) {
		require.Same(t, &x[i], row)
		if seen = append(seen, i); i == 2 {
			break
		}
	}
	require.Equal(t, []int{0, 1, 2}, seen)
	for range genrt.Rows(x[:0]) {
		t.Fatal("there is no row")
	}
	sum := float32(0)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		for i, row := range genrt.Rows(x[:]) {
			sum += row[i]
		}
	}))
}
