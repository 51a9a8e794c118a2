package cpu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/weights"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
	"github.com/popefgen/popefgen/ipu/graph"
)

// sharedSize is the width of the products of sharedModel.
const sharedSize = 32

// sharedRows is how many rows, all the same, x and y have.
const sharedRows = 4

// sharedModel is a model with all that engines have in common or not: a packed
// constant k, a packed weight w, a weight shift that is used as it is, a
// packed product of w with itself, a computed scale that is used as it is, and
// a count that the main program changes.
//
//	y = (((x·k)·w)·(w∘w)) ∘ 2·shift + shift + count, count += step
func sharedModel(t require.TestingT) []byte {
	const n = sharedSize
	b := graph.NewBuilder("shared")
	x, k := b.AddLocal("x", f32(sharedRows, n)), make([]float32, n*n)
	for i := range n {
		k[i*n+i], k[i*n+(i+1)%n] = 1, 0.5
	}
	w, shift := b.AddPersistent("w", f32(n, n)), b.AddPersistent("shift", f32(n))
	squared, scale := b.AddPersistent("squared", f32(n, n)), b.AddPersistent("scale", f32(n))
	step, count := b.AddPersistent("step", f32(n)), b.AddPersistent("count", f32(n))
	prepare := b.BeginGraph("prepare")
	require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Mul}, "square", []graph.TensorID{squared}, w, w))
	require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Add}, "double", []graph.TensorID{scale}, shift, shift))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.MatMul{}, "constant", x, b.AddConst("k", f32(n, n), bytesOf(k)))
	y = node(t, b, &graph.MatMul{}, "weight", y, w)
	y = node(t, b, &graph.MatMul{}, "computed", y, squared)
	y = node(t, b, &graph.Binary{Fn: graph.Mul}, "scaled", y, scale)
	y = node(t, b, &graph.Binary{Fn: graph.Add}, "shifted", y, shift)
	y = node(t, b, &graph.Binary{Fn: graph.Add}, "counted", y, count)
	require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Add}, "count", []graph.TensorID{count}, count, step))
	b.AddProgram(0, "load", b.CopyIn("w", w), b.CopyIn("shift", shift), b.CopyIn("step", step), b.CopyIn("start", count), b.Call(prepare))
	b.AddProgram(1, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	return executable(t, b)
}

// lent is a constant stream that engines may have in common, as replicas have
// the tensors of a file.
type lent struct {
	memory    []byte
	completed func() // after every transfer; may be nil
}

func (s *lent) Constant() []byte                            { return s.memory }
func (s *lent) Memory(ctx context.Context) ([]byte, error)  { return s.memory, nil }
func (s *lent) Fetch(ctx context.Context, buf []byte) error { copy(buf, s.memory); return nil }
func (s *lent) Prefetch([]byte) bool                        { return false }
func (s *lent) Complete() {
	if s.completed != nil {
		s.completed()
	}
}
func (s *lent) InvalidatePrefetched() {}

// sharedWeights are the weights of sharedModel.
type sharedWeights struct{ w, shift, step, start []float32 }

func newWeights(seed uint64) *sharedWeights {
	r := rand.New(rand.NewPCG(seed, 1))
	draw := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.IntN(9)-4) / 4
		}
		return v
	}
	const n = sharedSize
	return &sharedWeights{draw(n * n), draw(n), draw(n), draw(n)}
}

func (s *sharedWeights) connect(t require.TestingT, e *Engine) {
	connect(t, e, map[string]ipu.Stream{"w": &lent{memory: bytesOf(s.w)}, "shift": &lent{memory: bytesOf(s.shift)},
		"step": &lent{memory: bytesOf(s.step)}, "start": &lent{memory: bytesOf(s.start)}})
}

// want is what run number i, from 0, after a load gives for an x of ones.
func (s *sharedWeights) want(i int) []float32 {
	const n = sharedSize
	product := func(x []float32, w func(k, c int) float32) []float32 {
		y := make([]float32, n)
		for c := range y {
			for k := range x {
				y[c] += x[k] * w(k, c)
			}
		}
		return y
	}
	x := make([]float32, n)
	for c := range x {
		x[c] = 1.5
	}
	x = product(x, func(k, c int) float32 { return s.w[k*n+c] })
	x = product(x, func(k, c int) float32 { return s.w[k*n+c] * s.w[k*n+c] })
	for c := range x {
		x[c] = x[c]*2*s.shift[c] + s.shift[c] + s.start[c] + float32(i)*s.step[c]
	}
	return slices.Repeat(x, sharedRows)
}

