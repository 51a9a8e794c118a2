package metrics_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/metrics"
	"github.com/popefgen/popefgen/serve/internal/metrics/metricstest"
)

// TestText: what is written of a model, line by line.
func TestText(t *testing.T) {
	s := &metrics.Snapshot{Ready: true, Models: []metrics.Model{{Name: "di\"g\\i\nts", Version: "3", Ready: true, Sent: 7, Requests: []metrics.Requests{{Protocol: "rest", Outcome: "ok", Count: 5}, {Protocol: "grpc", Outcome: "not_found", Count: 2}},
		Whole: metrics.Histogram{Bounds: []float64{0.5, 1}, Counts: []uint64{1, 2, 3}, Sum: 9.25}, Refusals: 1}}}
	text := string(metrics.Append(nil, s, metrics.Table, metrics.TritonTable))
	name := `{model="di\"g\\i\nts",`
	of := name + `version="3"`
	for _, want := range []string{
		"# HELP popefgen_ready 1 if the server answers that it is ready.\n# TYPE popefgen_ready gauge\npopefgen_ready 1\n",
		"# TYPE popefgen_requests_total counter\npopefgen_requests_total" + name + `outcome="ok",protocol="rest",version="3"} 5` + "\npopefgen_requests_total" + name + `outcome="not_found",protocol="grpc",version="3"} 2` + "\n#",
		"# TYPE popefgen_request_seconds histogram\n",
		"popefgen_request_seconds_bucket" + of + `,le="0.5"} 1` + "\npopefgen_request_seconds_bucket" + of + `,le="1"} 3` + "\npopefgen_request_seconds_bucket" + of + `,le="+Inf"} 6` +
			"\npopefgen_request_seconds_sum" + of + "} 9.25\npopefgen_request_seconds_count" + of + "} 6\n",
		"popefgen_sent_bytes_total" + of + "} 7\n",
		"popefgen_reloads_total" + name + `result="ok",version="3"} 0` + "\npopefgen_reloads_total" + name + `result="refused",version="3"} 1` + "\n",
		"nv_inference_request_success" + of + "} 5\n",
		"nv_inference_request_failure" + name + `reason="OTHER",version="3"} 2` + "\n",
		"nv_inference_request_duration_us" + of + "} 9.25e+06\n",
	} {
		require.Contains(t, text, want)
	}
	require.Equal(t, len(metrics.Table)+len(metrics.TritonTable), strings.Count(text, "# TYPE"))
}

// TestNoModels: a metric without values has no header either.
func TestNoModels(t *testing.T) {
	require.Equal(t, 1, strings.Count(string(metrics.Append(nil, &metrics.Snapshot{}, metrics.Table)), "# TYPE"))
}

// TestTable: names are unlike each other and of the form that Prometheus asks for, and have the unit at the end.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range append(append([]metrics.Metric(nil), metrics.Table...), metrics.TritonTable...) {
		require.False(t, seen[m.Name], m.Name)
		seen[m.Name] = true
		require.Regexp(t, `^(popefgen|nv_inference)_[a-z_]+$`, m.Name)
		require.NotEmpty(t, m.Help)
		require.Equal(t, strings.HasPrefix(m.Name, "popefgen_") && m.Kind == metrics.Counter, strings.HasSuffix(m.Name, "_total"), m.Name)
	}
}

// TestHandler: the text and its type.
func TestHandler(t *testing.T) {
	w := httptest.NewRecorder()
	metrics.Handler(metricstest.Example, metrics.Table).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, metrics.ContentType, w.Header().Get("Content-Type"))
	require.Equal(t, string(metrics.Append(nil, metricstest.Example(), metrics.Table)), w.Body.String())
}
