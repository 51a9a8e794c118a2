package rt_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestQueuesRun ends a loop in every way, while it has nothing to do, and while
// its program waits for the rest of a batch: nothing that was enqueued is left
// without an answer, and nothing more can be enqueued.
func TestQueuesRun(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	type way struct {
		name string
		end  func(t *testing.T, cancel func(), s rt.Session, m *modelrt.QueueManager)
		want error // of Run
		left error // of what is in the queues
	}
	for _, w := range []way{
		{"Close", func(t *testing.T, _ func(), s rt.Session, _ *modelrt.QueueManager) {
			require.NoError(t, s.Close())
		}, nil, modelrt.ErrDisconnected},
		{"Stop", func(t *testing.T, _ func(), s rt.Session, _ *modelrt.QueueManager) {
			require.NoError(t, s.Stop())
		}, nil, modelrt.ErrDisconnected},
		{"Shutdown", func(t *testing.T, _ func(), s rt.Session, _ *modelrt.QueueManager) {
			require.NoError(t, s.Shutdown(context.Background()))
		}, nil, nil},
		{"Shutdown at once", func(t *testing.T, _ func(), s rt.Session, _ *modelrt.QueueManager) {
			if err := s.Shutdown(over); err != nil { // there may be nothing to wait for
				require.ErrorIs(t, err, context.Canceled)
			}
		}, nil, modelrt.ErrDisconnected},
		{"context", func(_ *testing.T, cancel func(), _ rt.Session, _ *modelrt.QueueManager) { cancel() }, context.Canceled, context.Canceled},
		{"DisconnectAll", func(_ *testing.T, _ func(), _ rt.Session, m *modelrt.QueueManager) { m.DisconnectAll() }, modelrt.ErrDisconnected, modelrt.ErrDisconnected},
	} {
		for _, left := range []int{0, 3} {
			t.Run(w.name+map[int]string{0: " idle", 3: " busy"}[left], func(t *testing.T) {
				onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
					background := context.Background()
					ctx, cancel := context.WithCancel(background)
					defer cancel()
					x, y := shiftQueues(t, m)
					ended := make(chan error, 1)
					go func() { ended <- m.Run(ctx) }()
					first, rest := newShiftRequest(10, 2*shiftBatch), newShiftRequest(99, max(1, left))
					require.NoError(t, first.enqueue(background, x, y))
					require.NoError(t, <-first.ended)
					require.NoError(t, first.check())
					if left > 0 {
						require.NoError(t, rest.enqueue(background, x, y))
						rttest.Eventually(t, func() bool { return strings.Contains(x.State(""), "consumer waits") }, "the program waits")
					}
					w.end(t, cancel, s, m)
					if w.want == nil {
						require.NoError(t, <-ended)
					} else {
						require.ErrorIs(t, <-ended, w.want)
					}
					if left > 0 {
						err := <-rest.ended
						if w.name != "Shutdown at once" || err != nil { // it may have been faster
							require.ErrorIs(t, err, w.left)
						}
						if err == nil {
							require.NoError(t, rest.check())
						} else {
							require.ErrorIs(t, err, modelrt.ErrDisconnected)
						}
					}
					require.ErrorIs(t, newShiftRequest(0, 1).enqueue(background, x, y), modelrt.ErrDisconnected)
					if errors.Is(w.want, context.Canceled) {
						err := x.Enqueue(background, modelrt.InputData{Data: rest.in})
						require.ErrorIs(t, err, context.Canceled, "it says why")
						require.ErrorIs(t, m.Run(background), modelrt.ErrDisconnected)
						require.NoError(t, m.ResetAll(background))
						again := runLoop(m)
						require.NoError(t, first.enqueue(background, x, y))
						require.NoError(t, <-first.ended)
						require.NoError(t, s.Close())
						require.NoError(t, <-again)
					}
				})
			})
		}
	}
}

// TestQueuesRunIdle looks at a loop that has nothing to do: it is in nobody's
// way, moves no dummy data, and takes up what comes then.
func TestQueuesRunIdle(t *testing.T) {
	c := modelrt.QueueConfig{Timeout: time.Microsecond, OnTimeout: modelrt.FlushOnTimeout}
	onShift(t, c, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		x, y := shiftQueues(t, m)
		ended := runLoop(m)
		for i := range 3 {
			r := newShiftRequest(i, 1)
			require.NoError(t, r.enqueue(ctx, x, y))
			require.NoError(t, <-r.ended)
			require.NoError(t, r.check())
			_, err := s.Unconnected(ctx) // the run has ended by then
			require.NoError(t, err)
			before := s.Stats().Requests
			require.EqualValues(t, i+1, before)
			require.NoError(t, s.CheckConnected(ctx))
			b, err := m.OutputQueue("b")
			require.NoError(t, err)
			saved := make([]byte, 12)
			require.NoError(t, b.TryEnqueue(modelrt.OutputData{Data: saved}))
			require.NoError(t, s.Save(ctx))
			require.Equal(t, floats(10, 20, 30), saved)
			require.ErrorIs(t, m.Run(ctx), rt.ErrConcurrent)
			time.Sleep(time.Millisecond)
			require.Equal(t, before, s.Stats().Requests, "no run that nobody waits for")
		}
		require.NoError(t, s.Shutdown(ctx))
		require.NoError(t, <-ended)
	})
	s := shiftSession(t, portable, shiftPortable())
	none := modelrt.InMain(s.Contract().Flow, modelrt.SkipBind, modelrt.SkipBind)
	m, err := modelrt.NewQueueManager(context.Background(), s, modelrt.QueueConfig{Inputs: none, Outputs: none})
	require.NoError(t, err)
	require.ErrorIs(t, m.Run(context.Background()), rt.ErrOption)
}

