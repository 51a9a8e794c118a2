package rt_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

// runLoop is the device side of queues; the channel gets what Run returns.
func runLoop(m *modelrt.QueueManager) chan error {
	ended := make(chan error, 1)
	go func() { ended <- m.Run(context.Background()) }()
	return ended
}

// Feature 60.
func TestCloseDuringBlockedRun(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		ended := runLoop(m)
		whole, part := newShiftRequest(1, 4), newShiftRequest(2, 2)
		require.NoError(t, whole.enqueue(ctx, x, y))
		require.NoError(t, <-whole.ended)
		require.NoError(t, whole.check())
		require.NoError(t, part.enqueue(ctx, x, y))
		rttest.Eventually(t, func() bool { return strings.Contains(x.State(""), "consumer waits") }, "the device waits for more")
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
		require.ErrorIs(t, <-part.ended, modelrt.ErrDisconnected)
	})
}

// TestQueuesSaveAtClose closes sessions that save: what is enqueued for the
// save programs gets their results, and nothing waits for more.
//
// Feature 60.
func TestQueuesSaveAtClose(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		b, err := m.OutputQueue("b")
		require.NoError(t, err)
		saved := make([]byte, 12)
		require.NoError(t, b.TryEnqueue(modelrt.OutputData{Data: saved}))
		ended := runLoop(m)
		x, y := shiftQueues(t, m)
		part := newShiftRequest(1, 3)
		require.NoError(t, part.enqueue(context.Background(), x, y))
		rttest.Eventually(t, func() bool { return strings.Contains(x.State(""), "consumer waits") }, "the device waits")
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
		require.ErrorIs(t, <-part.ended, modelrt.ErrDisconnected)
		require.Equal(t, floats(10, 20, 30), saved)
	}, rt.SaveOnUnbind())
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		require.NoError(t, s.Close())
	}, rt.SaveOnUnbind())
}

// Feature 61.
func TestQueuesResetAfterStop(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		for range 3 {
			ended := runLoop(m)
			r, part := newShiftRequest(1, 4), newShiftRequest(2, 3)
			require.NoError(t, r.enqueue(ctx, x, y))
			require.NoError(t, <-r.ended)
			require.NoError(t, r.check())
			require.NoError(t, part.enqueue(ctx, x, y))
			rttest.Eventually(t, func() bool { return strings.Contains(x.State(""), "consumer waits") }, "the device waits for more")
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			require.ErrorIs(t, m.ResetAll(short), context.DeadlineExceeded, "a program runs")
			cancel()
			require.NoError(t, s.Stop())
			require.NoError(t, <-ended)
			require.ErrorIs(t, newShiftRequest(0, 1).enqueue(ctx, x, y), modelrt.ErrDisconnected)

			require.NoError(t, s.Reload(ctx))
			require.NoError(t, m.ResetAll(ctx))
			require.ErrorIs(t, <-part.ended, modelrt.ErrDisconnected)
			require.Zero(t, x.Enqueued())
			b, err := m.InputQueue("b")
			require.NoError(t, err)
			require.NoError(t, b.TryEnqueue(modelrt.InputData{Data: floats(10, 20, 30)}))
		}
	})
}

// TestFlushVersusEnqueue has many goroutines enqueue requests of all
// sizes while the device's wait times out as fast as it can: every request gets
// its own results, dummies go nowhere.
//
// Feature 65.
func TestFlushVersusEnqueue(t *testing.T) {
	requests := 400
	if rttest.RaceEnabled || testing.Short() {
		requests = 80
	}
	var flushes, refused int
	c := modelrt.QueueConfig{Timeout: time.Microsecond, OnTimeout: func(m *modelrt.QueueManager, q *modelrt.InputQueue) {
		switch err := m.FlushStarved(q); {
		case err == nil:
			flushes++
		case errors.Is(err, modelrt.ErrUnbalanced):
			refused++
		case !errors.Is(err, modelrt.ErrDisconnected):
			panic(err)
		}
	}}
	onShift(t, c, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		x, y := shiftQueues(t, m)
		ended := runLoop(m)
		var all sync.WaitGroup
		var serial sync.Mutex // across the queues of one request
		for g := range 4 {
			all.Go(func() {
				for i := range requests {
					r := newShiftRequest(1000*g+i, 1+(g+i)%9)
					serial.Lock()
					err := r.enqueue(ctx, x, y)
					serial.Unlock()
					if err == nil {
						err = <-r.ended
					}
					if err == nil {
						err = r.check()
					}
					if err != nil {
						t.Errorf("goroutine %d, request %d: %v", g, i, err)
						return
					}
				}
			})
		}
		all.Wait()
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
		require.NotZero(t, flushes)
	})
	t.Logf("%d flushes, %d refused since a request was enqueued in part", flushes, refused)
}

