package rt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
)

// The test model "shift" computes y = x + b for batches of four samples of
// three elements. b must be given at load time and can be saved.
const (
	shiftBatch  = 4
	shiftSample = 12 // bytes
)

func shiftMetadata() popef.Metadata {
	a := func(t popef.TensorType, name, handle string, program uint32, shape ...int64) popef.Anchor {
		return popef.Anchor{Name: name, Handle: handle, Type: t, Info: tensorInfo(shape...), Programs: []uint32{program}}
	}
	return popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, Executable: "shift", IsInference: true,
		ProgramFlow: popef.ProgramFlow{Load: []uint32{loadProgram}, Main: []uint32{mainProgram}, Save: []uint32{saveProgram}},
		Anchors: []popef.Anchor{
			a(popef.Input, "x", "h2d_x", mainProgram, shiftBatch, 3),
			a(popef.Output, "y", "d2h_y", mainProgram, shiftBatch, 3),
			a(popef.Input, "b", "h2d_b", loadProgram, 3),
			a(popef.Output, "b", "d2h_b", saveProgram, 3),
		},
	}
}

// shiftScript is the model on the fake back end. Its device prefetches, throws
// away and fetches.
func shiftScript() *script {
	info := func(handle string, d ipu.Direction, program int, shape ...int64) ipu.StreamInfo {
		n := 4
		for _, s := range shape {
			n *= int(s)
		}
		return ipu.StreamInfo{Handle: handle, Direction: d, Bytes: n, Type: "f32", Shape: shape, Programs: []int{program}}
	}
	return &script{
		fetching: true,
		streams: []ipu.StreamInfo{
			info("h2d_x", ipu.HostToDevice, mainProgram, shiftBatch, 3), info("d2h_y", ipu.DeviceToHost, mainProgram, shiftBatch, 3),
			info("h2d_b", ipu.HostToDevice, loadProgram, 3), info("d2h_b", ipu.DeviceToHost, saveProgram, 3),
		},
		programs: map[int]func(context.Context, *engine) error{
			loadProgram: func(_ context.Context, e *engine) error { return e.set("h2d_b") },
			mainProgram: func(_ context.Context, e *engine) error {
				x, err := e.in("h2d_x")
				if err != nil {
					return err
				}
				y := e.moved["d2h_y"]
				for i := range len(x) / 4 {
					putF32(y, i, f32s(x, i)+f32s(e.memory["h2d_b"], i%3))
				}
				e.done("h2d_x")
				if err := e.out("d2h_y", y); err != nil {
					return err
				}
				select { // as a program that takes a while
				case <-e.stopping():
					return ipu.ErrStopped
				default:
					return nil
				}
			},
			saveProgram: func(_ context.Context, e *engine) error { return e.out("d2h_b", e.memory["h2d_b"]) },
		},
	}
}

