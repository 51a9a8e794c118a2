package cpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
)

// onBudget makes an engine that counts on room, and loads it.
func onBudget(exe []byte, room *budget.Budget, options ...ipu.Option) (e *Engine, made, loaded error) {
	ctx := budget.Into(context.Background(), room)
	if e, made = New(ipu.EngineConfig{Name: "m", Executable: exe, Context: ctx, Options: options}); made != nil {
		return nil, made, nil
	}
	d := &device{}
	d.Attach() //nolint:errcheck // always succeeds
	return e, nil, e.Load(ctx, d)
}

// TestOneBudget opens a model of which the file, the tables of kernels and the memory
// of an engine each fit into the limit: with a byte less than all need together it is
// refused, with that byte it is not, whoever sets the limit. What was refused or closed counts no more.
func TestOneBudget(t *testing.T) {
	exe := sharedModel(t)
	const file = 100_000
	whole := budget.New(1 << 30)
	require.NoError(t, whole.Take(file, "file"))
	e, err := New(ipu.EngineConfig{Name: "m", Executable: exe, Context: budget.Into(t.Context(), whole)})
	require.NoError(t, err)
	tables := whole.Used() - file
	load(t, e)
	all := whole.Used()
	memory := all - tables - file
	require.EqualValues(t, e.plan.TableBytes, tables)
	require.EqualValues(t, e.plan.ArenaBytes+e.plan.PersistentBytes+e.plan.PackedBytes, memory)
	require.Positive(t, tables)
	require.Positive(t, memory)
	require.NoError(t, e.Close())
	require.EqualValues(t, file, whole.Used())

	for name, limit := range map[string]func(n int64) (*budget.Budget, []ipu.Option){
		"budget": func(n int64) (*budget.Budget, []ipu.Option) { return budget.New(n), nil },
		"option": func(n int64) (*budget.Budget, []ipu.Option) { return budget.New(1 << 40), opt("memory", fmt.Sprint(n)) },
		"option above the budget": func(n int64) (*budget.Budget, []ipu.Option) {
			return budget.New(file), opt("memory", fmt.Sprint(n))
		},
	} {
		t.Run(name, func(t *testing.T) {
			room, options := limit(all - 1)
			require.NoError(t, room.Take(file, "file"))
			e, made, loaded := onBudget(exe, room, options...)
			require.NoError(t, made, "file and tables fit")
			require.ErrorIs(t, loaded, ipu.ErrMemory)
			require.ErrorIs(t, loaded, budget.ErrExceeded)
			require.ErrorContains(t, loaded, "it needs "+budget.Text(tables+memory))
			require.ErrorContains(t, loaded, " of node ", "where most of it goes")
			require.ErrorContains(t, loaded, "beside the 97.7 KiB that the model's files and other engines have taken, more than the limit of "+budget.Text(all-1)+"; "+budget.Advice)
			require.EqualValues(t, file+tables, room.Used())
			require.NoError(t, e.Close())
			require.EqualValues(t, file, room.Used())

			room, options = limit(all)
			require.NoError(t, room.Take(file, "file"))
			e, made, loaded = onBudget(exe, room, options...)
			require.NoError(t, made)
			require.NoError(t, loaded)
			require.EqualValues(t, all, room.Used())
			require.NoError(t, e.Close())

			room, options = limit(file + tables - 1)
			require.NoError(t, room.Take(file, "file"))
			_, made, _ = onBudget(exe, room, options...)
			require.ErrorIs(t, made, budget.ErrExceeded)
			require.ErrorContains(t, made, "the tables of its kernel: it needs")
			require.EqualValues(t, file, room.Used())
		})
	}
}

// TestOneBudgetOfManyEngines counts what engines have in common once on each budget,
// for as long as one that counts on it is open.
func TestOneBudgetOfManyEngines(t *testing.T) {
	exe, whole, other := sharedModel(t), budget.New(1<<30), budget.New(1<<30)
	first, made, loaded := onBudget(exe, whole)
	require.NoError(t, made)
	require.NoError(t, loaded)
	one, common := whole.Used(), first.shared.Common()
	require.Greater(t, common, int64(3*4*sharedSize*sharedSize), "constant, weight, product")
	second, made, loaded := onBudget(exe, whole)
	require.NoError(t, made)
	require.NoError(t, loaded)
	require.Same(t, first.shared, second.shared)
	require.EqualValues(t, 2*one-common, whole.Used())
	third, made, loaded := onBudget(exe, other)
	require.NoError(t, made)
	require.NoError(t, loaded)
	require.EqualValues(t, one, other.Used())
	require.NoError(t, first.Close())
	require.EqualValues(t, one, whole.Used(), "the second holds it now")
	require.NoError(t, second.Close())
	require.Zero(t, whole.Used())
	require.NoError(t, third.Close())
	require.Zero(t, other.Used())
}

// TestOneBudgetConcurrently opens engines of several models at the same time on one
// budget that has room for some: as many get it, the others are refused and leave
// nothing behind. Of one executable, who has too little keeps nobody else from it.
func TestOneBudgetConcurrently(t *testing.T) {
	exes := [][]byte{sharedModel(t), executable(t, twoLayers(t)), sharedModel(t)} // two images of equal bytes
	var need []int64
	for _, exe := range exes {
		whole := budget.New(1 << 30)
		e, made, loaded := onBudget(exe, whole)
		require.NoError(t, made)
		require.NoError(t, loaded)
		need = append(need, whole.Used())
		require.NoError(t, e.Close())
	}
	for range 20 {
		whole := budget.New(need[0] + need[1] + need[2])
		open := make([]*Engine, 12)
		var all sync.WaitGroup
		for i := range open {
			all.Go(func() {
				e, made, loaded := onBudget(exes[i%3], whole)
				switch {
				case made == nil && loaded == nil:
					open[i] = e
				case e != nil:
					made = errors.Join(loaded, e.Close())
					fallthrough
				default:
					if !errors.Is(made, budget.ErrExceeded) {
						t.Error(made)
					}
				}
			})
			all.Go(func() { // on budgets of their own, of which half have next to nothing
				room := budget.New(need[i%3])
				if i%2 == 0 {
					room = budget.New(1)
				}
				e, made, loaded := onBudget(exes[i%3], room)
				if ok := made == nil && loaded == nil; ok != (i%2 != 0) {
					t.Errorf("budget of %d bytes: %v, %v", room.Limit(), made, loaded)
				}
				if e != nil {
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				}
				if room.Used() != 0 {
					t.Errorf("%d bytes are left", room.Used())
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, whole.Used(), whole.Limit())
		loaded := 0
		for _, e := range open {
			if e != nil {
				loaded++
				require.NoError(t, e.Close())
			}
		}
		require.Positive(t, loaded)
		require.Zero(t, whole.Used())
	}
}
