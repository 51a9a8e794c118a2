package popxl

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
)

// port is the host's side of an input or an output. Of a session of one replica, runs read and write the caller's memory.
type port struct {
	bytes int           // of a run
	own   []byte        // of each of several replicas, and of an output that is printed; nil of others
	lent  *hostmem.Span // where the memory of a run is put; nil of several replicas
}

// source and sink are streams over memory that is put there for a run.
type (
	source struct{ hostmem.Source }
	sink   struct{ hostmem.Sink }
)

// Describe implements [hostmem.Bound].
func (s *source) Describe() (*hostmem.Span, int) { return &s.Span, s.At.Size * s.At.Count }

// Describe implements [hostmem.Bound].
func (s *sink) Describe() (*hostmem.Span, int) { return &s.Span, s.At.Size * s.At.Count }

var (
	_ hostmem.Bound = (*source)(nil)
	_ hostmem.Bound = (*sink)(nil)
)

// lend connects a stream whose runs use the caller's memory.
func (s *Session) lend(ctx context.Context, names map[string]string, name string, direction ipu.Direction, transfers int) (port, error) {
	info, err := s.stream(names, name, direction)
	if err != nil {
		return port{}, err
	}
	span := hostmem.Span{At: ipu.Window{Size: info.Bytes, Count: transfers}, Anchor: name}
	p := port{bytes: info.Bytes * transfers}
	if direction == ipu.HostToDevice {
		in := &source{hostmem.Source{Span: span}}
		p.lent = &in.Span
		return p, s.s.Connect(ctx, info.Handle, in)
	}
	out := &sink{hostmem.Sink{Span: span}}
	p.lent = &out.Span
	return p, s.s.Connect(ctx, info.Handle, out)
}

// borrow runs with the memory of bindings in its place.
func (s *Session) borrow(ctx context.Context, bindings []Binding, evaluate bool) error {
	for i := range bindings {
		switch b := &bindings[i]; b.kind {
		case feedInput:
			p := &s.inputs[b.at]
			p.lent.Over(block(b.data[:p.bytes]))
		case takeOutput:
			if p := &s.outputs[b.at]; p.own == nil {
				p.lent.Over(block(b.data))
			}
		}
	}
	for _, p := range s.ir.prints {
		s.outputs[p.output].lent.Over(s.outputs[p.output].own)
	}
	err := s.once(ctx, evaluate)
	for i := range bindings {
		switch b := &bindings[i]; b.kind {
		case feedInput:
			s.inputs[b.at].lent.Clear()
		case takeOutput:
			p := &s.outputs[b.at]
			p.lent.Clear()
			if err == nil && p.own != nil {
				copy(b.data, p.own)
			}
		}
	}
	return err
}

// nothing is memory of no bytes, which is not the same as no memory.
var nothing = make([]byte, 0)

func block(data []byte) []byte {
	if data == nil {
		return nothing
	}
	return data
}

// checkMemory refuses two outputs that share memory. Where an input and an output do, the engine copies.
func checkMemory(a, b *Binding) error {
	if a.kind == takeOutput && b.kind == takeOutput && overlap(a.data, b.data) {
		return fmt.Errorf("outputs %q and %q are given the same memory, want some for each", a.name, b.name)
	}
	return nil
}

// overlap reports whether two slices have a byte in common.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