// TestQueuesRunOutputs has a program whose inputs have no queues: a run begins
// when there is memory for its outputs.
func TestQueuesRunOutputs(t *testing.T) {
	ctx := context.Background()
	s := shiftSession(t, portable, shiftPortable())
	require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(1, 2, 3)))
	require.NoError(t, s.ConnectData(ctx, "h2d_x", newShiftRequest(5, shiftBatch).in))
	m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{Inputs: func(modelrt.Anchor) modelrt.CallbackPolicy { return modelrt.SkipBind }})
	require.NoError(t, err)
	y, err := m.OutputQueue("y")
	require.NoError(t, err)
	ended := runLoop(m)
	for range 3 {
		out, done := make([]byte, shiftBatch*shiftSample), make(chan error, 1)
		require.NoError(t, y.Enqueue(ctx, modelrt.OutputData{Data: out, OnDone: func(err error) { done <- err }}))
		require.NoError(t, <-done)
		require.Equal(t, float32(6), f32s(out, 0))
	}
	require.NoError(t, s.Close())
	require.NoError(t, <-ended)
}

// TestQueuesRunFailure has the device fail in the middle of a run, with requests
// behind it: Run says what failed, all get their memory back and the reason,
// and after a reset everything works.
func TestQueuesRunFailure(t *testing.T) {
	ctx := context.Background()
	sys := newSystem(iputest.Config{})
	model, err := popef.LoadBytes("shift.popef", file(t, shiftMetadata(), shiftPortable(), map[string][]byte{"b": floats(10, 20, 30)}))
	require.NoError(t, err)
	s, err := modelrt.NewSession(ctx, model, rt.WithManager(sys.Manager()), rt.AutoReset(), rt.Timed())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), model.Close())) })
	m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
	require.NoError(t, err)
	x, y := shiftQueues(t, m)
	for i, fault := range []iputest.Fault{iputest.OnRun(mainProgram), iputest.OnTransfer("d2h_y"), iputest.OnTransfer("h2d_x")} {
		var all []*shiftRequest
		for k := range 3 {
			all = append(all, newShiftRequest(k, shiftBatch-1))
			require.NoError(t, all[k].enqueue(ctx, x, y))
		}
		sys.Inject(fault, &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset})
		failed := m.Run(ctx)
		require.ErrorIs(t, failed, rt.ErrDevice, "fault %d", i)
		for _, r := range all {
			err := <-r.ended
			require.ErrorIs(t, err, modelrt.ErrDisconnected)
			require.ErrorIs(t, err, rt.ErrDevice)
		}
		require.ErrorIs(t, all[0].enqueue(ctx, x, y), rt.ErrDevice)
		require.NoError(t, m.ResetAll(ctx))
		ended := runLoop(m)
		r := newShiftRequest(7, 2*shiftBatch)
		require.NoError(t, r.enqueue(ctx, x, y))
		require.NoError(t, <-r.ended)
		require.NoError(t, r.check())
		require.NoError(t, s.Stop())
		require.NoError(t, <-ended)
		require.NoError(t, errors.Join(s.Reload(ctx), m.ResetAll(ctx)))
	}
	require.NotZero(t, s.Stats().Computation.Count)
}

// TestQueuesRunPanic has a function of a queue panic while memory is
// returned: Run reports that too, and all other memory is returned.
func TestQueuesRunPanic(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		x, y := shiftQueues(t, m)
		ctx, cancel := context.WithCancel(context.Background())
		r := newShiftRequest(1, 1)
		require.NoError(t, x.TryEnqueue(modelrt.InputData{Data: r.in, OnDone: func(error) { panic("ouch") }}))
		require.NoError(t, y.TryEnqueue(modelrt.OutputData{Data: r.out, OnDone: func(err error) { r.ended <- err }}))
		cancel()
		err := m.Run(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, rt.ErrPanic)
		require.ErrorIs(t, <-r.ended, modelrt.ErrDisconnected)
	})
}

