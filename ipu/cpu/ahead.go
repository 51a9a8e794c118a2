package cpu

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/popefgen/popefgen/ipu"
)

// aheadBytes and aheadTransfers bound what is moved ahead of one stream; there is room for one transfer in any case.
const (
	aheadBytes     = 64 << 20
	aheadTransfers = 4096
)

// unlimitedAhead is the value "unlimited" of the option "streamCallbacks.maxLookahead".
const unlimitedAhead = math.MaxInt64

// setLookAhead is the option "streamCallbacks.maxLookahead".
func setLookAhead(o *options, v string) error {
	if v == "unlimited" {
		o.lookAhead = unlimitedAhead
		return nil
	}
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil {
		return fmt.Errorf(`want "unlimited" or how many transfers, 0 to %d`, uint32(math.MaxUint32))
	}
	o.lookAhead = int64(n)
	return nil
}

// ahead is what a simulated device holds of an input whose transfers it moves before they are needed: while one is computed with, it asks the host's
// stream for those that the run will make after it, as far as the option allows.
type ahead struct {
	total int64  // transfers of one run
	left  int64  // of them in this run
	ring  []byte // room for depth transfers
	depth int
	from  int // the oldest that was moved and is not yet needed
	count int // how many there are
}

// slot returns the memory of the transfer i after the oldest one.
func (a *ahead) slot(i int) []byte {
	size := len(a.ring) / a.depth
	at := (a.from + i) % a.depth * size
	return a.ring[at : at+size : at+size]
}

// lookAhead gives the streams that a program moves more than once a run what they need to look ahead, or takes it from them. The program is
// on the device that the engine is on.
func (e *Engine) lookAhead(p *program) {
	p.ahead = nil
	for i := range p.code {
		t := p.code[i].transfer
		if t == nil || p.code[i].op != opCopyIn { // others share a transfer with it
			continue
		}
		t.ahead = nil
		if e.simulated == nil || e.opts.lookAhead == 0 || t.stream.constant != nil {
			continue
		}
		s := t.stream
		total := s.transfers(p.plan.Index)
		if total < 2 {
			continue
		}
		t.ahead = p.aheadOf(s)
		if t.ahead == nil {
			depth := max(1, min(e.opts.lookAhead, total-1, aheadTransfers, aheadBytes/int64(max(1, s.info.Bytes))))
			t.ahead = &ahead{total: total, depth: int(depth), ring: make([]byte, depth*int64(s.info.Bytes))}
			p.ahead = append(p.ahead, looking{s, t.ahead})
		}
	}
}

// looking is a stream of a program, and what was moved ahead of it.
type looking struct {
	stream *stream
	ahead  *ahead
}

func (p *program) aheadOf(s *stream) *ahead {
	for _, l := range p.ahead {
		if l.stream == s {
			return l.ahead
		}
	}
	return nil
}

// transfers returns how many transfers a run of a program makes.
func (s *stream) transfers(program int) int64 {
	for i, p := range s.info.Programs {
		if p == program {
			return s.info.Transfers[i]
		}
	}
	return 0
}

// beginAhead begins a run: nothing has been moved.
func (p *program) beginAhead() {
	for _, l := range p.ahead {
		l.ahead.left = l.ahead.total
	}
}

// endAhead ends a run. What was moved and not needed, as in a run that failed, the host has to move again.
func (p *program) endAhead() (err error) {
	for _, l := range p.ahead {
		if a := l.ahead; a.count > 0 {
			a.count = 0
			if e := invalidate(l.stream.host); err == nil {
				err = e
			}
		}
	}
	return err
}

func invalidate(s ipu.Stream) (err error) {
	defer ipu.Guard(&err)
	s.InvalidatePrefetched()
	return nil
}

// copyAhead is copyIn for a stream that looks ahead.
func (t *transfer) copyAhead(ctx context.Context) error {
	a := t.ahead
	t.memory.bind(t.memory.own)
	if a.count > 0 {
		copy(t.memory.own, a.slot(0))
		a.from, a.count = (a.from+1)%a.depth, a.count-1
	} else {
		m, err := t.hostMemory(ctx)
		if err != nil {
			return err
		}
		if m != nil {
			copy(t.memory.own, m)
		} else if err := t.stream.fetch(ctx, t.memory.own); err != nil {
			return err
		}
	}
	t.done()
	a.left--
	for a.count < a.depth && int64(a.count) < a.left && t.stream.host.Prefetch(a.slot(a.count)) {
		a.count++
	}
	return nil
}
