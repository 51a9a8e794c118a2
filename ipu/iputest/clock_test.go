package iputest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClock(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := NewClock()
	start := c.Now()
	woken := make(chan int, 3)
	for i, d := range []time.Duration{3 * time.Second, time.Second} {
		go func() {
			if c.Sleep(ctx, d) == nil {
				woken <- i
			}
		}()
		require.NoError(t, c.AwaitSleepers(ctx, i+1))
	}
	third := c.After(2 * time.Second)
	require.NoError(t, c.AwaitSleepers(ctx, 3))
	require.Equal(t, []time.Duration{3 * time.Second, time.Second}, c.Slept())

	c.Advance(time.Second - 1)
	require.Empty(t, woken)
	c.Advance(1)
	require.Equal(t, 1, <-woken)
	c.Advance(time.Minute)
	require.Equal(t, 0, <-woken)
	require.Equal(t, start.Add(2*time.Second), <-third, "the time at which it was due")
	require.Equal(t, start.Add(time.Minute+time.Second), c.Now())
	c.Advance(-time.Hour)
	require.Equal(t, start.Add(time.Minute+time.Second), c.Now(), "time does not go back")
	require.NoError(t, c.Sleep(ctx, 0))
	require.Equal(t, c.Now(), <-c.After(-1))
}

func TestClockCancelled(t *testing.T) {
	c := NewClock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Sleep(ctx, time.Hour) }()
	require.NoError(t, c.AwaitSleepers(ctx, 1))
	waiting := make(chan error)
	go func() { waiting <- c.AwaitSleepers(ctx, 2) }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.ErrorIs(t, <-waiting, context.Canceled)
	require.NoError(t, c.AwaitSleepers(ctx, 0))
	require.Empty(t, c.sleepers)
	require.ErrorIs(t, c.Sleep(ctx, time.Hour), context.Canceled)
	require.ErrorIs(t, NewAutoClock().Sleep(ctx, time.Hour), context.Canceled)
}

func TestAutoClock(t *testing.T) {
	c := NewAutoClock()
	start := c.Now()
	due := c.After(time.Second)
	require.NoError(t, c.Sleep(context.Background(), time.Hour))
	require.Equal(t, start.Add(time.Second), <-due)
	require.Equal(t, start.Add(time.Hour), c.Now())
}
