package compile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
)

// memory is the host's end of a stream: the same memory in every transfer.
type memory []byte

func (m memory) Fetch(context.Context, []byte) error    { return nil }
func (m memory) Memory(context.Context) ([]byte, error) { return m, nil }
func (m memory) Prefetch([]byte) bool                   { return false }
func (m memory) Complete()                              {}
func (m memory) InvalidatePrefetched()                  {}

// runner runs the programs of a compiled model.
type runner struct {
	*compile.Result
	engine  *cpu.Engine
	streams map[string]memory
}

// openModel makes an engine of a compiled model and loads its weights.
func openModel(t *testing.T, r *compile.Result) *runner {
	t.Helper()
	var exe bytes.Buffer
	require.NoError(t, encoding.Encode(&exe, r.Executable))
	e, err := cpu.New(ipu.EngineConfig{Name: t.Name(), Executable: exe.Bytes()})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	run := &runner{r, e, map[string]memory{}}
	weights := map[string][]byte{}
	for _, w := range r.Weights {
		weights[w.Name] = w.Data
	}
	for _, a := range r.Metadata.Anchors {
		n, err := a.Info.SizeInBytes()
		require.NoError(t, err)
		m := memory(make([]byte, n))
		if a.Programs[0] == compile.LoadProgram {
			copy(m, weights[a.Name])
		}
		run.streams[a.Handle] = m
		require.NoError(t, e.Connect(a.Handle, m))
	}
	ds, err := (&ipu.Manager{}).Get(t.Context(), ipu.Request{Backend: "cpu"})
	require.NoError(t, err)
	_, err = ds.Attach()
	require.NoError(t, err)
	require.NoError(t, e.Load(t.Context(), ds))
	require.NoError(t, e.Run(t.Context(), compile.LoadProgram))
	return run
}

// run runs a program on inputs drawn with a seed, and returns its outputs by name.
func (r *runner) run(t *testing.T, program uint32, seed uint64, vocabulary int64) map[string][]byte {
	t.Helper()
	out := map[string]memory{}
	draw := rand.New(rand.NewPCG(seed, 1))
	for _, a := range r.Metadata.Anchors {
		m := r.streams[a.Handle]
		switch {
		case a.Programs[0] != program:
		case a.Type == popef.Output:
			clear(m)
			out[a.Name] = m
		default:
			fill(draw, a.Info.DataType, m, vocabulary)
		}
	}
	require.NoError(t, r.engine.Run(t.Context(), int(program)))
	copied := map[string][]byte{}
	for name, m := range out {
		copied[name] = bytes.Clone(m)
	}
	return copied
}

// fill draws elements: numbers from -1 to 1, whole ones from 0 on.
func fill(draw *rand.Rand, d popef.DataType, to []byte, below int64) {
	for size := d.Size(); len(to) > 0; to = to[size:] {
		switch {
		case d == popef.F32:
			binary.LittleEndian.PutUint32(to, math.Float32bits(2*draw.Float32()-1))
		case d == popef.Bool:
			to[0] = byte(draw.IntN(2))
		default: // what is not a float has at most eight bytes
			var v [8]byte
			binary.LittleEndian.PutUint64(v[:], uint64(draw.Int64N(below)))
			copy(to[:size], v[:])
		}
	}
}
