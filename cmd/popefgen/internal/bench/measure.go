package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/rt"
)

// Mode is a way of making requests.
type Mode string

// The modes.
const (
	// Run is a runner's Run: the request is computed in the caller's goroutine.
	Run Mode = "run"
	// Submit is a runner's Submit and Wait: requests wait in a ring for the
	// goroutine that computes them.
	Submit Mode = "submit"
	// Samples is a runner's RunSamples: any number of samples, joined to
	// batches with those of other callers.
	Samples Mode = "samples"
	// Callbacks is a session whose streams are raw callbacks, which copy.
	Callbacks Mode = "callbacks"
	// Queues is a session behind a queue manager, which a goroutine of its own
	// runs again and again.
	Queues Mode = "queues"
)

// Modes lists all modes.
func Modes() []Mode { return []Mode{Run, Submit, Samples, Callbacks, Queues} }

// Known reports whether there is such a mode.
func (m Mode) Known() bool { return slices.Contains(Modes(), m) }

// Config says what to measure.
type Config struct {
	Mode       Mode
	Clients    int           // goroutines that make requests
	InFlight   int           // requests that each of them has under way; more than 1 for Submit and Queues
	Replicas   int           // of a runner: Run, Submit, Samples
	ThreadSafe bool          // Run: several goroutines may call it; so it is with several clients or replicas anyway
	Samples    int           // Samples: in each request
	BatchDim   int           // Samples: the dimension of every input and output that counts samples
	Linger     time.Duration // Samples: how long a batch waits for more samples
	Duration   time.Duration // of the measurement
	Warmup     time.Duration // before it; 0 for none
}

// Fit returns c without what its mode does not have, for a list of modes.
func (c Config) Fit() Config {
	if c.Mode != Submit && c.Mode != Queues {
		c.InFlight = min(c.InFlight, 1)
	}
	if c.Mode == Callbacks {
		c.Clients = min(c.Clients, 1)
	}
	if c.Mode == Callbacks || c.Mode == Queues {
		c.Replicas = min(c.Replicas, 1)
	}
	if c.Mode != Samples {
		c.Samples = min(c.Samples, 1)
	}
	c.ThreadSafe = c.ThreadSafe && c.Mode == Run
	return c
}

// Check returns what contradicts itself, in the words of the command's flags.
func (c *Config) Check() error {
	runner := c.Mode == Run || c.Mode == Submit || c.Mode == Samples
	only := func(flag string, modes ...Mode) error {
		var names []string
		for _, m := range modes {
			names = append(names, string(m))
		}
		return fmt.Errorf("--%s is for --mode %s, not for %s", flag, strings.Join(names, " and "), c.Mode)
	}
	atLeast := func(flag string, n, most int) error {
		if n < 1 || n > most {
			return fmt.Errorf("--%s %d: want 1 to %d", flag, n, most)
		}
		return nil
	}
	const most = 1 << 10
	for _, err := range []error{
		atLeast("clients", c.Clients, most), atLeast("in-flight", c.InFlight, most),
		atLeast("replicas", c.Replicas, most), atLeast("samples", c.Samples, 1<<24),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case !c.Mode.Known():
		return fmt.Errorf("--mode %q: want one of %v", c.Mode, Modes())
	case c.Duration <= 0:
		return fmt.Errorf("--duration %v: want a time above 0", c.Duration)
	case c.Warmup < 0:
		return fmt.Errorf("--warmup %v: want 0 or more", c.Warmup)
	case c.InFlight > 1 && c.Mode != Submit && c.Mode != Queues:
		return only("in-flight", Submit, Queues)
	case c.Replicas > 1 && !runner:
		return only("replicas", Run, Submit, Samples)
	case c.Clients > 1 && c.Mode == Callbacks:
		return fmt.Errorf("--clients %d: a session whose streams are callbacks has one client", c.Clients)
	case c.ThreadSafe && c.Mode != Run:
		return only("thread-safe", Run)
	case c.Samples > 1 && c.Mode != Samples:
		return only("samples", Samples)
	case c.BatchDim < 0:
		return fmt.Errorf("--batch-dim %d: want 0 or more", c.BatchDim)
	case c.Linger < 0 && c.Linger != rt.Forever:
		return fmt.Errorf("--linger %v: want 0 or more", c.Linger)
	}
	return nil
}

