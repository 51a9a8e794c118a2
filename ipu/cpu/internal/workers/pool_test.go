package workers

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

// tally counts how often each part ran.
type tally struct {
	runs []atomic.Int32
	do   func(part int)
}

func (t *tally) Do(part int) {
	t.runs[part].Add(1)
	if t.do != nil {
		t.do(part)
	}
}

func TestPoolRunsEveryPartOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		p := New(workers)
		require.Equal(t, workers, p.Workers())
		for round := range 2000 {
			task := &tally{runs: make([]atomic.Int32, round%40)}
			p.Run(task, len(task.runs))
			for i := range task.runs {
				require.Equal(t, int32(1), task.runs[i].Load())
			}
		}
		p.Close()
	}
}

func TestPoolUsesItsWorkers(t *testing.T) {
	p := New(2)
	defer p.Close()
	started := make(chan struct{})
	// Each part waits for the other one: this ends only if both run at once.
	p.Run(&tally{runs: make([]atomic.Int32, 2), do: func(part int) {
		if part == 0 {
			started <- struct{}{}
		} else {
			<-started
		}
	}}, 2)
}

func TestPoolTaskMayUseThePool(t *testing.T) {
	p := New(2)
	defer p.Close()
	inner := &tally{runs: make([]atomic.Int32, 4)}
	p.Run(&tally{runs: make([]atomic.Int32, 8), do: func(int) { p.Run(inner, 4) }}, 8)
	for i := range inner.runs {
		require.Equal(t, int32(8), inner.runs[i].Load())
	}
}

func TestPoolPanicReachesTheCaller(t *testing.T) {
	p := New(2)
	defer p.Close()
	boom := errors.New("boom")
	for range 100 {
		task := &tally{runs: make([]atomic.Int32, 16)}
		task.do = func(part int) {
			if part%4 == 1 {
				panic(boom)
			}
			runtime.Gosched()
		}
		func() {
			defer func() {
				err, ok := recover().(*ipu.PanicError)
				require.True(t, ok)
				require.ErrorIs(t, err, boom)
			}()
			p.Run(task, 16)
		}()
		for i := range task.runs {
			require.Equal(t, int32(1), task.runs[i].Load())
		}
	}
}

func TestPoolStartsNothingBeforeItIsNeeded(t *testing.T) {
	before := runtime.NumGoroutine()
	p := New(64)
	p.Run(&tally{runs: make([]atomic.Int32, 1)}, 1)
	require.Equal(t, before, runtime.NumGoroutine())
	p.Close()
}

func TestPoolCallerTakesFirstPartsWorkersLast(t *testing.T) {
	p := New(3)
	p.claims.Store(5 << 32)
	var got []int
	for _, caller := range []bool{true, false, true, false, false, true} {
		if part, ok := p.claim(caller); ok {
			got = append(got, part)
		}
	}
	require.Equal(t, []int{0, 4, 1, 3, 2}, got)
	require.False(t, p.waiting())
}

// wide runs a task whose parts wait for each other, so that all workers are
// awake afterwards.
func wide(p *Pool) {
	var here sync.WaitGroup
	here.Add(p.workers)
	p.Run(&tally{runs: make([]atomic.Int32, p.workers), do: func(int) {
		here.Done()
		here.Wait()
	}}, p.workers)
}

func TestPoolPays(t *testing.T) {
	one := New(1)
	require.False(t, one.Pays(1<<30))

	p := New(2)
	defer p.Close()
	require.False(t, p.Pays(shareCost-1))
	require.True(t, p.Pays(WakeCost))
	p.unshared = 0
	// Work that is not worth a wake-up by itself adds up to one.
	n := 1
	for p.lately = int64(time.Since(epoch)); !p.Pays(WakeCost / 4); n++ {
		require.Less(t, n, 1000)
	}
	require.GreaterOrEqual(t, n, 4)
	// After a worker's core was taken away nothing is shared for a while.
	p.alone.Store(int64(time.Since(epoch) + time.Hour))
	require.False(t, p.Pays(1<<30))
	p.alone.Store(1)
	require.True(t, p.Pays(1<<30))
	require.Zero(t, p.alone.Load())
}