// sharer is one engine of sharedModel, with the memory of its runs.
type sharer struct {
	*Engine
	y []float32
}

func newSharer(t require.TestingT, exe []byte, options ...ipu.Option) *sharer {
	return openSharer(t, ipu.EngineConfig{Name: "shared", Executable: exe, Options: options})
}

func openSharer(t require.TestingT, c ipu.EngineConfig) *sharer {
	e, err := New(c)
	require.NoError(t, err)
	load(t, e)
	s := &sharer{e, make([]float32, sharedRows*sharedSize)}
	connect(t, e, map[string]ipu.Stream{"x": in(t, slices.Repeat([]float32{1}, sharedRows*sharedSize)), "y": out(t, s.y)})
	return s
}

// gives runs the main program as run number i after a load.
func (s *sharer) gives(t require.TestingT, w *sharedWeights, i int) {
	run(t, s.Engine, 1)
	require.Equal(t, w.want(i), s.y)
}

// unused checks that nothing is left of engines of exe.
func unused(t require.TestingT, exe []byte) {
	require.Zero(t, weights.Engines(exe))
}

func TestEnginesShareWeights(t *testing.T) {
	for name, options := range variants {
		t.Run(name, func(t *testing.T) {
			exe, w := sharedModel(t), newWeights(1)
			var all []*sharer
			for i := range 4 {
				e := newSharer(t, exe, options...)
				w.connect(t, e.Engine)
				run(t, e.Engine, 0)
				all = append(all, e)
				s := e.Sharing()
				require.Equal(t, i+1, s.Engines)
				require.Equal(t, e.Plan().PackedBytes, s.PackedBytes)
				if i > 0 {
					require.Equal(t, s.PackedBytes, s.SharedBytes, "everything that is packed is shared")
				}
				require.Equal(t, all[0].plan, e.plan)
				if i > 0 {
					require.Same(t, all[0].lease.Version(0), e.lease.Version(0))
				}
			}
			for i := range 3 {
				for _, e := range all {
					e.gives(t, w, i)
				}
			}
			for i, k := range []int{1, 0, 1, 0} { // in any order
				require.NoError(t, all[k].Close())
				require.NoError(t, all[k].Close())
				all = slices.Delete(all, k, k+1)
				for _, e := range all {
					e.gives(t, w, 3+i)
				}
			}
			unused(t, exe)
		})
	}
}

// TestSharedWeightsAreUpdated replaces the weights of one engine, then of all:
// each computes with its own until its load program has run again.
func TestSharedWeightsAreUpdated(t *testing.T) {
	exe, old, other := sharedModel(t), newWeights(1), newWeights(2)
	all := make([]*sharer, 3)
	for i := range all {
		all[i] = newSharer(t, exe)
		defer all[i].Close() //nolint:errcheck // closed below
		old.connect(t, all[i].Engine)
		run(t, all[i].Engine, 0)
		all[i].gives(t, old, 0)
	}
	version := func(i int) *weights.Version { return all[i].lease.Version(0) }
	first := version(0)
	other.connect(t, all[1].Engine)
	all[1].gives(t, old, 1) // connecting changes nothing yet
	run(t, all[1].Engine, 0)
	require.NotSame(t, first, version(1))
	all[1].gives(t, other, 0)
	require.Less(t, all[1].Sharing().SharedBytes, all[1].Sharing().PackedBytes, "only constants are shared")
	all[0].gives(t, old, 1)
	all[2].gives(t, old, 1)

	for _, i := range []int{0, 2} {
		other.connect(t, all[i].Engine)
		run(t, all[i].Engine, 0)
		all[i].gives(t, other, 0)
		require.Same(t, version(1), version(i))
	}
	require.Zero(t, all[1].lease.Users(first), "nobody holds the old values")
	all[1].gives(t, other, 1)

	// One goes back, alone.
	old.connect(t, all[2].Engine)
	run(t, all[2].Engine, 0)
	all[2].gives(t, old, 0)
	all[0].gives(t, other, 1)

	// The last holder of values writes new ones over them.
	require.NoError(t, all[0].Close())
	require.NoError(t, all[1].Close())
	alone := version(2)
	other.connect(t, all[2].Engine)
	run(t, all[2].Engine, 0)
	all[2].gives(t, other, 0)
	require.Same(t, alone, version(2))
	require.NoError(t, all[2].Close())
	unused(t, exe)
}

