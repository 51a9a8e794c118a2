package ring_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/ring"
)

func newRing[T any](t testing.TB, c ring.Config[T]) *ring.Ring[T] {
	t.Helper()
	r, err := ring.New(c)
	require.NoError(t, err)
	return r
}

func write(t testing.TB, r *ring.Ring[int], values ...int) {
	t.Helper()
	for _, v := range values {
		require.NoError(t, r.Write(context.Background(), v))
	}
}

func read(t testing.TB, r *ring.Ring[int], want ...int) {
	t.Helper()
	for _, w := range want {
		v, err := r.ReadLock(context.Background())
		require.NoError(t, err)
		require.Equal(t, w, *v)
	}
}

// waits waits until a side of a ring has parked.
func waits[T any](t testing.TB, r *ring.Ring[T], side string) {
	t.Helper()
	rttest.Eventually(t, func() bool { return strings.Contains(r.State(""), side+" waits") }, side+" waits")
}

// Feature 48.
func TestRingWriteSide(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int{1, 2, 3, 5} {
		r := newRing(t, ring.Config[int]{Size: size, Label: "x"})
		require.Equal(t, size, r.NumBuffers())
		require.ErrorIs(t, r.WriteComplete(), ring.ErrNotLocked)

		a, err := r.WriteLock(ctx)
		require.NoError(t, err)
		b, err := r.WriteLock(ctx)
		require.NoError(t, err)
		require.Same(t, a, b, "the same until it is complete")
		require.False(t, r.ReadAvailable(), "locked, not yet written")
		*a = 1
		require.NoError(t, r.WriteComplete())
		require.ErrorIs(t, r.WriteComplete(), ring.ErrNotLocked)
		require.True(t, r.ReadAvailable())
		for i := 2; i <= size; i++ {
			c, err := r.WriteLock(ctx)
			require.NoError(t, err)
			require.NotSame(t, a, c)
			*c = i
			require.NoError(t, r.WriteComplete())
		}

		full, err := r.TryWriteLock()
		require.NoError(t, err)
		require.Nil(t, full, "full")
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		_, err = r.WriteLock(short)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `ring "x"`)

		got := make(chan *int)
		go func() {
			v, err := r.WriteLock(ctx)
			if err != nil {
				v = nil
			}
			got <- v
		}()
		waits(t, r, "producer")
		read(t, r, 1)
		select {
		case <-got:
			t.Fatal("a read-locked buffer was given to the producer")
		case <-time.After(2 * time.Millisecond):
		}
		require.NoError(t, r.ReadComplete())
		require.Same(t, a, <-got, "the buffer that was freed")
	}
}

// Feature 48.
func TestRingConfig(t *testing.T) {
	for name, c := range map[string]ring.Config[int]{
		"no buffers": {Size: 0}, "negative": {Size: -1}, "huge": {Size: 1 << 60}, "timeout": {Size: 1, Timeout: -1},
	} {
		_, err := ring.New(c)
		require.ErrorIs(t, err, rt.ErrOption, name)
	}
}

