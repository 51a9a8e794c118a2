package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"
)

var benchCommand = &cli.Command{
	Name:  "bench",
	Usage: "measure how fast a model runs",
	UsageText: "popefgen bench MODEL.popef|MODEL.onnx [--threads N] [--duration 2s] [--json]\n\n" +
		"example: popefgen bench digits.popef --threads 1",
	ArgsUsage: "MODEL.popef|MODEL.onnx",
	Flags: append(append([]cli.Flag{
		&cli.DurationFlag{Name: "duration", Usage: "measure for `TIME`", Value: 2 * time.Second},
		&cli.StringSliceFlag{Name: "input", Aliases: []string{"i"}, Usage: "value of an input, `NAME=FILE`; others are random"},
		&cli.Uint64Flag{Name: "random", Usage: "`SEED` of the random inputs", Value: 1},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
	}, engineFlags...), modelFlags...),
	Action: func(c *cli.Context) error {
		path, err := oneArg(c, "model")
		if err != nil {
			return err
		}
		r, err := bench(c, path)
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		if c.Bool("json") {
			e := json.NewEncoder(c.App.Writer)
			e.SetIndent("", "  ")
			return e.Encode(r)
		}
		return r.print(c)
	},
}

// benchResult is what bench measures; its JSON form is the command's interface.
type benchResult struct {
	Model       string        `json:"model"`
	Threads     int           `json:"threads"`
	Requests    int           `json:"requests"`
	Open        time.Duration `json:"open_ns"`
	First       time.Duration `json:"first_request_ns"`
	Median      time.Duration `json:"median_ns"`
	Mean        time.Duration `json:"mean_ns"`
	P99         time.Duration `json:"p99_ns"`
	Min         time.Duration `json:"min_ns"`
	Max         time.Duration `json:"max_ns"`
	PerSecond   float64       `json:"requests_per_second"`
	Allocations float64       `json:"allocations_per_request"`
	Bytes       float64       `json:"allocated_bytes_per_request"`
}

// maxSamples bounds how many latencies are kept; a run ends when it is reached.
const maxSamples = 4 << 20

func bench(c *cli.Context, path string) (*benchResult, error) {
	duration := c.Duration("duration")
	if duration <= 0 {
		return nil, errors.New("--duration: want a time above 0")
	}
	files, err := assignments("input", c.StringSlice("input"))
	if err != nil {
		return nil, err
	}
	m, err := openModel(c, path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r := &benchResult{Model: path, Threads: c.Int("threads")}
	if r.Threads == 0 {
		r.Threads = runtime.GOMAXPROCS(0)
	}
	start := time.Now()
	d, err := openDynamic(c.Context, m, c.String("backend"), r.Threads)
	if err != nil {
		return nil, err
	}
	defer d.close()
	r.Open = time.Since(start)
	if err := c.Set("random", fmt.Sprint(c.Uint64("random"))); err != nil {
		return nil, err
	}
	if err := fillInputs(c, d, files); err != nil {
		return nil, err
	}
	start = time.Now()
	if err := d.run(c.Context); err != nil {
		return nil, err
	}
	r.First = time.Since(start)
	for warm := time.Now(); time.Since(warm) < duration/10; {
		if err := d.run(c.Context); err != nil {
			return nil, err
		}
	}

	samples := make([]time.Duration, 0, maxSamples)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for begin := time.Now(); len(samples) < maxSamples; {
		start := time.Now()
		if err := d.run(c.Context); err != nil {
			return nil, err
		}
		samples = append(samples, time.Since(start))
		if time.Since(begin) >= duration {
			break
		}
	}
	runtime.ReadMemStats(&after)
	r.summarize(samples)
	r.Allocations = float64(after.Mallocs-before.Mallocs) / float64(len(samples))
	r.Bytes = float64(after.TotalAlloc-before.TotalAlloc) / float64(len(samples))
	return r, nil
}

func (r *benchResult) summarize(samples []time.Duration) {
	slices.Sort(samples)
	n := len(samples)
	var total time.Duration
	for _, s := range samples {
		total += s
	}
	r.Requests, r.Mean = n, total/time.Duration(n)
	r.Min, r.Median, r.P99, r.Max = samples[0], samples[n/2], samples[min(n-1, n*99/100)], samples[n-1]
	r.PerSecond = float64(n) / total.Seconds()
}

func (r *benchResult) print(c *cli.Context) error {
	fmt.Fprintf(c.App.Writer, "%s, %d threads: %s requests\n", r.Model, r.Threads, humanize.Comma(int64(r.Requests)))
	t := newTable("", "")
	t.row("median", r.Median)
	t.row("mean", r.Mean)
	t.row("99th percentile", r.P99)
	t.row("fastest", r.Min)
	t.row("slowest", r.Max)
	t.row("throughput", humanize.CommafWithDigits(r.PerSecond, 0)+" a second")
	t.row("allocations", fmt.Sprintf("%.3f a request, %.1f bytes", r.Allocations, r.Bytes))
	t.row("opening the model", r.Open.Round(time.Microsecond))
	t.row("first request", r.First.Round(time.Microsecond))
	return t.print(c.App.Writer)
}
