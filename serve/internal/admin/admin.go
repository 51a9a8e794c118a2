// Package admin answers on the address for those who run a server: a page for people, /metrics, profiles, and the calls
// of REST, those of the repository among them.
package admin

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/popefgen/popefgen/internal/looks"
	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/metrics"
	"github.com/popefgen/popefgen/serve/oip"
)

var (
	//go:embed admin.html
	html string
	//go:embed admin.css
	css string
	//go:embed admin.js
	js string
)

// policy lets the page load what this package answers and nothing else, run no script that stands in it, and be in no other page.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// state is what the page shows, as JSON.
type state struct {
	Ready   bool
	Reason  string    // why it is not
	Started time.Time // when the page's handler was made
	Now     time.Time
	Models  []model
}

type model struct {
	metrics.Model
	State, Reason string
	Contract      string // the hash; "" if there is none
	Samples       int
	Inputs        []tensor
	Outputs       []tensor
}

type tensor struct {
	Name, Type string
	Shape, Max []int64
}

type handler struct {
	core    *core.Core
	started time.Time
}

// New returns the handler for a server whose calls rest answers. Pages of others can not have a browser change anything
// through it: what is not a GET has to come from its own page, or from no page.
func New(c *core.Core, rest, exposition http.Handler) http.Handler {
	h := &handler{core: c, started: time.Now()}
	mux := http.NewServeMux()
	for path, file := range map[string]struct{ kind, text string }{
		"GET /{$}":       {"text/html", html},
		"GET /admin.css": {"text/css", looks.Palette + looks.Base + css},
		"GET /admin.js":  {"text/javascript", js},
	} {
		// They have nothing of the server: whoever looks at them may not see the state yet, and gives a token there.
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", file.kind+"; charset=utf-8")
			w.Header().Set("Content-Security-Policy", policy)
			_, _ = w.Write([]byte(file.text))
		})
	}
	guard := func(path string, api access.API, f http.Handler) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if err := c.Authorize(r.Context(), api, "", r.Header.Get("Authorization"), r.TLS); err != nil {
				refuse(w, err)
				return
			}
			f.ServeHTTP(w, r)
		})
	}
	guard("GET /state.json", access.Admin, http.HandlerFunc(h.state))
	guard("GET /contract", access.Admin, http.HandlerFunc(h.contract))
	guard("GET /metrics", access.Statistics, exposition)
	guard("GET /debug/pprof/{$}", access.Admin, http.HandlerFunc(profiles))
	guard("GET /debug/pprof/{name}", access.Admin, http.HandlerFunc(profile))
	mux.Handle("/v2", rest) // asks for itself who may do what
	mux.Handle("/v2/", rest)
	same := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		same.Handler(mux).ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, err error) {
	code := oip.Internal
	if e, ok := err.(*oip.Error); ok {
		code = e.Code
	}
	if code == oip.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="popefgen"`)
	}
	http.Error(w, err.Error(), code.HTTP())
}

func (h *handler) state(w http.ResponseWriter, _ *http.Request) {
	s := state{Started: h.started, Now: time.Now(), Models: []model{}}
	if err := h.core.Ready(); err != nil {
		s.Reason = err.Error()
	}
	entries := map[[2]string]core.Entry{}
	for _, e := range h.core.Index() {
		entries[[2]string{e.Model, e.Version}] = e
	}
	counted := metrics.Of(h.core)
	s.Ready = counted.Ready
	for _, m := range counted.Models {
		e := entries[[2]string{m.Name, m.Version}]
		one := model{Model: m, State: e.State, Reason: e.Reason}
		if v, err := h.core.Lookup([]byte(m.Name), []byte(m.Version)); err == nil {
			one.Contract, one.Samples = v.Hash(), v.Spec.Samples
			one.Inputs, one.Outputs = tensors(v.Spec.Inputs), tensors(v.Spec.Outputs)
			v.Release()
		}
		s.Models = append(s.Models, one)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s)
}

func tensors(of []oip.Tensor) []tensor {
	all := make([]tensor, len(of))
	for i := range of {
		all[i] = tensor{of[i].Name, of[i].Type.String(), of[i].Shape, of[i].Max}
	}
	return all
}

// contract answers with the text of a model's contract.
func (h *handler) contract(w http.ResponseWriter, r *http.Request) {
	v, err := h.core.Lookup([]byte(r.FormValue("model")), []byte(r.FormValue("version")))
	if err != nil {
		refuse(w, err)
		return
	}
	defer v.Release()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(strings.ToValidUTF8(v.Spec.Contract, "�")))
}
