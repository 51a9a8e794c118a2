package main

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/dynamic"
	grpcserve "github.com/popefgen/popefgen/serve/grpc"
	"github.com/popefgen/popefgen/serve/oip"
)

// Ours are servers with all that they do for a request by default: limits, checks, counts. Their model costs nothing: it
// answers with the memory that the request was read into, or with scores, as bare servers do.
func init() {
	servers["rest"] = serveREST(func() (oip.Model, error) { return echoModel, nil })
	servers["rest-image"] = serveREST(func() (oip.Model, error) { return imageModel, nil })
	servers["grpc"] = serveGRPC(echoModel)
	servers["grpc-image"] = serveGRPC(imageModel)
	servers["overload"] = serveREST(func() (oip.Model, error) { return slowModel, nil })
}

var (
	echoModel  = newModel([]int64{1, small}, []int64{1, small}, nil)
	imageModel = newModel([]int64{1, 3, 224, 224}, []int64{1, classes}, scores)
	slowModel  = func() *model {
		m := newModel([]int64{1, small}, []int64{1, small}, nil)
		m.parallel, m.time = slowParallel, slowTime
		return m
	}()
)

// The slow model takes its time without the processor, which the clients of an overload want for themselves.
const (
	slowParallel = 4
	slowTime     = 5 * time.Millisecond
)

func serveREST(open func() (oip.Model, error), with ...serve.Option) func(net.Listener) error {
	return func(l net.Listener) error {
		m, err := open()
		if err != nil {
			return err
		}
		s, err := serve.New(append(with, serve.WithModel(m), serve.WithHTTPListener(l))...)
		if err != nil {
			return err
		}
		return s.Run(context.Background())
	}
}

func serveGRPC(m oip.Model) func(net.Listener) error {
	return func(l net.Listener) error {
		s, err := serve.New(serve.WithModel(m))
		if err != nil {
			return err
		}
		if err := grpcserve.RegisterListener(s, l); err != nil {
			return err
		}
		return s.Run(context.Background())
	}
}

// digitsPrefix begins the names of servers of the example digits, compiled for the sizes that follow. All callers may have their requests computed: those that
// find no free replica gather in the model, which is what batches are made of.
const digitsPrefix = "digits="

var digitsFile = "../generated_examples/digits/digits.onnx"

func serveDigits(sizes string) func(net.Listener) error {
	return serveREST(func() (oip.Model, error) {
		return dynamic.Open(context.Background(), []string{digitsFile}, dynamic.WithName("echo"), dynamic.WithCompile(dynamic.Compile{Batch: sizes}))
	}, serve.WithLimits("", serve.Limits{Computing: slices.Max(familyCallers)}))
}

// model is a model whose answer is there before it is asked.
type model struct {
	spec     oip.Spec
	answer   []byte // nil: the input
	parallel int
	time     time.Duration
}

func newModel(in, out []int64, answer []byte) *model {
	return &model{spec: oip.Spec{Name: "echo",
		Inputs:  []oip.Tensor{{Name: "x", Type: oip.FP32, Shape: in}},
		Outputs: []oip.Tensor{{Name: "y", Type: oip.FP32, Shape: out}},
	}, answer: answer, parallel: 64}
}

func (m *model) Spec() *oip.Spec                { return &m.spec }
func (m *model) Parallel() int                  { return m.parallel }
func (m *model) Shutdown(context.Context) error { return nil }
func (m *model) NewCall() oip.Call {
	c := &call{model: m, in: make([]byte, m.spec.Inputs[0].MaxBytes()), out: m.answer}
	if c.out == nil {
		c.out = c.in
	}
	return c
}

type call struct {
	model   *model
	in, out []byte
}

func (c *call) Input(int, []int64) ([]byte, error) { return c.in, nil }

func (c *call) Run(context.Context) error {
	if c.model.time > 0 {
		time.Sleep(c.model.time)
	}
	return nil
}

func (c *call) Output(int) ([]byte, []int64) { return c.out, c.model.spec.Outputs[0].Shape }
