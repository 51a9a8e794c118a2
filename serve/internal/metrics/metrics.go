// Package metrics is the table of what a server's metrics are called, what they mean and where in a snapshot of its counters
// they stand. The plain text here and the collector of serve/grpc/metrics, for Prometheus' own package, read the same table.
package metrics

import "math"

// Snapshot is what a server has counted since it began.
type Snapshot struct {
	Ready  bool
	Models []Model
}

// Model is what was counted of one version of a model.
type Model struct {
	Name, Version string
	Ready         bool
	Refused       bool // the files that are there now could not take its place

	Requests []Requests
	Unread   uint64 // requests for which there was no room before they were read: they are not in Requests
	Samples  uint64 // computed

	Whole                  Histogram // seconds from the header of a request to the end of its answer, of those that succeeded
	Queue                  Histogram // seconds that requests waited for a place
	Input, Compute, Output Histogram // seconds for reading requests that succeeded, computing them and writing their answers
	Batch                  Histogram // samples of the requests that succeeded
	Run, Together          Histogram // seconds of runs of the model that succeeded, and samples that they computed together
	Padding                uint64    // samples that runs computed for nobody

	InFlight, Computing, Waiting int // requests now
	MostComputing, MostWaiting   int // and their limits
	Received, Sent               uint64
	Reloads, Refusals            uint64 // reloads that succeeded, and that did not
}

// Requests counts the requests that came through one protocol and ended one way.
type Requests struct {
	Protocol string // rest, grpc or queue
	Outcome  string // ok, or the name of the error's code in small letters, such as invalid_argument
	Count    uint64
}

// Histogram counts values by size.
type Histogram struct {
	Bounds []float64 // the largest value of each bucket but the last, ascending
	Counts []uint64  // values in each bucket, one more than bounds
	Sum    float64   // of all values
}

// Total returns how many values there are.
func (h *Histogram) Total() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Kind is what Prometheus calls the type of a metric.
type Kind uint8

// The kinds.
const (
	Counter Kind = iota
	Gauge
	Distribution
)

// String returns the word of the text format.
func (k Kind) String() string { return [...]string{"counter", "gauge", "histogram"}[k] }

// Metric is one metric of the table.
type Metric struct {
	Name   string
	Help   string
	Kind   Kind
	Labels []string // in the order of the alphabet, as Prometheus writes them
	// Each calls value for every set of labels, in the order of Labels, or distribution if that is its Kind.
	Each func(s *Snapshot, value func(v float64, labels ...string), distribution func(h *Histogram, labels ...string))
}

type (
	value        = func(v float64, labels ...string)
	distribution = func(h *Histogram, labels ...string)
)

var ofModel = []string{"model", "version"}

// number is a metric with one number for each model.
func number(name string, kind Kind, help string, of func(m *Model) float64) Metric {
	return Metric{Name: name, Help: help, Kind: kind, Labels: ofModel, Each: func(s *Snapshot, v value, _ distribution) {
		for i := range s.Models {
			m := &s.Models[i]
			v(of(m), m.Name, m.Version)
		}
	}}
}

