package grpcserve

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/popefgen/popefgen/serve"
	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// running starts a server of models and returns its address and a function that stops it.
func running(t testing.TB, models []oip.Model, opts ...Option) (addr string, stop func()) {
	t.Helper()
	_, addr, stop = runningServer(t, models, opts...)
	return addr, stop
}

func runningServer(t testing.TB, models []oip.Model, opts ...Option) (srv *serve.Server, addr string, stop func()) {
	t.Helper()
	with := []serve.Option{serve.WithServerName("triton", "")}
	for _, m := range models {
		with = append(with, serve.WithModel(m))
	}
	srv, err := serve.New(with...)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	require.NoError(t, RegisterListener(srv, l, opts...))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return srv, l.Addr().String(), stop
}

// untilReady waits until a server takes requests: its ports are open before, and a probe that comes early hears that it is not.
func untilReady(t testing.TB, srv *serve.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return srv.Core().Ready() == nil }, 10*time.Second, time.Millisecond)
}

// plain returns a connection of a client that knows nothing of ours: protobuf's own codec.
func plain(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(64<<20)))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func call[A any](t testing.TB, c *grpc.ClientConn, method string, q proto.Message) (*A, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	a := new(A)
	err := c.Invoke(ctx, "/"+serviceName+"/"+method, q, a)
	return a, err
}

func identities() (all []oip.Model) {
	for _, typ := range testmodel.Types {
		all = append(all, testmodel.Identity(typ, 8, 5))
	}
	return all
}

// drawn returns the bytes of n elements of a type.
func drawn(t oip.DataType, n int) []byte {
	b := make([]byte, n*t.Size())
	for i := range b {
		b[i] = byte(rand.Uint32())
		if t == oip.Bool {
			b[i] &= 1
		}
	}
	return b
}

// held returns the elements as protobuf's contents, nil for types that have none.
func held(t oip.DataType, b []byte) *pb.InferTensorContents {
	c := &pb.InferTensorContents{}
	for ; len(b) > 0; b = b[t.Size():] {
		switch t {
		case oip.Bool:
			c.BoolContents = append(c.BoolContents, b[0] != 0)
		case oip.Int8:
			c.IntContents = append(c.IntContents, int32(int8(b[0])))
		case oip.Int16:
			c.IntContents = append(c.IntContents, int32(int16(binary.LittleEndian.Uint16(b))))
		case oip.Int32:
			c.IntContents = append(c.IntContents, int32(binary.LittleEndian.Uint32(b)))
		case oip.Int64:
			c.Int64Contents = append(c.Int64Contents, int64(binary.LittleEndian.Uint64(b)))
		case oip.Uint8:
			c.UintContents = append(c.UintContents, uint32(b[0]))
		case oip.Uint16:
			c.UintContents = append(c.UintContents, uint32(binary.LittleEndian.Uint16(b)))
		case oip.Uint32:
			c.UintContents = append(c.UintContents, binary.LittleEndian.Uint32(b))
		case oip.Uint64:
			c.Uint64Contents = append(c.Uint64Contents, binary.LittleEndian.Uint64(b))
		default:
			return nil
		}
	}
	return c
}

