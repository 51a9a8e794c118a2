// Package hostmem has the host's ends of streams: windows of the caller's memory,
// data that is always the same, and feeds of a model's file.
package hostmem

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
)

// Span hands out consecutive transfers of one block of host memory, as the
// streams below need it. Memory, handed out in place, is one transfer at a
// time and ends with Complete; fetched and prefetched transfers may be several
// at a time.
type Span struct {
	At     ipu.Window
	Anchor string // for messages
	Before int    // complete transfers of the last earlier program of this run that made any
}

// Over starts over with other memory.
func (w *Span) Over(mem []byte) {
	w.At.Block = mem
	w.Rewind()
}

func (w *Span) Clear() { w.At.Block = nil }

// Rewind starts over with the same memory, for the next run.
func (w *Span) Rewind() { w.At.Done, w.At.Ahead, w.Before = 0, 0, 0 }

// Again starts over for the next program of a run: it sees the same inputs.
func (w *Span) Again() {
	if w.At.Done > 0 {
		w.Before = w.At.Done
	}
	w.At.Done, w.At.Ahead = 0, 0
}

// next returns the memory of the next transfer.
func (w *Span) next() ([]byte, error) {
	mem := w.At.Next()
	if mem == nil {
		return nil, fmt.Errorf("anchor %q: %w: transfer %d of %d in this run", w.Anchor, rt.ErrEndOfData, w.At.Done+w.At.Ahead+1, w.At.Count)
	}
	return mem, nil
}

// read copies the next transfer into buf, write takes it from buf.
func (w *Span) read(buf []byte) error {
	mem, err := w.next()
	if err != nil {
		return err
	}
	copy(buf, mem)
	w.At.Ahead++
	return nil
}

func (w *Span) write(buf []byte) error {
	mem, err := w.next()
	if err != nil {
		return err
	}
	copy(mem, buf)
	w.At.Ahead++
	return nil
}

// more reports whether there is a next transfer.
func (w *Span) more() bool { return w.At.Next() != nil }

// Complete ends the oldest transfer.
func (w *Span) Complete() { w.At.Complete() }

// InvalidatePrefetched takes back every transfer that is not complete.
func (w *Span) InvalidatePrefetched() { w.At.Ahead = 0 }

// Window returns the memory, and which transfer is next.
func (w *Span) Window() *ipu.Window { return &w.At }

// Source is the host's side of an input over a window.
type Source struct{ Span }

// Memory returns the memory of the next transfer.
func (s *Source) Memory(context.Context) ([]byte, error) {
	if s.At.Block == nil {
		return nil, &rt.NilAnchorError{Field: "input", Anchor: s.Anchor}
	}
	return s.next()
}

// Fetch copies the next transfer into buf.
func (s *Source) Fetch(_ context.Context, buf []byte) error {
	if s.At.Block == nil {
		return &rt.NilAnchorError{Field: "input", Anchor: s.Anchor}
	}
	return s.read(buf)
}

// Prefetch copies the next transfer into buf, if there is one.
func (s *Source) Prefetch(buf []byte) bool { return s.more() && s.read(buf) == nil }

// Sink is the host's side of an output over a window. Without memory it drops
// what arrives: so does an output of a main program while load programs run.
type Sink struct{ Span }

// Memory returns the memory of the next transfer, nil if it is to be dropped.
func (s *Sink) Memory(context.Context) ([]byte, error) {
	if s.At.Block == nil {
		return nil, nil
	}
	return s.next()
}

// Fetch takes the next transfer from buf.
func (s *Sink) Fetch(_ context.Context, buf []byte) error {
	if s.At.Block == nil {
		return nil
	}
	return s.write(buf)
}

// Prefetch is for inputs; it does nothing.
func (s *Sink) Prefetch([]byte) bool { return false }

// Bound is what Core needs to know of an Input or Output: its window, and the
// bytes of the memory it is bound to.
type Bound interface {
	ipu.Windowed
	Describe() (*Span, int)
}

// Buffered is a stream over memory of its own that every run starts at the first
// transfer of.
type Buffered interface {
	ipu.Stream
	Buffer() *Span
}

// Held is a buffered stream: its memory holds the data of one run.
type Held struct {
	w     Span
	input bool
}

// NewHeld returns a stream over that memory.
func NewHeld(w Span, input bool) Held { return Held{w, input} }

// Buffer returns the memory.
func (h *Held) Buffer() *Span { return &h.w }

// Memory returns the memory of the next transfer.
func (h *Held) Memory(context.Context) ([]byte, error) { return h.w.next() }

