package golden_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	affine "github.com/popefgen/popefgen/golden/internal/affine/want"
	iterations "github.com/popefgen/popefgen/golden/internal/iterations/want"
	loadinputs "github.com/popefgen/popefgen/golden/internal/load_inputs/want"
	samples "github.com/popefgen/popefgen/golden/internal/samples/want"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// running runs the device side of queues until the end of the test.
func running(t *testing.T, q interface {
	Run(context.Context) error
	Close() error
}) {
	ran := make(chan error, 1)
	go func() { ran <- q.Run(ctx) }()
	t.Cleanup(func() { require.NoError(t, errors.Join(q.Close(), <-ran)) })
}

// TestQueues has many goroutines enqueue requests to the embedded model, and
// compares with a runner.
func TestQueues(t *testing.T) {
	r, err := affine.Open(ctx)
	require.NoError(t, err)
	closing(t, r)
	q, err := affine.OpenQueues(ctx, modelrt.QueueConfig{})
	require.NoError(t, err)
	running(t, q)
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			in, out, want := affine.NewInputs(), affine.NewOutputs(), affine.NewOutputs()
			for i := range 50 {
				in.X.Data = [2][3]float32{{float32(k), 0, 0}, {0, float32(i), 1}}
				ticket, err := q.Enqueue(ctx, in, out)
				if err == nil {
					err = errors.Join(ticket.Wait(ctx), r.Run(ctx, in, want))
				}
				if diff := cmp.Diff(want, out); err != nil || diff != "" {
					t.Errorf("%v\n%s", err, diff)
				}
			}
		})
	}
	all.Wait()
	in, out := affine.NewInputs(), affine.NewOutputs()
	_, err = q.Enqueue(ctx, &affine.Inputs{}, out)
	require.ErrorContains(t, err, `Inputs.X is nil: anchor "x"`)
	_, err = q.TryEnqueue(in, nil)
	require.ErrorIs(t, err, rt.ErrNilAnchor)
	require.Len(t, q.Manager().Inputs(), 1)

	ticket, err := q.TryEnqueue(in, out)
	require.NoError(t, err)
	require.NoError(t, q.Shutdown(ctx))
	require.NoError(t, ticket.Wait(ctx), "it was accepted")
	_, err = q.Enqueue(ctx, in, out)
	require.ErrorIs(t, err, modelrt.ErrDisconnected)

	var none affine.Queues
	_, err = none.Enqueue(ctx, in, out)
	require.ErrorIs(t, err, rt.ErrClosed)
	require.ErrorIs(t, errors.Join(none.Run(ctx), none.Flush()), rt.ErrClosed)
	for name, c := range map[string]struct {
		config modelrt.QueueConfig
		opts   []rt.RunnerOption
	}{
		"replicas": {modelrt.QueueConfig{}, []rt.RunnerOption{rt.WithReplicas(2)}},
		"batch":    {modelrt.QueueConfig{Batch: func(modelrt.Anchor) int { return 1 }}, nil},
		"ring":     {modelrt.QueueConfig{RingSize: func(modelrt.Anchor) int { return 0 }}, nil},
	} {
		_, err := affine.OpenQueues(ctx, c.config, c.opts...)
		require.ErrorIs(t, err, rt.ErrOption, name)
	}
}

// TestQueuesFrozen freezes the only input: requests are memory for outputs alone.
func TestQueuesFrozen(t *testing.T) {
	x := &affine.X{Data: [2][3]float32{{1, 0, 0}, {0, 1, 1}}}
	q, err := affine.OpenQueues(ctx, modelrt.QueueConfig{}, affine.FreezeX(x))
	require.NoError(t, err)
	running(t, q)
	out := affine.NewOutputs()
	ticket, err := q.Enqueue(ctx, &affine.Inputs{}, out)
	require.NoError(t, err)
	require.NoError(t, ticket.Wait(ctx))
	require.Equal(t, [2][2]float32{{1.5, 1.5}, {8.5, 9.5}}, out.Y.Data)
}