// TestSharedWeightsAreForgotten loads engines again: persistent tensors are
// zero until a program sets them, and others keep theirs.
func TestSharedWeightsAreForgotten(t *testing.T) {
	exe, w := sharedModel(t), newWeights(1)
	a, b := newSharer(t, exe), newSharer(t, exe)
	for _, e := range []*sharer{a, b} {
		defer e.Close() //nolint:errcheck // nothing depends on it
		w.connect(t, e.Engine)
		run(t, e.Engine, 0)
	}
	load(t, a.Engine)
	run(t, a.Engine, 1)
	require.Equal(t, make([]float32, sharedRows*sharedSize), a.y)
	b.gives(t, w, 0)
	run(t, a.Engine, 0)
	a.gives(t, w, 0)
	require.Same(t, b.lease.Version(0), a.lease.Version(0))

	load(t, a.Engine)
	run(t, a.Engine, 0)
	a.gives(t, w, 0)
	require.Same(t, b.lease.Version(0), a.lease.Version(0))
	b.gives(t, w, 1)
}

// TestWeightsRunAgain changes the memory of weights in place, which is against
// the rules while they are connected, and runs the load programs again: the
// values are new.
func TestWeightsRunAgain(t *testing.T) {
	exe, w := sharedModel(t), newWeights(1)
	a, b := newSharer(t, exe), newSharer(t, exe)
	for _, e := range []*sharer{a, b} {
		defer e.Close() //nolint:errcheck // nothing depends on it
		w.connect(t, e.Engine)
		run(t, e.Engine, 0)
	}
	copy(w.w, newWeights(2).w)
	for _, e := range []*sharer{a, b} {
		run(t, e.Engine, 0)
		e.gives(t, w, 0)
	}
	require.Same(t, b.lease.Version(0), a.lease.Version(0))
}

// TestOnlyConstantWeightsAreShared feeds one weight by a stream that promises
// nothing.
func TestOnlyConstantWeightsAreShared(t *testing.T) {
	exe, w, other := sharedModel(t), newWeights(1), newWeights(2)
	a, b := newSharer(t, exe), newSharer(t, exe)
	for i, e := range []*sharer{a, b} {
		defer e.Close() //nolint:errcheck // nothing depends on it
		w.connect(t, e.Engine)
		require.NoError(t, e.Connect("w", in(t, [][]float32{w.w, other.w}[i])))
		run(t, e.Engine, 0)
	}
	a.gives(t, w, 0)
	mixed := *w
	mixed.w = other.w
	b.gives(t, &mixed, 0)
	s := a.Sharing()
	require.Less(t, s.SharedBytes, s.PackedBytes)
}

// TestOtherOptionsShareNothing opens one executable with other options, and
// another with the same bytes.
func TestOtherOptionsShareNothing(t *testing.T) {
	exe, w := sharedModel(t), newWeights(1)
	for _, e := range []*sharer{newSharer(t, exe), newSharer(t, exe, opt("prepack", "off")...), newSharer(t, append([]byte(nil), exe...))} {
		defer e.Close() //nolint:errcheck // nothing depends on it
		w.connect(t, e.Engine)
		run(t, e.Engine, 0)
		e.gives(t, w, 0)
		require.Equal(t, 1, e.Sharing().Engines)
		require.Zero(t, e.Sharing().SharedBytes)
	}
}

// TestForgottenEngines makes engines that nobody closes.
func TestForgottenEngines(t *testing.T) {
	exe, w := sharedModel(t), newWeights(1)
	for range 3 {
		e := newSharer(t, exe)
		w.connect(t, e.Engine)
		run(t, e.Engine, 0)
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return weights.Engines(exe) == 0
	}, 20*time.Second, time.Millisecond)
}

// TestLoadsAtTheSameTime opens, loads, runs, updates and closes engines of one
// executable from many goroutines.
func TestLoadsAtTheSameTime(t *testing.T) {
	exe := sharedModel(t)
	weights := []*sharedWeights{newWeights(1), newWeights(2), newWeights(3)}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for range 4 {
				e := newSharer(t, exe, opt("threads", "1")...)
				for range 6 {
					w := weights[r.IntN(len(weights))]
					w.connect(t, e.Engine)
					if r.IntN(4) == 0 {
						load(t, e.Engine)
					}
					run(t, e.Engine, 0)
					for k := range r.IntN(4) {
						e.gives(t, w, k)
					}
				}
				require.NoError(t, e.Close())
			}
		})
	}
	all.Wait()
	unused(t, exe)
}

// gated holds up the load program of one engine.
type gated struct {
	lent
	entered, leave chan struct{}
}

