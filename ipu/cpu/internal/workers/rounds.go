package workers

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu/kernel"
)

// march is a task of rounds. The caller leads: it begins at once, alone, and
// says before every round how many march along, itself included. Each of them
// computes the same items in every round, so that what only these need stays in
// its core's cache. Who has finished a round writes that to a line of its own,
// which the others read until it says so: one hop between cores.
//
// Should the caller have to wait much longer than a round takes then something
// else runs on a worker's core: it lets the workers go and does the rest alone.
type march struct {
	pool          *Pool
	task          kernel.RoundTask
	rounds, items int
	_             line

	// led is, of the last rounds of even and of odd number that the caller has
	// let begin, the number, in all but the low byte, and how many march in it;
	// 0: it is over for all others. The caller finishes its items of a round
	// and lets the next one begin while others have not begun the former, but
	// it does not get farther ahead.
	led   [2]atomic.Uint64
	touch uint64 // see [marcher]
	_     line

	// What the caller alone reads and writes.
	begun  time.Time
	waited time.Duration // of the time since then, for others
	_      line

	joined  atomic.Int32 // workers that have come
	members []marcher    // by the order in which they came, the caller first
}

// marcher is how many rounds one who marches along has finished. At the
// beginning of a round its owner writes to touch: the line comes to its core
// while it computes, not at the end when the others wait.
type marcher struct {
	done  atomic.Uint64
	touch uint64
	_     line
}

// mostMarchers bounds who march along, the caller included.
const mostMarchers = 64

func (m *march) init(p *Pool) {
	m.pool = p
	m.members = make([]marcher, min(p.workers, mostMarchers))
}

// RunRounds implements [kernel.Pool]. A panic is dealt with as [pool.Run] does,
// after all rounds.
func (p *Pool) RunRounds(t kernel.RoundTask, rounds, items int) {
	helpers := min(p.workers, mostMarchers, items) - 1
	if rounds == 0 || helpers <= 0 || !p.enter() {
		for r := 0; r < rounds && !p.Ended(); r++ {
			t.DoRound(r, 0, items)
		}
		p.Interrupt()
		return
	}
	m := &p.march
	m.task, m.rounds, m.items = t, rounds, items
	m.joined.Store(0)
	for i := range m.led {
		m.led[i].Store(1)
	}
	awake := min(p.awake(), helpers)
	p.offer(m, helpers, helpers)
	m.expect(awake)
	m.lead()
	p.leave()
	m.task = nil
}

// expect gives workers that look out for work the time to come, so that they
// march in the first round from its beginning.
func (m *march) expect(workers int) {
	for range looks {
		if int(m.joined.Load()) >= workers {
			return
		}
	}
}

// lead is the caller's part.
func (m *march) lead() {
	m.begun, m.waited = time.Now(), 0
	most := min(len(m.members), m.items)
	count := m.admit(0, 1) // of those who march; 0 if nobody else is to any more
	for r := range m.rounds {
		lo, late := 0, false
		if count == 1 {
			// Whoever comes while the caller computes what is its own in any case
			// does not have to wait for the next round.
			lo = m.items / most
			m.do(r, 0, lo)
			count = m.admit(r, 1)
		} else if r > 0 {
			late = m.await(r, count)
			m.touch = uint64(r)
		}
		m.do(r, lo, m.items/max(count, 1))
		switch {
		case r == m.rounds-1 || count <= 1:
		case late:
			m.await(r+1, count)
			m.dismiss()
			count = 0
		default:
			count = m.admit(r+1, count)
		}
	}
	m.await(m.rounds, count)
	m.dismiss()
}

// dismiss says that it is over for all others.
func (m *march) dismiss() {
	for i := range m.led {
		m.led[i].Store(0)
	}
}

// admit says that a round begins, in which all march who have come. It returns
// how many these are; before there were count.
func (m *march) admit(round, count int) int {
	all := 1 + int(m.joined.Load())
	for i := count; i < all; i++ {
		m.members[i].done.Store(uint64(round))
	}
	if all > 1 {
		m.led[round&1].Store(uint64(round)<<8 | uint64(all))
	}
	return all
}

// await waits, as the caller, until all who march have finished so many rounds.
// It reports whether somebody was so late that others must have the core.
func (m *march) await(rounds, count int) (late bool) {
	for i := 1; i < count; i++ {
		done := &m.members[i].done
		if reached(done, rounds) {
			continue
		}
		start := time.Now()
		limit := lookout + 2*(start.Sub(m.begun)-m.waited)/time.Duration(rounds)
		for !reached(done, rounds) {
			if time.Since(start) > limit {
				late = true
				pause()
			}
		}
		took := time.Since(start)
		m.waited += took
		if late {
			m.pool.rest(patience * took)
		}
	}
	return late
}

// Do implements [kernel.Task]: the part of a worker.
func (m *march) Do(int) {
	me := int(m.joined.Add(1))
	for round, count := m.enlist(me); count > 0; {
		for i := 1; i < count; i++ {
			if done := &m.members[i].done; i != me {
				patiently(func() bool { return reached(done, round) })
			}
		}
		m.members[me].touch = uint64(round)
		m.do(round, m.items*me/count, m.items*(me+1)/count)
		round++
		m.members[me].done.Store(uint64(round))
		if round == m.rounds {
			return
		}
		count = m.follow(round)
	}
}

// enlist waits for the first round in which one who has come marches. It
// returns its number and how many march in it: none if it is over before.
func (m *march) enlist(me int) (round, count int) {
	patiently(func() bool {
		first, second := m.led[0].Load(), m.led[1].Load()
		if first == 0 || second == 0 {
			return true
		}
		if marches(first, me) || marches(second, me) {
			// The earlier of the two may have begun after it was looked at.
			first, second = m.led[0].Load(), m.led[1].Load()
			if !marches(first, me) || marches(second, me) && second < first {
				first = second
			}
			round, count = int(first>>8), int(first&0xff)
			return true
		}
		return false
	})
	return round, count
}

// marches reports whether one who has come is among those who march in a round.
func marches(led uint64, me int) bool { return int(led&0xff) > me }

// follow waits until a round begins in which one marches who did in the one
// before, and returns how many do: none if it is over.
func (m *march) follow(round int) (count int) {
	patiently(func() bool {
		led := m.led[round&1].Load()
		count = int(led & 0xff)
		return count == 0 || int(led>>8) >= round
	})
	return count
}

// do computes the items [lo, hi) of a round.
func (m *march) do(round, lo, hi int) {
	defer m.pool.keepPanic()
	if lo < hi && !m.pool.Ended() {
		m.task.DoRound(round, lo, hi)
	}
}

// looks is how often memory is read before the clock is.
const looks = 256

// reached reports whether a counter comes to n within some looks.
func reached(counter *atomic.Uint64, n int) bool {
	for range looks {
		if counter.Load() >= uint64(n) {
			return true
		}
	}
	return false
}

// patiently waits until something is so. After a while it gives way to others
// while it waits.
func patiently(isSo func() bool) {
	for start := time.Now(); ; {
		for range looks {
			if isSo() {
				return
			}
		}
		if time.Since(start) > lookout {
			pause()
		}
	}
}

// pause gives way to other threads and goroutines.
func pause() {
	giveWay()
	runtime.Gosched()
}
