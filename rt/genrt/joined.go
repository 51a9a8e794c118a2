package genrt

import (
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// Joined says in which memory several inputs lie side by side: T is a generated struct of them. It is no
// stream of its own: where the model moves these inputs as one, in the order of T, it reads
// the memory in place. Its [Binding] is that of one of the inputs, and stands behind that.
type Joined[T any] struct {
	ipu.Stream // nil: no engine is connected to it
	block      *hostmem.Span
}

// Bind says that inputs may lie in *p; they do where their own ports are bound to its fields. A
// nil p means that they do not.
func (j *Joined[T]) Bind(p *T) {
	if j.block != nil {
		j.block.Over(view.Bytes(p))
	}
}

// sideBySide is any [Joined].
type sideBySide interface{ bindTo(*hostmem.Joined) }

// bindTo takes part in a stream, nil for none.
func (j *Joined[T]) bindTo(s *hostmem.Joined) {
	if s != nil && s.Bytes() == sizeOf[T]() {
		j.block = s.Block()
	}
}
