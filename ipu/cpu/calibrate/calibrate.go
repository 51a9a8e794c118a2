// Package calibrate is the calibration of the engine's cost model: it measures what
// steps of a plan take on this machine and makes a record, [cpu.Costs]. It runs the kernels
// themselves, on operators of sizes that models have, in one thread.
package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
)

// ErrNothing is the error where nothing is estimated: kernels in plain Go have
// one layout.
var ErrNothing = errors.New("kernels in plain Go keep every tensor as it is: there is nothing to measure")

const (
	// rounds is how often all operators take a turn. Of the turns the fastest
	// counts: others on the machine can only make them slower.
	rounds = 16
	// turn is for how long an operator runs at a time.
	turn = 600 * time.Microsecond
)

// Measure measures the costs of this machine, for the path that its kernels use.
// It takes some seconds and ends with ctx. The error is [ErrNothing] where there
// is nothing to measure.
func Measure(ctx context.Context) (cpu.Costs, error) { return measure(ctx, rounds) }

// measure is [Measure] in so many rounds.
func measure(ctx context.Context, rounds int) (cpu.Costs, error) {
	c := cpu.UsualCosts()
	if nchwc.Lanes() == 0 {
		return c, ErrNothing
	}
	c.Processor = processor()
	if n := cacheBytes(); n > 0 {
		c.CacheBytes = n
	}
	probes, err := allProbes()
	if err != nil {
		return c, fmt.Errorf("calibrate: %w", err)
	}
	defer closeAll(probes)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range rounds {
		for i := range probes {
			if err := ctx.Err(); err != nil {
				return c, err
			}
			if err := probes[i].take(); err != nil {
				return c, fmt.Errorf("calibrate %s: %w", probes[i].field, err)
			}
		}
	}
	fill(&c, probes)
	return c, c.Check()
}

// closeAll gives back what probes hold.
func closeAll(probes []probe) {
	for i := range probes {
		if probes[i].close != nil {
			probes[i].close()
		}
	}
}

// probe is one operator that is measured for a field of [cpu.Costs].
type probe struct {
	field string
	units float64 // elements or products of a run
	less  int     // the probe, counted from the end of those before, whose time does not count; 0: none
	run   func() error
	close func() // may be nil

	times int           // runs of a turn
	best  time.Duration // of a run
}

// take takes a turn.
func (p *probe) take() error {
	if p.times == 0 {
		// The first runs bring memory in and say how many fill a turn.
		var took time.Duration
		for range 3 {
			start := time.Now()
			if err := p.run(); err != nil {
				return err
			}
			took = max(time.Since(start), time.Nanosecond)
		}
		p.times = int(max(1, min(turn/took, 10000)))
		p.best = math.MaxInt64
	}
	start := time.Now()
	for range p.times {
		if err := p.run(); err != nil {
			return err
		}
	}
	p.best = min(p.best, time.Since(start)/time.Duration(p.times))
	return nil
}

// fill sets every field of which there are probes to the geometric mean of what
// they say, with three digits.
func fill(c *cpu.Costs, probes []probe) {
	logs, counts := map[string]float64{}, map[string]float64{}
	for i := range probes {
		p := &probes[i]
		best := p.best
		if p.less > 0 {
			best -= probes[i-p.less].best
		}
		logs[p.field] += math.Log(float64(max(best, 1)) / p.units)
		counts[p.field]++
	}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).Kind() != reflect.Float64 {
			continue
		}
		if counts[name] == 0 {
			v.Field(i).SetFloat(0) // no kernels for that here
			continue
		}
		v.Field(i).SetFloat(threeDigits(math.Exp(logs[name] / counts[name])))
	}
}

// threeDigits rounds x, which is positive, to three significant digits.
func threeDigits(x float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	if err != nil {
		return x // not a number that was written so
	}
	return r
}

// processor returns the processor's name, as far as the system tells.
func processor() string {
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.ToValidUTF8(strings.TrimSpace(value), "?")
			}
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

// cacheBytes returns the size of a core's second-level cache, 0 if the system
// does not tell.
func cacheBytes() int64 {
	b, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/index2/size")
	if err != nil {
		return 0
	}
	text, isK := strings.CutSuffix(strings.TrimSpace(string(b)), "K")
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || !isK || n < 64 {
		return 0
	}
	return n << 10
}
