package dynamic

import (
	"context"

	"github.com/popefgen/popefgen/golden/outputs"
	"github.com/popefgen/popefgen/popef/contract"
)

// Golden returns the model as goldens are recorded and compared, which runs over d's memory.
func (d *Model) Golden() (*outputs.Model, error) {
	if d.request != nil {
		return sizedModel(d), nil
	}
	memory := outputs.Memory{}
	for _, ports := range [][]Port{d.inputs, d.Outputs} {
		for _, p := range ports {
			memory.Add(p.Anchor.Handle, p.Data)
		}
	}
	return outputs.ModelOf(d.session, memory, d.Run)
}

// sizedModel is [Model.Golden] for a size of a model of several: its memory has the
// shapes that callers see.
func sizedModel(d *Model) *outputs.Model {
	m := &outputs.Model{Contract: d.session.Contract()}
	portOf := func(p *Port) outputs.Port {
		return outputs.Port{Anchor: p.Anchor.Name, Info: p.Info(), Data: [][]byte{p.Data}, Counted: p.tensor != nil && p.tensor.Counted()}
	}
	for i := range d.inputs {
		if d.inputs[i].Anchor.Role == contract.RunInput {
			m.Inputs = append(m.Inputs, portOf(&d.inputs[i]))
		}
	}
	for i := range d.Outputs {
		m.Outputs = append(m.Outputs, portOf(&d.Outputs[i]))
	}
	m.Run = func(ctx context.Context) error {
		err := d.Run(ctx)
		for i := range d.Outputs {
			m.Outputs[i] = portOf(&d.Outputs[i])
		}
		return err
	}
	return m
}
