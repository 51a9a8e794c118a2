package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef"
)

// learner trains a network with popefgen's engine, whose programs it runs as a generated package does.
type learner struct {
	engine *cpu.Engine
	file   *popef.Model
	loss   []byte
}

// tensor is the host's end of a stream: memory that is read, or filled, by every transfer.
type tensor []byte

// Fetch implements [ipu.Stream]: it copies a transfer of an input into buf, and one of an output out of it.
func (t input) Fetch(_ context.Context, buf []byte) error  { copy(buf, t.tensor); return nil }
func (t output) Fetch(_ context.Context, buf []byte) error { copy(t.tensor, buf); return nil }

func (tensor) Prefetch([]byte) bool  { return false }
func (tensor) Complete()             {}
func (tensor) InvalidatePrefetched() {}

type (
	input  struct{ tensor }
	output struct{ tensor }
)

// adam is torch's Adam as optimizers here describe it.
func adam() optim.Optimizer {
	o := optim.NewAdam()
	o.LearningRate, o.Eps = optim.Changeable(1e-3), optim.Const(1e-8)
	return o
}

// compile makes the training model of a network. Its scores are not returned, as torch returns the loss alone.
func (n *network) compile(recompute autodiff.Recompute) (*train.Result, error) {
	m, err := n.model()
	if err != nil {
		return nil, err
	}
	return train.Compile(context.Background(), m, train.Options{
		Optimizer: adam(), Recompute: recompute, Returns: map[string]train.Return{m.Graph.OutputNames()[0]: {None: true}},
	})
}

// openLearner opens a training model for a network's data.
func openLearner(n *network, file *popef.Model, threads int) (*learner, error) {
	m, err := n.model()
	if err != nil {
		return nil, err
	}
	exe, err := file.Executable()
	if err != nil {
		return nil, err
	}
	e, err := cpu.New(ipu.EngineConfig{Name: n.name, Executable: exe, Options: []ipu.Option{{Name: "threads", Value: fmt.Sprint(threads)}}})
	if err != nil {
		return nil, err
	}
	l := &learner{engine: e, file: file}
	if err := l.connect(n, m.Graph.Inputs[0].Name); err != nil {
		return nil, err
	}
	return l, nil
}

// connect gives every stream its memory, and loads.
func (l *learner) connect(n *network, inputName string) error {
	m, err := n.model()
	if err != nil {
		return err
	}
	x, labels := n.data(m)
	for _, a := range l.file.Metadata.Anchors {
		size, err := a.Info.SizeInBytes()
		if err != nil {
			return err
		}
		memory := make(tensor, size)
		var stream ipu.Stream = output{memory}
		data, stored := l.file.TensorData(a.Name)
		switch {
		case a.Type != popef.Input && slices.Contains(a.Programs, export.MainProgram):
			l.loss = memory
		case a.Type != popef.Input:
		case stored:
			stream = input{data}
		case a.Name == inputName:
			stream = input{x}
		default:
			stream = input{labels}
		}
		if err := l.engine.Connect(a.Handle, stream); err != nil {
			return err
		}
	}
	if len(l.loss) != 4 {
		return fmt.Errorf("%s: the main program returns %d bytes, want the loss alone", n.name, len(l.loss))
	}
	if err := load(context.Background(), l.engine); err != nil {
		return err
	}
	for _, p := range l.file.Metadata.ProgramFlow.Load {
		if err := l.run(int(p)); err != nil {
			return err
		}
	}
	return nil
}

func (l *learner) run(program int) error { return l.engine.Run(context.Background(), program) }

// step trains one step.
func (l *learner) step() error { return l.run(export.MainProgram) }

// evaluate computes the loss without a step.
func (l *learner) evaluate() error { return l.run(export.EvaluateProgram) }

// lossValue returns the loss of the last run.
func (l *learner) lossValue() float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(l.loss)))
}

func (l *learner) close() error { return l.engine.Close() }