// TestTypes sends every data type raw and, where protobuf can, as contents, at several sizes, one of which needs
// several frames of HTTP/2, and wants the same elements back: raw, as clients of Triton read them, and as contents if the request says so.
func TestTypes(t *testing.T) {
	models := append(identities(), testmodel.Identity(oip.FP32, 4, 100_003))
	models[len(models)-1].(*testmodel.Model).Described.Name = "large"
	addr, _ := running(t, models)
	c := plain(t, addr)
	for _, m := range models {
		spec := m.Spec()
		typ := spec.Inputs[0].Type
		for samples := range spec.Samples {
			shape := []int64{int64(samples + 1), spec.Inputs[0].Shape[1]}
			data := drawn(typ, int(shape[0]*shape[1]))
			q := &pb.ModelInferRequest{ModelName: spec.Name, Id: "an id", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: typ.String(), Shape: shape}}, RawInputContents: [][]byte{data}}
			want := &pb.ModelInferResponse{ModelName: spec.Name, ModelVersion: "1", Id: "an id", Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: typ.String(), Shape: shape}}, RawOutputContents: [][]byte{data}}
			a, err := call[pb.ModelInferResponse](t, c, "ModelInfer", q)
			require.NoError(t, err, spec.Name)
			require.True(t, proto.Equal(want, a), "%s: raw, %d samples", spec.Name, samples+1)
			if q.Inputs[0].Contents = held(typ, data); q.Inputs[0].Contents == nil {
				continue
			}
			_, err = call[pb.ModelInferResponse](t, c, "ModelInfer", q)
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			require.ErrorContains(t, err, fmt.Sprintf("contents field must not be specified when using raw_input_contents for 'INPUT0' for model '%s'", spec.Name))
			q.RawInputContents = nil
			a, err = call[pb.ModelInferResponse](t, c, "ModelInfer", q)
			require.NoError(t, err, spec.Name)
			require.True(t, proto.Equal(want, a), "%s: contents, %d samples: %v", spec.Name, samples+1, a)
			q.Parameters = map[string]*pb.InferParameter{"binary_data_output": {ParameterChoice: &pb.InferParameter_BoolParam{}}}
			want.Outputs[0].Contents, want.RawOutputContents = q.Inputs[0].Contents, nil
			a, err = call[pb.ModelInferResponse](t, c, "ModelInfer", q)
			require.NoError(t, err, spec.Name)
			require.True(t, proto.Equal(want, a), "%s: contents, %d samples: %v", spec.Name, samples+1, a)
		}
	}
}

// simple is a request to the model simple, whose inputs count up from 0 and are all 1.
func simple(samples int) (*pb.ModelInferRequest, *pb.ModelInferResponse) {
	q := &pb.ModelInferRequest{ModelName: "simple"}
	a := &pb.ModelInferResponse{ModelName: "simple", ModelVersion: "1"}
	shape := []int64{int64(samples), testmodel.Elements}
	var up, ones, sum, difference []byte
	for i := range samples * testmodel.Elements {
		up, ones = binary.LittleEndian.AppendUint32(up, uint32(i)), binary.LittleEndian.AppendUint32(ones, 1)
		sum, difference = binary.LittleEndian.AppendUint32(sum, uint32(i+1)), binary.LittleEndian.AppendUint32(difference, uint32(i-1))
	}
	for i := range 2 {
		q.Inputs = append(q.Inputs, &pb.ModelInferRequest_InferInputTensor{Name: fmt.Sprintf("INPUT%d", i), Datatype: "INT32", Shape: shape})
		a.Outputs = append(a.Outputs, &pb.ModelInferResponse_InferOutputTensor{Name: fmt.Sprintf("OUTPUT%d", i), Datatype: "INT32", Shape: shape})
	}
	q.RawInputContents, a.RawOutputContents = [][]byte{up, ones}, [][]byte{sum, difference}
	return q, a
}

// TestCalls makes every call that is not an inference, of the server, a model, and a model that there is not.
func TestCalls(t *testing.T) {
	srv, addr, _ := runningServer(t, []oip.Model{testmodel.Simple(), testmodel.Identity(oip.BF16, 0+1, 3)})
	untilReady(t, srv)
	c := plain(t, addr)
	live, err := call[pb.ServerLiveResponse](t, c, "ServerLive", &pb.ServerLiveRequest{})
	require.NoError(t, err)
	require.True(t, live.Live)
	ready, err := call[pb.ServerReadyResponse](t, c, "ServerReady", &pb.ServerReadyRequest{})
	require.NoError(t, err)
	require.True(t, ready.Ready)
	server, err := call[pb.ServerMetadataResponse](t, c, "ServerMetadata", &pb.ServerMetadataRequest{})
	require.NoError(t, err)
	require.Equal(t, "triton", server.Name)
	require.Contains(t, server.Extensions, "classification")

	model, err := call[pb.ModelMetadataResponse](t, c, "ModelMetadata", &pb.ModelMetadataRequest{Name: "simple"})
	require.NoError(t, err)
	tensor := func(name string) *pb.ModelMetadataResponse_TensorMetadata {
		return &pb.ModelMetadataResponse_TensorMetadata{Name: name, Datatype: "INT32", Shape: []int64{-1, 16}}
	}
	require.True(t, proto.Equal(&pb.ModelMetadataResponse{Name: "simple", Versions: []string{"1"}, Platform: "popef",
		Inputs:  []*pb.ModelMetadataResponse_TensorMetadata{tensor("INPUT0"), tensor("INPUT1")},
		Outputs: []*pb.ModelMetadataResponse_TensorMetadata{tensor("OUTPUT0"), tensor("OUTPUT1")}}, model), "%v", model)
	config, err := call[pb.ModelConfigResponse](t, c, "ModelConfig", &pb.ModelConfigRequest{Name: "simple", Version: "1"})
	require.NoError(t, err)
	require.EqualValues(t, 8, config.Config.MaxBatchSize)
	require.True(t, proto.Equal(&pb.ModelInput{Name: "INPUT1", DataType: pb.DataType_TYPE_INT32, Dims: []int64{16}}, config.Config.Input[1]))
	config, err = call[pb.ModelConfigResponse](t, c, "ModelConfig", &pb.ModelConfigRequest{Name: "identity_BF16"})
	require.NoError(t, err)
	require.Equal(t, pb.DataType_TYPE_BF16, config.Config.Output[0].DataType)
	is, err := call[pb.ModelReadyResponse](t, c, "ModelReady", &pb.ModelReadyRequest{Name: "simple"})
	require.NoError(t, err)
	require.True(t, is.Ready)

	for _, q := range []struct {
		method  string
		request proto.Message
	}{
		{"ModelReady", &pb.ModelReadyRequest{Name: "none"}},
		{"ModelMetadata", &pb.ModelMetadataRequest{Name: "none"}},
		{"ModelConfig", &pb.ModelConfigRequest{Name: "simple", Version: "7"}},
		{"ModelInfer", &pb.ModelInferRequest{ModelName: "none"}},
	} {
		_, err := call[pb.ModelInferResponse](t, c, q.method, q.request)
		require.Equal(t, codes.NotFound, status.Code(err), q.method)
		require.ErrorContains(t, err, "Request for unknown model", q.method)
	}
}