// TestPipelinedDevice is FlushVersusEnqueue on a device that looks
// ahead, throws away what it prefetched, and delivers outputs late: dummies
// find room although the rings are full of user data.
//
// Feature 65.
func TestPipelinedDevice(t *testing.T) {
	rounds := 30
	if rttest.RaceEnabled || testing.Short() {
		rounds = 8
	}
	for seed := range rounds {
		pipelined(t, rand.New(rand.NewPCG(uint64(seed), 0)))
	}
}

func pipelined(t *testing.T, random *rand.Rand) {
	const n = 60
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	exe := register(t, shiftScript())
	s := shiftSession(t, fakeName, exe)
	m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{Timeout: 10 * time.Microsecond, OnTimeout: modelrt.FlushOnTimeout})
	require.NoError(t, err)
	x, y := shiftQueues(t, m)

	stop := make(chan struct{})
	var device sync.WaitGroup
	device.Go(func() {
		var ahead, computed [][]byte // prefetched inputs, outputs that are late
		for {
			select {
			case <-stop:
				return
			default:
			}
			for len(ahead) < random.IntN(3) {
				buf := make([]byte, shiftBatch*shiftSample)
				if !x.Prefetch(buf) {
					break
				}
				ahead = append(ahead, buf)
			}
			if random.IntN(5) == 0 {
				x.InvalidatePrefetched()
				ahead = nil
			}
			if len(ahead) == 0 {
				buf := make([]byte, shiftBatch*shiftSample)
				if err := x.Fetch(ctx, buf); err != nil {
					t.Error(err)
					return
				}
				ahead = append(ahead, buf)
			}
			x.Complete()
			buf := ahead[0]
			ahead = ahead[1:]
			for i := range len(buf) / 4 {
				putF32(buf, i, f32s(buf, i)+float32(10*(i%3+1)))
			}
			computed = append(computed, buf)
			for len(computed) > 3 || len(computed) > 0 && random.IntN(2) == 0 {
				if err := y.Fetch(ctx, computed[0]); err != nil {
					t.Error(err)
					return
				}
				y.Complete()
				computed = computed[1:]
			}
		}
	})

	var all []*shiftRequest
	for i := range n {
		r := newShiftRequest(100*i, 1+i*7%6)
		all = append(all, r)
		require.NoError(t, r.enqueue(ctx, x, y))
	}
	for i, r := range all {
		select {
		case err := <-r.ended:
			require.NoError(t, err)
		case <-ctx.Done():
			t.Fatalf("request %d hangs\n%s", i, m.State(""))
		}
		require.NoError(t, r.check(), "request %d", i)
	}
	close(stop)
	m.DisconnectAll()
	device.Wait()
	require.True(t, slices.ContainsFunc(m.Inputs(), func(q *modelrt.InputQueue) bool { return !q.Connected() }))
}

// TestFailureDisconnectsQueues has a run fail before it moves data, which
// changes nothing, and after it, when results would go to the wrong requests.
//
// Feature 60.
func TestFailureDisconnectsQueues(t *testing.T) {
	ctx := context.Background()
	for name, fault := range map[string]iputest.Fault{"before": iputest.OnRun(mainProgram), "between": iputest.OnTransfer("d2h_y")} {
		t.Run(name, func(t *testing.T) {
			sys := newSystem(iputest.Config{})
			model, err := popef.LoadBytes("shift.popef", file(t, shiftMetadata(), shiftPortable(), map[string][]byte{"b": floats(10, 20, 30)}))
			require.NoError(t, err)
			s, err := modelrt.NewSession(ctx, model, rt.WithManager(sys.Manager()), rt.AutoReset())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), model.Close())) })
			m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
			require.NoError(t, err)
			x, y := shiftQueues(t, m)
			first, second := newShiftRequest(100, shiftBatch), newShiftRequest(200, shiftBatch)
			require.NoError(t, first.enqueue(ctx, x, y))

			sys.Inject(fault, &ipu.Error{Kind: ipu.KindApplication})
			require.ErrorIs(t, s.Run(ctx), ipu.ErrApplication)
			if name == "between" {
				require.ErrorIs(t, second.enqueue(ctx, x, y), modelrt.ErrDisconnected)
				require.False(t, first.isEnded(), "its memory is the queue's until it is reset")
				require.NoError(t, m.ResetAll(ctx))
				require.ErrorIs(t, <-first.ended, modelrt.ErrDisconnected)
			}
			require.NoError(t, second.enqueue(ctx, x, y))
			if name == "before" {
				require.NoError(t, s.Run(ctx))
				require.NoError(t, <-first.ended)
				require.NoError(t, first.check())
			}
			require.NoError(t, s.Run(ctx))
			require.NoError(t, <-second.ended)
			require.NoError(t, second.check())
		})
	}
}
