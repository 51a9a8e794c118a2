// Package rest answers the calls of the Open Inference Protocol, version 2, over HTTP, with the extensions of Triton that its clients
// rely on: binary_tensor_data, classification, statistics, model_configuration, model_repository.
package rest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// Options say what the handler is beside the calls to models. The zero Options is a server without repository and metrics.
type Options struct {
	Name    string // what the server's metadata calls it, "" is popefgen
	Version string // of the server, "" is 2
	// Repository, unless nil, loads and unloads models for clients.
	Repository Repository
	// Metrics, unless nil, answers /metrics.
	Metrics http.Handler
	// Rate is how many bytes of a body a second clients have to send, and take of an answer, on average after the first
	// Grace; 0 is 64 KiB. Grace 0 is 5 seconds.
	Rate  int64
	Grace time.Duration
}

// Repository loads and unloads models by their names. Names come from the registry of models or are refused by it: they are
// no paths.
type Repository interface {
	Load(ctx context.Context, model string) error
	Unload(ctx context.Context, model string) error
}

// handler answers the calls.
type handler struct {
	core    *core.Core
	options Options
	states  sync.Pool // of *state
	lengths lengths
	routes  []route
}

// New returns the handler of all calls to the models of c.
func New(c *core.Core, o Options) http.Handler {
	if o.Name == "" {
		o.Name = "popefgen"
	}
	if o.Version == "" {
		o.Version = "2"
	}
	if o.Rate == 0 {
		o.Rate = 64 << 10
	}
	if o.Grace == 0 {
		o.Grace = 5 * time.Second
	}
	h := &handler{core: c, options: o, routes: calls()}
	h.states.New = func() any { return new(state) }
	return h
}

// request is a request whose route is known.
type request struct {
	w              http.ResponseWriter
	r              *http.Request
	model, version string // "" if the path has none
	state          *state
}

// route is a path of the protocol and what answers it. A part of the path in braces stands for a name.
type route struct {
	method string
	path   []string
	api    access.API
	do     func(*handler, *request) error
}

// calls returns the calls of the protocol, those of requests to models first.
func calls() []route {
	return []route{
		{"POST", path("v2/models/{model}/infer"), access.Infer, (*handler).infer},
		{"POST", path("v2/models/{model}/versions/{version}/infer"), access.Infer, (*handler).infer},
		{"GET", path("v2"), access.Metadata, (*handler).server},
		{"GET", path("v2/health/live"), access.Health, (*handler).live},
		{"GET", path("v2/health/ready"), access.Health, (*handler).ready},
		{"GET", path("v2/models/stats"), access.Statistics, (*handler).statistics},
		{"GET", path("v2/models/{model}/stats"), access.Statistics, (*handler).statistics},
		{"GET", path("v2/models/{model}/versions/{version}/stats"), access.Statistics, (*handler).statistics},
		{"POST", path("v2/repository/index"), access.Repository, (*handler).index},
		{"POST", path("v2/repository/models/{model}/load"), access.Repository, (*handler).load},
		{"POST", path("v2/repository/models/{model}/unload"), access.Repository, (*handler).unload},
		{"GET", path("v2/models/{model}"), access.Metadata, (*handler).metadata},
		{"GET", path("v2/models/{model}/versions/{version}"), access.Metadata, (*handler).metadata},
		{"GET", path("v2/models/{model}/ready"), access.Health, (*handler).modelReady},
		{"GET", path("v2/models/{model}/versions/{version}/ready"), access.Health, (*handler).modelReady},
		{"GET", path("v2/models/{model}/config"), access.Metadata, (*handler).config},
		{"GET", path("v2/models/{model}/versions/{version}/config"), access.Metadata, (*handler).config},
		{"GET", path("v2/openapi.json"), access.Metadata, (*handler).openAPI},
		{"GET", path("metrics"), access.Statistics, (*handler).metrics},
	}
}

func path(s string) []string { return strings.Split(s, "/") }