// TestParameters sends what requests may say beside their inputs.
func TestParameters(t *testing.T) {
	m := testmodel.Simple()
	m.Described.Outputs[0].Labels = []string{"zero", "one"}
	addr, _ := running(t, []oip.Model{m})
	c := plain(t, addr)
	q, _ := simple(2)
	text := func(s string) *pb.InferParameter {
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: s}}
	}
	integer := func(n int64) *pb.InferParameter {
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: n}}
	}
	boolean := func(b bool) *pb.InferParameter {
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: b}}
	}
	for _, c2 := range []struct {
		name  string
		key   string
		value *pb.InferParameter
		err   string
	}{
		{"timeout", "timeout", integer(1_000_000), ""},
		{"as text", "timeout", text("1000000"), ""},
		{"priority", "priority", &pb.InferParameter{ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: 1}}, ""},
		{"unknown", "mine", text("x"), ""},
		{"negative", "timeout", integer(-1), "parameter 'timeout' is -1, expected 0 to"},
		{"no integer", "priority", text("high"), "parameter 'priority' has string_param, expected an integer"},
		{"no value", "timeout", &pb.InferParameter{}, "parameter 'timeout' has nothing, expected int64_param"},
		{"no bool", "binary_data_output", integer(1), "parameter 'binary_data_output' has int64_param, expected bool_param"},
		{"sequence", "sequence_id", integer(3), "keeps nothing between requests"},
		{"contract", agree.Parameter, text("beef"), "expected 64 hexadecimal digits"},
	} {
		q.Parameters = map[string]*pb.InferParameter{c2.key: c2.value}
		_, err := call[pb.ModelInferResponse](t, c, "ModelInfer", q)
		if c2.err == "" {
			require.NoError(t, err, c2.name)
		} else {
			require.ErrorContains(t, err, c2.err, c2.name)
		}
	}
	q.Parameters = map[string]*pb.InferParameter{"binary_data_output": boolean(false)}
	q.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT1"}}
	a, err := call[pb.ModelInferResponse](t, c, "ModelInfer", q)
	require.NoError(t, err)
	require.Empty(t, a.RawOutputContents)
	require.Len(t, a.Outputs, 1)
	require.Equal(t, int32(-1), a.Outputs[0].Contents.IntContents[0])

	q.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT0", Parameters: map[string]*pb.InferParameter{"classification": integer(2)}}}
	a, err = call[pb.ModelInferResponse](t, c, "ModelInfer", q)
	require.NoError(t, err)
	require.Equal(t, "BYTES", a.Outputs[0].Datatype)
	require.Equal(t, []int64{2, 2}, a.Outputs[0].Shape)
	require.Equal(t, [][]byte{[]byte("16:15"), []byte("15:14"), []byte("32:15"), []byte("31:14")}, a.Outputs[0].Contents.BytesContents)
	q.Parameters = nil
	a, err = call[pb.ModelInferResponse](t, c, "ModelInfer", q)
	require.NoError(t, err)
	require.Equal(t, "\x05\x00\x00\x0016:15\x05\x00\x00\x0015:14\x05\x00\x00\x0032:15\x05\x00\x00\x0031:14", string(a.RawOutputContents[0]))
}

