package rt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

func TestMain(m *testing.M) {
	start()
	goleak.VerifyTestMain(m)
}

// open opens the model and closes it with the test.
func (v variant) open(t testing.TB, opts ...rt.RunnerOption) *Runner {
	t.Helper()
	opts = append([]rt.RunnerOption{rt.WithBackend(v.backend)}, opts...)
	r, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: &B{[2]float32{10, 20}}},
		genrt.Source{Name: "affine.popef", Bytes: v.model}, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// fill makes an input of which the result is known.
func fill(in *Inputs, seed float32) {
	in.X[0].Data = [2]float32{seed, seed + 1}
	in.X[1].Data = [2]float32{seed + 2, seed + 3}
}

// want is the result for fill(seed).
func want(seed float32) *[2]Y {
	f := func(a, b float32) Y { return Y{[2]float32{2*a + 10, 3*b + 20}} }
	return &[2]Y{f(seed, seed+1), f(seed+2, seed+3)}
}

func TestRunner(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			r := v.open(t)
			in, out := NewInputs(), NewOutputs()
			for _, seed := range []float32{0, 1, -4} {
				fill(in, seed)
				require.NoError(t, r.Run(ctx, in, out))
				require.Equal(t, want(seed), out.Y)
			}
			var w W
			require.NoError(t, r.Save(ctx, &SaveOutputs{W: &w}))
			require.Equal(t, [2]float32{2, 3}, w.Data)
			require.NoError(t, r.Run(ctx, in, out), "run after save")

			stats := r.Session().Stats()
			require.EqualValues(t, 4, stats.Requests)
			require.Zero(t, stats.Errors)
			require.Zero(t, stats.Request.Count, "not timed")
			require.EqualValues(t, 8, stats.DataBytes)
			require.Positive(t, stats.ExecutableBytes)
		})
	}
}

func TestSubmit(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			r := v.open(t, rt.Timed())
			var ins [QueueDepth]*Inputs
			var outs [QueueDepth]*Outputs
			var tickets [QueueDepth]rt.Ticket
			for i := range tickets {
				ins[i], outs[i] = NewInputs(), NewOutputs()
			}
			for round := range 3 {
				for i := range tickets {
					var err error
					fill(ins[i], float32(10*round+i))
					tickets[i], err = r.Submit(ctx, ins[i], outs[i])
					require.NoError(t, err)
				}
				for i, ticket := range tickets {
					require.NoError(t, ticket.Wait(ctx))
					require.True(t, isDone(ticket))
					require.Equal(t, want(float32(10*round+i)), outs[i].Y)
					require.ErrorIs(t, ticket.Wait(ctx), rt.ErrTicketUsed)
				}
			}
			// A used ticket does not take the next request of its slot for its own.
			next, err := r.Submit(ctx, ins[0], outs[0])
			require.NoError(t, err)
			for _, old := range tickets {
				require.ErrorIs(t, old.Wait(ctx), rt.ErrTicketUsed)
				require.True(t, isDone(old))
			}
			require.NoError(t, next.Wait(ctx))

			stats := r.Session().Stats()
			require.EqualValues(t, 3*QueueDepth+1, stats.Requests)
			require.Equal(t, stats.Requests, stats.Request.Count)
			require.Positive(t, stats.Request.Min)
			require.GreaterOrEqual(t, stats.Request.Max, stats.Request.Mean)
		})
	}
}

func TestZeroTicket(t *testing.T) {
	var ticket rt.Ticket
	require.ErrorIs(t, ticket.Wait(context.Background()), rt.ErrTicketUsed)
	require.True(t, isDone(ticket))
}

