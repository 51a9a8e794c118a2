package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/internal/serving"
	"github.com/popefgen/popefgen/internal/sizes"
	_ "github.com/popefgen/popefgen/ipu/cpu" // the engine
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/dynamic"
	grpcserve "github.com/popefgen/popefgen/serve/grpc"
	"github.com/popefgen/popefgen/serve/grpc/metrics"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/repository"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// Defaults of what a configuration does not say.
const (
	defaultHTTP  = ":8000"
	defaultGRPC  = ":8001"
	defaultPoll  = time.Second
	defaultLimit = 30 * time.Second
	leastMessage = 64 << 20 // bytes of a message of gRPC, where models come that are not known yet
)

// serveModels serves until ctx ends, and drains.
func serveModels(ctx context.Context, conf *serving.Config, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	opts, err := optionsOf(conf, log)
	if err != nil {
		return mistakesOf(err)
	}
	listeners, err := listen(conf)
	if err != nil {
		return err
	}
	ours := true // to close
	defer func() {
		for _, l := range listeners {
			if ours && l != nil {
				l.Close()
			}
		}
	}()
	if l := listeners["http"]; l != nil {
		opts = append(opts, serve.WithHTTPListener(l))
	}
	if l := listeners["admin"]; l != nil {
		opts = append(opts, serve.WithAdminListener(l))
	}
	loader := &loader{}
	switch {
	case conf.Repository:
		opts = append(opts, serve.WithRepository(loader))
	case conf.Explicit():
		opts = append(opts, serve.WithAdminRepository(loader))
	}
	opts = append(opts, serve.WithMetrics(metrics.Handler(conf.TritonMetrics)))
	srv, err := serve.New(opts...)
	if err != nil {
		return err
	}
	models := newModels(conf, srv.Core(), log)
	loader.Repository = models
	if err := loadFirst(ctx, conf, models); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it began
		}
		return mistakesOf(err)
	}
	if l := listeners["grpc"]; l != nil {
		opts := grpcOptions(conf, srv.Core())
		if conf.Repository {
			opts = append(opts, grpcserve.WithRepository(loader))
		}
		if err := grpcserve.RegisterListener(srv, l, opts...); err != nil {
			return err
		}
	}
	ours = false
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		log.Info("listening", "protocol", name, "address", listeners[name].Addr().String())
	}
	srv.Core().SetAvailable(models.Versions)
	if conf.Control == "watch" {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		go models.Watch(watching)
	}
	err = srv.Run(ctx)
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// optionsOf returns the options of a server that do not depend on where it listens. The error names all mistakes in the files that they
// read.
func optionsOf(conf *serving.Config, log *slog.Logger) (opts []serve.Option, err error) {
	var wrong []error
	opts = append(opts, serve.WithLog(log), serve.WithDrain(time.Duration(conf.DrainDelay), cmp.Or(time.Duration(conf.DrainLimit), defaultLimit)))
	if t := conf.TLS; t != nil {
		with := serve.WithTLS(serve.TLS{Certificate: t.Certificate, Key: t.Key, ClientCAs: t.ClientCAs, ClientsOptional: t.ClientsOptional})
		if _, err := serve.New(with); err != nil {
			wrong = append(wrong, err)
		}
		opts = append(opts, with)
	}
	if a := conf.Auth; a != nil {
		allow, err := allowed(a, log)
		if err != nil {
			wrong = append(wrong, err)
		}
		opts = append(opts, serve.WithAuthorization(allow))
	}
	if conf.ServerName != "" {
		opts = append(opts, serve.WithServerName(conf.ServerName, ""))
	}
	if conf.Connections != nil {
		opts = append(opts, serve.WithConnections(*conf.Connections))
	}
	if conf.Streams != nil {
		opts = append(opts, serve.WithStreams(*conf.Streams))
	}
	if conf.AccessLog > 0 {
		opts = append(opts, serve.WithAccessLog(log, conf.AccessLog))
	}
	return opts, errors.Join(wrong...)
}

