package metrics_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/metrics"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// ask sends a request of so many samples to the model simple.
func ask(t *testing.T, c *core.Core, samples int) error {
	v, err := c.Lookup([]byte("simple"), nil)
	require.NoError(t, err)
	defer v.Release()
	call := v.Get()
	defer v.Put(call)
	shape := []int64{int64(samples), testmodel.Elements}
	for _, name := range []string{"INPUT0", "INPUT1"} {
		i, _, err := call.Request.Input([]byte(name), []byte("INT32"), shape)
		require.NoError(t, err)
		mem, err := call.Memory.Input(i, shape)
		require.NoError(t, err)
		binary.LittleEndian.PutUint32(mem, 7)
	}
	require.NoError(t, call.Done())
	call.Received, call.Sent = 1000, 500
	return v.Run(t.Context(), call)
}

// TestOf: requests that succeed and fail, and a reload that is refused, are in the metrics where they belong.
func TestOf(t *testing.T) {
	c := core.New()
	model := testmodel.Simple()
	_, err := c.Add(model)
	require.NoError(t, err)
	c.Start()
	require.NoError(t, ask(t, c, 1))
	require.NoError(t, ask(t, c, 1))
	require.NoError(t, ask(t, c, 3))
	model.Before = func(context.Context) error { return errors.New("broken") }
	require.Error(t, ask(t, c, 1))
	c.Refuse("simple", "1", errors.New("half a file"))
	c.Refuse("other", "1", errors.New("half a file"))
	text := string(metrics.Append(nil, metrics.Of(c), metrics.Table, metrics.TritonTable))
	for _, want := range []string{
		"popefgen_ready 1\n",
		`popefgen_model_ready{model="simple",version="1"} 1` + "\n",
		`popefgen_model_ready{model="other",version="1"} 0` + "\n",
		`popefgen_requests_total{model="simple",outcome="ok",protocol="rest",version="1"} 3` + "\n",
		`popefgen_requests_total{model="simple",outcome="internal",protocol="rest",version="1"} 1` + "\n",
		`popefgen_requests_total{model="simple",outcome="too_large",protocol="rest",version="1"} 0` + "\n",
		`popefgen_request_seconds_count{model="simple",version="1"} 3` + "\n",
		`popefgen_queue_seconds_count{model="simple",version="1"} 4` + "\n",
		`popefgen_request_samples_bucket{model="simple",version="1",le="1"} 2` + "\n",
		`popefgen_request_samples_bucket{model="simple",version="1",le="2"} 2` + "\n",
		`popefgen_request_samples_bucket{model="simple",version="1",le="4"} 3` + "\n",
		`popefgen_request_samples_sum{model="simple",version="1"} 5` + "\n",
		`popefgen_batch_seconds_count{model="simple",version="1"} 3` + "\n",
		`popefgen_batch_samples_bucket{model="simple",version="1",le="2"} 2` + "\n",
		`popefgen_batch_samples_sum{model="simple",version="1"} 5` + "\n",
		`popefgen_padding_samples_total{model="simple",version="1"} 0` + "\n",
		`popefgen_received_bytes_total{model="simple",version="1"} 4000` + "\n",
		`popefgen_reload_refused{model="simple",version="1"} 1` + "\n",
		`popefgen_reload_refused{model="other",version="1"} 1` + "\n", // files that never served
		`popefgen_reloads_total{model="simple",result="refused",version="1"} 1` + "\n",
		`popefgen_in_flight{model="simple",version="1"} 0` + "\n",
		`nv_inference_request_success{model="simple",version="1"} 3` + "\n",
		`nv_inference_request_failure{model="simple",reason="BACKEND",version="1"} 1` + "\n",
		`nv_inference_count{model="simple",version="1"} 5` + "\n",
		`nv_inference_exec_count{model="simple",version="1"} 3` + "\n",
	} {
		require.Contains(t, text, want)
	}
	seen := map[string]bool{}
	for _, r := range metrics.Of(c).Models[1].Requests {
		require.False(t, seen[r.Protocol+r.Outcome], r.Outcome)
		seen[r.Protocol+r.Outcome] = true
	}
	require.Len(t, seen, core.Protocols*(core.Codes+1))
}
