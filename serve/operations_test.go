package serve_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// buffer is a log that is written and read at the same time.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

type repository struct{}

func (repository) Load(context.Context, string) error   { return nil }
func (repository) Unload(context.Context, string) error { return nil }

// TestOperations: what is on the address of REST and what is on that of the admin page alone, and what is logged of a request and what not.
func TestOperations(t *testing.T) {
	public, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	private, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var logged buffer
	const token = "the-token-of-this-test"
	srv, err := serve.New(serve.WithModel(testmodel.Simple()), serve.WithHTTPListener(public), serve.WithAdminListener(private),
		serve.WithMetrics(serve.TextMetrics(true)), serve.WithAdminRepository(repository{}),
		serve.WithAccessLog(slog.New(slog.NewTextHandler(&logged, nil)), 1),
		serve.WithAuthorization(func(_ context.Context, a access.Access) error {
			if a.Token == token || a.API == access.Health {
				return nil
			}
			return oip.Errorf(oip.Unauthenticated, "who are you?")
		}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	ask := func(l net.Listener, method, path, body, token string) (int, string) {
		req, err := http.NewRequest(method, "http://"+l.Addr().String()+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		w, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = w.Body.Close() }()
		text, err := io.ReadAll(w.Body)
		require.NoError(t, err)
		return w.StatusCode, string(text)
	}
	zeros := "[" + strings.Repeat("424242,", testmodel.Elements-1) + "0]"
	infer := `{"id":"7","inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,16],"data":` + zeros + `},{"name":"INPUT1","datatype":"INT32","shape":[1,16],"data":` + zeros + `}]}`
	for _, l := range []net.Listener{public, private} {
		status, text := ask(l, "POST", "/v2/models/simple/infer", infer, token)
		require.Equal(t, 200, status, text)
		status, _ = ask(l, "POST", "/v2/models/simple/infer", infer, "another")
		require.Equal(t, 401, status)
		status, text = ask(l, "GET", "/metrics", "", token)
		require.Equal(t, 200, status)
		status, server := ask(l, "GET", "/v2", "", token)
		require.Equal(t, 200, status)
		require.Equal(t, l == private, strings.Contains(server, `"model_repository"`), "loading and unloading is for the admin address")
		require.Contains(t, text, "popefgen_requests_total")
		require.Contains(t, text, "nv_inference_count")
		status, _ = ask(l, "GET", "/metrics", "", "")
		require.Equal(t, 401, status)
	}
	for path, method := range map[string]string{"/": "GET", "/state.json": "GET", "/debug/pprof/": "GET"} {
		status, _ := ask(public, method, path, "", token)
		require.Equal(t, 404, status, path)
		status, _ = ask(private, method, path, "", token)
		require.Equal(t, 200, status, path)
	}
	require.Equal(t, 2, strings.Count(logged.String(), "outcome=OK"))
	require.Contains(t, logged.String(), "id=7")
	require.NotContains(t, logged.String(), token)
	require.NotContains(t, logged.String(), "424242")
	_, err = serve.New(serve.WithAdmin(private.Addr().String()))
	require.ErrorContains(t, err, "serve the admin page: ", "the address is taken")
	cancel()
	require.NoError(t, <-done)
	_, err = serve.New(serve.WithAccessLog(slog.Default(), 0))
	require.ErrorContains(t, err, "want at least 1")
}

// TestOptionsOfREST: what a program's own HTTP server gets with the handler: the repository, and the rate of bodies.
func TestOptionsOfREST(t *testing.T) {
	srv, err := serve.New(serve.WithModel(testmodel.Simple()), serve.WithRepository(repository{}), serve.WithRate(1<<20, 50*time.Millisecond))
	require.NoError(t, err)
	own := httptest.NewServer(srv.Handler())
	defer own.Close()
	w, err := http.Get(own.URL + "/v2")
	require.NoError(t, err)
	text, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	require.NoError(t, w.Body.Close())
	require.Contains(t, string(text), `"model_repository"`)

	body, sent := io.Pipe() // of which nothing comes
	defer sent.Close()
	req, err := http.NewRequest("POST", own.URL+"/v2/models/simple/infer", body)
	require.NoError(t, err)
	w, err = http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, w.Body.Close())
	require.Equal(t, http.StatusRequestTimeout, w.StatusCode)

	for _, o := range []serve.Option{serve.WithRate(0, time.Second), serve.WithRate(1, 0)} {
		_, err = serve.New(o)
		require.ErrorContains(t, err, "want both above 0")
	}
}