// allowed returns who may do what: who has a token or a certificate.
func allowed(a *serving.Auth, log *slog.Logger) (access.Func, error) {
	var ways []access.Func
	if a.Tokens != "" {
		tokens, err := access.TokenFile(a.Tokens, log)
		if err != nil {
			return nil, err
		}
		ways = append(ways, tokens.Allow)
	}
	if len(a.Certificates) > 0 {
		rules, err := a.Rules()
		if err != nil {
			return nil, err
		}
		ways = append(ways, access.Certificates(rules))
	}
	return access.Any(ways...), nil
}

// loadFirst loads what is to serve from the start: all models, or those that are named if clients load them.
func loadFirst(ctx context.Context, conf *serving.Config, models *repository.Repository) error {
	if !conf.Explicit() || slices.Contains(conf.LoadModel, "*") {
		return loadAll(ctx, conf, models)
	}
	return errors.Join(absent(conf, models), models.LoadNamed(ctx, conf.LoadModel))
}

// absent returns an error that names the models which are to be loaded at the start and are not there.
func absent(conf *serving.Config, models *repository.Repository) error {
	found, err := models.Models()
	if err != nil {
		return nil // who loads says it
	}
	var wrong []error
	for _, name := range conf.LoadModel {
		if name != "*" && !slices.ContainsFunc(found, func(f repository.Found) bool { return f.Name == name }) {
			wrong = append(wrong, fmt.Errorf("load-model: there is no model %q in the files and folders that are served", name))
		}
	}
	return errors.Join(wrong...)
}

// loadAll loads all models. That there is none is a mistake, unless some may come later.
func loadAll(ctx context.Context, conf *serving.Config, models *repository.Repository) error {
	if err := models.LoadAll(ctx); err != nil {
		return err
	}
	found, err := models.Models()
	if err == nil && len(found) == 0 && !later(conf) {
		err = errors.New("models: there is no model in these folders: want .popef or .onnx files, MODEL/*.popef or MODEL/VERSION/*.popef")
	}
	return err
}

// later reports whether models come after the start.
func later(conf *serving.Config) bool { return conf.Control == "watch" || conf.Explicit() }

// grpcOptions returns the options of gRPC, for the models that there are.
func grpcOptions(conf *serving.Config, of *core.Core) (opts []grpcserve.Option) {
	if conf.Streams != nil {
		opts = append(opts, grpcserve.WithMaxStreams(*conf.Streams))
	}
	if conf.Message != nil {
		opts = append(opts, grpcserve.WithMaxMessage(*conf.Message))
	} else if later(conf) {
		most := int64(leastMessage)
		for _, name := range of.Names() {
			if v, err := of.Lookup([]byte(name), nil); err == nil {
				most = max(most, wire.MaxProto(v.Spec))
				v.Release()
			}
		}
		opts = append(opts, grpcserve.WithMaxMessage(min(most, math.MaxInt32)))
	}
	return opts
}

// loader is a repository that is there once its server is.
type loader struct{ *repository.Repository }

// listen listens at every address of a configuration, by protocol.
func listen(conf *serving.Config) (map[string]net.Listener, error) {
	all := map[string]net.Listener{}
	for name, addr := range map[string]string{"http": *conf.HTTP, "grpc": *conf.GRPC, "admin": conf.Admin} {
		if addr == "" {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, fmt.Errorf("serve %s: %w", name, err)
		}
		all[name] = l
	}
	return all, nil
}

// mistakesOf takes joined errors apart.
func mistakesOf(err error) mistakes {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return mistakes{err}
	}
	var all mistakes
	for _, e := range joined.Unwrap() {
		all = append(all, mistakesOf(e)...)
	}
	return all
}

// newModels returns the repository of what a configuration serves.
func newModels(conf *serving.Config, to *core.Core, log *slog.Logger) *repository.Repository {
	o := repository.Options{Poll: cmp.Or(time.Duration(conf.Poll), defaultPoll), Log: log}
	for i := range conf.Models {
		m := &conf.Models[i]
		o.Roots = append(o.Roots, repository.Root{Path: m.Path, Name: m.Name, All: cmp.Or(m.Versions, conf.Versions) == "all"})
	}
	o.Open = func(ctx context.Context, f repository.Found) (oip.Model, error) {
		m := &conf.Models[f.Root]
		given := conf.Of(m)
		to.SetLimits(f.Name, limitsOf(given.Limits))
		d, err := open(ctx, f, m, &given)
		if err != nil {
			return nil, err
		}
		return opened{d, dynamic.GoldensOf(f.Paths[0])}, nil
	}
	return repository.New(server{to}, o)
}

