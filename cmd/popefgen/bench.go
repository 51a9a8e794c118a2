package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/bench"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu"
)

var benchCommand = &cli.Command{
	Name:  "bench",
	Usage: "measure how fast a model runs, opens, and where its time goes",
	UsageText: "popefgen bench MODEL.popef… | MODEL.onnx [--mode MODE,…] [--threads N] [flags]\n\n" +
		"example: popefgen bench digits.popef --threads 1\n" +
		"example: popefgen bench digits.popef --mode run,submit,callbacks,queues --in-flight 8\n" +
		"example: popefgen bench family.popef --sizes draw:20\n" +
		"example: popefgen bench digits.popef --input image=scans.npy --clients 4 --profile --json",
	ArgsUsage: "MODEL.popef… | MODEL.onnx",
	Flags: append(append([]cli.Flag{
		&cli.StringFlag{Name: "mode", Usage: "`MODE`s with commas: run, submit, samples (a runner), callbacks, queues (a session), or all", Value: string(bench.Run)},
		&cli.IntFlag{Name: "clients", Usage: "`N` goroutines make requests", Value: 1},
		&cli.IntFlag{Name: "in-flight", Usage: "each has `N` requests under way (submit, queues)", Value: 1},
		&cli.IntFlag{Name: "replicas", Usage: "the runner has `N` replicas of the model (run, submit, samples)", Value: 1},
		&cli.BoolFlag{Name: "thread-safe", Usage: "the runner may be called by several goroutines, also if there is one client"},
		&cli.IntFlag{Name: "samples", Usage: "`N` samples in a request (samples)", Value: 1},
		&cli.IntFlag{Name: "batch-dim", Usage: "dimension `N` of every input and output counts samples (samples)", DefaultText: "0"},
		&cli.DurationFlag{Name: "linger", Usage: "a batch waits for `TIME` for more samples (samples)"},
		&cli.DurationFlag{Name: "duration", Usage: "measure each mode for `TIME`; several take turns", Value: 2 * time.Second},
		&cli.DurationFlag{Name: "warmup", Usage: "make requests for `TIME` before that (default: a tenth of --duration)"},
		&cli.StringSliceFlag{Name: "input", Aliases: []string{"i"}, Usage: "value of an input, `NAME=VALUE`: a number, a list, or a file with the data of one request or of several, which take turns; others are random"},
		&cli.StringSliceFlag{Name: "sizes", Usage: "sizes of a family, `NAME=N,NAME=N`, all, or draw:N, which draws N of those that it computes", DefaultText: "all"},
		&cli.Uint64Flag{Name: "random", Usage: "`SEED` of the random inputs", Value: 1},
		&cli.StringSliceFlag{Name: "compare", Usage: "also measure pairs of requests with and without the engine option `NAME=VALUE`, as layout=off"},
		&cli.BoolFlag{Name: "profile", Usage: "show where the time of a request goes, by operator and node"},
		&cli.StringFlag{Name: "cpuprofile", Usage: "write a CPU profile of the requests to `FILE`, labelled with operator and node, for go tool pprof"},
		&cli.IntFlag{Name: "top", Usage: "show the `N` nodes that take longest", Value: 10},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		&cli.BoolFlag{Name: firstAnswer, Hidden: true},
	}, engineFlags...), modelFlags...),
	Action: func(c *cli.Context) error {
		if c.NArg() == 0 {
			return fmt.Errorf("bench: which model? (usage: popefgen bench %s)", c.Command.ArgsUsage)
		}
		r, err := runBench(c)
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		if c.Bool("json") || c.Bool(firstAnswer) {
			e := json.NewEncoder(c.App.Writer)
			if !c.Bool(firstAnswer) {
				e.SetIndent("", "  ")
			}
			return e.Encode(r)
		}
		return r.Print(c.App.Writer, c.Int("top"))
	},
}

func runBench(c *cli.Context) (*bench.Report, error) {
	configs, err := benchConfigs(c)
	if err != nil {
		return nil, err
	}
	t, f, compile, err := benchTarget(c)
	if err != nil {
		return nil, err
	}
	r := &bench.Report{Model: strings.Join(c.Args().Slice(), " "), Backend: t.Backend, Threads: t.Threads}
	if f != nil {
		return r, benchSizes(c, t, f, configs[0], r)
	}
	if c.IsSet("sizes") {
		return nil, fmt.Errorf("--sizes: the model has one size; compile --dim makes several")
	}
	if r.Opening, r.Memory, err = opening(c, t, compile); err != nil || c.Bool(firstAnswer) {
		return r, err
	}
	measure := func() (err error) {
		r.Measurements, err = bench.Measure(c.Context, t, configs...)
		return err
	}
	if path := c.String("cpuprofile"); path != "" {
		err = cpuProfile(path, t, c.App.ErrWriter, measure)
	} else {
		err = measure()
	}
	if err != nil {
		return nil, err
	}
	compared, err := assignments("compare", c.StringSlice("compare"))
	if err != nil {
		return nil, err
	}
	for _, o := range compared {
		compared, err := bench.Compare(c.Context, t, configs[0], ipu.Option{Name: o[0], Value: o[1]})
		if err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, compared)
	}
	r.Memory.ResidentAll = bench.PeakResident()
	if c.Bool("profile") {
		if r.Profile, err = bench.NewProfile(c.Context, t, configs[0].Duration, configs[0].Warmup); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// benchConfigs returns what to measure. A flag that only some modes have, as
// --in-flight, is left out of the others if there are several.
func benchConfigs(c *cli.Context) ([]bench.Config, error) {
	var names, modes []string
	for _, m := range bench.Modes() {
		names = append(names, string(m))
	}
	if modes = strings.Split(c.String("mode"), ","); c.String("mode") == "all" {
		modes = names
	}
	var configs []bench.Config
	for _, mode := range modes {
		mode = strings.TrimSpace(mode)
		config := bench.Config{Mode: bench.Mode(mode), Clients: c.Int("clients"), InFlight: c.Int("in-flight"), Replicas: c.Int("replicas"),
			ThreadSafe: c.Bool("thread-safe"), Samples: c.Int("samples"), BatchDim: c.Int("batch-dim"), Linger: c.Duration("linger"),
			Duration: c.Duration("duration"), Warmup: c.Duration("warmup")}
		if !c.IsSet("warmup") {
			config.Warmup = config.Duration / 10
		}
		if !config.Mode.Known() {
			return nil, fmt.Errorf("--mode: there is no mode %q%s", mode, nearest.DidYouMean(mode, append(names, "all")))
		}
		if len(modes) > 1 {
			config = config.Fit()
		}
		if err := config.Check(); err != nil {
			return nil, err
		}
		configs = append(configs, config)
	}
	switch {
	case c.Int("top") < 0:
		return nil, fmt.Errorf("--top %d: want 0 or more", c.Int("top"))
	case c.IsSet("top") && !c.Bool("profile"):
		return nil, errors.New("--top is for --profile")
	case c.Int("threads") < 0:
		return nil, fmt.Errorf("--threads %d: want 1 or more", c.Int("threads"))
	}
	return configs, nil
}

// benchThreads is how many threads compute.
func benchThreads(c *cli.Context) int {
	if n := c.Int("threads"); n != 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}
