package rt_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestCallersCodeEndsGoroutine lets a stream, and an observer, end the goroutine
// that calls it, as FailNow of package testing does. That costs one request, or
// those of its batch, and everybody else is served.
func TestCallersCodeEndsGoroutine(t *testing.T) {
	ctx := context.Background()
	for _, who := range []string{"stream", "observer"} {
		for _, how := range []string{"run", "submit", "samples", "submitted samples"} {
			for _, backend := range []string{"cpu", "device"} {
				t.Run(who+", "+how+", "+backend, func(t *testing.T) {
					var armed atomic.Bool
					exit := func() {
						if armed.CompareAndSwap(true, false) {
							runtime.Goexit()
						}
					}
					sys := newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, 1)}) // which calls it a violation
					v := variant{"device", "", file(t, affineMetadata(), affinePortable(t), affineData), nil}
					var opts []rt.RunnerOption
					if backend == "cpu" {
						v.backend = "cpu"
					} else {
						opts = append(opts, rt.WithManager(sys.Manager()))
					}
					if who == "observer" {
						opts = append(opts, rt.WithObserver(func(e rt.Event) {
							if e.Kind == rt.EventRequestBegun {
								exit()
							}
						}))
					}
					r := v.open(t, append(opts, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))...)
					if who == "stream" {
						require.NoError(t, modelrt.SetCallback(ctx, r.Session(), "anchor_d2h_y", func(context.Context, []byte) error { exit(); return nil }))
					}
					request := func() error {
						in, out := NewInputs(), NewOutputs()
						x, y := someSamples(1, 2)
						switch how {
						case "submit":
							ticket, err := r.Submit(ctx, in, out)
							require.NoError(t, err)
							return ticket.Wait(ctx)
						case "samples":
							return r.RunSamples(ctx, x, y)
						case "submitted samples":
							ticket, err := r.SubmitSamples(ctx, x, y)
							require.NoError(t, err)
							return ticket.Wait(ctx)
						}
						return r.Run(ctx, in, out)
					}
					// Two at once: samples share a batch of four.
					both := func() (errs [2]error, returned [2]bool) {
						var all sync.WaitGroup
						for i := range errs {
							all.Go(func() {
								errs[i] = request()
								returned[i] = true
							})
						}
						within(t, &all)
						return errs, returned
					}
					armed.Store(true)
					errs, returned := both()
					require.False(t, armed.Load(), "nobody got there")
					failures, ended := 0, 0
					for i := range errs {
						if !returned[i] {
							ended++
						} else if errs[i] != nil {
							failures++
							require.ErrorIs(t, errs[i], rt.ErrPanic)
							require.Empty(t, faults(errs[i], subjectOf))
						}
					}
					switch how {
					case "run": // its own goroutine is the caller's
						require.Equal(t, 1, ended)
						require.Zero(t, failures)
					case "samples":
						require.Equal(t, 1, ended)
						require.Equal(t, 1, failures, "who shared the batch hears of it")
					case "submit":
						require.Zero(t, ended)
						require.Equal(t, 1, failures)
					default:
						require.Zero(t, ended)
						require.Equal(t, 2, failures, "they shared the batch")
					}
					errs, returned = both()
					require.Equal(t, [2]error{}, errs)
					require.Equal(t, [2]bool{true, true}, returned)
				})
			}
		}
	}
}

// TestObserverEndsGoroutineOfRefusal lets the observer end the goroutine that
// tells it of a request in line whose context has ended.
func TestObserverEndsGoroutineOfRefusal(t *testing.T) {
	sys, v := tested(t, 1)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.WithObserver(func(e rt.Event) {
		if e.Kind == rt.EventRefused {
			runtime.Goexit()
		}
	}))
	remove := sys.Inject(iputest.OnRun(mainProgram), iputest.ErrHang)
	defer remove()
	first, stop := context.WithCancel(context.Background())
	running, err := r.Submit(first, NewInputs(), NewOutputs())
	require.NoError(t, err)
	rttest.Eventually(t, func() bool { return len(sys.Events(iputest.EventFault)) == 1 }, "it runs")
	waiting, err := r.Submit(context.Background(), NewInputs(), NewOutputs())
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(waiting.Cancel)
	all.Go(func() { <-waiting.Done() })
	within(t, &all)
	require.ErrorIs(t, waiting.Err(), context.Canceled)
	stop()
	require.ErrorIs(t, running.Wait(context.Background()), context.Canceled)
}

// within waits for a group, and fails the test if it never ends.
func within(t *testing.T, all *sync.WaitGroup) {
	t.Helper()
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("somebody waits for ever")
	}
}
