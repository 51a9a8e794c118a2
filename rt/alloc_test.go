package rt_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/ring"
)

// steady is something that allocates nothing, however often it is done.
type steady struct {
	name string
	of   string // the methods that it is about, as "Type.Method Type.Method"
	make func(t *testing.T) func() error
}

// notSteady are the methods of the types below that are for the beginning, the
// end, changes and questions: they may allocate.
const notSteady = `
	Runner.Close Runner.Shutdown Runner.Config Ticket.Cancel Ticket.Done Runner.Replica Runner.Save Runner.SaveOn Runner.SaveAtClose Runner.Session Runner.UpdateWeights
	Ring.Invalidate Ring.Label Ring.NumBuffers Ring.Reset Ring.State Ring.StateOf Ring.Valid Ring.Finish Ring.WakeWriter Ring.Drain
	InputQueue.Anchor InputQueue.Batch InputQueue.Connected InputQueue.Disconnect InputQueue.Enqueued InputQueue.Info
	InputQueue.Name InputQueue.NumBuffers InputQueue.Reset InputQueue.SampleBytes InputQueue.State InputQueue.TransferBytes
	OutputQueue.Anchor OutputQueue.Batch OutputQueue.Connected OutputQueue.Disconnect OutputQueue.Enqueued OutputQueue.Info
	OutputQueue.Name OutputQueue.NumBuffers OutputQueue.Reset OutputQueue.SampleBytes OutputQueue.State OutputQueue.TransferBytes
	OutputQueue.Prefetch OutputQueue.InvalidatePrefetched
	QueueManager.DisconnectAll QueueManager.Group QueueManager.InputQueue QueueManager.Inputs QueueManager.OutputQueue QueueManager.Outputs
	QueueManager.ResetAll QueueManager.Run QueueManager.State
	RingPool.BlobSize RingPool.NumBlobs`

var errWrong = errors.New("wrong result")

