package serve_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// TestRun follows a server from its first request to its end: ready, not ready but serving while it
// drains, gone.
func TestRun(t *testing.T) {
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	srv, err := serve.New(serve.WithModel(testmodel.Simple()), serve.WithHTTPListener(l), serve.WithDrain(300*time.Millisecond, time.Minute))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	status := func(path string) int {
		resp, err := client.Get("http://" + l.Addr().String() + path)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	require.Eventually(t, func() bool { return status("/v2/health/ready") == 200 }, 10*time.Second, time.Millisecond)
	cancel()
	require.Eventually(t, func() bool { return status("/v2/health/ready") == 503 }, 10*time.Second, time.Millisecond)
	require.Equal(t, 200, status("/v2/health/live"), "it serves while it drains")
	client.CloseIdleConnections()
	require.NoError(t, <-ended)
	require.Zero(t, status("/v2/health/live"))
}