func TestPoolWakesWorkersAheadOfARequest(t *testing.T) {
	p := New(3)
	defer p.Close()
	task := &tally{runs: make([]atomic.Int32, 4)}
	request := func(cost, parts int) {
		p.Begin()
		if p.Pays(cost) {
			p.Run(task, parts)
		}
		p.End()
	}
	asleep := func() {
		require.Eventually(t, func() bool { return p.awake() == 0 }, 10*time.Second, time.Millisecond)
	}
	p.Begin()
	require.False(t, p.within.Load(), "nothing to share was ever seen")
	p.End()
	for _, c := range []struct {
		name        string
		cost, parts int
		want        bool
	}{
		{"much", WakeCost, 4, true},
		{"little", shareCost - 1, 4, false},
		{"much that can't be cut", WakeCost, 1, false},
		{"much again", WakeCost, 4, true},
	} {
		// Whoever else has the cores may keep a worker from being seen awake.
		woken := false
		for range 100 {
			p.alone.Store(0)
			request(c.cost, c.parts)
			asleep()
			p.alone.Store(0)
			p.Begin()
			require.True(t, p.within.Load())
			woken = p.awake() > 0
			p.End()
			require.False(t, p.within.Load())
			asleep()
			if woken == c.want {
				break
			}
		}
		require.Equal(t, c.want, woken, c.name)
	}
	// Requests whose operators are too small one by one.
	woken := false
	for range 100 {
		p.alone.Store(0)
		p.Begin()
		for range 4 {
			p.lately = int64(time.Since(epoch))
			p.Pays(WakeCost / 4)
		}
		p.End()
		p.Begin()
		woken = p.awake() > 0
		p.End()
		asleep()
		if woken {
			break
		}
	}
	require.True(t, woken)
}

func TestPoolAwaitsLongParts(t *testing.T) {
	p := New(2)
	defer p.Close()
	await := func(part time.Duration, finish func()) bool {
		p.alone.Store(0)
		p.remaining.Store(1)
		go finish()
		p.await(part)
		return p.alone.Load() != 0
	}
	require.False(t, await(time.Hour, func() {
		time.Sleep(4 * spinTime)
		p.remaining.Store(0)
	}), "the caller's own part took longer")
	require.True(t, await(0, func() {
		for !p.parked.CompareAndSwap(true, false) {
			runtime.Gosched()
		}
		p.remaining.Store(0)
		p.done <- struct{}{}
	}), "the caller had to sleep")
}

func TestPoolForgetsWhatWasNotSharedLongAgo(t *testing.T) {
	p := New(2)
	defer p.Close()
	for range 20 {
		p.lately = int64(time.Since(epoch) - 2*recently)
		require.False(t, p.Pays(WakeCost/2))
	}
}

func TestPoolParks(t *testing.T) {
	for _, workers := range []int{2, 5} {
		for _, within := range []bool{false, true} {
			p := New(workers)
			p.within.Store(within)
			for range 20 {
				wide(p)
				require.Eventually(t, func() bool { return p.awake() == 0 }, 10*time.Second, time.Millisecond, "idle workers burn no processor time")
			}
			p.Close()
		}
	}
}

func TestBeds(t *testing.T) {
	var s semaphore
	s.init(8)
	var up atomic.Int32
	var sleepers sync.WaitGroup
	for range 8 {
		sleepers.Go(func() {
			for range 10 {
				s.wait()
				up.Add(1)
			}
		})
	}
	for range 80 {
		s.post()
	}
	sleepers.Wait()
	require.Equal(t, int32(80), up.Load())
}

func TestPoolsShareAMachine(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			p := New(3)
			defer p.Close()
			for range 500 {
				task := &tally{runs: make([]atomic.Int32, 7)}
				p.Run(task, 7)
				for i := range task.runs {
					if task.runs[i].Load() != 1 {
						t.Errorf("part %d ran %d times", i, task.runs[i].Load())
					}
				}
			}
		})
	}
	all.Wait()
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := New(2)
	defer p.Close()
	task := &tally{runs: make([]atomic.Int32, 4)}
	p.Run(task, 4)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if p.Pays(WakeCost) {
			p.Run(task, 4)
		}
	}))
}

func BenchmarkPool(b *testing.B) {
	p := New(2)
	defer p.Close()
	task := &tally{runs: make([]atomic.Int32, 2)}
	for b.Loop() {
		p.Run(task, 2)
	}
}
