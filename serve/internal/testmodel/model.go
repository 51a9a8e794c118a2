package testmodel

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/popefgen/popefgen/serve/oip"
)

// Model is a model in Go. It computes any number of requests at the same time, unless Replicas says how many.
type Model struct {
	Described oip.Spec
	Replicas  int
	// Compute makes the outputs from the inputs, which share the number of samples.
	Compute func(inputs, outputs [][]byte)
	// Before, unless nil, is called before Compute: a request takes as long, and fails, as it does.
	Before func(ctx context.Context) error

	Runs   atomic.Int64 // how many requests came as far as Before
	Closed atomic.Bool
}

// Types are the data types of tensors that a model can have.
var Types = []oip.DataType{oip.Bool, oip.Uint8, oip.Uint16, oip.Uint32, oip.Uint64, oip.Int8, oip.Int16, oip.Int32, oip.Int64, oip.FP16, oip.BF16, oip.FP32, oip.FP64}

// Simple is the model simple in Go.
func Simple() *Model {
	tensor := func(name string) oip.Tensor {
		return oip.Tensor{Name: name, Type: oip.Int32, Shape: []int64{-1, Elements}, Max: []int64{Samples, Elements}}
	}
	return &Model{
		Described: oip.Spec{Name: "simple", Samples: Samples, Inputs: []oip.Tensor{tensor("INPUT0"), tensor("INPUT1")}, Outputs: []oip.Tensor{tensor("OUTPUT0"), tensor("OUTPUT1")}},
		Compute: func(in, out [][]byte) {
			for i := 0; i < len(in[0]); i += 4 {
				a, b := binary.LittleEndian.Uint32(in[0][i:]), binary.LittleEndian.Uint32(in[1][i:])
				binary.LittleEndian.PutUint32(out[0][i:], a+b)
				binary.LittleEndian.PutUint32(out[1][i:], a-b)
			}
		},
	}
}

// Identity returns a model called identity_ and the name of the type, whose OUTPUT0 is its INPUT0, [-1,sizes…].
func Identity(t oip.DataType, samples int, sizes ...int64) *Model {
	tensor := func(name string) oip.Tensor {
		return oip.Tensor{Name: name, Type: t, Shape: append([]int64{-1}, sizes...), Max: append([]int64{int64(samples)}, sizes...)}
	}
	return &Model{
		Described: oip.Spec{Name: "identity_" + t.String(), Samples: samples, Inputs: []oip.Tensor{tensor("INPUT0")}, Outputs: []oip.Tensor{tensor("OUTPUT0")}},
		Compute:   func(in, out [][]byte) { copy(out[0], in[0]) },
	}
}

// Spec returns what callers see.
func (m *Model) Spec() *oip.Spec { return &m.Described }

// Parallel returns Replicas, or many.
func (m *Model) Parallel() int {
	if m.Replicas > 0 {
		return m.Replicas
	}
	return 1 << 10
}

// Shutdown notes that the model is closed.
func (m *Model) Shutdown(context.Context) error {
	m.Closed.Store(true)
	return nil
}

// NewCall returns memory for the most samples.
func (m *Model) NewCall() oip.Call {
	c := &call{model: m}
	for i := range m.Described.Inputs {
		c.inputs = append(c.inputs, make([]byte, m.Described.Inputs[i].MaxBytes()))
	}
	for i := range m.Described.Outputs {
		t := &m.Described.Outputs[i]
		c.outputs = append(c.outputs, make([]byte, t.MaxBytes()))
		c.shapes = append(c.shapes, append([]int64(nil), t.Shape...))
	}
	c.in, c.out = make([][]byte, len(c.inputs)), make([][]byte, len(c.outputs))
	return c
}

type call struct {
	model           *Model
	inputs, outputs [][]byte // for the most samples
	in, out         [][]byte // of this request
	shapes          [][]int64
	samples         int64
}

func (c *call) Input(i int, shape []int64) ([]byte, error) {
	t := &c.model.Described.Inputs[i]
	n := int64(t.Type.Size())
	for _, d := range shape {
		n *= d
	}
	c.samples = 1
	if c.model.Described.Samples > 0 {
		c.samples = shape[0]
	}
	c.in[i] = c.inputs[i][:n]
	return c.in[i], nil
}

func (c *call) Run(ctx context.Context) error {
	c.model.Runs.Add(1)
	if c.model.Before != nil {
		if err := c.model.Before(ctx); err != nil {
			return err
		}
	}
	for i := range c.outputs {
		t := &c.model.Described.Outputs[i]
		size := t.MaxBytes()
		if c.model.Described.Samples > 0 {
			size = size / t.Max[0] * c.samples
			c.shapes[i][0] = c.samples
		}
		c.out[i] = c.outputs[i][:size]
	}
	c.model.Compute(c.in, c.out)
	return nil
}

func (c *call) Output(i int) ([]byte, []int64) { return c.out[i], c.shapes[i] }
