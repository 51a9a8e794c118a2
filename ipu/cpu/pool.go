package cpu

import (
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu/cpu/kernel"
)

// pool runs the parts of one task at a time on a fixed number of workers, of
// which the caller is one. The others are goroutines that are started when
// first needed and park between tasks: a worker that spins takes a core from
// the caller whenever the machine is busy, and a caller that spins after it
// woke a worker keeps that worker from running at all.
//
// The caller never depends on a worker to start: parts are claimed one by one
// from a counter, so a caller whose workers do not get a core computes
// everything itself.
type pool struct {
	workers int

	// claims is the number of parts of the current task (high half) and the
	// next part to be claimed (low half) in one word. Adding one to it claims
	// a part if the old low half is below the high half. A claim is valid
	// whichever task it was meant for: task can't change while a claimed part
	// is unfinished.
	claims    atomic.Uint64
	task      kernel.Task
	remaining atomic.Int64 // parts not finished
	toWake    atomic.Int32 // workers that may still be woken for this task
	failure   atomic.Pointer[PanicError]
	busy      atomic.Bool // guards against a task that runs tasks

	wake    chan struct{} // one token wakes one worker
	done    chan struct{} // a worker finished the last part
	quit    chan struct{} // closed to end the workers
	start   sync.Once
	running sync.WaitGroup
}

// newPool returns a pool of the given number of workers, at least 1, caller
// included.
func newPool(workers int) *pool {
	return &pool{
		workers: workers,
		wake:    make(chan struct{}, workers),
		done:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
	}
}

// Workers returns the number of workers, the caller included.
func (p *pool) Workers() int { return p.workers }

// Run implements [kernel.Pool]. If a part panics, the others are finished
// first, then Run panics with a
// *[PanicError].
func (p *pool) Run(t kernel.Task, parts int) {
	if parts <= 1 || p.workers == 1 || !p.busy.CompareAndSwap(false, true) {
		for i := range parts {
			t.Do(i)
		}
		return
	}
	p.start.Do(p.startWorkers)
	p.task = t
	p.remaining.Store(int64(parts))
	p.toWake.Store(int32(min(p.workers, parts) - 1))
	p.claims.Store(uint64(parts) << 32)
	p.wakeTwo()
	if !p.work() {
		<-p.done
	}
	p.task = nil
	failure := p.failure.Swap(nil)
	p.busy.Store(false)
	if failure != nil {
		panic(failure)
	}
}

// close ends the workers. The pool must be idle; afterwards it runs everything
// in the caller.
func (p *pool) close() {
	if p.workers > 1 {
		p.workers = 1
		close(p.quit)
		p.running.Wait()
	}
}

func (p *pool) startWorkers() {
	for range p.workers - 1 {
		p.running.Go(func() {
			for {
				select {
				case <-p.wake:
				case <-p.quit:
					return
				}
				p.wakeTwo()
				if p.work() {
					p.done <- struct{}{}
				}
			}
		})
	}
}

// wakeTwo wakes up to two workers. Everyone who starts on a task does so, so
// that waking many takes the time of waking a few.
func (p *pool) wakeTwo() {
	for range 2 {
		if p.toWake.Add(-1) < 0 {
			return
		}
		select {
		case p.wake <- struct{}{}:
		default: // as many tokens as workers are under way
		}
	}
}

// work claims and computes parts until none is left, and reports whether it
// finished the task's last one.
func (p *pool) work() (last bool) {
	finished := int64(0)
	for {
		w := p.claims.Add(1) - 1
		part, parts := uint32(w), uint32(w>>32)
		if part >= parts {
			return finished > 0 && p.remaining.Add(-finished) == 0
		}
		p.do(int(part))
		finished++
	}
}

// do computes one part and keeps the first panic for Run.
func (p *pool) do(part int) {
	defer func() {
		if v := recover(); v != nil {
			p.failure.CompareAndSwap(nil, newPanicError(v))
		}
	}()
	p.task.Do(part)
}
