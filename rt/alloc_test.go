package rt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

type steady = rttest.Steady

// notSteady are the methods of the types below that are for the beginning, the
// end, changes and questions: they may allocate.
const notSteady = `
	Runner.Close Runner.Shutdown Runner.Config Ticket.Cancel Ticket.Done Runner.Replica Runner.Save Runner.SaveOn
	Runner.SaveAtClose Runner.Session Runner.UpdateWeights QueueManager.DisconnectAll QueueManager.Group
	QueueManager.InputQueue QueueManager.Inputs QueueManager.OutputQueue QueueManager.Outputs QueueManager.ResetAll
	QueueManager.Run QueueManager.State`

// TestNoAllocations goes through everything that is done again and again, and
// fails for a method of its types that is neither in the table nor listed above.
func TestNoAllocations(t *testing.T) {
	table := slices.Concat(requestRows(t), queueRows())
	rttest.NoAllocations(t, notSteady, table, &Runner{}, rt.Ticket{}, &modelrt.QueueManager{}, &modelrt.QueueGroup{})
}

// requestRows are requests to generated runners, on every back end and with
// every option that has a part in a request.
func requestRows(t *testing.T) []steady {
	ctx := context.Background()
	cancelled, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	wait := func(ticket rt.Ticket, err error) error {
		if err != nil {
			return err
		}
		if err := ticket.Err(); err != nil {
			return err
		}
		return ticket.Wait(cancelled)
	}
	requests := []struct {
		name, of string
		make     func(t *testing.T, r *Runner) func() error
	}{
		{"Run", "Runner.Run", func(_ *testing.T, r *Runner) func() error {
			in, out := NewInputs(), NewOutputs()
			return func() error { return r.Run(cancelled, in, out) }
		}},
		{"RunOn", "Runner.RunOn", func(_ *testing.T, r *Runner) func() error {
			in, out := NewInputs(), NewOutputs()
			return func() error { return r.RunOn(ctx, 0, in, out) }
		}},
		{"Submit and Wait", "Runner.Submit Ticket.Wait Ticket.Err", func(_ *testing.T, r *Runner) func() error {
			in, out := NewInputs(), NewOutputs()
			return func() error { return wait(r.Submit(ctx, in, out)) }
		}},
		{"SubmitOn and Wait", "Runner.SubmitOn", func(_ *testing.T, r *Runner) func() error {
			in, out := NewInputs(), NewOutputs()
			return func() error { return wait(r.SubmitOn(ctx, 0, in, out)) }
		}},
		{"Submit with a context that can end, and Wait", "Runner.TrySubmit Runner.TrySubmitOn", func(_ *testing.T, r *Runner) func() error {
			in, out := NewInputs(), NewOutputs()
			return func() error {
				if err := wait(r.Submit(cancelled, in, out)); err != nil {
					return err
				}
				if err := wait(r.TrySubmit(in, out)); err != nil {
					return err
				}
				return wait(r.TrySubmitOn(0, in, out))
			}
		}},
		{"SubmitSamples and Wait", "Runner.SubmitSamples Runner.SubmitSamplesOn Runner.RunSamplesOn", func(_ *testing.T, r *Runner) func() error {
			x, y := someSamples(0, group+1)
			return func() error {
				if err := wait(r.SubmitSamples(ctx, x, y)); err != nil {
					return err
				}
				if err := wait(r.SubmitSamplesOn(ctx, 0, x, y)); err != nil {
					return err
				}
				return r.RunSamplesOn(ctx, 0, x, y)
			}
		}},
		{"a full queue, and Run behind it", "", func(_ *testing.T, r *Runner) func() error {
			in, out := NewInputs(), NewOutputs()
			return func() error {
				var tickets [QueueDepth]rt.Ticket
				for i := range tickets {
					var err error
					if tickets[i], err = r.Submit(ctx, in, out); err != nil {
						return err
					}
				}
				err := r.Run(ctx, in, out)
				for _, ticket := range tickets {
					if err == nil {
						err = ticket.Wait(ctx)
					}
				}
				return err
			}
		}},
		{"RunSamples, one", "Runner.RunSamples", runSamples(1)},
		{"RunSamples, a batch", "", runSamples(group)},
		{"RunSamples, two batches and a part", "", runSamples(2*group + 3)},
		{"RunSamples, two batches and a part, followed", "", func(t *testing.T, r *Runner) func() error {
			x, y := someSamples(0, 2*group+3)
			f := &still{}
			followed := context.WithValue(context.Background(), rt.RunFollowerKey{}, f)
			t.Cleanup(func() { require.NotZero(t, f.told) })
			return func() error { return r.RunSamples(followed, x, y) }
		}},
	}
	modes := []struct {
		name string
		opts func(v variant) []rt.RunnerOption
	}{
		{"plain", func(variant) []rt.RunnerOption { return nil }},
		{"concurrent", func(variant) []rt.RunnerOption { return []rt.RunnerOption{} }},
		{"timed, observed, resetting", func(variant) []rt.RunnerOption {
			return []rt.RunnerOption{rt.Timed(), rt.AutoReset(), rt.WithObserver(func(rt.Event) {})}
		}},
		{"replicas, lingering", func(v variant) []rt.RunnerOption {
			return []rt.RunnerOption{rt.WithReplicas(2), rt.WithReplicaDevices(twoDevices(v)), rt.WithBatching(rt.BatchPolicy{Linger: time.Microsecond})}
		}},
	}
	var rows []steady
	for _, v := range variants(t) {
		for _, mode := range modes {
			for _, q := range requests {
				rows = append(rows, steady{Name: v.name + "/" + mode.name + "/" + q.name, Of: q.of, Make: func(t *testing.T) func() error {
					return q.make(t, v.open(t, mode.opts(v)...))
				}})
			}
		}
		rows = append(rows,
			steady{Name: v.name + "/frozen input", Of: "", Make: func(t *testing.T) func() error {
				r := v.open(t, FreezeX(new(X)))
				in, out := &Inputs{}, NewOutputs()
				return func() error { return r.Run(ctx, in, out) }
			}},
			steady{Name: v.name + "/thread-safe Run from four goroutines", Of: "", Make: func(t *testing.T) func() error {
				r := v.open(t)
				return together(t, 4, func(int) func() error {
					in, out := NewInputs(), NewOutputs()
					return func() error { return r.Run(ctx, in, out) }
				})
			}},
			steady{Name: v.name + "/RunSamples, joined by four goroutines", Make: func(t *testing.T) func() error {
				r := v.open(t, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
				f := together(t, 4, func(i int) func() error {
					x, y := someSamples(i, 1)
					return func() error { return r.RunSamples(ctx, x, y) }
				})
				return func() error {
					before := r.Session().Stats().Requests
					err := f()
					if n := r.Session().Stats().Requests - before; err == nil && n != 1 {
						err = fmt.Errorf("%d runs, want the samples of all in one", n)
					}
					return err
				}
			}},
			steady{Name: v.name + "/session with a buffer, data and a callback", Make: func(t *testing.T) func() error {
				s, err := modelrt.NewSession(ctx, load(t, v.model), rt.WithBackend(v.backend))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				info, _ := s.Stream("h2d_x")
				x, err := modelrt.NewBuffer(info, s.DeviceIterations())
				require.NoError(t, err)
				require.NoError(t, s.Connect(ctx, "h2d_x", x))
				require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(1, 2)))
				require.NoError(t, modelrt.SetCallback(ctx, s, "anchor_d2h_y", func(context.Context, []byte) error { return nil }))
				return func() error { return s.Run(ctx) }
			}},
		)
	}
	return rows
}

