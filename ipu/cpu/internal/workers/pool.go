package workers

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// Pool runs the parts of one task at a time on a fixed number of workers, of
// which the caller is one. The others are goroutines that are started when
// first needed.
//
// The caller never depends on a worker to start: parts are claimed one by one
// from a counter, so a caller whose workers do not get a core computes
// everything itself.
//
// Workers spin, then park: to wake one that sleeps costs as much as a small
// operator, and the operators of a request follow each other closely. So a worker
// that has run out of parts spins while the request goes on, if not for long, and
// for about as long as a wake-up takes after its end. It gives way to others
// meanwhile: where they take the core, it parks, and nothing is shared for a
// while. The caller that woke a worker never spins for it: nobody knows when the
// system gives it a core. It only waits for parts that a worker has claimed, and
// so is computing.
type Pool struct {
	workers  int
	start    sync.Once
	running  sync.WaitGroup
	sleepers semaphore     // on which workers sleep
	done     chan struct{} // a worker finished the last part of a caller that parked
	closing  atomic.Bool   // workers that wake up end

	// What the caller alone writes, and workers seldom look at.
	unshared int64       // cost of work that might have been shared of late, had a worker been awake
	lately   int64       // when there was some, in nanoseconds since epoch
	offered  int64       // cost of the work that paid last and has not been shared
	worth    int64       // cost of the current request's work that is shared, or might have been
	shares   bool        // there has been such work in any request
	wakes    bool        // the last request had enough of it to wake workers ahead of the next
	busy     atomic.Bool // guards against a task that runs tasks
	failure  atomic.Pointer[ipu.PanicError]
	run      context.Context // of the run at hand; nil between runs

	// What several cores read and write lies on lines of its own.
	_ line

	// within says that a request is under way, which may have work to share.
	within atomic.Bool
	// alone is when, in nanoseconds since epoch, sharing makes sense again after
	// somebody else had a worker's core; else 0.
	alone atomic.Int64
	_     line

	// claims is the parts of the current task that nobody has claimed: from
	// the low half on, up to the high half. The caller claims the first one,
	// workers the last one, so that each of two cores meets the same half of
	// the data in every task that goes over it. A claim is valid whichever
	// task it was meant for: task can't change while a claimed part is
	// unfinished.
	claims atomic.Uint64
	task   tensor.Task
	Labels *Labels // of the task, or nil; read as task is
	_      line

	remaining atomic.Int64 // parts not finished
	parked    atomic.Bool  // the caller waits for done
	over      atomic.Bool  // somebody saw that the run has ended: parts may be missing
	_         line

	asleep atomic.Int32 // workers that sleep and have no token
	toWake atomic.Int32 // workers that may still be woken for this task
	_      line

	team team
}

// line keeps what lies before it out of the cache lines, which processors
// fetch in pairs, of what lies behind it.
type line [128]byte

// What sharing work costs, in the units of kernels' costs: a task is shared if it
// takes more than that.
const (
	shareCost = 32 << 10 // if a worker is awake

	// WakeCost is the cost of sharing work where every worker sleeps.
	WakeCost = 256 << 10
)

const (
	// spinTime is how long a worker spins after the end of a request, and a caller
	// at least for the end of parts that workers compute: about the time of a
	// wake-up.
	spinTime = 50 * time.Microsecond

	// longestSpin is how long a worker spins at most: work of a request that only
	// one can do seldom takes longer.
	longestSpin = time.Millisecond

	// yieldAfter is after how long a worker that spins lets others have its core:
	// other threads, and every fourth time other goroutines, for which the runtime
	// wakes a processor if one is idle.
	yieldAfter = 25 * time.Microsecond

	// Nothing is shared for restAfterWait times the time that a caller lost by it,
	// and for restAfterYield times the time that somebody else had the core of a
	// worker that spun.
	restAfterWait  = 8
	restAfterYield = 2

	// recently is how long work that might have been shared is remembered.
	recently = 4 * spinTime
)

// epoch is what times are counted from.
var epoch = time.Now()

// New returns a pool of the given number of workers, at least 1, caller
// included.
func New(workers int) *Pool {
	p := &Pool{workers: workers, done: make(chan struct{}, 1)}
	p.sleepers.init(workers)
	p.asleep.Store(int32(workers - 1)) // as good as
	p.team.init(p)
	return p
}

