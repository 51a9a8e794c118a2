//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
)

// slot is the memory of one run of an adder that goes through a slot.
type slot struct {
	a, b, y *windowed
	in, out []ipu.Staged
}

// newSlots returns memory for runs of n transfers of size bytes. The inputs a have more of them than that.
func newSlots(size, n, more int) []slot {
	all := make([]slot, poplar.Slots)
	for i := range all {
		s := &all[i]
		s.a, s.b, s.y = newWindowed(size, n+more, false), newWindowed(size, n, false), newWindowed(size, n, true)
		for k := range n {
			s.b.set(k, 0.5)
		}
		s.in = []ipu.Staged{{Stream: 1, Data: s.a.w.Block}, {Stream: 2, Data: s.b.w.Block}}
		s.out = []ipu.Staged{{Stream: 3, Data: s.y.w.Block}}
	}
	return all
}

// fill gives a run other data.
func (s *slot) fill(first float32) {
	for k := range s.y.w.Count {
		s.a.set(k, first+float32(k))
		s.y.set(k, -1)
	}
}

// wants reports what a run should have answered and has not.
func (s *slot) wants(first float32) error {
	for k := range s.y.w.Count {
		if got, want := s.y.get(k), first+float32(k)+0.5; got != want {
			return fmt.Errorf("transfer %d is %v, want %v", k, got, want)
		}
	}
	return nil
}

// TestStaged has as many runs in flight as there are slots, whatever the fake does of its own accord: each has its own data, some
// have more than the program reads.
func TestStaged(t *testing.T) {
	ctx := context.Background()
	for _, nasty := range []string{"", "poison,refuse,extra,discard,seed=3", "delay"} {
		for _, mode := range []string{"singleThread", "dedicated"} {
			t.Run(nasty+" "+mode, func(t *testing.T) {
				t.Setenv("FAKE_POPLAR_NASTY", nasty)
				const n = 3
				c := adder(64, n, 2)
				c.Options = []ipu.Option{{Name: "streamCallbacks.multiThreadMode", Value: mode}}
				e, _ := engineOf(t, c)
				rings(t, e, 64, n)
				require.Equal(t, poplar.Slots, e.Slots())
				slots := newSlots(64, n, 2)
				const runs = 150
				for k := range runs + len(slots) {
					i := k % len(slots)
					if k >= len(slots) {
						require.NoError(t, e.RunStaged(ctx, 2, i))
						require.NoError(t, e.Unstage(ctx, 2, i))
						require.NoError(t, slots[i].wants(float32(k-len(slots))))
					}
					if k < runs {
						slots[i].fill(float32(k))
						require.NoError(t, e.Stage(ctx, 2, i, slots[i].in, slots[i].out))
					}
					if k%17 == 0 { // a program between them
						require.NoError(t, e.Run(ctx, 0))
					}
				}
				require.ErrorIs(t, e.RunStaged(ctx, 2, 0), ipu.ErrNotStaged)
				require.ErrorIs(t, e.Unstage(ctx, 2, 0), ipu.ErrNotStaged)
			})
		}
	}
}

