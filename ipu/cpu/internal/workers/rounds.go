package workers

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// team runs a parallel-for again and again with a barrier between two rounds. The
// caller leads: it begins at once, alone, and says before every round how many
// take part, itself included. Each member computes the same items in every round,
// so that what only these need stays in its core's cache. The barrier is a line of
// memory for each member, which writes there that it has finished a round and the
// others spin until they read it: one hop between cores.
//
// Should the caller have to wait much longer than a round takes then something
// else runs on a worker's core: it lets the workers go and does the rest alone.
type team struct {
	pool          *Pool
	task          tensor.RoundTask
	rounds, items int
	_             line

	// led is, of the last rounds of even and of odd number that the caller has
	// let begin, the number, in all but the low byte, and how many take part in it;
	// 0: it is over for all others. The caller finishes its items of a round
	// and lets the next one begin while others have not begun the former, but
	// it does not get farther ahead.
	led   [2]atomic.Uint64
	touch uint64 // see [member]
	_     line

	// What the caller alone reads and writes.
	begun  time.Time
	waited time.Duration // of the time since then, for others
	_      line

	joined  atomic.Int32 // workers that have come
	members []member     // by the order in which they came, the caller first
}

// member is how many rounds one of the team has finished. At the beginning of a
// round its owner writes to touch: the line comes to its core while it computes,
// not at the end when the others wait.
type member struct {
	done  atomic.Uint64
	touch uint64
	_     line
}

// mostMembers bounds a team, the caller included.
const mostMembers = 64

func (m *team) init(p *Pool) {
	m.pool = p
	m.members = make([]member, min(p.workers, mostMembers))
}

// RunRounds implements [kernel.Pool]. A panic is dealt with as [Pool.Run] does,
// after all rounds.
func (p *Pool) RunRounds(t tensor.RoundTask, rounds, items int) {
	helpers := min(p.workers, mostMembers, items) - 1
	if rounds == 0 || helpers <= 0 || !p.enter() {
		for r := 0; r < rounds && !p.Ended(); r++ {
			t.DoRound(r, 0, items)
		}
		p.Interrupt()
		return
	}
	m := &p.team
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

// expect gives workers that spin the time to come, so that they take part in the
// first round from its beginning.
func (m *team) expect(workers int) {
	for range looks {
		if int(m.joined.Load()) >= workers {
			return
		}
	}
}

// lead is the caller's part.
func (m *team) lead() {
	m.begun, m.waited = time.Now(), 0
	most := min(len(m.members), m.items)
	count := m.admit(0, 1) // of those who take part; 0 if nobody else is to any more
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
func (m *team) dismiss() {
	for i := range m.led {
		m.led[i].Store(0)
	}
}

// admit says that a round begins, in which all take part who have come. It returns
// how many these are; before there were count.
func (m *team) admit(round, count int) int {
	all := 1 + int(m.joined.Load())
	for i := count; i < all; i++ {
		m.members[i].done.Store(uint64(round))
	}
	if all > 1 {
		m.led[round&1].Store(uint64(round)<<8 | uint64(all))
	}
	return all
}

// await is the barrier of the caller: it waits until all who take part have
// finished so many rounds.
// It reports whether somebody was so late that others must have the core.
func (m *team) await(rounds, count int) (late bool) {
	for i := 1; i < count; i++ {
		done := &m.members[i].done
		if reached(done, rounds) {
			continue
		}
		start := time.Now()
		limit := spinTime + 2*(start.Sub(m.begun)-m.waited)/time.Duration(rounds)
		for !reached(done, rounds) {
			if time.Since(start) > limit {
				late = true
				pause()
			}
		}
		took := time.Since(start)
		m.waited += took
		if late {
			m.pool.rest(restAfterWait * took)
		}
	}
	return late
}

// Do implements [kernel.Task]: the part of a worker.
func (m *team) Do(int) {
	me := int(m.joined.Add(1))
	for round, count := m.join(me); count > 0; {
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

// join waits for the first round in which a worker that has come takes part. It
// returns its number and how many take part in it: none if it is over before.
func (m *team) join(me int) (round, count int) {
	patiently(func() bool {
		first, second := m.led[0].Load(), m.led[1].Load()
		if first == 0 || second == 0 {
			return true
		}
		if takesPart(first, me) || takesPart(second, me) {
			// The earlier of the two may have begun after it was looked at.
			first, second = m.led[0].Load(), m.led[1].Load()
			if !takesPart(first, me) || takesPart(second, me) && second < first {
				first = second
			}
			round, count = int(first>>8), int(first&0xff)
			return true
		}
		return false
	})
	return round, count
}

// takesPart reports whether a worker that has come is among those of a round.
func takesPart(led uint64, me int) bool { return int(led&0xff) > me }

// follow waits until a round begins in which a member takes part that did in the
// one before, and returns how many do: none if it is over.
func (m *team) follow(round int) (count int) {
	patiently(func() bool {
		led := m.led[round&1].Load()
		count = int(led & 0xff)
		return count == 0 || int(led>>8) >= round
	})
	return count
}

// do computes the items [lo, hi) of a round.
func (m *team) do(round, lo, hi int) {
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
		if time.Since(start) > spinTime {
			pause()
		}
	}
}

// pause gives way to other threads and goroutines.
func pause() {
	giveWay()
	runtime.Gosched()
}
