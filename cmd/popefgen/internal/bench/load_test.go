package bench

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errRequest = errors.New("request failed")

// fake is a client that checks how it is used.
type fake struct {
	t                 *testing.T
	under, most       int
	started, finished atomic.Int64
	busy              map[int]bool
	failAt            int64
	pause             time.Duration
}

func (f *fake) start(slot int) error {
	if f.busy[slot] {
		f.t.Errorf("slot %d is started twice", slot)
	}
	f.busy[slot] = true
	f.under++
	f.most = max(f.most, f.under)
	if f.started.Add(1) == f.failAt {
		return errRequest
	}
	time.Sleep(f.pause)
	return nil
}

func (f *fake) finish(slot int) error {
	if !f.busy[slot] {
		f.t.Errorf("slot %d is finished and was not started", slot)
	}
	f.busy[slot] = false
	f.under--
	f.finished.Add(1)
	return nil
}

func newFake(t *testing.T) *fake { return &fake{t: t, busy: map[int]bool{}} }

// TestDrive wants every request that was started to be finished and counted,
// with as many under way as were asked for.
func TestDrive(t *testing.T) {
	for _, depth := range []int{1, 3} {
		a, b := newFake(t), newFake(t)
		a.pause, b.pause = 50*time.Microsecond, 50*time.Microsecond
		p, err := drive([]client{a, b}, depth, 5*time.Millisecond)
		require.NoError(t, err)
		require.GreaterOrEqual(t, p.took, 5*time.Millisecond)
		require.Equal(t, a.started.Load()+b.started.Load(), p.latency.Count())
		for _, f := range []*fake{a, b} {
			require.Equal(t, f.started.Load(), f.finished.Load())
			require.Equal(t, depth, f.most)
			require.GreaterOrEqual(t, f.started.Load(), int64(depth))
		}
		require.GreaterOrEqual(t, p.latency.Min(), 50*time.Microsecond)
	}
}

func TestLoopAllocatesNothing(t *testing.T) {
	f := newFake(t)
	var h Histogram
	var stop atomic.Bool
	begun := make([]time.Duration, 2)
	require.Zero(t, testing.AllocsPerRun(20, func() {
		if err := loop(f, begun, 20*time.Microsecond, &h, &stop); err != nil {
			t.Error(err)
		}
	}))
}

// TestDriveError wants an error of one client to end all.
func TestDriveError(t *testing.T) {
	a, b := newFake(t), newFake(t)
	a.pause, b.failAt = time.Millisecond, 4
	begin := time.Now()
	_, err := drive([]client{a, b}, 1, time.Hour)
	require.ErrorIs(t, err, errRequest)
	require.ErrorContains(t, err, "client 2: request 4")
	require.Less(t, time.Since(begin), time.Minute)
}