// TestRefusals sends requests that can not be right, and wants each told by name.
func TestRefusals(t *testing.T) {
	addr, _ := running(t, []oip.Model{testmodel.Simple(), testmodel.Identity(oip.Bool, 2, 3), testmodel.Identity(oip.Int8, 2, 2), testmodel.Identity(oip.FP16, 2, 2)})
	c := plain(t, addr)
	one := func(model, typ string, shape []int64, contents *pb.InferTensorContents, raw ...[]byte) *pb.ModelInferRequest {
		return &pb.ModelInferRequest{ModelName: model, RawInputContents: raw, Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: typ, Shape: shape, Contents: contents}}}
	}
	few, _ := simple(1)
	few.RawInputContents = few.RawInputContents[:1]
	both, _ := simple(1)
	both.RawInputContents = both.RawInputContents[:1]
	both.Inputs[0].Contents = &pb.InferTensorContents{IntContents: make([]int32, 8)}
	none := &pb.ModelInferRequest{ModelName: "simple", RawInputContents: [][]byte{{}}}
	short, _ := simple(1)
	short.RawInputContents[1] = short.RawInputContents[1][1:]
	missing, _ := simple(1)
	missing.Inputs, missing.RawInputContents = missing.Inputs[:1], missing.RawInputContents[:1]
	twice, _ := simple(1)
	twice.Inputs[1].Name = "INPUT0"
	negative, _ := simple(1)
	negative.Inputs[0].Shape = []int64{-1, 16}
	huge, _ := simple(1)
	huge.Inputs[0].Shape = []int64{1 << 62, 16}
	long, _ := simple(1)
	long.Id = strings.Repeat("x", 257)
	for _, r := range []struct {
		q   *pb.ModelInferRequest
		err string
	}{
		{few, "has 2 inputs and 1 raw_input_contents"},
		{both, "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'simple'"},
		{none, "has 0 inputs and 1 raw_input_contents"},
		{short, "input 'INPUT1' for model 'simple' has 63 raw bytes, expected 64 for [1,16] of INT32"},
		{missing, "expected 2 inputs but got 1 inputs for model 'simple'. Input 'INPUT1' is missing"},
		{twice, "input 'INPUT0' for model 'simple' is given twice"},
		{negative, "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16] of at most [8,16], got [-1,16]"},
		{huge, "got [4611686018427387904,16]"},
		{long, "request id has 257 bytes, expected at most 256"},
		{one("identity_BOOL", "BOOL", []int64{1, 3}, nil, []byte{0, 1, 2}), "input 'INPUT0' for model 'identity_BOOL' has the byte 2 as element 2, expected 0 or 1 for BOOL"},
		{one("identity_INT8", "INT8", []int64{1, 2}, &pb.InferTensorContents{IntContents: []int32{1, 128}}), "has 128 as element 1, which is no INT8"},
		{one("identity_INT8", "INT8", []int64{1, 2}, &pb.InferTensorContents{IntContents: []int32{1}}), "has 1 elements in its contents, expected 2"},
		{one("identity_INT8", "INT8", []int64{1, 2}, &pb.InferTensorContents{IntContents: []int32{1, 2, 3}}), "has more than the 2 elements of its shape in its contents"},
		{one("identity_INT8", "INT8", []int64{1, 2}, &pb.InferTensorContents{Fp32Contents: []float32{1, 2}}), "has elements in fp32_contents, expected int_contents for INT8"},
		{one("identity_FP16", "FP16", []int64{1, 2}, &pb.InferTensorContents{Fp32Contents: []float32{1, 2}}), "there is no field of contents for FP16"},
		{one("identity_FP16", "FP16", []int64{1, 2}, nil), "has 0 elements in its contents, expected 2"},
	} {
		_, err := call[pb.ModelInferResponse](t, c, "ModelInfer", r.q)
		require.ErrorContains(t, err, r.err)
		require.Equal(t, codes.InvalidArgument, status.Code(err), r.err)
	}
	big := one("identity_INT8", "INT8", []int64{1, 2}, nil, make([]byte, 70<<10))
	_, err := call[pb.ModelInferResponse](t, c, "ModelInfer", big)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

