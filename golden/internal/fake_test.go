package golden_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	affine "github.com/popefgen/popefgen/golden/internal/affine/want"
	reexport "github.com/popefgen/popefgen/golden/internal/reexport/want"
	samples "github.com/popefgen/popefgen/golden/internal/samples/want"
	"github.com/popefgen/popefgen/rt"
)

// service is what a user writes on top of a generated package.
type service struct{ model affine.Model }

func (s service) total(ctx context.Context, x [2][3]float32) (sum float32, err error) {
	in, out := affine.NewInputs(), affine.NewOutputs()
	in.X.Data = x
	if err := s.model.Run(ctx, in, out); err != nil {
		return 0, err
	}
	for _, row := range out.Y.Rows() {
		for _, v := range row {
			sum += v
		}
	}
	return sum, nil
}

// TestService tests it with the model and without.
func TestService(t *testing.T) {
	r, err := affine.Open(ctx)
	require.NoError(t, err)
	closing(t, r)
	got, err := service{r}.total(ctx, [2][3]float32{})
	require.NoError(t, err)
	in, out := affine.NewInputs(), affine.NewOutputs()
	require.NoError(t, r.Run(ctx, in, out))
	require.Equal(t, out.Y.Data[0][0]+out.Y.Data[0][1]+out.Y.Data[1][0]+out.Y.Data[1][1], got)

	fake := &affine.Fake{RunFunc: func(_ context.Context, in *affine.Inputs, out *affine.Outputs) error {
		out.Y.Data = [2][2]float32{{1, 2}, {3, in.X.Data[1][2]}}
		return nil
	}}
	got, err = service{fake}.total(ctx, [2][3]float32{1: {2: 10}})
	require.NoError(t, err)
	require.Equal(t, float32(16), got)
	require.NoError(t, fake.RunOn(ctx, 1, in, out), "it runs as on any replica")

	broken := errors.New("broken")
	_, err = service{&affine.Fake{RunFunc: func(context.Context, *affine.Inputs, *affine.Outputs) error { return broken }}}.total(ctx, [2][3]float32{})
	require.ErrorIs(t, err, broken)
}

// TestZeroFake calls methods that have no function.
func TestZeroFake(t *testing.T) {
	var f affine.Fake
	err := f.Run(ctx, nil, nil)
	require.ErrorIs(t, err, rt.ErrNotFaked)
	require.ErrorContains(t, err, "Run: the fake has no function for this method: set RunFunc")
	require.ErrorIs(t, f.RunOn(ctx, 0, nil, nil), rt.ErrNotFaked)
	require.ErrorIs(t, f.UpdateWeights(ctx, rt.Weight{}), rt.ErrNotFaked)
	require.NoError(t, f.Close())
	var given []rt.Weight
	f.UpdateWeightsFunc = func(_ context.Context, w ...rt.Weight) error { given = w; return nil }
	require.NoError(t, f.UpdateWeights(ctx, rt.Weight{Anchor: "a"}, rt.Weight{Anchor: "b"}))
	require.Len(t, given, 2)

	var saves reexport.Model = &reexport.Fake{SaveFunc: func(_ context.Context, out *reexport.SaveOutputs) error {
		out.Seen.Data[1] = 3
		return nil
	}}
	saved := reexport.NewSaveOutputs()
	require.NoError(t, saves.SaveOn(ctx, 2, saved))
	require.Equal(t, float32(3), saved.Seen.Data[1])
	var sampled samples.Model = &samples.Fake{}
	require.ErrorIs(t, sampled.RunSamples(ctx, nil, nil, nil, nil), rt.ErrNotFaked)
}

// TestFakeSubmits has a fake answer submitted requests, at once.
func TestFakeSubmits(t *testing.T) {
	broken := errors.New("broken")
	fake := &affine.Fake{SubmitFunc: func(_ context.Context, in *affine.Inputs, out *affine.Outputs) (rt.Ticket, error) {
		if in.X.Data[0][0] < 0 {
			return rt.Ended(broken), nil
		}
		out.Y.Data[0][0] = 2 * in.X.Data[0][0]
		return rt.Ended(nil), nil
	}}
	in, out := affine.NewInputs(), affine.NewOutputs()
	for x, want := range map[float32]error{3: nil, -3: broken} {
		in.X.Data[0][0] = x
		ticket, err := fake.SubmitOn(ctx, 1, in, out)
		require.NoError(t, err)
		<-ticket.Done()
		require.ErrorIs(t, ticket.Wait(ctx), want)
	}
	require.Equal(t, float32(6), out.Y.Data[0][0])
}
