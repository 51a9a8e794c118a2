//go:build !race

package grpcserve

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
)

// echoed is a request whose answer has its shape.
type echoed struct{ in, out []byte }

var sameShape = []int64{1, 256}

func (x *echoed) Given(int) ([]byte, []int64)       { return x.in, sameShape }
func (x *echoed) Take(int, []int64) ([]byte, error) { return x.out, nil }

// TestAllocations compares a request of a typed client's transport with one of grpc-go and protobuf's generated code, to the same server in another process: it
// allocates less.
func TestAllocations(t *testing.T) {
	ctx := context.Background()
	addr := startChild(t, "ours").addr
	transport, err := Dial(addr)
	require.NoError(t, err)
	defer transport.Close()
	spec := measured()[0].Spec()
	x := &echoed{make([]byte, 1024), make([]byte, 1024)}
	x.in[1000] = 7
	ours := testing.AllocsPerRun(500, func() {
		if err := transport.Infer(ctx, spec, x); err != nil {
			t.Fatal(err)
		}
	})
	require.Equal(t, x.in, x.out)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	plain := testing.AllocsPerRun(500, func() {
		q := &pb.ModelInferRequest{ModelName: spec.Name, RawInputContents: [][]byte{x.in},
			Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "FP32", Shape: sameShape}}}
		var a pb.ModelInferResponse
		if err := conn.Invoke(ctx, inferMethod, q, &a); err != nil {
			t.Fatal(err)
		}
		if copy(x.out, a.RawOutputContents[0]) != len(x.in) {
			t.Fatalf("found %d bytes", len(a.RawOutputContents[0]))
		}
	})
	t.Logf("a request allocates %v times, one of grpc-go and protobuf's code %v times", ours, plain)
	require.Less(t, ours, plain)
}
