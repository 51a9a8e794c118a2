package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

func TestStatistics(t *testing.T) {
	h := served(t, Options{}, testmodel.Identity(oip.FP32, 4, 1), testmodel.Simple())
	for range 2 {
		require.Equal(t, 200, ask(h, "POST", "/v2/models/identity_FP32/infer", `{"inputs":[{"name":"INPUT0","shape":[3,1],"datatype":"FP32","data":[1,2,3]}]}`).Code)
	}
	require.Equal(t, 400, ask(h, "POST", "/v2/models/identity_FP32/infer", `{"inputs":[]}`).Code)
	var got struct {
		Models []modelStatistics `json:"model_stats"`
	}
	for path, models := range map[string]int{"/v2/models/stats": 2, "/v2/models/identity_FP32/stats": 1, "/v2/models/identity_FP32/versions/1/stats": 1} {
		w := ask(h, "GET", path, "")
		require.Equal(t, 200, w.Code)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.Len(t, got.Models, models)
		m := got.Models[0]
		require.Equal(t, "identity_FP32", m.Name)
		require.Equal(t, uint64(6), m.InferenceCount)
		require.Equal(t, uint64(2), m.ExecutionCount)
		require.Equal(t, uint64(2), m.InferenceStats.Success.Count)
		require.Equal(t, uint64(1), m.InferenceStats.Fail.Count)
		require.NotZero(t, m.InferenceStats.ComputeInfer.Ns)
		require.NotZero(t, m.LastInference)
		require.Len(t, m.BatchStats, 1)
		require.Equal(t, 3, m.BatchStats[0].Size)
	}
	require.Equal(t, 404, ask(h, "GET", "/v2/models/other/stats", "").Code)
	require.Equal(t, 404, ask(h, "GET", "/v2/models/simple/versions/2/stats", "").Code)
}

// shelf notes what was loaded and unloaded.
type shelf struct{ did []string }

func (s *shelf) Load(_ context.Context, model string) error {
	if model == "none" {
		return oip.Errorf(oip.NotFound, "there is no model none")
	}
	if model == "secret" {
		return errors.New("open /home/secret: no such file")
	}
	s.did = append(s.did, "load "+model)
	return nil
}

func (s *shelf) Unload(_ context.Context, model string) error {
	s.did = append(s.did, "unload "+model)
	return nil
}

func TestRepository(t *testing.T) {
	var s shelf
	h := served(t, Options{Repository: &s}, testmodel.Simple())
	for _, body := range []string{"", "{}", `{"ready":true}`} {
		w := ask(h, "POST", "/v2/repository/index", body)
		require.Equal(t, 200, w.Code, w.Body)
		require.Equal(t, `[{"name":"simple","version":"1","state":"READY","reason":""}]`, w.Body.String())
	}
	require.Equal(t, 200, ask(h, "POST", "/v2/repository/models/simple/load", "").Code)
	require.Equal(t, 200, ask(h, "POST", "/v2/repository/models/simple/unload", `{"parameters":{"unload_dependents":false}}`).Code)
	require.Equal(t, []string{"load simple", "unload simple"}, s.did)
	for _, c := range []struct {
		path, body string
		status     int
		text       string
	}{
		{"index", "{", 400, "unexpected end of JSON"},
		{"index", `{"a":"` + string(make([]byte, maxCommand)) + `"}`, 413, "more than 65536 bytes"},
		{"models/none/load", "", 404, "there is no model none"},
		{"models/secret/load", "", 500, "model 'secret' failed"},
		{"models/simple/load", `{"parameters":{"config":"{}"}}`, 501, "failed to load 'simple': parameter 'config' is not supported"},
		{"models/simple/load", `{"parameters":{"file:1/model.popef":"AAAA"}}`, 501, "file:1/model.popef"},
		{"models/..%2f..%2fetc/load", "", 404, "nothing at this path"},
	} {
		w := ask(h, "POST", "/v2/repository/"+c.path, c.body)
		require.Equal(t, c.status, w.Code, w.Body)
		require.Contains(t, w.Body.String(), c.text)
		require.NotContains(t, w.Body.String(), "/home")
	}
	require.Len(t, s.did, 2)
	require.Contains(t, ask(h, "GET", "/v2", "").Body.String(), "model_repository")
	h = served(t, Options{}, testmodel.Simple())
	require.Equal(t, 403, ask(h, "POST", "/v2/repository/models/simple/load", "").Code)
	require.Equal(t, 403, ask(h, "POST", "/v2/repository/models/simple/unload", "").Code)
}