// Fetch moves the next transfer.
func (h *Held) Fetch(_ context.Context, buf []byte) error {
	if h.input {
		return h.w.read(buf)
	}
	return h.w.write(buf)
}

// Prefetch copies the next transfer of an input into buf, if there is one.
func (h *Held) Prefetch(buf []byte) bool { return h.input && h.w.more() && h.w.read(buf) == nil }

// Complete ends the oldest transfer.
func (h *Held) Complete() { h.w.Complete() }

// InvalidatePrefetched takes back every transfer that is not complete.
func (h *Held) InvalidatePrefetched() { h.w.InvalidatePrefetched() }

// Window returns the memory, and which transfer is next.
func (h *Held) Window() *ipu.Window { return &h.w.At }

// Nothing is an empty end: an input gets whatever the buffer held, an output is
// dropped.
type Nothing struct{}

func (Nothing) Fetch(context.Context, []byte) error { return nil }
func (Nothing) Prefetch([]byte) bool                { return true }
func (Nothing) Complete()                           {}
func (Nothing) InvalidatePrefetched()               {}
func (Nothing) Empty()                              {}

// Fixed is the data that a model's file carries for an input: the same at
// every transfer, and read in place.
type Fixed struct{ Data []byte }

func (c Fixed) Constant() []byte                          { return c.Data }
func (c Fixed) Memory(context.Context) ([]byte, error)    { return c.Data, nil }
func (c Fixed) Fetch(_ context.Context, buf []byte) error { copy(buf, c.Data); return nil }
func (c Fixed) Prefetch(buf []byte) bool                  { copy(buf, c.Data); return true }
func (c Fixed) Complete()                                 {}
func (c Fixed) InvalidatePrefetched()                     {}

// Live is data that the host may change between runs: every transfer has what is there by then.
type Live struct{ Data []byte }

// Memory returns the data.
func (l *Live) Memory(context.Context) ([]byte, error) { return l.Data, nil }

// Fetch copies the data into buf.
func (l *Live) Fetch(_ context.Context, buf []byte) error { copy(buf, l.Data); return nil }

// Prefetch copies nothing: the data may be another by the time of the transfer.
func (l *Live) Prefetch([]byte) bool { return false }

// Complete does nothing.
func (l *Live) Complete() {}

// InvalidatePrefetched does nothing.
func (l *Live) InvalidatePrefetched() {}

// FileTensor is constant data of a model's file.
type FileTensor struct {
	Fixed
	Model *popef.Model
	Name  string
}

func (f FileTensor) Release() { f.Model.ReleaseTensor(f.Name) }

// Feed hands out the tensors of a feed in the model's file, one a transfer. It
// starts over when the session is loaded onto its device, and fails after the
// last tensor unless it is to wrap: data is never repeated silently.
type Feed struct {
	Data  *popef.Feed
	Wrap  bool // start over after the last tensor
	done  int  // complete transfers
	ahead int  // transfers fetched or prefetched and not complete
}

// next returns the index of the next tensor, and whether there is one.
func (f *Feed) next() (int, bool) {
	i, n := f.done+f.ahead, f.Data.Len()
	if f.Wrap && n > 0 {
		i %= n
	}
	return i, i < n
}

func (f *Feed) Memory(context.Context) ([]byte, error) {
	i, ok := f.next()
	if !ok {
		return nil, fmt.Errorf("feed %q: %w: all its %d tensors have been read", f.Data.Name(), rt.ErrEndOfData, f.Data.Len())
	}
	return f.Data.Tensor(i)
}

func (f *Feed) Fetch(ctx context.Context, buf []byte) error {
	data, err := f.Memory(ctx)
	if err != nil {
		return err
	}
	copy(buf, data)
	f.ahead++
	return nil
}

func (f *Feed) Prefetch(buf []byte) bool {
	_, ok := f.next()
	return ok && f.Fetch(context.Background(), buf) == nil // it does not wait
}

func (f *Feed) Complete() {
	f.done++
	f.ahead = max(0, f.ahead-1)
}

func (f *Feed) InvalidatePrefetched() { f.ahead = 0 }

func (f *Feed) Reload() { f.done, f.ahead = 0, 0 }

var (
	_ ipu.Constant = Fixed{}
	_ ipu.Empty    = Nothing{}
	_ ipu.Releaser = FileTensor{}
	_ ipu.Direct   = (*Feed)(nil)
	_ ipu.Direct   = (*Live)(nil)
)
