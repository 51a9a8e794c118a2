package rt

import (
	"time"

	"github.com/popefgen/popefgen/rt/internal/histogram"
)

// Stats is what a session has done and what it holds. Of a runner, every
// replica has its own.
type Stats struct {
	Requests uint64 // runs of the main programs that have ended, failed ones included
	Errors   uint64 // of these, how many failed

	// How long successful requests took, and the parts of that; nothing without
	// the option [Timed].
	Request     Distribution // from the call of Run or Submit to the end
	Queue       Distribution // waiting for the engine, behind other requests
	Preparation Distribution // binding memory; the load programs too, when they run
	Computation Distribution // the main programs, with their transfers

	ExecutableBytes int64 // size of the executable, decompressed
	DataBytes       int64 // data in the model's files that is fed to inputs in place
}

// Distribution describes durations. Mean, Min and Max are exact, percentiles
// are off by 1.6 % at most.
type Distribution struct {
	Count          uint64
	Mean, Min, Max time.Duration
	P50, P90, P99  time.Duration // percentiles

	// Counts is how many durations each of the buckets has that Percentile
	// looks at.
	Counts []uint64 `json:"-"`
}

// Percentile returns the duration that the fraction q of all durations does not
// exceed; q is between 0 and 1. It is 0 if there are none.
func (d *Distribution) Percentile(q float64) time.Duration {
	rank := uint64(q * float64(d.Count))
	if float64(rank) < q*float64(d.Count) || rank == 0 {
		rank++
	}
	var seen uint64
	for i, n := range d.Counts {
		if seen += n; seen >= rank {
			return min(max(histogram.BucketMiddle(i), d.Min), d.Max)
		}
	}
	return d.Max
}

// Trace is where the time of one successful request went.
type Trace struct {
	Request uint64 // its number in the session, from 1

	Total, Queue, Preparation, Computation time.Duration // as in [Stats]
}