// TestShutdownDrainsQueues shuts a session down while many enqueue: a request
// that was accepted is computed, one that was not is refused, and nobody waits
// for ever.
func TestShutdownDrainsQueues(t *testing.T) {
	rounds := 60
	if rttest.RaceEnabled || testing.Short() {
		rounds = 15
	}
	var answered, refused atomic.Int64
	for round := range rounds {
		onShift(t, modelrt.QueueConfig{RingSize: func(modelrt.Anchor) int { return 1 + round%2 }}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			x, y := shiftQueues(t, m)
			ended := runLoop(m)
			first := newShiftRequest(1, shiftBatch)
			require.NoError(t, first.enqueue(ctx, x, y))
			require.NoError(t, <-first.ended) // the loop has begun
			var all sync.WaitGroup
			var serial sync.Mutex
			for g := range 3 {
				all.Go(func() {
					for i := 0; ; i++ {
						r := newShiftRequest(1000*g+i, 1+rand.IntN(2*shiftBatch))
						serial.Lock()
						err := x.Enqueue(ctx, modelrt.InputData{Data: r.in})
						if err == nil {
							err = y.Enqueue(ctx, modelrt.OutputData{Data: r.out, OnDone: func(err error) { r.ended <- err }})
						}
						serial.Unlock()
						if err != nil {
							if !errors.Is(err, modelrt.ErrDisconnected) {
								t.Errorf("enqueue: %v", err)
							}
							refused.Add(1)
							return
						}
						switch err := <-r.ended; {
						case err == nil:
							answered.Add(1)
							if err := r.check(); err != nil {
								t.Error(err)
							}
						case !errors.Is(err, modelrt.ErrUnbalanced): // another was refused in the middle
							t.Errorf("an accepted request: %v", err)
						}
					}
				})
			}
			for range rand.IntN(50) {
				runtime.Gosched()
			}
			require.NoError(t, s.Shutdown(ctx))
			require.NoError(t, <-ended)
			all.Wait()
		})
	}
	require.NotZero(t, answered.Load())
	require.EqualValues(t, 2*3*rounds, refused.Load())
}

// TestShutdownHalfEnqueued shuts a session down while a request is enqueued in
// part, which nobody can compute any more.
func TestShutdownHalfEnqueued(t *testing.T) {
	for _, waits := range []bool{false, true} {
		onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
			x, y := shiftQueues(t, m)
			r := newShiftRequest(1, shiftBatch)
			done := make(chan error, 1)
			half := modelrt.InputData{Data: r.in, OnDone: func(err error) { done <- err }}
			if waits {
				half.Data = half.Data[:shiftSample]
			}
			require.NoError(t, x.TryEnqueue(half))
			ended := runLoop(m)
			if waits {
				rttest.Eventually(t, func() bool { return strings.Contains(x.State(""), "consumer waits") }, "the program waits")
			} else {
				rttest.Eventually(t, func() bool { return strings.Contains(y.State(""), "consumer waits") }, "the program waits")
			}
			require.NoError(t, s.Shutdown(context.Background()))
			require.NoError(t, <-ended)
			if waits {
				require.ErrorIs(t, <-done, modelrt.ErrUnbalanced)
			}
		})
	}
}

// TestShutdownFillsRuns drains a model whose runs have several device
// iterations: whole runs are filled up.
func TestShutdownFillsRuns(t *testing.T) {
	script, meta := shiftScript(), shiftMetadata()
	meta.DeviceIterations = 3
	once := script.programs[mainProgram]
	script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		for range 3 {
			if err := once(ctx, e); err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range []int{1, shiftBatch, shiftBatch + 1, 3 * shiftBatch, 7*shiftBatch - 1} {
		model, err := popef.LoadBytes("shift.popef", file(t, meta, register(t, script), map[string][]byte{"b": floats(10, 20, 30)}))
		require.NoError(t, err)
		s, err := modelrt.NewSession(context.Background(), model, rt.WithBackend(fakeName))
		require.NoError(t, err)
		m, err := modelrt.NewQueueManager(context.Background(), s, modelrt.QueueConfig{})
		require.NoError(t, err)
		x, y := shiftQueues(t, m)
		ended := runLoop(m)
		first := newShiftRequest(1, 3*shiftBatch)
		require.NoError(t, first.enqueue(context.Background(), x, y))
		require.NoError(t, <-first.ended) // the loop has begun
		r := newShiftRequest(5, n)
		require.NoError(t, r.enqueue(context.Background(), x, y))
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-ended)
		require.NoError(t, <-r.ended)
		require.NoError(t, r.check())
		require.EqualValues(t, 1+(n+3*shiftBatch-1)/(3*shiftBatch), s.Stats().Requests)
		require.NoError(t, model.Close())
	}
}
