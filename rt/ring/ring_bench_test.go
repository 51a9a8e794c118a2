package ring_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/ring"
)

// spinning is long enough that neither side ever parks in these benchmarks.
const spinning = 1 << 20

const benchRing = 1024 // buffers

// contestant starts what does something n times; stop ends it.
type contestant func() (run func(n int), stop func())

// duel is something that a ring and a channel of the same size can both do.
type duel struct {
	name          string
	channel, ring contestant
	goal          float64 // ring to channel; 0 if none was set
	most          float64 // a ratio that means that something is badly wrong
}

// duels compare a ring with a buffered channel: one goroutine that writes and
// reads, one that writes to another, a request with its reply. Parking is the
// receive of a channel, with the exchange of the buffer on top; a round trip can
// only be quicker for who watches.
func duels(t testing.TB) []duel {
	return []duel{
		{"uncontended", uncontendedChannel, uncontendedRing(t), 0.3, 1},
		{"throughput/parking", throughputChannel, throughputRing(t, 0), 0, 2},
		{"throughput/spinning", throughputChannel, throughputRing(t, spinning), 0, 2},
		{"round trip/parking", roundTripChannel, roundTripRing(t, 0), 0, 4},
		{"round trip/spinning", roundTripChannel, roundTripRing(t, spinning), 0.6, 4},
	}
}

// contest is the state of a duel: samples of both sides alternate and the best
// of each counts, since absolute numbers move with the machine and with who
// else is on it.
type contest [2]time.Duration

func newContest() contest { return contest{time.Hour, time.Hour} }

// round takes a few samples of n times each of both sides, which start anew: two
// sides that watch for each other park in turn once one of them has parked, as
// they do when somebody else gets the processor for long.
func (c *contest) round(d duel, n int) {
	for i, start := range []contestant{d.channel, d.ring} {
		run, stop := start()
		time.Sleep(50 * time.Microsecond) // so that who serves gets a processor of its own
		for range 3 {
			begun := time.Now()
			run(n)
			c[i] = min(c[i], time.Since(begun))
		}
		stop()
	}
}

func (c *contest) ratio() float64 { return float64(c[1]) / float64(c[0]) }

// BenchmarkRing runs the duels. "ratio" is ring to channel.
func BenchmarkRing(b *testing.B) {
	for _, d := range duels(b) {
		b.Run(d.name, func(b *testing.B) {
			const n = 300
			c := newContest()
			for b.Loop() {
				c.round(d, n)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(c[0])/n, "channel-ns")
			b.ReportMetric(float64(c[1])/n, "ring-ns")
			b.ReportMetric(c.ratio(), "ratio")
		})
	}
}

// TestRingAgainstChannel prints the ratios of the duels; see them with
// go test -v -run TestRingAgainstChannel ./rt/ring. Every push and every pop of a
// ring is one atomic exchange at least, so that two of these bound what an
// uncontended ring can reach on the machine at hand.
func TestRingAgainstChannel(t *testing.T) {
	if rttest.RaceEnabled || testing.Short() {
		t.Skip("it measures")
	}
	const n, rounds = 300, 100
	bound := duel{channel: uncontendedChannel, ring: func() (func(int), func()) {
		var a, b atomic.Uint32
		return func(n int) {
			for range n {
				a.Store(1)
				b.Store(1)
			}
		}, func() {}
	}}
	c := newContest()
	for range rounds {
		c.round(bound, n)
	}
	t.Logf("%-20s channel %6.1f ns, two atomic stores %6.1f ns: %.2f", "bound of uncontended", float64(c[0])/n, float64(c[1])/n, c.ratio())
	for _, d := range duels(t) {
		c := newContest()
		for range rounds {
			c.round(d, n)
		}
		goal := ""
		if d.goal > 0 {
			goal = fmt.Sprintf(" (goal %.1f)", d.goal)
		}
		t.Logf("%-20s channel %6.1f ns, ring %6.1f ns: %.2f%s", d.name, float64(c[0])/n, float64(c[1])/n, c.ratio(), goal)
		require.Less(t, c.ratio(), d.most, d.name)
	}
}

func uncontendedChannel() (func(n int), func()) {
	c := make(chan int, benchRing)
	return func(n int) {
		for i := range n {
			c <- i
			<-c
		}
	}, func() {}
}

func uncontendedRing(t testing.TB) contestant {
	return func() (func(n int), func()) {
		ctx := context.Background()
		r := newRing(t, ring.Config[int]{Size: benchRing})
		return func(n int) {
			for i := range n {
				v, err := r.WriteLock(ctx)
				if err != nil {
					t.Fatal(err)
				}
				*v = i
				_ = r.WriteComplete()
				if _, err = r.ReadLock(ctx); err != nil {
					t.Fatal(err)
				}
				_ = r.ReadComplete()
			}
		}, func() {}
	}
}

func throughputChannel() (func(n int), func()) {
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
	}, func() {}
}

func throughputRing(t testing.TB, rounds int) contestant {
	return func() (func(n int), func()) {
		ctx := context.Background()
		r := newRing(t, ring.Config[int]{Size: benchRing, Producer: ring.NewSpinner(rounds), Consumer: ring.NewSpinner(rounds)})
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
		}, func() {}
	}
}

func roundTripChannel() (func(n int), func()) {
	there, back := make(chan int, benchRing), make(chan int, benchRing)
	go func() {
		defer close(back)
		for i := range there {
			back <- i
		}
	}()
	return func(n int) {
			for i := range n {
				there <- i
				<-back
			}
		}, func() {
			close(there)
			<-back
		}
}

func roundTripRing(t testing.TB, rounds int) contestant {
	return func() (func(n int), func()) {
		ctx := context.Background()
		caller, server := ring.NewSpinner(rounds), ring.NewSpinner(rounds)
		there := newRing(t, ring.Config[int]{Size: benchRing, Producer: caller, Consumer: server})
		back := newRing(t, ring.Config[int]{Size: benchRing, Producer: server, Consumer: caller})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				v, err := there.ReadLock(ctx)
				if err != nil {
					return
				}
				_ = back.Write(ctx, *v)
				_ = there.ReadComplete()
			}
		}()
		return func(n int) {
				for i := range n {
					_ = there.Write(ctx, i)
					_, _ = back.ReadLock(ctx)
					_ = back.ReadComplete()
				}
			}, func() {
				there.Invalidate()
				<-ended
			}
	}
}
