// Package metricstest has a snapshot for tests.
package metricstest

import "github.com/popefgen/popefgen/serve/internal/metrics"

// Example returns a snapshot in which every number is another.
func Example() *metrics.Snapshot {
	n := uint64(100)
	next := func() uint64 { n++; return n }
	hist := func(bounds ...float64) metrics.Histogram {
		h := metrics.Histogram{Bounds: bounds, Sum: float64(next()) / 8}
		for range len(bounds) + 1 {
			h.Counts = append(h.Counts, next())
		}
		return h
	}
	model := func(name, version string) metrics.Model {
		m := metrics.Model{
			Name: name, Version: version, Ready: name != "", Refused: true, Unread: next(), Samples: next(),
			Whole: hist(0.001, 0.01), Queue: hist(0.001, 0.01), Input: hist(0.001), Compute: hist(0.001), Output: hist(0.001), Batch: hist(1, 2),
			Run: hist(0.001), Together: hist(1, 2), Padding: next(),
			InFlight: int(next()), Computing: int(next()), Waiting: int(next()), MostComputing: int(next()), MostWaiting: int(next()),
			Received: next(), Sent: next(), Reloads: next(), Refusals: next(),
		}
		for _, outcome := range []string{"ok", "invalid_argument", "resource_exhausted", "cancelled", "internal"} {
			m.Requests = append(m.Requests, metrics.Requests{Protocol: "rest", Outcome: outcome, Count: next()}, metrics.Requests{Protocol: "grpc", Outcome: outcome, Count: next()})
		}
		return m
	}
	return &metrics.Snapshot{Ready: true, Models: []metrics.Model{model("digits", "1"), model("a \"quoted\\name\"\n{}", "2"), model("", "\xff")}}
}
