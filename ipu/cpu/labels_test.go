package cpu

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
	"github.com/popefgen/popefgen/ipu/graph"
)

var wornLock sync.Mutex

// wornLabels returns the profile labels of the goroutine that calls it.
func wornLabels(t require.TestingT) map[string]string {
	wornLock.Lock()
	defer wornLock.Unlock()
	return goroutineLabels(t)
}

//go:noinline
func goroutineLabels(t require.TestingT) map[string]string {
	var b bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&b, 1))
	for block := range strings.SplitSeq(b.String(), "\n\n") {
		if !strings.Contains(block, "cpu.goroutineLabels+") {
			continue
		}
		labels := map[string]string{}
		for line := range strings.SplitSeq(block, "\n") {
			if text, ok := strings.CutPrefix(line, "# labels: "); ok {
				require.NoError(t, json.Unmarshal([]byte(text), &labels), text)
			}
		}
		return labels
	}
	require.Fail(t, "the goroutine is not in its own profile")
	return nil
}

// witness is a kernel that looks at the labels of who runs it.
type witness struct {
	tensor.Kernel
	saw func()
}

func (w witness) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	w.saw()
	return w.Kernel.Run(p, in, out, scratch)
}

// chained is two operators in a row, with a name that must not reach a terminal.
func chained(t testing.TB, options ...ipu.Option) *Engine {
	b := graph.NewBuilder("chained")
	x := b.AddLocal("x", f32(1, 4))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.Softmax{Axis: 1}, "head/softmax", x)
	z := node(t, b, &graph.Reduce{Fn: graph.ReduceMax, Axes: []int64{1}}, "best\x1b[2J", y)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("z", z))
	return newLoaded(t, b, options...)
}

// TestLabels looks at the labels of the goroutine that computes: in each kernel,
// in streams, and after a run that succeeded, failed or panicked.
func TestLabels(t *testing.T) {
	for _, on := range []bool{false, true} {
		options := opt("labels", "off", "threads", "1")
		if on {
			options = opt("labels", "on", "threads", "1")
		}
		e := chained(t, options...)
		ctx := pprof.WithLabels(context.Background(), pprof.Labels("handler", "classify"))
		pprof.SetGoroutineLabels(ctx)
		defer pprof.SetGoroutineLabels(context.Background())
		requests := map[string]string{"handler": "classify"}
		var saw []map[string]string
		look := func() { saw = append(saw, wornLabels(t)) }
		for i := range e.programs[0].code {
			if in := &e.programs[0].code[i]; in.op == opCompute {
				in.kernel = witness{in.kernel, look}
			}
		}
		x, z := newHost(t, bytesOf([]float32{1, 2, 3, 4})), newHost(t, make([]byte, 4))
		x.onFetch, z.onFetch = look, look
		connect(t, e, map[string]ipu.Stream{"x": feeder{x}, "z": drain{z}})
		require.NoError(t, e.Run(ctx, 0))
		want := []map[string]string{requests, requests, requests, requests}
		if on {
			want[1] = map[string]string{"model": t.Name(), "operator": "Softmax", "node": "head/softmax"}
			want[2] = map[string]string{"model": t.Name(), "operator": "Reduce max", "node": `best\u001b[2J`}
		}
		require.Empty(t, cmp.Diff(want, saw), "labels %v", on)
		require.Equal(t, requests, wornLabels(t), "after a run")

		for i := range e.programs[0].code {
			if in := &e.programs[0].code[i]; in.op == opCompute {
				in.kernel = witness{in.kernel.(witness).Kernel, func() { panic("broken") }}
			}
		}
		require.ErrorIs(t, e.Run(ctx, 0), ipu.ErrPanic)
		require.Equal(t, requests, wornLabels(t), "after a panic")
	}
}

// both is a task whose two parts wait for each other, so that two goroutines
// compute it.
type both struct {
	saw   [2]map[string]string
	t     *testing.T
	there sync.WaitGroup
}

func (b *both) Do(part int) {
	b.saw[part] = wornLabels(b.t)
	b.there.Done()
	b.there.Wait()
}

// TestWorkersLabels: workers wear the labels of the task that they take part
// in, of the next one the next one's, and none between.
func TestWorkersLabels(t *testing.T) {
	e := &Engine{pool: workers.New(2)}
	defer e.pool.Close()
	named := func(name string) *workers.Labels {
		return &workers.Labels{Ctx: pprof.WithLabels(context.Background(), pprof.Labels(labelNode, name))}
	}
	ctx := pprof.WithLabels(context.Background(), pprof.Labels("handler", "classify"))
	pprof.SetGoroutineLabels(ctx)
	defer pprof.SetGoroutineLabels(context.Background())
	for _, c := range []struct {
		labels *workers.Labels
		caller map[string]string
		worker map[string]string
	}{
		{nil, map[string]string{"handler": "classify"}, map[string]string{}}, // which starts the worker
		{named("first"), map[string]string{"node": "first"}, map[string]string{"node": "first"}},
		{nil, map[string]string{"handler": "classify"}, map[string]string{}},
		{named("second"), map[string]string{"node": "second"}, map[string]string{"node": "second"}},
		{named("third"), map[string]string{"node": "third"}, map[string]string{"node": "third"}},
		{nil, map[string]string{"handler": "classify"}, map[string]string{}},
	} {
		e.wear(ctx, c.labels)
		b := &both{t: t}
		b.there.Add(2)
		e.pool.Run(b, 2)
		require.Equal(t, [2]map[string]string{c.caller, c.worker}, b.saw) // the caller takes the first part
	}
}

// TestLabelsAllocateNothing: labels are made when the engine is loaded.
func TestLabelsAllocateNothing(t *testing.T) {
	for _, threads := range []string{"1", "2"} {
		e := chained(t, opt("labels", "on", "threads", threads)...)
		x, z := newWindowed(make([]byte, 16), 1), newWindowed(make([]byte, 4), 1)
		connect(t, e, map[string]ipu.Stream{"x": x, "z": z})
		ctx := pprof.WithLabels(context.Background(), pprof.Labels("handler", "classify"))
		require.Zero(t, testing.AllocsPerRun(20, func() {
			x.at.Done, z.at.Done = 0, 0
			require.NoError(t, e.Run(ctx, 0))
		}))
	}
	// And with workers that take part.
	e := &Engine{pool: workers.New(2)}
	defer e.pool.Close()
	one := &workers.Labels{Ctx: pprof.WithLabels(context.Background(), pprof.Labels(labelNode, "one"))}
	var task tensor.Task = idle{}
	require.Zero(t, testing.AllocsPerRun(200, func() {
		e.wear(context.Background(), one)
		e.pool.Run(task, 8)
		e.wear(context.Background(), nil)
	}))
}

type idle struct{}

func (idle) Do(int) {}
