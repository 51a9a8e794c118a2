package family_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	family "github.com/popefgen/popefgen/golden/internal/family/want"
	"github.com/popefgen/popefgen/rt"
)

var ctx = context.Background()

func open(t *testing.T, opts ...rt.RunnerOption) *family.Runner {
	t.Helper()
	r, err := family.Open(ctx, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// request returns inputs of these sizes, with numbers that follow from base and the place, and what
// the model makes of them.
func request(batch, seq int, base float32) (*family.Inputs, [][][2]float32) {
	in := family.NewInputs(batch, seq)
	want := make([][][2]float32, batch)
	for i, row := range in.X.Rows() {
		for j := range row {
			v := base + float32(10*i+j)
			row[j] = [3]float32{v, 0, 1}
			m := float32(1 + j%3)
			in.Mask.At(i, j)[0] = m
			want[i] = append(want[i], [2]float32{m * (v + 5), m * (2*v + 6)})
		}
	}
	return in, want
}

func check(t require.TestingT, want [][][2]float32, y *family.Y) {
	require.Equal(t, len(want), y.Batch)
	require.Equal(t, len(want[0]), y.Seq)
	for i, row := range y.Rows() {
		require.Equal(t, want[i], row)
	}
}

// TestEveryRequest runs every size up to the largest member's, the outputs of one request in the memory
// of another.
func TestEveryRequest(t *testing.T) {
	r, out := open(t), family.NewOutputs()
	for batch := 1; batch <= 2; batch++ {
		for seq := 1; seq <= 8; seq++ {
			in, want := request(batch, seq, 1)
			require.NoError(t, r.Run(ctx, in, out))
			check(t, want, out.Y)
			ticket, err := r.Submit(ctx, in, out)
			require.NoError(t, err)
			require.NoError(t, ticket.Wait(ctx))
			check(t, want, out.Y)
			same, _ := request(batch, seq, 1)
			require.Equal(t, same, in, "inputs are only read")
		}
	}
}

// TestRefused gives requests that no member takes. Nothing of outputs changes.
func TestRefused(t *testing.T) {
	r := open(t)
	in, _ := request(2, 8, 0)
	out := family.NewOutputs()
	require.NoError(t, r.Run(ctx, in, out))
	for _, c := range []struct {
		change func(in *family.Inputs)
		want   string
	}{
		{func(in *family.Inputs) { in.X, in.Mask = family.NewX(3, 8), family.NewMask(3, 8) },
			`family.popef: run: Inputs.X.Batch is 3: dimension "batch" has the sizes 1 and 2: give at most 2 elements at a time, or compile the model with --dim batch=…,3`},
		{func(in *family.Inputs) { in.X, in.Mask = family.NewX(2, 9), family.NewMask(2, 9) }, `Inputs.X.Seq is 9: dimension "seq" has the sizes 4 and 8`},
		{func(in *family.Inputs) { in.X, in.Mask = family.NewX(0, 4), family.NewMask(0, 4) }, "give at least 1"},
		{func(in *family.Inputs) { in.X, in.Mask = &family.X{Batch: -1, Seq: 4}, &family.Mask{Batch: -1, Seq: 4} }, "give at least 1"},
		{func(in *family.Inputs) { in.Mask = family.NewMask(2, 7) }, `Inputs.Mask.Seq is 7, and Inputs.X.Seq is 8: both are the dimension "seq"`},
		{func(in *family.Inputs) { in.X.Seq, in.Mask.Seq = 7, 7 }, "Inputs.X has 16 elements of 12 bytes, and Batch 2, Seq 7 make 14"},
		{func(in *family.Inputs) { in.X = &family.X{Batch: 2, Seq: 8} }, "Inputs.X has 0 elements"},
	} {
		in, _ := request(2, 8, 0)
		c.change(in)
		err := r.Run(ctx, in, out)
		require.ErrorIs(t, err, rt.ErrSize)
		require.ErrorContains(t, err, c.want)
		var size *rt.SizeError
		require.True(t, errors.As(err, &size))
		require.NotEmpty(t, size.Anchor)
		_, err = r.Submit(ctx, in, out)
		require.ErrorIs(t, err, rt.ErrSize)
		_, err = r.TrySubmit(in, out)
		require.ErrorIs(t, err, rt.ErrSize)
	}
	in.X = nil
	require.ErrorIs(t, r.Run(ctx, in, out), rt.ErrNilAnchor)
}

func TestViews(t *testing.T) {
	x := family.NewX(2, 3)
	x.At(1, 2)[0] = 5
	require.Equal(t, float32(5), x.Flat()[15])
	require.Equal(t, float32(5), x.Row(1)[2][0])
	for _, at := range [][2]int{{0, 3}, {-1, 0}, {2, 0}, {0, -1}} {
		require.Panics(t, func() { x.At(at[0], at[1]) }, at)
	}
	require.Panics(t, func() { x.Row(2) })
	require.Panics(t, func() { family.NewX(-1, 2) })
	require.Panics(t, func() { family.NewX(1<<40, 1<<40) })
	memory := &x.Flat()[0]
	x.Resize(1, 4)
	require.Same(t, memory, &x.Flat()[0])
	require.Len(t, x.Flat(), 12)
	flat := make([]float32, 12)
	x, err := family.XFrom(2, 2, flat)
	require.NoError(t, err)
	flat[11] = 7
	require.Equal(t, float32(7), x.At(1, 1)[2])
	for _, c := range [][2]int{{2, 3}, {-2, -2}, {1 << 40, 1 << 40}} {
		_, err = family.XFrom(c[0], c[1], flat)
		require.ErrorIs(t, err, rt.ErrLength)
	}
	empty, err := family.XFrom(0, 4, nil)
	require.NoError(t, err)
	require.Empty(t, empty.Flat())
	require.Equal(t, []family.Size{family.Batch1Seq4, family.Batch2Seq4, family.Batch2Seq8}, family.Sizes())
	require.Equal(t, "Batch2Seq8", family.Batch2Seq8.String())
	require.Equal(t, "Size(9)", family.Size(9).String())
}