// TestNoAllocations goes through everything that is done again and again, and
// fails for a method of its types that is neither in the table nor listed above.
func TestNoAllocations(t *testing.T) {
	table := slices.Concat(requestRows(t), queueRows(), ringRows())
	known := strings.Fields(notSteady)
	for _, row := range table {
		known = append(known, strings.Fields(row.of)...)
	}
	for _, v := range []any{&Runner{}, rt.Ticket{}, &ring.Ring[int]{}, &rt.InputQueue{}, &rt.OutputQueue{}, &rt.QueueManager{}, &rt.QueueGroup{}, &rt.RingPool{}, &rt.Blob{}} {
		typ := reflect.TypeOf(v)
		name, _, _ := strings.Cut(typ.String()[strings.Index(typ.String(), ".")+1:], "[")
		for i := range typ.NumMethod() {
			require.Contains(t, known, name+"."+typ.Method(i).Name, "add it to the table")
		}
	}
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			f := row.make(t)
			require.Zero(t, testing.AllocsPerRun(200, func() {
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}))
		})
	}
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
				rows = append(rows, steady{v.name + "/" + mode.name + "/" + q.name, q.of, func(t *testing.T) func() error {
					return q.make(t, v.open(t, mode.opts(v)...))
				}})
			}
		}
		rows = append(rows,
			steady{v.name + "/frozen input", "", func(t *testing.T) func() error {
				r := v.open(t, FreezeX(new(X)))
				in, out := &Inputs{}, NewOutputs()
				return func() error { return r.Run(ctx, in, out) }
			}},
			steady{v.name + "/thread-safe Run from four goroutines", "", func(t *testing.T) func() error {
				r := v.open(t)
				return together(t, 4, func(int) func() error {
					in, out := NewInputs(), NewOutputs()
					return func() error { return r.Run(ctx, in, out) }
				})
			}},
			steady{v.name + "/RunSamples, joined by four goroutines", "", func(t *testing.T) func() error {
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
			steady{v.name + "/session with a buffer, data and a callback", "", func(t *testing.T) func() error {
				s, err := rt.NewSession(ctx, load(t, v.model), rt.WithBackend(v.backend))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				info, _ := s.Stream("h2d_x")
				x, err := rt.NewBuffer(info, s.DeviceIterations())
				require.NoError(t, err)
				require.NoError(t, s.Connect(ctx, "h2d_x", x))
				require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(1, 2)))
				require.NoError(t, s.SetCallback(ctx, "anchor_d2h_y", func(context.Context, []byte) error { return nil }))
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
	done, call := func(error) {}, func() {}
	data, buf := make([]byte, 8), make([]byte, 8)
	in := func(t *testing.T, f func(q *rt.InputQueue) error) func() error {
		q := inputQueue(t, 2)
		return func() error { return f(q) }
	}
	out := func(t *testing.T, f func(q *rt.OutputQueue) error) func() error {
		q := outputQueue(t, 2)
		return func() error { return f(q) }
	}
	return []steady{
		{"input queue/regrouped", "InputQueue.Enqueue InputQueue.Fetch InputQueue.Complete InputQueue.ReadAvailable", func(t *testing.T) func() error {
			return in(t, func(q *rt.InputQueue) error {
				for range 2 {
					if err := q.Enqueue(ctx, rt.InputData{Data: data[:4], OnReadStart: call, OnReadComplete: call, OnDone: done}); err != nil {
						return err
					}
				}
				if !q.ReadAvailable() {
					return errWrong
				}
				err := q.Fetch(ctx, buf)
				q.Complete()
				return err
			})
		}},
		{"input queue/prefetched twice", "InputQueue.TryEnqueue InputQueue.Prefetch InputQueue.InvalidatePrefetched", func(t *testing.T) func() error {
			return in(t, func(q *rt.InputQueue) error {
				if err := q.TryEnqueue(rt.InputData{Data: data, OnDone: done}); err != nil {
					return err
				}
				q.Prefetch(buf)
				q.InvalidatePrefetched()
				q.Prefetch(buf)
				q.Complete()
				return nil
			})
		}},
		{"input queue/in place, flushed", "InputQueue.EnqueueLock InputQueue.EnqueueComplete InputQueue.Flush InputQueue.Memory", func(t *testing.T) func() error {
			return in(t, func(q *rt.InputQueue) error {
				d, err := q.EnqueueLock(ctx)
				if err != nil {
					return err
				}
				d.Data = data
				if err = q.EnqueueComplete(); err == nil {
					err = q.Flush()
				}
				for range 2 {
					if err == nil {
						_, err = q.Memory(ctx)
						q.Complete()
					}
				}
				return err
			})
		}},
		{"output queue/scattered", "OutputQueue.Enqueue OutputQueue.Fetch OutputQueue.Complete OutputQueue.ReadAvailable", func(t *testing.T) func() error {
			return out(t, func(q *rt.OutputQueue) error {
				for range 2 {
					if err := q.Enqueue(ctx, rt.OutputData{Data: data[:4], OnWriteComplete: call, OnDone: done}); err != nil {
						return err
					}
				}
				if !q.ReadAvailable() {
					return errWrong
				}
				err := q.Fetch(ctx, buf)
				q.Complete()
				return err
			})
		}},
		{"output queue/in place, flushed", "OutputQueue.TryEnqueue OutputQueue.EnqueueLock OutputQueue.EnqueueComplete OutputQueue.Flush OutputQueue.Memory", func(t *testing.T) func() error {
			return out(t, func(q *rt.OutputQueue) error {
				err := q.TryEnqueue(rt.OutputData{Data: data, OnDone: done})
				if err != nil {
					return err
				}
				d, err := q.EnqueueLock(ctx)
				if err != nil {
					return err
				}
				d.Data = data
				if err = q.EnqueueComplete(); err == nil {
					err = q.Flush()
				}
				for range 3 {
					if err == nil {
						_, err = q.Memory(ctx)
						q.Complete()
					}
				}
				return err
			})
		}},
		{"queues of a session, a run", "", func(t *testing.T) func() error {
			s, m := allocSession(t)
			x, y := shiftQueues(t, m)
			in, out := make([]byte, shiftBatch*shiftSample), make([]byte, shiftBatch*shiftSample)
			return func() error {
				if err := x.Enqueue(ctx, rt.InputData{Data: in, OnDone: done}); err != nil {
					return err
				}
				if err := y.Enqueue(ctx, rt.OutputData{Data: out, OnDone: done}); err != nil {
					return err
				}
				return s.Run(ctx)
			}
		}},
		{"queues of a session, flushed", "QueueManager.FlushAll QueueManager.FlushStarved", func(t *testing.T) func() error {
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
		{"queues that a loop runs", "", func(t *testing.T) func() error {
			s, m := allocSession(t)
			ran := runLoop(m)
			t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), <-ran)) })
			x, y := shiftQueues(t, m)
			in, out, ended := make([]byte, shiftBatch*shiftSample), make([]byte, shiftBatch*shiftSample), make(chan error, 1)
			done := func(err error) { ended <- err }
			return func() error {
				if err := x.Enqueue(ctx, rt.InputData{Data: in}); err != nil {
					return err
				}
				if err := y.Enqueue(ctx, rt.OutputData{Data: out, OnDone: done}); err != nil {
					return err
				}
				return <-ended
			}
		}},
		{"queues enqueued to at once", "QueueGroup.Enqueue QueueGroup.TryEnqueue", func(t *testing.T) func() error {
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
		{"a pool", "RingPool.Get Blob.Bytes Blob.Done Blob.Release", func(t *testing.T) func() error {
			pool, err := rt.NewRingPool(8, 2)
			require.NoError(t, err)
			return func() error {
				a, err := pool.Get()
				if err != nil {
					return err
				}
				b, err := pool.Get()
				if err != nil {
					return err
				}
				copy(a.Bytes(), b.Bytes())
				a.Done()(nil)
				return b.Release()
			}
		}},
	}
}

// allocSession is the model "shift" on the cpu, with queues for x and y.
func allocSession(t *testing.T) (*rt.Session, *rt.QueueManager) {
	s := shiftSession(t, "cpu", shiftPortable())
	require.NoError(t, s.ConnectData(context.Background(), "h2d_b", floats(1, 2, 3)))
	user := rt.InMain(s.Contract().Flow, rt.BindUser, rt.SkipBind)
	m, err := s.NewQueueManager(context.Background(), rt.QueueConfig{Inputs: user, Outputs: user})
	require.NoError(t, err)
	return s, m
}

// ringRows are rings that nobody waits for, and a pair of which each side waits
// for the other every time.
func ringRows() []steady {
	ctx := context.Background()
	return []steady{
		{"ring/one goroutine", "Ring.Write Ring.WriteLock Ring.WriteComplete Ring.TryWriteLock Ring.ReadLock Ring.TryReadLock Ring.ReadComplete Ring.ReadReset Ring.ReadAvailable Ring.Ahead Ring.AwaitFree Ring.NextFree Ring.Peek Ring.Held Ring.Oldest Ring.Unfinished",
			func(t *testing.T) func() error {
				r, err := ring.New(ring.Config[int]{Size: 4})
				require.NoError(t, err)
				return func() error {
					err := r.AwaitFree(ctx, r.Ahead(0))
					if *r.NextFree() = 1; err == nil {
						err = r.WriteComplete()
					}
					if r.Peek(0) == nil || !r.Unfinished() || r.Held() != 0 || r.Oldest() != nil {
						return errWrong
					}
					if v, _ := r.TryReadLock(); v == nil || err != nil || r.ReadComplete() != nil {
						return errWrong
					}
					err = r.Write(ctx, 1)
					if v, _ := r.TryWriteLock(); err == nil && v != nil {
						*v = 2
						err = r.WriteComplete()
					}
					if v, _ := r.WriteLock(ctx); err == nil && v != nil {
						*v = 3
						err = r.WriteComplete()
					}
					_, _ = r.ReadLock(ctx)
					r.ReadReset()
					for i := 1; i <= 3 && err == nil; i++ {
						v, _ := r.TryReadLock()
						if v == nil || *v != i || r.ReadAvailable() != (i < 3) {
							return errWrong
						}
						err = r.ReadComplete()
					}
					return err
				}
			}},
		{"ring/two goroutines that park", "", func(t *testing.T) func() error { return pingPong(t, ctx, 0) }},
		{"ring/two goroutines that park with a context and a timeout", "", func(t *testing.T) func() error {
			cancelled, cancel := context.WithCancel(ctx)
			t.Cleanup(cancel)
			return pingPong(t, cancelled, time.Hour)
		}},
	}
}

func pingPong(t *testing.T, ctx context.Context, timeout time.Duration) func() error {
	c := ring.Config[int]{Size: 1, Timeout: timeout, OnTimeout: func(*ring.Ring[int]) {}}
	there, err := ring.New(c)
	require.NoError(t, err)
	back, err := ring.New(c)
	require.NoError(t, err)
	t.Cleanup(there.Invalidate)
	go func() {
		for {
			v, err := there.ReadLock(ctx)
			if err != nil {
				return
			}
			_ = back.Write(ctx, *v)
			_ = there.ReadComplete()
		}
	}()
	return func() error {
		if err := there.Write(ctx, 1); err != nil {
			return err
		}
		if _, err := back.ReadLock(ctx); err != nil {
			return err
		}
		return back.ReadComplete()
	}
}