// TestQueuesOfSamples enqueues requests of all sizes, which share batches; what
// does not fill the last one is flushed.
func TestQueuesOfSamples(t *testing.T) {
	q, err := samples.OpenQueues(ctx, modelrt.QueueConfig{})
	require.NoError(t, err)
	running(t, q)
	type request struct {
		x     []samples.XSample
		z     []samples.ZSample
		y     []samples.YSample
		twice []samples.TwiceSample
	}
	var all []request
	var tickets []rt.Ticket
	for n := range 6 {
		r := request{make([]samples.XSample, n+1), make([]samples.ZSample, n+1), make([]samples.YSample, n+1), make([]samples.TwiceSample, n+1)}
		for i := range r.x {
			r.x[i].Data = [3]float32{float32(n), float32(i), 1}
			r.z[i].Data = float32(10*n + i)
		}
		ticket, err := q.EnqueueSamples(ctx, r.x, r.z, r.y, r.twice)
		require.NoError(t, err)
		all, tickets = append(all, r), append(tickets, ticket)
	}
	require.NoError(t, q.Flush())
	for n, r := range all {
		require.NoError(t, tickets[n].Wait(ctx))
		for i := range r.x {
			require.Equal(t, 2*r.z[i].Data, r.twice[i].Data)
			x := r.x[i].Data
			require.Equal(t, [2]float32{x[0] + 3*x[1] + 5, 2*x[0] + 4*x[1] + 6}, r.y[i].Data)
		}
	}
	require.EqualValues(t, 6, q.Manager().Inputs()[0].Enqueued()/samples.BatchSize, "21 samples in 6 batches")
	r := all[2]
	_, err = q.EnqueueSamples(ctx, r.x, r.z[1:], r.y, r.twice)
	require.ErrorIs(t, err, modelrt.ErrUnbalanced)
	if n := testing.AllocsPerRun(10, func() {
		ticket, err := q.EnqueueSamples(ctx, r.x, r.z, r.y, r.twice)
		if err = errors.Join(err, q.Flush(), ticket.Wait(ctx)); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("EnqueueSamples, Flush and Wait allocate %v times", n)
	}
}

// TestQueuesKeepState runs models that keep something from run to run, with
// several device iterations, and with memory given when the model is opened.
func TestQueuesKeepState(t *testing.T) {
	q, err := iterations.OpenQueues(ctx, write(t, "iterations", nil)[0], modelrt.QueueConfig{})
	require.NoError(t, err)
	running(t, q)
	in, saved := iterations.NewInputs(), iterations.NewSaveOutputs()
	for i := range in.X {
		in.X[i].Data = [2]float32{1, -10}
	}
	outs := []*iterations.Outputs{iterations.NewOutputs(), iterations.NewOutputs()}
	for _, out := range outs {
		ticket, err := q.Enqueue(ctx, in, out)
		require.NoError(t, err)
		require.NoError(t, ticket.Wait(ctx))
	}
	require.Equal(t, float32(4), outs[0].Y[3].Data[0])
	require.Equal(t, float32(5), outs[1].Y[0].Data[0])
	require.NoError(t, q.Save(ctx, saved))
	require.Equal(t, [2]float32{8, 20}, saved.Sum.Data)
	require.ErrorIs(t, q.Save(ctx, nil), rt.ErrNilAnchor)

	load := loadinputs.NewLoadInputs()
	load.W.Data = [3]float32{1, 2, 3}
	path := write(t, "load_inputs", nil)[0]
	_, err = loadinputs.OpenQueues(ctx, nil, path, modelrt.QueueConfig{})
	require.ErrorIs(t, err, rt.ErrNilAnchor)
	l, err := loadinputs.OpenQueues(ctx, load, path, modelrt.QueueConfig{})
	require.NoError(t, err)
	running(t, l)
	x, y := loadinputs.NewInputs(), loadinputs.NewOutputs()
	x.X.Data, x.Factor.Data = [3]float32{10, 20, 30}, 2
	ticket, err := l.Enqueue(ctx, x, y)
	require.NoError(t, err)
	require.NoError(t, ticket.Wait(ctx))
	require.Equal(t, [3]float32{22, 44, 66}, y.Y.Data)
}

// TestQueuesOfTwoPrograms opens a model whose main programs both read x: a queue
// would give each of them data of its own.
func TestQueuesOfTwoPrograms(t *testing.T) {
	paths := write(t, "affine", func(m *golden.Model) {
		m.Main, m.Programs[6] = []uint32{5, 6}, "Again"
		m.Executable.Compute[6] = []string{"y = matmul(x, w)"}
		for i := range 2 {
			m.Anchors[i].Programs = []uint32{5, 6}
		}
	})
	r, err := affine.Open(ctx, rt.WithModelFile(paths...))
	require.NoError(t, err)
	closing(t, r)
	_, err = affine.OpenQueues(ctx, modelrt.QueueConfig{}, rt.WithModelFile(paths...))
	require.ErrorIs(t, err, rt.ErrOption)
	require.ErrorContains(t, err, `anchor "x"`)
	require.ErrorContains(t, err, "2 main programs move it")
}
