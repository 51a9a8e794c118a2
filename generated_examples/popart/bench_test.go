package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/generated_examples/popart/learner"
	"github.com/popefgen/popefgen/generated_examples/popart/net"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/onnx/popart"
	"github.com/popefgen/popefgen/rt"
)

// BenchmarkStep measures a step of a session beside one of the package that was generated of the same model, in turns: 22 batches of 64 scans, one thread each.
func BenchmarkStep(b *testing.B) {
	ctx := b.Context()
	all, err := scans.Training()
	require.NoError(b, err)
	model, err := net.Model(ctx, 1)
	require.NoError(b, err)
	s, err := net.NewSession(ctx, model, &popart.Options{EngineOptions: map[string]string{"threads": "1"}})
	require.NoError(b, err)
	defer s.Close()
	require.NoError(b, s.PrepareDevice(ctx))
	require.NoError(b, s.WeightsFromHost(ctx))
	anchors := s.InitAnchorArrays()
	io := popart.Arrays(arrays(all[:net.Batches*net.Batch]), anchors)

	l, err := learner.Open(ctx, rt.WithThreads(1))
	require.NoError(b, err)
	defer l.Close()
	in, out := learner.NewInputs(), learner.NewOutputs()
	inputs(in, all)

	var series []measure.Series
	for b.Loop() {
		got, err := measure.Interleave(measure.Config{Rounds: 1, Slice: 20 * time.Millisecond},
			measure.Runner{Run: func() error { return s.Run(ctx, io) }},
			measure.Runner{Run: func() error { return l.Step(ctx, in, out) }})
		require.NoError(b, err)
		series = measure.Join(series, got)
	}
	session, typed := series[0].Median(), series[1].Median()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(session/1e3, "session-µs")
	b.ReportMetric(typed/1e3, "package-µs")
	b.ReportMetric(session/typed, "session/package")
}
