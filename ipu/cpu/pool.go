package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu/kernel"
)

// pool runs the parts of one task at a time on a fixed number of workers, of
// which the caller is one. The others are goroutines that are started when
// first needed.
//
// The caller never depends on a worker to start: parts are claimed one by one
// from a counter, so a caller whose workers do not get a core computes
// everything itself.
//
// To wake a goroutine that is parked costs as much as a small operator, and
// the operators of a request follow each other closely. So a worker that has
// run out of parts looks out for more for about as long as a wake-up takes,
// and parks then: at worst it has wasted what it might have saved. The caller
// that woke a worker never looks out for it: the woken goroutine may stand in
// the queue of the very core that looks out. It only waits for parts that a
// worker has claimed, and so is computing.
type pool struct {
	workers int
	start   sync.Once
	running sync.WaitGroup
	wake    chan struct{} // one token wakes one worker
	done    chan struct{} // a worker finished the last part of a caller that parked
	quit    chan struct{} // closed to end the workers

	task     kernel.Task
	failure  atomic.Pointer[PanicError]
	busy     atomic.Bool  // guards against a task that runs tasks
	unshared atomic.Int64 // cost of work that might have been shared of late, had a worker been awake
	lately   atomic.Int64 // when there was some, in nanoseconds since epoch

	// alone is when, in nanoseconds since epoch, sharing makes sense again after
	// the system took a worker's core away in the middle of a part; else 0.
	alone int64

	// What several cores write lies on lines of its own.
	_ line

	// claims is the parts of the current task that nobody has claimed: from
	// the low half on, up to the high half. The caller claims the first one,
	// workers the last one, so that each of two cores meets the same half of
	// the data in every task that goes over it. A claim is valid whichever
	// task it was meant for: task can't change while a claimed part is
	// unfinished.
	claims atomic.Uint64
	_      line

	remaining atomic.Int64 // parts not finished
	parked    atomic.Bool  // the caller waits for done
	_         line

	asleep atomic.Int32 // workers that are parked and have no token
	toWake atomic.Int32 // workers that may still be woken for this task
	_      line
}

// line keeps what lies before it out of the cache lines, which processors
// fetch in pairs, of what lies behind it.
type line [128]byte

// The prices of sharing work, in the units of kernel costs: what has to be
// saved before a worker that is awake, and one that is parked, is worth it.
const (
	awakePrice  = 32 << 10
	parkedPrice = 256 << 10
)

// lookout is how long a worker looks out for parts before it parks, and a
// caller for the end of parts that workers compute: about the time of a wake-up.
const lookout = 50 * time.Microsecond

// patience is for how many times the time that was lost by it nothing is
// shared.
const patience = 8

// recently is how long work that might have been shared is remembered.
const recently = 4 * lookout

// epoch is what times are counted from.
var epoch = time.Now()

// newPool returns a pool of the given number of workers, at least 1, caller
// included.
func newPool(workers int) *pool {
	p := &pool{
		workers: workers,
		wake:    make(chan struct{}, workers),
		done:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
	}
	p.asleep.Store(int32(workers - 1)) // as good as
	return p
}

// Workers returns the number of workers, the caller included.
func (p *pool) Workers() int { return p.workers }

// Pays implements [kernel.Pool]. Work that is too little to wake a worker for
// adds up, within a request and over requests that follow each other at once:
// when it would have paid to have woken one, one is woken for what follows.
func (p *pool) Pays(cost int) bool {
	switch {
	case p.workers == 1 || cost < awakePrice || p.alone > 0 && p.isAlone():
		return false
	case p.awake() > 0 || cost >= parkedPrice:
		return true
	}
	now := int64(time.Since(epoch))
	if now-p.lately.Swap(now) > int64(recently) {
		p.unshared.Store(0)
	}
	return p.unshared.Add(int64(cost)) >= parkedPrice
}

// isAlone reports whether the caller had better compute everything itself.
func (p *pool) isAlone() bool {
	if int64(time.Since(epoch)) < p.alone {
		return true
	}
	p.alone = 0
	return false
}

