package grpcserve

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// rolled is a server that is stopped and started again at one address.
type rolled struct {
	addr  string
	model *testmodel.Model
	stop  func() error
}

func (r *rolled) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", r.addr)
	require.NoError(t, err)
	r.addr = l.Addr().String()
	r.model = testmodel.Simple()
	r.model.Before = func(context.Context) error { time.Sleep(time.Millisecond); return nil }
	s, err := serve.New(serve.WithModel(r.model), serve.WithDrain(50*time.Millisecond, 10*time.Second))
	require.NoError(t, err)
	require.NoError(t, RegisterListener(s, l))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r.stop = func() error { cancel(); return <-done }
}

// TestRollingRestart restarts two servers, one after the other and several times, behind a typed client with many callers: no
// request fails, every answer is right, and both servers get requests each time.
func TestRollingRestart(t *testing.T) {
	const callers, rounds = 16, 3
	servers := []*rolled{{addr: "127.0.0.1:0"}, {addr: "127.0.0.1:0"}}
	names := manual.NewBuilderWithScheme("rolling")
	var addresses []resolver.Address
	for _, s := range servers {
		s.start(t)
		addresses = append(addresses, resolver.Address{Addr: s.addr})
	}
	defer func() {
		for _, s := range servers {
			require.NoError(t, s.stop())
		}
	}()
	names.InitialState(resolver.State{Addresses: addresses})
	c := dial(t, "rolling:///servers", WithDialOptions(grpc.WithResolvers(names)))

	var answered atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			data := strings.Repeat("\x03\x00\x00\x00", testmodel.Elements)
			sum := strings.Repeat("\x06\x00\x00\x00", testmodel.Elements)
			for ctx.Err() == nil {
				x := &asks{in: [][]byte{[]byte(data), []byte(data)}, shape: []int64{1, testmodel.Elements}, size: 4}
				if err := c.Infer(t.Context(), testmodel.Simple().Spec(), x); err != nil {
					t.Error(err)
					return
				}
				if string(x.got[0]) != sum {
					t.Errorf("the sum is %x", x.got[0])
					return
				}
				answered.Add(1)
			}
		})
	}
	for range rounds {
		for _, s := range servers {
			// The next one is stopped when the client has found the one before again, as a rollout waits for pods.
			require.Eventually(t, func() bool { return servers[0].model.Runs.Load() > 20 && servers[1].model.Runs.Load() > 20 },
				time.Minute, time.Millisecond, "a server that is back gets no requests")
			require.NoError(t, s.stop())
			require.True(t, s.model.Closed.Load())
			time.Sleep(20 * time.Millisecond)
			s.start(t)
		}
	}
	cancel()
	group.Wait()
	t.Logf("%d requests answered during %d restarts", answered.Load(), 2*rounds)
	require.Greater(t, answered.Load(), int64(200))
}