func TestNilAnchors(t *testing.T) {
	ctx := context.Background()
	v := variants(t)[0]
	r := v.open(t)
	in, out := NewInputs(), NewOutputs()
	for _, c := range []struct {
		in   *Inputs
		out  *Outputs
		want string
	}{
		{nil, out, "Inputs is nil: NewInputs allocates one"},
		{&Inputs{}, out, `Inputs.X is nil: anchor "x" needs memory`},
		{in, nil, "Outputs is nil: NewOutputs allocates one"},
		{in, &Outputs{}, `Outputs.Y is nil: anchor "y" needs memory`},
	} {
		for _, err := range []error{
			r.Run(ctx, c.in, c.out),
			func() error { _, err := r.Submit(ctx, c.in, c.out); return err }(),
		} {
			require.ErrorIs(t, err, rt.ErrNilAnchor)
			require.EqualError(t, err, "affine.popef: "+c.want)
		}
	}
	require.EqualError(t, r.Save(ctx, nil), "affine.popef: SaveOutputs is nil: NewSaveOutputs allocates one")
	require.EqualError(t, new(Runner).Run(ctx, nil, nil), "runner: Inputs is nil: NewInputs allocates one")
	_, err := Open(ctx, affineSpec(t), &LoadInputs{}, genrt.Source{})
	require.ErrorIs(t, err, rt.ErrNilAnchor)
	require.EqualError(t, err, `package affine: LoadInputs.B is nil: anchor "b" needs memory`)

	// Streams that nothing was bound to say so too.
	err = r.Session().Run(ctx)
	require.ErrorIs(t, err, rt.ErrNilAnchor)
	require.Contains(t, err.Error(), `anchor "x" needs memory`)
	require.EqualValues(t, 1, r.Session().Stats().Errors)
}

func TestFlatAndFrom(t *testing.T) {
	flat := []float32{1, 2}
	x, err := XFrom(flat)
	require.NoError(t, err)
	x.Data[1] = 5
	require.Equal(t, []float32{1, 5}, flat, "a view, not a copy")
	require.Equal(t, flat, x.Flat())
	x.Flat()[0] = 7
	require.Equal(t, [2]float32{7, 5}, x.Data)

	for _, n := range []int{0, 1, 3} {
		_, err = XFrom(make([]float32, n))
		require.ErrorIs(t, err, rt.ErrLength)
	}
	require.EqualError(t, err, `anchor "x": wrong number of elements: 3, the tensor has 2`)

	type empty struct{ Data [0][4]rt.Float16 }
	e, err := genrt.From[empty]("e", []rt.Float16{})
	require.NoError(t, err)
	require.NotNil(t, e)
	require.Empty(t, genrt.Flat[rt.Float16](e))

	type scalar struct{ Data int64 }
	s, err := genrt.From[scalar]("s", []int64{-3})
	require.NoError(t, err)
	require.EqualValues(t, -3, s.Data)
	require.Equal(t, []int64{-3}, genrt.Flat[int64](s))

	type odd struct{ Data [3]uint8 }
	require.Panics(t, func() { genrt.Flat[uint16](&odd{}) })
	require.Zero(t, testing.AllocsPerRun(10, func() { x, _ = XFrom(flat) }))
}

func TestContractMismatch(t *testing.T) {
	meta := affineMetadata()
	meta.Anchors[1].Info = popef.TensorInfo{DataType: popef.F16, Shape: []int64{4, 2}}
	meta.Anchors[4].Name = "bias"
	meta.Anchors = append(meta.Anchors, popef.Anchor{Name: "extra", Handle: "h2d_extra", Type: popef.Input, Info: tensorInfo(), Programs: []uint32{5}})
	path := filepath.Join(t.TempDir(), "other.popef")
	// The contract is compared before anything else: nothing can run this.
	require.NoError(t, os.WriteFile(path, file(t, meta, []byte("GC_EXE_3"), affineData), 0o666))
	_, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{}, rt.WithModelFile(path))
	require.ErrorIs(t, err, rt.ErrContract)
	var mismatch *rt.ContractError
	require.ErrorAs(t, err, &mismatch)
	require.Len(t, mismatch.Findings, 4)
	golden, readErr := os.ReadFile("testdata/contract_error.txt")
	require.NoError(t, readErr)
	if diff := cmp.Diff(string(golden), err.Error()+"\n"); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	many := affineMetadata()
	for i := range 25 {
		many.Anchors = append(many.Anchors, popef.Anchor{Name: "n" + strings.Repeat("i", i), Type: popef.Input, Info: tensorInfo()})
	}
	_, err = Open(context.Background(), affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{}, rt.WithModelBytes(file(t, many, []byte("x"), affineData)))
	require.ErrorIs(t, err, rt.ErrContract)
	require.Contains(t, err.Error(), "\n  and 5 more differences\n")
}

