package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/measure"
)

// goal is a bound and what was measured against it.
type goal struct {
	what   string
	bound  float64
	floor  bool // at least bound, else at most
	values []valued
	mean   bool // the geometric mean counts, else every value
}

// valued is a measured number and what it was measured on.
type valued struct {
	of string
	v  float64
}

func (g *goal) meets(v float64) bool {
	if g.floor {
		return v >= g.bound
	}
	return v <= g.bound
}

// decisive returns the value that decides: the mean, or the worst.
func (g *goal) decisive() valued {
	if g.mean {
		var all []float64
		for _, v := range g.values {
			all = append(all, v.v)
		}
		return valued{fmt.Sprintf("mean of %d", len(all)), measure.GeometricMean(all)}
	}
	return slices.MaxFunc(g.values, func(a, b valued) int {
		if (a.v < b.v) == g.floor {
			return 1
		}
		return -1
	})
}

// row returns the goal's cells.
func (g *goal) row() []string {
	sign := "≤"
	if g.floor {
		sign = "≥"
	}
	g.values = slices.DeleteFunc(g.values, func(v valued) bool { return math.IsNaN(v.v) })
	cells := []string{g.what, fmt.Sprintf("%s %g", sign, g.bound)}
	if len(g.values) == 0 {
		return append(cells, report.Missing, report.Missing, report.Missing)
	}
	met := 0
	for _, v := range g.values {
		if g.meets(v.v) {
			met++
		}
	}
	d := g.decisive()
	verdict := "missed"
	if g.meets(d.v) {
		verdict = "met"
	}
	return append(cells, fmt.Sprintf("%s (%s)", report.Ratio(d.v), d.of), fmt.Sprintf("%d of %d", met, len(g.values)), verdict)
}

// goalTable compares what was measured with the project's goals.
func goalTable(r *results) string {
	t := report.NewTable("goal", "bound", "measured (worst, or mean)", "met by", "")
	for _, g := range goals(r) {
		t.Row(g.row()...)
	}
	return t.String()
}

func goals(r *results) []*goal {
	byGroup := func(groups []group, f func(*operatorResult) float64) []valued {
		var v []valued
		for _, o := range r.operators {
			if slices.Contains(groups, o.group) {
				v = append(v, valued{o.name, f(o)})
			}
		}
		return v
	}
	peak := func(o *operatorResult) float64 { return o.ofPeak(ours) }
	one := func(o *operatorResult) float64 { return o.ratio(1) }
	var speedups []valued
	for _, o := range r.operators {
		if o.group != quantised && o.median(1, ours) >= 50e3 {
			speedups = append(speedups, valued{o.name, o.speedup()})
		}
	}
	path := func(of int) []valued {
		return []valued{{"median", r.requests[inline].Median() / r.requests[of].Median()}}
	}
	var loops []valued
	for _, t := range full(r.tiles) {
		loops = append(loops, valued{fmt.Sprintf("%s, %d×%d", t.path, t.rows, t.cols), t.ofPeak})
	}
	all := []*goal{
		{what: "inner loops of the product, AVX-512 and AVX2, of peak", bound: 0.97, floor: true, values: loops},
		{what: "product with constant weights, M ≥ 4, of peak, 1 thread", bound: 0.92, floor: true, values: byGroup([]group{product}, peak)},
		{what: "3×3, 1×1 and stem convolutions, of peak, 1 thread", bound: 0.92, floor: true, values: byGroup([]group{dense}, peak)},
		{what: "the same, 7×7 maps", bound: 0.88, floor: true, values: byGroup([]group{small}, peak)},
		{what: "depthwise, stride 1, of peak, 1 thread", bound: 0.85, floor: true, values: byGroup([]group{depthwise}, peak)},
		{what: "depthwise, stride 2, of peak, 1 thread", bound: 0.5, floor: true, values: byGroup([]group{strided}, peak)},
		{what: "matrix × vector, LSTM and GRU: of the bandwidth of the level of memory", bound: 0.9, floor: true,
			values: byGroup([]group{vector, recurrent}, (*operatorResult).ofMemory)},
		{what: "one thread / two threads, operators of 50 µs and more", bound: 1.8, floor: true, values: speedups},
		{what: "dense convolution and product / ONNX Runtime, 1 thread", bound: 1.05, values: byGroup([]group{product, dense, small, vector}, one)},
		{what: "depthwise / ONNX Runtime, 1 thread", bound: 0.7, values: byGroup([]group{depthwise, strided}, one)},
		{what: "LSTM, GRU / ONNX Runtime, 1 thread", bound: 1.05, values: byGroup([]group{recurrent}, one)},
		{what: "exp, tanh, sigmoid, erf, softmax / ONNX Runtime, 1 thread", bound: 1, values: byGroup([]group{pointwise}, one)},
		{what: "layer norm / ONNX Runtime, 1 thread", bound: 0.5, values: byGroup([]group{layerNorm}, one)},
		{what: "request with an empty program, inline / ONNX Runtime's empty session", bound: 0.02, values: path(ortEmpty)},
		{what: "request with an empty program, inline / maps and futures", bound: 0.02, values: path(mapFresh)},
		{what: "allocations of a request", bound: 0, values: []valued{{"inline", r.requests[inline].allocations}, {"submitted", r.requests[submitted].allocations}}},
		{what: "ring round trip, spinning / rigtorp's queue, in C", bound: 1.1, values: []valued{{"best", r.requests[ringSpinning].Best() / r.requests[queuesC].Best()}}},
		{what: "ring round trip, spinning / channel round trip", bound: 0.6, values: []valued{{"best", r.requests[ringSpinning].Best() / r.requests[channel].Best()}}},
	}
	return append(all, modelGoals(r)...)
}