// TestStream wants an answer for each request of a stream, in order; one that fails does not end it.
func TestStream(t *testing.T) {
	addr, stop := running(t, []oip.Model{testmodel.Simple()})
	c := plain(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := c.NewStream(ctx, &description.Streams[0], "/"+serviceName+"/ModelStreamInfer")
	require.NoError(t, err)
	for i := range 20 {
		q, want := simple(1 + i%8)
		q.Id = fmt.Sprint(i)
		want.Id = q.Id
		if i%5 == 4 {
			q.RawInputContents[0] = q.RawInputContents[0][1:]
		}
		require.NoError(t, stream.SendMsg(q))
		a := &pb.ModelStreamInferResponse{}
		require.NoError(t, stream.RecvMsg(a))
		if i%5 == 4 {
			require.Contains(t, a.ErrorMessage, "raw bytes, expected")
			require.Equal(t, q.Id, a.InferResponse.Id)
			continue
		}
		require.True(t, proto.Equal(&pb.ModelStreamInferResponse{InferResponse: want}, a), "%v", a)
	}
	stop() // the stream is open: it must not keep the server
	err = stream.RecvMsg(&pb.ModelStreamInferResponse{})
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)

	addr, _ = running(t, []oip.Model{testmodel.Simple()})
	stream, err = plain(t, addr).NewStream(ctx, &description.Streams[0], "/"+serviceName+"/ModelStreamInfer", grpc.WaitForReady(true))
	require.NoError(t, err)
	require.NoError(t, stream.CloseSend())
	require.Equal(t, io.EOF, stream.RecvMsg(&pb.ModelStreamInferResponse{}))
}

// TestHealth asks the health service for the server, a model and what there is not, and watches the server stop.
func TestHealth(t *testing.T) {
	srv, addr, stop := runningServer(t, []oip.Model{testmodel.Simple()})
	untilReady(t, srv)
	h := healthpb.NewHealthClient(plain(t, addr))
	for _, name := range []string{"", serviceName, "simple"} {
		a, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}, grpc.WaitForReady(true))
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, a.Status, name)
	}
	_, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "none"})
	require.Equal(t, codes.NotFound, status.Code(err))
	w, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	a, err := w.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, a.Status)
	stop()
	for err == nil {
		_, err = w.Recv()
	}
	require.Equal(t, codes.Unavailable, status.Code(err))
}

// TestReflection wants the description of a call that tools ask for.
func TestReflection(t *testing.T) {
	addr, _ := running(t, nil)
	s, err := reflectionpb.NewServerReflectionClient(plain(t, addr)).ServerReflectionInfo(t.Context(), grpc.WaitForReady(true))
	require.NoError(t, err)
	require.NoError(t, s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: serviceName + ".ModelInfer"}}))
	a, err := s.Recv()
	require.NoError(t, err)
	require.Len(t, a.GetFileDescriptorResponse().GetFileDescriptorProto(), 1)
}

// loads is a repository that knows one model.
type loads struct{ calls []string }

func (l *loads) Load(_ context.Context, model string) error {
	if model != "simple" {
		return oip.Errorf(oip.NotFound, "no model '%s'", model)
	}
	l.calls = append(l.calls, "load "+model)
	return nil
}

func (l *loads) Unload(_ context.Context, model string) error {
	l.calls = append(l.calls, "unload "+model)
	return nil
}

