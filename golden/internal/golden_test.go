package golden_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	affine "github.com/popefgen/popefgen/golden/internal/affine/want"
	empty "github.com/popefgen/popefgen/golden/internal/empty/want"
	final "github.com/popefgen/popefgen/golden/internal/final/want"
	iterations "github.com/popefgen/popefgen/golden/internal/iterations/want"
	loadinputs "github.com/popefgen/popefgen/golden/internal/load_inputs/want"
	linear "github.com/popefgen/popefgen/golden/internal/popart_linear/want"
	training "github.com/popefgen/popefgen/golden/internal/popart_training/want"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

var ctx = context.Background()

// The pin of a package that this code relies on.
const _ = affine.Contractc6e0b9e8

// write writes the model of a case, changed by edit, and returns its files.
func write(t *testing.T, name string, edit func(*golden.Model)) []string {
	t.Helper()
	m, err := golden.Read(filepath.Join(name, "model.yaml"))
	require.NoError(t, err)
	if edit != nil {
		edit(m)
	}
	paths, err := m.Write(t.TempDir())
	require.NoError(t, err)
	return paths
}

// closing closes a runner at the end of the test.
func closing(t *testing.T, r interface{ Close() error }) {
	t.Cleanup(func() { require.NoError(t, r.Close()) })
}

// TestAffine runs the embedded model, synchronously, through the queue, and
// over flat slices.
func TestAffine(t *testing.T) {
	r, err := affine.Open(ctx)
	require.NoError(t, err)
	closing(t, r)
	in, out := affine.NewInputs(), affine.NewOutputs()
	in.X.Data = [2][3]float32{{1, 0, 0}, {0, 1, 1}}
	want := [2][2]float32{{1.5, 1.5}, {8.5, 9.5}}
	require.NoError(t, r.Run(ctx, in, out))
	require.Empty(t, cmp.Diff(want, out.Y.Data))

	flat := []float32{2, 0, 0, 0, 0, 0}
	in.X, err = affine.XFrom(flat)
	require.NoError(t, err)
	ticket, err := r.Submit(ctx, in, out)
	require.NoError(t, err)
	require.NoError(t, ticket.Wait(ctx))
	require.Empty(t, cmp.Diff([]float32{2.5, 3.5, 0.5, -0.5}, out.Y.Flat()))
	flat[0] = 1
	require.NoError(t, r.Run(ctx, in, out))
	require.Equal(t, float32(1.5), out.Y.Data[0][0], "a flat slice is viewed, not copied")

	_, err = affine.XFrom(flat[1:])
	require.ErrorIs(t, err, rt.ErrLength)
	require.ErrorContains(t, err, `"x"`)
}

func TestNilMemory(t *testing.T) {
	r, err := affine.Open(ctx)
	require.NoError(t, err)
	closing(t, r)
	in, out := affine.NewInputs(), affine.NewOutputs()
	for _, c := range []struct {
		in    *affine.Inputs
		out   *affine.Outputs
		names string
	}{
		{nil, out, "Inputs is nil"},
		{&affine.Inputs{}, out, `Inputs.X is nil: anchor "x"`},
		{in, nil, "Outputs is nil"},
		{in, &affine.Outputs{}, `Outputs.Y is nil: anchor "y"`},
	} {
		err := r.Run(ctx, c.in, c.out)
		require.ErrorIs(t, err, rt.ErrNilAnchor)
		require.ErrorContains(t, err, c.names)
		_, err = r.Submit(ctx, c.in, c.out)
		require.ErrorIs(t, err, rt.ErrNilAnchor)
		require.ErrorContains(t, err, c.names)
	}
	require.NoError(t, r.Run(ctx, in, out))
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Run(ctx, in, out), rt.ErrClosed)
}

