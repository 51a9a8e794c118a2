//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// turns returns how often the thread of the only engine has had a processor. No engine of the process may have called streams of Go: threads that Go begins
// in such a call have the name of the engine's.
func turns(t testing.TB) int {
	names, err := filepath.Glob("/proc/self/task/*/comm")
	require.NoError(t, err)
	var found []string
	for _, name := range names {
		if comm, err := os.ReadFile(name); err == nil && string(comm) == "poplar engine\n" {
			found = append(found, filepath.Dir(name))
		}
	}
	require.Len(t, found, 1, "engines' threads")
	stat, err := os.ReadFile(filepath.Join(found[0], "schedstat"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("this kernel does not tell how often a thread runs: ", err)
	}
	require.NoError(t, err)
	fields := strings.Fields(string(stat))
	require.Len(t, fields, 3)
	n, err := strconv.Atoi(fields[2])
	require.NoError(t, err)
	return n
}

// TestIdle: the thread of an engine that has nothing to do does not run at all, in a process without another engine.
func TestIdle(t *testing.T) {
	const variable = "POPEFGEN_IDLE"
	if os.Getenv(variable) == "" {
		c := exec.Command(os.Args[0], "-test.v", "-test.run", "^TestIdle$")
		c.Env = append(os.Environ(), variable+"=1")
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
		if strings.Contains(string(out), "--- SKIP: TestIdle") {
			t.Skip("this kernel does not tell how often a thread runs: it has no schedstat")
		}
		require.Contains(t, string(out), "--- PASS: TestIdle")
		return
	}
	e, _ := engineOf(t, adder(64, 1, 2))
	rings(t, e, 64, 1)
	require.NoError(t, e.Run(t.Context(), 1))
	before := -1
	for range 50 { // until it has parked, which takes longer on a busy machine
		now := turns(t)
		if now == before {
			break
		}
		before = now
		time.Sleep(200 * time.Millisecond)
	}
	require.Equal(t, before, turns(t))
	require.NoError(t, e.Run(t.Context(), 0))
	require.Greater(t, turns(t), before)
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
