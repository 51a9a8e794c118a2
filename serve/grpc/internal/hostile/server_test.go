package hostile

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/popefgen/popefgen/serve"
	grpcserve "github.com/popefgen/popefgen/serve/grpc"
	"github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/internal/tlstest"
)

// target is what floods are sent to: a server, and a request to it.
type target struct {
	address               string
	tls                   *tls.Config // nil: plain
	scheme, path, content string
	body                  []byte
	closes                bool // its connection, of a flood
}

// overGRPC starts a server of gRPC, and returns what makes a good request of it.
func overGRPC(t *testing.T, opts ...serve.Option) (target, func(t *testing.T)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := start(t, opts...)
	require.NoError(t, grpcserve.RegisterListener(srv, l))
	run(t, srv)
	address := l.Addr().String()
	return target{address: address, scheme: "http", path: "/inference.GRPCInferenceService/ModelInfer", content: "application/grpc", body: message()}, client(t, address)
}

// overREST starts a server of REST over TLS, and returns what makes a good request of it over HTTP/2.
func overREST(t *testing.T, opts ...serve.Option) (target, func(t *testing.T)) {
	ca := tlstest.New(t)
	certificate, key := ca.Write(t.TempDir(), "server", time.Hour)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	run(t, start(t, append(opts, serve.WithHTTPListener(l), serve.WithTLS(serve.TLS{Certificate: certificate, Key: key}))...))
	list := func(v string) string { return "[" + strings.Repeat(v+",", testmodel.Elements-1) + v + "]" }
	input := `{"name":"INPUT%d","datatype":"INT32","shape":[1,16],"data":%s}`
	body := `{"inputs":[` + fmt.Sprintf(input, 0, list("5")) + "," + fmt.Sprintf(input, 1, list("3")) + `]}`
	to := target{address: l.Addr().String(), tls: &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", NextProtos: []string{"h2"}}, scheme: "https",
		path: "/v2/models/simple/infer", content: "application/json", body: []byte(body)}
	good := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: true}, Timeout: time.Minute}
	t.Cleanup(good.CloseIdleConnections)
	return to, func(t *testing.T) {
		r, err := good.Post("https://"+to.address+to.path, to.content, strings.NewReader(body))
		if err != nil {
			t.Errorf("the good client's request failed: %v", err)
			return
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil || r.ProtoMajor != 2 || !strings.Contains(string(text), `"data":`+list("8")) || !strings.Contains(string(text), `"data":`+list("2")) {
			t.Errorf("the good client's answer is not 8 and 2 over HTTP/2: %s %s: %v", r.Proto, text, err)
		}
	}
}

// start returns a server of the model simple with the defaults of all other options.
func start(t *testing.T, opts ...serve.Option) *serve.Server {
	srv, err := serve.New(append(opts, serve.WithModel(testmodel.Simple()), serve.WithDrain(0, 5*time.Second))...)
	require.NoError(t, err)
	return srv
}

// run runs a server until the test ends.
func run(t *testing.T, srv *serve.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended // connections that a flood left open are cut off
	})
}

// request is what the good client sends.
func request() *inference.ModelInferRequest {
	var five, three []byte
	for range testmodel.Elements {
		five, three = binary.LittleEndian.AppendUint32(five, 5), binary.LittleEndian.AppendUint32(three, 3)
	}
	input := func(name string) *inference.ModelInferRequest_InferInputTensor {
		return &inference.ModelInferRequest_InferInputTensor{Name: name, Datatype: "INT32", Shape: []int64{1, testmodel.Elements}}
	}
	return &inference.ModelInferRequest{ModelName: "simple", Inputs: []*inference.ModelInferRequest_InferInputTensor{input("INPUT0"), input("INPUT1")}, RawInputContents: [][]byte{five, three}}
}

// message is the same as a message of gRPC.
func message() []byte {
	b, err := proto.Marshal(request())
	if err != nil {
		panic(err) // names are valid UTF-8
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// client returns what makes a good request on a connection of its own, and fails the test if it is not answered rightly.
func client(t *testing.T, address string) func(t *testing.T) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	q := request()
	return func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var r inference.ModelInferResponse
		if err := conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", q, &r); err != nil {
			t.Errorf("the good client's request failed: %v", err)
			return
		}
		if len(r.RawOutputContents) != 2 || binary.LittleEndian.Uint32(r.RawOutputContents[0]) != 8 || binary.LittleEndian.Uint32(r.RawOutputContents[1]) != 2 {
			t.Errorf("the good client's answer is not 8 and 2: %v", r.RawOutputContents)
		}
	}
}
