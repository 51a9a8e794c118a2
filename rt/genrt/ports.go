package genrt

import (
	"unsafe"

	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// The ends of streams that ports are, under names that nobody else sees.
type (
	reading = hostmem.Source
	filling = hostmem.Sink
)

// Input is an input stream over the caller's memory: T is a generated tensor
// type, or an array of them with one element for each device iteration. The
// zero Input is ready for [Core.Open], which checks its size.
type Input[T any] struct{ reading }

// Bind makes the stream read *p from its start on. *p must not change until
// the transfers are over. A nil p leaves the stream without memory.
func (in *Input[T]) Bind(p *T) { in.Over(view.Bytes(p)) }

func (in *Input[T]) Describe() (*hostmem.Span, int) { return &in.Span, sizeOf[T]() }

// Output is an output stream over the caller's memory, the counterpart of
// [Input].
type Output[T any] struct{ filling }

// Bind makes the stream fill *p from its start on.
func (out *Output[T]) Bind(p *T) { out.Over(view.Bytes(p)) }

func (out *Output[T]) Describe() (*hostmem.Span, int) { return &out.Span, sizeOf[T]() }

// sizeOf returns the bytes of a T.
func sizeOf[T any]() int {
	var p *T
	return int(unsafe.Sizeof(*p))
}

var (
	_ hostmem.Bound = (*Input[byte])(nil)
	_ hostmem.Bound = (*Output[byte])(nil)
)
