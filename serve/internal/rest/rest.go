// Package rest answers the calls of the Open Inference Protocol, version 2, over HTTP.
package rest

import (
	"net/http"

	"github.com/popefgen/popefgen/serve/internal/core"
)

// New returns the handler of all calls to the models of c.
func New(c *core.Core) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/health/live", func(w http.ResponseWriter, _ *http.Request) {})
	mux.HandleFunc("GET /v2/health/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := c.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}
