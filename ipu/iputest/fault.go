package iputest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu"
)

// point is where an error can be injected.
type point uint8

const (
	atMake point = iota
	atAttach
	atLoad
	atRun
	atTransfer
)

// Fault is a point at which an error is to be injected. Functions whose names
// begin with On make one; it is the first such point after [System.Inject],
// once, unless its methods say otherwise.
type Fault struct {
	at     point
	ids    []int // of programs or devices; none is any
	stream string
	nth    int
	times  int // 0 is every time
}

// OnMake is the making of an engine.
func OnMake() Fault { return Fault{at: atMake, nth: 1, times: 1} }

// OnAttach is the attaching of a device with one of these ids, or of any.
func OnAttach(ids ...int) Fault { return Fault{at: atAttach, ids: ids, nth: 1, times: 1} }

// OnLoad is the loading of an engine onto a device with one of these ids, or
// onto any.
func OnLoad(ids ...int) Fault { return Fault{at: atLoad, ids: ids, nth: 1, times: 1} }

// OnRun is the start of a program with one of these indices, or of any.
func OnRun(programs ...int) Fault { return Fault{at: atRun, ids: programs, nth: 1, times: 1} }

// OnTransfer is a transfer of the stream with that handle, before the host is
// asked; one that was prefetched counts when the program gets to it.
func OnTransfer(handle string) Fault {
	return Fault{at: atTransfer, stream: handle, nth: 1, times: 1}
}

// Nth returns the nth such point, counted from 1.
func (f Fault) Nth(n int) Fault {
	f.nth = n
	return f
}

// Times returns n such points, one after the other.
func (f Fault) Times(n int) Fault {
	f.times = n
	return f
}

// Always returns every such point, from the nth on.
func (f Fault) Always() Fault { return f.Times(0) }

// ErrHang, injected into loading, running or a transfer, blocks instead of
// failing: until the engine is stopped or the context of the call ends.
var ErrHang = errors.New("hang")

// injection is an injected fault.
type injection struct {
	Fault
	err  error
	seen int
}

// Inject makes err happen at a point. An [*ipu.Error] has the effects that the
// device's own would have: the engine must be loaded again, and a device that
// [ipu.Reloadable] does not hold for must be repaired first, by
// [System.Repair]. A class of error is injected as in
//
//	sys.Inject(iputest.OnRun(1).Nth(3), &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset})
//
// remove takes the injection back. Inject panics if err is nil, or [ErrHang] where
// nothing could end it.
func (s *System) Inject(f Fault, err error) (remove func()) {
	if err == nil || err == ErrHang && (f.at == atMake || f.at == atAttach) {
		panic(fmt.Sprintf("iputest: inject %v: nothing would come of it", err))
	}
	i := &injection{Fault: f, err: err}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.injected = append(s.injected, i)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.injected = slices.DeleteFunc(s.injected, func(j *injection) bool { return i == j })
	}
}

// strike returns the error that was injected for a point, or nil. event says
// what is going on; id is that of a program or device.
func (s *System) strike(ctx context.Context, at point, id int, event Event, doing string) error {
	err := s.struck(at, id, event)
	if err == nil {
		return nil
	}
	if err == ErrHang {
		<-ctx.Done()
		return ended(ctx)
	}
	if own := (*ipu.Error)(nil); errors.As(err, &own) && own.Op == "" && error(own) == err {
		located := *own
		located.Op = doing
		return &located
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (s *System) struck(at point, id int, event Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hit *injection
	for _, i := range s.injected {
		if i.at != at || i.stream != event.Stream || len(i.ids) > 0 && !slices.Contains(i.ids, id) {
			continue
		}
		i.seen++
		if i.seen >= i.nth && (i.times == 0 || i.seen < i.nth+i.times) && hit == nil {
			hit = i
		}
	}
	if hit == nil {
		return nil
	}
	event.Kind, event.Err = EventFault, hit.err
	s.record(event)
	return hit.err
}
