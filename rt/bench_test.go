package rt_test

import (
	"context"
	"testing"

	"github.com/popefgen/popefgen/rt"
)

// noop makes programs do nothing, so that a benchmark measures the runtime.
func noop(b *testing.B) variant {
	s := affineScript()
	s.instant = true
	return variant{"no-op", fakeName, file(b, affineMetadata(), register(b, s), affineData), s}
}

// BenchmarkRun measures a synchronous request.
func BenchmarkRun(b *testing.B) {
	ctx := context.Background()
	for _, v := range append(variants(b), noop(b)) {
		for name, opts := range map[string][]rt.Option{"": nil, "/timed": {rt.Timed()}} {
			b.Run(v.name+name, func(b *testing.B) {
				r := v.open(b, opts...)
				in, out := NewInputs(), NewOutputs()
				for b.Loop() {
					if err := r.Run(ctx, in, out); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSubmit measures a request that goes through the queue: one at a
// time, and with the queue kept full.
func BenchmarkSubmit(b *testing.B) {
	ctx := context.Background()
	v := noop(b)
	b.Run("one", func(b *testing.B) {
		r := v.open(b)
		in, out := NewInputs(), NewOutputs()
		for b.Loop() {
			ticket, err := r.Submit(in, out)
			if err == nil {
				err = ticket.Wait(ctx)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("full", func(b *testing.B) {
		r := v.open(b)
		in, out := NewInputs(), NewOutputs()
		var tickets [QueueDepth]rt.Ticket
		n := 0
		for b.Loop() {
			if i := n % QueueDepth; n >= QueueDepth {
				if err := tickets[i].Wait(ctx); err != nil {
					b.Fatal(err)
				}
			}
			var err error
			if tickets[n%QueueDepth], err = r.Submit(in, out); err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
}
