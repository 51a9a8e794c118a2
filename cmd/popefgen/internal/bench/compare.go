package bench

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu"
)

// Comparison says how long requests take with an engine option, divided by how
// long they take without it. Its JSON form is described in docs/bench.md.
type Comparison struct {
	Option string `json:"option"` // NAME=VALUE
	// Ratio is the median over all pairs of turns; above 1 the option costs time.
	// Low and High bound the true median with a probability of 95 %.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Pairs int     `json:"pairs"`
}

// comparePairs is how many pairs of turns a comparison has. What the machine
// does otherwise changes over tenths of a second: many short turns meet the same.
const comparePairs = 40

// Compare measures requests of the target as c says and the same with one more
// engine option, in pairs of turns one after the other, of which every second
// pair begins with the other. A turn counts as the median of its requests.
// All pairs together take as long as c says.
func Compare(ctx context.Context, t *Target, c Config, option ipu.Option) (Comparison, error) {
	result := Comparison{Option: option.Name + "=" + option.Value}
	with := *t
	with.Options = append(slices.Clip(t.Options), option)
	ratios, err := paired(ctx, [2]*Target{t, &with}, c)
	if err != nil {
		return result, fmt.Errorf("compare %s: %w", result.Option, err)
	}
	result.Ratio, result.Low, result.High = medianInterval(ratios)
	result.Pairs = len(ratios)
	return result, nil
}

// paired returns the times of the second target divided by those of the first,
// pair by pair.
func paired(ctx context.Context, targets [2]*Target, c Config) (ratios []float64, err error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	var drivers [2]*driver
	for i, t := range targets {
		d, err := t.open(ctx, c)
		if err != nil {
			return nil, err
		}
		drivers[i] = d
		defer func() {
			if e := d.close(); err == nil {
				err = e
			}
		}()
		if _, err := drive(d.clients, c.InFlight, max(1, c.Warmup)); err != nil {
			return nil, err
		}
	}
	for pair := range comparePairs {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var took [2]float64
		for turn := range 2 {
			i := (pair + turn) % 2
			p, err := drive(drivers[i].clients, c.InFlight, max(1, c.Duration/(2*comparePairs)))
			if err != nil {
				return nil, err
			}
			took[i] = float64(p.latency.Percentile(0.5))
		}
		ratios = append(ratios, took[1]/took[0])
	}
	return ratios, nil
}

// medianInterval returns the median of at least six numbers, and two of them
// between which the median of what they are drawn from lies with a probability of
// 95 %, whatever its distribution: each number is above it with one of 50 %.
func medianInterval(of []float64) (median, low, high float64) {
	s := slices.Sorted(slices.Values(of))
	n := len(s)
	median = (s[(n-1)/2] + s[n/2]) / 2
	// The largest k for which k or fewer of n lie on one side seldom enough.
	outside, term := 0.0, math.Pow(0.5, float64(n))
	k := 0
	for ; outside+term <= 0.025; k++ {
		outside += term
		term *= float64(n-k) / float64(k+1)
	}
	k = max(k-1, 0)
	return median, s[k], s[n-1-k]
}
