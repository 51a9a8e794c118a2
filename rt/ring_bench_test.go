package rt_test

import (
	"context"
	"testing"
	"time"

	"github.com/popefgen/popefgen/rt"
)

// spinning is long enough that neither side ever parks in these benchmarks.
const spinning = 1 << 20

const benchRing = 1024 // buffers

// BenchmarkRing compares a ring with a buffered channel: one goroutine that
// writes and reads, one that writes to another, a request with its reply.
// Samples of both alternate and the best of each counts, since absolute
// numbers move with the machine and with who else is on it. "ratio" is ring to
// channel.
func BenchmarkRing(b *testing.B) {
	for _, c := range []struct {
		name          string
		channel, ring func(n int)
	}{
		{"uncontended", uncontendedChannel(), uncontendedRing(b)},
		{"throughput/parking", throughputChannel(), throughputRing(b, 0)},
		{"throughput/spinning", throughputChannel(), throughputRing(b, spinning)},
		{"round trip/parking", roundTripChannel(b), roundTripRing(b, 0)},
		{"round trip/spinning", roundTripChannel(b), roundTripRing(b, spinning)},
	} {
		b.Run(c.name, func(b *testing.B) {
			const n = 1000
			best := [2]time.Duration{time.Hour, time.Hour}
			for b.Loop() {
				for i, run := range []func(int){c.channel, c.ring} {
					start := time.Now()
					run(n)
					best[i] = min(best[i], time.Since(start))
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(best[0])/n, "channel-ns")
			b.ReportMetric(float64(best[1])/n, "ring-ns")
			b.ReportMetric(float64(best[1])/float64(best[0]), "ratio")
		})
	}
}

func uncontendedChannel() func(n int) {
	c := make(chan int, benchRing)
	return func(n int) {
		for i := range n {
			c <- i
			<-c
		}
	}
}

func uncontendedRing(b *testing.B) func(n int) {
	ctx := context.Background()
	r := newRing(b, rt.RingConfig[int]{Size: benchRing})
	return func(n int) {
		for i := range n {
			v, err := r.WriteLock(ctx)
			if err != nil {
				b.Fatal(err)
			}
			*v = i
			_ = r.WriteComplete()
			if _, err = r.ReadLock(ctx); err != nil {
				b.Fatal(err)
			}
			_ = r.ReadComplete()
		}
	}
}

func throughputChannel() func(n int) {
	c := make(chan int, benchRing)
	return func(n int) {
		go func() {
			for i := range n {
				c <- i
			}
		}()
		for range n {
			<-c
		}
	}
}

func throughputRing(b *testing.B, rounds int) func(n int) {
	ctx := context.Background()
	r := newRing(b, rt.RingConfig[int]{Size: benchRing, Producer: rt.NewSpinner(rounds), Consumer: rt.NewSpinner(rounds)})
	return func(n int) {
		go func() {
			for i := range n {
				_ = r.Write(ctx, i)
			}
		}()
		for range n {
			_, _ = r.ReadLock(ctx)
			_ = r.ReadComplete()
		}
	}
}

func roundTripChannel(b *testing.B) func(n int) {
	there, back := make(chan int, benchRing), make(chan int, benchRing)
	go func() {
		for i := range there {
			back <- i
		}
	}()
	b.Cleanup(func() { close(there) })
	return func(n int) {
		for i := range n {
			there <- i
			<-back
		}
	}
}

func roundTripRing(b *testing.B, rounds int) func(n int) {
	ctx := context.Background()
	caller, server := rt.NewSpinner(rounds), rt.NewSpinner(rounds)
	there := newRing(b, rt.RingConfig[int]{Size: benchRing, Producer: caller, Consumer: server})
	back := newRing(b, rt.RingConfig[int]{Size: benchRing, Producer: server, Consumer: caller})
	started := false
	b.Cleanup(there.Invalidate)
	serve := func() {
		for {
			v, err := there.ReadLock(ctx)
			if err != nil {
				return
			}
			_ = back.Write(ctx, *v)
			_ = there.ReadComplete()
		}
	}
	return func(n int) {
		if !started {
			started = true
			go serve() // not before: while it watches, other benchmarks would suffer
		}
		for i := range n {
			_ = there.Write(ctx, i)
			_, _ = back.ReadLock(ctx)
			_ = back.ReadComplete()
		}
	}
}
