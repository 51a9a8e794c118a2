package popart

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
)

// InferenceSession computes anchors of a model.
type InferenceSession struct{ session }

// NewInferenceSession compiles a model for a data flow. Only what the anchors depend on is computed. o may be nil.
func NewInferenceSession(ctx context.Context, model Model, flow DataFlow, device *Device, shapes Shapes, o *Options) (s *InferenceSession, err error) {
	err = guard("make an inference session", func() error {
		opts, err := optionsOf(o)
		if err != nil {
			return err
		}
		if opts.AccumulationFactor > 1 {
			return wrong(ErrOption, "accumulation factor %d, want 1 or 0: inference adds up no gradients", opts.AccumulationFactor)
		}
		if err := flow.check(); err != nil {
			return err
		}
		k, err := newMaking("inference", &opts, device)
		if err != nil {
			return err
		}
		s, err = k.inference(ctx, model, flow, shapes)
		return err
	})
	return s, err
}

// inference makes an inference session.
func (k *making) inference(ctx context.Context, model Model, flow DataFlow, shapes Shapes) (*InferenceSession, error) {
	var compiled *popef.Model
	var dropped []string
	err := func() (err error) {
		m, _, err := model.read(ctx)
		if err != nil {
			return err
		}
		if _, err := flow.outputs(m); err != nil {
			return err
		}
		k.read(m)
		anchored, unread, err := depended(m, flow.names())
		if err != nil {
			return err
		}
		dropped, shapes = unread, maps.Clone(shapes)
		for _, name := range dropped {
			delete(shapes, name)
		}
		compiled, err = k.cached(ctx, anchored, func() (*popef.Model, error) { return k.compile(ctx, anchored, flow, shapes) }, flow, shapes)
		return err
	}()
	for _, name := range dropped {
		k.warnings = append(k.warnings, fmt.Sprintf("input %q: no anchor depends on it, and data for it is not read", name))
	}
	warnings, err := k.finish(ctx, compiled, err)
	if err != nil {
		if compiled != nil {
			err = errors.Join(err, compiled.Close())
		}
		return nil, err
	}
	s := &InferenceSession{}
	s.open(compiled, flow, k)
	s.warnings, s.unread = warnings, dropped
	return s, nil
}

func optionsOf(o *Options) (Options, error) {
	if o == nil {
		return Options{}, nil
	}
	return *o, o.check()
}

// compile compiles a model of inference whose outputs are the anchors.
func (k *making) compile(ctx context.Context, m *onnx.Model, flow DataFlow, shapes Shapes) (*popef.Model, error) {
	low, err := compile.LowerContext(ctx, m, onnx.Options{Shapes: shapes, Seed: k.o.Seed})
	if err != nil {
		return nil, err
	}
	k.warnings = append(k.warnings, low.Warnings...)
	k.done(moduleLower, "lowered", stageForward0, low.Executable)
	if len(low.Counts) > 0 {
		return nil, wrong(ErrDataFlow, "data decides how many elements the anchor of count %q has, want anchors of one size", low.Counts[0].Name)
	}
	k.doing = "lay programs out"
	e, err := export.Training(low.Executable, layout(low, flow, k.o))
	if err != nil {
		return nil, err
	}
	k.doing = "optimise"
	load := export.LoadProgram
	evaluator := compile.NewEvaluator(ctx, 0)
	if err := pass.OptimizeContext(ctx, e.Executable, pass.OptimizeOptions{Load: &load, Evaluate: evaluator.Fold, After: k.pass}); err != nil {
		return nil, err
	}
	k.done(modulePass, "optimised", stagePrealias, e.Executable)
	k.doing = "plan"
	if err := e.Encode(); err != nil {
		return nil, err
	}
	p, err := e.Load(ctx, "inference session")
	if err != nil {
		return nil, fmt.Errorf("compiled model: %w", err)
	}
	return p, nil
}

// layout returns how the programs of a lowered model of inference are laid out.
func layout(low *onnx.Lowered, flow DataFlow, o *Options) export.TrainingLayout {
	l := export.TrainingLayout{Inference: true, BatchesPerStep: int64(flow.BatchesPerStep), Accumulation: 1, Replicas: int64(max(1, o.ReplicationFactor)), Forward: append([]graph.GraphID{low.Main}, low.After...)}
	for _, in := range low.Inputs {
		l.Inputs = append(l.Inputs, export.Port{Name: in.Name, Tensor: in.Tensor})
	}
	for _, out := range low.Outputs {
		r := flow.Anchors[out.Name]
		l.Outputs = append(l.Outputs, export.Output{Port: export.Port{Name: out.Name, Tensor: out.Tensor}, Return: r.Type, N: int64(r.N)})
	}
	for _, w := range low.Weights {
		l.Weights = append(l.Weights, export.Weight{Port: export.Port{Name: w.Name, Tensor: w.Tensor}, Value: w.Data})
	}
	l.Seed, l.RandomState = compile.Random(low)
	return l
}

// WriteWeights sets weights, all of them or none, and loads them. It fails with ErrConstantWeights without Options.VariableWeights.
func (s *InferenceSession) WriteWeights(ctx context.Context, weights map[string]Array) error {
	return s.locked("write weights", func() error {
		if !s.options.VariableWeights {
			return ErrConstantWeights
		}
		return s.reload(ctx, "write weights", s.write(weights))
	})
}

// ResetHostWeights takes the weights of another ONNX model, such as one that ModelToHost wrote, by name, all or none, and loads them. A weight of that model that the session does not
// have, because it is unknown or no anchor depends on it, is an error that names it, unless ignoreUnknown. It fails with ErrConstantWeights without Options.VariableWeights.
func (s *InferenceSession) ResetHostWeights(ctx context.Context, model Model, ignoreUnknown bool) error {
	return s.locked("reset host weights", func() error {
		if !s.options.VariableWeights {
			return ErrConstantWeights
		}
		return s.reload(ctx, "reset host weights", s.reset(ctx, model, ignoreUnknown))
	})
}

// reload loads weights that were set on the host, if err is nil and there is a device.
func (s *InferenceSession) reload(ctx context.Context, doing string, err error) error {
	if err != nil || s.run == nil {
		return err
	}
	return fail(ClassRuntime, doing, s.give(ctx, export.LoadProgram)) // alone: the state of random numbers stays
}