// TestAuthorization: every call asks, with its group and its model, before anything is looked for.
func TestAuthorization(t *testing.T) {
	c := core.New()
	_, err := c.Add(testmodel.Simple())
	require.NoError(t, err)
	var asked access.Access
	c.SetAuthorization(func(_ context.Context, a access.Access) error {
		asked = a
		return oip.Errorf(oip.Unauthenticated, "who?")
	})
	h := New(c, Options{})
	for _, r := range calls() {
		path := ""
		for _, part := range r.path {
			path += "/" + strings.NewReplacer("{model}", "simple", "{version}", "1").Replace(part)
		}
		asked = access.Access{}
		w := ask(h, r.method, path, "", "Authorization", "Bearer secret")
		require.Equal(t, 401, w.Code, path)
		require.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
		require.Equal(t, "secret", asked.Token, path)
		require.Equal(t, r.api, asked.API, path)
	}
}

func TestMetricsHook(t *testing.T) {
	require.Equal(t, 404, ask(served(t, Options{}), "GET", "/metrics", "").Code)
	h := served(t, Options{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1")) })})
	require.Equal(t, "up 1", ask(h, "GET", "/metrics", "").Body.String())
}

// TestBusy: what has no room is refused before its body is read, and told when to come again.
func TestBusy(t *testing.T) {
	m := testmodel.Identity(oip.FP32, 1, 1)
	m.Before = func(context.Context) error {
		return &oip.Error{Code: oip.Exhausted, Text: "full", RetryAfter: 1500e6}
	}
	w := ask(served(t, Options{}, m), "POST", "/v2/models/identity_FP32/infer", `{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[1]}]}`)
	require.Equal(t, 503, w.Code)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
	require.Equal(t, `{"error":"full","code":"RESOURCE_EXHAUSTED"}`, w.Body.String())
}

// TestLacking: calls of extensions that this server does not have are refused as such, whatever their method; their metadata does not name them.
func TestLacking(t *testing.T) {
	h := served(t, Options{}, testmodel.Simple())
	for path, text := range map[string]string{
		"/v2/systemsharedmemory/status": "shares no memory", "/v2/systemsharedmemory/region/a/register": "shares no memory", "/v2/systemsharedmemory/unregister": "shares no memory",
		"/v2/cudasharedmemory/status": "shares no memory", "/v2/cudasharedmemory/region/a/unregister": "shares no memory", "/v2/xpusharedmemory/status": "shares no memory",
		"/v2/trace/setting": "traces are set up where it starts", "/v2/models/simple/trace/setting": "traces are set up where it starts", "/v2/logging": "log is set up where it starts",
		"/v2/models/simple/generate": "send a request to infer", "/v2/models/simple/versions/1/generate_stream": "send a request to infer",
	} {
		for _, method := range []string{"GET", "POST"} {
			w := ask(h, method, path, "{}")
			require.Equal(t, 501, w.Code, "%s %s: %s", method, path, w.Body)
			require.Contains(t, w.Body.String(), text)
			require.Contains(t, w.Body.String(), `"code":"UNIMPLEMENTED"`)
		}
	}
	for _, path := range []string{"/v2/trac", "/v2/models/trace/setting", "/v2/models/generate", "/v3/logging"} {
		require.Equal(t, 404, ask(h, "GET", path, "").Code, path)
	}
}

// TestEscapes: a client may escape what needs none in a name; an escaped / makes no path of it.
func TestEscapes(t *testing.T) {
	m := testmodel.Simple()
	m.Described.Name = "team:simple@2+x"
	h := served(t, Options{}, m)
	for _, name := range []string{"team:simple@2+x", "team%3Asimple%402%2Bx", "%74eam:simple@2+x"} {
		w := ask(h, "GET", "/v2/models/"+name, "")
		require.Equal(t, 200, w.Code, "%s: %s", name, w.Body)
	}
	for _, path := range []string{"/v2/models%2Fteam:simple@2+x", "/v2/models/team:simple@2+x%2Fready", "/v2/models/x%2F..%2Fteam:simple@2+x", "/v2/models/%2e%2e/models/team:simple@2+x"} {
		require.Equal(t, 404, ask(h, "GET", path, "").Code, path)
	}
}
