package compile

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
)

// A compiled model says of what it was compiled, and is the same model
// otherwise.
func TestSource(t *testing.T) {
	m, err := onnx.ReadFile(filepath.Join("..", "..", "generated_examples", "digits", "digits.onnx"))
	require.NoError(t, err)
	o := Options{}
	o.Batch = 1
	r, err := Compile(m, o)
	require.NoError(t, err)
	pf, err := r.Model("digits.popef")
	require.NoError(t, err)
	defer pf.Close()
	got, ok, err := ReadSource(pf)
	require.NoError(t, err)
	require.True(t, ok)
	require.Empty(t, cmp.Diff(SourceOf(m), got))
	require.Contains(t, got.Producer, "pytorch")
	require.NotEmpty(t, got.Opsets)
	require.Equal(t, "ai.onnx", got.Opsets[0].Domain)
	require.Empty(t, pf.Warnings())
}

func TestSourceIsBounded(t *testing.T) {
	long := strings.Repeat("很", 1<<16)
	m := &onnx.Model{ProducerName: long, ProducerVersion: "\xff", Opsets: make([]onnx.Opset, 1000)}
	m.Opsets[0].Domain = long
	data, err := SourceOf(m).encode()
	require.NoError(t, err)
	require.Less(t, len(data), maxSourceBytes)
	require.Empty(t, SourceOf(&onnx.Model{}))
}

// What somebody else wrote under the blob's name is refused by name.
func TestReadSourceOfOthers(t *testing.T) {
	for name, data := range map[string]string{"not JSON": "PK\x03\x04", "nothing": "", "too long": `{"producer":"` + strings.Repeat("x", maxSourceBytes) + `"}`, "other fields": `{"opsets":{}}`} {
		t.Run(name, func(t *testing.T) {
			_, ok, err := ReadSource(withSource(t, SourceBlob, data))
			require.ErrorIs(t, err, ErrSource)
			require.False(t, ok)
		})
	}
	_, ok, err := ReadSource(withSource(t, "another", "{"))
	require.NoError(t, err)
	require.False(t, ok)
}

// withSource is a model with an opaque blob.
func withSource(t *testing.T, name, data string) *popef.Model {
	path := filepath.Join(t.TempDir(), "m.popef")
	require.NoError(t, popef.WriteFile(path, func(w *popef.Writer) error {
		if err := w.WriteMetadata(&popef.Metadata{ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, Executable: "1", DeviceIterations: 1}); err != nil {
			return err
		}
		e, err := w.CreateExecutable("1", false)
		if err != nil {
			return err
		}
		if _, err := e.Write([]byte("12345678")); err != nil {
			return err
		}
		b, err := w.CreateOpaque(name, "1")
		if err != nil {
			return err
		}
		if _, err := b.Write([]byte(data)); err != nil {
			return err
		}
		return b.Close()
	}))
	m, err := popef.Load(path)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}
