package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// dynamic runs a model whose anchors are known only now.
type dynamic struct {
	session    rt.Session
	iterations int64
	inputs     []port
	outputs    []port
	request    *request // what of a family it computes; nil for a model of one size
	counts     []port   // outputs of a family that say how much of others is filled
}

// port is a user's anchor with the memory of one run.
type port struct {
	anchor contract.Anchor // with the shape that the user sees
	data   []byte
	given  bool

	// Of a family:
	tensor *family.Tensor // nil if no run moves it
	whole  []byte         // memory of the member, where its shape is not the user's
	shape  []int64        // of that
	pad    []byte         // element that an input is filled up with
}

// openDynamic opens a model, whose files have size bytes, as engineFlags say. Of a
// family it runs what is asked for.
func openDynamic(c *cli.Context, m *popef.Model, size int64, asked *request) (*dynamic, error) {
	if f, err := familyOf(m); err != nil {
		return nil, err
	} else if f != nil && len(f.Members) > 1 && asked == nil {
		return nil, fmt.Errorf("the model has several sizes, and this command runs one: give a model of one size (compile --dim with one number for each dimension)")
	}
	if asked != nil {
		m = asked.family.Single(m, asked.member)
	}
	opts := []modelrt.SessionOption{rt.WithBackend(c.String("backend"))}
	if threads := c.Int("threads"); threads < 0 {
		return nil, fmt.Errorf("--threads %d: want 1 or more", threads)
	} else if threads != 0 {
		opts = append(opts, rt.WithThreads(threads))
	}
	given, err := engineOptions(c)
	if err != nil {
		return nil, err
	}
	for _, o := range append(boundWork(c.String("backend"), m, size), given...) {
		opts = append(opts, rt.WithEngineOption(o.Name, o.Value))
	}
	return openSession(c.Context, m, asked, opts...)
}

// openSession opens a model, of a family the size that is asked for, with memory for everything
// that a run moves.
func openSession(ctx context.Context, m *popef.Model, asked *request, opts ...modelrt.SessionOption) (*dynamic, error) {
	s, err := modelrt.NewSession(ctx, m, opts...)
	if err != nil {
		return nil, err
	}
	d := &dynamic{session: s, iterations: int64(s.DeviceIterations()), request: asked}
	for _, a := range userInputs(s.Contract()) {
		if err := d.connect(&d.inputs, a); err != nil {
			s.Close()
			return nil, err
		}
	}
	for _, a := range s.UserOutputs() {
		if a.Role != contract.RunOutput {
			continue
		}
		to := &d.outputs
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

func (d *dynamic) connect(to *[]port, a contract.Anchor) error {
	info, ok := d.session.Stream(a.Handle)
	if !ok {
		return fmt.Errorf("anchor %q: the executable has no stream %q", a.Name, a.Handle)
	}
	transfers := 1
	if a.Role == contract.RunInput || a.Role == contract.RunOutput {
		transfers = int(d.iterations)
	}
	b, err := modelrt.NewBuffer(info, transfers)
	if err != nil {
		return fmt.Errorf("anchor %q: %w", a.Name, err)
	}
	p := port{anchor: a, data: b.Bytes()}
	if d.request != nil {
		if err := d.request.cut(&p, d.iterations); err != nil {
			return err
		}
	}
	*to = append(*to, p)
	return d.session.Connect(context.Background(), a.Handle, b)
}

func (d *dynamic) run(ctx context.Context) error {
	for i := range d.inputs {
		d.inputs[i].fill(d.iterations)
	}
	if err := d.session.Run(ctx); err != nil {
		return err
	}
	for i := range d.outputs {
		d.outputs[i].take(d)
	}
	return nil
}

func (d *dynamic) close() error { return d.session.Close() }

// input returns the input with the given name or handle, or nil.
func (d *dynamic) input(name string) *port {
	for i := range d.inputs {
		if a := d.inputs[i].anchor; a.Name == name || a.Handle == name {
			return &d.inputs[i]
		}
	}
	return nil
}

// userInputs returns the inputs that a caller gives data for: with every run,
// or once.
func userInputs(c contract.Contract) []contract.Anchor {
	var out []contract.Anchor
	for _, a := range c.Anchors {
		if a.Role == contract.RunInput || a.Role == contract.LoadInput || a.Role == contract.Seed && !a.HasData {
			out = append(out, a)
		}
	}
	return out
}

// unknownInput says that the value of a flag --input names none of the inputs.
func unknownInput(flag [2]string, names []string) error {
	return fmt.Errorf("--input %s=%s: the model has no such input%s", flag[0], flag[1], nearest.DidYouMean(flag[0], names))
}

// execute runs a model once, whose files have size bytes; it is a verify.Executor
// with the flags bound.
func execute(ctx context.Context, c *cli.Context, m *popef.Model, size int64, inputs map[string][]byte) (outputs map[string][]byte, err error) {
	d, err := openDynamic(c, m, size, nil)
	if err != nil {
		return nil, err
	}
	return d.execute(ctx, inputs)
}

// executeOnCPU is execute by the default engine, whatever the flags say.
func executeOnCPU(ctx context.Context, m *popef.Model, size int64, inputs map[string][]byte) (map[string][]byte, error) {
	opts := []modelrt.SessionOption{rt.WithBackend(cpu.Name)}
	for _, o := range boundWork(cpu.Name, m, size) {
		opts = append(opts, rt.WithEngineOption(o.Name, o.Value))
	}
	d, err := openSession(ctx, m, nil, opts...)
	if err != nil {
		return nil, err
	}
	return d.execute(ctx, inputs)
}

// execute runs the model once, and closes it.
func (d *dynamic) execute(ctx context.Context, inputs map[string][]byte) (outputs map[string][]byte, err error) {
	defer func() {
		if e := d.close(); err == nil {
			err = e
		}
	}()
	for i := range d.inputs {
		p := &d.inputs[i]
		data, ok := inputs[p.anchor.Name]
		if !ok || len(data) != len(p.data) {
			return nil, fmt.Errorf("input %q: found %d bytes, want %d", p.anchor.Name, len(data), len(p.data))
		}
		copy(p.data, data)
	}
	if err := d.run(ctx); err != nil {
		return nil, err
	}
	outputs = map[string][]byte{}
	for _, p := range d.outputs {
		outputs[p.anchor.Name] = p.data
	}
	return outputs, nil
}