func spread(name, help string, of func(m *Model) *Histogram) Metric {
	return Metric{Name: name, Help: help, Kind: Distribution, Labels: ofModel, Each: func(s *Snapshot, _ value, d distribution) {
		for i := range s.Models {
			m := &s.Models[i]
			d(of(m), m.Name, m.Version)
		}
	}}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Table has the server's metrics, in the order in which they are written.
var Table = []Metric{
	{Name: "popefgen_ready", Help: "1 if the server answers that it is ready.", Kind: Gauge, Each: func(s *Snapshot, v value, _ distribution) { v(truth(s.Ready)) }},
	number("popefgen_model_ready", Gauge, "1 if the version of the model is warm and takes requests.", func(m *Model) float64 { return truth(m.Ready) }),
	{Name: "popefgen_requests_total", Help: "Requests to models that were read, by protocol and outcome.", Labels: []string{"model", "outcome", "protocol", "version"},
		Each: func(s *Snapshot, v value, _ distribution) {
			for i := range s.Models {
				m := &s.Models[i]
				for _, r := range m.Requests {
					v(float64(r.Count), m.Name, r.Outcome, r.Protocol, m.Version)
				}
			}
		}},
	number("popefgen_refused_total", Counter, "Requests refused because the model had no room, before they were read or after.", func(m *Model) float64 { return float64(m.refused()) }),
	spread("popefgen_request_seconds", "Time of requests that succeeded, from their header to the end of the answer.", func(m *Model) *Histogram { return &m.Whole }),
	spread("popefgen_queue_seconds", "Time that requests waited for a place and for the run that computed them.", func(m *Model) *Histogram { return &m.Queue }),
	spread("popefgen_input_seconds", "Time for reading requests that succeeded.", func(m *Model) *Histogram { return &m.Input }),
	spread("popefgen_compute_seconds", "Time for computing requests that succeeded.", func(m *Model) *Histogram { return &m.Compute }),
	spread("popefgen_output_seconds", "Time for writing answers.", func(m *Model) *Histogram { return &m.Output }),
	spread("popefgen_request_samples", "Samples of requests that succeeded.", func(m *Model) *Histogram { return &m.Batch }),
	number("popefgen_samples_total", Counter, "Samples that were computed.", func(m *Model) float64 { return float64(m.Samples) }),
	spread("popefgen_batch_seconds", "Time of runs of the model, each of which may compute several requests.", func(m *Model) *Histogram { return &m.Run }),
	spread("popefgen_batch_samples", "Samples that a run of the model computed together, without padding.", func(m *Model) *Histogram { return &m.Together }),
	number("popefgen_padding_samples_total", Counter, "Samples that were computed for nobody, to fill up batches.", func(m *Model) float64 { return float64(m.Padding) }),
	number("popefgen_in_flight", Gauge, "Requests between their header and the end of their answer now.", func(m *Model) float64 { return float64(m.InFlight) }),
	number("popefgen_computing", Gauge, "Requests that the model computes now.", func(m *Model) float64 { return float64(m.Computing) }),
	number("popefgen_waiting", Gauge, "Requests that wait now.", func(m *Model) float64 { return float64(m.Waiting) }),
	number("popefgen_computing_limit", Gauge, "Requests that the model computes at the same time at most.", func(m *Model) float64 { return float64(m.MostComputing) }),
	number("popefgen_waiting_limit", Gauge, "Requests that wait at most.", func(m *Model) float64 { return float64(m.MostWaiting) }),
	number("popefgen_received_bytes_total", Counter, "Bytes of requests.", func(m *Model) float64 { return float64(m.Received) }),
	number("popefgen_sent_bytes_total", Counter, "Bytes of answers.", func(m *Model) float64 { return float64(m.Sent) }),
	{Name: "popefgen_reloads_total", Help: "Reloads of a model, by result.", Labels: []string{"model", "result", "version"},
		Each: func(s *Snapshot, v value, _ distribution) {
			for i := range s.Models {
				m := &s.Models[i]
				v(float64(m.Reloads), m.Name, "ok", m.Version)
				v(float64(m.Refusals), m.Name, "refused", m.Version)
			}
		}},
	number("popefgen_reload_refused", Gauge, "1 if what the files of the version hold now was refused: what served before still does.", func(m *Model) float64 { return truth(m.Refused) }),
}

// TritonTable has the metrics by the names that Triton gives them, with its units.
var TritonTable = []Metric{
	number("nv_inference_request_success", Counter, "Number of successful inference requests, all batch sizes", func(m *Model) float64 { return float64(m.succeeded()) }),
	{Name: "nv_inference_request_failure", Help: "Number of failed inference requests, all batch sizes", Labels: []string{"model", "reason", "version"},
		Each: func(s *Snapshot, v value, _ distribution) {
			for i := range s.Models {
				m := &s.Models[i]
				for j, name := range reasons {
					v(float64(m.failed(j)), m.Name, name, m.Version)
				}
			}
		}},
	number("nv_inference_count", Counter, "Number of inferences performed (does not include cached requests)", func(m *Model) float64 { return float64(m.Samples) }),
	number("nv_inference_exec_count", Counter, "Number of model executions performed (does not include cached requests)", func(m *Model) float64 { return float64(m.Run.Total()) }),
	number("nv_inference_request_duration_us", Counter, "Cumulative inference request duration in microseconds (includes cached requests)", func(m *Model) float64 { return micro(m.Whole.Sum) }),
	number("nv_inference_queue_duration_us", Counter, "Cumulative inference queuing duration in microseconds (includes cached requests)", func(m *Model) float64 { return micro(m.Queue.Sum) }),
	number("nv_inference_compute_input_duration_us", Counter, "Cumulative compute input duration in microseconds (does not include cached requests)", func(m *Model) float64 { return micro(m.Input.Sum) }),
	number("nv_inference_compute_infer_duration_us", Counter, "Cumulative compute inference duration in microseconds (does not include cached requests)", func(m *Model) float64 { return micro(m.Compute.Sum) }),
	number("nv_inference_compute_output_duration_us", Counter, "Cumulative inference compute output duration in microseconds (does not include cached requests)", func(m *Model) float64 { return micro(m.Output.Sum) }),
	number("nv_inference_pending_request_count", Gauge, "Instantaneous number of pending requests awaiting execution per-model.", func(m *Model) float64 { return float64(m.Waiting) }),
}

var reasons = [...]string{"REJECTED", "CANCELED", "BACKEND", "OTHER"}

// reason returns the index of Triton's word for how a request failed.
func reason(outcome string) int {
	switch outcome {
	case "resource_exhausted", "unavailable", "deadline_exceeded":
		return 0
	case "cancelled":
		return 1
	case "internal":
		return 2
	}
	return 3
}

func (m *Model) succeeded() uint64 {
	var n uint64
	for _, r := range m.Requests {
		if r.Outcome == ok {
			n += r.Count
		}
	}
	return n
}

// refused returns how many requests found no room.
func (m *Model) refused() uint64 {
	n := m.Unread
	for _, r := range m.Requests {
		if r.Outcome == "resource_exhausted" {
			n += r.Count
		}
	}
	return n
}

// failed returns how many requests failed for one of the reasons.
func (m *Model) failed(why int) uint64 {
	n := uint64(0)
	if why == 0 {
		n = m.Unread
	}
	for _, r := range m.Requests {
		if r.Outcome != ok && reason(r.Outcome) == why {
			n += r.Count
		}
	}
	return n
}

// ok is the outcome of requests that did not fail.
const ok = "ok"

func micro(seconds float64) float64 { return math.Round(seconds * 1e6) }