// TestContractMismatchOfSamples gives outputs of a package with RunSamples, and
// of one without, another order: only whoever has slices in that order to give
// must change something.
func TestContractMismatchOfSamples(t *testing.T) {
	meta := affineMetadata()
	meta.Anchors = slices.Insert(meta.Anchors, 1, popef.Anchor{Name: "z", Handle: "d2h_z", Type: popef.Output, Info: tensorInfo(2), Programs: []uint32{mainProgram}})
	before, err := popef.LoadBytes("affine.popef", file(t, meta, []byte("x"), affineData))
	require.NoError(t, err)
	spec := affineSpec(t)
	spec.Contract = contract.Of(before).Callers().Text()
	spec.Anchors = append(spec.Anchors, genrt.AnchorSpec{Name: "z", Handle: "d2h_z", GoName: "Z", Role: genrt.RunOutput, Bytes: 8, Blocks: 1})
	meta.Anchors = slices.Clone(meta.Anchors)
	meta.Anchors[1], meta.Anchors[3] = meta.Anchors[3], meta.Anchors[1]
	meta.DeviceIterations = 3 // or else Open would go on
	after := genrt.Source{Bytes: file(t, meta, []byte("x"), affineData)}
	for batch, want := range map[int]contract.Verdict{2: contract.Breaking, 0: contract.Compatible} {
		spec.Batch = batch
		_, err = Open(context.Background(), spec, &LoadInputs{B: new(B)}, after)
		var mismatch *rt.ContractError
		require.ErrorAs(t, err, &mismatch)
		at := slices.IndexFunc(mismatch.Findings, func(f contract.Finding) bool { return f.Kind == contract.KindOrder })
		require.GreaterOrEqual(t, at, 0, "%v", err)
		require.Equal(t, want, mismatch.Findings[at].Verdict)
		require.True(t, mismatch.Findings[at].Opens)
	}
}

func TestOpenErrors(t *testing.T) {
	ctx := context.Background()
	good := file(t, affineMetadata(), affinePortable(t), affineData)
	poplar := file(t, affineMetadata(), []byte("GC_EXE_3 and more"), affineData)
	notThere := filepath.Join(t.TempDir(), "none.popef")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	change := func(f func(*genrt.Spec)) *genrt.Spec {
		s := affineSpec(t)
		f(s)
		return s
	}
	for _, c := range []struct {
		name  string
		ctx   context.Context
		spec  *genrt.Spec
		bytes []byte
		opts  []rt.RunnerOption
		is    error
		text  string
	}{
		{"no file", ctx, nil, nil, []rt.RunnerOption{rt.WithModelFile(notThere)}, os.ErrNotExist, "none.popef"},
		{"damaged", ctx, nil, good[:100], nil, nil, "affine: open: affine.popef"},
		{"Poplar's executable", ctx, nil, poplar, nil, ipu.ErrWrongBackend, "affine.popef: open: "},
		{"unknown back end", ctx, nil, good, []rt.RunnerOption{rt.WithBackend("tpu")}, ipu.ErrUnknownBackend, `"tpu"`},
		{"device of another back end", ctx, nil, good, []rt.RunnerOption{rt.WithBackend("cpu"), rt.WithDevice(fakeDevices[2])}, rt.ErrOption, "of \"rt-fake\""},
		{"nil device", ctx, nil, good, []rt.RunnerOption{rt.WithDevice(nil)}, rt.ErrOption, "WithDevice"},
		{"no threads", ctx, nil, good, []rt.RunnerOption{rt.WithThreads(0)}, rt.ErrOption, "0 threads"},
		{"no file name", ctx, nil, good, []rt.RunnerOption{rt.WithModelFile()}, rt.ErrOption, "WithModelFile"},
		{"no bytes", ctx, nil, good, []rt.RunnerOption{rt.WithModelBytes(nil)}, rt.ErrOption, "WithModelBytes"},
		{"unknown engine option", ctx, nil, good, []rt.RunnerOption{rt.WithEngineOption("speed", "9")}, ipu.ErrInvalidOption, "speed"},
		{"context ended", ended, nil, good, nil, context.Canceled, "open: "},
		{"edited contract", ctx, change(func(s *genrt.Spec) { s.Contract = "other" }), good, nil, rt.ErrGenerated, "line 1"},
		{"edited iterations", ctx, change(func(s *genrt.Spec) { s.Iterations = 3 }), good, nil, rt.ErrGenerated, "3 iterations"},
		{"no queue", ctx, change(func(s *genrt.Spec) { s.QueueDepth = 0 }), good, nil, rt.ErrGenerated, "queue depth 0"},
		{"edited size", ctx, change(func(s *genrt.Spec) { s.Anchors[1].Bytes = 4 }), good, nil, rt.ErrGenerated, "X is 16 bytes and 4 a transfer"},
		{"edited role", ctx, change(func(s *genrt.Spec) { s.Anchors[1].Role = genrt.SaveOutput }), good, nil, rt.ErrGenerated, `its contract has no save output "x"`},
		{"unbound anchor", ctx, change(func(s *genrt.Spec) { s.Anchors = s.Anchors[:3] }), good, nil, rt.ErrGenerated, "anchor 3 is bound to"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.spec == nil {
				c.spec = affineSpec(t)
			}
			r, err := Open(c.ctx, c.spec, &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: c.bytes}, c.opts...)
			require.Nil(t, r)
			require.Error(t, err)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			require.Contains(t, err.Error(), c.text)
		})
	}
}

