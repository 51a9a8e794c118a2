package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/peer/onnxruntime"
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/bench/spsc"
	"github.com/popefgen/popefgen/bench/synth"
	"github.com/popefgen/popefgen/internal/mapfuture"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/ring"
)

// The empty program takes so many float32 and answers with so many, which do
// not depend on them.
const (
	emptyInputs  = 784
	emptyOutputs = 10
)

// pathResult is what one way to make a request costs.
type pathResult struct {
	name string
	measure.Series
	allocations float64 // a request
}

// Ways to make a request, in the table's order.
const (
	inline = iota
	submitted
	ringParking
	ringSpinning
	queuesC
	channel
	mapReused
	mapFresh
	ortEmpty
)

// requests measures what a request costs besides computing, over every path.
func requests(cfg measure.Config) (_ []pathResult, err error) {
	c, err := synthetic("empty", func(m *synth.Model) {
		m.Input("x", emptyInputs)
		m.Output(m.Weights(1, emptyOutputs), emptyOutputs)
	})
	if err != nil {
		return nil, err
	}
	own, err := openEmpty(c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.core.Close()) }()
	peer, err := onnxruntime.Engine{}.Open(c, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, peer.Close()) }()
	parking, stop, err := rings(0)
	if err != nil {
		return nil, err
	}
	defer stop()
	ask, stop := channels()
	defer stop()
	out := c.Outputs[0].Name
	usual := mapfuture.New(map[string]int{"x": 4 * emptyInputs}, map[string]int{out: 4 * emptyOutputs}, func(_, _ mapfuture.Tensors) {})
	defer usual.Close()
	x := mapfuture.Tensors{"x": c.Inputs[0].Data}

	results := make([]pathResult, ortEmpty+1)
	runners := make([]measure.Runner, len(results))
	for i, p := range []struct {
		name string
		run  func() error
	}{
		inline:       {"popefgen, Run: inline in the caller's goroutine", own.run},
		submitted:    {"popefgen, Submit and Wait: through the ring of requests", own.submit},
		ringParking:  {"two rings of package rt and a goroutine that answers, both park", parking},
		ringSpinning: {"the same, neither ever parks", nil},
		queuesC:      {"two queues in C and a thread that answers, after rigtorp's SPSCQueue, neither ever sleeps", nil},
		channel:      {"two channels and a goroutine that answers", ask},
		mapReused: {"maps by name, queue, future; the input's map reused", func() error {
			_, err := usual.Execute(x).Wait()
			return err
		}},
		mapFresh: {"maps by name, queue, future; the input in a new map", func() error {
			in := append(make([]byte, 0, 4*emptyInputs), c.Inputs[0].Data...)
			_, err := usual.Execute(mapfuture.Tensors{"x": in}).Wait()
			return err
		}},
		ortEmpty: {"ONNX Runtime, session with an empty graph", peer.Run},
	} {
		results[i].name = p.name
		runners[i] = repeated(p.run, 200)
		switch i {
		case ringSpinning:
			runners[i] = spinning(spinningTrips)
		case queuesC:
			runners[i] = measure.Runner{Batch: spinningTrips, Run: func() error { return spsc.RoundTrips(spinningTrips, ringSize) }}
		}
		if results[i].allocations, err = allocations(runners[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	series, err := measure.Interleave(cfg, runners...)
	if err != nil {
		return nil, err
	}
	for i := range results {
		results[i].Series = series[i]
	}
	return results, nil
}

// emptyRunner is what a generated Runner of the empty program is, but for the
// check that there is memory at all.
type emptyRunner struct {
	ctx  context.Context
	core genrt.Core
	x    genrt.Input[[emptyInputs]float32]
	y    genrt.Output[[emptyOutputs]float32]
	in   *[emptyInputs]float32
	out  *[emptyOutputs]float32
}

func openEmpty(c *peer.Case) (*emptyRunner, error) {
	spec, err := popefgen.Spec(c)
	if err != nil {
		return nil, err
	}
	r := &emptyRunner{ctx: context.Background(), in: new([emptyInputs]float32), out: new([emptyOutputs]float32)}
	bindings := make([]genrt.Binding, len(spec.Anchors))
	for i, a := range spec.Anchors {
		bindings[i] = genrt.Binding{Anchor: i, Stream: &r.x}
		if a.Role == genrt.RunOutput {
			bindings[i].Stream = &r.y
		}
	}
	return r, r.core.Open(r.ctx, spec, genrt.Source{Name: c.Name, Bytes: c.PopEF}, func() []genrt.Binding { return bindings },
		func(replica, _ int) {
			if replica >= 0 {
				r.bind()
			}
		}, rt.WithThreads(1))
}

func (r *emptyRunner) bind() {
	r.x.Bind(r.in)
	r.y.Bind(r.out)
}

func (r *emptyRunner) run() error {
	replica, err := r.core.Begin(r.ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	r.bind()
	return r.core.Main(r.ctx, replica)
}

func (r *emptyRunner) submit() error {
	slot, err := r.core.Reserve(r.ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	return r.core.Enqueue(r.ctx, slot, rt.LeastBusy).Wait(r.ctx)
}

// allocations returns how many heap allocations of Go an operation makes.
func allocations(r measure.Runner) (float64, error) {
	if err := r.Run(); err != nil { // warms up
		return 0, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := r.Run()
	runtime.ReadMemStats(&after)
	return math.Floor(float64(after.Mallocs-before.Mallocs) / float64(r.Batch)), err
}

// repeated is a contestant whose runs make so many requests.
func repeated(ask func() error, batch int) measure.Runner {
	return measure.Runner{Batch: batch, Run: func() error {
		for range batch {
			if err := ask(); err != nil {
				return err
			}
		}
		return nil
	}}
}

// Rings and queues have places for so many values. Spinning sides make so many
// round trips a run, which outweigh the start of the one that answers.
const (
	ringSize      = 4
	spinningTrips = 20_000
)

// spinning is a contestant with rings of whose sides none parks. The goroutine
// that answers is there for a run at a time, or it would spin while others are
// measured.
func spinning(batch int) measure.Runner {
	const never = 1 << 30
	return measure.Runner{Batch: batch, Run: func() error {
		ask, stop, err := rings(never)
		if err != nil {
			return err
		}
		defer stop()
		return repeated(ask, batch).Run()
	}}
}

// rings returns a request that goes to another goroutine and back through two
// rings, both of whose sides look that often before they park.
func rings(spins int) (ask func() error, stop func(), err error) {
	ctx := context.Background()
	caller, server := ring.NewSpinner(spins), ring.NewSpinner(spins)
	there, err := ring.New(ring.Config[int]{Size: ringSize, Producer: caller, Consumer: server})
	if err != nil {
		return nil, nil, err
	}
	back, err := ring.New(ring.Config[int]{Size: ringSize, Producer: server, Consumer: caller})
	if err != nil {
		return nil, nil, err
	}
	go func() {
		for {
			v, err := there.ReadLock(ctx)
			if err != nil {
				return
			}
			if back.Write(ctx, *v) != nil || there.ReadComplete() != nil {
				return
			}
		}
	}()
	return func() error {
		if err := there.Write(ctx, 1); err != nil {
			return err
		}
		if _, err := back.ReadLock(ctx); err != nil {
			return err
		}
		return back.ReadComplete()
	}, there.Invalidate, nil
}

// channels returns a request that goes to another goroutine and back through
// two channels.
func channels() (ask func() error, stop func()) {
	there, back := make(chan int, ringSize), make(chan int, ringSize)
	go func() {
		for v := range there {
			back <- v
		}
	}()
	return func() error {
		there <- 1
		<-back
		return nil
	}, func() { close(there) }
}

func requestTable(results []pathResult) string {
	t := report.NewTable("path of a request", "median, ns", "best, ns", "p99, ns", "allocations", "inline / this")
	for _, r := range results {
		ns := func(v float64) string { return report.Ratio(v) }
		t.Row(r.name, ns(r.Median()), ns(r.Best()), ns(r.P99()), fmt.Sprintf("%.0f", r.allocations), report.Ratio(results[inline].Median()/r.Median()))
	}
	return t.String()
}

// requestConfig is how long paths are measured, whose operations are short.
var requestConfig = measure.Config{Rounds: 7, Slice: 20 * time.Millisecond, Runs: 10, Pause: 2 * time.Millisecond}
