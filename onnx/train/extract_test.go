package train_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// rawFile is the mlp as a file with data in each form that ONNX has: raw, packed and single floats, and a file of its own; fields that no schema
// knows stand in the model, its graph and its tensors.
func rawFile(t testing.TB, dir string, forms map[string]string) []byte {
	m := mlp()
	weights := m.Graph.Initializers
	m.Graph.Initializers = nil
	file, err := onnx.Encode(m)
	require.NoError(t, err)
	var all []byte
	for _, w := range weights {
		all = protowire.AppendBytes(protowire.AppendTag(all, 5, protowire.BytesType), unknown(dataOf(t, dir, w, forms[w.Name]).Str(8, w.Name)))
	}
	return intoGraph(t, file, all)
}

// unknown appends a field that no schema knows.
func unknown(b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, 900, protowire.BytesType), []byte("as it was"))
}

// dataOf is a tensor without a name, with its data in a form: raw, packed or single floats, or a file of its own.
func dataOf(t testing.TB, dir string, w *onnx.Tensor, form string) onnxtest.Message {
	p := onnxtest.Message{}.Int(2, int64(w.Elem)).Packed(1, w.Dims...)
	switch form {
	case "packed":
		return p.Bytes(4, w.Data)
	case "single":
		for i := 0; i < len(w.Data); i += 4 {
			p = protowire.AppendFixed32(protowire.AppendTag(p, 4, protowire.Fixed32Type), binary.LittleEndian.Uint32(w.Data[i:]))
		}
		return p
	case "external":
		require.NoError(t, os.WriteFile(filepath.Join(dir, w.Name+".bin"), w.Data, 0o666))
		return p.Bytes(13, onnxtest.Message{}.Str(1, "location").Str(2, w.Name+".bin")).Int(14, 1)
	}
	return p.Bytes(9, w.Data)
}

// intoGraph puts fields before those of the graph of a model, and unknown ones behind those of both.
func intoGraph(t testing.TB, file, fields []byte) []byte {
	var out []byte
	for len(file) > 0 {
		num, _, n := protowire.ConsumeField(file)
		require.Positive(t, n)
		if num == 7 { // the graph
			_, _, tag := protowire.ConsumeTag(file)
			g, _ := protowire.ConsumeBytes(file[tag:])
			out = protowire.AppendBytes(protowire.AppendTag(out, 7, protowire.BytesType), append(fields, unknown(append([]byte(nil), g...))...))
		} else {
			out = append(out, file[:n]...)
		}
		file = file[n:]
	}
	return unknown(out)
}

func loaded(t testing.TB, r *train.Result) *popef.Model {
	t.Helper()
	m, err := r.Load(context.Background(), "training")
	require.NoError(t, err)
	return m
}

// TestExtract puts weights back into files of all forms: all other bytes stay where data are fixed numbers in one piece, and else all other fields.
func TestExtract(t *testing.T) {
	for _, c := range []struct {
		name  string
		forms map[string]string
		same  bool
	}{
		{"raw", nil, true},
		{"packed", map[string]string{"w1": "packed", "b2": "packed"}, true},
		{"single", map[string]string{"w2": "single"}, false},
		{"external", map[string]string{"w1": "external", "scale": "external"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := rawFile(t, dir, c.forms)
			m, err := onnx.Decode(file, dir)
			require.NoError(t, err)
			o := ofP(8)
			o.File = file
			training := loaded(t, compiled(t, m, o))
			got, err := train.Extract(training, nil)
			require.NoError(t, err)
			require.Equal(t, c.same, bytes.Equal(file, got))
			require.Equal(t, 7, bytes.Count(got, []byte("as it was")), "fields that nobody knows")
			again, err := onnx.Decode(got, "") // without other files
			require.NoError(t, err)
			again.Size = m.Size
			require.Empty(t, cmp.Diff(m, again))

			learnt := map[string][]byte{"w1": bytesOf([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), "w2": bytesOf([]float32{8, 7, 6, 5, 4, 3, 2, 1})}
			got, err = train.Extract(training, learnt)
			require.NoError(t, err)
			again, err = onnx.Decode(got, "")
			require.NoError(t, err)
			changed := 0
			for i, w := range again.Graph.Initializers {
				if data, ok := learnt[w.Name]; ok {
					require.Equal(t, data, w.Data)
					changed++
				} else {
					require.Empty(t, cmp.Diff(m.Graph.Initializers[i], w))
				}
			}
			require.Equal(t, 2, changed)
		})
	}
}

func TestExtractRefuses(t *testing.T) {
	training := loaded(t, compiled(t, mlp(), ofP(8)))
	_, err := train.Extract(training, map[string][]byte{"w1": make([]byte, 8)})
	require.ErrorContains(t, err, `weight "w1": found 8 bytes, want the 48 of the model's`)
	other := popeftest.ModelD().Load(t)
	_, err = train.Extract(other, nil)
	require.ErrorIs(t, err, train.ErrBlobs)
	require.ErrorContains(t, err, "popefgen compile --train makes models that have it")
	_, err = train.ReadAbout(other)
	require.ErrorIs(t, err, train.ErrBlobs)
}

func TestAbout(t *testing.T) {
	o := ofP(8)
	o.Accumulation, o.Replicas = 2, 3
	about, err := train.ReadAbout(loaded(t, compiled(t, mlp(), o)))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(&train.About{
		Version: 1, Loss: "loss", Labels: "labels", Divisor: 6, Trained: []string{"w1", "b1", "w2", "b2"},
		Optimizer: "sgd,learning-rate=~0.5,weight-decay=0,momentum=0,dampening=0,velocity-scaling=1,loss-scaling=1",
		Shapes:    map[string][]int64{"x": {8, 3}},
	}, about))
}

// TestWriteExternal: of data in several forms, each stays in its form and place: what is in files of their own there, and what is in the model in it.
func TestWriteExternal(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	names := []string{}
	for _, w := range mlp().Graph.Initializers {
		names = append(names, w.Name)
	}
	require.GreaterOrEqual(t, len(names), 3)
	file := rawFile(t, dir, map[string]string{names[0]: "external", names[1]: "external", names[2]: "packed"})
	has, err := train.HasExternal(file)
	require.NoError(t, err)
	require.True(t, has)
	m, err := onnx.Decode(file, dir)
	require.NoError(t, err)
	for _, w := range m.Graph.Initializers {
		w.Data = bytes.Clone(w.Data)
		w.Data[0]++
	}
	learnt, err := onnx.Encode(m)
	require.NoError(t, err)
	has, err = train.HasExternal(learnt)
	require.NoError(t, err)
	require.False(t, has)
	path := filepath.Join(to, "learnt.onnx")
	require.NoError(t, train.WriteExternal(path, file, learnt, dir))
	got, err := onnx.ReadFile(path)
	require.NoError(t, err)
	for i, w := range m.Graph.Initializers {
		require.Equal(t, w.Data, got.Graph.Initializers[i].Data, w.Name)
	}
	is, err := os.ReadFile(path)
	require.NoError(t, err)
	has, err = train.HasExternal(is)
	require.NoError(t, err)
	require.True(t, has)
	require.Equal(t, bytes.Count(file, []byte("as it was")), bytes.Count(is, []byte("as it was")))
	_, err = train.HasExternal([]byte{0xff})
	require.ErrorIs(t, err, onnx.ErrFormat)
}
