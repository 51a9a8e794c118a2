// Package outputs keeps what a model answers, and compares: with the same
// model compiled anew, on another back end or another machine.
//
// A folder holds golden.json, with the tolerance of every output, and a file
// CASE.npz per case, which numpy.load reads: compressed arrays named
// input/ANCHOR and output/ANCHOR.
package outputs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
)

// Memory is where the inputs and outputs of a run lie, by stream handle or by
// the name of the anchor: one block of bytes per device iteration.
type Memory map[string][][]byte

// Add adds the memory of the next device iteration of a run input or output:
// its stream handle, or its name if no other run input or output has the same.
func (m Memory) Add(key string, data []byte) { m[key] = append(m[key], data) }

// Model is a model that can be run again and again over the same memory.
type Model struct {
	Contract        contract.Contract
	Inputs, Outputs []Port
	Run             func(ctx context.Context) error
	// Sized returns the model of the size that takes inputs of these shapes, by
	// anchor, of a model of several sizes; nil if there is one. What it returned before is not used any more.
	Sized func(ctx context.Context, shapes map[string][]int64) (*Model, error)
}

// Port is a run input or output.
type Port struct {
	Anchor string
	Info   popef.TensorInfo // of one run: with device iterations, and blocks, as leading dimensions
	Data   [][]byte         // one after the other they are the tensor
	// Counted says that data decides a length of an output: Run sets Info and Data.
	Counted bool
}

// ModelOf returns the model of a session whose runs move memory. It fails if a
// run input or output has no memory, or memory of another size.
func ModelOf(s rt.Session, memory Memory, run func(ctx context.Context) error) (*Model, error) {
	m := &Model{Contract: s.Contract(), Run: run}
	for _, a := range m.Contract.Anchors {
		var to *[]Port
		switch a.Role {
		case contract.RunInput:
			to = &m.Inputs
		case contract.RunOutput:
			to = &m.Outputs
		default:
			continue
		}
		p := Port{Anchor: a.Name, Info: a.Info, Data: memory[a.Handle]}
		if p.Data == nil {
			p.Data = memory[a.Name]
		}
		if a.Repeats > 1 {
			p.Info.Shape = append([]int64{int64(a.Repeats)}, p.Info.Shape...)
		}
		if n := m.Contract.Transfers(&a); n > 1 {
			p.Info.Shape = append([]int64{int64(n)}, p.Info.Shape...)
		}
		want, err := p.Info.SizeInBytes()
		if err != nil {
			return nil, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		if have := p.size(); have != want {
			return nil, fmt.Errorf("anchor %q: found %d bytes of memory, want %d (%s)", a.Name, have, want, p.Info)
		}
		*to = append(*to, p)
	}
	return m, nil
}

func (p *Port) size() (n int64) {
	for _, d := range p.Data {
		n += int64(len(d))
	}
	return n
}

// bytes returns a copy of the tensor.
func (p *Port) bytes() []byte { return slices.Concat(p.Data...) }

// fill copies the tensor in.
func (p *Port) fill(data []byte) {
	for _, d := range p.Data {
		data = data[copy(d, data):]
	}
}

// ErrNoGoldens marks a folder that has no golden.json.
var ErrNoGoldens = errors.New("no goldens are recorded")
