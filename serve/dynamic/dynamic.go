// Package dynamic makes models of files that package serve serves, without generated code: of a PopEF file, of a
// model in memory, or of an ONNX model that is compiled when it is opened. What a generated package knows as Go types is
// learnt here from the file: the model is the generated one over bytes.
package dynamic

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/serve/oip"
)

// ErrUnserved marks every error by which [Open] refuses a model that is fit for other uses, but can not be served.
var ErrUnserved = errors.New("the model can not be served")

// options are what the options of Open say.
type options struct {
	name     string
	replicas int // 0: as many as cores, of one thread
	threads  int // of each replica, 0: one, or all of a single replica
	batchDim *int
	batching rt.BatchPolicy
	labels   map[string][]string
	runner   []rt.RunnerOption
	compile  Compile
	copy     bool
}

// Option is an option of [Open].
type Option func(*options) error

// WithName names the model; without it the base name of its file does, without its ending.
func WithName(name string) Option {
	return func(o *options) error { o.name = name; return nil }
}

// WithReplicas sets how many requests, or batches of samples, are computed at the same time. All replicas
// share the weights. Without it, or with 0, there are as many as the process may use cores, of one thread each.
func WithReplicas(n int) Option {
	return func(o *options) error {
		if n < 0 {
			return fmt.Errorf("found %d replicas, want at least 1, or 0 for one on each core", n)
		}
		o.replicas = n
		return nil
	}
}

// WithThreads sets how many threads compute a request. Without it, or with 0, one does; a single replica takes all
// cores.
func WithThreads(n int) Option {
	return func(o *options) error {
		if n < 0 {
			return fmt.Errorf("found %d threads, want at least 1", n)
		}
		o.threads = n
		return nil
	}
}

// WithBatchDim says that the first dimension of all inputs and outputs counts samples, for executables of which that can not be
// proven: it is the caller's word then. Executables of popefgen are proven without it. It is refused where it is proven wrong.
func WithBatchDim() Option {
	return func(o *options) error { o.batchDim = new(int); return nil }
}

// WithBatching says how long samples wait for those of other callers.
func WithBatching(p rt.BatchPolicy) Option {
	return func(o *options) error { o.batching = p; return nil }
}

// WithLabels gives the names of the classes along the last axis of an output, for the extension "classification".
func WithLabels(output string, labels []string) Option {
	return func(o *options) error {
		if o.labels == nil {
			o.labels = map[string][]string{}
		}
		o.labels[output] = labels
		return nil
	}
}

// WithRunner hands options to the runtime. Those that set replicas, threads and batching are overruled.
func WithRunner(opts ...rt.RunnerOption) Option {
	return func(o *options) error { o.runner = append(o.runner, opts...); return nil }
}

// Open opens the model of a file, or of several PopEF files that make one model: PopEF, or an .onnx model, which is
// compiled for the sizes of [WithCompile]. Errors name the file.
func Open(ctx context.Context, paths []string, opts ...Option) (*Model, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errors.New("no model file is given")
	}
	if o.name == "" {
		o.name = baseName(paths[0])
	}
	ctx = counted(ctx)
	if strings.EqualFold(filepath.Ext(paths[0]), ".onnx") {
		return openONNX(ctx, paths, o)
	}
	read, source := popef.LoadContext, []rt.RunnerOption{rt.WithModelFile(paths...)}
	if o.copy {
		read, source = popef.LoadCopyContext, append(source, rt.WithPrivateCopy())
	}
	return open(ctx, func() (*popef.Model, error) { return read(ctx, paths...) }, source, o)
}