// Feature 49.
func TestRingReadSide(t *testing.T) {
	ctx := context.Background()
	r := newRing(t, ring.Config[int]{Size: 4, Label: "x"})
	require.ErrorIs(t, r.ReadComplete(), ring.ErrNotLocked)
	v, err := r.TryReadLock()
	require.NoError(t, err)
	require.Nil(t, v)

	write(t, r, 1, 2, 3, 4)
	read(t, r, 1, 2, 3) // three locked of four
	require.NoError(t, r.ReadComplete())
	write(t, r, 5) // into the buffer of 1, the oldest
	full, err := r.TryWriteLock()
	require.NoError(t, err)
	require.Nil(t, full)
	read(t, r, 4, 5)
	for range 4 {
		require.NoError(t, r.ReadComplete())
	}
	require.ErrorIs(t, r.ReadComplete(), ring.ErrNotLocked)

	got := make(chan int)
	go func() {
		v, err := r.ReadLock(ctx)
		if err != nil {
			got <- -1
			return
		}
		got <- *v
	}()
	waits(t, r, "consumer")
	write(t, r, 6)
	require.Equal(t, 6, <-got)

	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = r.ReadLock(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Feature 50.
func TestRingReadReset(t *testing.T) {
	r := newRing(t, ring.Config[int]{Size: 4})
	write(t, r, 1, 2, 3)
	read(t, r, 1, 2)
	r.ReadReset()
	read(t, r, 1, 2, 3)
	require.NoError(t, r.ReadComplete())
	r.ReadReset()
	write(t, r, 4, 5)
	read(t, r, 2, 3, 4, 5)
	r.ReadReset()
	require.ErrorIs(t, r.ReadComplete(), ring.ErrNotLocked, "none is locked any more")
	read(t, r, 2, 3, 4, 5)

	// A consumer that waits gets the oldest back, whether it holds every buffer
	// or has only read all there is.
	for _, complete := range []int{0, 2} {
		for range complete {
			require.NoError(t, r.ReadComplete())
		}
		got := make(chan int)
		go func() {
			v, err := r.ReadLock(context.Background())
			if err != nil {
				got <- -1
				return
			}
			got <- *v
		}()
		waits(t, r, "consumer")
		r.ReadReset()
		require.Equal(t, 2+complete, <-got)
		read(t, r, []int{3, 4, 5}[complete:]...)
	}
}

// Feature 51.
func TestRingReadTimeout(t *testing.T) {
	const period = 2 * time.Millisecond
	var calls []time.Time
	r := newRing(t, ring.Config[int]{Size: 2, Timeout: period, OnTimeout: func(r *ring.Ring[int]) {
		calls = append(calls, time.Now())
		if len(calls) == 3 {
			write(t, r, 7)
		}
	}})
	start := time.Now()
	read(t, r, 7)
	require.Len(t, calls, 3, "again and again until there is data")
	for i, c := range calls {
		require.GreaterOrEqual(t, c.Sub(start), time.Duration(i+1)*period)
	}
	write(t, r, 8)
	read(t, r, 8)
	require.Len(t, calls, 3, "there was no waiting")

	never := newRing(t, ring.Config[int]{Size: 2, OnTimeout: func(*ring.Ring[int]) { t.Error("called without a timeout") }})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err := never.ReadLock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Feature 52.
func TestRingInvalidateAndReset(t *testing.T) {
	ctx := context.Background()
	r := newRing(t, ring.Config[int]{Size: 2, Label: "x"})
	reader := make(chan error)
	go func() {
		_, err := r.ReadLock(ctx)
		reader <- err
	}()
	waits(t, r, "consumer")
	r.Invalidate()
	require.ErrorIs(t, <-reader, ring.ErrInvalidated)
	require.False(t, r.Valid())
	_, err := r.WriteLock(ctx)
	require.ErrorIs(t, err, ring.ErrInvalidated)
	_, err = r.TryReadLock()
	require.ErrorIs(t, err, ring.ErrInvalidated)
	require.False(t, r.ReadAvailable())

	r.Reset()
	require.True(t, r.Valid())
	write(t, r, 1, 2)
	writer := make(chan error)
	go func() { writer <- r.Write(ctx, 3) }()
	waits(t, r, "producer")
	r.Invalidate()
	require.ErrorIs(t, <-writer, ring.ErrInvalidated)
	_, err = r.ReadLock(ctx)
	require.ErrorIs(t, err, ring.ErrInvalidated, "what was written means nothing any more")

	r.Reset()
	require.False(t, r.ReadAvailable())
	write(t, r, 4, 5)
	read(t, r, 4, 5)
}

// Feature 53.
func TestRingStateText(t *testing.T) {
	r := newRing(t, ring.Config[int]{Size: 3, Label: "input \"image\""})
	require.Equal(t, `input "image"`, r.Label())
	write(t, r, 1, 2)
	require.Equal(t, `> ring "input \"image\"": 2 of 3 buffers full`, r.State("> "))
	r.Invalidate()
	require.Equal(t, `ring "input \"image\"": 2 of 3 buffers full, invalid`, r.State(""))
}

// TestRingManyItems sends items from one goroutine to another; the
// consumer keeps several locked and now and then gives them back.
//
// Feature 48.
func TestRingManyItems(t *testing.T) {
	n := 10_000_000
	if rttest.RaceEnabled || testing.Short() {
		n = 300_000
	}
	for name, rounds := range map[string]int{"parking": 0, "spinning": 20_000} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			r := newRing(t, ring.Config[int]{Size: 1000, Producer: ring.NewSpinner(rounds), Consumer: ring.NewSpinner(rounds)})
			failed := make(chan error, 1)
			go func() {
				for i := range n {
					if err := r.Write(ctx, i); err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
			next, held := 0, 0
			for next < n {
				v, err := r.ReadLock(ctx)
				if err != nil || *v != next+held {
					t.Fatalf("item %d: %v, %v", next+held, v, err)
				}
				held++
				switch {
				case next%4099 == 0 && held == 3:
					r.ReadReset()
					held = 0
					v, err := r.ReadLock(ctx)
					if err != nil || *v != next {
						t.Fatalf("item %d again: %v, %v", next, v, err)
					}
					fallthrough
				case held == 4 || next+held == n:
					held = max(1, held)
					for range held {
						if err := r.ReadComplete(); err != nil {
							t.Fatal(err)
						}
					}
					next += held
					held = 0
				}
			}
			require.NoError(t, <-failed)
		})
	}
}

// TestRingModel compares a ring with two slices.
func TestRingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		r, err := ring.New(ring.Config[int]{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		var queue []int // written and not complete
		held, next := 0, 0
		locked := false
		equal := func(what string, got *int, err error, want int, ok bool) {
			if err != nil || (got != nil) != ok || ok && *got != want {
				t.Fatalf("%s: got %v, %v; want %d, %v", what, got, err, want, ok)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"write lock": func(*rapid.T) {
				v, err := r.TryWriteLock()
				if err != nil || (v != nil) != (len(queue) < size) {
					t.Fatalf("%v, %v with %d of %d in use", v, err, len(queue), size)
				}
				if v != nil {
					*v, locked = next, true
				}
			},
			"write complete": func(*rapid.T) {
				if err := r.WriteComplete(); (err == nil) != locked {
					t.Fatalf("%v, locked %v", err, locked)
				}
				if locked {
					queue, locked = append(queue, next), false
					next++
				}
			},
			"read lock": func(*rapid.T) {
				v, err := r.TryReadLock()
				if held < len(queue) {
					equal("read", v, err, queue[held], true)
					held++
				} else {
					equal("read", v, err, 0, false)
				}
			},
			"read complete": func(*rapid.T) {
				if err := r.ReadComplete(); (err == nil) != (held > 0) {
					t.Fatalf("%v, %d held", err, held)
				}
				if held > 0 {
					queue, held = queue[1:], held-1
				}
			},
			"read reset": func(*rapid.T) {
				r.ReadReset()
				held = 0
			},
			"reset": func(*rapid.T) {
				r.Invalidate()
				if _, err := r.TryReadLock(); !errors.Is(err, ring.ErrInvalidated) {
					t.Fatal(err)
				}
				r.Reset()
				queue, held, locked = nil, 0, false
			},
			"": func(*rapid.T) {
				if r.ReadAvailable() != (held < len(queue)) {
					t.Fatal("available")
				}
			},
		})
	})
}

// TestRingChaos lets both sides wait, time out, be reset and invalidated at
// any moment: nobody may be left waiting.
func TestRingChaos(t *testing.T) {
	rounds := 300
	if rttest.RaceEnabled || testing.Short() {
		rounds = 60
	}
	for round := range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		r := newRing(t, ring.Config[int]{
			Size: 1 + round%3, Timeout: 20 * time.Microsecond, OnTimeout: func(*ring.Ring[int]) { runtime.Gosched() },
			Producer: ring.NewSpinner(round % 2 * 500), Consumer: ring.NewSpinner(round % 5 * 300),
		})
		var sides sync.WaitGroup
		sides.Go(func() {
			for i := 0; r.Write(ctx, i) == nil; i++ {
			}
		})
		sides.Go(func() {
			for {
				if _, err := r.ReadLock(ctx); err != nil {
					return
				}
				if _, err := r.TryReadLock(); err != nil {
					return
				}
				_ = r.ReadComplete() // a reset may have come in between
			}
		})
		for range 50 {
			r.ReadReset()
			runtime.Gosched()
		}
		r.Invalidate()
		sides.Wait()
		require.NoError(t, ctx.Err(), "somebody was left waiting")
		cancel()
	}
}