func newGated(memory []float32) *gated {
	g := &gated{lent: lent{memory: bytesOf(memory)}, entered: make(chan struct{}), leave: make(chan struct{})}
	var once sync.Once
	g.completed = func() {
		once.Do(func() {
			close(g.entered)
			<-g.leave
		})
	}
	return g
}

// waits lets a load program of one engine wait for that of another.
func waits(t *testing.T, e *Engine, ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, 0) }()
	require.Eventually(t, func() bool {
		return e.lease.Waiting(0) > 0
	}, 20*time.Second, 100*time.Microsecond)
	return done
}

// TestLoadWaitsForAnother lets one engine set the weights while others wait,
// one of which is stopped, and one of which gives up.
func TestLoadWaitsForAnother(t *testing.T) {
	exe, w := sharedModel(t), newWeights(1)
	a := newSharer(t, exe)
	defer a.Close() //nolint:errcheck // nothing depends on it
	w.connect(t, a.Engine)
	hold := newGated(w.w)
	require.NoError(t, a.Connect("w", hold))
	first := make(chan error, 1)
	go func() { first <- a.Run(context.Background(), 0) }()
	<-hold.entered

	b, stopped, late := newSharer(t, exe), newSharer(t, exe), newSharer(t, exe)
	for _, e := range []*sharer{b, stopped, late} {
		defer e.Close() //nolint:errcheck // nothing depends on it
		w.connect(t, e.Engine)
	}
	ctx, cancel := context.WithCancel(context.Background())
	waiting, stopping, giving := waits(t, b.Engine, context.Background()), waits(t, stopped.Engine, context.Background()), waits(t, late.Engine, ctx)
	for {
		if a.lease.Waiting(0) == 3 {
			break
		}
		runtime.Gosched()
	}
	require.NoError(t, stopped.Stop())
	require.ErrorIs(t, <-stopping, ipu.ErrStopped)
	cancel()
	require.ErrorIs(t, <-giving, context.Canceled)
	close(hold.leave)
	require.NoError(t, <-first)
	require.NoError(t, <-waiting)
	a.gives(t, w, 0)
	b.gives(t, w, 0)
	require.Equal(t, 2, a.lease.Users(a.lease.Version(0)))

	load(t, stopped.Engine)
	for _, e := range []*sharer{stopped, late} {
		run(t, e.Engine, 0)
		e.gives(t, w, 0)
		require.Same(t, a.lease.Version(0), e.lease.Version(0))
	}
}

// TestLoadFailsForAll lets the load program that others wait for fail: all give
// the same error, unless it had to do with who ran it. Afterwards it can be run
// again.
func TestLoadFailsForAll(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		spoil func(a *sharer, cancel func())
		all   bool // others fail too
	}{
		"panic":     {func(*sharer, func()) {}, true},
		"cancelled": {func(_ *sharer, cancel func()) { cancel() }, false},
		"stopped":   {func(a *sharer, _ func()) { require.NoError(t, a.Stop()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			exe, w := sharedModel(t), newWeights(1)
			a, b := newSharer(t, exe), newSharer(t, exe)
			for _, e := range []*sharer{a, b} {
				defer e.Close() //nolint:errcheck // nothing depends on it
				w.connect(t, e.Engine)
			}
			hold := newGated(w.w)
			inner := hold.completed
			hold.completed = func() {
				inner()
				if c.all {
					panic(broken)
				}
			}
			require.NoError(t, a.Connect("w", hold))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			first := make(chan error, 1)
			go func() { first <- a.Run(ctx, 0) }()
			<-hold.entered
			second := waits(t, b.Engine, context.Background())
			c.spoil(a, cancel)
			close(hold.leave)
			require.Error(t, <-first)
			if c.all {
				err := <-second
				require.ErrorIs(t, err, broken)
				require.ErrorContains(t, err, `stream "w"`)
			} else {
				require.NoError(t, <-second)
				b.gives(t, w, 0)
			}

			w.connect(t, a.Engine)
			for _, e := range []*sharer{b, a} {
				load(t, e.Engine)
				run(t, e.Engine, 0)
				e.gives(t, w, 0)
			}
			require.Same(t, a.lease.Version(0), b.lease.Version(0))
		})
	}
}

