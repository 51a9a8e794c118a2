package autodiff_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// FuzzBackward differentiates every graph of whatever can be decoded: all floats that it computes by all floats that it
// reads, then by each that has an influence. It ends, and what comes out can be verified.
func FuzzBackward(f *testing.F) {
	for _, name := range []string{"../encoding/testdata/sample-v1.bin", "../encoding/testdata/sample-v2.bin"} {
		file, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(file)
	}
	for _, name := range []string{"LSTM", "Loop/nested", "Attention", "Conv", "MaxPool", "Resize", "ScatterND", "GatherND", "Clip", "Pad", "Slice", "If", "Reduce/prod"} {
		gen := rapid.Custom(func(r *rapid.T) []byte {
			d := newDraw(r)
			cases[name](d)
			e, err := d.b.Finish()
			require.NoError(f, err)
			var file bytes.Buffer
			require.NoError(f, encoding.Encode(&file, e))
			return file.Bytes()
		})
		f.Add(gen.Example(1))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := encoding.Decode(checked(b))
		if err != nil {
			return
		}
		for g := range e.Graphs {
			if len(e.Graphs[g].Params)+len(e.Graphs[g].Results) > 0 {
				continue
			}
			var o autodiff.Options
			o.Required, o.Provided = floatsOf(e, graph.GraphID(g))
			o.Recompute = []autodiff.Recompute{autodiff.RecomputeNone, autodiff.RecomputeStandard, autodiff.RecomputeAll}[len(b)%3]
			if _, err := autodiff.Backward(e, graph.GraphID(g), o); err == nil {
				require.NoError(t, graph.Verify(e))
			}
			for _, x := range o.Required[:min(len(o.Required), 8)] {
				copied := *e
				one := autodiff.Options{Provided: o.Provided, Required: []graph.TensorID{x}}
				if _, err := autodiff.Backward(&copied, graph.GraphID(g), one); err == nil {
					require.NoError(t, graph.Verify(&copied))
				}
			}
			break // those after it are backward graphs, some of them
		}
	})
}

// checked returns b as a file whose size and checksum are right, so that a fuzzer gets past them.
func checked(b []byte) []byte {
	if len(b) < 32 {
		return b
	}
	b = slices.Clone(b)
	le := binary.LittleEndian
	le.PutUint64(b[16:], uint64(len(b)))
	le.PutUint32(b[12:], 0)
	if sections := le.Uint64(b[24:]); sections <= uint64(len(b)-32) {
		le.PutUint32(b[12:], crc32.Checksum(b[:32+sections], crc32.MakeTable(crc32.Castagnoli)))
	}
	return b
}

// floatsOf lists the floats that a graph reads without writing them, and those that it writes.
func floatsOf(e *graph.Executable, g graph.GraphID) (reads, writes []graph.TensorID) {
	written := map[graph.TensorID]bool{}
	seen := map[graph.TensorID]bool{}
	float := func(t graph.TensorID) bool {
		d := e.Tensors[t].Type.DType
		return d == graph.F16 || d == graph.BF16 || d == graph.F32 || d == graph.F64
	}
	for _, n := range e.Graphs[g].Nodes {
		for _, t := range n.Inputs {
			if t != graph.None && !written[t] && !seen[t] && float(t) && !e.Tensors[t].Const {
				seen[t] = true
				reads = append(reads, t)
			}
		}
		for _, t := range n.Outputs {
			if t != graph.None && !written[t] && float(t) {
				written[t] = true
				writes = append(writes, t)
			}
		}
	}
	return reads, writes
}
