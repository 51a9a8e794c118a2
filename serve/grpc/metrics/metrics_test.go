package metrics

import (
	"bytes"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/metrics"
	"github.com/popefgen/popefgen/serve/internal/metrics/metricstest"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// TestAgreesWithText: Prometheus' own parser reads the plain text of package serve, and finds what the collector says, metric by
// metric, label by label; so does a scrape.
func TestAgreesWithText(t *testing.T) {
	s := metricstest.Example()
	c := collect(func() *metrics.Snapshot { return s }, metrics.Table, metrics.TritonTable)
	text := metrics.Append(nil, s, metrics.Table, metrics.TritonTable)
	require.NoError(t, testutil.CollectAndCompare(c, bytes.NewReader(text)))

	other := bytes.Replace(text, []byte("popefgen_ready 1\n"), []byte("popefgen_ready 0\n"), 1)
	require.NotEqual(t, string(text), string(other))
	require.Error(t, testutil.CollectAndCompare(c, bytes.NewReader(other)), "a number that is another")

	srv, err := serve.New(serve.WithModel(testmodel.Simple()))
	require.NoError(t, err)
	all := Collector(srv, true)
	require.Equal(t, testutil.CollectAndCount(Collector(srv, false))+len(metrics.TritonTable)+3, testutil.CollectAndCount(all), "a reason of a failure each")
	require.NoError(t, testutil.CollectAndCompare(all, bytes.NewReader(metrics.Append(nil, metrics.Of(srv.Core()), metrics.Table, metrics.TritonTable))))

	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	require.NoError(t, testutil.ScrapeAndCompare(serveText(t, w.Body.Bytes()), bytes.NewReader(text)))
}

func serveText(t *testing.T, text []byte) string {
	s := httptest.NewServer(metrics.Handler(metricstest.Example, metrics.Table, metrics.TritonTable))
	t.Cleanup(s.Close)
	require.NotEmpty(t, text)
	return s.URL
}

// TestLint: Prometheus' rules for names and help have nothing to say of ours; Triton's are as Triton has them.
func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(collect(metricstest.Example, metrics.Table))
	require.NoError(t, err)
	require.Empty(t, problems)
}

// TestHandler: a server that was made with it answers its metrics and those of the process.
func TestHandler(t *testing.T) {
	srv, err := serve.New(serve.WithModel(testmodel.Simple()), serve.WithMetrics(Handler(true)))
	require.NoError(t, err)
	w := httptest.NewRecorder()
	srv.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	for _, want := range []string{`popefgen_model_ready{model="simple",version="1"} 1`, "nv_inference_count", "go_goroutines"} {
		require.Contains(t, w.Body.String(), want)
	}
}
