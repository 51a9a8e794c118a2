//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

// asked counts how often a context is asked for a channel, which it would allocate.
type asked struct {
	context.Context
	times int
}

func (a *asked) Done() <-chan struct{} {
	a.times++
	return a.Context.Done()
}

// TestLongRequests makes requests that take long enough for their contexts to be looked at: they allocate nothing either,
// through rings or by streams that are called.
func TestLongRequests(t *testing.T) {
	t.Setenv("FAKE_POPLAR_NASTY", "latency=3000")
	for name, over := range map[string]func(*windowed) ipu.Stream{
		"rings":  func(w *windowed) ipu.Stream { return w },
		"called": func(w *windowed) ipu.Stream { return struct{ ipu.Stream }{w} },
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := engineOf(t, adder(64, 1, 0))
			a, b, y := rings(t, e, 64, 1)
			for handle, w := range map[string]*windowed{"a": a, "b": b, "y": y} {
				require.NoError(t, e.Connect(handle, over(w)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := &asked{Context: ctx}
			request := func() {
				a.rewind()
				b.rewind()
				y.rewind()
				if err := e.Run(c, 1); err != nil {
					t.Fatal(err)
				}
			}
			request()
			require.Zero(t, testing.AllocsPerRun(10, request))
			require.Zero(t, c.times)
			require.InDelta(t, 0.5, y.get(0), 0)
		})
	}
}

// TestLentContexts has a stream keep the context of a run: it has ended, with the reason, whatever runs later.
func TestLentContexts(t *testing.T) {
	e, _ := engineOf(t, adder(64, 1, 0))
	a, b, y := rings(t, e, 64, 1)
	var kept []context.Context
	errNow := errors.New("now")
	for _, fail := range []error{nil, errNow, nil} {
		require.NoError(t, e.Connect("a", keeping{a, fail, &kept}))
		for _, w := range []*windowed{a, b, y} {
			w.rewind()
		}
		require.ErrorIs(t, e.Run(t.Context(), 1), fail)
		for _, ctx := range kept {
			<-ctx.Done()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.Error(t, context.Cause(ctx))
		}
	}
	require.Len(t, kept, 3)

	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, e.Connect("a", waiting{a}))
	time.AfterFunc(5*time.Millisecond, cancel)
	require.ErrorIs(t, e.Run(ctx, 1), context.Canceled)
}

// keeping keeps the contexts that it is called with, and may fail.
type keeping struct {
	ipu.Stream
	err  error
	kept *[]context.Context
}

func (keeping) Prefetch([]byte) bool { return false }

func (k keeping) Fetch(ctx context.Context, buf []byte) error {
	ctx.Done() // from now on it is this run's alone
	*k.kept = append(*k.kept, ctx)
	return errors.Join(k.err, k.Stream.Fetch(ctx, buf))
}

// waiting waits for what never comes.
type waiting struct{ ipu.Stream }

func (waiting) Prefetch([]byte) bool { return false }

func (waiting) Fetch(ctx context.Context, _ []byte) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