// TestRepository loads, unloads and lists models, and has that refused by a server that does not do it.
func TestRepository(t *testing.T) {
	l := &loads{}
	srv, addr, _ := runningServer(t, []oip.Model{testmodel.Simple()}, WithRepository(l))
	untilReady(t, srv)
	c := plain(t, addr)
	index, err := call[pb.RepositoryIndexResponse](t, c, "RepositoryIndex", &pb.RepositoryIndexRequest{Ready: true})
	require.NoError(t, err)
	require.True(t, proto.Equal(&pb.RepositoryIndexResponse{Models: []*pb.RepositoryIndexResponse_ModelIndex{{Name: "simple", Version: "1", State: "READY"}}}, index), "%v", index)
	_, err = call[pb.RepositoryModelLoadResponse](t, c, "RepositoryModelLoad", &pb.RepositoryModelLoadRequest{ModelName: "simple"})
	require.NoError(t, err)
	_, err = call[pb.RepositoryModelLoadResponse](t, c, "RepositoryModelLoad", &pb.RepositoryModelLoadRequest{ModelName: "../simple"})
	require.Equal(t, codes.NotFound, status.Code(err))
	_, err = call[pb.RepositoryModelLoadResponse](t, c, "RepositoryModelLoad", &pb.RepositoryModelLoadRequest{ModelName: "simple", Parameters: map[string]*pb.ModelRepositoryParameter{"config": {}}})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.ErrorContains(t, err, "failed to load 'simple': parameter 'config' is not supported")
	_, err = call[pb.RepositoryModelUnloadResponse](t, c, "RepositoryModelUnload", &pb.RepositoryModelUnloadRequest{ModelName: "simple"})
	require.NoError(t, err)
	require.Equal(t, []string{"load simple", "unload simple"}, l.calls)
	addr, _ = running(t, []oip.Model{testmodel.Simple()})
	_, err = call[pb.RepositoryModelLoadResponse](t, plain(t, addr), "RepositoryModelLoad", &pb.RepositoryModelLoadRequest{ModelName: "simple"})
	require.Equal(t, codes.Unimplemented, status.Code(err))
}

// TestUnloaded: a model that the server has, and that does not serve, is not ready, which is no error.
func TestUnloaded(t *testing.T) {
	srv, addr, _ := runningServer(t, []oip.Model{testmodel.Simple()})
	c := plain(t, addr)
	ready := func(name, version string) (bool, error) {
		a, err := call[pb.ModelReadyResponse](t, c, "ModelReady", &pb.ModelReadyRequest{Name: name, Version: version})
		return a.GetReady(), err
	}
	require.NoError(t, srv.Core().Unload("simple", ""))
	for _, q := range [][2]string{{"simple", ""}, {"simple", "1"}} {
		is, err := ready(q[0], q[1])
		require.NoError(t, err, "%s", q)
		require.False(t, is, "%s", q)
	}
	for _, q := range [][2]string{{"simple", "2"}, {"none", ""}} {
		_, err := ready(q[0], q[1])
		require.Equal(t, codes.NotFound, status.Code(err), "%s", q)
	}
	q, _ := simple(1)
	_, err := call[pb.ModelInferResponse](t, c, "ModelInfer", q)
	require.Equal(t, codes.NotFound, status.Code(err))
}

// TestLacking makes calls of Triton's protocol that this server does not have.
func TestLacking(t *testing.T) {
	addr, _ := running(t, []oip.Model{testmodel.Simple()})
	c := plain(t, addr)
	for method, text := range map[string]string{
		"SystemSharedMemoryStatus": "shares no memory", "SystemSharedMemoryRegister": "shares no memory", "CudaSharedMemoryUnregister": "shares no memory",
		"TraceSetting": "traces are set up where it starts", "LogSettings": "log is set up where it starts", "ModelTrain": "there is no call '/inference.GRPCInferenceService/ModelTrain' here",
	} {
		_, err := call[pb.ServerLiveResponse](t, c, method, &pb.ServerLiveRequest{})
		require.Equal(t, codes.Unimplemented, status.Code(err), method)
		require.ErrorContains(t, err, text, method)
	}
	err := c.Invoke(t.Context(), "/other.Service/TraceSetting", &pb.ServerLiveRequest{}, &pb.ServerLiveResponse{})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.ErrorContains(t, err, "there is no call '/other.Service/TraceSetting' here")
}

// TestStatistics wants requests counted, those that failed too.
func TestStatistics(t *testing.T) {
	addr, _ := running(t, []oip.Model{testmodel.Simple()})
	c := plain(t, addr)
	for n := range 3 {
		q, _ := simple(n + 1)
		_, err := call[pb.ModelInferResponse](t, c, "ModelInfer", q)
		require.NoError(t, err)
		q.RawInputContents[0] = nil
		_, err = call[pb.ModelInferResponse](t, c, "ModelInfer", q)
		require.Error(t, err)
	}
	for _, q := range []*pb.ModelStatisticsRequest{{}, {Name: "simple"}, {Name: "simple", Version: "1"}} {
		a, err := call[pb.ModelStatisticsResponse](t, c, "ModelStatistics", q)
		require.NoError(t, err)
		require.Len(t, a.ModelStats, 1)
		s := a.ModelStats[0]
		require.EqualValues(t, 6, s.InferenceCount)
		require.EqualValues(t, 3, s.ExecutionCount)
		require.EqualValues(t, 3, s.InferenceStats.Success.Count)
		require.EqualValues(t, 3, s.InferenceStats.Fail.Count)
		require.Positive(t, s.InferenceStats.ComputeInfer.Ns)
		require.Len(t, s.BatchStats, 3)
	}
	_, err := call[pb.ModelStatisticsResponse](t, c, "ModelStatistics", &pb.ModelStatisticsRequest{Name: "none"})
	require.Equal(t, codes.NotFound, status.Code(err))
}

