package rt

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
)

// window hands out consecutive transfers of one block of host memory, as the
// streams below need it. Memory, handed out in place, is one transfer at a
// time and ends with Complete; fetched and prefetched transfers may be several
// at a time.
type window struct {
	at     ipu.Window
	anchor string // for messages
	before int    // complete transfers of the last earlier program of this run that made any
}

// bind starts over with other memory.
func (w *window) bind(mem []byte) {
	w.at.Block = mem
	w.rewind()
}

func (w *window) clear() { w.at.Block = nil }

// rewind starts over with the same memory, for the next run.
func (w *window) rewind() { w.at.Done, w.at.Ahead, w.before = 0, 0, 0 }

// again starts over for the next program of a run: it sees the same inputs.
func (w *window) again() {
	if w.at.Done > 0 {
		w.before = w.at.Done
	}
	w.at.Done, w.at.Ahead = 0, 0
}

// next returns the memory of the next transfer.
func (w *window) next() ([]byte, error) {
	mem := w.at.Next()
	if mem == nil {
		return nil, fmt.Errorf("anchor %q: %w: transfer %d of %d in this run", w.anchor, ErrEndOfData, w.at.Done+w.at.Ahead+1, w.at.Count)
	}
	return mem, nil
}

// read copies the next transfer into buf, write takes it from buf.
func (w *window) read(buf []byte) error {
	mem, err := w.next()
	if err != nil {
		return err
	}
	copy(buf, mem)
	w.at.Ahead++
	return nil
}

func (w *window) write(buf []byte) error {
	mem, err := w.next()
	if err != nil {
		return err
	}
	copy(mem, buf)
	w.at.Ahead++
	return nil
}

// more reports whether there is a next transfer.
func (w *window) more() bool { return w.at.Next() != nil }

// Complete ends the oldest transfer.
func (w *window) Complete() { w.at.Complete() }

// InvalidatePrefetched takes back every transfer that is not complete.
func (w *window) InvalidatePrefetched() { w.at.Ahead = 0 }

// Window returns the memory, and which transfer is next.
func (w *window) Window() *ipu.Window { return &w.at }

// source is the host's side of an input over a window.
type source struct{ window }

// Memory returns the memory of the next transfer.
func (s *source) Memory(context.Context) ([]byte, error) {
	if s.at.Block == nil {
		return nil, &NilAnchorError{Field: "input", Anchor: s.anchor}
	}
	return s.next()
}

// Fetch copies the next transfer into buf.
func (s *source) Fetch(_ context.Context, buf []byte) error {
	if s.at.Block == nil {
		return &NilAnchorError{Field: "input", Anchor: s.anchor}
	}
	return s.read(buf)
}

// Prefetch copies the next transfer into buf, if there is one.
func (s *source) Prefetch(buf []byte) bool { return s.more() && s.read(buf) == nil }

// sink is the host's side of an output over a window. Without memory it drops
// what arrives: so does an output of a main program while load programs run.
type sink struct{ window }

// Memory returns the memory of the next transfer, nil if it is to be dropped.
func (s *sink) Memory(context.Context) ([]byte, error) {
	if s.at.Block == nil {
		return nil, nil
	}
	return s.next()
}

// Fetch takes the next transfer from buf.
func (s *sink) Fetch(_ context.Context, buf []byte) error {
	if s.at.Block == nil {
		return nil
	}
	return s.write(buf)
}

// Prefetch is for inputs; it does nothing.
func (s *sink) Prefetch([]byte) bool { return false }

// Input is an input stream over the caller's memory: T is a generated tensor
// type, or an array of them with one element for each device iteration. The
// zero Input is ready for [Core.Open], which checks its size.
type Input[T any] struct{ source }

// Bind makes the stream read *p from its start on. *p must not change until
// the transfers are over. A nil p leaves the stream without memory.
func (in *Input[T]) Bind(p *T) { in.bind(bytesOf(p)) }

func (in *Input[T]) describe() (*window, int) { return &in.window, sizeOf[T]() }

// Output is an output stream over the caller's memory, the counterpart of
// [Input].
type Output[T any] struct{ sink }

// Bind makes the stream fill *p from its start on.
func (out *Output[T]) Bind(p *T) { out.bind(bytesOf(p)) }

func (out *Output[T]) describe() (*window, int) { return &out.window, sizeOf[T]() }

// sizeOf returns the bytes of a T.
func sizeOf[T any]() int {
	var p *T
	return int(unsafe.Sizeof(*p))
}

// bound is what Core needs to know of an Input or Output: its window, and the
// bytes of the memory it is bound to.
type bound interface {
	ipu.Windowed
	describe() (*window, int)
}

// nothing is an empty end: an input gets whatever the buffer held, an output is
// dropped.
type nothing struct{}

func (nothing) Fetch(context.Context, []byte) error { return nil }
func (nothing) Prefetch([]byte) bool                { return true }
func (nothing) Complete()                           {}
func (nothing) InvalidatePrefetched()               {}

// constant is the data that a model's file carries for an input: the same at
// every transfer, and read in place.
type constant struct{ data []byte }

func (c constant) Constant() []byte                          { return c.data }
func (c constant) Memory(context.Context) ([]byte, error)    { return c.data, nil }
func (c constant) Fetch(_ context.Context, buf []byte) error { copy(buf, c.data); return nil }
func (c constant) Prefetch(buf []byte) bool                  { copy(buf, c.data); return true }
func (c constant) Complete()                                 {}
func (c constant) InvalidatePrefetched()                     {}

// fileTensor is constant data of a model's file.
type fileTensor struct {
	constant
	model *popef.Model
	name  string
}

func (f fileTensor) Release() { f.model.ReleaseTensor(f.name) }

// feed hands out the tensors of a feed in the model's file, one a transfer. It
// starts over when the session is loaded onto its device, and fails after the
// last tensor unless it is to wrap: data is never repeated silently.
type feed struct {
	data  *popef.Feed
	wrap  bool // start over after the last tensor
	done  int  // complete transfers
	ahead int  // transfers fetched or prefetched and not complete
}

// next returns the index of the next tensor, and whether there is one.
func (f *feed) next() (int, bool) {
	i, n := f.done+f.ahead, f.data.Len()
	if f.wrap && n > 0 {
		i %= n
	}
	return i, i < n
}

func (f *feed) Memory(context.Context) ([]byte, error) {
	i, ok := f.next()
	if !ok {
		return nil, fmt.Errorf("feed %q: %w: all its %d tensors have been read", f.data.Name(), ErrEndOfData, f.data.Len())
	}
	return f.data.Tensor(i)
}

func (f *feed) Fetch(ctx context.Context, buf []byte) error {
	data, err := f.Memory(ctx)
	if err != nil {
		return err
	}
	copy(buf, data)
	f.ahead++
	return nil
}

func (f *feed) Prefetch(buf []byte) bool {
	_, ok := f.next()
	return ok && f.Fetch(context.Background(), buf) == nil // it does not wait
}

func (f *feed) Complete() {
	f.done++
	f.ahead = max(0, f.ahead-1)
}

func (f *feed) InvalidatePrefetched() { f.ahead = 0 }

func (f *feed) reload() { f.done, f.ahead = 0, 0 }

var (
	_ bound        = (*Input[byte])(nil)
	_ bound        = (*Output[byte])(nil)
	_ ipu.Constant = constant{}
	_ ipu.Releaser = fileTensor{}
	_ ipu.Direct   = (*feed)(nil)
)