// TestLoadIsGivenUp ends the goroutine that sets the weights, as t.FailNow does in
// a callback.
func TestLoadIsGivenUp(t *testing.T) {
	exe, w := sharedModel(t), newWeights(1)
	a, b := newSharer(t, exe), newSharer(t, exe)
	for _, e := range []*sharer{a, b} {
		defer e.Close() //nolint:errcheck // nothing depends on it
		w.connect(t, e.Engine)
	}
	hold := newGated(w.w)
	inner := hold.completed
	hold.completed = func() {
		inner()
		runtime.Goexit()
	}
	require.NoError(t, a.Connect("w", hold))
	go a.Run(context.Background(), 0) //nolint:errcheck // it does not return
	<-hold.entered
	second := waits(t, b.Engine, context.Background())
	close(hold.leave)
	require.ErrorIs(t, <-second, ipu.ErrPanic, "that the goroutine was ended is an error of the load")
	run(t, b.Engine, 0)
	b.gives(t, w, 0)
}

// TestImageThatCannotBeMade makes engines of what can't be planned, at the same time:
// every one says why, and nothing is left.
func TestImageThatCannotBeMade(t *testing.T) {
	exe := sharedModel(t)
	exe[70] ^= 1
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() { _, errs[i] = New(ipu.EngineConfig{Name: "bad", Executable: exe}) })
	}
	all.Wait()
	for _, err := range errs {
		require.ErrorIs(t, err, graph.ErrInvalid)
		require.Equal(t, errs[0].Error(), err.Error())
	}
	unused(t, exe)
}

// TestConstantsAreTold checks that the engine which packs constants tells which
// parts of the executable it does not need any more.
func TestConstantsAreTold(t *testing.T) {
	exe, w := sharedModel(t), newWeights(1)
	aligned := align.Bytes(int64(len(exe)))
	copy(aligned, exe)
	var told atomic.Int64
	for i := range 2 {
		e := openSharer(t, ipu.EngineConfig{Name: fmt.Sprint(i), Executable: aligned, Unused: func(part []byte) {
			require.True(t, overlaps(aligned, part))
			clear(part) // it is not looked at again, or the result shows it
			told.Store(int64(len(part)))
		}})
		defer e.Close() //nolint:errcheck // nothing depends on it
		w.connect(t, e.Engine)
		run(t, e.Engine, 0)
		e.gives(t, w, 0)
	}
	require.EqualValues(t, 4*sharedSize*sharedSize, told.Load())
}

// TestManyWeights sets so many weights that they are packed concurrently, some
// from one stream, some twice, and updates them.
func TestManyWeights(t *testing.T) {
	const n, count = 640, 24 // 1.6 MB each
	require.Greater(t, 4*n*n*8, int(workers.WakeCost), "a run of them is worth sharing")
	b := graph.NewBuilder("many")
	x := b.AddLocal("x", f32(sharedRows, n))
	g := b.BeginGraph("main")
	w := make([]graph.TensorID, count)
	for i := range w {
		w[i] = b.AddPersistent(fmt.Sprint("w", i), f32(n, n))
	}
	y := x
	for i := range w {
		y = node(t, b, &graph.MatMul{}, "product", y, w[i])
	}
	var steps []graph.Step
	for i := range w {
		steps = append(steps, b.CopyIn(fmt.Sprint("w", i-i%8/7), w[i])) // the last of eight is that before it
	}
	steps = append(steps, b.CopyIn("w0", w[0])) // again
	b.AddProgram(0, "load", steps...)
	b.AddProgram(1, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	exe := executable(t, b)
	// Every weight moves the elements of a row by some places.
	shift := func(by int) []float32 {
		v := make([]float32, n*n)
		for i := range n {
			v[i*n+(i+by)%n] = 1
		}
		return v
	}
	xv, want := make([]float32, sharedRows*n), make([]float32, sharedRows*n)
	for i := range xv {
		xv[i] = float32(i)
	}
	for _, threads := range []string{"1", "2", "5"} {
		e, err := New(ipu.EngineConfig{Name: "many", Executable: exe, Options: opt("threads", threads)})
		require.NoError(t, err)
		load(t, e)
		yv := make([]float32, sharedRows*n)
		connect(t, e, map[string]ipu.Stream{"x": in(t, xv), "y": out(t, yv)})
		for round := range 2 {
			total := 0
			for i := range w {
				if i%8 == 7 {
					total += i - 1 + round
					continue
				}
				total += i + round
				h := newHost(t, bytesOf(shift(i+round)))
				require.NoError(t, e.Connect(fmt.Sprint("w", i), constant{direct{h}}))
			}
			run(t, e, 0)
			run(t, e, 1)
			for i := range want {
				want[i/n*n+(i%n+total)%n] = xv[i]
			}
			require.Equal(t, want, yv)
		}
		require.NoError(t, e.Close())
	}
}
