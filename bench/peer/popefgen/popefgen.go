// Package popefgen runs cases with this project.
package popefgen

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/bench/peer"
	_ "github.com/popefgen/popefgen/ipu/cpu" // the engine
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// Engine is this project: the model goes through a PopEF file, and a request
// makes the calls that a generated package's Run makes, in the caller's
// goroutine and over the caller's memory.
type Engine struct{}

// Name implements [peer.Engine].
func (Engine) Name() string { return "popefgen" }

// Open implements [peer.Engine].
func (Engine) Open(c *peer.Case, threads int) (peer.Session, error) {
	spec, err := Spec(c)
	if err != nil {
		return nil, err
	}
	return OpenSource(c, spec, genrt.Source{Name: c.Name, Bytes: c.PopEF}, threads)
}

// Session stands in for a generated Runner.
type Session struct {
	ctx     context.Context
	core    genrt.Core
	inputs  []input
	outputs []output
	results [][]byte // the outputs' memory in the case's order
}

// input is a stream and the memory that it reads.
type input struct {
	stream *genrt.RawInput
	memory []byte
}

// output is a stream and the memory that it fills.
type output struct {
	stream *genrt.RawOutput
	memory []byte
}

// Spec returns what generated code would know of the case's compiled model.
func Spec(c *peer.Case) (*genrt.Spec, error) {
	m, err := popef.LoadBytes(c.Name, c.PopEF)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	found := contract.Of(m)
	spec := &genrt.Spec{Package: c.Name, Contract: found.Callers().Text(), Iterations: 1, QueueDepth: 1}
	for _, a := range found.Anchors {
		if a.Role != genrt.RunInput && a.Role != genrt.RunOutput {
			continue
		}
		size, err := a.Info.SizeInBytes()
		if err != nil {
			return nil, err
		}
		spec.Anchors = append(spec.Anchors, genrt.AnchorSpec{Name: a.Name, Handle: a.Handle, GoName: a.Name, Role: a.Role, Bytes: int(size)})
	}
	return spec, nil
}

// OpenSource is Open for a model wherever it lies, whose [Spec] is known.
func OpenSource(c *peer.Case, spec *genrt.Spec, source genrt.Source, threads int) (*Session, error) {
	s := &Session{ctx: context.Background(), results: make([][]byte, len(c.Outputs))}
	var bindings []genrt.Binding
	for at, a := range spec.Anchors {
		if a.Role == genrt.RunInput {
			i := slices.IndexFunc(c.Inputs, func(t peer.Tensor) bool { return t.Name == a.Name })
			if i < 0 || len(c.Inputs[i].Data) != a.Bytes {
				return nil, fmt.Errorf("%s: the case has no %d bytes for input %q", c.Name, a.Bytes, a.Name)
			}
			stream := genrt.NewRawInput(a.Bytes)
			s.inputs = append(s.inputs, input{stream, slices.Clone(c.Inputs[i].Data)})
			bindings = append(bindings, genrt.Binding{Anchor: at, Stream: stream})
			continue
		}
		i := slices.IndexFunc(c.Outputs, func(t peer.Tensor) bool { return t.Name == a.Name })
		if i < 0 || c.Outputs[i].Size != a.Bytes {
			return nil, fmt.Errorf("%s: the case has no output %q of %d bytes", c.Name, a.Name, a.Bytes)
		}
		stream, mem := genrt.NewRawOutput(a.Bytes), make([]byte, a.Bytes)
		s.outputs, s.results[i] = append(s.outputs, output{stream, mem}), mem
		bindings = append(bindings, genrt.Binding{Anchor: at, Stream: stream})
	}
	bind := func(replica, _ int) {
		if replica >= 0 {
			s.bind()
		}
	}
	if err := s.core.Open(s.ctx, spec, source, func() []genrt.Binding { return bindings }, bind, rt.WithThreads(threads)); err != nil {
		return nil, err
	}
	return s, nil
}

// bind points the streams at the session's memory. That the sizes are right
// was seen to when it was opened.
func (s *Session) bind() {
	for i := range s.inputs {
		in := &s.inputs[i]
		_ = in.stream.Bind(in.memory)
	}
	for i := range s.outputs {
		out := &s.outputs[i]
		_ = out.stream.Bind(out.memory)
	}
}

// Run implements [peer.Session] as generated code implements Run.
func (s *Session) Run() error {
	replica, err := s.core.Begin(s.ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	s.bind()
	return s.core.Main(s.ctx, replica)
}

// Submit queues a request as generated code does, and waits for it.
func (s *Session) Submit() error {
	slot, err := s.core.Reserve(s.ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	return s.core.Enqueue(s.ctx, slot, rt.LeastBusy).Wait(s.ctx)
}

// Outputs implements [peer.Session].
func (s *Session) Outputs() ([][]byte, error) {
	if slices.ContainsFunc(s.results, func(b []byte) bool { return b == nil }) {
		return nil, errors.New("an output is missing")
	}
	return s.results, nil
}

// Close implements [peer.Session].
func (s *Session) Close() error { return s.core.Close() }
