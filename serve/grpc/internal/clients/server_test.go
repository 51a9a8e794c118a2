package clients

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/dynamic"
	grpcserve "github.com/popefgen/popefgen/serve/grpc"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// start starts a server called triton of the model simple, compiled, and of models that give back each data type. It returns the
// addresses of REST and gRPC.
func start(t *testing.T) (rest, grpc string) {
	popef, err := testmodel.SimplePopEF()
	require.NoError(t, err)
	simple, err := dynamic.OpenBytes(context.Background(), "simple", popef)
	require.NoError(t, err)
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return l
	}
	h, g := listen(), listen()
	opts := []serve.Option{serve.WithServerName("triton", "2"), serve.WithModel(simple), serve.WithHTTPListener(h), serve.WithDrain(0, 10*time.Second)}
	for _, d := range testmodel.Types {
		opts = append(opts, serve.WithModel(testmodel.Identity(d, testmodel.Samples, 3)))
	}
	srv, err := serve.New(opts...)
	require.NoError(t, err)
	require.NoError(t, grpcserve.RegisterListener(srv, g))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended // a client that was killed is cut off
	})
	require.Eventually(t, func() bool { return srv.Core().Ready() == nil }, 20*time.Second, time.Millisecond)
	return h.Addr().String(), g.Addr().String()
}
