package popart

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu"
)

// StepIO is where the data of a step comes from and goes to: [Arrays] or [Callbacks].
type StepIO interface {
	// ends returns the host's end of each stream that a step moves, in the order of all. Inputs of the names in unread may be given too.
	ends(all []stream, unread []string) ([]ipu.Stream, error)
}

// stream is a tensor that a step moves.
type stream struct {
	name, handle string
	input        bool
	array        Array // type, shape and size of all that a step moves, without memory
	bytes, moved int   // of a transfer, and how many transfers a step makes
	factors      string
}

func (s *stream) elements() int { return s.bytes / s.array.Type.Size() }

// ArraysOption changes what Arrays does.
type ArraysOption func(*arrays)

// Wrap lets an input that has fewer elements than a step moves begin again at its first one. It still has to be whole transfers.
func Wrap() ArraysOption { return func(a *arrays) { a.wrap = true } }

// Arrays is a StepIO over arrays by the names of inputs and anchors. Each has all that a step moves of it: the number of elements is checked at every step. INT64 data for
// an INT32 input is narrowed, with an error where a number does not fit.
func Arrays(in, out map[string]Array, options ...ArraysOption) StepIO {
	a := &arrays{in: in, out: out}
	for _, o := range options {
		if o != nil {
			o(a)
		}
	}
	return a
}

type arrays struct {
	in, out map[string]Array
	wrap    bool
}

func (a *arrays) ends(all []stream, unread []string) ([]ipu.Stream, error) {
	ends := make([]ipu.Stream, len(all))
	names := [2][]string{slices.Clone(unread), nil}
	for i := range all {
		s := &all[i]
		from, kind := a.out, 1
		if s.input {
			from, kind = a.in, 0
		}
		names[kind] = append(names[kind], s.name)
		given, ok := from[s.name]
		if !ok {
			return nil, wrong(ErrTensor, "there is no array for %s %q, want %d elements of %v", s.kind(), s.name, s.elements()*s.moved, s.array.Type)
		}
		data, err := a.fit(s, given)
		if err != nil {
			return nil, err
		}
		ends[i] = &window{at: ipu.Window{Block: data, Size: s.bytes, Count: s.moved}, input: s.input, name: s.name}
	}
	for kind, given := range []map[string]Array{a.in, a.out} {
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if !slices.Contains(names[kind], name) {
				return nil, wrong(ErrTensor, "array %q: the session has no %s of that name%s", name, [2]string{"input", "anchor"}[kind], nearest.DidYouMean(name, names[kind]))
			}
		}
	}
	return ends, nil
}

func (s *stream) kind() string {
	if s.input {
		return "input"
	}
	return "anchor"
}

// fit returns the memory of an array once it is what a step moves.
func (a *arrays) fit(s *stream, given Array) ([]byte, error) {
	n, err := given.elements()
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", s.kind(), s.name, err)
	}
	narrows, err := checkType(s.name, s.array.Type, given.Type)
	if err != nil || narrows && !s.input {
		return nil, wrong(ErrType, "%s %q has elements of %v, and the array has %v", s.kind(), s.name, s.array.Type, given.Type)
	}
	one := s.elements()
	wraps := a.wrap && s.input && n > 0 && one > 0 && n%one == 0 && n < one*s.moved
	if n != one*s.moved && !wraps {
		return nil, wrong(ErrSize, "%s %q: the array has %d elements, want %d: %s", s.kind(), s.name, n, one*s.moved, s.factors)
	}
	data := given.Data
	if narrows {
		data = newArray(s.array.Type, nil, n*4).Data
		if err := narrow(data, given.Data); err != nil {
			return nil, fmt.Errorf("input %q: %w", s.name, err)
		}
	}
	if wraps {
		whole := newArray(s.array.Type, nil, s.bytes*s.moved).Data
		for at := 0; at < len(whole); at += copy(whole[at:], data) {
		}
		data = whole
	}
	return data, nil
}

// window is the host's end of a stream over memory of a whole step.
type window struct {
	at    ipu.Window
	input bool
	name  string
}

func (w *window) Window() *ipu.Window { return &w.at }

func (w *window) Memory(context.Context) ([]byte, error) {
	if m := w.at.Next(); m != nil {
		return m, nil
	}
	return nil, wrong(ErrSize, "tensor %q: the program moves more than the %d transfers of a step", w.name, w.at.Count)
}

