package golden_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	fused "github.com/popefgen/popefgen/golden/internal/fused/want"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
)

// openFused opens the fused case.
func openFused(t *testing.T, opts ...rt.RunnerOption) *fused.Runner {
	t.Helper()
	r, err := fused.Open(ctx, write(t, "fused", nil)[0], opts...)
	require.NoError(t, err)
	closing(t, r)
	return r
}

// line runs the branch line on x, 0, k: the result follows from both.
func line(r *fused.Runner, x, k float32) (got, want [1][2]float32, err error) {
	in, out := fused.NewInputsLine(), fused.NewOutputsLine()
	in.LineX.Data = [1][3]float32{{x, 0, k}}
	err = r.RunLine(ctx, in, out)
	return out.LineY.Data, [1][2]float32{{x + 5*k + 0.5, 2*x + 6*k - 0.5}}, err
}

// double submits a request to the branch double_it.
func double(r *fused.Runner, x float32) (got, want [4]float32, err error) {
	in, out := fused.NewInputsDoubleIt(), fused.NewOutputsDoubleIt()
	in.DoubleItX.Data = [4]float32{x, 1, -x, 0}
	ticket, err := r.SubmitDoubleIt(ctx, in, out)
	if err == nil {
		err = ticket.Wait(ctx)
	}
	return out.DoubleItY.Data, [4]float32{2 * x, 2, -2 * x, 0}, err
}

// TestFused runs one branch, the other, and the first again, and looks at which streams each run moves.
//
// Feature 92.
func TestFused(t *testing.T) {
	require.Equal(t, []fused.Branch{fused.BranchLine, fused.BranchDoubleIt}, fused.Branches())
	require.Equal(t, "double_it", fused.BranchDoubleIt.String())
	require.Equal(t, "no branch", fused.Branch(2).String())

	sys := iputest.New(iputest.Config{Devices: make([]ipu.DeviceInfo, 1)})
	t.Cleanup(func() { require.Empty(t, sys.Violations()) })
	moved := func() (all []string) {
		for _, e := range sys.Events(iputest.EventFetch, iputest.EventPrefetch, iputest.EventDeliver) {
			if !slices.Contains(all, e.Stream) {
				all = append(all, e.Stream)
			}
		}
		slices.Sort(all)
		sys.ClearLog()
		return all
	}
	for _, opt := range []rt.RunnerOption{rt.WithManager(sys.Manager()), rt.WithBackend("cpu"), rt.Timed()} {
		r := openFused(t, opt)
		onDevice := len(sys.Events(iputest.EventLoad)) > 0
		moved()
		for i, branch := range []fused.Branch{0, 1, 0, 0, 1, 1} {
			want := []string{"anchor_d2h_line/y", "h2d_line/x"}
			if branch == fused.BranchLine {
				got, want, err := line(r, float32(i), 1)
				require.NoError(t, err)
				require.Equal(t, want, got)
			} else {
				got, y, err := double(r, float32(i))
				require.NoError(t, err)
				require.Equal(t, y, got)
				want = []string{"anchor_d2h_double_it/y", "h2d_double_it/x"}
			}
			if streams := moved(); onDevice {
				require.Equal(t, want, streams, "request %d", i)
			}
		}
	}
}

// TestFusedCallers has callers on both branches, on two replicas: each gets its own results.
func TestFusedCallers(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		r := openFused(t, rt.WithReplicas(replicas))
		var all sync.WaitGroup
		for k := range 4 {
			all.Go(func() {
				for i := range 200 {
					if k%2 == 0 {
						if got, want, err := line(r, float32(i), float32(k)); err != nil || got != want {
							t.Errorf("line of %d: %v, want %v (%v)", i, got, want, err)
						}
					} else if got, want, err := double(r, float32(i*k)); err != nil || got != want {
						t.Errorf("double of %d: %v, want %v (%v)", i*k, got, want, err)
					}
				}
			})
		}
		all.Wait()
	}
}