// Measurement is what was measured in one mode. Its JSON form is described in
// docs/bench.md.
type Measurement struct {
	Mode       Mode `json:"mode"`
	Clients    int  `json:"clients"`
	InFlight   int  `json:"in_flight"`
	Replicas   int  `json:"replicas"`
	ThreadSafe bool `json:"thread_safe"`
	Samples    int  `json:"samples_per_request"` // 0 where samples are not told apart

	Requests          int64         `json:"requests"`
	Took              time.Duration `json:"took_ns"`
	RequestsPerSecond float64       `json:"requests_per_second"`
	SamplesPerSecond  float64       `json:"samples_per_second"`

	Mean time.Duration `json:"mean_ns"`
	Min  time.Duration `json:"min_ns"`
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`

	Allocations float64 `json:"allocations_per_request"`
	Bytes       float64 `json:"allocated_bytes_per_request"`
}

// rounds is how often modes that are measured together take turns, so that what
// else the machine does hits all alike.
const rounds = 5

// Measure opens the target in every mode, warms up, and measures as the configs
// say; several take turns.
func Measure(ctx context.Context, t *Target, configs ...Config) (all []Measurement, err error) {
	for i := range configs {
		c := &configs[i]
		if err := c.Check(); err != nil {
			return nil, err
		}
		c.ThreadSafe = c.Mode == Samples || c.Mode == Run && (c.ThreadSafe || c.Clients > 1 || c.Replicas > 1)
	}
	var drivers []*driver
	defer func() {
		for _, d := range drivers {
			if e := d.close(); err == nil {
				err = e
			}
		}
	}()
	in := func(c *Config, err error) error { return fmt.Errorf("mode %s: %w", c.Mode, err) }
	for i := range configs {
		c := &configs[i]
		d, err := t.open(ctx, *c)
		if err != nil {
			return nil, in(c, err)
		}
		drivers = append(drivers, d)
		if c.Warmup > 0 {
			if _, err := drive(d.clients, c.InFlight, c.Warmup); err != nil {
				return nil, in(c, err)
			}
		}
	}
	times := time.Duration(1)
	if len(configs) > 1 {
		times = rounds
	}
	phases := make([]phase, len(configs))
	for range times {
		for i := range configs {
			c := &configs[i]
			p, err := drive(drivers[i].clients, c.InFlight, max(1, c.Duration/times))
			if err != nil {
				return nil, in(c, err)
			}
			phases[i].add(p)
		}
	}
	for i := range configs {
		all = append(all, phases[i].measurement(&configs[i], drivers[i].samples))
	}
	return all, nil
}

// measurement sums a phase up.
func (p *phase) measurement(c *Config, samples int) Measurement {
	h := &p.latency
	n := float64(h.Count())
	perSecond := n / p.took.Seconds()
	return Measurement{
		Mode: c.Mode, Clients: c.Clients, InFlight: c.InFlight, Replicas: c.Replicas, ThreadSafe: c.ThreadSafe, Samples: samples,
		Requests: h.Count(), Took: p.took, RequestsPerSecond: perSecond, SamplesPerSecond: perSecond * float64(samples),
		Mean: h.Mean(), Min: h.Min(), P50: h.Percentile(0.5), P90: h.Percentile(0.9), P99: h.Percentile(0.99), P999: h.Percentile(0.999), Max: h.Max(),
		Allocations: float64(p.allocations) / n, Bytes: float64(p.bytes) / n,
	}
}

// driver is an open model with its clients.
type driver struct {
	clients []client
	runner  *runner // in the modes Run and Submit
	samples int     // in one request
	close   func() error
}

func (t *Target) open(ctx context.Context, c Config) (*driver, error) {
	switch c.Mode {
	case Callbacks:
		return t.openCallbacks(ctx)
	case Queues:
		return t.openQueues(ctx, c)
	case Samples:
		return t.openSamples(ctx, c)
	}
	return t.openRunner(ctx, c)
}