// TestStagedSteadyState makes requests with all slots in use: they take no call through cgo and no memory of Go.
func TestStagedSteadyState(t *testing.T) {
	ctx := context.Background()
	e, _ := engineOf(t, adder(4096, 1, 2))
	rings(t, e, 4096, 1)
	slots := newSlots(4096, 1, 0)
	k := 0
	request := func() {
		i := k % len(slots)
		if k >= len(slots) {
			if err := errors.Join(e.RunStaged(ctx, 1, i), e.Unstage(ctx, 1, i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Stage(ctx, 1, i, slots[i].in, slots[i].out); err != nil {
			t.Fatal(err)
		}
		k++
	}
	for range 2 * len(slots) {
		request()
	}
	before := runtime.NumCgoCall()
	require.Zero(t, testing.AllocsPerRun(400, request))
	require.Equal(t, before, runtime.NumCgoCall(), "calls through cgo")
	require.NoError(t, e.Close())
}

// TestStagedEnds shows what becomes of runs that were staged when something comes between.
func TestStagedEnds(t *testing.T) {
	ctx := context.Background()
	poplar.SetPatience(t, 50*time.Millisecond)
	type at struct {
		*testing.T
		e     *poplar.Engine
		d     ipu.Device
		slots []slot
	}
	stage := func(t at, slots ...int) {
		for _, i := range slots {
			t.slots[i].fill(float32(i))
			require.NoError(t, t.e.Stage(ctx, 1, i, t.slots[i].in, t.slots[i].out))
		}
	}
	works := func(t at) {
		stage(t, 0, 1, 2)
		for i := range 3 {
			require.NoError(t, t.e.RunStaged(ctx, 1, i))
			require.NoError(t, t.e.Unstage(ctx, 1, i))
			require.NoError(t, t.slots[i].wants(float32(i)))
		}
	}
	gone := func(t at, slots ...int) {
		for _, i := range slots {
			require.ErrorIs(t, t.e.RunStaged(ctx, 1, i), ipu.ErrNotStaged)
			require.ErrorIs(t, t.e.Unstage(ctx, 1, i), ipu.ErrNotStaged)
		}
	}
	for name, test := range map[string]func(t at){
		"loaded again": func(t at) {
			stage(t, 3, 4)
			require.NoError(t, t.e.Load(ctx, t.d))
			gone(t, 3, 4)
		},
		"connected again": func(t at) {
			stage(t, 3, 4)
			rings(t, t.e, 64, 1)
			gone(t, 3, 4)
		},
		"given up": func(t at) { // the others are in their places
			stage(t, 3, 4, 5)
			require.ErrorIs(t, t.e.Unstage(ctx, 1, 3), ipu.ErrNotStaged)
			require.NoError(t, t.e.RunStaged(ctx, 1, 4))
			require.NoError(t, t.slots[4].wants(4))
			over, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, t.e.RunStaged(over, 1, 5), context.Canceled)
			require.ErrorIs(t, t.e.Unstage(over, 1, 5), ipu.ErrNotStaged)
			stage(t, 3)
			require.NoError(t, t.e.RunStaged(ctx, 1, 3))
		},
		"one fails": func(t at) {
			t.Setenv("FAKE_POPLAR_FAULT", "run:1@2=application")
			stage(t, 3, 4, 5)
			require.NoError(t, t.e.RunStaged(ctx, 1, 3))
			require.ErrorIs(t, t.e.RunStaged(ctx, 1, 4), ipu.ErrApplication)
			require.Equal(t, float32(-1), t.slots[5].y.get(0), "it was not run")
			gone(t, 5)
			require.ErrorIs(t, t.e.Run(ctx, 1), ipu.ErrNotLoaded)
			require.Error(t, t.e.Stage(ctx, 1, 6, t.slots[6].in, t.slots[6].out))
			require.NoError(t, t.e.Load(ctx, t.d))
		},
		"one fails before another program": func(t at) {
			t.Setenv("FAKE_POPLAR_FAULT", "run:1=application")
			stage(t, 3, 4)
			require.ErrorIs(t, t.e.Run(ctx, 0), ipu.ErrApplication, "it was behind them")
			require.ErrorIs(t, t.e.RunStaged(ctx, 1, 3), ipu.ErrApplication)
			gone(t, 4)
			require.NoError(t, t.e.Load(ctx, t.d))
		},
		"moves more than it was given": func(t at) {
			short := t.slots[3].in[0]
			short.Data = short.Data[:0]
			require.NoError(t, t.e.Stage(ctx, 1, 3, []ipu.Staged{short, t.slots[3].in[1]}, t.slots[3].out))
			stage(t, 4)
			err := t.e.RunStaged(ctx, 1, 3)
			require.ErrorIs(t, err, ipu.ErrCallback)
			require.ErrorContains(t, err, `stream "a": stream callback failed: the program moves more than a run has memory for`)
			require.ErrorIs(t, t.e.Unstage(ctx, 1, 3), ipu.ErrNotStaged)
			require.NoError(t, t.e.RunStaged(ctx, 1, 4))
			require.NoError(t, t.slots[4].wants(4))
			require.ErrorContains(t, t.e.Stage(ctx, 1, 5, t.slots[5].in, nil), `stream "y" has no memory`)
		},
		"stopped": func(t at) {
			stage(t, 3, 4)
			require.NoError(t, t.e.Stop())
			require.ErrorIs(t, t.e.RunStaged(ctx, 1, 3), ipu.ErrStopped)
			require.ErrorIs(t, t.e.Stage(ctx, 1, 5, t.slots[5].in, t.slots[5].out), ipu.ErrStopped)
			require.NoError(t, t.e.Load(ctx, t.d))
			gone(t, 4)
		},
		"behind one that never ends": func(t at) {
			for begun := time.Millisecond; ; begun *= 2 {
				require.NoError(t, t.e.Stage(ctx, 3, 3, nil, nil))
				stage(t, 4, 5)
				time.Sleep(begun)
				require.ErrorIs(t, t.e.Unstage(ctx, 3, 3), ipu.ErrNotStaged)
				err := t.e.RunStaged(ctx, 1, 4)
				if errors.Is(err, ipu.ErrNotStaged) {
					break
				}
				require.NoError(t, err, "it was given up before the device came to it")
				require.NoError(t, errors.Join(t.e.RunStaged(ctx, 1, 5), t.e.Unstage(ctx, 1, 4), t.e.Unstage(ctx, 1, 5)))
			}
			gone(t, 4, 5)
			require.ErrorIs(t, t.e.Run(ctx, 1), ipu.ErrNotLoaded)
			require.NoError(t, t.e.Load(ctx, t.d))
			require.NoError(t, t.e.Stage(ctx, 3, 3, nil, nil))
			soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			err := t.e.RunStaged(soon, 3, 3)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, ipu.Reloadable(err), "%v", err)
			require.NoError(t, t.e.Load(ctx, t.d))
			require.NoError(t, t.e.Stage(ctx, 3, 3, nil, nil))
			require.NoError(t, t.e.Load(ctx, t.d), "it is ended first")
			gone(t, 3)
		},
		"the device goes": func(t at) {
			stage(t, 3, 4)
			require.NoError(t, t.d.Detach())
			require.ErrorIs(t, t.e.Stage(ctx, 1, 5, t.slots[5].in, t.slots[5].out), ipu.ErrBusy)
			gone(t, 3, 4)
			other, device := engineOf(t, adder(64, 1, 2))
			require.NoError(t, t.e.Load(ctx, device))
			stage(t, 3)
			require.NoError(t, other.Load(ctx, device))
			gone(t, 3)
			require.NoError(t, t.e.Load(ctx, device))
		},
		"a stream of Go": func(t at) {
			a, _, _ := rings(t, t.e, 64, 1)
			require.NoError(t, t.e.Connect("a", struct{ ipu.Stream }{a}))
			require.ErrorContains(t, t.e.Stage(ctx, 1, 3, t.slots[3].in, t.slots[3].out), `stream "a" is called during runs`)
			rings(t, t.e, 64, 1)
		},
		"used twice": func(t at) {
			stage(t, 3)
			require.ErrorIs(t, t.e.Stage(ctx, 1, 3, t.slots[3].in, t.slots[3].out), ipu.ErrBusy)
			require.Error(t, t.e.Stage(ctx, 1, poplar.Slots, t.slots[3].in, t.slots[3].out))
			require.ErrorIs(t, t.e.Stage(ctx, 9, 4, nil, nil), ipu.ErrUnknownProgram)
			require.ErrorIs(t, t.e.RunStaged(ctx, 0, 3), ipu.ErrNotStaged, "of another program")
			require.ErrorIs(t, t.e.Unstage(ctx, 1, 3), ipu.ErrNotStaged)
		},
		"closed": func(t at) { // with runs under way
			stage(t, 3, 4, 5)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, d := engineOf(t, adder(64, 1, 2))
			rings(t, e, 64, 1)
			s := at{t, e, d, newSlots(64, 1, 0)}
			works(s)
			test(s)
			t.Setenv("FAKE_POPLAR_FAULT", "")
			if name != "closed" {
				works(s)
			}
			require.NoError(t, e.Close())
			require.ErrorIs(t, e.Stage(ctx, 1, 0, s.slots[0].in, s.slots[0].out), ipu.ErrClosed)
		})
	}
}