// TestFusedMistakes gives a branch what it does not take.
func TestFusedMistakes(t *testing.T) {
	r := openFused(t)
	in, out := fused.NewInputsLine(), fused.NewOutputsLine()
	require.ErrorContains(t, r.RunLine(ctx, nil, out), "InputsLine is nil")
	require.ErrorContains(t, r.RunLine(ctx, &fused.InputsLine{}, out), `InputsLine.LineX is nil: anchor "line/x"`)
	_, err := r.SubmitLine(ctx, in, &fused.OutputsLine{})
	require.ErrorContains(t, err, `OutputsLine.LineY is nil: anchor "line/y"`)
	require.ErrorIs(t, r.RunLineOn(ctx, 1, in, out), rt.ErrReplica)
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.RunLine(ctx, in, out), rt.ErrClosed)
	_, err = r.TrySubmitDoubleIt(fused.NewInputsDoubleIt(), fused.NewOutputsDoubleIt())
	require.ErrorIs(t, err, rt.ErrClosed)
}

// TestFusedOverlap asks a runner for what its branches do not do.
func TestFusedOverlap(t *testing.T) {
	_, err := fused.Open(ctx, write(t, "fused", nil)[0], rt.WithOverlap(1))
	require.ErrorIs(t, err, rt.ErrOption)
	require.ErrorContains(t, err, "WithOverlap: ")
	require.ErrorContains(t, err, "the model is fused")
}

// TestFusedFrozen freezes the input of the second branch alone.
func TestFusedFrozen(t *testing.T) {
	x := &fused.DoubleItX{Data: [4]float32{1, 2, 3, 4}}
	r := openFused(t, fused.FreezeDoubleItX(x))
	out := fused.NewOutputsDoubleIt()
	require.NoError(t, r.RunDoubleIt(ctx, &fused.InputsDoubleIt{}, out))
	require.Equal(t, [4]float32{2, 4, 6, 8}, out.DoubleItY.Data)
	got, want, err := line(r, 3, 4)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.ErrorContains(t, r.RunLine(ctx, &fused.InputsLine{}, fused.NewOutputsLine()), "InputsLine.LineX is nil")
}

// TestFusedOther opens files with a branch more, which runs nothing of it, and with one less, or none.
func TestFusedOther(t *testing.T) {
	paths := write(t, "fused", func(m *golden.Model) {
		m.Executable.Compute[11] = []string{"more/y = add(more/x, more/x)"}
		m.Main, m.Programs[11] = append(m.Main, 11), "Program more"
		for _, a := range []golden.Anchor{{Name: "more/x", Direction: "in"}, {Name: "more/y", Direction: "out"}} {
			a.Handle, a.Type, a.Shape, a.Programs = "stream "+a.Name, "F32", []int64{7}, []uint32{11}
			m.Anchors = append(m.Anchors, a)
		}
		m.Branches = strings.Replace(m.Branches, "[{", `[{"name": "more", "program": 11}, {`, 1)
	})
	r, err := fused.Open(ctx, paths[0])
	require.NoError(t, err)
	closing(t, r)
	got, want, err := line(r, 3, 4)
	require.NoError(t, err)
	require.Equal(t, want, got)
	twice, y, err := double(r, 5)
	require.NoError(t, err)
	require.Equal(t, y, twice)

	less := write(t, "fused", func(m *golden.Model) {
		delete(m.Executable.Compute, 10)
		delete(m.Programs, 10)
		m.Main = m.Main[:1]
		m.Anchors = slices.DeleteFunc(m.Anchors, func(a golden.Anchor) bool { return strings.HasPrefix(a.Name, "double_it/") })
		m.Branches = `{"version": 1, "branches": [{"name": "line", "program": 5}]}`
	})
	_, err = fused.Open(ctx, less[0])
	require.ErrorIs(t, err, rt.ErrContract)
	require.ErrorContains(t, err, `branch "double_it" is gone`)
	_, err = fused.Open(ctx, write(t, "fused", func(m *golden.Model) { m.Branches = "" })[0])
	require.ErrorIs(t, err, rt.ErrContract)
	_, err = fused.Open(ctx, write(t, "fused", func(m *golden.Model) { m.Branches = strings.Replace(m.Branches, "line", "lime", 1) })[0])
	require.ErrorIs(t, err, family.ErrBranches)

}