// awake returns how many workers besides the caller look out for parts or
// compute some.
func (p *pool) awake() int { return p.workers - 1 - int(p.asleep.Load()) }

// Run implements [kernel.Pool]. If a part panics, the others are finished
// first, then Run panics with a *[PanicError].
func (p *pool) Run(t kernel.Task, parts int) {
	if parts <= 1 || p.workers == 1 || !p.busy.CompareAndSwap(false, true) {
		for i := range parts {
			t.Do(i)
		}
		return
	}
	p.start.Do(p.startWorkers)
	p.task = t
	p.unshared.Store(0)
	p.remaining.Store(int64(parts))
	p.claims.Store(uint64(parts) << 32)
	if awake := p.awake(); awake < p.workers-1 {
		p.toWake.Store(int32(min(p.workers, parts) - 1 - awake))
		p.wakeTwo()
	}
	if !p.work(true) {
		p.await()
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
		p.running.Go(p.serve)
	}
}

// serve is the life of a worker other than the caller.
func (p *pool) serve() {
	for {
		select {
		case <-p.wake:
		case <-p.quit:
			return
		}
		for awake := true; awake; awake = p.lookOut() || p.stayUp() {
			p.wakeTwo()
			if p.work(false) && p.parked.CompareAndSwap(true, false) {
				p.done <- struct{}{}
			}
		}
	}
}

// wakeTwo wakes up to two workers. Everyone who starts on a task does so, so
// that waking many takes the time of waking a few.
func (p *pool) wakeTwo() {
	for range 2 {
		if p.toWake.Load() <= 0 || p.toWake.Add(-1) < 0 || !p.takeSleeper() {
			return
		}
		p.wake <- struct{}{}
	}
}

// takeSleeper takes a worker off those that are asleep, and reports whether
// there was one.
func (p *pool) takeSleeper() bool {
	for {
		n := p.asleep.Load()
		if n == 0 {
			return false
		}
		if p.asleep.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// waiting reports whether there are parts to be claimed.
func (p *pool) waiting() bool {
	w := p.claims.Load()
	return uint32(w) < uint32(w>>32)
}

// lookOut waits for parts to be claimed, for a while, and reports whether there
// are some.
func (p *pool) lookOut() bool {
	for start := time.Now(); ; {
		for range 64 {
			if p.waiting() {
				return true
			}
		}
		if time.Since(start) > lookout {
			return false
		}
		runtime.Gosched() // others may have more to do
	}
}

// stayUp counts the worker as asleep, unless there turn out to be parts to be
// claimed.
func (p *pool) stayUp() bool {
	p.asleep.Add(1)
	return p.waiting() && p.takeSleeper()
}

// work claims and computes parts until none is left, and reports whether it
// finished the task's last one.
func (p *pool) work(caller bool) (last bool) {
	finished := int64(0)
	for {
		part, ok := p.claim(caller)
		if !ok {
			return finished > 0 && p.remaining.Add(-finished) == 0
		}
		p.do(part)
		finished++
	}
}

// claim claims a part, if there is one left.
func (p *pool) claim(caller bool) (part int, ok bool) {
	for {
		w := p.claims.Load()
		first, end := uint32(w), uint32(w>>32)
		switch {
		case first >= end:
			return 0, false
		case caller && p.claims.CompareAndSwap(w, w+1):
			return int(first), true
		case !caller && p.claims.CompareAndSwap(w, w-1<<32):
			return int(end - 1), true
		}
	}
}

// await waits for parts that workers have claimed. If that takes long then
// something else runs on a worker's core, and nothing is shared for a while.
func (p *pool) await() {
	start := time.Now()
	for time.Since(start) < lookout {
		for range 64 {
			if p.remaining.Load() == 0 {
				return
			}
		}
	}
	// A worker that is slow to notice may send for an earlier task.
	for p.remaining.Load() != 0 {
		p.parked.Store(true)
		if p.remaining.Load() == 0 && p.parked.CompareAndSwap(true, false) {
			break
		}
		<-p.done
	}
	p.alone = int64(time.Since(epoch) + patience*time.Since(start))
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