// shiftPortable is the model for the cpu back end.
func shiftPortable() []byte {
	b := graph.NewBuilder("shift")
	typ := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	bias, x := b.AddPersistent("b", typ(3)), b.AddLocal("x", typ(shiftBatch, 3))
	g := b.BeginGraph("main")
	y, err := b.Node(&graph.Binary{Fn: graph.Add}, "y", x, bias)
	if err != nil {
		panic(err)
	}
	b.AddProgram(loadProgram, "WeightsFromHost", b.CopyIn("h2d_b", bias))
	b.AddProgram(mainProgram, "Program", b.CopyIn("h2d_x", x), b.Call(g), b.CopyOut("d2h_y", y[0]))
	b.AddProgram(saveProgram, "WeightsToHost", b.CopyOut("d2h_b", bias))
	exe, err := b.Finish()
	if err != nil {
		panic(err)
	}
	var out bytes.Buffer
	if err := exe.Encode(&out); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// onShift runs a test on the model on every back end, with queues for all of
// its streams and b loaded.
func onShift(t *testing.T, c rt.QueueConfig, test func(t *testing.T, s *rt.Session, m *rt.QueueManager), opts ...rt.Option) {
	for _, backend := range []string{"cpu", fakeName} {
		t.Run(backend, func(t *testing.T) {
			exe := shiftPortable()
			if backend == fakeName {
				exe = register(t, shiftScript())
			}
			s := shiftSession(t, backend, exe, opts...)
			m, err := s.NewQueueManager(c)
			require.NoError(t, err)
			b, err := m.InputQueue("b")
			require.NoError(t, err)
			require.NoError(t, b.TryEnqueue(rt.InputData{Data: floats(10, 20, 30)}))
			require.NoError(t, s.Load(context.Background()))
			test(t, s, m)
		})
	}
}

func shiftSession(t testing.TB, backend string, exe []byte, opts ...rt.Option) *rt.Session {
	model, err := popef.LoadBytes("shift.popef", file(t, shiftMetadata(), exe, nil))
	require.NoError(t, err)
	s, err := rt.NewSession(context.Background(), model, append(opts, rt.WithBackend(backend))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Close()
		model.Close()
	})
	return s
}

// shiftQueues returns the queues of the main program.
func shiftQueues(t testing.TB, m *rt.QueueManager) (*rt.InputQueue, *rt.OutputQueue) {
	x, err := m.InputQueue("x")
	require.NoError(t, err)
	y, err := m.OutputQueue("y")
	require.NoError(t, err)
	return x, y
}

// shiftRequest is a request of n samples.
type shiftRequest struct {
	in, out []byte
	ended   chan error
}

func newShiftRequest(first, n int) *shiftRequest {
	r := &shiftRequest{out: make([]byte, n*shiftSample), ended: make(chan error, 1)}
	for i := range 3 * n {
		r.in = append(r.in, floats(float32(first+i))...)
	}
	return r
}

func (r *shiftRequest) enqueue(ctx context.Context, x *rt.InputQueue, y *rt.OutputQueue) error {
	if err := x.Enqueue(ctx, rt.InputData{Data: r.in}); err != nil {
		return err
	}
	return y.Enqueue(ctx, rt.OutputData{Data: r.out, OnDone: func(err error) { r.ended <- err }})
}

// check compares a result with what the model computes.
func (r *shiftRequest) check() error {
	for i := range len(r.in) / 4 {
		if got, want := f32s(r.out, i), f32s(r.in, i)+float32(10*(i%3+1)); got != want {
			return fmt.Errorf("element %d: got %v, want %v", i, got, want)
		}
	}
	return nil
}

func (r *shiftRequest) isEnded() bool { return len(r.ended) == 1 }

