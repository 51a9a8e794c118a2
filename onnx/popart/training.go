package popart

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"path/filepath"
	"slices"

	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef"
)

// TrainingSession trains the weights of a model.
type TrainingSession struct {
	session
	trained   []string // names of the weights that are
	optimizer optim.Optimizer
	divisor   int64
	file      []byte // the model's, if data of it lies in files beside it
	folder    string // of the model
}

// NewTrainingSession compiles a model with a loss, its gradients and an optimizer for a data flow. Anchors are tensors of the model and the loss: "loss", unless it is an output of the
// model. o may be nil.
func NewTrainingSession(ctx context.Context, model Model, flow DataFlow, loss TrainingLoss, optimizer Optimizer, device *Device, shapes Shapes, o *Options) (s *TrainingSession, err error) {
	err = guard("make a training session", func() error {
		opts, err := optionsOf(o)
		switch {
		case err != nil:
			return err
		case loss == nil:
			return wrong(ErrOption, "there is no loss, want Loss, Nll or LossOf")
		case optimizer == nil:
			return wrong(ErrOption, "there is no optimizer, want SGD, Adam or Adaptive")
		}
		if err := flow.check(); err != nil {
			return err
		}
		k, err := newMaking("training", &opts, device)
		if err != nil {
			return err
		}
		how := train.Options{
			Options: onnx.Options{Shapes: shapes, Seed: opts.Seed, Training: &onnx.Training{BatchStatistics: true, Dropout: true}},
			Loss:    loss.loss(), Optimizer: optimizer.rule(), Iterations: int64(flow.BatchesPerStep),
			Accumulation: int64(opts.AccumulationFactor), Replicas: int64(opts.ReplicationFactor), SumGradients: opts.SumReduction,
			Clips: opts.ClipNorms, AutomaticScaling: opts.AutomaticLossScaling, Recompute: opts.Recompute, Freeze: opts.Frozen, Stage: k.stage, Pass: k.pass,
		}
		s, err = k.training(ctx, model, flow, how)
		return err
	})
	return s, err
}

// training makes a training session.
func (k *making) training(ctx context.Context, model Model, flow DataFlow, how train.Options) (*TrainingSession, error) {
	p, err := k.learner(ctx, model, flow, how)
	warnings, err := k.finish(ctx, p, err)
	var about *train.About
	if err == nil {
		about, err = train.ReadAbout(p)
	}
	if err != nil {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
		return nil, err
	}
	s := &TrainingSession{trained: about.Trained, optimizer: how.Optimizer, divisor: about.Divisor}
	s.training = true
	s.open(p, flow, k)
	s.warnings = warnings
	s.file, s.folder = k.file, k.folder
	return s, nil
}

// learner compiles a training model.
func (k *making) learner(ctx context.Context, model Model, flow DataFlow, how train.Options) (*popef.Model, error) {
	m, file, err := model.read(ctx)
	if err != nil {
		return nil, err
	}
	k.read(m)
	if model.path != "" {
		external, err := train.HasExternal(file)
		if err != nil {
			return nil, err
		}
		if external {
			k.file, k.folder = file, filepath.Dir(model.path)
		}
	}
	if how.File = file; file == nil {
		if how.File, err = onnx.Encode(m); err != nil {
			return nil, err
		}
	}
	if m, err = anchored(m, flow, &how); err != nil {
		return nil, err
	}
	return k.cached(ctx, m, func() (*popef.Model, error) {
		r, err := train.Compile(ctx, m, how)
		if err != nil {
			return nil, err
		}
		k.warnings = append(k.warnings, r.Warnings...)
		return r.Load(ctx, "training session")
	}, flow, how)
}

// anchored returns the model with the loss and the anchors as outputs, and says in how which values of outputs a step returns.
func anchored(m *onnx.Model, flow DataFlow, how *train.Options) (*onnx.Model, error) {
	added := []string{"loss"}
	if how.AutomaticScaling {
		added = append(added, "skipped")
	}
	more, err := flow.outputs(m, added...)
	if err != nil {
		return nil, err
	}
	m = withOutputs(m, more)
	how.Returns = map[string]train.Return{"loss": {None: true}}
	if how.Loss.Kind == "output" {
		how.Returns = map[string]train.Return{}
		if !slices.Contains(m.Graph.OutputNames(), how.Loss.Output) {
			if !slices.Contains(tensors(m), how.Loss.Output) {
				return nil, wrong(ErrOption, "the loss %q is no tensor of the model%s", how.Loss.Output, nearest.DidYouMean(how.Loss.Output, tensors(m)))
			}
			m = withOutputs(m, []string{how.Loss.Output})
		}
	}
	for _, name := range m.Graph.OutputNames() {
		how.Returns[name] = train.Return{None: true}
	}
	for name, r := range flow.Anchors {
		how.Returns[name] = train.Return{Type: r.Type, N: int64(r.N)}
	}
	return m, nil
}

