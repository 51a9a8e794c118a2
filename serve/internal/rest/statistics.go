package rest

import (
	"time"

	"github.com/popefgen/popefgen/serve/internal/core"
)

// duration is how often something happened and how long it took in all.
type duration struct {
	Count uint64 `json:"count"`
	Ns    int64  `json:"ns"`
}

func durationOf(t core.Total) duration { return duration{t.Count, int64(t.Time)} }

// modelStatistics are those of a version, by the names of Triton's extension.
type modelStatistics struct {
	Name           string `json:"name"`
	Version        string `json:"version"`
	LastInference  int64  `json:"last_inference"` // milliseconds since 1970, 0: none
	InferenceCount uint64 `json:"inference_count"`
	ExecutionCount uint64 `json:"execution_count"`
	InferenceStats struct {
		Success       duration `json:"success"`
		Fail          duration `json:"fail"`
		Queue         duration `json:"queue"`
		ComputeInput  duration `json:"compute_input"`
		ComputeInfer  duration `json:"compute_infer"`
		ComputeOutput duration `json:"compute_output"`
		CacheHit      duration `json:"cache_hit"`
		CacheMiss     duration `json:"cache_miss"`
	} `json:"inference_stats"`
	BatchStats []batchStatistics `json:"batch_stats"`
}

type batchStatistics struct {
	Size          int      `json:"batch_size"`
	ComputeInput  duration `json:"compute_input"`
	ComputeInfer  duration `json:"compute_infer"`
	ComputeOutput duration `json:"compute_output"`
}

func statisticsOf(s *core.Statistics) modelStatistics {
	m := modelStatistics{Name: s.Model, Version: s.Version, InferenceCount: s.Samples, ExecutionCount: s.Runs.Count, BatchStats: []batchStatistics{}}
	if s.Last != (time.Time{}) {
		m.LastInference = s.Last.UnixMilli()
	}
	i := &m.InferenceStats
	i.Success, i.Fail, i.Queue = durationOf(s.Latency.Total), durationOf(s.Failure), durationOf(s.Queue.Total)
	i.ComputeInput, i.ComputeInfer, i.ComputeOutput = durationOf(s.Decode.Total), durationOf(s.Compute.Total), durationOf(s.Encode.Total)
	for _, b := range s.Batches {
		m.BatchStats = append(m.BatchStats, batchStatistics{Size: b.Samples, ComputeInfer: durationOf(b.Total)})
	}
	return m
}

func (h *handler) statistics(q *request) error {
	if q.model != "" {
		v, err := h.lookup(q)
		if err != nil {
			return err
		}
		v.Release()
	}
	all := []modelStatistics{}
	for _, s := range h.core.Statistics(q.model) {
		if q.version == "" || q.version == s.Version {
			all = append(all, statisticsOf(&s))
		}
	}
	return h.json(q, struct {
		Models []modelStatistics `json:"model_stats"`
	}{all})
}