func TestFeature62_QueueManager(t *testing.T) {
	onShift(t, rt.QueueConfig{}, func(t *testing.T, s *rt.Session, m *rt.QueueManager) {
		ctx := context.Background()
		require.Same(t, m, s.QueueManager())
		_, err := s.NewQueueManager(rt.QueueConfig{})
		require.ErrorIs(t, err, rt.ErrQueueManager)

		names := func() (all []string) {
			for _, q := range m.Inputs() {
				all = append(all, fmt.Sprint("in ", q.Name(), q.Info(), q.Batch(), q.NumBuffers()))
			}
			for _, q := range m.Outputs() {
				all = append(all, fmt.Sprint("out ", q.Name(), q.Info(), q.Batch(), q.NumBuffers()))
			}
			return all
		}()
		require.Equal(t, []string{"in bF32 [3] 1 1", "in xF32 [4 3] 4 8", "out bF32 [3] 1 1", "out yF32 [4 3] 4 8"}, names)
		x, y := shiftQueues(t, m)
		byHandle, err := m.InputQueue("h2d_x")
		require.NoError(t, err)
		require.Same(t, x, byHandle)
		_, err = m.InputQueue("y")
		var unknown *rt.UnknownQueueError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, rt.ErrUnknownQueue)
		require.EqualError(t, err, `input queue "y": no such queue; there are ["b" "x"]`)
		_, err = m.OutputQueue("x")
		require.EqualError(t, err, `output queue "x": no such queue; there are ["b" "y"]`)

		var requests []*shiftRequest
		for _, n := range []int{1, 2, 5} {
			r := newShiftRequest(100*n, n)
			require.NoError(t, r.enqueue(ctx, x, y))
			requests = append(requests, r)
		}
		require.NoError(t, s.Run(ctx))
		require.True(t, requests[1].isEnded())
		require.False(t, requests[2].isEnded())
		require.NoError(t, s.Run(ctx))
		for _, r := range requests {
			require.NoError(t, <-r.ended)
			require.NoError(t, r.check())
		}

		saved := make([]byte, 12)
		b, err := m.OutputQueue("b")
		require.NoError(t, err)
		require.NoError(t, b.TryEnqueue(rt.OutputData{Data: saved}))
		require.NoError(t, s.Save(ctx))
		require.Equal(t, floats(10, 20, 30), saved)
		require.Contains(t, m.State("> "), "> ring \"x\": 0 of 8 buffers full, 8 samples enqueued in batches of 4 (in)\n")

		left := newShiftRequest(0, 2)
		require.NoError(t, left.enqueue(ctx, x, y))
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-left.ended, rt.ErrDisconnected)
		require.ErrorIs(t, newShiftRequest(0, 1).enqueue(ctx, x, y), rt.ErrDisconnected)
		require.ErrorIs(t, m.FlushAll(), rt.ErrDisconnected)
		require.ErrorIs(t, m.ResetAll(), rt.ErrClosed)
	})
}

func TestFeature62_QueuePredicates(t *testing.T) {
	ctx := context.Background()
	flow := shiftMetadata().ProgramFlow
	s := shiftSession(t, "cpu", shiftPortable())
	require.NoError(t, s.ConnectData("h2d_b", floats(1, 2, 3)))
	m, err := s.NewQueueManager(rt.QueueConfig{
		Inputs:  rt.InMain(flow, rt.BindUser, rt.SkipBind),
		Outputs: rt.InMain(flow, rt.BindUser, rt.BindEmpty),
	})
	require.NoError(t, err)
	require.Len(t, m.Inputs(), 1)
	require.Len(t, m.Outputs(), 1)
	x, y := shiftQueues(t, m)
	in, out := floats(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3), make([]byte, 48)
	require.NoError(t, x.TryEnqueue(rt.InputData{Data: in}))
	require.NoError(t, y.TryEnqueue(rt.OutputData{Data: out}))
	require.NoError(t, s.Run(ctx))
	require.Equal(t, floats(1, 2, 3, 2, 3, 4, 3, 4, 5, 4, 5, 6), out)
	require.NoError(t, s.Save(ctx), "into the empty end")

	s = shiftSession(t, "cpu", shiftPortable())
	for name, c := range map[string]rt.QueueConfig{
		"policy":    {Inputs: func(rt.Anchor) rt.CallbackPolicy { return 9 }},
		"ring size": {RingSize: func(rt.Anchor) int { return 0 }},
		"huge":      {RingSize: func(rt.Anchor) int { return 1 << 50 }},
		"batch":     {Batch: func(rt.Anchor) int { return 5 }},
		"no batch":  {Batch: func(rt.Anchor) int { return -1 }},
		"timeout":   {Timeout: -1, OnTimeout: rt.FlushOnTimeout},
	} {
		_, err := s.NewQueueManager(c)
		require.ErrorIs(t, err, rt.ErrOption, name)
	}
	_, err = s.NewQueueManager(rt.QueueConfig{Batch: func(rt.Anchor) int { return 1 }})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = s.NewQueueManager(rt.QueueConfig{})
	require.ErrorIs(t, err, rt.ErrClosed)
}