// lacking returns the extension of Triton that a path is of, if it is one that this server does not have.
func lacking(parts []string) (wire.Extension, bool) {
	if len(parts) < 2 || parts[0] != "v2" {
		return 0, false
	}
	last := parts[len(parts)-1]
	switch ofModel := parts[1] == "models"; {
	case strings.HasSuffix(parts[1], "sharedmemory"):
		return wire.SharedMemory, true
	case parts[1] == "trace", ofModel && len(parts) == 5 && parts[3] == "trace":
		return wire.Trace, true
	case parts[1] == "logging":
		return wire.Logging, true
	case ofModel && len(parts) > 3 && (last == "generate" || last == "generate_stream"):
		return wire.Generate, true
	}
	return 0, false
}

// matches reports whether the parts of a path are those of the route, and what stands for the names.
func (t *route) matches(parts []string) (model, version string, ok bool) {
	if len(parts) != len(t.path) {
		return "", "", false
	}
	for i, want := range t.path {
		switch {
		case want == "{model}" && parts[i] != "":
			model = parts[i]
		case want == "{version}" && parts[i] != "":
			version = parts[i]
		case want != parts[i]:
			return "", "", false
		}
	}
	return model, version, true
}

// ServeHTTP answers a request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := h.states.Get().(*state)
	defer h.states.Put(s)
	s.request = request{w: w, r: r, state: s}
	q := &s.request
	defer func() { s.request, s.body.body = request{}, nil }()
	h.hurry(q)
	if len(r.TransferEncoding) > 0 {
		// net/http does not tell whether a body in chunks had a Content-Length besides, by which a proxy would have cut it: whatever comes
		// after it on this connection is nobody's request.
		w.Header().Set("Connection", "close")
	}
	var storage [8]string
	parts := storage[:0]
	rest, more := strings.CutPrefix(r.URL.Path, "/")
	for more && len(parts) < len(storage) {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		parts = append(parts, part)
	}
	if more || strings.Count(r.URL.RawPath, "/") != strings.Count(r.URL.Path, "/") && r.URL.RawPath != "" { // a name that tries to be a path, by an escaped /
		parts = nil
	}
	var allowed string
	for i := range h.routes {
		t := &h.routes[i]
		model, version, ok := t.matches(parts)
		if !ok {
			continue
		}
		if r.Method != t.method && !(r.Method == "HEAD" && t.method == "GET") {
			allowed = t.method
			continue
		}
		q.model, q.version = model, version
		if err := h.answer(t, q); err != nil {
			h.fail(q, err)
		}
		return
	}
	if allowed != "" {
		w.Header().Set("Allow", allowed)
		h.failStatus(q, oip.Errorf(oip.InvalidArgument, "method %s is not allowed here, expected %s", clip(r.Method), allowed), http.StatusMethodNotAllowed)
		return
	}
	if e, ok := lacking(parts); ok {
		h.fail(q, wire.Lacking(e))
		return
	}
	h.fail(q, oip.Errorf(oip.NotFound, "there is nothing at this path; /v2/openapi.json describes what there is"))
}

func (h *handler) answer(t *route, q *request) error {
	if h.core.Guarded() {
		if err := h.core.Authorize(q.r.Context(), t.api, q.model, q.r.Header.Get("Authorization"), q.r.TLS); err != nil {
			return err
		}
	}
	return t.do(h, q)
}

func (h *handler) live(q *request) error {
	h.reply(q, 0)
	return nil
}

func (h *handler) ready(q *request) error {
	if err := h.core.Ready(); err != nil {
		return err
	}
	h.reply(q, 0)
	return nil
}

func (h *handler) metrics(q *request) error {
	if h.options.Metrics == nil {
		return oip.Errorf(oip.NotFound, "this server gives no metrics")
	}
	h.reply(q, 1<<20)
	h.options.Metrics.ServeHTTP(q.w, q.r)
	return nil
}

// reply gives the answer, of so many bytes, its time: clients that take it more slowly are cut off.
func (h *handler) reply(q *request, size int) {
	if w, ok := q.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = w.SetWriteDeadline(time.Now().Add(h.options.Grace + h.patience(int64(size)))) // if it fails the connection is gone
	}
}

// patience returns how long so many bytes may take.
func (h *handler) patience(size int64) time.Duration {
	return time.Duration(float64(size) / float64(h.options.Rate) * float64(time.Second))
}

// clip shortens what a client wrote for an error.
func clip(s string) string {
	const most = 64
	return strings.ToValidUTF8(s[:min(len(s), most)], "�")
}
