package grpcserve

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

const (
	serviceName = "inference.GRPCInferenceService"
	inferMethod = "/" + serviceName + "/ModelInfer"
	platform    = "popef"
	backend     = "popefgen"
)

// service answers the calls.
type service struct {
	core           *core.Core
	options        options
	name, numbered string        // the server's name and version
	draining       chan struct{} // closed when streams are to end
}

// description lists the calls. ModelInfer and ModelStreamInfer have messages of our own.
var description = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		unary("ServerLive", (*service).serverLive),
		unary("ServerReady", (*service).serverReady),
		unary("ServerMetadata", (*service).serverMetadata),
		unary("ModelReady", (*service).modelReady),
		unary("ModelMetadata", (*service).modelMetadata),
		unary("ModelConfig", (*service).modelConfig),
		unary("ModelStatistics", (*service).modelStatistics),
		unary("RepositoryIndex", (*service).repositoryIndex),
		unary("RepositoryModelLoad", (*service).repositoryModelLoad),
		unary("RepositoryModelUnload", (*service).repositoryModelUnload),
		{MethodName: "ModelInfer", Handler: modelInfer},
	},
	Streams:  []grpc.StreamDesc{{StreamName: "ModelStreamInfer", Handler: modelStreamInfer, ServerStreams: true, ClientStreams: true}},
	Metadata: "inference.proto",
}

// lacking are calls of Triton's protocol that this server does not have, by how their names begin.
var lacking = map[string]wire.Extension{
	"SystemSharedMemory": wire.SharedMemory, "CudaSharedMemory": wire.SharedMemory, "XpuSharedMemory": wire.SharedMemory,
	"TraceSetting": wire.Trace, "LogSettings": wire.Logging,
}

// unknown answers calls that there are not.
func unknown(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	service, method, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	for prefix, e := range lacking {
		if service == serviceName && strings.HasPrefix(method, prefix) {
			return toStatus(wire.Lacking(e))
		}
	}
	return status.Errorf(codes.Unimplemented, "there is no call '%.256s' here; reflection and inference.proto say what there is", name)
}

// unary returns the description of a call with protobuf's messages. A panic costs its request alone.
func unary[Q, A any](name string, call func(*service, context.Context, *Q) (*A, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		request := new(Q)
		if err := decode(request); err != nil {
			return nil, err
		}
		handler := func(ctx context.Context, request any) (_ any, err error) {
			defer func() {
				if p := recover(); p != nil {
					err = toStatus(panicked(p))
				}
			}()
			a, err := call(srv.(*service), ctx, request.(*Q))
			if err != nil {
				return nil, toStatus(err)
			}
			return a, nil
		}
		if interceptor == nil {
			return handler(ctx, request)
		}
		return interceptor(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + serviceName + "/" + name}, handler)
	}}
}

// allow asks whether the caller may do that.
func (s *service) allow(ctx context.Context, api access.API, model string) error {
	if !s.core.Guarded() {
		return nil
	}
	var header string
	if v := metadata.ValueFromIncomingContext(ctx, "authorization"); len(v) > 0 {
		header = v[0]
	}
	var state *tls.ConnectionState
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			state = &info.State
		}
	}
	return s.core.Authorize(ctx, api, model, header, state)
}

// version returns a version that is held, once the caller may ask for it.
func (s *service) version(ctx context.Context, api access.API, name, version string) (*core.Version, error) {
	if err := s.allow(ctx, api, name); err != nil {
		return nil, err
	}
	return s.core.Lookup([]byte(name), []byte(version))
}

func (s *service) serverLive(ctx context.Context, _ *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	return &inference.ServerLiveResponse{Live: true}, s.allow(ctx, access.Health, "")
}

func (s *service) serverReady(ctx context.Context, _ *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	return &inference.ServerReadyResponse{Ready: s.core.Ready() == nil}, s.allow(ctx, access.Health, "")
}

func (s *service) serverMetadata(ctx context.Context, _ *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	return &inference.ServerMetadataResponse{Name: s.name, Version: s.numbered, Extensions: wire.Extensions(s.options.repository != nil)}, s.allow(ctx, access.Metadata, "")
}

func (s *service) modelReady(ctx context.Context, q *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	v, err := s.version(ctx, access.Health, q.GetName(), q.GetVersion())
	var known *oip.Error
	switch {
	case errors.As(err, &known) && known.Code == oip.NotFound && s.core.Known(q.GetName(), q.GetVersion()):
		return &inference.ModelReadyResponse{}, nil // such as one that was unloaded
	case err != nil:
		return nil, err
	}
	v.Release()
	return &inference.ModelReadyResponse{Ready: s.core.Ready() == nil}, nil
}

func (s *service) modelMetadata(ctx context.Context, q *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	v, err := s.version(ctx, access.Metadata, q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	defer v.Release()
	tensors := func(of []oip.Tensor) (all []*inference.ModelMetadataResponse_TensorMetadata) {
		for i := range of {
			all = append(all, &inference.ModelMetadataResponse_TensorMetadata{Name: of[i].Name, Datatype: of[i].Type.String(), Shape: of[i].Shape})
		}
		return all
	}
	return &inference.ModelMetadataResponse{
		Name: v.Spec.Name, Versions: s.core.Versions(v.Spec.Name), Platform: platform,
		Inputs: tensors(v.Spec.Inputs), Outputs: tensors(v.Spec.Outputs),
	}, nil
}

func (s *service) modelConfig(ctx context.Context, q *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	v, err := s.version(ctx, access.Metadata, q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	defer v.Release()
	c := &inference.ModelConfig{Name: v.Spec.Name, Platform: platform, Backend: backend, MaxBatchSize: int32(v.Spec.Samples)}
	dims := func(t *oip.Tensor) []int64 {
		if v.Spec.Samples > 0 {
			return t.Shape[1:]
		}
		return t.Shape
	}
	for i := range v.Spec.Inputs {
		t := &v.Spec.Inputs[i]
		c.Input = append(c.Input, &inference.ModelInput{Name: t.Name, DataType: configType(t.Type), Format: inference.ModelInput_Format(inference.ModelInput_Format_value[wire.Format(dims(t))]), Dims: dims(t)})
	}
	for i := range v.Spec.Outputs {
		t := &v.Spec.Outputs[i]
		c.Output = append(c.Output, &inference.ModelOutput{Name: t.Name, DataType: configType(t.Type), Dims: dims(t)})
	}
	return &inference.ModelConfigResponse{Config: c}, nil
}

// configType returns the type as configurations name it.
func configType(t oip.DataType) inference.DataType {
	return inference.DataType(inference.DataType_value["TYPE_"+t.String()])
}

// streamFailure is the answer of a stream to a request that failed.
func streamFailure(err error, id string) *inference.ModelStreamInferResponse {
	return &inference.ModelStreamInferResponse{ErrorMessage: failure(err).Text, InferResponse: &inference.ModelInferResponse{Id: id}}
}

// ready reports whether requests to a service of the health protocol, "", that of inference, or a model, are taken, and
// whether there is such a service.
func (s *service) ready(name string) (ready, known bool) {
	known = name == "" || name == serviceName || slices.Contains(s.core.Names(), name)
	return known && s.core.Ready() == nil, known
}
