package hostile

import (
	"context"
	"encoding/binary"
	"net"
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
)

// start starts a server of the model simple with the defaults of all options and returns its address.
func start(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv, err := serve.New(serve.WithModel(testmodel.Simple()), serve.WithDrain(0, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, grpcserve.RegisterListener(srv, l))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended // connections that a flood left open are cut off
	})
	return l.Addr().String()
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
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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