func (w *window) Fetch(ctx context.Context, buf []byte) error {
	m, err := w.Memory(ctx)
	if err != nil {
		return err
	}
	if w.input {
		copy(buf, m)
	} else {
		copy(m, buf)
	}
	w.at.Ahead++
	return nil
}

func (w *window) Prefetch(buf []byte) bool {
	m := w.at.Next()
	if !w.input || m == nil {
		return false
	}
	copy(buf, m)
	w.at.Ahead++
	return true
}

func (w *window) Complete()             { w.at.Complete() }
func (w *window) InvalidatePrefetched() { w.at.Ahead = 0 }

// Callbacks is a StepIO of four functions, which PopART calls as a rolling queue: In and Out give the memory of the next transfer of a tensor, InComplete and
// OutComplete say that the oldest one that was given is used up, or filled. n is the number of elements of a transfer.
type Callbacks struct {
	// In returns the memory of the next transfer. It may return nil if it is asked ahead of time (prefetch); it is asked again then.
	In func(name string, n int, prefetch bool) []byte
	// InComplete says that the oldest transfer of In is used up; nil if nobody wants to know.
	InComplete func(name string)
	// Out returns memory for the next transfer.
	Out func(name string, n int) []byte
	// OutComplete says that the oldest transfer of Out is filled; nil if nobody wants to know.
	OutComplete func(name string)
}

func (c Callbacks) ends(all []stream, _ []string) ([]ipu.Stream, error) {
	ends := make([]ipu.Stream, len(all))
	for i := range all {
		s := &all[i]
		if s.input && c.In == nil || !s.input && c.Out == nil {
			return nil, wrong(ErrNilBuffer, "%s %q: there is no callback for it", s.kind(), s.name)
		}
		ends[i] = &queue{c: c, s: s}
	}
	return ends, nil
}

// queue is the host's end of a stream of Callbacks.
type queue struct {
	c     Callbacks
	s     *stream
	given [][]byte // what In returned and is not complete, oldest first
	next  int      // in given: the next transfer, less than all after InvalidatePrefetched
}

// take returns the next transfer of an input.
func (q *queue) take(prefetch bool) ([]byte, error) {
	if q.next < len(q.given) {
		q.next++
		return q.given[q.next-1], nil
	}
	data := q.c.In(q.s.name, q.s.elements(), prefetch)
	switch {
	case data == nil && prefetch && q.s.bytes > 0:
		return nil, nil
	case data == nil && q.s.bytes > 0:
		return nil, wrong(ErrNilBuffer, "input %q: In returned nil, which it may for a prefetch alone", q.s.name)
	case len(data) != q.s.bytes:
		return nil, wrong(ErrSize, "input %q: In returned %d bytes, want the %d of %d elements of %v", q.s.name, len(data), q.s.bytes, q.s.elements(), q.s.array.Type)
	}
	q.given = append(q.given, data)
	q.next++
	return data, nil
}

func (q *queue) Fetch(_ context.Context, buf []byte) error {
	if q.s.input {
		data, err := q.take(false)
		copy(buf, data)
		return err
	}
	data := q.c.Out(q.s.name, q.s.elements())
	if data == nil && len(buf) > 0 {
		return wrong(ErrNilBuffer, "anchor %q: Out returned nil", q.s.name)
	}
	if len(data) != len(buf) {
		return wrong(ErrSize, "anchor %q: Out returned %d bytes, want the %d of %d elements of %v", q.s.name, len(data), len(buf), q.s.elements(), q.s.array.Type)
	}
	copy(data, buf)
	return nil
}

func (q *queue) Prefetch(buf []byte) bool {
	if !q.s.input {
		return false
	}
	data, err := q.take(true)
	copy(buf, data)
	return data != nil && err == nil
}

func (q *queue) Complete() {
	if !q.s.input {
		if q.c.OutComplete != nil {
			q.c.OutComplete(q.s.name)
		}
		return
	}
	if q.next > 0 {
		q.given, q.next = q.given[1:], q.next-1
	}
	if q.c.InComplete != nil {
		q.c.InComplete(q.s.name)
	}
}

func (q *queue) InvalidatePrefetched() { q.next = 0 }
