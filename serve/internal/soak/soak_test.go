package soak_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/dynamic"
	"github.com/popefgen/popefgen/serve/internal/soak"
	"github.com/popefgen/popefgen/serve/oip"
)

// TestSoak has 64 callers ask over REST for sums and differences of numbers of their own, in JSON and binary, of any number of samples, some with
// deadlines too short and some that hang up, while devices fail, the models are replaced by others of the same contract and, now and then, by one
// that would break callers. Every answer must belong to its request, none may be refused for a reason that there was not, the server must have counted
// what its callers saw, and nothing is left at the end.
func TestSoak(t *testing.T) {
	before, descriptors := goleak.IgnoreCurrent(), soak.Descriptors(t)
	s := soak.New(t, func(name string, popef []byte, devices *ipu.Manager) (oip.Model, error) {
		return dynamic.OpenBytes(context.Background(), name, popef, dynamic.WithReplicas(2), dynamic.WithRunner(rt.WithManager(devices), rt.AutoReset()))
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := s.Server(serve.WithHTTPListener(l), serve.WithMetrics(serve.TextMetrics(false)))
	callers := make([]func() soak.Caller, 64)
	for i := range callers {
		callers[i] = soak.REST(l.Addr().String())
	}
	s.Run(srv, callers, soak.CheckREST(t, l.Addr().String()))
	goleak.VerifyNone(t, before)
	require.LessOrEqual(t, soak.Descriptors(t), descriptors, "descriptors are left open")
}