func TestFeature64_RingSizes(t *testing.T) {
	c := contract.Contract{Flow: popef.ProgramFlow{Load: []uint32{0, 1}, Main: []uint32{2, 3}, Save: []uint32{4}}}
	weight, image := rt.Anchor{Programs: []uint32{1}, Role: contract.LoadInput}, rt.Anchor{Programs: []uint32{3}, Role: contract.RunInput}
	both, unknown := rt.Anchor{Programs: []uint32{0, 2}, Role: contract.LoadInput}, rt.Anchor{Role: contract.RunOutput}
	saved := rt.Anchor{Programs: []uint32{4}, Role: contract.SaveOutput}
	for _, row := range []struct {
		name string
		size rt.RingSize
		want []int
	}{
		{"main", rt.RingSizeForMain(c, 5, 1), []int{1, 5, 5, 5, 1}},
		{"programs", rt.RingSizeForPrograms([]uint32{1, 2}, 7, 2), []int{7, 2, 7, 2, 2}},
		{"no programs", rt.RingSizeForPrograms(nil, 7, 2), []int{2, 2, 2, 2, 2}},
	} {
		var got []int
		for _, a := range []rt.Anchor{weight, image, both, unknown, saved} {
			got = append(got, row.size(a))
		}
		require.Equal(t, row.want, got, row.name)
	}
	onShift(t, rt.QueueConfig{RingSize: rt.RingSizeForPrograms([]uint32{mainProgram}, 3, 2)}, func(t *testing.T, s *rt.Session, m *rt.QueueManager) {
		var got []int
		for _, q := range m.Inputs() {
			got = append(got, q.NumBuffers())
		}
		require.Equal(t, []int{2, 12}, got)
	})
}

func TestFeature59_FlushAll(t *testing.T) {
	onShift(t, rt.QueueConfig{}, func(t *testing.T, s *rt.Session, m *rt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		r := newShiftRequest(5, 3)
		require.NoError(t, x.TryEnqueue(rt.InputData{Data: r.in}))
		err := m.FlushAll()
		require.ErrorIs(t, err, rt.ErrUnbalanced, "the output is not there yet")
		require.ErrorContains(t, err, `"x" has 3 samples in batches of 4; "y" has 0 samples in batches of 4`)
		require.EqualValues(t, 3, x.Enqueued())
		require.NoError(t, y.TryEnqueue(rt.OutputData{Data: r.out}))
		require.NoError(t, m.FlushAll())
		require.NoError(t, s.Run(ctx))
		require.NoError(t, r.check())

		require.NoError(t, m.FlushAll()) // a batch of dummies
		r = newShiftRequest(50, 4)
		require.NoError(t, r.enqueue(ctx, x, y))
		require.NoError(t, s.Run(ctx))
		require.False(t, r.isEnded())
		require.NoError(t, s.Run(ctx))
		require.NoError(t, <-r.ended)
		require.NoError(t, r.check())
		for _, q := range m.Inputs() {
			want := map[string]int64{"b": 1, "x": 12}[q.Name()]
			require.Equal(t, want, q.Enqueued(), "%s: weights are not flushed", q.Name())
		}

		_, err = y.EnqueueLock(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, m.FlushAll(), rt.ErrEnqueueLocked)
		require.EqualValues(t, 12, x.Enqueued(), "all or nothing")
		require.NoError(t, m.ResetAll())
		for m.FlushAll() == nil {
		}
		require.ErrorIs(t, m.FlushAll(), rt.ErrQueueFull)
		require.Equal(t, x.Enqueued(), y.Enqueued())
	})
}

