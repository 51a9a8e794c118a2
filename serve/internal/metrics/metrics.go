// Package metrics is the table of what a server's metrics are called, what they mean and where in a snapshot of its counters
// they stand. The plain text here and the collector of serve/grpc/metrics, for Prometheus' own package, read the same table.
package metrics

// Snapshot is what a server has counted since it began.
type Snapshot struct {
	Ready  bool
	Models []Model
}

// Model is what was counted of one version of a model.
type Model struct {
	Name, Version string
	Ready         bool
	Reason        string // why it is not ready, "" if it is
	ReloadRefused bool   // the files now there have a contract that breaks callers, so the version from before serves

	Requests []Requests
	Refused  uint64 // before their bodies were read, because of the limit
	Samples  uint64 // computed, without padding
	Padded   uint64 // computed besides, because the model has no size that fits

	Whole   Histogram // seconds from the first byte of a request to the end of its answer, of those that succeeded
	Queue   Histogram // seconds that requests waited for a place
	Input   Histogram // seconds for reading inputs into memory
	Compute Histogram // seconds that the model computed
	Output  Histogram // seconds for writing answers
	Batch   Histogram // samples that were computed together

	Computing, Waiting       int // requests now
	MostComputing, MostWaits int // and their limits
	Received, Sent           uint64
	Reloaded, Unloadable     uint64 // reloads that succeeded, and that did not
}

// Requests counts the requests that came through one protocol and ended one way.
type Requests struct {
	Protocol string // rest, grpc, queue
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
	Labels []string
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
	{Name: "popefgen_requests_total", Help: "Requests to models that ended, by protocol and outcome.", Labels: []string{"model", "version", "protocol", "outcome"},
		Each: func(s *Snapshot, v value, _ distribution) {
			for i := range s.Models {
				m := &s.Models[i]
				for _, r := range m.Requests {
					v(float64(r.Count), m.Name, m.Version, r.Protocol, r.Outcome)
				}
			}
		}},
	number("popefgen_refused_total", Counter, "Requests refused at once because the model's limit was reached.", func(m *Model) float64 { return float64(m.Refused) }),
	spread("popefgen_request_seconds", "Time of requests that succeeded, from their first byte to the end of the answer.", func(m *Model) *Histogram { return &m.Whole }),
	spread("popefgen_queue_seconds", "Time that requests waited until the model computed them.", func(m *Model) *Histogram { return &m.Queue }),
	spread("popefgen_compute_seconds", "Time that the model computed.", func(m *Model) *Histogram { return &m.Compute }),
	spread("popefgen_batch_samples", "Samples that were computed together.", func(m *Model) *Histogram { return &m.Batch }),
	number("popefgen_samples_total", Counter, "Samples that were computed for callers.", func(m *Model) float64 { return float64(m.Samples) }),
	number("popefgen_padded_samples_total", Counter, "Samples that were computed for nobody, because no size of the model fits.", func(m *Model) float64 { return float64(m.Padded) }),
	number("popefgen_computing", Gauge, "Requests that the model computes now.", func(m *Model) float64 { return float64(m.Computing) }),
	number("popefgen_waiting", Gauge, "Requests that wait now.", func(m *Model) float64 { return float64(m.Waiting) }),
	number("popefgen_computing_limit", Gauge, "Requests that the model computes at the same time at most.", func(m *Model) float64 { return float64(m.MostComputing) }),
	number("popefgen_waiting_limit", Gauge, "Requests that wait at most.", func(m *Model) float64 { return float64(m.MostWaits) }),
	number("popefgen_received_bytes_total", Counter, "Bytes of requests.", func(m *Model) float64 { return float64(m.Received) }),
	number("popefgen_sent_bytes_total", Counter, "Bytes of answers.", func(m *Model) float64 { return float64(m.Sent) }),
	{Name: "popefgen_reloads_total", Help: "Reloads of a model, by result.", Labels: []string{"model", "version", "result"},
		Each: func(s *Snapshot, v value, _ distribution) {
			for i := range s.Models {
				m := &s.Models[i]
				v(float64(m.Reloaded), m.Name, m.Version, "ok")
				v(float64(m.Unloadable), m.Name, m.Version, "failed")
			}
		}},
	number("popefgen_reload_refused", Gauge, "1 if the files that are there now would break callers, so that the model from before serves.", func(m *Model) float64 { return truth(m.ReloadRefused) }),
}

// TritonTable has the metrics by the names that Triton gives them, with its units.
var TritonTable = []Metric{
	number("nv_inference_request_success", Counter, "Number of successful inference requests, all batch sizes", func(m *Model) float64 { return float64(m.succeeded()) }),
	{Name: "nv_inference_request_failure", Help: "Number of failed inference requests, all batch sizes", Labels: []string{"model", "version", "reason"},
		Each: func(s *Snapshot, v value, _ distribution) {
			for i := range s.Models {
				m := &s.Models[i]
				var by [len(reasons)]uint64
				for _, r := range m.Requests {
					if r.Outcome != "ok" {
						by[reason(r.Outcome)] += r.Count
					}
				}
				for j, name := range reasons {
					v(float64(by[j]), m.Name, m.Version, name)
				}
			}
		}},
	number("nv_inference_count", Counter, "Number of inferences performed (does not include cached requests)", func(m *Model) float64 { return float64(m.Samples) }),
	number("nv_inference_exec_count", Counter, "Number of model executions performed (does not include cached requests)", func(m *Model) float64 { return float64(m.Batch.Total()) }),
	number("nv_inference_request_duration_us", Counter, "Cumulative inference request duration in microseconds (includes cached requests)", func(m *Model) float64 { return micro(&m.Whole) }),
	number("nv_inference_queue_duration_us", Counter, "Cumulative inference queuing duration in microseconds (includes cached requests)", func(m *Model) float64 { return micro(&m.Queue) }),
	number("nv_inference_compute_input_duration_us", Counter, "Cumulative compute input duration in microseconds (does not include cached requests)", func(m *Model) float64 { return micro(&m.Input) }),
	number("nv_inference_compute_infer_duration_us", Counter, "Cumulative compute inference duration in microseconds (does not include cached requests)", func(m *Model) float64 { return micro(&m.Compute) }),
	number("nv_inference_compute_output_duration_us", Counter, "Cumulative inference compute output duration in microseconds (does not include cached requests)", func(m *Model) float64 { return micro(&m.Output) }),
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
		if r.Outcome == "ok" {
			n += r.Count
		}
	}
	return n
}

func micro(h *Histogram) float64 { return float64(int64(h.Sum * 1e6)) }
