package compile_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/rows"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/popef"
)

// publicMixers are the public models that mix the rows of their first open dimension, with
// what is found of them. bert_mlm_small's attention goes over the batch.
var publicMixers = map[string]string{"bert_mlm_small": `node "MatMul_82" (MatMul)`}

// TestPublicRows compiles every public model with an open first dimension for one, three
// and four rows. All but the one that mixes them are proven; a row beside others gives the
// bits that it gives beside random ones, as the proof says.
func TestPublicRows(t *testing.T) {
	dir := filepath.Join(onnxtest.Data(t), "models")
	for _, c := range publicFamilies {
		t.Run(c.model, func(t *testing.T) {
			m, err := onnx.ReadFile(filepath.Join(dir, c.model, "model.onnx"))
			require.NoError(t, err)
			sizes := [][]int64{{1, 3, 4}}
			for _, s := range c.sizes[1:] {
				sizes = append(sizes, s[len(s)-1:])
			}
			r, err := compile.Compile(m, compile.Options{Members: product(c.dims, sizes...)})
			require.NoError(t, err)
			run := openModel(t, r)
			var members []rows.Member
			for i, f := range r.Family.Members {
				m := rows.Member{Program: int(f.Program), N: f.Sizes[0], Axes: map[string]int{}}
				for _, tensor := range r.Family.Tensors {
					for axis, a := range tensor.Axes {
						if a.Dim == 0 {
							m.Axes[r.Metadata.Anchors[tensor.Anchors[i]].Handle] = axis
						}
					}
				}
				members = append(members, m)
			}
			err = rows.Alike(r.Executable, members...)
			mixes := publicMixers[c.model]
			if mixes == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, mixes)
			}
			var alone []byte
			for _, m := range members {
				first := run.firstRow(t, m, 1, c.vocabulary)
				require.Equal(t, mixes == "" || m.N == 1, bytes.Equal(first, run.firstRow(t, m, 2, c.vocabulary)), "%d rows", m.N)
				if m.N == 1 {
					alone = first
				} else if mixes == "" {
					t.Logf("%d rows: the first one differs by up to %.2g from what it is alone", m.N, distance(alone, first))
				}
			}
		})
	}
}

// firstRow runs a member on a first row that is always the same beside others that the seed
// draws, and returns the first rows of all outputs that are of float32, or else the bytes.
func (r *runner) firstRow(t *testing.T, m rows.Member, seed uint64, vocabulary int64) []byte {
	t.Helper()
	var outs []byte
	for _, output := range []bool{false, true} {
		if output {
			require.NoError(t, r.engine.Run(t.Context(), m.Program))
		}
		for i, a := range r.Metadata.Anchors {
			if int(a.Programs[0]) != m.Program || (a.Type == popef.Output) != output {
				continue
			}
			mem := r.streams[a.Handle]
			axis, ok := m.Axes[a.Handle]
			if !ok {
				axis = 0
			}
			block := int64(a.Info.DataType.Size())
			for _, d := range a.Info.Shape[min(axis+1, len(a.Info.Shape)):] {
				block *= d
			}
			each := block
			if ok {
				each *= m.N
			}
			if !output {
				fill(rand.New(rand.NewPCG(seed, uint64(i))), a.Info.DataType, mem, vocabulary)
			}
			draw := rand.New(rand.NewPCG(7, uint64(len(a.Name))))
			for at := int64(0); at < int64(len(mem)); at += each {
				if output {
					outs = append(outs, mem[at:at+block]...)
				} else {
					fill(draw, a.Info.DataType, mem[at:at+block], vocabulary)
				}
			}
		}
	}
	return outs
}

// distance is the greatest difference between float32s, relative to 1 + their size.
func distance(a, b []byte) float64 {
	most := 0.0
	for i := 0; i+4 <= min(len(a), len(b)); i += 4 {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(a[i:])))
		y := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		if d := math.Abs(x-y) / (1 + math.Abs(x)); d > most {
			most = d
		}
	}
	return most
}
