package rest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// maxCommand is how many bytes the body of a call to the repository has at most.
const maxCommand = 64 << 10

// command reads the body of a call to the repository, JSON or nothing, into value.
func (h *handler) command(q *request, value any) error {
	s := q.state
	s.body.begin(q, &h.options)
	text, err := io.ReadAll(io.LimitReader(&s.body, maxCommand+1))
	if err != nil {
		return err
	}
	if len(text) > maxCommand {
		return oip.Errorf(oip.TooLarge, "request body has more than %d bytes", maxCommand)
	}
	if err := s.body.end(); err != nil {
		return err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, value); err != nil {
		return &oip.Error{Code: oip.InvalidArgument, Text: "request body: " + err.Error(), Cause: err}
	}
	return nil
}

// indexed is how the index shows a version.
type indexed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
}

func (h *handler) index(q *request) error {
	var ask struct {
		Ready bool `json:"ready"`
	}
	if err := h.command(q, &ask); err != nil {
		return err
	}
	all := []indexed{}
	for _, e := range h.core.Index() {
		if !ask.Ready || e.State == core.Serving {
			all = append(all, indexed{e.Model, e.Version, e.State, e.Reason})
		}
	}
	return h.json(q, all)
}

// repository returns what loads and unloads, and the names of the call's parameters.
func (h *handler) repository(q *request) (Repository, []string, error) {
	r := h.options.Repository
	if r == nil {
		return nil, nil, oip.Errorf(oip.PermissionDenied, "this server loads and unloads no models for clients")
	}
	var ask struct {
		Parameters map[string]json.RawMessage `json:"parameters"`
	}
	if err := h.command(q, &ask); err != nil {
		return nil, nil, err
	}
	return r, slices.Sorted(maps.Keys(ask.Parameters)), nil
}

func (h *handler) load(q *request) error {
	r, parameters, err := h.repository(q)
	if err != nil {
		return err
	}
	if len(parameters) > 0 {
		return wire.LoadParameter(q.model, parameters[0])
	}
	if err := r.Load(q.r.Context(), q.model); err != nil {
		return core.Failure(q.model, err)
	}
	h.reply(q, 0)
	return nil
}

func (h *handler) unload(q *request) error {
	r, _, err := h.repository(q) // unload_dependents: no model depends on another one
	if err != nil {
		return err
	}
	if err := r.Unload(q.r.Context(), q.model); err != nil {
		return core.Failure(q.model, err)
	}
	h.reply(q, 0)
	return nil
}
