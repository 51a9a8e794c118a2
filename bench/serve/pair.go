package main

import "fmt"

// pair is a server of ours and the bare one that does the same.
type pair struct {
	name       string
	ours, bare string // of servers
	goal       float64
	large      bool // a tenth of the requests is enough
	request    func(bare bool) *request
}

var pairs = []pair{
	{"gRPC, 1 KiB", "grpc", "bare-grpc", 0.95, false, func(bare bool) *request {
		return grpcRequest(bare, []int64{1, small}, small, raw(floats(small)))
	}},
	{"gRPC, [1,3,224,224]", "grpc-image", "bare-grpc", 0.65, true, func(bare bool) *request {
		return grpcRequest(bare, []int64{1, 3, 224, 224}, pixels, scores)
	}},
	{"REST binary, 1 KiB", "rest", "bare-binary", 0.95, false, func(bool) *request {
		return binaryRequest("[1,256]", small, raw(floats(small)))
	}},
	{"REST binary, [1,3,224,224]", "rest-image", "bare-image", 1.1, true, func(bool) *request {
		return binaryRequest("[1,3,224,224]", pixels, scores)
	}},
	{"REST JSON, 256 floats", "rest", "bare-json", 0.45, false, func(bool) *request { return jsonRequest() }},
}

// cost is what a request costs a server, each figure from its best turn.
type cost struct {
	cpu, mallocs, bytes float64 // microseconds, and by request
	rate                float64 // requests a second
	peak                int64
}

// measure has both servers take turns.
func (p *pair) measure(drive driver, rounds, n int) (best [2]cost, err error) {
	if p.large {
		n /= 10
	}
	var process [2]*process
	var q [2]*request
	for i, name := range []string{p.ours, p.bare} {
		q[i] = p.request(i == 1)
		if process[i], err = start(name); err != nil {
			return best, err
		}
		defer process[i].stop()
		if err := check(process[i].addr, q[i]); err != nil {
			return best, fmt.Errorf("server %s: %w", name, err)
		}
		if _, err := drive(process[i].addr, q[i], max(n/10, clients), clients); err != nil { // warm
			return best, err
		}
	}
	for round := range rounds {
		for i := range process {
			c, err := turn(process[i], q[i], drive, n)
			if err != nil {
				return best, err
			}
			if round == 0 {
				best[i] = c
				continue
			}
			b := &best[i]
			*b = cost{min(b.cpu, c.cpu), min(b.mallocs, c.mallocs), min(b.bytes, c.bytes), max(b.rate, c.rate), c.peak}
		}
	}
	return best, nil
}

func turn(p *process, q *request, drive driver, n int) (cost, error) {
	before, err := p.used()
	if err != nil {
		return cost{}, err
	}
	rate, err := drive(p.addr, q, n, clients)
	if err != nil {
		return cost{}, err
	}
	after, err := p.used()
	if err != nil {
		return cost{}, err
	}
	each := 1 / float64(n)
	return cost{
		cpu:     float64(after.Processor-before.Processor) / 1e3 * each,
		mallocs: float64(after.Mallocs-before.Mallocs) * each,
		bytes:   float64(after.Bytes-before.Bytes) * each,
		rate:    rate,
		peak:    after.Peak,
	}, nil
}