// TestOtherWeights opens models of the same contract in place of the embedded
// one, and one of another contract.
func TestOtherWeights(t *testing.T) {
	paths := write(t, "affine", func(m *golden.Model) {
		m.Anchors[3].Data.Elements = []float64{100, 200}
		m.Executable.Name = "retrained"
		m.Programs[5] = "Renamed"
	})
	r, err := affine.Open(ctx, rt.WithModelFile(paths...))
	require.NoError(t, err)
	closing(t, r)
	in, out := affine.NewInputs(), affine.NewOutputs()
	require.NoError(t, r.Run(ctx, in, out))
	require.Equal(t, [2][2]float32{{100, 200}, {100, 200}}, out.Y.Data)

	paths = write(t, "affine", func(m *golden.Model) { m.Anchors[0].Shape[0], m.Anchors[1].Shape[0] = 7, 7 })
	_, err = affine.Open(ctx, rt.WithModelFile(paths...))
	require.ErrorIs(t, err, rt.ErrContract)
	var mismatch *rt.ContractError
	require.True(t, errors.As(err, &mismatch))
	require.Equal(t, affine.ContractHash, mismatch.Want)
	require.ErrorContains(t, err, `"x": shape was [2 3], is [7 3]`)
}

// TestIterations runs a model that keeps a sum over its device iterations and
// over runs, and saves it.
func TestIterations(t *testing.T) {
	require.Equal(t, 4, iterations.DeviceIterations)
	require.Equal(t, 2, iterations.QueueDepth)
	r, err := iterations.Open(ctx, write(t, "iterations", nil)[0])
	require.NoError(t, err)
	closing(t, r)
	in, out := iterations.NewInputs(), iterations.NewOutputs()
	for i := range in.X {
		in.X[i].Data = [2]float32{1, -10}
	}
	want := [4]iterations.Y{{Data: [2]float32{1, 90}}, {Data: [2]float32{2, 80}}, {Data: [2]float32{3, 70}}, {Data: [2]float32{4, 60}}}
	require.NoError(t, r.Run(ctx, in, out))
	require.Empty(t, cmp.Diff(want, *out.Y))

	var tickets []rt.Ticket
	outs := []*iterations.Outputs{iterations.NewOutputs(), iterations.NewOutputs()}
	for _, o := range outs {
		ticket, err := r.Submit(ctx, in, o)
		require.NoError(t, err)
		tickets = append(tickets, ticket)
	}
	for _, ticket := range tickets {
		require.NoError(t, ticket.Wait(ctx))
	}
	require.Equal(t, [2]float32{5, 50}, outs[0].Y[0].Data)
	require.Equal(t, [2]float32{12, 20}, outs[1].Y[3].Data)

	require.ErrorIs(t, r.Save(ctx, &iterations.SaveOutputs{}), rt.ErrNilAnchor)
	saved := iterations.NewSaveOutputs()
	require.NoError(t, r.Save(ctx, saved))
	require.Equal(t, [2]float32{12, -20}, saved.Sum.Data)
}

// TestFinal runs a step of training: of four batches it returns y for each and the total for the last. What the step
// changed is saved, and queues, which give all inputs and outputs as many transfers, refuse the model.
func TestFinal(t *testing.T) {
	r, err := final.Open(ctx, write(t, "final", nil)[0])
	require.NoError(t, err)
	closing(t, r)
	in, out, saved := final.NewInputs(), final.NewOutputs(), final.NewSaveOutputs()
	for i := range in.X {
		in.X[i].Data = [2]float32{float32(i + 1), -10}
	}
	for step := range 2 {
		require.NoError(t, r.Run(ctx, in, out))
		want := [4]final.Y{{Data: [2]float32{1002, 1970}}, {Data: [2]float32{1004, 1970}}, {Data: [2]float32{1006, 1970}}, {Data: [2]float32{1008, 1970}}}
		require.Empty(t, cmp.Diff(want, *out.Y))
		total := float32(10 * (step + 1))
		require.Equal(t, [2]float32{total, 4 * total}, out.Total.Data)
	}
	require.NoError(t, r.Save(ctx, saved))
	require.Equal(t, [2]float32{20, -80}, saved.AcclW.Data)
	_, err = modelrt.NewQueueManager(ctx, r.Session(), modelrt.QueueConfig{})
	require.ErrorIs(t, err, rt.ErrOption)
	require.ErrorContains(t, err, "connect a stream or a Buffer to each instead")

	// A model that returns the total of every batch is another one for this code.
	_, err = final.Open(ctx, write(t, "final", func(m *golden.Model) { m.Final = nil })[0])
	require.ErrorIs(t, err, rt.ErrContract)
	require.ErrorContains(t, err, `run output "total": transfers was 1, is 4`)
}

