// Package dynamic runs a model whose types are learnt when it is opened, where a generated
// package has them as Go types: its inputs are filled from files, lists or at random. Of a
// family it runs one size.
package dynamic

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Model is an open model, with memory for what a run moves. Its methods are for one goroutine.
type Model struct {
	Outputs []Port // of a run, without those that count

	session rt.Session
	inputs  []Port
	request *Request // what of a family it computes; nil for a model of one size
	counts  []Port   // outputs of a family that say how much of others is filled
}

// Port is a user's anchor with the memory of one run.
type Port struct {
	Anchor contract.Anchor // with the shape that the user sees
	Data   []byte          // of all transfers

	transfers int64 // that a run makes

	given bool

	// Of a family:
	tensor *family.Tensor // nil if no run moves it
	whole  []byte         // memory of the member, where its shape is not the user's
	shape  []int64        // of that
	pad    []byte         // element that an input is filled up with
}

// Open opens a model of one size with memory for everything that a run moves. Of a family, m is
// the member that is asked for, see [family.Family.Single]; else asked is nil.
func Open(ctx context.Context, m *popef.Model, asked *Request, opts ...modelrt.SessionOption) (*Model, error) {
	s, err := modelrt.NewSession(ctx, m, opts...)
	if err != nil {
		return nil, err
	}
	if asked != nil { // m has one member; a file that lacks another is not to be trusted either
		moved := map[string][]int{}
		for _, info := range s.Streams() {
			moved[info.Handle] = info.Programs
		}
		if err := asked.Family.CheckExecutable(&m.Metadata, moved); err != nil {
			s.Close()
			return nil, err
		}
	}
	d := &Model{session: s, request: asked}
	for _, a := range UserInputs(s.Contract()) {
		if err := d.connect(&d.inputs, a); err != nil {
			s.Close()
			return nil, err
		}
	}
	for _, a := range s.UserOutputs() {
		if a.Role != contract.RunOutput {
			continue
		}
		to := &d.Outputs
		if asked != nil && asked.counts(a.Name) {
			to = &d.counts
		}
		if err := d.connect(to, a); err != nil {
			s.Close()
			return nil, err
		}
	}
	return d, nil
}

func (d *Model) connect(to *[]Port, a contract.Anchor) error {
	info, ok := d.session.Stream(a.Handle)
	if !ok {
		return fmt.Errorf("anchor %q: the executable has no stream %q", a.Name, a.Handle)
	}
	transfers := d.session.Contract().Transfers(&a)
	b, err := modelrt.NewBuffer(info, transfers)
	if err != nil {
		return fmt.Errorf("anchor %q: %w", a.Name, err)
	}
	p := Port{Anchor: a, Data: b.Bytes(), transfers: int64(transfers)}
	if d.request != nil {
		if err := d.request.cut(&p, p.transfers); err != nil {
			return err
		}
	}
	*to = append(*to, p)
	return d.session.Connect(context.Background(), a.Handle, b)
}

// Run computes the outputs of what the inputs hold.
func (d *Model) Run(ctx context.Context) error {
	for i := range d.inputs {
		d.inputs[i].fill()
	}
	if err := d.session.Run(ctx); err != nil {
		return err
	}
	for i := range d.Outputs {
		d.Outputs[i].take(d)
	}
	return nil
}

// Close closes the session.
func (d *Model) Close() error { return d.session.Close() }

// input returns the input with the given name or handle, or nil.
func (d *Model) input(name string) *Port {
	for i := range d.inputs {
		if a := d.inputs[i].Anchor; a.Name == name || a.Handle == name {
			return &d.inputs[i]
		}
	}
	return nil
}

// UserInputs returns the inputs that a caller gives data for: with every run,
// or once.
func UserInputs(c contract.Contract) []contract.Anchor {
	var out []contract.Anchor
	for _, a := range c.Anchors {
		if a.Role == contract.RunInput || a.Role == contract.LoadInput || a.Role == contract.Seed && !a.HasData {
			out = append(out, a)
		}
	}
	return out
}

// UnknownInput says that the value of a flag --input names none of the inputs.
func UnknownInput(flag [2]string, names []string) error {
	return fmt.Errorf("--input %s=%s: the model has no such input%s", flag[0], flag[1], nearest.DidYouMean(flag[0], names))
}

// ExecuteOnCPU runs a model of one size, whose files have size bytes, once by the CPU engine
// with its own options. Inputs and outputs are by the name of their anchor.
func ExecuteOnCPU(ctx context.Context, m *popef.Model, size int64, inputs map[string][]byte) (map[string][]byte, error) {
	opts := []modelrt.SessionOption{rt.WithBackend(cpu.Name)}
	for _, o := range BoundWork(cpu.Name, m, size) {
		opts = append(opts, rt.WithEngineOption(o.Name, o.Value))
	}
	d, err := Open(ctx, m, nil, opts...)
	if err != nil {
		return nil, err
	}
	return d.Execute(ctx, inputs)
}

// Execute runs the model once on inputs, by the name of their anchor, and closes it.
func (d *Model) Execute(ctx context.Context, inputs map[string][]byte) (outputs map[string][]byte, err error) {
	defer func() {
		if e := d.Close(); err == nil {
			err = e
		}
	}()
	for i := range d.inputs {
		p := &d.inputs[i]
		data, ok := inputs[p.Anchor.Name]
		if !ok || len(data) != len(p.Data) {
			return nil, fmt.Errorf("input %q: found %d bytes, want %d", p.Anchor.Name, len(data), len(p.Data))
		}
		copy(p.Data, data)
	}
	if err := d.Run(ctx); err != nil {
		return nil, err
	}
	outputs = map[string][]byte{}
	for _, p := range d.Outputs {
		outputs[p.Anchor.Name] = p.Data
	}
	return outputs, nil
}
