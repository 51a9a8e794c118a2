package popxl

import (
	"context"
	"errors"
	"sync"
)

// meeting is where the replicas of a session exchange tensors. All of them run at the same time, each in a goroutine of its own; where they share the processor they take turns, so that one computes until it waits for others.
type meeting struct {
	points []*point
	turn   chan struct{} // has a token while no replica computes; nil if replicas compute at the same time

	mu     sync.Mutex
	failed chan struct{} // is closed when a replica has failed: the others wait for nothing any more
}

// point is one exchange of a program.
type point struct {
	how    combination
	given  [][]byte // by replica
	made   []byte   // of what all have given
	ready  []chan struct{}
	coming int // how many have not given their tensor yet
}

// errLeft is why a replica ends that waits for one that has failed, whose error says more.
var errLeft = errors.New("another replica has failed")

// newMeeting returns what n replicas exchange tensors with.
func newMeeting(exchanges []exchange, n int, turns bool) *meeting {
	m := &meeting{failed: make(chan struct{})}
	if turns {
		m.turn = make(chan struct{}, 1)
		m.turn <- struct{}{}
	}
	for i := range exchanges {
		p := &point{how: exchanges[i].how}
		p.made = make([]byte, p.how.made(n))
		for range n {
			p.given = append(p.given, make([]byte, p.how.t.Bytes()))
			p.ready = append(p.ready, make(chan struct{}, 1))
		}
		m.points = append(m.points, p)
	}
	return m
}

// begin makes the meeting ready for a run, whatever became of the one before.
func (m *meeting) begin() {
	select {
	case <-m.failed:
		m.failed = make(chan struct{})
	default:
	}
	for _, p := range m.points {
		p.coming = len(p.given)
		for _, r := range p.ready {
			select {
			case <-r:
			default:
			}
		}
	}
}

// enter waits for a replica's turn, and leave gives it to another one.
func (m *meeting) enter() {
	if m.turn != nil {
		<-m.turn
	}
}

func (m *meeting) leave() {
	if m.turn != nil {
		m.turn <- struct{}{}
	}
}

// fail lets nobody wait any more.
func (m *meeting) fail() {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.failed:
	default:
		close(m.failed)
	}
}

// part is what a replica has to do with a point.
type part struct {
	meeting *meeting
	point   *point
	replica int
}

// Prefetch implements [ipu.Stream]: nothing is there before all replicas have given their tensors.
func (part) Prefetch([]byte) bool { return false }

// Complete implements [ipu.Stream].
func (part) Complete() {}

// InvalidatePrefetched implements [ipu.Stream].
func (part) InvalidatePrefetched() {}

// giver is the stream over which a replica gives its tensor, and taker the one over which it gets what was made.
type (
	giver struct{ part }
	taker struct{ part }
)

// Fetch implements [ipu.Stream]. Whoever comes last computes.
func (g *giver) Fetch(_ context.Context, buf []byte) error {
	p := g.point
	copy(p.given[g.replica], buf)
	g.meeting.mu.Lock()
	p.coming--
	last := p.coming == 0
	if last {
		p.coming = len(p.given)
	}
	g.meeting.mu.Unlock()
	if !last {
		return nil
	}
	p.how.combine(p.made, p.given)
	for _, r := range p.ready {
		r <- struct{}{}
	}
	return nil
}

// Fetch implements [ipu.Stream].
func (t *taker) Fetch(ctx context.Context, buf []byte) error {
	p := t.point
	select {
	case <-p.ready[t.replica]:
	default:
		t.meeting.leave()
		err := t.wait(ctx)
		t.meeting.enter()
		if err != nil {
			return err
		}
	}
	copy(buf, p.how.of(p.made, t.replica, len(buf)))
	return nil
}

func (t *taker) wait(ctx context.Context) error {
	select {
	case <-t.point.ready[t.replica]:
		return nil
	case <-t.meeting.failed:
		// What was made before is taken all the same: of replicas that all fail of it, each then has its own error, and a run returns that of the first replica, whichever was the first to fail.
		select {
		case <-t.point.ready[t.replica]:
			return nil
		default:
			return errLeft
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// crew is the goroutines of the replicas of a session that exchange tensors.
type crew struct {
	meeting *meeting
	start   []chan struct{} // by replica
	done    chan struct{}
	errs    []error // by replica

	// What is to be done.
	ctx      context.Context
	bindings []Binding
	evaluate bool
}

func newCrew(copies []*Session, m *meeting) *crew {
	c := &crew{meeting: m, done: make(chan struct{}, len(copies)), errs: make([]error, len(copies))}
	for i, s := range copies {
		start := make(chan struct{}, 1)
		c.start = append(c.start, start)
		go func() {
			for range start {
				m.enter()
				if c.errs[i] = s.move(c.ctx, c.bindings, i, len(copies), c.evaluate); c.errs[i] != nil {
					m.fail()
				}
				m.leave()
				c.done <- struct{}{}
			}
		}()
	}
	return c
}

// run runs all replicas, and returns the first replica, by its number, that failed other than by the failure of another one, and why.
func (c *crew) run(ctx context.Context, bindings []Binding, evaluate bool) (int, error) {
	c.meeting.begin()
	c.ctx, c.bindings, c.evaluate = ctx, append(c.bindings[:0], bindings...), evaluate
	for _, start := range c.start {
		start <- struct{}{}
	}
	for range c.start {
		<-c.done
	}
	c.ctx = nil
	clear(c.bindings)
	failed := -1
	for i, err := range c.errs {
		if err != nil && (failed < 0 || errors.Is(c.errs[failed], errLeft) && !errors.Is(err, errLeft)) {
			failed = i
		}
	}
	if failed < 0 {
		return 0, nil
	}
	return failed, c.errs[failed]
}

// close ends the goroutines.
func (c *crew) close() {
	for _, start := range c.start {
		close(start)
	}
}