func modelGoals(r *results) []*goal {
	var all []*goal
	small := &goal{what: "public models under 100 µs in ONNX Runtime: latency / ONNX Runtime", bound: 0.7}
	worst := &goal{what: "no public model above, 1 or 2 threads", bound: 1.3}
	go1 := &goal{what: "public models: latency / GoMLX, where it runs", bound: 0.05}
	for threads := 1; threads <= 2; threads++ {
		g := &goal{what: fmt.Sprintf("public models: latency / ONNX Runtime, geometric mean, threads: %d", threads), bound: 1, mean: true}
		for _, m := range r.models {
			v := valued{fmt.Sprintf("%s, %d", m.Name, threads), m.ratio(threads, ort)}
			g.values, worst.values = append(g.values, v), append(worst.values, v)
			if m.median(threads, ort) < 100e3 {
				small.values = append(small.values, v)
			}
			go1.values = append(go1.values, valued{v.of, m.ratio(threads, mlx)})
		}
		all = append(all, g)
	}
	varying := &goal{what: "BERT-type models, 4 to 128 tokens: family / ONNX Runtime with dynamic axes", bound: 0.6}
	for _, l := range r.lengths {
		for threads := 1; threads <= 2; threads++ {
			varying.values = append(varying.values, valued{fmt.Sprintf("%s, %d", l.model, threads), l.ratio(threads)})
		}
	}
	suppressing := &goal{what: "detectors with their suppression inside / ONNX Runtime", bound: 0.8}
	for _, d := range r.detectors {
		for threads := 1; threads <= 2; threads++ {
			suppressing.values = append(suppressing.values, valued{fmt.Sprintf("%s, %d", d.name, threads), d.ratio(threads)})
		}
	}
	memory := &goal{what: "peak resident memory / ONNX Runtime", bound: 0.8}
	answer := &goal{what: "process start to first answer / ONNX Runtime", bound: 0.5}
	for _, p := range r.processes {
		memory.values = append(memory.values, valued{p.name, p.memoryRatio()})
		answer.values = append(answer.values, valued{p.name, p.answerRatio()})
	}
	return append(all, worst, small, go1, varying, suppressing, memory, answer)
}
