package dynamic_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/serve/dynamic"
)

// TestBudget: the file's copy and what runs the model count on one budget, which has everything back in the end, that of the plan before.
func TestBudget(t *testing.T) {
	b := budget.New(1 << 30)
	ctx := budget.Into(t.Context(), b)
	file := filepath.Join(digits, "classifier", "digits.popef")
	var used []int64
	for range 2 {
		m, err := dynamic.Open(ctx, []string{file}, dynamic.WithCopy(), dynamic.WithReplicas(1))
		require.NoError(t, err)
		used = append(used, b.Used())
		require.NoError(t, m.Shutdown(t.Context()))
		require.Zero(t, b.Used(), "after it was shut down")
	}
	require.Equal(t, used[0], used[1])
	_, err := dynamic.Open(budget.Into(t.Context(), budget.New(used[0]/2)), []string{file}, dynamic.WithCopy(), dynamic.WithReplicas(1))
	require.ErrorIs(t, err, budget.ErrExceeded)
}