func TestFailedOpenReleasesEverything(t *testing.T) {
	for name, change := range map[string]func(*script){
		"engine": func(s *script) { s.failMake = errors.New("no engine") },
		"load":   func(s *script) { s.failLoad = errors.New("no load") },
		"program": func(s *script) {
			s.programs[loadProgram] = func(context.Context, *engine) error { return errors.New("no run") }
		},
		"stream": func(s *script) { s.streams = s.streams[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			s := affineScript()
			change(s)
			exe := register(t, s)
			_, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: new(B)},
				genrt.Source{Name: "affine.popef", Bytes: file(t, affineMetadata(), exe, affineData)}, rt.WithBackend(fakeName))
			require.Error(t, err)
			require.Zero(t, fakeDevices[2].attached.Load())
			if s.engine != nil {
				require.True(t, s.engine.closed)
			}
		})
	}
}

func TestZeroRunner(t *testing.T) {
	var r Runner
	ctx := context.Background()
	require.ErrorIs(t, r.Run(ctx, NewInputs(), NewOutputs()), rt.ErrClosed)
	require.ErrorIs(t, r.Save(ctx, &SaveOutputs{W: new(W)}), rt.ErrClosed)
	_, err := r.Submit(ctx, NewInputs(), NewOutputs())
	require.ErrorIs(t, err, rt.ErrClosed)
	require.NoError(t, r.Close())
	require.Nil(t, r.Session())
}

// TestMemoryIsDropped checks that neither runner nor queue keeps the caller's
// memory alive after a request.
func TestMemoryIsDropped(t *testing.T) {
	ctx := context.Background()
	v := variants(t)[1] // the engine itself keeps nothing either
	r := v.open(t)
	freed := make(chan struct{}, 4)
	for _, submit := range []bool{false, true} {
		func() {
			in, out := NewInputs(), NewOutputs()
			runtime.AddCleanup(in.X, func(struct{}) { freed <- struct{}{} }, struct{}{})
			runtime.AddCleanup(out.Y, func(struct{}) { freed <- struct{}{} }, struct{}{})
			if submit {
				ticket, err := r.Submit(ctx, in, out)
				require.NoError(t, err)
				require.NoError(t, ticket.Wait(ctx))
			} else {
				require.NoError(t, r.Run(ctx, in, out))
			}
		}()
	}
	for i := range 4 {
		runtime.GC()
		select {
		case <-freed:
		case <-time.After(5 * time.Second):
			t.Fatalf("%d of 4 blocks were freed", i)
		}
	}
	runtime.KeepAlive(r)
}

func TestTooManyTransfers(t *testing.T) {
	s := affineScript()
	main := s.programs[mainProgram]
	s.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		if err := main(ctx, e); err != nil {
			return err
		}
		return main(ctx, e)
	}
	exe := register(t, s)
	v := variant{"", fakeName, file(t, affineMetadata(), exe, affineData), s}
	for _, fetching := range []bool{false, true} {
		s.fetching = fetching
		r := v.open(t)
		err := r.Run(context.Background(), NewInputs(), NewOutputs())
		require.ErrorIs(t, err, rt.ErrEndOfData)
		require.Contains(t, err.Error(), `anchor "x"`)
		require.Contains(t, err.Error(), "transfer 3 of 2")
	}
}
