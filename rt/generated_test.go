package rt_test

import (
	"context"
	"testing"

	"github.com/popefgen/popefgen/rt"
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
	_ = uint(rt.Generation - 1)
	_ = uint(1 - rt.OldestGeneration)
)

type X struct{ Data [2]float32 }

func (t *X) Flat() []float32           { return rt.Flat[float32](t) }
func XFrom(flat []float32) (*X, error) { return rt.From[X](NameX, flat) }

type Y struct{ Data [2]float32 }

func (t *Y) Flat() []float32           { return rt.Flat[float32](t) }
func YFrom(flat []float32) (*Y, error) { return rt.From[Y](NameY, flat) }

type B struct{ Data [2]float32 }

type W struct{ Data [2]float32 }

type Inputs struct{ X *[DeviceIterations]X }

func NewInputs() *Inputs { return &Inputs{X: new([DeviceIterations]X)} }

type Outputs struct{ Y *[DeviceIterations]Y }

func NewOutputs() *Outputs { return &Outputs{Y: new([DeviceIterations]Y)} }

type LoadInputs struct{ B *B }

type SaveOutputs struct{ W *W }

type Runner struct {
	core rt.Core
	load struct{ B rt.Input[B] }
	in   struct {
		X rt.Input[[DeviceIterations]X]
	}
	out struct {
		Y rt.Output[[DeviceIterations]Y]
	}
	save  struct{ W rt.Output[W] }
	queue [QueueDepth]request
}

type request struct {
	in  Inputs
	out Outputs
}

func affineSpec(t testing.TB) *rt.Spec {
	return &rt.Spec{
		Package:    "affine",
		Contract:   affineContract(t),
		Iterations: DeviceIterations,
		QueueDepth: QueueDepth,
		Anchors: []rt.AnchorSpec{
			{Name: NameW, Handle: "weight_d2h_w", GoName: "W", Role: rt.SaveOutput, Bytes: 8},
			{Name: NameX, Handle: "h2d_x", GoName: "X", Role: rt.RunInput, Bytes: 8},
			{Name: NameY, Handle: "anchor_d2h_y", GoName: "Y", Role: rt.RunOutput, Bytes: 8},
			{Name: NameB, Handle: "h2d_b", GoName: "B", Role: rt.LoadInput, Bytes: 8},
		},
	}
}

func Open(ctx context.Context, spec *rt.Spec, load *LoadInputs, source rt.Source, opts ...rt.Option) (*Runner, error) {
	if load == nil {
		return nil, &rt.NilAnchorError{Field: "LoadInputs"}
	}
	if load.B == nil {
		return nil, &rt.NilAnchorError{Field: "LoadInputs.B", Anchor: NameB}
	}
	r := &Runner{}
	r.load.B.Bind(load.B)
	bindings := []rt.Binding{
		{Handle: "h2d_b", Stream: &r.load.B},
		{Handle: "h2d_x", Stream: &r.in.X},
		{Handle: "anchor_d2h_y", Stream: &r.out.Y},
		{Handle: "weight_d2h_w", Stream: &r.save.W},
	}
	bind := func(slot int) {
		r.bind(&r.queue[slot].in, &r.queue[slot].out)
		r.queue[slot] = request{}
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
	if in.X == nil {
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

func (r *Runner) bind(in *Inputs, out *Outputs) {
	r.in.X.Bind(in.X)
	r.out.Y.Bind(out.Y)
}

func (r *Runner) Run(ctx context.Context, in *Inputs, out *Outputs) error {
	if err := r.check(in, out); err != nil {
		return err
	}
	if err := r.core.Begin(ctx); err != nil {
		return err
	}
	r.bind(in, out)
	return r.core.Main(ctx)
}

func (r *Runner) Submit(in *Inputs, out *Outputs) (rt.Ticket, error) {
	if err := r.check(in, out); err != nil {
		return rt.Ticket{}, err
	}
	slot, err := r.core.Reserve()
	if err != nil {
		return rt.Ticket{}, err
	}
	r.queue[slot] = request{*in, *out}
	return r.core.Enqueue(slot), nil
}

func (r *Runner) Save(ctx context.Context, out *SaveOutputs) error {
	if out == nil {
		return &rt.NilAnchorError{Field: "SaveOutputs"}
	}
	if out.W == nil {
		return &rt.NilAnchorError{Field: "SaveOutputs.W", Anchor: NameW}
	}
	if err := r.core.Begin(ctx); err != nil {
		return err
	}
	r.save.W.Bind(out.W)
	return r.core.Save(ctx)
}

func (r *Runner) Close() error { return r.core.Close() }

func (r *Runner) Session() *rt.Session { return r.core.Session() }
