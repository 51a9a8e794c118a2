package bench

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Target is a model and how it is to be run.
type Target struct {
	Files   []string // PopEF files, linked to one model
	Bytes   []byte   // a PopEF file in memory, if there are no Files
	Name    string   // of Bytes, for messages
	Backend string
	Threads int          // at least 1
	Options []ipu.Option // of the engine, beside Threads
	Inputs  []Input      // of every run, in the contract's order
	Given   []Input      // what is given once: weights and seeds without data
}

// Input is the data of an input: of one request, or of several that take turns.
type Input struct {
	Anchor   contract.Anchor
	Requests [][]byte // each as long as all device iterations of a run need
}

// Model opens the model, which the caller closes, until ctx is done.
func (t *Target) Model(ctx context.Context) (*popef.Model, error) {
	if len(t.Files) > 0 {
		return popef.LoadContext(ctx, t.Files...)
	}
	return popef.LoadBytes(t.Name, t.Bytes)
}

// options are those of the runtime that every way of running has.
func (t *Target) options() []rt.Option {
	o := []rt.Option{rt.WithBackend(t.Backend), rt.WrapFeeds()}
	if t.Backend == "cpu" {
		o = append(o, rt.WithThreads(t.Threads))
	}
	for _, e := range t.Options {
		o = append(o, rt.WithEngineOption(e.Name, e.Value))
	}
	for _, in := range t.Given {
		o = append(o, rt.WithData(in.Anchor.Handle, in.Requests[0]))
	}
	return o
}

// sessionOptions are options and more of a session.
func (t *Target) sessionOptions(more ...modelrt.SessionOption) []modelrt.SessionOption {
	var all []modelrt.SessionOption
	for _, o := range t.options() {
		all = append(all, o)
	}
	return append(all, more...)
}

// session opens the model and a session of it, which together are closed.
func (t *Target) session(ctx context.Context, opts ...modelrt.SessionOption) (rt.Session, func() error, error) {
	m, err := t.Model(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := modelrt.NewSession(ctx, m, t.sessionOptions(opts...)...)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return s, func() error {
		err := s.Close()
		if e := m.Close(); err == nil {
			err = e
		}
		return err
	}, nil
}

// contract reads what the model and a program agree on.
func (t *Target) contract() (contract.Contract, error) {
	m, err := t.Model(context.Background())
	if err != nil {
		return contract.Contract{}, err
	}
	defer m.Close()
	return contract.Of(m), nil
}

func (t *Target) base() string {
	if len(t.Files) > 0 {
		return filepath.Base(t.Files[0])
	}
	return t.Name
}

// outputs returns the anchors that every run delivers.
func outputs(c contract.Contract) []contract.Anchor {
	var out []contract.Anchor
	for _, a := range c.Anchors {
		if a.Role == contract.RunOutput {
			out = append(out, a)
		}
	}
	return out
}

// runBytes returns the bytes of an anchor in all device iterations of a run.
func runBytes(c contract.Contract, a contract.Anchor) (int, error) {
	n, err := transferBytes(a)
	return n * c.Transfers(&a), err
}

func transferBytes(a contract.Anchor) (int, error) {
	n, err := a.Info.SizeInBytes()
	if err != nil {
		return 0, fmt.Errorf("anchor %q: %w", a.Name, err)
	}
	return int(n) * int(max(1, a.Repeats)), nil
}

// memories allocates the memory of one request's outputs.
func memories(c contract.Contract) ([][]byte, error) {
	var out [][]byte
	for _, a := range outputs(c) {
		n, err := runBytes(c, a)
		if err != nil {
			return nil, err
		}
		out = append(out, make([]byte, n))
	}
	return out, nil
}

// turns gives requests their data in turn. One client uses it.
type turns struct {
	inputs []Input
	at     int
}

// next fills in the inputs' data of the next request.
func (t *turns) next(in [][]byte) {
	for i := range t.inputs {
		r := t.inputs[i].Requests
		in[i] = r[t.at%len(r)]
	}
	t.at++
}
