package cpu

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
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
		p := newPool(workers)
		require.Equal(t, workers, p.Workers())
		for round := range 2000 {
			task := &tally{runs: make([]atomic.Int32, round%40)}
			p.Run(task, len(task.runs))
			for i := range task.runs {
				require.Equal(t, int32(1), task.runs[i].Load())
			}
		}
		p.close()
	}
}

func TestPoolUsesItsWorkers(t *testing.T) {
	p := newPool(2)
	defer p.close()
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
	p := newPool(2)
	defer p.close()
	inner := &tally{runs: make([]atomic.Int32, 4)}
	p.Run(&tally{runs: make([]atomic.Int32, 8), do: func(int) { p.Run(inner, 4) }}, 8)
	for i := range inner.runs {
		require.Equal(t, int32(8), inner.runs[i].Load())
	}
}

func TestPoolPanicReachesTheCaller(t *testing.T) {
	p := newPool(2)
	defer p.close()
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
				err, ok := recover().(*PanicError)
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
	p := newPool(64)
	p.Run(&tally{runs: make([]atomic.Int32, 1)}, 1)
	require.Equal(t, before, runtime.NumGoroutine())
	p.close()
}

func BenchmarkPool(b *testing.B) {
	p := newPool(2)
	defer p.close()
	task := &tally{runs: make([]atomic.Int32, 2)}
	for b.Loop() {
		p.Run(task, 2)
	}
}
