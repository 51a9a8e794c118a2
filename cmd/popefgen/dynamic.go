package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// dynamic runs a model whose anchors are known only now.
type dynamic struct {
	session    rt.Session
	iterations int64
	inputs     []port
	outputs    []port
}

// port is a user's anchor with the memory of one run.
type port struct {
	anchor contract.Anchor
	data   []byte
	given  bool
}

// openDynamic opens a model, whose files have size bytes, as engineFlags say.
func openDynamic(c *cli.Context, m *popef.Model, size int64) (*dynamic, error) {
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
	s, err := modelrt.NewSession(c.Context, m, opts...)
	if err != nil {
		return nil, err
	}
	d := &dynamic{session: s, iterations: int64(s.DeviceIterations())}
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
		if err := d.connect(&d.outputs, a); err != nil {
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
	*to = append(*to, port{anchor: a, data: b.Bytes()})
	return d.session.Connect(context.Background(), a.Handle, b)
}

func (d *dynamic) run(ctx context.Context) error { return d.session.Run(ctx) }

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
	d, err := openDynamic(c, m, size)
	if err != nil {
		return nil, err
	}
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
