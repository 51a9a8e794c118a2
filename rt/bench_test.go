package rt_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// noop makes programs do nothing, so that a benchmark measures the runtime.
func noop(b *testing.B) variant {
	s := affineScript()
	s.instant = true
	return variant{"no-op", fakeName, file(b, affineMetadata(), register(b, s), affineData), s}
}

// BenchmarkRun measures a synchronous request.
func BenchmarkRun(b *testing.B) {
	ctx := context.Background()
	for _, v := range append(variants(b), noop(b)) {
		for name, opts := range map[string][]rt.RunnerOption{"": nil, "/timed": {rt.Timed()}} {
			b.Run(v.name+name, func(b *testing.B) {
				r := v.open(b, opts...)
				in, out := NewInputs(), NewOutputs()
				for b.Loop() {
					if err := r.Run(ctx, in, out); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSubmit measures a request that goes through the queue: one at a
// time, and with the queue kept full.
func BenchmarkSubmit(b *testing.B) {
	ctx := context.Background()
	v := noop(b)
	b.Run("one", func(b *testing.B) {
		r := v.open(b)
		in, out := NewInputs(), NewOutputs()
		for b.Loop() {
			ticket, err := r.Submit(ctx, in, out)
			if err == nil {
				err = ticket.Wait(ctx)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("full", func(b *testing.B) {
		r := v.open(b)
		in, out := NewInputs(), NewOutputs()
		var tickets [QueueDepth]rt.Ticket
		n := 0
		for b.Loop() {
			if i := n % QueueDepth; n >= QueueDepth {
				if err := tickets[i].Wait(ctx); err != nil {
					b.Fatal(err)
				}
			}
			var err error
			if tickets[n%QueueDepth], err = r.Submit(ctx, in, out); err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
}

// emptyRunner has the shape of the code that popefgen generates for a model
// that takes 784 floats, looks at none, and answers with ten that are constant.
type emptyRunner struct {
	core  genrt.Core
	ports []*emptyPorts
}

type emptyPorts struct {
	in  struct{ X genrt.Input[[784]float32] }
	out struct{ Y genrt.Output[[10]float32] }
}

type emptyInputs struct{ X *[784]float32 }

type emptyOutputs struct{ Y *[10]float32 }

func openEmpty(t testing.TB, opts ...rt.RunnerOption) *emptyRunner {
	shapes := map[string]int64{"x": 784, "y": 10}
	a := func(typ popef.TensorType, name, handle string, program uint32) popef.Anchor {
		return popef.Anchor{Name: name, Handle: handle, Type: typ, Info: tensorInfo(shapes[name]), Programs: []uint32{program}}
	}
	meta := popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, Executable: "empty", IsInference: true,
		ProgramFlow: popef.ProgramFlow{Load: []uint32{loadProgram}, Main: []uint32{mainProgram}},
		Anchors: []popef.Anchor{
			a(popef.Input, "x", "h2d_x", mainProgram),
			a(popef.Output, "y", "d2h_y", mainProgram),
			a(popef.Input, "y", "h2d_y", loadProgram),
		},
	}
	b := graph.NewBuilder("empty")
	x := b.AddLocal("x", graph.TensorType{DType: graph.F32, Shape: []int64{784}})
	y := b.AddPersistent("y", graph.TensorType{DType: graph.F32, Shape: []int64{10}})
	b.AddProgram(loadProgram, "WeightsFromHost", b.CopyIn("h2d_y", y))
	b.AddProgram(mainProgram, "Program", b.CopyIn("h2d_x", x), b.CopyOut("d2h_y", y))
	exe, err := b.Finish()
	require.NoError(t, err)
	var encoded bytes.Buffer
	require.NoError(t, encoding.Encode(&encoded, exe))
	data := file(t, meta, encoded.Bytes(), map[string][]byte{"y": floats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)})
	m, err := popef.LoadBytes("empty.popef", data)
	require.NoError(t, err)
	defer m.Close()
	spec := &genrt.Spec{
		Package: "empty", Contract: contract.Of(m).Callers().Text(), Iterations: 1, QueueDepth: QueueDepth,
		Anchors: []genrt.AnchorSpec{
			{Name: "x", Handle: "h2d_x", GoName: "X", Role: genrt.RunInput, Bytes: 4 * 784},
			{Name: "y", Handle: "d2h_y", GoName: "Y", Role: genrt.RunOutput, Bytes: 4 * 10},
		},
	}
	r := &emptyRunner{}
	bindings := func() []genrt.Binding {
		p := &emptyPorts{}
		r.ports = append(r.ports, p)
		return []genrt.Binding{{Anchor: 0, Stream: &p.in.X}, {Anchor: 1, Stream: &p.out.Y}}
	}
	err = r.core.Open(context.Background(), spec, genrt.Source{Name: "empty.popef", Bytes: data}, bindings, nil, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.core.Close()) })
	return r
}

func (r *emptyRunner) check(in *emptyInputs, out *emptyOutputs) error {
	if in == nil {
		return &rt.NilAnchorError{Field: "Inputs"}
	}
	if in.X == nil && !r.core.Frozen(0) {
		return &rt.NilAnchorError{Field: "Inputs.X"}
	}
	if out == nil {
		return &rt.NilAnchorError{Field: "Outputs"}
	}
	if out.Y == nil {
		return &rt.NilAnchorError{Field: "Outputs.Y"}
	}
	return nil
}

func (p *emptyPorts) bind(in *emptyInputs, out *emptyOutputs) {
	p.in.X.Bind(in.X)
	p.out.Y.Bind(out.Y)
}

func (r *emptyRunner) Run(ctx context.Context, in *emptyInputs, out *emptyOutputs) error {
	return r.RunOn(ctx, rt.LeastBusy, in, out)
}

func (r *emptyRunner) RunOn(ctx context.Context, replica int, in *emptyInputs, out *emptyOutputs) error {
	if err := r.check(in, out); err != nil {
		return r.core.NilAnchor(err)
	}
	replica, err := r.core.Begin(ctx, replica)
	if err != nil {
		return err
	}
	r.ports[replica].bind(in, out)
	return r.core.Main(ctx, replica)
}

// BenchmarkEmpty measures a synchronous request to the cpu back end that
// computes nothing, so that what is left is the path of a request.
func BenchmarkEmpty(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		opts []rt.RunnerOption
	}{
		"background":  {ctx: context.Background()},
		"cancellable": {ctx: ctx},
		"timed":       {ctx: context.Background(), opts: []rt.RunnerOption{rt.Timed()}},
		"replicas":    {ctx: context.Background(), opts: []rt.RunnerOption{rt.WithReplicas(2)}},
	} {
		b.Run(name, func(b *testing.B) {
			r := openEmpty(b, c.opts...)
			in, out := &emptyInputs{new([784]float32)}, &emptyOutputs{new([10]float32)}
			for b.Loop() {
				if err := r.Run(c.ctx, in, out); err != nil {
					b.Fatal(err)
				}
			}
			require.Equal(b, float32(10), out.Y[9])
		})
	}
}
