package main

import (
	"fmt"
	"os"

	"github.com/popefgen/popefgen/bench/report"
)

// pair is a server of ours, the bare one that does the same, and the transport alone: a handler that reads a request
// of as many bytes and writes an answer of as many.
type pair struct {
	name              string
	ours, bare, alone string // of servers
	goal              float64
	allocated         float64 // bytes of a request, at most; 0: no goal but that of allocations
	large             bool    // a tenth of the requests is enough
	request           func(bare bool) *request
}

var pairs = []pair{
	{"gRPC, 1 KiB", "grpc", "bare-grpc", "alone-grpc", 0.95, 0, false, func(bare bool) *request {
		return grpcRequest(bare, []int64{1, small}, small, raw(floats(small)))
	}},
	{"gRPC, [1,3,224,224]", "grpc-image", "bare-grpc", "alone-grpc", 0.65, 32 << 10, true, func(bare bool) *request {
		return grpcRequest(bare, []int64{1, 3, 224, 224}, pixels, scores)
	}},
	{"REST binary, 1 KiB", "rest", "bare-binary", "alone-rest", 0.95, 0, false, func(bool) *request {
		return binaryRequest("[1,256]", small, raw(floats(small)))
	}},
	{"REST binary, [1,3,224,224]", "rest-image", "bare-image", "alone-rest", 1.1, 0, true, func(bool) *request {
		return binaryRequest("[1,3,224,224]", pixels, scores)
	}},
	{"REST JSON, 256 floats", "rest", "bare-json", "alone-rest", 0.45, 0, false, func(bool) *request { return jsonRequest() }},
}

// measurePairs returns the table of those pairs whose name is wanted, "" if none is.
func measurePairs(o *options) (string, error) {
	t := report.NewTable("server", "processor time, µs", "/ bare", "goal", "", "allocations", "of the transport alone", "", "of bare", "allocated, B", "of bare", "requests/s", "of bare", "peak, MiB")
	any := false
	for i := range pairs {
		p := &pairs[i]
		if !o.wants(p.name) {
			continue
		}
		any = true
		fmt.Fprintln(os.Stderr, "measuring", p.name)
		all, rates, peak, err := p.measure(o)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		middle := func(i int, figure func(*cost) float64) float64 { return median(figures(all[i], figure)) }
		part := ratio(figures(all[0], processorTime), figures(all[1], processorTime))
		lean := middle(0, mallocs) <= middle(2, mallocs)+0.1
		if p.allocated > 0 {
			lean = middle(0, allocated) <= p.allocated
		}
		t.Row(p.name, number(middle(0, processorTime)), fmt.Sprintf("%.2f", part), fmt.Sprintf("≤ %g", p.goal), verdict(part <= p.goal),
			fmt.Sprintf("%.1f", middle(0, mallocs)), fmt.Sprintf("%.1f", middle(2, mallocs)), verdict(lean), fmt.Sprintf("%.1f", middle(1, mallocs)),
			number(middle(0, allocated)), number(middle(1, allocated)), number(rates[0]), number(rates[1]), number(float64(peak)/(1<<20)))
	}
	if !any {
		return "", nil
	}
	return t.String(), nil
}

// measure has the servers take turns: ours, the bare one, the transport alone. Then the driver says how many requests a second the first two answer,
// and peak is how many bytes ours had resident at most.
func (p *pair) measure(o *options) (costs [][]cost, rates [2]float64, peak int64, err error) {
	n := o.requests
	if p.large {
		n = max(n/10, parts*clients)
	}
	var all []*contestant
	q := []*request{p.request(false), p.request(true), p.request(true).unchecked()}
	for i, name := range []string{p.ours, p.bare, p.alone} {
		c, err := enter(name, q[i], clients)
		if err != nil {
			return nil, rates, 0, err
		}
		defer c.leave()
		all = append(all, c)
	}
	if costs, err = compete(all, o.rounds, n); err != nil {
		return nil, rates, 0, err
	}
	for range 3 {
		for i := range rates {
			rate, err := o.drive(all[i].addr, q[i], 2*n, clients)
			if err != nil {
				return nil, rates, 0, err
			}
			rates[i] = max(rates[i], rate)
		}
	}
	u, err := all[0].used()
	return costs, rates, u.Peak, err
}
