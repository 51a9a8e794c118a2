package samples_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	samples "github.com/popefgen/popefgen/golden/internal/family_samples/want"
	"github.com/popefgen/popefgen/rt"
)

// submission is what one caller has submitted.
type submission struct {
	base   float32
	y      []samples.YSample
	twice  []samples.TwiceSample
	ticket rt.Ticket
}

func submit(t *testing.T, ctx context.Context, r *samples.Runner, n int, base float32) *submission {
	t.Helper()
	s := &submission{base: base, y: make([]samples.YSample, n), twice: make([]samples.TwiceSample, n)}
	x, z := numbers(n, base)
	var err error
	s.ticket, err = r.SubmitSamples(ctx, x, z, s.y, s.twice)
	require.NoError(t, err)
	return s
}

// right waits for the results and compares them.
func (s *submission) right(t *testing.T) {
	t.Helper()
	require.NoError(t, s.ticket.Wait(ctx))
	require.NoError(t, wrong(s.base, s.y, s.twice))
}

// untouched waits for an error, with which no results came.
func (s *submission) untouched(t *testing.T, want error) {
	t.Helper()
	require.ErrorIs(t, s.ticket.Wait(ctx), want)
	require.Equal(t, make([]samples.YSample, len(s.y)), s.y)
	require.Equal(t, make([]samples.TwiceSample, len(s.y)), s.twice)
}

// TestSubmittedSamplesThatWait has callers whose samples wait for each other, since together they are fewer than the
// largest member takes. Who gives up, or is refused, takes nobody along: Shutdown runs what is there, and each
// gets its own, in its order. Close ends them without a result.
func TestSubmittedSamplesThatWait(t *testing.T) {
	for n := range 20 {
		round := float32(n)
		r, err := samples.Open(ctx, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
		require.NoError(t, err)
		first := submit(t, ctx, r, 2, 100+round)
		leaves, cancel := context.WithCancel(ctx)
		second := submit(t, leaves, r, 1, 200+round)
		_, err = r.SubmitSamples(ctx, make([]samples.XSample, 2), make([]samples.ZSample, 1), nil, nil)
		require.ErrorIs(t, err, rt.ErrSamples)
		third := submit(t, ctx, r, 2, 300+round)
		if n < 10 { // at any time: before it has a place, too
			time.Sleep(time.Duration(n) * 10 * time.Microsecond)
		}
		cancel()
		second.untouched(t, context.Canceled)
		if n%2 == 0 {
			require.NoError(t, r.Shutdown(ctx))
			first.right(t)
			third.right(t)
			continue
		}
		require.NoError(t, r.Close())
		first.untouched(t, rt.ErrClosed)
		third.untouched(t, rt.ErrClosed)
	}
}

// TestSubmittedSamplesOfAnyNumber has one caller submit one request behind the other, of all numbers of samples up to
// more than the largest member takes.
func TestSubmittedSamplesOfAnyNumber(t *testing.T) {
	r, err := samples.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	var all []*submission
	for n := range 20 {
		all = append(all, submit(t, ctx, r, n, float32(1000*n)))
	}
	for _, s := range all {
		s.right(t)
	}
}
