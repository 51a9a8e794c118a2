package rt_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// soakQueue is a session whose queues any number of goroutines feed, while
// another one runs it, and a third stops it now and then. Its device fails, too.
type soakQueue struct {
	soak    *soak
	model   *popef.Model
	session rt.Session
	manager *modelrt.QueueManager
	group   *modelrt.QueueGroup
	mu      sync.Mutex // one makes it work again at a time
	running sync.WaitGroup
	closing atomic.Bool
}

const soakQueueDevice = 2

func newSoakQueue(s *soak) *soakQueue {
	q := &soakQueue{soak: s}
	var err error
	q.model, err = popef.LoadBytes("shift.popef", file(s.t, shiftMetadata(), shiftPortable(), nil))
	require.NoError(s.t, err)
	q.session, err = modelrt.NewSession(context.Background(), q.model, rt.WithManager(s.sys.Manager()), rt.WithDeviceID(soakQueueDevice), rt.AutoReset())
	require.NoError(s.t, err)
	require.NoError(s.t, q.session.ConnectData(context.Background(), "h2d_b", floats(10, 20, 30)))
	user := modelrt.InMain(q.session.Contract().Flow, modelrt.BindUser, modelrt.SkipBind)
	q.manager, err = modelrt.NewQueueManager(context.Background(), q.session, modelrt.QueueConfig{Inputs: user, Outputs: user,
		Timeout: 200 * time.Microsecond, OnTimeout: modelrt.FlushOnTimeout})
	require.NoError(s.t, err)
	q.group = shiftGroup(s.t, q.manager)
	q.running.Go(q.run)
	return q
}

// run is the device's side, which goes on after it was stopped or failed.
func (q *soakQueue) run() {
	for !q.closing.Load() {
		err := q.manager.Run(context.Background())
		var device *ipu.Error
		switch {
		case err == nil, errors.Is(err, rt.ErrUnbound):
			runtime.Gosched()
		case errors.As(err, &device), errors.Is(err, errSoak):
			q.soak.count[soakQueueFailure].Add(1)
			q.again()
		case errors.Is(err, modelrt.ErrDisconnected): // by who makes it work again
			runtime.Gosched()
		case !errors.Is(err, rt.ErrClosed):
			q.soak.t.Errorf("queues: run: %v", err)
			return
		}
	}
}

// request enqueues a request of a few samples and waits for its answer.
func (q *soakQueue) request(ctx context.Context) {
	s := q.soak
	s.count[soakQueueRequest].Add(1)
	req := newShiftRequest(rand.IntN(1<<20), 1+rand.IntN(2*shiftBatch))
	ticket, err := q.group.Enqueue(ctx, req.in, req.out)
	if err == nil {
		err = ticket.Wait(context.Background())
	}
	switch {
	case err == nil:
		s.count[soakRight].Add(1)
		if err := req.check(); err != nil {
			s.t.Errorf("queues: %v", err)
		}
	case errors.Is(err, modelrt.ErrDisconnected): // by a stop or a failure
		s.count[soakStopped].Add(1)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		s.count[soakCanceled].Add(1)
	default:
		s.t.Errorf("queues: unexpected error: %v", err)
	}
}

// reset stops the session and makes it go on, now and then.
func (q *soakQueue) reset() {
	s := q.soak
	for !s.over.Load() {
		time.Sleep(time.Duration(rand.IntN(10000)) * time.Microsecond)
		q.stop()
	}
}

func (q *soakQueue) stop() {
	s := q.soak
	if err := q.session.Stop(); err != nil && !errors.Is(err, rt.ErrStopped) && !errors.Is(err, rt.ErrUnbound) {
		s.t.Errorf("queues: stop: %v", err)
	}
	q.again()
}

// again makes the queues and the device work again, whatever it takes.
func (q *soakQueue) again() {
	s := q.soak
	s.count[soakQueueReset].Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	for range 100 { // it may fail, or be stopped, again meanwhile
		s.sys.Repair(soakQueueDevice)
		err := errors.Join(q.manager.ResetAll(context.Background()), q.session.Reload(context.Background()))
		if err == nil {
			return
		}
		if !errors.Is(err, errSoak) && !errors.Is(err, rt.ErrStopped) && !errors.As(err, new(*ipu.Error)) {
			s.t.Errorf("queues: start again: %v", err)
			return
		}
	}
	s.t.Error("queues could not be made to work again")
}

func (q *soakQueue) close() {
	q.closing.Store(true)
	require.NoError(q.soak.t, q.session.Close())
	q.running.Wait()
	require.NoError(q.soak.t, q.model.Close())
}