// TestDescription compares the calls that are served with those of inference.proto.
func TestDescription(t *testing.T) {
	served := map[string]bool{}
	for _, m := range description.Methods {
		served[m.MethodName] = true
	}
	for _, s := range description.Streams {
		served[s.StreamName] = true
	}
	methods := pb.File_inference_proto.Services().ByName("GRPCInferenceService").Methods()
	for i := range methods.Len() {
		require.True(t, served[string(methods.Get(i).Name())], "%s is not served", methods.Get(i).Name())
	}
	require.Len(t, served, methods.Len())
}

// TestDeadline ends requests whose time is over, or whose caller has gone, and a request whose model panics or fails.
func TestDeadline(t *testing.T) {
	m := testmodel.Simple()
	entered := make(chan struct{}, 1)
	m.Before = func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	addr, _ := running(t, []oip.Model{m})
	c := plain(t, addr)
	q, _ := simple(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := c.Invoke(ctx, inferMethod, q, &pb.ModelInferResponse{})
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	<-entered
	ctx, cancel = context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	err = c.Invoke(ctx, inferMethod, q, &pb.ModelInferResponse{})
	require.Equal(t, codes.Canceled, status.Code(err))
	m.Before = func(context.Context) error { panic("in a hook") }
	err = c.Invoke(metadata.AppendToOutgoingContext(t.Context(), agree.Header, strings.Repeat("a", 64)), inferMethod, q, &pb.ModelInferResponse{})
	require.Equal(t, codes.Internal, status.Code(err))
	require.NotContains(t, err.Error(), "in a hook")
	m.Before = func(context.Context) error {
		return &oip.Error{Code: oip.Exhausted, Text: "too many", RetryAfter: 3 * time.Second}
	}
	err = c.Invoke(t.Context(), inferMethod, q, &pb.ModelInferResponse{})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	e, ok := fromStatus(err).(*oip.Error)
	require.True(t, ok)
	require.Equal(t, 3*time.Second, e.RetryAfter)
	require.Equal(t, oip.Exhausted, e.Code)
	m.Before = func(context.Context) error {
		return &oip.Error{Code: oip.FailedPrecondition, Text: "another contract", Contract: "its text"}
	}
	err = c.Invoke(t.Context(), inferMethod, q, &pb.ModelInferResponse{})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.Equal(t, "its text", fromStatus(err).(*oip.Error).Contract)
}

// TestCallers has many callers of several models at a time: every answer is its own.
func TestCallers(t *testing.T) {
	addr, _ := running(t, []oip.Model{testmodel.Simple(), testmodel.Identity(oip.FP32, 4, 20_000)})
	c := plain(t, addr)
	var group sync.WaitGroup
	for caller := range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range 25 {
				if caller%2 == 0 {
					q, want := simple(1 + i%8)
					want.Id = fmt.Sprint(caller, i)
					q.Id = want.Id
					a, err := call[pb.ModelInferResponse](t, c, "ModelInfer", q)
					if err != nil || !proto.Equal(want, a) {
						t.Errorf("caller %d, request %d: %v, %v", caller, i, a, err)
					}
					continue
				}
				shape := []int64{int64(1 + i%4), 20_000}
				data := drawn(oip.FP32, int(shape[0])*20_000)
				a, err := call[pb.ModelInferResponse](t, c, "ModelInfer", &pb.ModelInferRequest{ModelName: "identity_FP32", RawInputContents: [][]byte{data},
					Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "FP32", Shape: shape}}})
				if err != nil || string(a.RawOutputContents[0]) != string(data) {
					t.Errorf("caller %d, request %d: %v", caller, i, err)
				}
			}
		}()
	}
	group.Wait()
}