// TestFeature59_FlushAllMixedBatches has an output that does not take part in
// the batch, as a loss.
func TestFeature59_FlushAllMixedBatches(t *testing.T) {
	batch := func(a rt.Anchor) int { return map[string]int{"x": shiftBatch, "y": 1, "b": 1}[a.Name] }
	onShift(t, rt.QueueConfig{Batch: batch}, func(t *testing.T, s *rt.Session, m *rt.QueueManager) {
		x, y := shiftQueues(t, m)
		r := newShiftRequest(5, 4)
		require.NoError(t, x.TryEnqueue(rt.InputData{Data: r.in[:2*shiftSample]}))
		require.ErrorIs(t, m.FlushAll(), rt.ErrUnbalanced)
		require.NoError(t, y.TryEnqueue(rt.OutputData{Data: r.out}))
		require.NoError(t, m.FlushAll())
		require.EqualValues(t, 4, x.Enqueued())
		require.EqualValues(t, 1, y.Enqueued(), "it lacked nothing")
		require.NoError(t, s.Run(context.Background()))
		require.Equal(t, r.in[:4], floats(f32s(r.out, 0)-10))
		require.NoError(t, m.FlushAll())
		require.EqualValues(t, 8, x.Enqueued())
		require.EqualValues(t, 2, y.Enqueued())
	})
}

// runLoop runs the main programs until that fails, as a device with its own
// clock does.
func runLoop(s *rt.Session) chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			if err := s.Run(context.Background()); err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}

func TestFeature60_CloseDuringBlockedRun(t *testing.T) {
	onShift(t, rt.QueueConfig{}, func(t *testing.T, s *rt.Session, m *rt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		ended := runLoop(s)
		whole, part := newShiftRequest(1, 4), newShiftRequest(2, 2)
		require.NoError(t, whole.enqueue(ctx, x, y))
		require.NoError(t, <-whole.ended)
		require.NoError(t, whole.check())
		require.NoError(t, part.enqueue(ctx, x, y))
		eventually(t, func() bool { return contains(x.State(""), "consumer waits") }, "the device waits for more")
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-ended, rt.ErrClosed)
		require.ErrorIs(t, <-part.ended, rt.ErrDisconnected)
	})
}

// TestFeature60_SaveAtClose closes sessions that save: what is enqueued for the
// save programs gets their results, and nothing waits for more.
func TestFeature60_SaveAtClose(t *testing.T) {
	onShift(t, rt.QueueConfig{}, func(t *testing.T, s *rt.Session, m *rt.QueueManager) {
		b, err := m.OutputQueue("b")
		require.NoError(t, err)
		saved := make([]byte, 12)
		require.NoError(t, b.TryEnqueue(rt.OutputData{Data: saved}))
		ended := runLoop(s)
		x, _ := shiftQueues(t, m)
		eventually(t, func() bool { return contains(x.State(""), "consumer waits") }, "the device waits")
		require.NoError(t, s.Close())
		require.Error(t, <-ended)
		require.Equal(t, floats(10, 20, 30), saved)
	}, rt.SaveOnUnbind())
	onShift(t, rt.QueueConfig{}, func(t *testing.T, s *rt.Session, m *rt.QueueManager) {
		require.NoError(t, s.Close())
	}, rt.SaveOnUnbind())
}

func TestFeature61_ResetAfterStop(t *testing.T) {
	onShift(t, rt.QueueConfig{}, func(t *testing.T, s *rt.Session, m *rt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		for range 3 {
			ended := runLoop(s)
			r, part := newShiftRequest(1, 4), newShiftRequest(2, 3)
			require.NoError(t, r.enqueue(ctx, x, y))
			require.NoError(t, <-r.ended)
			require.NoError(t, r.check())
			require.NoError(t, part.enqueue(ctx, x, y))
			eventually(t, func() bool { return contains(x.State(""), "consumer waits") }, "the device waits for more")
			require.ErrorIs(t, m.ResetAll(), rt.ErrConcurrent, "a program runs")
			require.NoError(t, s.Stop())
			require.ErrorIs(t, <-ended, rt.ErrStopped)
			require.ErrorIs(t, newShiftRequest(0, 1).enqueue(ctx, x, y), rt.ErrDisconnected)

			require.NoError(t, s.Reload(ctx))
			require.NoError(t, m.ResetAll())
			require.ErrorIs(t, <-part.ended, rt.ErrDisconnected)
			require.Zero(t, x.Enqueued())
			b, err := m.InputQueue("b")
			require.NoError(t, err)
			require.NoError(t, b.TryEnqueue(rt.InputData{Data: floats(10, 20, 30)}))
		}
	})
}

