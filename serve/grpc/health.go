package grpcserve

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/popefgen/popefgen/serve/access"
)

// health is the service that probes and balancers ask: for "", for the service of inference, or for a model.
type health struct {
	healthpb.UnimplementedHealthServer
	*service
}

// watchEvery is how often a watched state is looked at. Nothing happens while nobody watches.
const watchEvery = 250 * time.Millisecond

func (h *health) state(name string) (healthpb.HealthCheckResponse_ServingStatus, bool) {
	ready, known := h.ready(name)
	switch {
	case !known:
		return healthpb.HealthCheckResponse_SERVICE_UNKNOWN, false
	case ready:
		return healthpb.HealthCheckResponse_SERVING, true
	}
	return healthpb.HealthCheckResponse_NOT_SERVING, true
}

// model returns the model that is asked for, "" if it is the server: only then anybody may ask, as otherwise it would show which models
// there are.
func model(q *healthpb.HealthCheckRequest) string {
	if q.GetService() == serviceName {
		return ""
	}
	return q.GetService()
}

// Check returns whether a service is ready.
func (h *health) Check(ctx context.Context, q *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if err := h.allow(ctx, access.Health, model(q)); err != nil {
		return nil, toStatus(err)
	}
	s, known := h.state(q.GetService())
	if !known {
		return nil, status.Errorf(codes.NotFound, "unknown service '%s', expected '', '%s' or the name of a model", q.GetService(), serviceName)
	}
	return &healthpb.HealthCheckResponse{Status: s}, nil
}

// Watch sends whether a service is ready, now and when that changes.
func (h *health) Watch(q *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if err := h.allow(stream.Context(), access.Health, model(q)); err != nil {
		return toStatus(err)
	}
	last := healthpb.HealthCheckResponse_ServingStatus(-1)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if s, _ := h.state(q.GetService()); s != last {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: s}); err != nil {
				return err
			}
			last = s
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-h.draining:
			return status.Error(codes.Unavailable, "the server stops")
		}
	}
}
