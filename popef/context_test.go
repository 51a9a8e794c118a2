package popef_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/popef"
)

// looks is a context that is done once it was looked at some times.
type looks struct {
	context.Context
	left atomic.Int64
}

func after(n int64) *looks {
	l := &looks{Context: context.Background()}
	l.left.Store(n)
	return l
}

// Err implements context.Context.
func (l *looks) Err() error {
	if l.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// manyBlobs is a model with n opaque blobs.
func manyBlobs(t testing.TB, n int) []byte {
	return write(t, func(w *popef.Writer) error {
		err := errors.Join(metadata("e")(w), executable("e")(w))
		for i := 0; i < n && err == nil; i++ {
			err = opaque(fmt.Sprint(i), "e")(w)
		}
		return err
	})
}

// TestLoadUntil ends loading, copying and decompressing wherever it is: after as many
// looks at the context as may be, and each of the long parts looks at it many times.
func TestLoadUntil(t *testing.T) {
	dir := t.TempDir()
	save := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, b, 0o666))
		return path
	}
	blobs := save("blobs", manyBlobs(t, 5000))
	long := save("long", compressed(t, 64<<20, pack(t, make([]byte, 64<<20), gzipWriter)))
	large := save("large", compressed(t, math.MaxUint64, make([]byte, 64<<20)))
	decompress := func(ctx context.Context) error {
		m, err := popef.LoadContext(context.Background(), long)
		require.NoError(t, err)
		defer m.Close()
		_, err = m.ExecutableContext(ctx)
		return err
	}
	for name, c := range map[string]struct {
		do    func(ctx context.Context) error
		looks int64 // at least
	}{
		"many blobs": {func(ctx context.Context) error { return closed(popef.LoadContext(ctx, blobs)) }, 20},
		"copy":       {func(ctx context.Context) error { return closed(popef.LoadCopyContext(ctx, large)) }, 8},
		"decompress": {decompress, 8},
		"reader": {func(ctx context.Context) error {
			r := popef.NewReader()
			defer r.Close()
			return r.AddFileContext(ctx, blobs)
		}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			all := after(1 << 40)
			require.NoError(t, c.do(all))
			n := 1<<40 - all.left.Load()
			require.GreaterOrEqual(t, n, c.looks)
			for _, k := range []int64{0, 1, n / 3, n - 1} {
				whole := budget.New(1 << 40)
				err := c.do(budget.Into(after(k), whole))
				require.ErrorIs(t, err, context.Canceled, "after %d of %d looks", k, n)
				require.Zero(t, whole.Used(), "after %d of %d looks", k, n)
			}
		})
	}
}

// closed closes what was opened.
func closed(m *popef.Model, err error) error {
	if err != nil {
		return err
	}
	return m.Close()
}

// TestLoadOnBudget loads models with the memory that it takes and with one byte less,
// which is refused before it is taken; what is closed counts no more.
func TestLoadOnBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.popef")
	zeros := bytes.Repeat([]byte{0}, 16<<20)
	require.NoError(t, os.WriteFile(path, compressed(t, uint64(len(zeros)), pack(t, zeros, lz4Writer)), 0o666))
	for name, c := range map[string]struct {
		do   func(ctx context.Context) (*popef.Model, error)
		what string
		at   int64 // bytes at least
		left int64 // when the model is closed: who asked for it has the executable
	}{
		"list": {func(ctx context.Context) (*popef.Model, error) { return popef.LoadContext(ctx, path) }, "message: it needs", 1000, 0},
		"copy": {func(ctx context.Context) (*popef.Model, error) { return popef.LoadCopyContext(ctx, path) }, "it needs", 60_000, 0},
		"decompressed": {func(ctx context.Context) (*popef.Model, error) {
			m, err := popef.LoadContext(ctx, path)
			if err == nil {
				_, err = m.ExecutableContext(ctx)
			}
			return m, err
		}, "decompressing the executable: it needs 16 MiB beside the ", int64(len(zeros)), int64(len(zeros))},
	} {
		t.Run(name, func(t *testing.T) {
			whole := budget.New(1 << 40)
			m, err := c.do(budget.Into(t.Context(), whole))
			require.NoError(t, err)
			need := whole.Used()
			require.Greater(t, need, c.at)
			require.NoError(t, m.Close())
			require.Equal(t, c.left, whole.Used())

			m, err = c.do(budget.Into(t.Context(), budget.New(need)))
			require.NoError(t, err)
			require.NoError(t, m.Close())
			whole = budget.New(need - 1)
			got := allocated(func() { m, err = c.do(budget.Into(t.Context(), whole)) })
			require.ErrorIs(t, err, budget.ErrExceeded)
			require.ErrorContains(t, err, c.what)
			require.ErrorContains(t, err, budget.Advice)
			require.Less(t, got, uint64(1<<20))
			if m != nil {
				require.NoError(t, m.Close())
			}
			require.Zero(t, whole.Used())
		})
	}
}
