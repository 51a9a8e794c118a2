package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu"
)

// Profile is where the time of a request goes. Its JSON form is described in
// docs/bench.md.
type Profile struct {
	Machine  Machine       `json:"machine"`
	Requests int64         `json:"requests"`
	Request  time.Duration `json:"request_ns"`  // mean, with the cost of profiling
	Profiled time.Duration `json:"profiled_ns"` // what all steps of a request take
	// Processor is what the process computed for a request, in all threads; 0 if that is not known. Where it is much less than the
	// request took, other work had the processors, and all times are too long.
	Processor time.Duration `json:"processor_ns"`
	Phases    []Share       `json:"phases,omitempty"` // of a model that learns: forward, backward and update; Op names them
	Operators []Share       `json:"operators"`        // by kind of operator, what takes longest first
	Nodes     []Share       `json:"nodes"`            // every step, what takes longest first
}

// Share is the part of a step, or of all steps with the same operator, in a
// request. All figures are those of one request, on average.
type Share struct {
	Op       string `json:"op"`                 // the operator's kind, or "copy in", "copy out" and the like
	Function string `json:"function,omitempty"` // what it computes, where the kind does not say it
	Name     string `json:"name,omitempty"`     // of a node or of a stream; not in Operators
	Program  int    `json:"program"`            // the program's index; in Operators, of the first step
	Step     int    `json:"step"`               // index into the program's plan; in Operators, of the first step
	Steps    int    `json:"steps"`              // how many steps these are

	Calls float64       `json:"calls"`
	Time  time.Duration `json:"time_ns"`
	Share float64       `json:"share"` // of the time of all steps

	FLOPs  float64 `json:"flops"` // additions and multiplications of products and convolutions
	GFLOPs float64 `json:"gflops_per_second"`
	Peak   float64 `json:"peak_fraction"` // of Machine.GFLOPs
	Bytes  float64 `json:"bytes"`         // that have to be read and written
	GBytes float64 `json:"gbytes_per_second"`
	Memory float64 `json:"memory_fraction"` // of the time, that reading Bytes from where they lie takes; 0 if that is not known

	total time.Duration
	least float64 // nanoseconds that reading Bytes takes
}

// NewProfile runs the target and returns where the time goes. Only the back
// end "cpu" can tell.
func NewProfile(ctx context.Context, t *Target, during, warmup time.Duration) (p *Profile, err error) {
	d, err := t.openRunner(ctx, Config{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1})
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := d.close(); err == nil {
			err = e
		}
	}()
	engine, ok := d.runner.core.Session(0).Engine().(*cpu.Engine)
	if !ok {
		return nil, fmt.Errorf("--profile: the back end %q does not tell where its time goes", t.Backend)
	}
	if _, err := drive(d.clients, 1, max(warmup, time.Nanosecond)); err != nil {
		return nil, err
	}
	engine.EnableProfile(true)
	processor := processorTime()
	ran, err := drive(d.clients, 1, during)
	processor = processorTime() - processor
	if err != nil {
		return nil, err
	}
	steps := engine.Profile()
	engine.EnableProfile(false)
	p = &Profile{Machine: MeasureMachine(t.Threads), Requests: ran.latency.Count(), Request: ran.latency.Mean()}
	p.Processor = processor / time.Duration(max(1, p.Requests))
	p.fill(steps)
	return p, nil
}

// fill divides what the engine counted among requests, nodes and operators.
func (p *Profile) fill(steps []cpu.NodeProfile) {
	var all time.Duration
	for _, s := range steps {
		all += s.Total
	}
	n := float64(max(1, p.Requests))
	p.Profiled = time.Duration(float64(all) / n)
	p.Operators, p.Nodes = []Share{}, []Share{}
	byOp, phaseOf := map[[2]string]int{}, phases(steps)
	byPhase := map[string]*Share{}
	for _, name := range []string{Forward, Backward, Update} {
		byPhase[name] = &Share{Op: name}
	}
	for _, s := range steps {
		node := Share{Op: s.Op, Function: s.Function, Name: s.Name, Program: s.Program, Step: s.Step, Steps: 1,
			Calls: float64(s.Calls) / n, FLOPs: s.FLOPs * float64(s.Calls) / n, Bytes: float64(s.Bytes) * float64(s.Calls) / n, total: s.Total}
		if s.Kind != cpu.Compute {
			node.Op = s.Kind.String()
		}
		if rate := p.Machine.readRate(s.Size); rate > 0 {
			node.least = node.Bytes / rate
		}
		p.Nodes = append(p.Nodes, node)
		key := [2]string{node.Op, node.Function}
		i, ok := byOp[key]
		if !ok {
			i = len(p.Operators)
			byOp[key] = i
			p.Operators = append(p.Operators, Share{Op: node.Op, Function: node.Function, Program: s.Program, Step: s.Step})
		}
		p.Operators[i].add(&node)
		if phase := byPhase[phaseOf[s.Graph]]; phase != nil {
			phase.add(&node)
		}
	}
	if len(phaseOf) > 0 {
		p.Phases = []Share{*byPhase[Forward], *byPhase[Backward], *byPhase[Update]}
	}
	for i := range p.Phases {
		p.Phases[i].rates(n, all, &p.Machine)
	}
	for _, list := range [][]Share{p.Operators, p.Nodes} {
		for i := range list {
			list[i].rates(n, all, &p.Machine)
		}
		slices.SortStableFunc(list, func(a, b Share) int { return cmp.Compare(b.total, a.total) })
	}
}

// The phases of a step of a model that learns.
const (
	Forward  = "forward"
	Backward = "backward"
	Update   = "update"
)

// phases returns the phase of each graph of a model that learns, by name; nothing of another model. Update graphs have steps of an
// optimizer, and in backward graphs are nodes that autodiff has named.
func phases(steps []cpu.NodeProfile) map[string]string {
	of, learns := map[string]string{}, false
	for _, s := range steps {
		switch {
		case s.Graph == "":
		case s.Op == "Update":
			of[s.Graph], learns = Update, true
		case of[s.Graph] == Update:
		case strings.HasPrefix(s.Name, "grad/"):
			of[s.Graph] = Backward
		case of[s.Graph] == "":
			of[s.Graph] = Forward
		}
	}
	if !learns {
		return nil
	}
	return of
}

// add adds what another share counts.
func (s *Share) add(o *Share) {
	s.Steps++
	s.Calls += o.Calls
	s.FLOPs += o.FLOPs
	s.Bytes += o.Bytes
	s.least += o.least
	s.total += o.total
}

// rates fills in what follows from a share's time in n requests.
func (s *Share) rates(n float64, all time.Duration, m *Machine) {
	s.Time = time.Duration(float64(s.total) / n)
	if all > 0 {
		s.Share = float64(s.total) / float64(all)
	}
	if each := float64(s.total) / n; each > 0 { // operations a nanosecond are 10⁹ a second
		s.GFLOPs = s.FLOPs / each
		s.GBytes = s.Bytes / each
		s.Memory = s.least / each
	}
	if m.GFLOPs > 0 {
		s.Peak = s.GFLOPs / m.GFLOPs
	}
}
