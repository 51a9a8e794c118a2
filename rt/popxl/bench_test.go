package popxl_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// least is a model that computes next to nothing.
func least() (*popxl.Ir, popxl.Input[float32], popxl.Output[float32]) {
	ir := popxl.New("least")
	x := popxl.NewInput[float32](ir, "x", 4)
	return ir, x, popxl.NewOutput("y", ops.Negate(x.Load()))
}

// typed is the runner of a package that is generated from it.
type typed struct {
	core genrt.Core
	x    *genrt.RawInput
	y    *genrt.RawOutput
}

func openTyped(b *testing.B) *typed {
	b.Helper()
	ir, _, _ := least()
	m, err := ir.Export(b.Context())
	require.NoError(b, err)
	file, err := m.Bytes()
	require.NoError(b, err)
	model, err := m.Load(b.Context(), "least")
	require.NoError(b, err)
	defer model.Close()
	r := &typed{x: genrt.NewRawInput(16), y: genrt.NewRawOutput(16)}
	spec := &genrt.Spec{Package: "least", Contract: contract.Of(model).Callers().Text(), Iterations: 1, QueueDepth: 1}
	for i, a := range m.Metadata.Anchors {
		spec.Anchors = append(spec.Anchors, genrt.AnchorSpec{Name: a.Name, Handle: a.Handle, GoName: a.Name, Role: []genrt.Role{genrt.RunInput, genrt.RunOutput}[i], Bytes: 16})
	}
	bindings := func() []genrt.Binding { return []genrt.Binding{{Anchor: 0, Stream: r.x}, {Anchor: 1, Stream: r.y}} }
	require.NoError(b, r.core.Open(b.Context(), spec, genrt.Source{Name: "least.popef", Bytes: file}, bindings, nil))
	b.Cleanup(func() { require.NoError(b, r.core.Close()) })
	return r
}

func (r *typed) run(ctx context.Context, in, out []byte) error {
	replica, err := r.core.Begin(ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	if err := r.x.Bind(in); err != nil {
		return err
	}
	if err := r.y.Bind(out); err != nil {
		return err
	}
	return r.core.Main(ctx, replica)
}

// interleaved measures runners in turns as long as the benchmark lasts.
func interleaved(b *testing.B, slice time.Duration, runners ...measure.Runner) []measure.Series {
	b.Helper()
	var all []measure.Series
	for b.Loop() {
		got, err := measure.Interleave(measure.Config{Rounds: 1, Slice: slice}, runners...)
		if err != nil {
			b.Fatal(err)
		}
		all = measure.Join(all, got)
	}
	b.ReportMetric(0, "ns/op")
	return all
}

// BenchmarkRun measures what a run of a session takes more than one of a generated package, whose buffers are used in place: of a model that computes next to nothing.
func BenchmarkRun(b *testing.B) {
	ir, x, y := least()
	s, err := popxl.NewSession(b.Context(), ir)
	require.NoError(b, err)
	defer s.Close()
	_, err = s.Attach(b.Context())
	require.NoError(b, err)
	r := openTyped(b)
	in, out, raw := []float32{1, 2, 3, 4}, y.Make(), [2][16]byte{}
	ctx := b.Context()
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
	got := interleaved(b, 2*time.Millisecond,
		repeat(func() error { return s.Run(ctx, x.Feed(in), y.Into(out)) }),
		repeat(func() error { return r.run(ctx, raw[0][:], raw[1][:]) }))
	require.Equal(b, float32(-4), out[3])
	session, other := got[0].Median(), got[1].Median()
	b.ReportMetric(session, "session-ns")
	b.ReportMetric(other, "package-ns")
	b.ReportMetric(session-other, "more-ns")
}

// thousand builds a graph of a thousand operators, and its model.
func thousand(ctx context.Context) error {
	ir := popxl.New("thousand")
	x := popxl.NewInput[float32](ir, "x", 16, 16).Load()
	for range 500 {
		x = ops.Relu(ops.MatMul(x, x))
	}
	popxl.NewOutput("y", x)
	_, err := ir.Export(ctx)
	return err
}

// BenchmarkBuild measures building and compiling a graph of a thousand operators, beside compiling the same from ONNX, which has been read.
func BenchmarkBuild(b *testing.B) {
	from := build.New()
	x := from.Input("x", onnx.Float, 16, 16)
	for range 500 {
		x = from.Relu(from.MatMul(x, x))
	}
	from.Output("y", x)
	m, err := from.Model(b.Context())
	require.NoError(b, err)
	got := interleaved(b, 60*time.Millisecond,
		measure.Runner{Batch: 1, Run: func() error { return thousand(b.Context()) }},
		measure.Runner{Batch: 1, Run: func() error {
			r, err := compile.Compile(m, compile.Options{})
			if err == nil {
				_, err = r.Bytes()
			}
			return err
		}})
	ours, theirs := got[0].Median(), got[1].Median()
	b.ReportMetric(ours/1e6, "popxl-ms")
	b.ReportMetric(theirs/1e6, "onnx-ms")
	b.ReportMetric(ours/theirs, "popxl/onnx")
}
