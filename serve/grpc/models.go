package grpcserve

import (
	"context"
	"maps"
	"slices"

	"github.com/popefgen/popefgen/serve/access"
	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// Repository loads and unloads models by their names for clients. A name is looked up among those that are known, it is no path.
type Repository interface {
	Load(ctx context.Context, model string) error
	Unload(ctx context.Context, model string) error
}

// WithRepository lets clients load and unload models, and lists the extension "model_repository". Without it they
// are refused.
func WithRepository(r Repository) Option {
	return func(o *options) error {
		o.repository = r
		return nil
	}
}

func (s *service) modelStatistics(ctx context.Context, q *pb.ModelStatisticsRequest) (*pb.ModelStatisticsResponse, error) {
	if err := s.allow(ctx, access.Statistics, q.GetName()); err != nil {
		return nil, err
	}
	if q.GetName() != "" {
		v, err := s.core.Lookup([]byte(q.GetName()), []byte(q.GetVersion()))
		if err != nil {
			return nil, err
		}
		v.Release()
	}
	a := &pb.ModelStatisticsResponse{}
	for _, of := range s.core.Statistics(q.GetName()) {
		if q.GetVersion() == "" || q.GetVersion() == of.Version {
			a.ModelStats = append(a.ModelStats, statistics(&of))
		}
	}
	return a, nil
}

// statistics returns what was counted as Triton's clients read it.
func statistics(s *core.Statistics) *pb.ModelStatistics {
	duration := func(t core.Total) *pb.StatisticDuration {
		return &pb.StatisticDuration{Count: t.Count, Ns: uint64(t.Time)}
	}
	m := &pb.ModelStatistics{
		Name: s.Model, Version: s.Version, InferenceCount: s.Samples, ExecutionCount: s.Runs.Count,
		InferenceStats: &pb.InferStatistics{
			Success: duration(s.Latency.Total), Fail: duration(s.Failure), Queue: duration(s.Queue.Total),
			ComputeInput: duration(s.Decode.Total), ComputeInfer: duration(s.Compute.Total), ComputeOutput: duration(s.Encode.Total),
		},
	}
	if !s.Last.IsZero() {
		m.LastInference = uint64(s.Last.UnixMilli())
	}
	for _, b := range s.Batches {
		m.BatchStats = append(m.BatchStats, &pb.InferBatchStatistics{BatchSize: uint64(b.Samples), ComputeInfer: duration(b.Total)})
	}
	return m
}

func (s *service) repositoryIndex(ctx context.Context, q *pb.RepositoryIndexRequest) (*pb.RepositoryIndexResponse, error) {
	if err := s.allow(ctx, access.Repository, ""); err != nil {
		return nil, err
	}
	a := &pb.RepositoryIndexResponse{}
	for _, e := range s.core.Index() {
		if !q.GetReady() || e.State == core.Serving {
			a.Models = append(a.Models, &pb.RepositoryIndexResponse_ModelIndex{Name: e.Model, Version: e.Version, State: e.State, Reason: e.Reason})
		}
	}
	return a, nil
}

// repository returns what loads models, once the caller may have that done.
func (s *service) repository(ctx context.Context, model string) (Repository, error) {
	if err := s.allow(ctx, access.Repository, model); err != nil {
		return nil, err
	}
	if s.options.repository == nil {
		return nil, oip.Errorf(oip.Unimplemented, "this server does not load or unload models for clients")
	}
	return s.options.repository, nil
}

func (s *service) repositoryModelLoad(ctx context.Context, q *pb.RepositoryModelLoadRequest) (*pb.RepositoryModelLoadResponse, error) {
	r, err := s.repository(ctx, q.GetModelName())
	if err != nil {
		return nil, err
	}
	if all := slices.Sorted(maps.Keys(q.GetParameters())); len(all) > 0 {
		return nil, wire.LoadParameter(q.GetModelName(), all[0])
	}
	return &pb.RepositoryModelLoadResponse{}, r.Load(ctx, q.GetModelName())
}

func (s *service) repositoryModelUnload(ctx context.Context, q *pb.RepositoryModelUnloadRequest) (*pb.RepositoryModelUnloadResponse, error) {
	r, err := s.repository(ctx, q.GetModelName())
	if err != nil {
		return nil, err
	}
	return &pb.RepositoryModelUnloadResponse{}, r.Unload(ctx, q.GetModelName())
}
