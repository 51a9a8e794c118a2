package emit

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// manyAnchors is a model with n inputs and outputs.
func manyAnchors(t *testing.T, n int, name func(i int) string) *popef.Model {
	f := popeftest.ModelA()
	some := f.Metadata.Anchors[2:4]
	f.Metadata.Anchors, f.Tensors = nil, nil
	for i := range n {
		a := some[i%len(some)]
		a.Name, a.Handle = name(i), fmt.Sprintf("%s_%d", a.Handle, i)
		f.Metadata.Anchors = append(f.Metadata.Anchors, a)
	}
	return f.Load(t)
}

// TestManyAnchors generates packages of many anchors, whatever they are called:
// four times as many must take about four times as much.
func TestManyAnchors(t *testing.T) {
	for what, name := range map[string]func(i int) string{
		"numbered":       func(i int) string { return fmt.Sprintf("input_%d", i) },
		"of one Go name": func(i int) string { return "a" + strings.Repeat("-", i) },
		"of no Go name":  func(i int) string { return strings.Repeat("\u4e16", 1+i%40) + fmt.Sprint(i) },
		"that end alike": func(i int) string { return fmt.Sprintf("a%d", i%7) + strings.Repeat("_", i) },
	} {
		t.Run(what, func(t *testing.T) {
			work := func(n int) (allocations float64) {
				m := manyAnchors(t, n, name)
				return testing.AllocsPerRun(1, func() {
					p, err := plan.Build(m, plan.Options{}, Declared())
					require.NoError(t, err)
					require.Len(t, p.Inputs, n/2)
					_, err = Emit(p)
					require.NoError(t, err)
				})
			}
			few, many := work(100), work(400)
			require.Less(t, many, 6*few)
		})
	}
}

// TestPackageOnBudget bounds what the package of a model takes before there is any of
// it: what is bounded covers the text and what making it allocates.
func TestPackageOnBudget(t *testing.T) {
	for _, c := range []struct{ anchors, name int }{{1000, 8}, {100, 4000}, {20, 16000}} {
		m := manyAnchors(t, c.anchors, func(i int) string { return fmt.Sprintf("a%d_", i) + strings.Repeat("x", c.name) })
		open := budget.New(1 << 40)
		_, err := plan.Build(m, plan.Options{Context: budget.Into(t.Context(), open)}, Declared())
		require.NoError(t, err)
		need := open.Used()
		whole := budget.New(need - 1)
		_, err = plan.Build(m, plan.Options{Context: budget.Into(t.Context(), whole)}, Declared())
		require.ErrorIs(t, err, budget.ErrExceeded)
		require.ErrorIs(t, err, plan.ErrBuild)
		require.ErrorContains(t, err, fmt.Sprintf("the package of %d anchors: it needs", c.anchors))
		require.Zero(t, whole.Used())

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := plan.Build(m, plan.Options{Tests: true, Context: budget.Into(t.Context(), budget.New(need))}, Declared())
		require.NoError(t, err)
		files, err := Emit(p)
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		text := 0
		for _, f := range files {
			text += len(f.Data)
		}
		require.Less(t, 4*int64(text), need)
		require.Less(t, int64(after.TotalAlloc-before.TotalAlloc), 4*need, "most of it is garbage soon")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := plan.Build(manyAnchors(t, 4, func(i int) string { return fmt.Sprint("a", i) }), plan.Options{Context: ctx}, Declared())
	require.ErrorIs(t, err, context.Canceled)
}