func runSamples(n int) func(t *testing.T, r *Runner) func() error {
	return func(_ *testing.T, r *Runner) func() error {
		x, y := someSamples(0, n)
		return func() error { return r.RunSamples(context.Background(), x, y) }
	}
}

// together returns a function that has n goroutines do something once each, and
// waits for all of them.
func together(t *testing.T, n int, each func(i int) func() error) func() error {
	begin, ended := make(chan struct{}), make(chan error)
	t.Cleanup(func() { close(begin) })
	for i := range n {
		f := each(i)
		go func() {
			for range begin {
				ended <- f()
			}
		}()
	}
	return func() error {
		for range n {
			begin <- struct{}{}
		}
		var failed error
		for range n {
			if err := <-ended; err != nil {
				failed = err
			}
		}
		return failed
	}
}

// queueRows are the two sides of queues.
func queueRows() []steady {
	ctx := context.Background()
	done := func(error) {}
	return []steady{
		{Name: "queues of a session, a run", Of: "", Make: func(t *testing.T) func() error {
			s, m := allocSession(t)
			x, y := shiftQueues(t, m)
			in, out := make([]byte, shiftBatch*shiftSample), make([]byte, shiftBatch*shiftSample)
			return func() error {
				if err := x.Enqueue(ctx, modelrt.InputData{Data: in, OnDone: done}); err != nil {
					return err
				}
				if err := y.Enqueue(ctx, modelrt.OutputData{Data: out, OnDone: done}); err != nil {
					return err
				}
				return s.Run(ctx)
			}
		}},
		{Name: "queues of a session, flushed", Of: "QueueManager.FlushAll QueueManager.FlushStarved", Make: func(t *testing.T) func() error {
			s, m := allocSession(t)
			x, _ := shiftQueues(t, m)
			return func() error {
				if err := m.FlushAll(); err != nil {
					return err
				}
				if err := s.Run(ctx); err != nil {
					return err
				}
				if err := m.FlushStarved(x); err != nil {
					return err
				}
				return s.Run(ctx)
			}
		}},
		{Name: "queues that a loop runs", Of: "", Make: func(t *testing.T) func() error {
			s, m := allocSession(t)
			ran := runLoop(m)
			t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), <-ran)) })
			x, y := shiftQueues(t, m)
			in, out, ended := make([]byte, shiftBatch*shiftSample), make([]byte, shiftBatch*shiftSample), make(chan error, 1)
			done := func(err error) { ended <- err }
			return func() error {
				if err := x.Enqueue(ctx, modelrt.InputData{Data: in}); err != nil {
					return err
				}
				if err := y.Enqueue(ctx, modelrt.OutputData{Data: out, OnDone: done}); err != nil {
					return err
				}
				return <-ended
			}
		}},
		{Name: "queues enqueued to at once", Of: "QueueGroup.Enqueue QueueGroup.TryEnqueue", Make: func(t *testing.T) func() error {
			s, m := allocSession(t)
			ran := runLoop(m)
			t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), <-ran)) })
			g := shiftGroup(t, m)
			in, out := make([]byte, shiftBatch*shiftSample), make([]byte, shiftBatch*shiftSample)
			return func() error {
				first, err := g.Enqueue(ctx, in, out)
				if err != nil {
					return err
				}
				second, err := g.TryEnqueue(in, out)
				if err != nil {
					return err
				}
				return errors.Join(first.Wait(ctx), second.Wait(ctx))
			}
		}},
	}
}

// allocSession is the model "shift" on the cpu, with queues for x and y.
func allocSession(t *testing.T) (rt.Session, *modelrt.QueueManager) {
	s := shiftSession(t, "cpu", shiftPortable())
	require.NoError(t, s.ConnectData(context.Background(), "h2d_b", floats(1, 2, 3)))
	user := modelrt.InMain(s.Contract().Flow, modelrt.BindUser, modelrt.SkipBind)
	m, err := modelrt.NewQueueManager(context.Background(), s, modelrt.QueueConfig{Inputs: user, Outputs: user})
	require.NoError(t, err)
	return s, m
}
