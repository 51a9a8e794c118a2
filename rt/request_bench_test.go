package rt_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/mapfuture"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// BenchmarkRequest compares ways to make a request to an engine that computes
// nothing: run inline in the caller's goroutine, submitted through the queue,
// handed to a goroutine over channels, and with the design that finds tensors
// by name, queues behind a mutex and answers with a future. They take turns;
// the best times count, and their ratios mean more than they do.
func BenchmarkRequest(b *testing.B) {
	ctx := context.Background()
	r := noop(b).open(b)
	in, out := NewInputs(), NewOutputs()
	sizes, given, answers := map[string]int{}, mapfuture.Tensors{}, map[string]int{}
	for _, a := range append(r.Session().UserInputs(), r.Session().UserOutputs()...) {
		size, err := a.Info.SizeInBytes()
		if err != nil {
			b.Fatal(err)
		}
		switch a.Role {
		case genrt.RunInput:
			sizes[a.Name], given[a.Name] = int(size), make([]byte, size)
		case genrt.RunOutput:
			answers[a.Name] = int(size)
		}
	}
	usual := mapfuture.New(sizes, answers, func(_, _ mapfuture.Tensors) {})
	b.Cleanup(usual.Close)
	there, back := make(chan struct{}), make(chan struct{})
	go func() {
		for range there {
			back <- struct{}{}
		}
	}()
	b.Cleanup(func() { close(there) })

	const batch = 200
	names := []string{"inline-ns", "submitted-ns", "channel-ns", "map-and-future-ns"}
	var runners []measure.Runner
	for _, one := range []func() error{
		func() error { return r.Run(ctx, in, out) },
		func() error {
			ticket, err := r.Submit(ctx, in, out)
			if err != nil {
				return err
			}
			return ticket.Wait(ctx)
		},
		func() error {
			there <- struct{}{}
			<-back
			return nil
		},
		func() error {
			_, err := usual.Execute(given).Wait()
			return err
		},
	} {
		runners = append(runners, measure.Runner{Batch: batch, Run: func() error {
			for range batch {
				if err := one(); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	best := interleaved(b, runners...)
	for i, name := range names {
		b.ReportMetric(best[i].Best(), name)
	}
	b.ReportMetric(best[0].Best()/best[2].Best(), "inline/channel")
	b.ReportMetric(best[0].Best()/best[3].Best(), "inline/map-and-future")
}

// interleaved lets contestants take turns for as long as the benchmark goes on.
func interleaved(b *testing.B, runners ...measure.Runner) []measure.Series {
	var all []measure.Series
	for b.Loop() {
		got, err := measure.Interleave(measure.Config{Rounds: 1, Slice: 2 * time.Millisecond}, runners...)
		if err != nil {
			b.Fatal(err)
		}
		all = measure.Join(all, got)
	}
	b.ReportMetric(0, "ns/op")
	return all
}

// BenchmarkOneOperator measures Run of a model with one small operator, a change
// of sign of ten numbers, and the loop that does the same: what is left of the
// one without the other is what a request costs.
func BenchmarkOneOperator(b *testing.B) {
	ctx := context.Background()
	r := openNegation(b, 10, 1)
	in, out := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, make([]float32, 10)
	repeat := func(f func() error) measure.Runner {
		const batch = 200
		return measure.Runner{Batch: batch, Run: func() error {
			for range batch {
				if err := f(); err != nil {
					return err
				}
			}
			return nil
		}}
	}
	got := interleaved(b,
		repeat(func() error { return r.Run(ctx, in, out) }),
		repeat(func() error {
			for i, v := range in {
				out[i] = -v
			}
			return nil
		}))
	require.Equal(b, float32(-10), out[9])
	run, alone := got[0].Median(), got[1].Median()
	b.ReportMetric(run, "run-ns")
	b.ReportMetric(alone, "loop-ns")
	b.ReportMetric(run-alone, "request-ns")
}

// BenchmarkCallers measures eight callers of a request of some microseconds, and
// the same behind a mutex around the engine. The ratio is of requests a second:
// above 1, a runner is the faster one.
func BenchmarkCallers(b *testing.B) {
	const callers, each, numbers = 8, 200, 3 << 11
	r := openNegation(b, numbers, 16)
	ctx := context.Background()
	e := r.core.Session(0).Engine()
	var lock sync.Mutex
	type memory struct{ in, out []float32 }
	var mem [callers]memory
	for i := range mem {
		mem[i] = memory{make([]float32, numbers), make([]float32, numbers)}
	}
	storm := func(one func(m *memory) error) measure.Runner {
		return measure.Runner{Batch: callers * each, Run: func() error {
			var all sync.WaitGroup
			var failed atomic.Pointer[error]
			for i := range mem {
				all.Go(func() {
					for range each {
						if err := one(&mem[i]); err != nil {
							failed.Store(&err)
							return
						}
					}
				})
			}
			all.Wait()
			if err := failed.Load(); err != nil {
				return *err
			}
			return nil
		}}
	}
	got := interleaved(b,
		storm(func(m *memory) error { return r.Run(ctx, m.in, m.out) }),
		storm(func(m *memory) error {
			lock.Lock()
			defer lock.Unlock()
			if err := errors.Join(r.x.Bind(bytesOf(m.in)), r.y.Bind(bytesOf(m.out))); err != nil {
				return err
			}
			return e.Run(ctx, mainProgram)
		}))
	b.ReportMetric(got[0].Median(), "runner-ns")
	b.ReportMetric(got[1].Median(), "mutex-ns")
	b.ReportMetric(got[1].Median()/got[0].Median(), "runner/mutex")
}

// negation is a runner of a model that changes the sign of n numbers, several
// times over.
type negation struct {
	core genrt.Core
	x    *genrt.RawInput
	y    *genrt.RawOutput
	typ  graph.TensorType
}

func openNegation(b *testing.B, n, times int) *negation {
	b.Helper()
	meta := popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, Executable: "negation", IsInference: true,
		ProgramFlow: popef.ProgramFlow{Main: []uint32{mainProgram}},
		Anchors: []popef.Anchor{
			{Name: "x", Handle: "h2d_x", Type: popef.Input, Info: tensorInfo(int64(n)), Programs: []uint32{mainProgram}},
			{Name: "y", Handle: "d2h_y", Type: popef.Output, Info: tensorInfo(int64(n)), Programs: []uint32{mainProgram}},
		},
	}
	r := &negation{typ: graph.TensorType{DType: graph.F32, Shape: []int64{int64(n)}}, x: genrt.NewRawInput(4 * n), y: genrt.NewRawOutput(4 * n)}
	g := graph.NewBuilder("negation")
	x := g.AddLocal("x", r.typ)
	main := g.BeginGraph("main")
	last := x
	for range times {
		y, err := g.Node(&graph.Unary{Fn: graph.Neg}, "y", last)
		require.NoError(b, err)
		last = y[0]
	}
	g.AddProgram(mainProgram, "Program", g.CopyIn("h2d_x", x), g.Call(main), g.CopyOut("d2h_y", last))
	exe, err := g.Finish()
	require.NoError(b, err)
	var encoded bytes.Buffer
	require.NoError(b, encoding.Encode(&encoded, exe))
	data := file(b, meta, encoded.Bytes(), nil)
	m, err := popef.LoadBytes("negation.popef", data)
	require.NoError(b, err)
	defer m.Close()
	spec := &genrt.Spec{
		Package: "negation", Contract: contract.Of(m).Callers().Text(), Iterations: 1, QueueDepth: QueueDepth,
		Anchors: []genrt.AnchorSpec{
			{Name: "x", Handle: "h2d_x", GoName: "X", Role: genrt.RunInput, Bytes: 4 * n},
			{Name: "y", Handle: "d2h_y", GoName: "Y", Role: genrt.RunOutput, Bytes: 4 * n},
		},
	}
	bindings := func() []genrt.Binding {
		return []genrt.Binding{{Anchor: 0, Stream: r.x}, {Anchor: 1, Stream: r.y}}
	}
	require.NoError(b, r.core.Open(context.Background(), spec, genrt.Source{Name: "negation.popef", Bytes: data}, bindings, nil,
		rt.WithThreads(1)))
	b.Cleanup(func() { require.NoError(b, r.core.Close()) })
	return r
}

func (r *negation) Run(ctx context.Context, in, out []float32) error {
	replica, err := r.core.Begin(ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	if err := r.x.Bind(bytesOf(in)); err != nil {
		return err
	}
	if err := r.y.Bind(bytesOf(out)); err != nil {
		return err
	}
	return r.core.Main(ctx, replica)
}

// bytesOf views numbers as bytes.
func bytesOf(s []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}
