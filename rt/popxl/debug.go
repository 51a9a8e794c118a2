package popxl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
)

// printed is an output of which a session prints what is stored.
type printed struct {
	title  string
	output int
}

// Tap makes x visible for debugging: an output that a [Session] returns where it is asked to, and that the model of [Ir.Export] does not have. It may be called in loops, choices and graphs, where [Output.Store] may.
func Tap[T Element](name string, x Tensor[T]) Output[T] {
	const call = "popxl.Tap"
	ir, ids, err := resolve([]Operand{x})
	none := Output[T]{name, Tensor[T]{ir, graph.None}, 0}
	if ir == nil {
		return none
	}
	if err != nil {
		ir.fail(call, err)
	}
	if err != nil || ids == nil || !ir.claim(call, name) {
		return none
	}
	at, err := ir.tap(call, name, x.id)
	if err != nil {
		ir.fail(call, fmt.Errorf("%q: %w", name, inner(err)))
		return none
	}
	return Output[T]{name, Tensor[T]{ir, ir.outputs[at].Tensor}, at}
}

// tap adds an output for debugging.
func (ir *Ir) tap(call, name string, id graph.TensorID) (int, error) {
	ir.outputs = append(ir.outputs, export.Port{Name: name, Tensor: ir.b.AddLocal(name, ir.b.Type(id))})
	file, line := caller()
	never := &Error{file, line, call, fmt.Errorf("%q: nothing computes it: it is in a loop of no iterations, or in a graph that is not called", name)}
	ir.written = append(ir.written, declared{stores: true, debug: true, call: never})
	return len(ir.outputs) - 1, ir.store(len(ir.outputs)-1, id)
}

// Print returns x, which a [Session] prints behind each run that has computed it, in the order of the calls that added it ([Session.PrintTo]): what package ops makes PrintTensor of. The model of [Ir.Export] prints nothing.
func Print[T Element](call, title string, x Tensor[T]) Tensor[T] {
	ir, ids, err := resolve([]Operand{x})
	if err == nil && ids != nil && ir.taken {
		err = ErrTaken
	}
	if err == nil && ids != nil {
		// No two outputs have one name, and these are nobody's.
		name := fmt.Sprintf("print %d: %s", len(ir.prints), title)
		if !ir.claim(call, name) {
			return Failed[T](ir)
		}
		var at int
		if at, err = ir.tap(call, name, x.id); err == nil {
			ir.prints = append(ir.prints, printed{title, at})
		}
	}
	if err != nil && ir != nil {
		return Fail[T](ir, call, inner(err))
	}
	return x
}

// PrintTo says where the session prints what [Print] was asked for: os.Stderr, where PopXL prints, unless it is called; nil for nowhere. An error of w is not reported.
func (s *Session) PrintTo(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printer, s.printing = w, true
}

// print prints what a run has computed, or only what evaluates computes.
func (s *Session) print(evaluated bool) {
	w := s.printer
	if !s.printing {
		w = os.Stderr
	}
	if w == nil || len(s.ir.prints) == 0 {
		return
	}
	var b bytes.Buffer
	s.printed(&b, "", evaluated)
	for i, c := range s.copies {
		c.printed(&b, fmt.Sprintf("replica %d: ", i), evaluated)
	}
	_, _ = w.Write(b.Bytes())
}

// printed writes what a run of the session itself, not of its replicas, has computed.
func (s *Session) printed(b *bytes.Buffer, before string, evaluated bool) {
	if s.copies != nil {
		return
	}
	for _, p := range s.ir.prints {
		port := s.ir.outputs[p.output]
		if evaluated && s.ir.stage == update && !s.evaluated[port.Name] {
			continue
		}
		t, data := s.ir.b.Type(port.Tensor), s.outputs[p.output].own
		size := len(data)
		if n := s.stores[p.output]; n > 0 {
			size /= int(n)
		}
		for i := range s.stores[p.output] {
			fmt.Fprintf(b, "%s%s: %v %s\n", before, p.title, t, text(t, data[int(i)*size:][:size]))
		}
	}
}

// element returns an element as text.
func element(t graph.DType, b []byte) string {
	le := binary.LittleEndian
	switch t {
	case graph.Bool:
		return strconv.FormatBool(b[0] != 0)
	case graph.I64:
		return strconv.FormatInt(int64(le.Uint64(b)), 10)
	case graph.U64:
		return strconv.FormatUint(le.Uint64(b), 10)
	case graph.F64:
		return strconv.FormatFloat(graph.Number(t, b), 'g', -1, 64)
	}
	return strconv.FormatFloat(graph.Number(t, b), 'g', -1, 32)
}

// Of more elements than mostPrinted, only so many are printed at both ends of each axis: PopXL's summarise_threshold and edge_items.
const (
	mostPrinted = 1000
	edge        = 3
)

// text returns a tensor's elements, row-major and little-endian, as nested lists.
func text(t graph.TensorType, data []byte) string {
	var b strings.Builder
	shorten := t.Elements() > mostPrinted
	var list func(shape []int64, data []byte)
	list = func(shape []int64, data []byte) {
		if len(shape) == 0 {
			b.WriteString(element(t.DType, data))
			return
		}
		b.WriteByte('[')
		size := len(data)
		if shape[0] > 0 {
			size /= int(shape[0])
		}
		for i := range shape[0] {
			if shorten && shape[0] > 2*edge && i >= edge && i < shape[0]-edge {
				if i == edge {
					b.WriteString(" …")
				}
				continue
			}
			if i > 0 {
				b.WriteByte(' ')
			}
			list(shape[1:], data[int(i)*size:][:size])
		}
		b.WriteByte(']')
	}
	list(t.Shape, data)
	return b.String()
}
