package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
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
		&cli.StringFlag{Name: "control", Usage: "`WHO` loads models after the start: none, watch, which follows the files, or explicit: clients of the admin address", DefaultText: "none"},
		&cli.BoolFlag{Name: "repository", Usage: "callers of REST and gRPC may load and unload models, as with --control explicit those of the admin address"},
		&cli.StringSliceFlag{Name: "load-model", Usage: "`NAME` of a model that is loaded at the start although clients load them, * for all; none without it"},
		&cli.DurationFlag{Name: "poll", Usage: "`TIME` between two looks at files that are watched", DefaultText: defaultPoll.String()},
		&cli.StringFlag{Name: "versions", Usage: "`WHICH` versions of a folder's model serve: latest or all", DefaultText: "latest"},
		&cli.IntFlag{Name: "replicas", Usage: "`N` requests computed at the same time, of each model; 0: one on each core"},
		&cli.IntFlag{Name: "threads", Usage: "`N` threads that compute a request; 0: one, or all cores of a single replica"},
		&cli.DurationFlag{Name: "linger", Usage: "`TIME` that samples wait for those of others"},
		&cli.StringFlag{Name: "batch", Usage: "`SIZES` of open first dimensions of .onnx models, as of popefgen compile: 8, 1,4,16 or 1..32:*2"},
		&cli.StringSliceFlag{Name: "dim", Usage: "`NAME=SIZES` of a dimension of .onnx models, as of popefgen compile"},
		&cli.StringSliceFlag{Name: "size", Usage: "`NAME=N,NAME=N`: a member of .onnx models, as of popefgen compile"},
		&cli.StringSliceFlag{Name: "pad", Usage: "`DIM=INPUT:VALUE,…`: what smaller requests to .onnx models may be filled up with, as of popefgen compile"},
		&cli.IntFlag{Name: "computing", Usage: "`N` requests to each model that compute at the same time", DefaultText: "as many as it computes in parallel"},
		&cli.IntFlag{Name: "waiting", Usage: "`N` requests that wait for each model; more are refused. -1: none wait", DefaultText: "4 times those that compute"},
		&cli.DurationFlag{Name: "timeout", Usage: "`TIME` that a request may take if it does not say less", DefaultText: "1m0s"},
		&cli.IntFlag{Name: "connections", Usage: "`N` connections of each address at the same time; others wait", DefaultText: "1024"},
		&cli.IntFlag{Name: "streams", Usage: "`N` requests under way on one connection of HTTP/2", DefaultText: "128"},
		&cli.Int64Flag{Name: "message", Usage: "`BYTES` of a message of gRPC at most", DefaultText: "what requests to the models of the start need"},
		&cli.IntFlag{Name: "access-log", Usage: "a line for one of `N` requests that succeed, and for those that fail; 0: none"},
		&cli.DurationFlag{Name: "drain-delay", Usage: "`TIME` to serve on, not ready, after SIGTERM"},
		&cli.DurationFlag{Name: "drain-limit", Usage: "`TIME` that requests under way have then", DefaultText: defaultLimit.String()},
		&cli.StringFlag{Name: "tls-certificate", Usage: "`FILE` with the server's certificate"},
		&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with its key"},
		&cli.StringFlag{Name: "tls-client-cas", Usage: "`FILE` with the certificates that sign those of clients"},
		&cli.BoolFlag{Name: "tls-clients-optional", Usage: "clients without a certificate may connect"},
		&cli.StringFlag{Name: "tokens", Usage: "`FILE` with tokens that says who may do what"},
		&cli.StringSliceFlag{Name: "certificates", Usage: "`NAME` of certificates of clients that may use the models"},
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
		case *cli.Int64Flag:
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
	set("repository", func() { conf.Repository = c.Bool("repository") })
	set("load-model", func() { conf.LoadModel = c.StringSlice("load-model") })
	set("triton-metrics", func() { conf.TritonMetrics = c.Bool("triton-metrics") })
	set("replicas", func() { n := c.Int("replicas"); conf.Replicas = &n })
	set("threads", func() { n := c.Int("threads"); conf.Threads = &n })
	set("linger", func() { d := serving.Duration(c.Duration("linger")); conf.Linger = &d })
	set("batch", func() { conf.Batch = &sizes.List{Text: c.String("batch")} })
	if conf.Limits == nil {
		conf.Limits = &serving.Limits{}
	}
	set("access-log", func() { conf.AccessLog = c.Int("access-log") })
	set("connections", func() { n := c.Int("connections"); conf.Connections = &n })
	set("streams", func() { n := c.Int("streams"); conf.Streams = &n })
	set("message", func() { n := c.Int64("message"); conf.Message = &n })
	set("computing", func() { n := c.Int("computing"); conf.Limits.Computing = &n })
	set("waiting", func() { n := c.Int("waiting"); conf.Limits.Waiting = &n })
	set("timeout", func() { d := serving.Duration(c.Duration("timeout")); conf.Limits.Timeout = &d })
	if err := setSizes(c, conf); err != nil {
		return nil, usageError{error: err}
	}
	if conf.TLS == nil && slices.ContainsFunc([]string{"tls-certificate", "tls-key", "tls-client-cas", "tls-clients-optional"}, c.IsSet) {
		conf.TLS = &serving.TLS{}
	}
	set("tls-certificate", func() { conf.TLS.Certificate = c.String("tls-certificate") })
	set("tls-key", func() { conf.TLS.Key = c.String("tls-key") })
	set("tls-client-cas", func() { conf.TLS.ClientCAs = c.String("tls-client-cas") })
	set("tls-clients-optional", func() { conf.TLS.ClientsOptional = c.Bool("tls-clients-optional") })
	if conf.Auth == nil && (c.IsSet("tokens") || c.IsSet("certificates")) {
		conf.Auth = &serving.Auth{}
	}
	set("tokens", func() { conf.Auth.Tokens = c.String("tokens") })
	set("certificates", func() {
		conf.Auth.Certificates = map[string]serving.Rule{}
		for _, name := range c.StringSlice("certificates") {
			conf.Auth.Certificates[name] = serving.Rule{}
		}
	})
	for _, path := range c.Args().Slice() {
		if _, err := os.Lstat(path); strings.HasPrefix(path, "-") && err != nil {
			return nil, usageError{error: fmt.Errorf("%s stands behind a file, want flags before the files", path)}
		}
		conf.Models = append(conf.Models, serving.Model{Path: path})
	}
	if all := conf.Check(); len(all) > 0 {
		return nil, mistakes(all)
	}
	return conf, nil
}

// setSizes takes over the flags that say for which sizes .onnx models are compiled. As in the configuration, members that
// are named one by one stand for themselves.
func setSizes(c *cli.Context, conf *serving.Config) error {
	if c.IsSet("size") {
		all, err := sizes.ParseTuples(c.StringSlice("size"))
		if err != nil {
			return err
		}
		conf.Size = all
	}
	if c.IsSet("dim") {
		dims, err := sizes.ParseDims(c.StringSlice("dim"))
		if err != nil {
			return err
		}
		conf.Dim = dims
	}
	if c.IsSet("pad") {
		pads, err := sizes.ParsePads(c.StringSlice("pad"))
		if err != nil {
			return err
		}
		conf.Pad = map[string]map[string]any{}
		for dim, all := range pads {
			conf.Pad[dim] = map[string]any{}
			for _, p := range all {
				conf.Pad[dim][p.Input] = p.Value
			}
		}
	}
	return nil
}
