package metrics_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/metrics"
	"github.com/popefgen/popefgen/serve/internal/metrics/metricstest"
)

// TestText: what is written of a model, line by line.
func TestText(t *testing.T) {
	s := &metrics.Snapshot{Ready: true, Models: []metrics.Model{{Name: "di\"g\\i\nts", Version: "3", Ready: true, Padded: 7, Requests: []metrics.Requests{{Protocol: "rest", Outcome: "ok", Count: 5}, {Protocol: "grpc", Outcome: "not_found", Count: 2}},
		Whole: metrics.Histogram{Bounds: []float64{0.5, 1}, Counts: []uint64{1, 2, 3}, Sum: 9.25}, Unloadable: 1}}}
	text := string(metrics.Append(nil, s, metrics.Table, metrics.TritonTable))
	of := `{model="di\"g\\i\nts",version="3"`
	for _, want := range []string{
		"# HELP popefgen_ready 1 if the server answers that it is ready.\n# TYPE popefgen_ready gauge\npopefgen_ready 1\n",
		"# TYPE popefgen_requests_total counter\npopefgen_requests_total" + of + `,protocol="rest",outcome="ok"} 5` + "\npopefgen_requests_total" + of + `,protocol="grpc",outcome="not_found"} 2` + "\n#",
		"# TYPE popefgen_request_seconds histogram\n",
		"popefgen_request_seconds_bucket" + of + `,le="0.5"} 1` + "\npopefgen_request_seconds_bucket" + of + `,le="1"} 3` + "\npopefgen_request_seconds_bucket" + of + `,le="+Inf"} 6` +
			"\npopefgen_request_seconds_sum" + of + "} 9.25\npopefgen_request_seconds_count" + of + "} 6\n",
		"popefgen_padded_samples_total" + of + "} 7\n",
		"popefgen_reloads_total" + of + `,result="ok"} 0` + "\npopefgen_reloads_total" + of + `,result="failed"} 1` + "\n",
		"nv_inference_request_success" + of + "} 5\n",
		"nv_inference_request_failure" + of + `,reason="OTHER"} 2` + "\n",
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

// TestSpread: each value is in the bucket of the first bound that is not below it.
func TestSpread(t *testing.T) {
	s := metrics.NewSpread(metrics.Sizes)
	for _, v := range []int64{0, 1, 2, 3, 4, 5, 1024, 1025, 1 << 40} {
		s.Add(v)
	}
	h := s.Histogram(1)
	require.Equal(t, []uint64{2, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2}, h.Counts)
	require.Equal(t, uint64(9), h.Total())
	require.Equal(t, float64(0+1+2+3+4+5+1024+1025+1<<40), h.Sum)
	times := metrics.NewSpread(metrics.Times)
	times.Add(int64(3 * time.Second))
	h = times.Histogram(1e9)
	require.Equal(t, 1e-05, h.Bounds[0])
	require.Equal(t, 2.5e-05, h.Bounds[1])
	require.Equal(t, 10.0, h.Bounds[len(h.Bounds)-1])
	require.InDelta(t, 3, h.Sum, 1e9)
	require.Zero(t, testing.AllocsPerRun(100, func() { times.Add(12345) }))
}
