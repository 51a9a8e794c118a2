package onnx

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
)

// TestReadOnBudget reads a file with the memory that the file and its messages take, and
// with one byte less; and what has no end.
func TestReadOnBudget(t *testing.T) {
	m, err := Encode(&Model{IRVersion: 8, Opsets: []Opset{{Version: 17}}, Graph: &Graph{Name: "g", Nodes: []*Node{{OpType: "Relu", Inputs: []string{"x"}, Outputs: []string{"y"}}}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "m.onnx")
	require.NoError(t, os.WriteFile(path, m, 0o666))
	whole := budget.New(1 << 30)
	_, err = ReadFileContext(budget.Into(t.Context(), whole), path)
	require.NoError(t, err)
	need := whole.Used()
	require.Greater(t, need, int64(len(m))+3*partBytes)
	_, err = ReadFileContext(budget.Into(t.Context(), budget.New(need)), path)
	require.NoError(t, err)
	for limit, what := range map[int64]string{need - 1: "the messages of the file", int64(len(m)) - 1: "m.onnx: it needs"} {
		_, err = ReadFileContext(budget.Into(t.Context(), budget.New(limit)), path)
		require.ErrorIs(t, err, budget.ErrExceeded)
		require.ErrorContains(t, err, what)
	}

	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			return
		}
		defer w.Close()
		for err == nil { // until nobody reads
			_, err = w.Write(make([]byte, 1<<16))
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = ReadFileContext(budget.Into(t.Context(), budget.New(4<<20)), pipe)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, budget.ErrExceeded)
	require.ErrorContains(t, err, "pipe: it needs")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
	<-stop

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = ReadFileContext(ctx, path)
	require.ErrorIs(t, err, context.Canceled)
	_, err = decode(ctx, m, "")
	require.ErrorIs(t, err, context.Canceled)
}
