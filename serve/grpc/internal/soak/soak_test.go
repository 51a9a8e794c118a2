package soak

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/dynamic"
	grpcserve "github.com/popefgen/popefgen/serve/grpc"
	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/grpc/metrics"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/soak"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

const service = "/inference.GRPCInferenceService/"

// TestSoak has 24 callers of ModelInfer, 24 of streams with up to 4 requests under way, and 16 of REST ask a server, as serve/internal/soak says.
func TestSoak(t *testing.T) {
	before, descriptors := goleak.IgnoreCurrent(), soak.Descriptors(t)
	s := soak.New(t, func(name string, popef []byte, devices *ipu.Manager) (oip.Model, error) {
		return dynamic.OpenBytes(context.Background(), name, popef, dynamic.WithReplicas(2), dynamic.WithRunner(rt.WithManager(devices), rt.AutoReset()))
	})
	listen := func() (net.Listener, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return l, l.Addr().String()
	}
	http, rest := listen()
	srv := s.Server(serve.WithHTTPListener(http), serve.WithMetrics(metrics.Handler(false)))
	l, address := listen()
	require.NoError(t, grpcserve.RegisterListener(srv, l))
	var callers []func() soak.Caller
	for i := range 64 {
		switch {
		case i < 24:
			callers = append(callers, func() soak.Caller { return dial(t, address) })
		case i < 48:
			callers = append(callers, func() soak.Caller { return &streams{caller: dial(t, address)} })
		default:
			callers = append(callers, soak.REST(rest))
		}
	}
	s.Run(srv, callers, func(want soak.Counted) {
		soak.CheckREST(t, rest)(want)
		c := dial(t, address)
		defer c.Close()
		var got pb.ModelStatisticsResponse
		require.NoError(t, c.conn.Invoke(t.Context(), service+"ModelStatistics", &pb.ModelStatisticsRequest{Name: soak.Exact}, &got))
		require.Len(t, got.ModelStats, 1)
		m := got.ModelStats[0]
		require.Equal(t, []uint64{want.Samples, want.Done(), want.Failures()},
			[]uint64{m.InferenceCount, m.InferenceStats.Success.Count, m.InferenceStats.Fail.Count}, "samples, requests that succeeded and failed")
		runs, computed := uint64(0), uint64(0)
		for _, b := range m.BatchStats {
			runs, computed = runs+b.ComputeInfer.Count, computed+b.BatchSize*b.ComputeInfer.Count
		}
		require.Equal(t, m.ExecutionCount, runs)
		require.GreaterOrEqual(t, computed, want.Samples)
	})
	goleak.VerifyNone(t, before)
	require.LessOrEqual(t, soak.Descriptors(t), descriptors, "descriptors are left open")
}

// caller makes one request at a time on a connection of its own.
type caller struct{ conn *grpc.ClientConn }

func dial(t *testing.T, address string) *caller {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Error(err)
	}
	return &caller{conn}
}

func (c *caller) Protocol() core.Protocol { return core.GRPC }
func (c *caller) Most() int               { return 1 }
func (c *caller) Close() error            { return c.conn.Close() }

func (c *caller) Ask(ctx context.Context, model string, all []soak.Request) ([]soak.Answer, error) {
	var a pb.ModelInferResponse
	err := c.conn.Invoke(ctx, service+"ModelInfer", message(model, &all[0]), &a)
	if err == nil {
		return []soak.Answer{answer(&a)}, nil
	}
	until, _ := ctx.Deadline()
	if ctx.Err() != nil || !time.Now().Before(until) { // grpc-go looks at the time too, which may be over before the context is
		return nil, err // whether it is the server's is not known
	}
	s := status.Convert(err)
	code := oip.InvalidArgument // which none of these requests gets
	switch s.Code() {
	case codes.ResourceExhausted:
		code = oip.Exhausted
	case codes.DeadlineExceeded:
		code = oip.Deadline
	case codes.Internal:
		code = oip.Internal
	case codes.Unavailable:
		if soak.CodeOf(s.Message()) != oip.Unavailable {
			return nil, err // it was the connection
		}
		code = oip.Unavailable
	}
	return []soak.Answer{{Err: oip.Errorf(code, "%s", s.Message())}}, nil
}

// streams makes some requests at a time on a stream, which it keeps until its context ends.
type streams struct{ *caller }

func (c *streams) Most() int { return 4 }

func (c *streams) Ask(ctx context.Context, model string, all []soak.Request) (answers []soak.Answer, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, service+"ModelStreamInfer")
	if err != nil {
		return nil, err
	}
	for i := range all {
		if s.SendMsg(message(model, &all[i])) != nil {
			break // RecvMsg says why
		}
	}
	_ = s.CloseSend() // the same
	for range all {
		var a pb.ModelStreamInferResponse
		if err := s.RecvMsg(&a); err != nil {
			return answers, err
		}
		if a.ErrorMessage != "" {
			if want := all[len(answers)].ID; a.InferResponse.GetId() != want && a.InferResponse.GetId() != "" {
				return answers, fmt.Errorf("the failure of request %s, expected that of %s", a.InferResponse.GetId(), want)
			}
			answers = append(answers, soak.Answer{Err: oip.Errorf(soak.CodeOf(a.ErrorMessage), "%s", a.ErrorMessage)})
			continue
		}
		answers = append(answers, answer(a.InferResponse))
	}
	return answers, nil
}

func message(model string, q *soak.Request) *pb.ModelInferRequest {
	m := &pb.ModelInferRequest{ModelName: model, Id: q.ID, Parameters: map[string]*pb.InferParameter{}}
	if q.Timeout > 0 {
		m.Parameters["timeout"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: q.Timeout.Microseconds()}}
	}
	if q.Priority > 0 {
		m.Parameters["priority"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: q.Priority}}
	}
	for i, v := range [][]int32{q.A, q.B} {
		in := &pb.ModelInferRequest_InferInputTensor{Name: []string{"INPUT0", "INPUT1"}[i], Datatype: "INT32", Shape: []int64{int64(q.Samples), testmodel.Elements}}
		if q.Text {
			in.Contents = &pb.InferTensorContents{IntContents: v}
		} else {
			m.RawInputContents = append(m.RawInputContents, soak.Bytes(v))
		}
		m.Inputs = append(m.Inputs, in)
	}
	return m
}

func answer(a *pb.ModelInferResponse) soak.Answer {
	out := soak.Answer{ID: a.Id}
	for i, to := range []*[]int32{&out.Sum, &out.Difference} {
		switch {
		case i < len(a.RawOutputContents):
			*to = soak.Integers(a.RawOutputContents[i])
		case i < len(a.Outputs):
			*to = a.Outputs[i].Contents.GetIntContents()
		}
	}
	return out
}