// Workers returns the number of workers, the caller included.
func (p *Pool) Workers() int { return p.workers }

// Begin begins a request. If the one before it had work to share then workers
// are woken at once, which takes them as long as the first operators take.
func (p *Pool) Begin() {
	if !p.shares {
		return
	}
	p.within.Store(true)
	if p.wakes && p.awake() == 0 && !p.isAlone() {
		p.start.Do(p.startWorkers)
		p.toWake.Store(int32(p.workers - 1))
		p.wakeTwo()
	}
}

// End ends a request.
func (p *Pool) End() {
	if !p.shares {
		return
	}
	p.within.Store(false)
	p.wakes = p.worth >= WakeCost
	p.worth = 0
}

// Pays implements [kernel.Pool]. Work that is too little to wake a worker for
// adds up, within a request and over requests that follow each other at once:
// when it would have paid to have woken one, one is woken for what follows.
func (p *Pool) Pays(cost int) bool {
	if p.workers == 1 || cost < shareCost {
		return false
	}
	switch {
	case p.isAlone():
		return false
	case p.awake() > 0 || cost >= WakeCost:
		p.offered = int64(cost)
		return true
	}
	p.shares = true
	p.worth += int64(cost)
	now := int64(time.Since(epoch))
	if now-p.lately > int64(recently) {
		p.unshared = 0
	}
	p.lately = now
	p.unshared += int64(cost)
	return p.unshared >= WakeCost
}

// isAlone reports whether the caller had better compute everything itself.
func (p *Pool) isAlone() bool {
	until := p.alone.Load()
	if until == 0 {
		return false
	}
	if int64(time.Since(epoch)) < until {
		return true
	}
	p.alone.Store(0)
	return false
}

// awake returns how many workers besides the caller spin or compute parts.
func (p *Pool) awake() int { return p.workers - 1 - int(p.asleep.Load()) }

// Interrupted is the value of the panic that ends a kernel whose run has ended.
type Interrupted struct{}

// Ended implements [kernel.Pool]: it reports whether the run's context is done.
func (p *Pool) Ended() bool {
	if p.run == nil || p.run.Err() == nil {
		return false
	}
	p.over.Store(true)
	return true
}

// Watch makes the pool look at the context of a run, until [Pool.Unwatch].
func (p *Pool) Watch(ctx context.Context) { p.run = ctx }

// Unwatch ends what [Pool.Watch] began.
func (p *Pool) Unwatch() {
	p.run = nil
	if p.over.Load() {
		p.over.Store(false)
	}
}

// Interrupt panics if somebody saw that the run has ended.
func (p *Pool) Interrupt() {
	if p.over.Load() {
		panic(Interrupted{})
	}
}

// Run implements [kernel.Pool]. If a part panics, the others are finished
// first, then Run panics with a *[ipu.PanicError]. If the run ends, what is not
// begun is left out, and Run panics with [Interrupted].
func (p *Pool) Run(t tensor.Task, parts int) {
	if parts <= 1 || !p.enter() {
		for i := range parts {
			if i > 0 && p.Ended() {
				break
			}
			t.Do(i)
		}
		p.Interrupt()
		return
	}
	p.offer(t, parts, min(p.workers, parts)-1)
	p.leave()
}

// enter reports whether the caller may share work: not within a task, and not
// if it has nobody to share it with.
func (p *Pool) enter() bool { return p.workers > 1 && p.busy.CompareAndSwap(false, true) }

// offer offers the parts of a task to the workers, of which that many should be
// awake.
func (p *Pool) offer(t tensor.Task, parts, workers int) {
	p.start.Do(p.startWorkers)
	p.shares = true
	p.worth += p.offered
	p.offered, p.unshared = 0, 0
	p.remaining.Store(int64(parts))
	p.task = t
	p.claims.Store(uint64(parts) << 32)
	if awake := p.awake(); awake < p.workers-1 {
		p.toWake.Store(int32(workers - awake))
		p.wakeTwo()
	}
}

// leave computes what is left of the task's parts and waits for the others.
func (p *Pool) leave() {
	start := time.Now()
	if finished, last := p.work(true); !last {
		p.await(time.Since(start) / time.Duration(max(finished, 1)))
	}
	p.busy.Store(false)
	failure := p.failure.Load()
	p.failure.Store(nil)
	p.Interrupt()
	if failure != nil {
		panic(failure)
	}
}

