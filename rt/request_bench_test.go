package rt_test

import (
	"context"
	"testing"
	"time"

	"github.com/popefgen/popefgen/internal/mapfuture"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/rt"
)

// BenchmarkRequest compares ways to make a request to an engine that computes
// nothing: run inline in the caller's goroutine, submitted through the queue,
// handed to a goroutine over channels, and with the design that finds tensors
// by name, queues behind a mutex and answers with a future. They take turns;
// the best times count, and their ratios mean more than they do.
func BenchmarkRequest(b *testing.B) {
	ctx := context.Background()
	r := noop(b).open(b)
	in, out := NewInputs(), NewOutputs()
	sizes, given, answers := map[string]int{}, mapfuture.Tensors{}, map[string]int{}
	for _, a := range append(r.Session().UserInputs(), r.Session().UserOutputs()...) {
		size, err := a.Info.SizeInBytes()
		if err != nil {
			b.Fatal(err)
		}
		switch a.Role {
		case rt.RunInput:
			sizes[a.Name], given[a.Name] = int(size), make([]byte, size)
		case rt.RunOutput:
			answers[a.Name] = int(size)
		}
	}
	usual := mapfuture.New(sizes, answers, func(_, _ mapfuture.Tensors) {})
	b.Cleanup(usual.Close)
	there, back := make(chan struct{}), make(chan struct{})
	go func() {
		for range there {
			back <- struct{}{}
		}
	}()
	b.Cleanup(func() { close(there) })

	const batch = 200
	names := []string{"inline-ns", "submitted-ns", "channel-ns", "map-and-future-ns"}
	var runners []measure.Runner
	for _, one := range []func() error{
		func() error { return r.Run(ctx, in, out) },
		func() error {
			ticket, err := r.Submit(in, out)
			if err != nil {
				return err
			}
			return ticket.Wait(ctx)
		},
		func() error {
			there <- struct{}{}
			<-back
			return nil
		},
		func() error {
			_, err := usual.Execute(given).Wait()
			return err
		},
	} {
		runners = append(runners, measure.Runner{Batch: batch, Run: func() error {
			for range batch {
				if err := one(); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	var best []measure.Series
	for b.Loop() {
		got, err := measure.Interleave(measure.Config{Rounds: 1, Slice: time.Millisecond}, runners...)
		if err != nil {
			b.Fatal(err)
		}
		if best == nil {
			best = make([]measure.Series, len(got))
		}
		for i := range got {
			best[i].Batch = got[i].Batch
			best[i].Rounds = append(best[i].Rounds, got[i].Rounds...)
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, name := range names {
		b.ReportMetric(best[i].Best(), name)
	}
	b.ReportMetric(best[0].Best()/best[2].Best(), "inline/channel")
	b.ReportMetric(best[0].Best()/best[3].Best(), "inline/map-and-future")
}
