package served_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	served "github.com/popefgen/popefgen/golden/internal/served_samples/want"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve"
)

// TestBatchesAreCounted has callers share runs behind a server: what it counts is runs, with their padding, and not requests. What
// a hook has another model compute, or the same, is not counted.
func TestBatchesAreCounted(t *testing.T) {
	r, err := served.Open(ctx, rt.WithReplicas(1), rt.WithBatching(rt.BatchPolicy{Linger: 300 * time.Millisecond}))
	require.NoError(t, err)
	defer r.Close()
	hooked, err := served.Open(ctx)
	require.NoError(t, err)
	defer hooked.Close()
	srv, err := serve.New(serve.WithModel(served.Served(r, served.Before(func(ctx context.Context, in *served.SampleInputs) error {
		x, z := samples(1)
		return hooked.RunSamples(ctx, x, z, make([]served.YSample, 1), make([]served.TwiceSample, 1))
	}))), serve.WithMetrics(serve.TextMetrics(true)))
	require.NoError(t, err)
	h := srv.Handler()
	callers := served.BatchSize + 1 // a full batch, and one with a sample
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", "/v2/models/served_samples/infer", strings.NewReader(
				`{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]},{"name":"z","datatype":"FP32","shape":[1],"data":[4]}]}`)))
			if w.Code != 200 {
				t.Error(w.Body)
			}
		})
	}
	all.Wait()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	of := `{model="served_samples",version="1"`
	for _, want := range []string{
		"popefgen_request_seconds_count" + of + "} 5\n",
		"popefgen_batch_seconds_count" + of + "} 2\n",
		"popefgen_batch_samples_sum" + of + "} 5\n",
		"popefgen_batch_samples_bucket" + of + `,le="1"} 1` + "\n",
		"popefgen_batch_samples_bucket" + of + `,le="4"} 2` + "\n",
		fmt.Sprintf("popefgen_padding_samples_total%s} %d\n", of, served.BatchSize-1),
		"nv_inference_count" + of + "} 5\n",
		"nv_inference_exec_count" + of + "} 2\n",
	} {
		require.Contains(t, w.Body.String(), want)
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/v2/models/served_samples/stats", nil))
	require.Regexp(t, `"inference_count":5,"execution_count":2,.*"batch_stats":\[{"batch_size":1,.*"compute_infer":{"count":1,"ns":\d+}.*{"batch_size":4,.*"compute_infer":{"count":1,`, w.Body.String())
}