// Close ends the workers. The pool must be idle; afterwards it runs everything
// in the caller.
func (p *Pool) Close() {
	if p.workers > 1 {
		p.closing.Store(true)
		for range p.workers - 1 {
			p.sleepers.post()
		}
		p.running.Wait()
		p.workers = 1
		p.task = nil
	}
}

func (p *Pool) startWorkers() {
	for range p.workers - 1 {
		p.running.Go(p.serve)
	}
}

// serve is the life of a worker other than the caller.
func (p *Pool) serve() {
	label(nil) // those of the request that started it are not its own
	for {
		p.sleepers.wait()
		if p.closing.Load() {
			return
		}
		for awake := true; awake; awake = p.spin() || p.keepsAwake() {
			p.wakeTwo()
			if _, last := p.work(false); last && p.parked.CompareAndSwap(true, false) {
				p.done <- struct{}{}
			}
		}
	}
}

// wakeTwo wakes up to two workers. Everyone who starts on a task does so, so
// that waking many takes the time of waking a few.
func (p *Pool) wakeTwo() {
	for range 2 {
		if p.toWake.Load() <= 0 || p.toWake.Add(-1) < 0 || !p.takeSleeper() {
			return
		}
		p.sleepers.post()
	}
}

// takeSleeper takes a worker off those that are asleep, and reports whether
// there was one.
func (p *Pool) takeSleeper() bool {
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
func (p *Pool) waiting() bool {
	w := p.claims.Load()
	return uint32(w) < uint32(w>>32)
}

// spin waits for parts to be claimed, for a while, and reports whether there
// are some. It gives up at once if nothing is to be shared, or if somebody else
// has had the core meanwhile, who may want it again.
func (p *Pool) spin() bool {
	now := time.Now()
	until, within, yielded := now.Add(longestSpin), now, now
	for turns := 1; ; {
		if p.within.Load() {
			within = now
		}
		if now.After(until) || now.Sub(within) > spinTime || p.alone.Load() != 0 {
			return false
		}
		if now.Sub(yielded) > yieldAfter {
			if giveWay(); turns%4 == 0 {
				runtime.Gosched()
			}
			yielded = now
			turns++
		}
		for range 64 {
			if p.waiting() {
				return true
			}
		}
		last := now
		if now = time.Now(); now.Sub(last) > spinTime {
			p.rest(restAfterYield * now.Sub(last))
			return false
		}
	}
}

// rest lets nothing be shared for a while.
func (p *Pool) rest(d time.Duration) { p.alone.Store(int64(time.Since(epoch) + d)) }

// keepsAwake counts the worker as asleep, unless there turn out to be parts to be
// claimed.
func (p *Pool) keepsAwake() bool {
	p.asleep.Add(1)
	return p.waiting() && p.takeSleeper()
}

// work claims and computes parts until none is left. It returns how many they
// were and whether the task's last one was among them.
func (p *Pool) work(caller bool) (finished int64, last bool) {
	var worn *Labels
	for {
		part, ok := p.claim(caller)
		if !ok {
			if worn != nil {
				label(nil)
			}
			return finished, finished > 0 && p.remaining.Add(-finished) == 0
		}
		if !caller && p.Labels != worn {
			worn = p.Labels
			label(worn)
		}
		p.do(part)
		finished++
	}
}

// claim claims a part, if there is one left.
func (p *Pool) claim(caller bool) (part int, ok bool) {
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

// await waits for parts that workers have claimed, of which the caller took so
// long for one. If it takes workers much longer then something else runs on
// their core, and nothing is shared for a while.
func (p *Pool) await(part time.Duration) {
	start := time.Now()
	for limit := spinTime + 2*part; time.Since(start) < limit; {
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
	p.rest(restAfterWait * time.Since(start))
}

// do computes one part and keeps the first panic for Run.
func (p *Pool) do(part int) {
	defer p.keepPanic()
	if !p.Ended() {
		p.task.Do(part)
	}
}

// keepPanic, deferred, keeps a panic for the caller of the task if it is the
// first.
func (p *Pool) keepPanic() {
	if v := recover(); v != nil && v != (Interrupted{}) {
		p.failure.CompareAndSwap(nil, ipu.NewPanicError(v))
	}
}
