package dynamic_test

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/dynamic"
)

// TestBatchesAreCounted: a server of a file counts the runs of its model, with their padding, of one size and of a family.
func TestBatchesAreCounted(t *testing.T) {
	for batch, padding := range map[string]string{"4": "1", "3,6": "0"} {
		served := openDigits(t, dynamic.WithCompile(dynamic.Compile{Batch: batch}), dynamic.WithReplicas(1), dynamic.WithBatching(rt.BatchPolicy{Linger: 1500 * time.Millisecond}))
		srv, err := serve.New(serve.WithModel(served), serve.WithMetrics(serve.TextMetrics(false)))
		require.NoError(t, err)
		h := srv.Handler()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("POST", "/v2/models/digits/infer", strings.NewReader(
					`{"inputs":[{"name":"image","datatype":"FP32","shape":[1,1,8,8],"data":[`+strings.Repeat("1,", 63)+`1]}]}`)))
				if w.Code != 200 {
					t.Error(w.Body)
				}
			})
		}
		all.Wait()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		of := `{model="digits",version="1"`
		for _, want := range []string{
			"popefgen_request_samples_count" + of + "} 3\n",
			"popefgen_batch_samples_count" + of + "} 1\n",
			"popefgen_batch_samples_sum" + of + "} 3\n",
			"popefgen_padding_samples_total" + of + "} " + padding + "\n",
		} {
			require.Contains(t, w.Body.String(), want, batch)
		}
	}
}
