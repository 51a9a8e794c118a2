package counts_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	counts "github.com/popefgen/popefgen/golden/internal/family_counts/want"
	"github.com/popefgen/popefgen/rt"
)

// TestEveryCount has data decide every number of rows and columns, in the memory of the requests before.
func TestEveryCount(t *testing.T) {
	ctx := context.Background()
	r, err := counts.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	in, out := counts.NewInputs(), counts.NewOutputs()
	for i := range in.X.Flat() {
		in.X.Flat()[i] = float32(i)
	}
	for rows := int64(0); rows <= 3; rows++ {
		for cols := int64(0); cols <= 4; cols++ {
			in.K.Data, in.L.Data = rows, cols
			for _, run := range []func() error{
				func() error { return r.Run(ctx, in, out) },
				func() error {
					ticket, err := r.Submit(ctx, in, out)
					require.NoError(t, err)
					return ticket.Wait(ctx)
				},
			} {
				require.NoError(t, run())
				require.Equal(t, []int{int(rows), int(cols)}, []int{out.Y.Count, out.Y.Count2})
				require.Len(t, out.Y.Flat(), int(rows*cols*2))
				for i := range int(rows) {
					for j := range int(cols) {
						require.Equal(t, [2]float32{float32(2 * (8*i + 2*j)), float32(2 * (8*i + 2*j + 1))}, *out.Y.At(i, j))
					}
				}
			}
			require.Zero(t, testing.AllocsPerRun(3, func() {
				if err := r.Run(ctx, in, out); err != nil {
					t.Fatal(err)
				}
			}))
		}
	}
	for _, beyond := range []int64{-1, 4} {
		in.K.Data, in.L.Data = beyond, 1
		err := r.Run(ctx, in, out)
		require.ErrorIs(t, err, rt.ErrData)
		require.ErrorContains(t, err, `anchor "rows"`)
	}
}