// baseName returns the name of a file without folder and ending.
func baseName(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// OpenBytes opens a PopEF model in memory, which must not change until the model is shut down.
func OpenBytes(ctx context.Context, name string, data []byte, opts ...Option) (*Model, error) {
	o, err := optionsOf(append([]Option{WithName(name)}, opts...))
	if err != nil {
		return nil, err
	}
	return openBytes(counted(ctx), data, o)
}

// counted returns ctx with the budget of the model. Reading, deciding and running would each make their own else, and ask the system for its
// memory each time, which takes longer than deciding.
func counted(ctx context.Context) context.Context {
	return budget.Into(ctx, budget.From(ctx))
}

func openBytes(ctx context.Context, data []byte, o *options) (*Model, error) {
	read := func() (*popef.Model, error) { return popef.LoadBytes(o.name+".popef", data) }
	return open(ctx, read, []rt.RunnerOption{rt.WithModelBytes(data)}, o)
}

func optionsOf(opts []Option) (*options, error) {
	o := &options{}
	for _, opt := range opts {
		if err := opt(o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// open opens the model that read returns. It is read once: what is decided about it and the runtime share it. The options of
// source say where it comes from.
func open(ctx context.Context, read func() (*popef.Model, error), source []rt.RunnerOption, o *options) (*Model, error) {
	m, err := read()
	if err != nil {
		return nil, err
	}
	s, err := shapeOf(ctx, m, o)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	replicas, threads := o.replicas, o.threads
	if replicas == 0 {
		replicas = runtime.GOMAXPROCS(0)
	}
	d, err := s.open(ctx, m, source, o, replicas, threads)
	if errors.Is(err, rt.ErrStateful) && o.replicas == 0 { // replicas would drift apart
		if m, err = read(); err != nil {
			return nil, err
		}
		return s.open(ctx, m, source, o, 1, threads)
	}
	return d, err
}

// Model is a model of a file. It is an [oip.Model].
type Model struct {
	shape    *shape
	core     *genrt.Core   // of a model of one size
	family   *genrt.Family // of one of several
	ports    [][]port      // of a model of one size that does not count samples: by replica, inputs and then outputs
	replicas int
}

var _ oip.Model = (*Model)(nil)

// port is a stream of a replica.
type port interface{ Bind(mem []byte) error }

// open opens the model m, which it takes over, with so many replicas.
func (s *shape) open(ctx context.Context, m *popef.Model, source []rt.RunnerOption, o *options, replicas, threads int) (*Model, error) {
	if threads == 0 && replicas > 1 {
		threads = 1
	}
	opts := append(append([]rt.RunnerOption{}, o.runner...), source...)
	opts = append(opts, rt.WithReplicas(replicas), rt.WithBatching(o.batching))
	if threads > 0 {
		opts = append(opts, rt.WithThreads(threads))
	}
	d := &Model{shape: s, replicas: replicas}
	if s.several {
		d.family = new(genrt.Family)
		d.core = &d.family.Core
		if err := d.family.OpenFamily(ctx, s.rt, genrt.Source{Model: m}, func() []genrt.Binding { return nil }, opts...); err != nil {
			return nil, err
		}
		return d, nil
	}
	d.core = new(genrt.Core)
	bindings := func() (all []genrt.Binding) {
		var of []port
		for i, a := range s.rt.Anchors {
			n := a.Bytes * s.rt.Iterations
			if a.Role == contract.RunInput {
				in := genrt.NewRawInput(n)
				of, all = append(of, in), append(all, genrt.Binding{Anchor: i, Stream: in})
			} else {
				out := genrt.NewRawOutput(n)
				of, all = append(of, out), append(all, genrt.Binding{Anchor: i, Stream: out})
			}
		}
		d.ports = append(d.ports, of)
		return all
	}
	if err := d.core.Open(ctx, s.rt, genrt.Source{Model: m}, bindings, nil, opts...); err != nil {
		return nil, err
	}
	return d, nil
}

// Spec returns what callers see of the model.
func (m *Model) Spec() *oip.Spec { return &m.shape.spec }

// Parallel returns how many requests are computed at the same time: as many as there are replicas, of a model that
// counts samples as many as fill their batches.
func (m *Model) Parallel() int { return m.replicas * max(1, m.shape.spec.Samples) }

// Config returns with what options the model was opened.
func (m *Model) Config() rt.Config { return m.core.Config() }

// Shutdown waits for requests under way and closes the model. If ctx ends first it closes at once and
// returns the error of ctx.
func (m *Model) Shutdown(ctx context.Context) error { return m.core.Shutdown(ctx) }
