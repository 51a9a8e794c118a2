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

// relay is a task of rounds whose items need all of those of the round before.
type relay struct {
	items []atomic.Int32 // how many rounds an item has had
	wrong atomic.Int32
	do    func(round, item int)
}

func newRelay(items int) *relay { return &relay{items: make([]atomic.Int32, items)} }

func (r *relay) DoRound(round, lo, hi int) {
	for i := range r.items {
		if n := int(r.items[i].Load()); n < round || n > round+1 {
			r.wrong.Add(1)
		}
	}
	for i := lo; i < hi; i++ {
		if int(r.items[i].Add(1)) != round+1 {
			r.wrong.Add(1)
		}
		if r.do != nil {
			r.do(round, i)
		}
	}
}

func (r *relay) check(t *testing.T, rounds int) {
	t.Helper()
	require.Zero(t, r.wrong.Load())
	for i := range r.items {
		require.Equal(t, int32(rounds), r.items[i].Load(), "item %d", i)
	}
}

func TestPoolRunsRoundsInOrder(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		p := New(workers)
		for n := range 300 {
			p.alone.Store(0)
			rounds, r := n%50, newRelay(n%11)
			p.RunRounds(r, rounds, len(r.items))
			r.check(t, rounds)
		}
		p.Close()
	}
}

// TestPoolRoundsUseWorkers has rounds whose items wait for each other.
func TestPoolRoundsUseWorkers(t *testing.T) {
	const rounds = 10
	p := New(2)
	defer p.Close()
	together := false
	for try := 0; try < 1000 && !together; try++ {
		p.alone.Store(0)
		r := newRelay(2)
		var here atomic.Int32
		r.do = func(round, item int) {
			here.Add(1)
			for start := time.Now(); int(here.Load()) < 2*(round+1) && time.Since(start) < time.Millisecond; {
				runtime.Gosched()
			}
			if round == rounds-1 && item == 0 {
				together = int(here.Load()) == 2*rounds
			}
		}
		p.RunRounds(r, rounds, 2)
		r.check(t, rounds)
	}
	require.True(t, together)
}

// TestPoolRoundsBearLateWorkers has workers that are kept from their work now
// and then: the caller lets them go and finishes alone.
func TestPoolRoundsBearLateWorkers(t *testing.T) {
	p := New(3)
	defer p.Close()
	late := false
	for try := 0; try < 100 && !late; try++ {
		p.alone.Store(0)
		r := newRelay(3)
		r.do = func(round, item int) {
			if round == 3 && item > 0 {
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(10 * time.Microsecond)
		}
		p.RunRounds(r, 8, 3)
		r.check(t, 8)
		late = p.alone.Load() != 0
	}
	require.True(t, late, "nothing is shared for a while")
}

func TestPoolRoundsPanicReachesTheCaller(t *testing.T) {
	p := New(2)
	defer p.Close()
	boom := errors.New("boom")
	for item := range 2 {
		for range 50 {
			p.alone.Store(0)
			r := newRelay(2)
			r.do = func(round, i int) {
				if round == 2 && i == item {
					panic(boom)
				}
			}
			func() {
				defer func() {
					err, ok := recover().(*ipu.PanicError)
					require.True(t, ok)
					require.ErrorIs(t, err, boom)
				}()
				p.RunRounds(r, 5, 2)
			}()
			require.False(t, p.busy.Load())
		}
	}
}

func TestPoolRoundsWithinATask(t *testing.T) {
	p := New(2)
	defer p.Close()
	var done sync.Map
	p.Run(&tally{runs: make([]atomic.Int32, 4), do: func(part int) {
		r := newRelay(2)
		p.RunRounds(r, 3, 2)
		done.Store(part, r)
	}}, 4)
	for part := range 4 {
		r, ok := done.Load(part)
		require.True(t, ok)
		r.(*relay).check(t, 3)
	}
}

func TestPoolRoundsAllocateNothing(t *testing.T) {
	p := New(2)
	defer p.Close()
	r := &lengths{}
	p.RunRounds(r, 4, 2)
	require.Zero(t, testing.AllocsPerRun(200, func() { p.RunRounds(r, 20, 2) }))
}

// lengths adds up how many items it was given.
type lengths struct{ sum [2]int }

func (l *lengths) DoRound(_, lo, hi int) { l.sum[lo] += hi - lo }

func BenchmarkPoolRounds(b *testing.B) {
	p := New(2)
	defer p.Close()
	r := &lengths{}
	for b.Loop() {
		p.RunRounds(r, 1000, 2)
	}
}