// WeightsFromHost brings the host's weights and the optimizer's states to the device; the first time, the optimizer's values and what random numbers follow from too.
func (s *TrainingSession) WeightsFromHost(ctx context.Context) error {
	return s.locked("weights from host", func() error {
		if s.run == nil {
			return fail(ClassRuntime, "weights from host", ErrNotPrepared)
		}
		var err error
		if s.loaded {
			err = s.give(ctx, export.LoadProgram)
		} else {
			err = s.run.Load(ctx)
		}
		s.loaded = s.loaded || err == nil
		return fail(ClassRuntime, "weights from host", err)
	})
}

// WeightsToHost fetches weights, states and what random numbers follow from.
func (s *TrainingSession) WeightsToHost(ctx context.Context) error {
	return s.locked("weights to host", func() error { return s.fetch(ctx) })
}

func (s *TrainingSession) fetch(ctx context.Context) error {
	switch {
	case s.run == nil:
		return fail(ClassRuntime, "weights to host", ErrNotPrepared)
	case !s.loaded:
		return fail(ClassRuntime, "weights to host", ErrWeightsNotLoaded)
	}
	var save []int
	for _, p := range s.model.Metadata.ProgramFlow.Save {
		save = append(save, int(p))
	}
	return fail(ClassRuntime, "weights to host", s.take(ctx, save...))
}

// WriteWeights sets weights and states on the host, all of them or none; WeightsFromHost brings them to the device.
func (s *TrainingSession) WriteWeights(weights map[string]Array) error {
	return s.locked("write weights", func() error { return s.write(weights) })
}

// UpdateOptimizer gives the optimizer other numbers, from the next step on: program 1 alone runs, so that weights and states stay. The error wraps ErrReplacement where kinds or constant
// numbers differ, and names what does.
func (s *TrainingSession) UpdateOptimizer(ctx context.Context, o Optimizer) error {
	return s.locked("update the optimizer", func() error {
		if o == nil {
			return wrong(ErrReplacement, "there is no optimizer")
		}
		next := o.rule()
		if err := optim.Replaces(next, s.optimizer, s.trained); err != nil {
			return wrong(ErrReplacement, "%v", err)
		}
		scalars, err := optim.Scalars(next, s.trained, s.divisor)
		if err != nil {
			return err
		}
		for _, v := range scalars {
			h := s.host[v.Name]
			if h == nil || len(h.data) != 4 {
				return fail(ClassInternal, "update the optimizer", wrong(ErrTensor, "the model has no optimizer value %q", v.Name))
			}
			binary.LittleEndian.PutUint32(h.data, math.Float32bits(v.Value))
		}
		s.optimizer = next
		if !s.loaded { // the first WeightsFromHost brings them
			return nil
		}
		return fail(ClassRuntime, "update the optimizer", s.give(ctx, export.OptimizerProgram))
	})
}

// ModelToHost fetches the weights and writes the ONNX model with them: byte for byte the model that the session was made of, but for the data of trained weights. Data that was
// in files beside a model of [File] is in files of the same names beside the new one, which are those of the old model if path is in the same folder. Each file appears whole or not at all, the model last.
func (s *TrainingSession) ModelToHost(ctx context.Context, path string) error {
	return s.locked("write the model", func() error {
		if err := s.fetch(ctx); err != nil {
			return err
		}
		learnt := map[string][]byte{}
		for name, h := range s.host {
			learnt[name] = h.data
		}
		file, err := train.Extract(s.model, learnt)
		if err != nil {
			return err
		}
		if s.file != nil {
			return train.WriteExternal(path, s.file, file, s.folder)
		}
		return atomicfile.WriteBytes(path, file)
	})
}

// ResetHostWeights takes the weights of another ONNX model, by name, all or none, into the host's copies; WeightsFromHost brings them to the device. A weight of that model
// that the session does not have is an error that names it, unless ignoreUnknown.
func (s *TrainingSession) ResetHostWeights(ctx context.Context, model Model, ignoreUnknown bool) error {
	return s.locked("reset host weights", func() error { return s.reset(ctx, model, ignoreUnknown) })
}
