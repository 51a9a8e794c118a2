// Package metrics gives what a server counts to Prometheus' own package, for programs that register it beside metrics of their
// own, or want its formats and what it says of the process:
//
//	srv, err := serve.New(serve.WithMetrics(metrics.Handler(false)), ...)
//
// Programs that need only the text find it in package serve, without a dependency. Both say the same.
package metrics

import (
	"math"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/metrics"
)

type collector struct {
	snapshot func() *metrics.Snapshot
	table    []metrics.Metric
	descs    []*prometheus.Desc
}

// Collector returns the collector of a server's metrics, popefgen_* and, if triton, what Triton has of them by its names, nv_inference_*.
func Collector(s *serve.Server, triton bool) prometheus.Collector {
	tables := [][]metrics.Metric{metrics.Table}
	if triton {
		tables = append(tables, metrics.TritonTable)
	}
	return collect(func() *metrics.Snapshot { return metrics.Of(s.Core()) }, tables...)
}

// Handler returns a handler of a server's metrics and of its process's, for [serve.WithMetrics].
func Handler(triton bool) func(*serve.Server) http.Handler {
	return func(s *serve.Server) http.Handler {
		registry := prometheus.NewRegistry()
		registry.MustRegister(Collector(s, triton), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	}
}

// collect returns the collector of some metrics.
func collect(snapshot func() *metrics.Snapshot, tables ...[]metrics.Metric) prometheus.Collector {
	c := &collector{snapshot: snapshot}
	for _, t := range tables {
		c.table = append(c.table, t...)
	}
	for i := range c.table {
		c.descs = append(c.descs, prometheus.NewDesc(c.table[i].Name, c.table[i].Help, c.table[i].Labels, nil))
	}
	return c
}

// Describe sends what metrics there are.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect sends their values, all of one snapshot.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.snapshot()
	for i := range c.table {
		kind := prometheus.CounterValue
		if c.table[i].Kind == metrics.Gauge {
			kind = prometheus.GaugeValue
		}
		c.table[i].Each(s, func(v float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(c.descs[i], kind, v, valid(labels)...)
		}, func(h *metrics.Histogram, labels ...string) {
			buckets := make(map[float64]uint64, len(h.Bounds))
			total := uint64(0)
			for j, n := range h.Counts {
				if total += n; j < len(h.Bounds) && !math.IsInf(h.Bounds[j], 1) {
					buckets[h.Bounds[j]] = total
				}
			}
			to <- prometheus.MustNewConstHistogram(c.descs[i], total, h.Sum, buckets, valid(labels)...)
		})
	}
}

// valid makes names UTF-8, which Prometheus asks for.
func valid(labels []string) []string {
	all := make([]string, len(labels))
	for i, l := range labels {
		all[i] = strings.ToValidUTF8(l, "�")
	}
	return all
}
