package grpcserve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/access"
	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/internal/tlstest"
	"github.com/popefgen/popefgen/serve/oip"
)

// guarded starts a server of the models simple and identity_INT8 with these options, and returns its address.
func guarded(t *testing.T, with ...serve.Option) (addr string) {
	srv, err := serve.New(append(with, serve.WithModel(testmodel.Simple()), serve.WithModel(testmodel.Identity(oip.Int8, 2, 2)))...)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, RegisterListener(srv, l, WithRepository(&loads{})))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	untilReady(t, srv)
	return l.Addr().String()
}

func connection(t *testing.T, addr string, c credentials.TransportCredentials) *grpc.ClientConn {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(c))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// guardedCalls are those that need a right, most of them to a model.
var guardedCalls = []struct {
	name string
	make func(ctx context.Context, c *grpc.ClientConn, model string) error
}{
	{"ModelInfer", func(ctx context.Context, c *grpc.ClientConn, model string) error {
		return c.Invoke(ctx, inferMethod, asked(model), &pb.ModelInferResponse{})
	}},
	{"ModelStreamInfer", func(ctx context.Context, c *grpc.ClientConn, model string) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := c.NewStream(ctx, &description.Streams[0], "/"+serviceName+"/ModelStreamInfer")
		if err != nil {
			return err
		}
		if err := s.SendMsg(asked(model)); err != nil {
			return err
		}
		a := &pb.ModelStreamInferResponse{}
		if err := s.RecvMsg(a); err != nil || a.ErrorMessage == "" {
			return err
		}
		// A stream says what is wrong in words alone.
		if strings.HasPrefix(a.ErrorMessage, "infer needs a token") {
			return status.Error(codes.Unauthenticated, a.ErrorMessage)
		}
		return status.Error(codes.PermissionDenied, a.ErrorMessage)
	}},
	{"ModelMetadata", invoked[pb.ModelMetadataResponse](func(model string) proto.Message { return &pb.ModelMetadataRequest{Name: model} })},
	{"ModelConfig", invoked[pb.ModelConfigResponse](func(model string) proto.Message { return &pb.ModelConfigRequest{Name: model} })},
	{"ModelReady", invoked[pb.ModelReadyResponse](func(model string) proto.Message { return &pb.ModelReadyRequest{Name: model} })},
	{"ModelStatistics", invoked[pb.ModelStatisticsResponse](func(model string) proto.Message { return &pb.ModelStatisticsRequest{Name: model} })},
	{"RepositoryModelLoad", invoked[pb.RepositoryModelLoadResponse](func(model string) proto.Message { return &pb.RepositoryModelLoadRequest{ModelName: model} })},
	{"RepositoryModelUnload", invoked[pb.RepositoryModelUnloadResponse](func(model string) proto.Message { return &pb.RepositoryModelUnloadRequest{ModelName: model} })},
	{"Check", func(ctx context.Context, c *grpc.ClientConn, model string) error {
		_, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{Service: model})
		return err
	}},
	{"Watch", func(ctx context.Context, c *grpc.ClientConn, model string) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w, err := healthpb.NewHealthClient(c).Watch(ctx, &healthpb.HealthCheckRequest{Service: model})
		if err != nil {
			return err
		}
		_, err = w.Recv()
		return err
	}},
	{"ServerMetadata", invoked[pb.ServerMetadataResponse](func(string) proto.Message { return &pb.ServerMetadataRequest{} })},
	{"RepositoryIndex", invoked[pb.RepositoryIndexResponse](func(string) proto.Message { return &pb.RepositoryIndexRequest{} })},
}

// invoked returns a call of the method that its request is named after.
func invoked[A any](request func(model string) proto.Message) func(context.Context, *grpc.ClientConn, string) error {
	return func(ctx context.Context, c *grpc.ClientConn, model string) error {
		q := request(model)
		name := string(q.ProtoReflect().Descriptor().Name())
		return c.Invoke(ctx, "/"+serviceName+"/"+strings.TrimSuffix(name, "Request"), q, new(A))
	}
}

// asked is a request to a model, right for simple.
func asked(model string) *pb.ModelInferRequest {
	q, _ := simple(1)
	q.ModelName = model
	return q
}

