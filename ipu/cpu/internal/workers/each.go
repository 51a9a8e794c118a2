package workers

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls do for the numbers from 0 to n-1, on the calling goroutine and on others: so
// many in all, but no more than run at the same time. It returns once all calls have. A
// panic of do becomes one of the caller, and numbers that are not begun then are left out.
func Each(workers, n int, do func(i int)) {
	workers = min(workers, n, runtime.GOMAXPROCS(0))
	if workers < 2 {
		for i := range n {
			do(i)
		}
		return
	}
	var (
		next    atomic.Int64
		all     sync.WaitGroup
		mu      sync.Mutex
		failure any
	)
	work := func() {
		defer func() {
			if v := recover(); v != nil {
				next.Store(int64(n))
				mu.Lock()
				defer mu.Unlock()
				failure = v
			}
		}()
		for {
			i := next.Add(1) - 1
			if i >= int64(n) {
				return
			}
			do(int(i))
		}
	}
	for range workers - 1 {
		all.Go(work)
	}
	work()
	all.Wait()
	if failure != nil {
		panic(failure)
	}
}