// opened is a model that is not warm yet.
type opened struct {
	*dynamic.Model
	goldens string // folder; "" if there are none
}

// open opens a model.
func open(ctx context.Context, f repository.Found, m *serving.Model, given *serving.Options) (*dynamic.Model, error) {
	opts := []dynamic.Option{dynamic.WithName(f.Name), dynamic.WithCopy(), dynamic.WithCompile(compileOf(given))}
	if given.Replicas != nil {
		opts = append(opts, dynamic.WithReplicas(*given.Replicas))
	}
	if given.Threads != nil {
		opts = append(opts, dynamic.WithThreads(*given.Threads))
	}
	if given.Linger != nil {
		opts = append(opts, dynamic.WithBatching(rt.BatchPolicy{Linger: time.Duration(*given.Linger)}))
	}
	for _, output := range slices.Sorted(maps.Keys(m.Labels)) {
		labels, err := readLabels(m.Labels[output])
		if err != nil {
			return nil, err
		}
		opts = append(opts, dynamic.WithLabels(output, labels))
	}
	return dynamic.Open(ctx, f.Paths, opts...)
}

// readLabels reads names of classes, a line each.
func readLabels(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var labels []string
	s := bufio.NewScanner(bytes.NewReader(data))
	for s.Scan() {
		labels = append(labels, s.Text())
	}
	return labels, s.Err()
}

// compileOf returns for which sizes .onnx models are compiled.
func compileOf(o *serving.Options) dynamic.Compile {
	var c dynamic.Compile
	if o.Batch != nil {
		c.Batch = o.Batch.Text
	}
	for _, name := range slices.Sorted(maps.Keys(o.Dim)) {
		c.Dims = append(c.Dims, name+"="+o.Dim[name].Text)
	}
	for _, member := range o.Size {
		var words []string
		for _, name := range slices.Sorted(maps.Keys(member)) {
			words = append(words, fmt.Sprintf("%s=%d", name, member[name]))
		}
		c.Sizes = append(c.Sizes, strings.Join(words, ","))
	}
	pads, _ := sizes.PadsOf(o.Pad) // Check saw them
	for _, dim := range slices.Sorted(maps.Keys(pads)) {
		var words []string
		for _, p := range pads[dim] {
			words = append(words, p.Input+":"+p.Value)
		}
		c.Pads = append(c.Pads, dim+"="+strings.Join(words, ","))
	}
	return c
}

func limitsOf(l *serving.Limits) (out core.Limits) {
	if l.Computing != nil {
		out.Computing = *l.Computing
	}
	if l.Waiting != nil {
		out.Waiting = *l.Waiting
	}
	if l.Timeout != nil {
		out.Timeout = time.Duration(*l.Timeout)
	}
	return out
}

// server is the core as the repository hands models to it.
type server struct{ *core.Core }

func (s server) Load(ctx context.Context, m oip.Model, version string) error {
	o := m.(opened)
	_, err := s.Core.Load(ctx, m, core.Load{Version: version, Warm: func(ctx context.Context, _ oip.Call) error { return o.Warm(ctx, o.goldens) }})
	return err
}

// check opens everything that would be served, and returns all mistakes.
func check(ctx context.Context, conf *serving.Config, stdout io.Writer) error {
	to, log := core.New(), slog.New(slog.DiscardHandler)
	_, wrong := optionsOf(conf, log)
	models := newModels(conf, to, log)
	if err := errors.Join(wrong, loadAll(ctx, conf, models), absent(conf, models), to.Close(ctx)); err != nil {
		return mistakesOf(err)
	}
	found, err := models.Models()
	if err != nil {
		return err
	}
	for _, f := range found {
		fmt.Fprintf(stdout, "%s version %s: %s\n", f.Name, f.Version, filepath.Clean(f.Paths[0]))
	}
	return nil
}
