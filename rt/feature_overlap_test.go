package rt_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// step is what each of the three steps of a request takes on the device of overlapping.
const step = time.Millisecond

// overlapping returns a device that moves data while it computes, and its clock.
func overlapping(t *testing.T, options ...ipu.Option) (*testSystem, *iputest.Clock, []byte) {
	t.Helper()
	clock := iputest.NewClock()
	sys := newSystem(iputest.Config{Clock: clock, Staging: iputest.Staging{Slots: 4, Load: step, Compute: step, Store: step}})
	meta := affineMetadata()
	for _, o := range options {
		meta.EngineOptions = append(meta.EngineOptions, struct{ Name, Value string }(o))
	}
	return sys, clock, file(t, meta, affinePortable(t), affineData)
}

// openOverlapping opens the model on that device.
func openOverlapping(t *testing.T, sys *testSystem, model []byte, opts ...rt.RunnerOption) *Runner {
	t.Helper()
	r, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: &B{[2]float32{10, 20}}}, genrt.Source{Name: "affine.popef", Bytes: model},
		append(opts, rt.WithManager(sys.Manager()))...)
	require.NoError(t, err)
	return r
}

// until advances the clock by one step at a time until done is closed, and returns how often.
func until(clock *iputest.Clock, done <-chan struct{}) (steps int) {
	for {
		synctest.Wait()
		select {
		case <-done:
			return steps
		default:
			clock.Advance(step)
			steps++
		}
	}
}

// TestOverlap submits requests to a device whose steps take a millisecond each by its
// clock: with one in flight a request takes three, and with three in flight little more than
// one. Results and their order are those of requests one by one.
// Feature 93.
func TestOverlap(t *testing.T) {
	const requests = 60
	ctx := context.Background()
	for _, c := range []struct {
		name     string
		inFlight int
		opts     []rt.RunnerOption
		options  []ipu.Option
		most     float64 // steps a request
		least    float64
	}{
		{"one in flight", 1, []rt.RunnerOption{rt.WithOverlap(3)}, nil, 3, 3},
		{"three in flight", 3, []rt.RunnerOption{rt.WithOverlap(3)}, nil, 1.15, 1},
		{"as the model asks", 3, nil, []ipu.Option{{Name: genrt.OverlapOption, Value: "3"}}, 1.15, 1},
		{"not asked for", 3, nil, nil, 0, 0},
		{"too few", 3, []rt.RunnerOption{rt.WithOverlap(2)}, nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys, clock, model := overlapping(t, c.options...)
				r := openOverlapping(t, sys, model, c.opts...)
				defer r.Close()
				done := make(chan struct{})
				var ended []int
				var mu sync.Mutex
				go func() {
					defer close(done)
					var all sync.WaitGroup
					room := make(chan struct{}, c.inFlight)
					for i := range requests {
						room <- struct{}{}
						in, out := NewInputs(), NewOutputs()
						fill(in, float32(i))
						ticket, err := r.Submit(ctx, in, out)
						if err != nil {
							t.Error(err)
							return
						}
						all.Go(func() {
							if err := ticket.Wait(ctx); err != nil {
								t.Error(err)
							}
							mu.Lock()
							ended = append(ended, i)
							mu.Unlock()
							if *out.Y != *want(float32(i)) {
								t.Errorf("request %d: got %v, want %v", i, out.Y, want(float32(i)))
							}
							<-room
						})
					}
					all.Wait()
				}()
				steps := float64(until(clock, done)) / requests
				t.Log(steps, "steps a request")
				require.LessOrEqual(t, steps, c.most)
				require.GreaterOrEqual(t, steps, c.least)
				for i, of := range ended {
					if c.least == 0 { // they end at once, and who is told first is the scheduler's choice
						break
					}
					require.InDelta(t, i, of, float64(c.inFlight-1), "they end in order")
				}
				require.Equal(t, uint64(requests), r.Session().Stats().Requests)
				require.NoError(t, r.Close())
				require.Empty(t, sys.Violations())
			})
		})
	}
}