// TestFeature65_FlushVersusEnqueue has many goroutines enqueue requests of all
// sizes while the device's wait times out as fast as it can: every request gets
// its own results, dummies go nowhere.
func TestFeature65_FlushVersusEnqueue(t *testing.T) {
	requests := 400
	if raceEnabled || testing.Short() {
		requests = 80
	}
	var flushes, refused int
	c := rt.QueueConfig{Timeout: time.Microsecond, OnTimeout: func(m *rt.QueueManager, q *rt.InputQueue) {
		switch err := m.FlushStarved(q); {
		case err == nil:
			flushes++
		case errors.Is(err, rt.ErrUnbalanced):
			refused++
		case !errors.Is(err, rt.ErrDisconnected):
			panic(err)
		}
	}}
	onShift(t, c, func(t *testing.T, s *rt.Session, m *rt.QueueManager) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		x, y := shiftQueues(t, m)
		ended := runLoop(s)
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
		require.ErrorIs(t, <-ended, rt.ErrClosed)
		require.NotZero(t, flushes)
	})
	t.Logf("%d flushes, %d refused since a request was enqueued in part", flushes, refused)
}

// TestFeature65_PipelinedDevice is FlushVersusEnqueue on a device that looks
// ahead, throws away what it prefetched, and delivers outputs late: dummies
// find room although the rings are full of user data.
func TestFeature65_PipelinedDevice(t *testing.T) {
	rounds := 30
	if raceEnabled || testing.Short() {
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
	m, err := s.NewQueueManager(rt.QueueConfig{Timeout: 10 * time.Microsecond, OnTimeout: rt.FlushOnTimeout})
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
				if err := x.Fetch(buf); err != nil {
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
				if err := y.Fetch(computed[0]); err != nil {
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
	require.True(t, slices.ContainsFunc(m.Inputs(), func(q *rt.InputQueue) bool { return !q.Connected() }))
}

// TestFeature60_FailureDisconnects has a run fail before it moves data, which
// changes nothing, and after it, when results would go to the wrong requests.
func TestFeature60_FailureDisconnects(t *testing.T) {
	ctx := context.Background()
	for name, fault := range map[string]iputest.Fault{"before": iputest.OnRun(mainProgram), "between": iputest.OnTransfer("d2h_y")} {
		t.Run(name, func(t *testing.T) {
			sys := iputest.New(iputest.Config{})
			model, err := popef.LoadBytes("shift.popef", file(t, shiftMetadata(), shiftPortable(), map[string][]byte{"b": floats(10, 20, 30)}))
			require.NoError(t, err)
			s, err := rt.NewSession(ctx, model, rt.WithManager(sys.Manager()), rt.AutoReset())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), model.Close())) })
			m, err := s.NewQueueManager(rt.QueueConfig{})
			require.NoError(t, err)
			x, y := shiftQueues(t, m)
			first, second := newShiftRequest(100, shiftBatch), newShiftRequest(200, shiftBatch)
			require.NoError(t, first.enqueue(ctx, x, y))

			sys.Inject(fault, &ipu.Error{Kind: ipu.KindApplication})
			require.ErrorIs(t, s.Run(ctx), ipu.ErrApplication)
			if name == "between" {
				require.ErrorIs(t, second.enqueue(ctx, x, y), rt.ErrDisconnected)
				require.False(t, first.isEnded(), "its memory is the queue's until it is reset")
				require.NoError(t, m.ResetAll())
				require.ErrorIs(t, <-first.ended, rt.ErrDisconnected)
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
