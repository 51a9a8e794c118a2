package metrics

import (
	"strings"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/oip"
)

// Of returns what a server has counted until now, of the versions that serve or should.
func Of(c *core.Core) *Snapshot {
	s := &Snapshot{Ready: c.Ready() == nil}
	counted := c.Statistics("")
	for _, e := range c.Index() {
		m := Model{Name: e.Model, Version: e.Version, Ready: e.State == core.Serving, Refused: e.Rejected, Reloads: e.Reloads, Refusals: e.Refused}
		for i := range counted {
			if counted[i].Model == e.Model && counted[i].Version == e.Version {
				m.counted(&counted[i])
			}
		}
		s.Models = append(s.Models, m)
	}
	return s
}

func (m *Model) counted(of *core.Statistics) {
	m.Unread = of.Refused
	for p := range of.Done {
		protocol := strings.ToLower(core.Protocol(p).String())
		m.Requests = append(m.Requests, Requests{protocol, ok, of.Done[p]})
		for code, n := range of.Failed[p] {
			m.Requests = append(m.Requests, Requests{protocol, outcome(oip.Code(code)), n})
		}
		m.Unread -= min(m.Unread, of.Failed[p][oip.Exhausted])
	}
	m.Samples = of.Samples
	m.Whole, m.Queue, m.Input, m.Compute, m.Output = seconds(&of.Latency), seconds(&of.Queue), seconds(&of.Decode), seconds(&of.Compute), seconds(&of.Encode)
	m.Batch, m.Together = samples(of.Requests, of.Samples), samples(of.Batches, of.Computed)
	m.Run, m.Padding = seconds(&of.Runs), of.Padding
	m.InFlight, m.Computing, m.Waiting = of.InFlight, of.Computing, of.Waiting
	m.MostComputing, m.MostWaiting = of.Limits.Computing, of.Limits.Waiting
	m.Received, m.Sent = of.Received, of.Sent
}

// outcome returns the label of a code. Codes that gRPC has one name for have one each.
func outcome(c oip.Code) string {
	switch c {
	case oip.TooLarge:
		return "too_large"
	case oip.Unsupported:
		return "unsupported_encoding"
	}
	return strings.ToLower(c.String())
}

func seconds(of *core.Histogram) Histogram {
	h := Histogram{Counts: of.Buckets[:], Sum: of.Time.Seconds()}
	for _, b := range core.Bounds {
		h.Bounds = append(h.Bounds, b.Seconds())
	}
	return h
}

// samples returns numbers of samples in buckets of powers of two, of sum samples in all.
func samples(of []core.Batch, sum uint64) Histogram {
	h := Histogram{Sum: float64(sum)}
	for most := 1; most <= 1024; most *= 2 {
		h.Bounds = append(h.Bounds, float64(most))
	}
	h.Counts = make([]uint64, len(h.Bounds)+1)
	for _, b := range of {
		i := 0
		for i < len(h.Bounds) && float64(b.Samples) > h.Bounds[i] {
			i++
		}
		h.Counts[i] += b.Count
	}
	return h
}
