package rt_test

import (
	"context"
	"testing"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// What follows has the shape of the code that popefgen generates for the model
// "affine", in one file and with a contract that the test computes.

const (
	DeviceIterations = 2
	QueueDepth       = 4

	NameX = "x"
	NameY = "y"
	NameB = "b"
	NameW = "w"
)

const (
	_ = uint(genrt.Generation - 3)
	_ = uint(3 - genrt.OldestGeneration)
)

type X struct{ Data [2]float32 }

func (t *X) Flat() []float32           { return genrt.Flat[float32](t) }
func XFrom(flat []float32) (*X, error) { return genrt.From[X](NameX, flat) }

type Y struct{ Data [2]float32 }

func (t *Y) Flat() []float32 { return genrt.Flat[float32](t) }

type B struct{ Data [2]float32 }

type W struct{ Data [2]float32 }

type Inputs struct{ X *[DeviceIterations]X }

func NewInputs() *Inputs { return &Inputs{X: new([DeviceIterations]X)} }

type Outputs struct{ Y *[DeviceIterations]Y }

func NewOutputs() *Outputs { return &Outputs{Y: new([DeviceIterations]Y)} }

type LoadInputs struct{ B *B }

type SaveOutputs struct{ W *W }

type XSample struct{ Data float32 }

type YSample struct{ Data float32 }

func FreezeX(t *X) rt.Option { return rt.Freeze("h2d_x", t) }

type Runner struct {
	core  genrt.Core
	load  struct{ B genrt.Input[B] }
	ports []*ports
	queue [QueueDepth]request
}

type ports struct {
	in struct {
		X genrt.Input[[DeviceIterations]X]
	}
	out struct {
		Y genrt.Output[[DeviceIterations]Y]
	}
	save struct{ W genrt.Output[W] }
}

type request struct {
	in  Inputs
	out Outputs
}

func affineSpec(t testing.TB) *genrt.Spec {
	return &genrt.Spec{
		Package:    "affine",
		Contract:   affineContract(t),
		Iterations: DeviceIterations,
		QueueDepth: QueueDepth,
		Batch:      2,
		Anchors: []genrt.AnchorSpec{
			{Name: NameW, Handle: "weight_d2h_w", GoName: "W", Role: genrt.SaveOutput, Bytes: 8},
			{Name: NameX, Handle: "h2d_x", GoName: "X", Role: genrt.RunInput, Bytes: 8, Blocks: 1},
			{Name: NameY, Handle: "anchor_d2h_y", GoName: "Y", Role: genrt.RunOutput, Bytes: 8, Blocks: 1},
			{Name: NameB, Handle: "h2d_b", GoName: "B", Role: genrt.LoadInput, Bytes: 8},
		},
	}
}

func Open(ctx context.Context, spec *genrt.Spec, load *LoadInputs, source genrt.Source, opts ...rt.RunnerOption) (*Runner, error) {
	if load == nil {
		return nil, &rt.NilAnchorError{Model: "package affine", Field: "LoadInputs"}
	}
	if load.B == nil {
		return nil, &rt.NilAnchorError{Model: "package affine", Field: "LoadInputs.B", Anchor: NameB}
	}
	r := &Runner{}
	r.load.B.Bind(load.B)
	bindings := func() []genrt.Binding {
		p := &ports{}
		r.ports = append(r.ports, p)
		return []genrt.Binding{
			{Anchor: 3, Stream: &r.load.B},
			{Anchor: 1, Stream: &p.in.X},
			{Anchor: 2, Stream: &p.out.Y},
			{Anchor: 0, Stream: &p.save.W},
		}
	}
	bind := func(replica, slot int) {
		q := &r.queue[slot]
		if replica >= 0 {
			r.ports[replica].bind(&q.in, &q.out)
		}
		*q = request{}
	}
	if err := r.core.Open(ctx, spec, source, bindings, bind, opts...); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Runner) check(in *Inputs, out *Outputs) error {
	if in == nil {
		return &rt.NilAnchorError{Field: "Inputs"}
	}
	if in.X == nil && !r.core.Frozen(0) {
		return &rt.NilAnchorError{Field: "Inputs.X", Anchor: NameX}
	}
	if out == nil {
		return &rt.NilAnchorError{Field: "Outputs"}
	}
	if out.Y == nil {
		return &rt.NilAnchorError{Field: "Outputs.Y", Anchor: NameY}
	}
	return nil
}

func (p *ports) bind(in *Inputs, out *Outputs) {
	p.in.X.Bind(in.X)
	p.out.Y.Bind(out.Y)
}

func (p *ports) bindSave(out *SaveOutputs) { p.save.W.Bind(out.W) }

func (r *Runner) Run(ctx context.Context, in *Inputs, out *Outputs) error {
	return r.RunOn(ctx, rt.LeastBusy, in, out)
}

func (r *Runner) RunOn(ctx context.Context, replica int, in *Inputs, out *Outputs) error {
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

func (r *Runner) Submit(ctx context.Context, in *Inputs, out *Outputs) (rt.Ticket, error) {
	return r.SubmitOn(ctx, rt.LeastBusy, in, out)
}

func (r *Runner) SubmitOn(ctx context.Context, replica int, in *Inputs, out *Outputs) (rt.Ticket, error) {
	if err := r.check(in, out); err != nil {
		return rt.Ticket{}, r.core.NilAnchor(err)
	}
	slot, err := r.core.Reserve(ctx, replica)
	if err != nil {
		return rt.Ticket{}, err
	}
	r.queue[slot] = request{*in, *out}
	return r.core.Enqueue(ctx, slot, replica), nil
}

func (r *Runner) TrySubmit(in *Inputs, out *Outputs) (rt.Ticket, error) {
	return r.TrySubmitOn(rt.LeastBusy, in, out)
}

func (r *Runner) TrySubmitOn(replica int, in *Inputs, out *Outputs) (rt.Ticket, error) {
	if err := r.check(in, out); err != nil {
		return rt.Ticket{}, r.core.NilAnchor(err)
	}
	slot, err := r.core.TryReserve(replica)
	if err != nil {
		return rt.Ticket{}, err
	}
	r.queue[slot] = request{*in, *out}
	return r.core.Enqueue(context.Background(), slot, replica), nil
}

func (r *Runner) RunSamples(ctx context.Context, inX []XSample, outY []YSample) error {
	return r.RunSamplesOn(ctx, rt.LeastBusy, inX, outY)
}

func (r *Runner) RunSamplesOn(ctx context.Context, replica int, inX []XSample, outY []YSample) error {
	return r.core.RunSamples(ctx, replica, genrt.SamplesOf(inX), genrt.SamplesOf(outY))
}

func (r *Runner) SubmitSamples(ctx context.Context, inX []XSample, outY []YSample) (rt.Ticket, error) {
	return r.SubmitSamplesOn(ctx, rt.LeastBusy, inX, outY)
}

func (r *Runner) SubmitSamplesOn(ctx context.Context, replica int, inX []XSample, outY []YSample) (rt.Ticket, error) {
	return r.core.SubmitSamples(ctx, replica, genrt.SamplesOf(inX), genrt.SamplesOf(outY))
}

func (r *Runner) UpdateWeights(ctx context.Context, weights ...rt.Weight) error {
	return r.core.UpdateWeights(ctx, weights...)
}

func (r *Runner) Save(ctx context.Context, out *SaveOutputs) error { return r.SaveOn(ctx, 0, out) }

func (r *Runner) SaveOn(ctx context.Context, replica int, out *SaveOutputs) error {
	if err := checkSave(out); err != nil {
		return r.core.NilAnchor(err)
	}
	replica, err := r.core.Begin(ctx, replica)
	if err != nil {
		return err
	}
	r.ports[replica].bindSave(out)
	return r.core.Save(ctx, replica)
}

func (r *Runner) SaveAtClose(ctx context.Context, replica int, out *SaveOutputs) error {
	if err := checkSave(out); err != nil {
		return r.core.NilAnchor(err)
	}
	return r.core.SaveAtClose(ctx, replica, func() { r.ports[replica].bindSave(out) })
}

func checkSave(out *SaveOutputs) error {
	if out == nil {
		return &rt.NilAnchorError{Field: "SaveOutputs"}
	}
	if out.W == nil {
		return &rt.NilAnchorError{Field: "SaveOutputs.W", Anchor: NameW}
	}
	return nil
}

func (r *Runner) Shutdown(ctx context.Context) error { return r.core.Shutdown(ctx) }

func (r *Runner) Close() error { return r.core.Close() }

func (r *Runner) Config() rt.Config { return r.core.Config() }

func (r *Runner) Session() rt.Session { return r.core.Session(0) }

func (r *Runner) Replica(i int) rt.Session { return r.core.Session(i) }
