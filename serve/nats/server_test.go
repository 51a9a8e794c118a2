package natsserve

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// serveModels runs a server of models with a worker until the test ends.
func serveModels(t *testing.T, b *broker, models ...oip.Model) (stop func() error) {
	t.Helper()
	var opts []serve.Option
	for _, m := range models {
		opts = append(opts, serve.WithModel(m))
	}
	s, err := serve.New(opts...)
	require.NoError(t, err)
	w, err := NewWorker(s, b.connect(t), quick, nil)
	require.NoError(t, err)
	s.Register(w, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = func() error {
		cancel()
		err := <-done
		done <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// pair is a request to the model simple as a typed client makes it.
type pair struct{ in, out [2][]byte }

func (p *pair) Given(i int) ([]byte, []int64) { return p.in[i], []int64{1, testmodel.Elements} }
func (p *pair) Take(i int, _ []int64) ([]byte, error) {
	p.out[i] = make([]byte, 4*testmodel.Elements)
	return p.out[i], nil
}

func newPair() (p pair) {
	for i := range p.in {
		for k := range testmodel.Elements {
			p.in[i] = binary.LittleEndian.AppendUint32(p.in[i], uint32(k+i))
		}
	}
	return p
}

func (p *pair) check(t *testing.T) {
	t.Helper()
	for k := range testmodel.Elements {
		require.EqualValues(t, 2*k+1, binary.LittleEndian.Uint32(p.out[0][4*k:]))
		require.EqualValues(t, -1, int32(binary.LittleEndian.Uint32(p.out[1][4*k:])))
	}
}

// TestServer has a server's models compute jobs in every form that REST knows, and refuse what is not one.
func TestServer(t *testing.T) {
	b := newBroker(t)
	bytes := testmodel.Identity(oip.Uint8, 8, 3)
	serveModels(t, b, testmodel.Simple(), bytes)
	c := b.client(t, quick)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	t.Run("typed client", func(t *testing.T) {
		p := newPair()
		require.NoError(t, c.Infer(ctx, testmodel.Simple().Spec(), &p))
		p.check(t)
	})
	for _, j := range []struct {
		name   string
		job    Job
		answer string // the JSON of it
		bytes  string // and what follows
		code   oip.Code
		err    string
	}{
		{"JSON", Job{Model: "identity_UINT8", Header: -1, Body: []byte(`{"id":"7","inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[1,3],"data":[1,2,3]}]}`)},
			`{"id":"7","model_name":"identity_UINT8","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"UINT8","shape":[1,3],"data":[1,2,3]}]}`, "", 0, ""},
		{"binary", Job{Model: "identity_UINT8", Header: 129, Body: []byte(`{"parameters":{"binary_data_output":true},"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[2,3],"parameters":{"binary_data_size":6}}]}abcdef`)}, "", "abcdef", 0, ""},
		{"raw", Job{Model: "identity_UINT8", Header: 0, Body: []byte("abcdefghi")}, "", "abcdefghi", 0, ""},
		{"malformed", Job{Model: "identity_UINT8", Header: -1, Body: []byte(`{"inputs":[`)}, "", "", oip.InvalidArgument, "request"},
		{"no input", Job{Model: "simple", Header: -1, Body: []byte(`{"inputs":[]}`)}, "", "", oip.InvalidArgument, "expected 2 inputs but got 0 inputs for model 'simple'. Input 'INPUT0' is missing"},
		{"empty", Job{Model: "simple", Header: 0}, "", "", oip.InvalidArgument, ""},
	} {
		t.Run(j.name, func(t *testing.T) {
			j.job.ID = j.name
			if j.bytes != "" && j.job.Header > 0 {
				j.job.Header = len(j.job.Body) - len(j.bytes)
			}
			require.NoError(t, c.Submit(ctx, &j.job))
			a, err := c.Await(ctx, j.name)
			if j.answer == "" && j.bytes == "" {
				var e *oip.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, j.code, e.Code)
				require.ErrorContains(t, err, j.err)
				return
			}
			require.NoError(t, err)
			if j.bytes == "" {
				require.Equal(t, -1, a.Header)
				require.JSONEq(t, j.answer, string(a.Body))
				return
			}
			require.True(t, json.Valid(a.Body[:a.Header]), "%s", a.Body)
			require.Equal(t, j.bytes, string(a.Body[a.Header:]))
		})
	}
}

// TestContract has clients of other contracts: one whose model the server's has all of, and one that relies on more.
func TestContract(t *testing.T) {
	b := newBroker(t)
	with := func(fields string) *testmodel.Model {
		m := testmodel.Simple()
		m.Described.Contract = "popefgen contract 2\niterations 1\n" + fields
		return m
	}
	const x, y, z = "input \"INPUT0\" S32 [1 16]\n", "output \"OUTPUT0\" S32 [1 16]\n", "output \"OUTPUT1\" S32 [1 16]\n"
	serveModels(t, b, with(x+y+z))
	c := b.client(t, quick)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p := newPair()
	less := with(x + y).Spec()
	for range 2 {
		require.NoError(t, c.Infer(ctx, less, &p))
		p.check(t)
	}
	_, jobs := state(t, c, "JOBS")
	require.Equal(t, 3, jobs, "the second request was to know the server's contract")
	var e *oip.Error
	require.ErrorAs(t, c.Infer(ctx, with(x+y+z+"output \"OUTPUT2\" S32 [1 16]\n").Spec(), &p), &e)
	require.Equal(t, oip.FailedPrecondition, e.Code)
	require.Contains(t, e.Text, "OUTPUT2")
	_, dead := state(t, c, "DEAD")
	require.Zero(t, dead)
}

// TestDeviceFault has a model fail twice: the third try answers.
func TestDeviceFault(t *testing.T) {
	b := newBroker(t)
	m := testmodel.Simple()
	m.Before = func(context.Context) error {
		if n := m.Runs.Load(); n == 2 || n == 3 { // 1 is the warm-up
			return errors.New("device lost")
		}
		return nil
	}
	serveModels(t, b, m)
	c := b.client(t, quick)
	p := newPair()
	require.NoError(t, c.Infer(t.Context(), m.Spec(), &p))
	p.check(t)
}

// TestServerStops stops a server while its worker computes: the job is answered, and the model closed after it.
func TestServerStops(t *testing.T) {
	b := newBroker(t)
	m := testmodel.Simple()
	begun := make(chan struct{})
	m.Before = func(context.Context) error {
		if m.Runs.Load() == 1 { // the warm-up
			return nil
		}
		close(begun)
		time.Sleep(200 * time.Millisecond)
		if m.Closed.Load() {
			return errors.New("closed while it computed")
		}
		return nil
	}
	stop := serveModels(t, b, m)
	c := b.client(t, quick)
	p := newPair()
	answered := make(chan error, 1)
	go func() { answered <- c.Infer(t.Context(), m.Spec(), &p) }()
	<-begun
	require.NoError(t, stop())
	require.NoError(t, <-answered)
	p.check(t)
	require.True(t, m.Closed.Load())
	settled(t, c, 1)
}

// TestDeadline has a caller whose time is over before a worker comes: it learns so, and the job is not computed.
func TestDeadline(t *testing.T) {
	b := newBroker(t)
	m := testmodel.Simple()
	c := b.client(t, quick)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	p := newPair()
	var e *oip.Error
	require.ErrorAs(t, c.Infer(ctx, m.Spec(), &p), &e)
	require.Equal(t, oip.Deadline, e.Code)
	serveModels(t, b, m)
	require.Eventually(t, func() bool { _, dead := state(t, c, "DEAD"); return dead == 1 }, time.Minute, 10*time.Millisecond)
	require.EqualValues(t, 1, m.Runs.Load(), "the warm-up")
}

func TestNewWorker(t *testing.T) {
	s, err := serve.New()
	require.NoError(t, err)
	_, err = NewWorker(s, new(nats.Conn), Config{AckWait: -1}, nil)
	require.ErrorContains(t, err, "AckWait is -1ns")
}
