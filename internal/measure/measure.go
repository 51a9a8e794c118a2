// Package measure times things that are to be compared with each other. They
// take turns in one process, so that whatever else happens on the machine falls
// on all of them, and their ratio means something where their times do not.
package measure

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Config says how long to measure.
type Config struct {
	Rounds int           // turns that everybody gets
	Slice  time.Duration // how long a turn lasts at least
	Runs   int           // how many runs a turn has at least, not counting those that warm up
	Pause  time.Duration // rest before every turn, for the threads of the last one to fall asleep
	// Clock is what times are read from; nil is the wall's. Slice is of the
	// wall's clock always.
	Clock func() time.Duration
	// Disturbed, if there is one, reports whether others slow the machine down
	// now. A turn before or after which they do is repeated, unless the
	// contestant is slow, as long as all turns that do not count have taken no
	// more than Patience.
	Disturbed func() bool
	Patience  time.Duration
}

// clock returns the clock to read.
func (c *Config) clock() func() time.Duration {
	if c.Clock != nil {
		return c.Clock
	}
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Runner is a contestant. One with a nil Run does not take part.
type Runner struct {
	Run   func() error
	Batch int  // how many operations a run has; 0 means 1
	Slow  bool // one run a turn, one to warm up: for what takes seconds in all otherwise
	// Optional says that the measurement goes on without a contestant whose run
	// fails.
	Optional bool
}

// Series is what was measured of one contestant: the times of an operation.
type Series struct {
	Rounds [][]time.Duration // by turn, sorted
	Batch  int               // operations in every time
	Err    error             // why an optional contestant has left; there are no times then
}

// Interleave measures the runners in turns. A turn begins with two runs that do
// not count. The error is that of a run of a contestant that is not optional.
func Interleave(c Config, runners ...Runner) ([]Series, error) {
	out := make([]Series, len(runners))
	patience := c.Patience
	for range c.Rounds {
		for i, r := range runners {
			if r.Run == nil || out[i].Err != nil {
				continue
			}
			times, err := c.undisturbed(r, &patience)
			if err != nil && r.Optional {
				out[i] = Series{Err: err}
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("contestant %d: %w", i, err)
			}
			out[i].Batch = max(r.Batch, 1)
			out[i].Rounds = append(out[i].Rounds, times)
		}
	}
	return out, nil
}

// Join adds what was measured later to what was measured before, of the same
// contestants; before may be nil.
func Join(before, later []Series) []Series {
	if before == nil {
		before = make([]Series, len(later))
	}
	for i, s := range later {
		b := &before[i]
		b.Batch, b.Rounds = s.Batch, append(b.Rounds, s.Rounds...)
		if s.Err != nil {
			b.Err = s.Err
		}
	}
	return before
}

// undisturbed is a pause and a turn, repeated as [Config.Disturbed] wants it;
// what that takes is taken off patience.
func (c *Config) undisturbed(r Runner, patience *time.Duration) ([]time.Duration, error) {
	for {
		time.Sleep(c.Pause)
		begin := time.Now()
		watch := c.Disturbed != nil && !r.Slow
		disturbed := watch && c.Disturbed()
		times, err := turn(*c, r)
		disturbed = watch && c.Disturbed() || disturbed
		if err != nil || !disturbed || *patience <= 0 {
			return times, err
		}
		*patience -= time.Since(begin)
	}
}

func turn(c Config, r Runner) ([]time.Duration, error) {
	warm, least, slice := 2, max(c.Runs, 1), c.Slice
	if r.Slow {
		warm, least, slice = 1, 1, 0
	}
	for range warm {
		if err := r.Run(); err != nil {
			return nil, err
		}
	}
	const most = 1 << 20 // bounds the memory
	clock := c.clock()
	times := make([]time.Duration, 0, 1<<12)
	for begin := time.Now(); len(times) < least || time.Since(begin) < slice && len(times) < most; {
		start := clock()
		err := r.Run()
		took := clock() - start
		if err != nil {
			return nil, err
		}
		times = append(times, took)
	}
	slices.Sort(times)
	return times, nil
}

// Measured reports whether the contestant took part.
func (s *Series) Measured() bool { return len(s.Rounds) > 0 }

// Best returns the shortest time of an operation in nanoseconds; NaN if there
// is none.
func (s *Series) Best() float64 {
	return s.over(func(round []time.Duration) time.Duration { return round[0] })
}

// Median returns the smallest of the turns' medians, in nanoseconds: other work
// on the machine only ever adds to a time. It is NaN if there is none.
func (s *Series) Median() float64 {
	return s.over(func(round []time.Duration) time.Duration { return quantile(round, 0.5) })
}

func (s *Series) over(of func(round []time.Duration) time.Duration) float64 {
	least := math.NaN()
	for i, r := range s.Rounds {
		if v := float64(of(r)) / float64(s.Batch); i == 0 || v < least {
			least = v
		}
	}
	return least
}

// P99 returns the 99th percentile of all times, in nanoseconds; NaN if there
// are none.
func (s *Series) P99() float64 {
	if !s.Measured() {
		return math.NaN()
	}
	all := slices.Concat(s.Rounds...)
	slices.Sort(all)
	return float64(quantile(all, 0.99)) / float64(s.Batch)
}

// quantile returns the nearest-rank quantile of sorted times.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// GeometricMean returns the geometric mean of positive numbers, NaN of none.
func GeometricMean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(x)))
}
