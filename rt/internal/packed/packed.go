// Package packed puts sequences of different lengths, those of several callers among
// them, into the rows of one run, and copies the results to where each belongs.
package packed

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/series"
)

// Spec is what generated code knows of a model that several sequences share a run
// of.
type Spec struct {
	Rows, Length int      // of the inputs that sequences are put into
	Entries      int      // most sequences of a run
	Tensors      []Tensor // run inputs and then run outputs, in the order of Inputs and Outputs
}

// Tensor says what a run input or output is to packing.
type Tensor struct {
	Kind  Kind
	Parts int    // equal parts that it has: of positions, of pairs of positions, or of sequences
	Elem  string // Go type of its elements, of an input that is filled here
}

// Kind says what a run input or output is to packing.
type Kind uint8

// The kinds of tensors. Those from Segments to Bias are inputs that are filled here: by
// them a model keeps the sequences apart.
const (
	Nothing   Kind = iota // an input that is the same in every request: it must be frozen
	Position              // something for each position: callers give or get it
	Mask                  // that too, an input: zero where a sequence has padding at its ends
	Segments              // for each position the number of its sequence in the run, from 1; 0 elsewhere
	Positions             // for each position its index in its sequence; 0 elsewhere
	First                 // for each sequence, in order, its first position in all rows; 0 behind the last
	Blocks                // for each two positions of a row 1 if they have the same number, else 0
	Bias                  // for each two positions of a row 0 if they have the same number, else [series.Lowest]
	Entry                 // an output with a part for each sequence, in order
)

// Engine runs packs.
type Engine interface {
	// Replicas returns how many runs can go on at the same time.
	Replicas() int
	// Visit waits for a replica that is free.
	Visit(ctx context.Context) (replica int, err error)
	// Run computes a pack on the replica that Visit returned, and leaves it. mem is that of each run
	// input and then of each run output. flushed is how many sequences are in a pack that runs though
	// more would go in, else 0.
	Run(ctx context.Context, replica int, mem [][]byte, flushed int) error
	// Done is closed when nothing runs any more.
	Done() <-chan struct{}
}

// Model is what a packer is made for.
type Model struct {
	Package    string // name of the generated package, for messages
	Spec       *Spec  // nil if the package knows nothing of packing
	Iterations int    // transfers of a tensor in a run
	Ports      []Port // run inputs and then run outputs
}

// Port is a run input or output.
type Port struct {
	Name   string // of its anchor
	GoName string // of its field
	Bytes  int    // of a run
	Input  bool
	Frozen bool // an input that the same data goes into in every request
}

// tensor is a run input or output.
type tensor struct {
	name   string
	kind   Kind
	input  bool
	frozen bool
	bytes  int // of a run
	part   int // bytes of a position, or of a sequence
	write  series.Writer
	same   []byte // a row of what Blocks and Bias have for the same number, and for another
	other  []byte
}

// tensor returns tensor i, which has that many bytes.
func (k *Spec) tensor(i, bytes int) (tensor, error) {
	s := k.Tensors[i]
	t := tensor{kind: s.Kind, bytes: bytes}
	if s.Kind == Nothing {
		return t, nil
	}
	positions := k.Rows * k.Length
	fits := s.Parts == positions
	switch s.Kind {
	case First, Entry:
		fits = s.Parts >= k.Entries
	case Blocks, Bias:
		fits = s.Parts == positions*k.Length
	}
	if !fits || s.Parts < 1 || bytes%s.Parts != 0 {
		return t, fmt.Errorf("%w: %d bytes in %d parts, of %d rows of %d positions and %d sequences", rt.ErrGenerated, bytes, s.Parts, k.Rows, k.Length, k.Entries)
	}
	t.part = bytes / s.Parts
	if s.Kind < Segments || s.Kind > Bias {
		return t, nil
	}
	write, size := series.Of(s.Elem)
	if write == nil || size != t.part {
		return t, fmt.Errorf("%w: the runner fills elements of %s, %d bytes each", rt.ErrGenerated, s.Elem, t.part)
	}
	t.write = write
	row := func(v int) []byte {
		mem := make([]byte, k.Length*t.part)
		t.write(mem, 0, k.Length, v, 0)
		return mem
	}
	switch s.Kind {
	case Blocks:
		t.same, t.other = row(1), row(0)
	case Bias:
		t.same, t.other = row(0), row(series.Lowest)
	}
	return t, nil
}
