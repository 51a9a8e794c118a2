package packed

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// copier is an engine whose model returns its first input, and for each sequence of the
// last one its first position. It keeps what it was given.
type copier struct {
	free    chan int
	inputs  [6][]byte
	flushed []int
	err     error
}

func (e *copier) Replicas() int { return 1 }

func (e *copier) Done() <-chan struct{} { return nil }

func (e *copier) Visit(ctx context.Context) (int, error) { return <-e.free, nil }

func (e *copier) Run(_ context.Context, replica int, mem [][]byte, flushed int) error {
	for i := range e.inputs {
		e.inputs[i] = append(e.inputs[i][:0], mem[i]...)
	}
	e.flushed = append(e.flushed, flushed)
	copy(mem[6], mem[0])
	copy(mem[7], mem[4])
	e.free <- replica
	return e.err
}

// open returns a packer for two rows of four positions.
func open(t *testing.T, policy rt.PackPolicy) (*Packer, *copier) {
	t.Helper()
	e := &copier{free: make(chan int, 1)}
	e.free <- 0
	spec := &Spec{Rows: 2, Length: 4, Entries: 4, Tensors: []Tensor{
		{Kind: Position, Parts: 8}, {Kind: Mask, Parts: 8}, {Kind: Segments, Parts: 8, Elem: "uint8"}, {Kind: Positions, Parts: 8, Elem: "uint8"},
		{Kind: First, Parts: 4, Elem: "uint16"}, {Kind: Blocks, Parts: 32, Elem: "bool"}, {Kind: Position, Parts: 8}, {Kind: Entry, Parts: 4},
	}}
	ports := make([]Port, len(spec.Tensors))
	for i, bytes := range []int{8, 8, 8, 8, 8, 32, 8, 8} {
		ports[i] = Port{Name: string(rune('a' + i)), GoName: string(rune('A' + i)), Bytes: bytes, Input: i < 6}
	}
	p := &Packer{}
	require.NoError(t, p.Open(e, Model{Package: "two", Spec: spec, Iterations: 1, Ports: ports}, policy, -1))
	return p, e
}

// compute computes sequences of which zeros are padding.
func compute(t *testing.T, p *Packer, in ...[]byte) (out [][]byte, first []uint16, err error) {
	t.Helper()
	require.NoError(t, p.Enter(len(in), len(in)))
	defer p.Exit()
	c := p.Call()
	firsts := make([]byte, 2*len(in))
	for i, s := range in {
		out = append(out, make([]byte, len(s)))
		c.Parts = append(c.Parts, view.SamplesOf(s), view.SamplesOf(s), view.Samples{}, view.Samples{}, view.Samples{}, view.Samples{},
			view.SamplesOf(out[i]), view.Samples{Data: firsts[2*i:][:2], N: 1})
	}
	err = p.Compute(t.Context(), c, len(in))
	for i := range in {
		first = append(first, binary.LittleEndian.Uint16(firsts[2*i:]))
	}
	return out, first, err
}

// TestPacks has three sequences, one with padding at both ends, share a run, and one that does not
// fit take another.
func TestPacks(t *testing.T) {
	p, e := open(t, rt.PackPolicy{Algorithm: rt.PackFirstFit})
	out, first, err := compute(t, p, []byte{1, 2}, []byte{0, 3, 0, 4, 0}, []byte{5})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([][]byte{{1, 2}, {0, 3, 0, 4, 0}, {5}}, out))
	require.Equal(t, []uint16{0, 4, 2}, first)
	require.Equal(t, []int{3}, e.flushed, "another one would go in")
	want := [6][]byte{
		{1, 2, 5, 0, 3, 0, 4, 0}, {1, 2, 5, 0, 3, 0, 4, 0},
		{1, 1, 3, 0, 2, 2, 2, 0}, {0, 1, 0, 0, 0, 1, 2, 0},
		{0, 0, 4, 0, 2, 0, 0, 0},
		{1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1},
	}
	require.Empty(t, cmp.Diff(want, e.inputs))
	out, _, err = compute(t, p, []byte{1, 2, 3}, []byte{4, 5, 6}, []byte{7, 8})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([][]byte{{1, 2, 3}, {4, 5, 6}, {7, 8}}, out))
	require.Equal(t, []int{3, 0, 1}, e.flushed, "the third did not fit")
	require.Equal(t, []byte{7, 8, 0, 0, 0, 0, 0, 0}, e.inputs[0], "nothing is left of runs before")
	require.Equal(t, []byte{1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1}, e.inputs[5][:16], "nor there")
}

// TestRefused: what can't be computed is said before anything runs, and what an engine says is
// the caller's.
func TestRefused(t *testing.T) {
	p, e := open(t, rt.PackPolicy{})
	for name, in := range map[string][]byte{
		"nothing": {}, "padding alone": {0, 0}, "longer than a row": {1, 2, 3, 4, 5},
	} {
		_, _, err := compute(t, p, []byte{1}, in)
		require.ErrorIs(t, err, rt.ErrSequence, name)
		require.ErrorContains(t, err, "sequence 1: ", name)
	}
	require.Empty(t, e.flushed)
	e.err = errors.New("broken")
	_, _, err := compute(t, p, []byte{1})
	require.ErrorIs(t, err, e.err)
	require.ErrorIs(t, p.Enter(1, 2), rt.ErrSamples)
	require.ErrorIs(t, (&Packer{}).Enter(1, 1), rt.ErrGenerated)
	select {
	case <-p.Drain():
	default:
		require.Fail(t, "nobody is inside")
	}
	require.ErrorIs(t, p.Enter(1, 1), rt.ErrClosed)
}

// TestPacksAllocateNothing once memory for packs and calls is there.
func TestPacksAllocateNothing(t *testing.T) {
	p, e := open(t, rt.PackPolicy{})
	in, out, first := []byte{1, 2, 3}, make([]byte, 3), make([]byte, 2)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		e.flushed = e.flushed[:0]
		c := p.Call()
		c.Parts = append(c.Parts, view.SamplesOf(in), view.SamplesOf(in), view.Samples{}, view.Samples{}, view.Samples{}, view.Samples{},
			view.SamplesOf(out), view.Samples{Data: first, N: 1})
		if err := p.Compute(t.Context(), c, 1); err != nil {
			t.Fatal(err)
		}
	}))
}
