package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/serving"
	"github.com/popefgen/popefgen/internal/sizes"
)

// configFile is what is read if --config does not say otherwise, if it is there.
const configFile = "popefgen.yaml"

// flags are those of the command, each with an environment variable.
func flags() []cli.Flag {
	all := []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "`FILE` with the key serve; default: popefgen.yaml, if it is there"},
		&cli.BoolFlag{Name: "check", Usage: "open and warm up everything, name all mistakes, and exit"},
		&cli.StringFlag{Name: "http", Usage: "`ADDRESS` of REST, \"\" for none", Value: defaultHTTP},
		&cli.StringFlag{Name: "grpc", Usage: "`ADDRESS` of gRPC, \"\" for none", Value: defaultGRPC},
		&cli.StringFlag{Name: "admin", Usage: "`ADDRESS` of the page, metrics and profiles for those who run the server; none without it"},
		&cli.BoolFlag{Name: "triton-metrics", Usage: "metrics by the names of Triton's too, nv_inference_*"},
		&cli.StringFlag{Name: "server-name", Usage: "`NAME` in the metadata of the server; some clients want triton"},
		&cli.StringFlag{Name: "control", Usage: "who loads models after the start: none, watch, which follows the files, or explicit: clients of the admin address"},
		&cli.DurationFlag{Name: "poll", Usage: "`TIME` between two looks at files that are watched"},
		&cli.StringFlag{Name: "versions", Usage: "which versions of a folder's model serve: latest or all"},
		&cli.IntFlag{Name: "replicas", Usage: "`N` requests computed at the same time, of each model; 0: one on each core"},
		&cli.IntFlag{Name: "threads", Usage: "`N` threads that compute a request"},
		&cli.DurationFlag{Name: "linger", Usage: "`TIME` that samples wait for those of others"},
		&cli.StringFlag{Name: "batch", Usage: "`SIZES` of open first dimensions of .onnx models, as of popefgen compile: 8, 1,4,16 or 1..32:*2"},
		&cli.StringSliceFlag{Name: "dim", Usage: "`NAME=SIZES` of a dimension of .onnx models, as of popefgen compile"},
		&cli.IntFlag{Name: "waiting", Usage: "`N` requests that wait for each model; more are refused. -1: none wait"},
		&cli.DurationFlag{Name: "timeout", Usage: "`TIME` that a request may take if it does not say less"},
		&cli.DurationFlag{Name: "drain-delay", Usage: "`TIME` to serve on, not ready, after SIGTERM"},
		&cli.DurationFlag{Name: "drain-limit", Usage: "`TIME` that requests under way have then"},
		&cli.StringFlag{Name: "tls-certificate", Usage: "`FILE` with the server's certificate"},
		&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with its key"},
		&cli.StringFlag{Name: "tls-client-cas", Usage: "`FILE` with the certificates that sign those of clients"},
		&cli.StringFlag{Name: "tokens", Usage: "`FILE` that says who may do what"},
	}
	for _, f := range all {
		env := []string{"POPEFGEN_SERVE_" + strings.ToUpper(strings.ReplaceAll(f.Names()[0], "-", "_"))}
		switch f := f.(type) {
		case *cli.StringFlag:
			f.EnvVars = env
		case *cli.BoolFlag:
			f.EnvVars = env
		case *cli.IntFlag:
			f.EnvVars = env
		case *cli.DurationFlag:
			f.EnvVars = env
		case *cli.StringSliceFlag:
			f.EnvVars = env
		}
	}
	return all
}

// configOf returns what the file says, and over it the environment, and over that the flags.
func configOf(c *cli.Context) (*serving.Config, error) {
	conf := &serving.Config{}
	path := c.String("config")
	if path == "" {
		if _, err := os.Stat(configFile); err == nil {
			path = configFile
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if path != "" {
		read, err := serving.Read(path)
		if err != nil {
			return nil, err
		}
		if read == nil && c.IsSet("config") {
			return nil, usageError{error: errors.New(path + ": it has no key serve; docs/serving.md lists what is below it")}
		}
		if read != nil {
			conf = read
		}
	}
	set := func(name string, to func()) {
		if c.IsSet(name) {
			to()
		}
	}
	for name, to := range map[string]**string{"http": &conf.HTTP, "grpc": &conf.GRPC} {
		if c.IsSet(name) || *to == nil {
			addr := c.String(name)
			*to = &addr
		}
	}
	for name, to := range map[string]*string{
		"admin": &conf.Admin, "server-name": &conf.ServerName, "control": &conf.Control, "versions": &conf.Versions,
	} {
		set(name, func() { *to = c.String(name) })
	}
	for name, to := range map[string]*serving.Duration{"poll": &conf.Poll, "drain-delay": &conf.DrainDelay, "drain-limit": &conf.DrainLimit} {
		set(name, func() { *to = serving.Duration(c.Duration(name)) })
	}
	set("triton-metrics", func() { conf.TritonMetrics = c.Bool("triton-metrics") })
	set("replicas", func() { n := c.Int("replicas"); conf.Replicas = &n })
	set("threads", func() { n := c.Int("threads"); conf.Threads = &n })
	set("linger", func() { d := serving.Duration(c.Duration("linger")); conf.Linger = &d })
	set("batch", func() { conf.Batch = &sizes.List{Text: c.String("batch")} })
	if conf.Limits == nil {
		conf.Limits = &serving.Limits{}
	}
	set("waiting", func() { n := c.Int("waiting"); conf.Limits.Waiting = &n })
	set("timeout", func() { d := serving.Duration(c.Duration("timeout")); conf.Limits.Timeout = &d })
	if c.IsSet("dim") {
		dims, err := sizes.ParseDims(c.StringSlice("dim"))
		if err != nil {
			return nil, usageError{error: err}
		}
		conf.Dim = dims
	}
	if conf.TLS == nil && (c.IsSet("tls-certificate") || c.IsSet("tls-key") || c.IsSet("tls-client-cas")) {
		conf.TLS = &serving.TLS{}
	}
	set("tls-certificate", func() { conf.TLS.Certificate = c.String("tls-certificate") })
	set("tls-key", func() { conf.TLS.Key = c.String("tls-key") })
	set("tls-client-cas", func() { conf.TLS.ClientCAs = c.String("tls-client-cas") })
	set("tokens", func() { conf.Auth = &serving.Auth{Tokens: c.String("tokens")} })
	for _, path := range c.Args().Slice() {
		conf.Models = append(conf.Models, serving.Model{Path: path})
	}
	if all := conf.Check(); len(all) > 0 {
		return nil, mistakes(all)
	}
	return conf, nil
}