// TestTokensOfCalls makes every call with no token, one that nobody has, one that may all, and some that may little: what a token does not
// allow is refused whether or not there is such a model, and probes of the server need none.
func TestTokensOfCalls(t *testing.T) {
	const (
		all    = "all-0123456789abcdef"
		usual  = "usual-0123456789abcdef"
		little = "little-0123456789abcdef"
	)
	file := tlstest.Put(t, t.TempDir(), "tokens", []byte(all+" * *\n"+usual+"\n"+little+" infer identity_INT8,none\n"))
	tokens, err := access.TokenFile(file, slog.Default())
	require.NoError(t, err)
	c := connection(t, guarded(t, serve.WithAuthorization(tokens.Allow)), insecure.NewCredentials())
	as := func(token string) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		t.Cleanup(cancel)
		if token == "" {
			return ctx
		}
		return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	for _, call := range guardedCalls {
		ofModel := call.name != "ServerMetadata" && call.name != "RepositoryIndex"
		ofRepository := strings.HasPrefix(call.name, "Repository")
		require.NoError(t, call.make(as(all), c, "simple"), call.name)
		for _, model := range []string{"simple", "not there"} {
			require.Equal(t, codes.Unauthenticated, status.Code(call.make(as(""), c, model)), "%s of %s without a token", call.name, model)
			require.NotEqual(t, codes.OK, status.Code(call.make(as("none-0123456789abcdef"), c, model)), "%s of %s with a token of nobody", call.name, model)
			err := call.make(as(little), c, model)
			require.Equal(t, codes.PermissionDenied, status.Code(err), "%s of %s with a token for another model: %v", call.name, model, err)
			if ofModel {
				require.ErrorContains(t, err, "of that model", call.name)
			}
		}
		want := codes.OK
		if ofRepository {
			want = codes.PermissionDenied
		}
		require.Equal(t, want, status.Code(call.make(as(usual), c, "simple")), call.name)
	}
	require.Equal(t, codes.NotFound, status.Code(guardedCalls[0].make(as(little), c, "none")), "what is allowed is looked up")
	_, err = call[pb.ServerLiveResponse](t, c, "ServerLive", &pb.ServerLiveRequest{})
	require.NoError(t, err)
	_, err = call[pb.ServerReadyResponse](t, c, "ServerReady", &pb.ServerReadyRequest{})
	require.NoError(t, err)
	for _, service := range []string{"", serviceName} {
		_, err = healthpb.NewHealthClient(c).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		require.NoError(t, err)
	}
}

// TestTLS: gRPC over TLS with and without the client's certificate, whose name decides, and the typed client; who does not trust the
// server, is not trusted, or speaks no TLS gets nothing.
func TestTLS(t *testing.T) {
	ca, other := tlstest.New(t), tlstest.New(t)
	dir := t.TempDir()
	certificate, key := ca.Write(dir, "server", time.Hour)
	cas := tlstest.Put(t, dir, "clients.crt", ca.PEM)
	addr := guarded(t, serve.WithTLS(serve.TLS{Certificate: certificate, Key: key, ClientCAs: cas, ClientsOptional: true}),
		serve.WithAuthorization(access.Certificates(map[string]access.Rule{"team-a": {}, "team-b": {Models: []string{"identity_INT8"}}})))
	as := func(roots *x509.CertPool, pairs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // whatever the server asks for
			if len(pairs) == 0 {
				return &tls.Certificate{}, nil
			}
			return &pairs[0], nil
		}}
	}
	for _, client := range []struct {
		name string
		with credentials.TransportCredentials
		code codes.Code
	}{
		{"team-a", credentials.NewTLS(as(ca.Pool(), ca.Pair("team-a", time.Hour))), codes.OK},
		{"team-b", credentials.NewTLS(as(ca.Pool(), ca.Pair("team-b", time.Hour))), codes.PermissionDenied},
		{"a name that is unknown", credentials.NewTLS(as(ca.Pool(), ca.Pair("team-c", time.Hour))), codes.PermissionDenied},
		{"no certificate", credentials.NewTLS(as(ca.Pool())), codes.Unauthenticated},
		{"of another authority", credentials.NewTLS(as(ca.Pool(), other.Pair("team-a", time.Hour))), codes.Unavailable},
		{"expired", credentials.NewTLS(as(ca.Pool(), ca.Pair("team-a", -time.Minute))), codes.Unavailable},
		{"does not trust the server", credentials.NewTLS(as(other.Pool(), ca.Pair("team-a", time.Hour))), codes.Unavailable},
		{"no TLS", insecure.NewCredentials(), codes.Unavailable},
	} {
		t.Run(client.name, func(t *testing.T) {
			q, want := simple(2)
			a, from := &pb.ModelInferResponse{}, &peer.Peer{}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := connection(t, addr, client.with).Invoke(ctx, inferMethod, q, a, grpc.Peer(from))
			require.Equal(t, client.code, status.Code(err), "%v", err)
			if err == nil {
				require.True(t, proto.Equal(want, a))
				require.Equal(t, "h2", from.AuthInfo.(credentials.TLSInfo).State.NegotiatedProtocol)
			}
		})
	}
	typed := dial(t, addr, WithTLS(as(ca.Pool(), ca.Pair("team-b", time.Hour))))
	x := &asks{in: [][]byte{{1, 2}}, shape: []int64{1, 2}, size: 1}
	require.NoError(t, typed.Infer(t.Context(), testmodel.Identity(oip.Int8, 2, 2).Spec(), x))
	require.Equal(t, []byte{1, 2}, x.got[0])
}