// TestOverlapEnds shows what becomes of requests in flight: a lone one ends, Shutdown waits
// for all, Close ends them, a Run has its turn among them, and one whose context ends
// takes nobody with it. What was moved to the device before it was loaded again is moved once more.
// Feature 93.
func TestOverlapEnds(t *testing.T) {
	ctx := context.Background()
	submit := func(t *testing.T, r *Runner, ctx context.Context, seed float32) (rt.Ticket, *Outputs) {
		in, out := NewInputs(), NewOutputs()
		fill(in, seed)
		ticket, err := r.Submit(ctx, in, out)
		require.NoError(t, err)
		return ticket, out
	}
	finish := func(clock *iputest.Clock, f func()) int {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		return until(clock, done)
	}
	for name, test := range map[string]func(t *testing.T, r *Runner, sys *testSystem, clock *iputest.Clock){
		"lone request": func(t *testing.T, r *Runner, sys *testSystem, clock *iputest.Clock) {
			ticket, out := submit(t, r, ctx, 1)
			require.Equal(t, 3, finish(clock, func() {
				if err := ticket.Wait(ctx); err != nil {
					t.Error(err)
				}
			}))
			require.Equal(t, want(1), out.Y)
		},
		"Shutdown": func(t *testing.T, r *Runner, sys *testSystem, clock *iputest.Clock) {
			var tickets []rt.Ticket
			for i := range 4 {
				ticket, _ := submit(t, r, ctx, float32(i))
				tickets = append(tickets, ticket)
			}
			finish(clock, func() {
				if err := r.Shutdown(ctx); err != nil {
					t.Error(err)
				}
			})
			for _, ticket := range tickets {
				require.NoError(t, ticket.Wait(ctx))
			}
		},
		"Close": func(t *testing.T, r *Runner, sys *testSystem, clock *iputest.Clock) {
			var tickets []rt.Ticket
			for i := range 4 {
				ticket, _ := submit(t, r, ctx, float32(i))
				tickets = append(tickets, ticket)
			}
			clock.Advance(step)
			synctest.Wait()
			require.NoError(t, r.Close())
			for _, ticket := range tickets {
				require.ErrorIs(t, ticket.Wait(ctx), rt.ErrClosed)
			}
		},
		"Run among them": func(t *testing.T, r *Runner, sys *testSystem, clock *iputest.Clock) {
			a, first := submit(t, r, ctx, 1)
			b, second := submit(t, r, ctx, 2)
			finish(clock, func() {
				in, out := NewInputs(), NewOutputs()
				fill(in, 3)
				if err := r.Run(ctx, in, out); err != nil || *out.Y != *want(3) {
					t.Error(err, out.Y)
				}
				if err := a.Wait(ctx); err != nil {
					t.Error(err)
				}
				if err := b.Wait(ctx); err != nil {
					t.Error(err)
				}
			})
			require.Equal(t, want(1), first.Y)
			require.Equal(t, want(2), second.Y)
		},
		"context": func(t *testing.T, r *Runner, sys *testSystem, clock *iputest.Clock) {
			over, cancel := context.WithCancel(ctx)
			a, first := submit(t, r, ctx, 1)
			b, second := submit(t, r, over, 2)
			c, third := submit(t, r, ctx, 3)
			synctest.Wait()
			cancel()
			finish(clock, func() {
				if err := b.Wait(ctx); err == nil || *second.Y != *NewOutputs().Y {
					t.Error("it was given up, and has results:", err)
				}
				if err := a.Wait(ctx); err != nil {
					t.Error(err)
				}
				if err := c.Wait(ctx); err != nil {
					t.Error(err)
				}
			})
			require.Equal(t, want(1), first.Y)
			require.Equal(t, want(3), third.Y)
		},
		"loaded again while it waits": func(t *testing.T, r *Runner, sys *testSystem, clock *iputest.Clock) {
			replica, err := r.core.Begin(ctx, 0)
			require.NoError(t, err)
			reloaded := make(chan error, 1)
			go func() { reloaded <- r.Session().Reload(ctx) }()
			synctest.Wait() // it has its turn after this request, and before the next
			a, first := submit(t, r, ctx, 1)
			synctest.Wait()
			clock.Advance(step)
			synctest.Wait()
			require.Equal(t, *NewOutputs().Y, *first.Y, "it was moved, and waits for the engine")
			in, out := NewInputs(), NewOutputs()
			fill(in, 2)
			r.ports[replica].bind(in, out)
			require.NoError(t, r.core.Main(ctx, replica))
			finish(clock, func() {
				if err := a.Wait(ctx); err != nil {
					t.Error(err)
				}
			})
			require.NoError(t, <-reloaded)
			require.Equal(t, want(2), out.Y)
			require.Equal(t, want(1), first.Y)
		},
		"loaded again": func(t *testing.T, r *Runner, sys *testSystem, clock *iputest.Clock) {
			a, first := submit(t, r, ctx, 1)
			b, second := submit(t, r, ctx, 1)
			synctest.Wait()
			require.NoError(t, r.Session().Unload(ctx)) // and what was moved is gone
			require.NoError(t, r.Session().Reload(ctx))
			finish(clock, func() {
				if err := a.Wait(ctx); err != nil {
					t.Error(err)
				}
				if err := b.Wait(ctx); err != nil {
					t.Error(err)
				}
			})
			require.Equal(t, want(1), first.Y)
			require.Equal(t, want(1), second.Y)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys, clock, model := overlapping(t)
				r := openOverlapping(t, sys, model, rt.WithOverlap(4))
				defer r.Close()
				test(t, r, sys, clock)
				require.NoError(t, r.Close())
			})
		})
	}
}

// TestOverlapOfCPU shows that a device that gains nothing by it computes as ever: the same
// results, in the caller's memory, and no goroutines for steps.
// Feature 93.
func TestOverlapOfCPU(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		r := v.open(t, rt.WithOverlap(3))
		in, out := NewInputs(), NewOutputs()
		fill(in, 1)
		run := func() {
			ticket, err := r.Submit(ctx, in, out)
			if err == nil {
				err = ticket.Wait(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		}
		run()
		require.Equal(t, want(1), out.Y)
		require.Equal(t, 3, r.core.Config().Overlap)
		if v.backend == "cpu" {
			require.Zero(t, testing.AllocsPerRun(20, run))
		}
	}
	sys, _, model := overlapping(t)
	for _, depth := range []int{0, 5} {
		_, err := Open(ctx, affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: model}, rt.WithManager(sys.Manager()), rt.WithOverlap(depth))
		require.ErrorIs(t, err, rt.ErrOption)
		require.ErrorContains(t, err, "WithOverlap: ")
	}
}