// TestStagedConcurrently stages runs, waits for them, and gives them back in goroutines of their own, while another one
// stops and loads the engine, and others are run between.
func TestStagedConcurrently(t *testing.T) {
	ctx := context.Background()
	e, d := engineOf(t, adder(64, 1, 2))
	rings(t, e, 64, 1)
	slots := newSlots(64, 1, 0)
	free, begun, ran := make(chan int, len(slots)), make(chan int, len(slots)), make(chan int, len(slots))
	for i := range slots {
		free <- i
	}
	const runs = 2000
	first := make([]float32, len(slots))
	staged, failed := make([]bool, len(slots)), make([]error, len(slots))
	var gate sync.Mutex // of who drives the engine, as in sessions
	var all sync.WaitGroup
	all.Go(func() {
		defer close(begun)
		for k := range runs {
			i := <-free
			first[i] = float32(k)
			slots[i].fill(first[i])
			if staged[i] = e.Stage(ctx, 1, i, slots[i].in, slots[i].out) == nil; !staged[i] {
				time.Sleep(50 * time.Microsecond) // until it is loaded
			}
			begun <- i
		}
	})
	all.Go(func() {
		defer close(ran)
		for i := range begun {
			gate.Lock()
			if failed[i] = ipu.ErrNotStaged; staged[i] && int(first[i])%11 != 0 { // some are not asked for
				failed[i] = e.RunStaged(ctx, 1, i)
			}
			gate.Unlock()
			ran <- i
		}
	})
	good := 0
	all.Go(func() {
		for i := range ran {
			var err error
			if staged[i] {
				err = e.Unstage(ctx, 1, i)
			}
			if failed[i] == nil {
				good++
				if err = errors.Join(err, slots[i].wants(first[i])); err != nil {
					t.Error(i, err)
				}
			}
			free <- i
		}
	})
	for range 20 {
		time.Sleep(200 * time.Microsecond)
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
		gate.Lock()
		if err := errors.Join(e.Load(ctx, d), e.Run(ctx, 0)); err != nil {
			t.Error(err)
		}
		gate.Unlock()
	}
	all.Wait()
	require.Positive(t, good)
}

