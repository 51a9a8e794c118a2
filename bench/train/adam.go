package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/bandwidth"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/optim"
)

const (
	adamWeights = 10_000_000
	adamBytes   = 28 // of a weight: itself, its gradient and two moments read, all but the gradient written
)

// measureAdam measures the update alone.
func measureAdam(o *options) (string, error) {
	table := report.NewTable("threads", "ms", "GB/s", "read, GB/s", "fraction")
	for _, threads := range o.threads() {
		row, err := o.adam(threads)
		if err != nil {
			return "", err
		}
		table.Row(row...)
	}
	return table.String(), nil
}

func (o *options) adam(threads int) (row []string, err error) {
	b := graph.NewBuilder("adam")
	t := graph.TensorType{DType: graph.F32, Shape: []int64{adamWeights}}
	w, g := b.AddPersistent("w", t), b.AddPersistent("g", t)
	update := b.BeginGraph("update")
	applied, err := optim.Apply(b, adam(), []optim.Weight{{Name: "w", Tensor: w, Gradient: g}}, optim.NewStep())
	if err != nil {
		return nil, err
	}
	rate := input{tensor{0x6f, 0x12, 0x83, 0x3a}} // 0.001
	var copies []graph.Step
	for _, in := range applied.Inputs {
		copies = append(copies, b.CopyIn(in.Name, in.Tensor))
	}
	b.AddProgram(0, "load", copies...)
	b.AddProgram(1, "main", b.Call(update))
	exe, err := b.Finish()
	if err != nil {
		return nil, err
	}
	var image bytes.Buffer
	if err := encoding.Encode(&image, exe); err != nil {
		return nil, err
	}
	e, err := cpu.New(ipu.EngineConfig{Name: "adam", Executable: image.Bytes(), Options: []ipu.Option{{Name: "threads", Value: fmt.Sprint(threads)}}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for _, s := range e.Streams() {
		if err := e.Connect(s.Handle, rate); err != nil {
			return nil, err
		}
	}
	ctx := context.Background()
	if err := load(ctx, e); err != nil {
		return nil, err
	}
	if err := e.Run(ctx, 0); err != nil {
		return nil, err
	}
	series := measure.Series{Batch: 1}
	read := 0.0
	for range o.rounds {
		times, err := o.turn(5, func() error { return e.Run(ctx, 1) })
		if err != nil {
			return nil, err
		}
		series.Rounds = append(series.Rounds, times)
		if !o.processorTime { // it goes by the clock
			read = max(read, bandwidth.Together(4*adamWeights*4, threads))
		}
	}
	if o.processorTime {
		read = math.NaN()
	}
	rateOf := adamBytes * adamWeights / series.Median() // bytes a nanosecond are GB/s
	return []string{fmt.Sprint(threads), milliseconds(series.Median()), report.Ratio(rateOf), report.Ratio(read / 1e9), report.Share(rateOf * 1e9 / read)}, nil
}

// load attaches a device and loads the engine.
func load(ctx context.Context, e *cpu.Engine) error {
	ds, err := (&ipu.Manager{}).Get(ctx, ipu.Request{Backend: cpu.Name})
	if err != nil {
		return err
	}
	if _, err := ds.Attach(); err != nil {
		return err
	}
	return e.Load(ctx, ds)
}

// blocks are the network that is computed again.
var blocks = network{"blocks", "", 16, 10, transformer(16, 12, 64)}

// measureRecompute compares memory, time and losses with parts of the forward pass computed again.
func measureRecompute(o *options) (_ string, err error) {
	ways := []autodiff.Recompute{autodiff.RecomputeNone, autodiff.RecomputeStandard}
	table := report.NewTable("recompute", "memory of a step, MB", "by none", "step, ms", "by none", "losses apart")
	var (
		learners []*learner
		losses   [2][]float64
		series   [2]measure.Series
	)
	for i, way := range ways {
		l, err := blocks.learner(way, 1)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		learners = append(learners, l)
		for range agreeing {
			if err := l.step(); err != nil {
				return "", err
			}
			losses[i] = append(losses[i], l.lossValue())
		}
	}
	first, err := o.turn(1, learners[0].step)
	if err != nil {
		return "", err
	}
	k := o.perTurn(first[0])
	for range o.rounds {
		for i, l := range learners {
			times, err := o.turn(k, l.step)
			if err != nil {
				return "", err
			}
			series[i].Batch, series[i].Rounds = 1, append(series[i].Rounds, times)
		}
	}
	arena := func(i int) float64 { return float64(learners[i].engine.MemoryReport().ArenaBytes) }
	for i, name := range []string{"none", "standard"} {
		table.Row(name, report.Ratio(arena(i)/1e6), report.Ratio(arena(i)/arena(0)), milliseconds(series[i].Median()), report.Ratio(series[i].Median()/series[0].Median()),
			apart(losses[i], losses[0]))
	}
	return table.String(), nil
}

// apart says how far losses are apart at most, or that they have equal bits.
func apart(a, b []float64) string {
	if slices.Equal(a, b) {
		return "equal bits"
	}
	most := 0.0
	for i := range a {
		most = max(most, math.Abs(a[i]-b[i]))
	}
	return fmt.Sprintf("%.1g", most)
}
