package compile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/errortext"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// TestErrorsSayEachThingOnce reads and compiles models that are cut at every
// place and damaged in every byte, and looks at the errors' texts.
func TestErrorsSayEachThingOnce(t *testing.T) {
	models, err := filepath.Glob(filepath.Join("..", "..", "cmd", "popefgen", "testdata", "mistakes", "*.onnx"))
	require.NoError(t, err)
	require.NotEmpty(t, models)
	here, err := os.Getwd()
	require.NoError(t, err)
	failed := 0
	for _, path := range models {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		try := func(what string, data []byte) {
			m, err := onnx.Decode(data, "")
			if err == nil {
				_, err = compile.Compile(m, compile.Options{})
			}
			if err == nil {
				return
			}
			failed++
			for _, f := range (errortext.Text{Text: err.Error(), Dir: here}).Faults() {
				t.Errorf("%s %s: %s:\n%v", filepath.Base(path), what, f, err)
			}
		}
		for n := range data {
			try("cut", data[:n])
			for _, bit := range []byte{1, 2, 0x40} {
				broken := append([]byte(nil), data...)
				broken[n] ^= bit
				try("damaged", broken)
			}
		}
	}
	require.Greater(t, failed, 1000, "most of these are refused")
}