// TestLoadInputs gives a weight at Open, lets two main programs run on it,
// saves it, and opens the model again with what was saved.
func TestLoadInputs(t *testing.T) {
	path := write(t, "load_inputs", nil)[0]
	load := loadinputs.NewLoadInputs()
	load.W.Data = [3]float32{1, 2, 3}
	r, err := loadinputs.Open(ctx, load, path)
	require.NoError(t, err)
	closing(t, r)
	in, out := loadinputs.NewInputs(), loadinputs.NewOutputs()
	in.X.Data = [3]float32{10, 20, 30}
	in.Factor.Data = 2
	require.NoError(t, r.Run(ctx, in, out))
	require.Equal(t, [3]float32{22, 44, 66}, out.Y.Data)
	saved := loadinputs.NewSaveOutputs()
	require.NoError(t, r.Save(ctx, saved))
	require.Equal(t, [3]float32{11, 22, 33}, saved.W.Data)

	again := loadinputs.NewLoadInputs()
	again.W = saved.W
	r2, err := loadinputs.Open(ctx, again, path)
	require.NoError(t, err)
	closing(t, r2)
	require.NoError(t, r2.Run(ctx, in, out))
	require.Equal(t, [3]float32{42, 84, 126}, out.Y.Data)

	for names, bad := range map[string]*loadinputs.LoadInputs{
		"LoadInputs is nil":               nil,
		`LoadInputs.W is nil: anchor "w"`: {RandomSeedFromHost: load.RandomSeedFromHost},
		`LoadInputs.RandomSeedFromHost is nil: anchor "randomSeed___from`: {W: load.W},
	} {
		_, err := loadinputs.Open(ctx, bad, path)
		require.ErrorIs(t, err, rt.ErrNilAnchor)
		require.ErrorContains(t, err, names)
	}
}

// TestEmpty runs a model that moves nothing.
func TestEmpty(t *testing.T) {
	r, err := empty.Open(ctx, write(t, "empty", nil)[0])
	require.NoError(t, err)
	closing(t, r)
	require.NoError(t, r.Run(ctx, empty.NewInputs(), empty.NewOutputs()))
	require.Error(t, r.Run(ctx, nil, nil))
}

// TestRefused opens models that this machine can't run, or that aren't there.
func TestRefused(t *testing.T) {
	_, err := linear.Open(ctx, write(t, "popart_linear", nil)[0])
	require.ErrorIs(t, err, ipu.ErrWrongBackend)
	_, err = training.Open(ctx, "", rt.WithModelFile(write(t, "popart_training", nil)...))
	require.ErrorIs(t, err, rt.ErrReplication)
	_, err = linear.Open(ctx, filepath.Join(t.TempDir(), "nothing.popef"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = linear.Open(ctx, write(t, "affine", nil)[0])
	require.ErrorIs(t, err, rt.ErrContract)
}

// TestAllocations runs requests of packages whose own tests look for the
// model in a file.
func TestAllocations(t *testing.T) {
	r, err := iterations.Open(ctx, write(t, "iterations", nil)[0])
	require.NoError(t, err)
	closing(t, r)
	in, out := iterations.NewInputs(), iterations.NewOutputs()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := r.Run(ctx, in, out); err != nil {
			t.Fatal(err)
		}
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ticket, err := r.Submit(ctx, in, out)
		if err == nil {
			err = ticket.Wait(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}))
}
