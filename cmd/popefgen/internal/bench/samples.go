package bench

import (
	"context"
	"slices"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// openSamples opens a runner whose requests are samples. Which part of every
// tensor a sample is, the generator decides as it does for generated code.
func (t *Target) openSamples(ctx context.Context, c Config) (*driver, error) {
	m, err := t.Model(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := gen.Build(m, gen.Options{ModelBase: t.base(), Package: "model", BatchDim: &c.BatchDim})
	m.Close()
	if err != nil {
		return nil, err
	}
	blocks := map[string]int{} // by handle
	for _, f := range slices.Concat(plan.Inputs, plan.Outputs) {
		blocks[plan.Contract.Fields[f.Anchor].Stream] = int(plan.Tensors[f.Tensor].Blocks)
	}
	batching := rt.WithBatching(rt.BatchPolicy{Linger: c.Linger})
	r, err := t.openCore(ctx, 1, func(spec *genrt.Spec) {
		spec.Batch = int(plan.BatchSize)
		for i := range spec.Anchors {
			spec.Anchors[i].Blocks = blocks[spec.Anchors[i].Handle]
		}
	}, batching, rt.WithReplicas(c.Replicas))
	if err != nil {
		return nil, err
	}
	d := &driver{samples: c.Samples, close: r.core.Close}
	batch := int(plan.BatchSize)
	var in []sampled
	for _, input := range t.Inputs {
		in = append(in, input.samples(batch, blocks[input.Anchor.Handle], r.contract.DeviceIterations(), c.Samples))
	}
	for i := range c.Clients {
		s := &sampler{ctx: ctx, core: &r.core, in: in, n: c.Samples, at: i * c.Samples}
		for _, a := range outputs(r.contract) {
			size, err := transferBytes(a)
			if err == nil {
				var out genrt.Samples
				out, err = genrt.RawSamples(make([]byte, size/batch*c.Samples), c.Samples)
				s.out = append(s.out, out)
			}
			if err != nil {
				r.core.Close()
				return nil, err
			}
		}
		s.all = make([]genrt.Samples, len(in)+len(s.out))
		d.clients = append(d.clients, s)
	}
	return d, nil
}

// sampled is an input's data as one sample behind the other.
type sampled struct {
	data  []byte
	bytes int // of a sample
	n     int
}

// samples puts the samples of all an input's requests behind each other, as
// often as it takes to have that many at least.
func (in *Input) samples(batch, blocks, iterations, atLeast int) sampled {
	transfer := len(in.Requests[0]) / iterations
	s := sampled{bytes: transfer / batch}
	part := s.bytes / blocks
	for {
		for _, r := range in.Requests {
			for i := range iterations * batch {
				base := i/batch*transfer + i%batch*part
				for b := range blocks {
					s.data = append(s.data, r[base+b*batch*part:][:part]...)
				}
				s.n++
			}
		}
		if s.n >= atLeast {
			return s
		}
	}
}

// sampler is a client that calls RunSamples.
type sampler struct {
	ctx  context.Context
	core *genrt.Core
	in   []sampled
	out  []genrt.Samples
	all  []genrt.Samples
	n    int // samples in a request
	at   int
}

func (c *sampler) start(int) error {
	for i := range c.in {
		in := &c.in[i]
		from := c.at % (in.n - c.n + 1)
		s, err := genrt.RawSamples(in.data[from*in.bytes:(from+c.n)*in.bytes], c.n)
		if err != nil {
			return err
		}
		c.all[i] = s
	}
	c.at += c.n
	copy(c.all[len(c.in):], c.out)
	return c.core.RunSamples(c.ctx, rt.LeastBusy, c.all...)
}

func (c *sampler) finish(int) error { return nil }
