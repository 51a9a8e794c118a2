// Package servetest has what the tests of generated packages call: servers of a model and transports to them, requests with
// inputs of every kind of element, and comparisons of what a server answers with what Run computes.
package servetest

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/client"
	"github.com/popefgen/popefgen/serve/genserve"
	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// Local returns a transport to a model of this process. It checks requests as a server does, and bytes are copied as if
// they had gone somewhere; it allocates nothing per request once it has memory.
func Local(m oip.Model) oip.Transport {
	hash, err := agree.Hash(m.Spec().Contract)
	l := &local{model: m, hash: hash, err: err}
	l.calls.New = func() any { return &localCall{Call: m.NewCall()} }
	return l
}

type local struct {
	model oip.Model
	hash  string
	err   error // of the model's contract
	calls sync.Pool
	agree agree.Client
}

type localCall struct {
	oip.Call
	wire.Request
	name, datatype []byte
}

func (l *local) Infer(ctx context.Context, spec *oip.Spec, x oip.Exchange) error {
	if l.err != nil {
		return l.err
	}
	for first := true; ; first = false {
		sent, err := l.agree.Hash(spec)
		if err != nil {
			return err
		}
		if err = agree.Check(l.model.Spec(), l.hash, sent); err == nil {
			return l.infer(ctx, spec, x)
		}
		if again, err := l.agree.Answer(spec, sent, err); !again || !first {
			return err
		}
	}
}

func (l *local) infer(ctx context.Context, spec *oip.Spec, x oip.Exchange) error {
	c := l.calls.Get().(*localCall)
	defer l.calls.Put(c)
	served := l.model.Spec()
	c.Request.Reset(served)
	for i := range spec.Inputs {
		data, shape := x.Given(i)
		c.name, c.datatype = append(c.name[:0], spec.Inputs[i].Name...), append(c.datatype[:0], spec.Inputs[i].Type.String()...)
		at, size, err := c.Request.Input(c.name, c.datatype, shape)
		if err != nil {
			return err
		}
		if size != len(data) {
			return oip.Errorf(oip.InvalidArgument, "input '%s' has %d bytes, and its shape makes %d", c.name, len(data), size)
		}
		mem, err := c.Call.Input(at, shape)
		if err != nil {
			return err
		}
		if copy(mem, data) != size || len(mem) != size {
			return fmt.Errorf("servetest: input '%s' has memory of %d bytes, want %d", c.name, len(mem), size)
		}
	}
	if err := c.Done(); err != nil {
		return err
	}
	if err := c.Run(ctx); err != nil {
		return err
	}
	for i := range spec.Outputs {
		for k := range served.Outputs {
			if served.Outputs[k].Name != spec.Outputs[i].Name {
				continue
			}
			data, shape := c.Call.Output(k)
			mem, err := x.Take(i, shape)
			if err != nil {
				return err
			}
			if copy(mem, data) != len(data) || len(mem) != len(data) {
				return fmt.Errorf("servetest: output '%s' has memory of %d bytes, and its shape %d makes %d", spec.Outputs[i].Name, len(mem), shape, len(data))
			}
		}
	}
	return nil
}

func (l *local) Close() error { return nil }

// REST returns a transport to a server of the model, which answers until the test ends.
func REST(t testing.TB, m oip.Model) oip.Transport {
	t.Helper()
	s, err := serve.New(serve.WithModel(m))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	transport, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := transport.Close(); err != nil {
			t.Error(err)
		}
	})
	return transport
}

// Runs computes a request: the Run of a Runner, or of a Client.
type Runs[In, Out any] func(ctx context.Context, in *In, out *Out) error

// Same fills a request's inputs, lets Run and a server compute it, and fails the test unless the outputs are the same
// bits. Requests that the model refuses must be refused there too.
func Same[In, Out any](t testing.TB, p *genserve.Package[In, Out], in *In, newOut func() *Out, here, there Runs[In, Out]) {
	t.Helper()
	ctx := context.Background()
	n := len(p.Spec.Inputs) + len(p.Spec.Outputs)
	mine, theirs, a, b := make([]genrt.View, n), make([]genrt.View, n), newOut(), newOut()
	p.Views(in, a, mine)
	for i := range p.Spec.Inputs {
		data, _ := p.Tensor(i, mine[i])
		Fill(&p.Spec.Inputs[i], data)
	}
	errHere, errThere := here(ctx, in, a), there(ctx, in, b)
	if (errHere == nil) != (errThere == nil) {
		t.Fatalf("Run returns the error %v, and the client %v", errHere, errThere)
	}
	if errHere != nil {
		t.Skip("the model computes nothing of the inputs that tests have: ", errHere)
	}
	p.Views(in, a, mine)
	p.Views(in, b, theirs)
	for i := range p.Spec.Outputs {
		k := i + len(p.Spec.Inputs)
		want, shape := p.Tensor(k, mine[k])
		got, shapeGot := p.Tensor(k, theirs[k])
		if fmt.Sprint(shape) != fmt.Sprint(shapeGot) || !bytes.Equal(want, got) {
			t.Errorf("output %q of the server is %v with %d bytes %x…, and that of Run %v with %d bytes %x…",
				p.Spec.Outputs[i].Name, shapeGot, len(got), head(got), shape, len(want), head(want))
		}
	}
}

func head(data []byte) []byte { return data[:min(len(data), 32)] }

// Fill writes small numbers into the memory of a tensor: floating-point ones that are not the same, and whole ones
// that are 0, since they may be indices.
func Fill(t *oip.Tensor, data []byte) {
	clear(data)
	for i := 0; i+t.Type.Size() <= len(data); i += max(1, t.Type.Size()) {
		top := data[i : i+t.Type.Size()]
		switch t.Type {
		case oip.FP16, oip.BF16, oip.FP32, oip.FP64: // little-endian: ±1.x or ±1.xx
			top[len(top)-1], top[len(top)-2] = 0x3f|byte(i%3/2)<<7, 0x80|byte(i/len(top)*7%64)
			if t.Type == oip.FP64 {
				top[len(top)-2] |= 0xf0
			}
			if t.Type == oip.FP16 {
				top[len(top)-1] = 0x3c
			}
		}
	}
}

// AllocatesNothing fails the test if requests to the model allocate, beside what a request's first use of its memory takes.
func AllocatesNothing(t testing.TB, m oip.Model) {
	t.Helper()
	ctx, c, spec := context.Background(), m.NewCall(), m.Spec()
	shapes := make([][]int64, len(spec.Inputs))
	for i := range spec.Inputs {
		for a := range spec.Inputs[i].Shape {
			shapes[i] = append(shapes[i], spec.Inputs[i].Largest(a))
		}
	}
	var refused error // by the model: a value of zero is not one that it takes
	request := func() {
		for i := range spec.Inputs {
			if _, err := c.Input(i, shapes[i]); err != nil {
				t.Fatalf("input %q of its largest shape %v: %v", spec.Inputs[i].Name, shapes[i], err)
			}
		}
		if err := c.Run(ctx); err != nil {
			refused = err
			return
		}
		for i := range spec.Outputs {
			if data, _ := c.Output(i); int64(len(data)) > spec.Outputs[i].MaxBytes() {
				t.Fatalf("output %q has %d bytes, want at most %d", spec.Outputs[i].Name, len(data), spec.Outputs[i].MaxBytes())
			}
		}
	}
	request()
	if refused != nil {
		t.Skip("the model computes nothing of zeros: ", refused)
	}
	if n := testing.AllocsPerRun(5, request); n != 0 {
		t.Errorf("a request allocates %v times", n)
	}
}