// slowAdder is an adder of which program 1 waits before it adds.
func slowAdder(d time.Duration) ipu.EngineConfig {
	c := adder(64, 1, 1)
	c.Executable = []byte(strings.Replace(string(c.Executable), "program 1 main\n", fmt.Sprintf("program 1 main\nwait %d\n", d.Microseconds()), 1))
	return c
}

// TestCancelledInTheQueue cancels a run behind others that take longer than a program has to end: nobody stops those.
func TestCancelledInTheQueue(t *testing.T) {
	poplar.SetPatience(t, 20*time.Millisecond)
	e, _ := engineOf(t, slowAdder(60*time.Millisecond))
	rings(t, e, 64, 1)
	slots := newSlots(64, 1, 0)[:3]
	for i := range slots {
		slots[i].fill(float32(i))
		require.NoError(t, e.Stage(t.Context(), 1, i, slots[i].in, slots[i].out))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.Run(ctx, 1), context.DeadlineExceeded)
	for i := range slots {
		require.NoError(t, e.RunStaged(t.Context(), 1, i))
		require.NoError(t, e.Unstage(t.Context(), 1, i))
		require.NoError(t, slots[i].wants(float32(i)))
	}
	rings(t, e, 64, 1)
	require.NoError(t, e.Run(t.Context(), 1))
}

// TestHaltedForAnother has a run that has to end, behind one that has to and does not: that is stopped, and the engine says of both that it has to be loaded.
func TestHaltedForAnother(t *testing.T) {
	poplar.SetPatience(t, 20*time.Millisecond)
	e, d := engineOf(t, adder(64, 1, 1))
	rings(t, e, 64, 1)
	require.NoError(t, e.Stage(t.Context(), 3, 0, nil, nil))
	ended := make(chan error)
	go func() { ended <- e.Run(context.Background(), 1) }()
	require.Eventually(t, e.Runs, 5*time.Second, time.Millisecond)
	require.NoError(t, e.Stop())
	require.ErrorIs(t, <-ended, ipu.ErrStopped)
	require.Error(t, e.RunStaged(t.Context(), 3, 0))
	require.Error(t, e.Unstage(t.Context(), 3, 0))
	require.NoError(t, e.Load(t.Context(), d))
	rings(t, e, 64, 1)
	require.NoError(t, e.Run(t.Context(), 1))
}

// TestHaltedByConnect takes a staged run back that does not end: the engine has to be loaded again, and says that this helps.
func TestHaltedByConnect(t *testing.T) {
	poplar.SetPatience(t, 20*time.Millisecond)
	e, d := engineOf(t, adder(64, 1, 1))
	a, _, _ := rings(t, e, 64, 1)
	for staged := false; !staged; { // until the engine has begun it before that
		require.NoError(t, e.Stage(t.Context(), 3, 0, nil, nil))
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, e.Connect("a", a))
		err := e.Run(t.Context(), 1)
		if staged = err != nil; staged {
			require.ErrorIs(t, err, ipu.ErrNotLoaded)
			require.True(t, ipu.Reloadable(err), "%v", err)
		}
		_ = e.Unstage(t.Context(), 3, 0)
		rings(t, e, 64, 1)
	}
	require.NoError(t, e.Load(t.Context(), d))
	require.NoError(t, e.Run(t.Context(), 1))
}
