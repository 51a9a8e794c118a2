package popart

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
)

// The options that make and shape reports, with Poplar's names.
const (
	instrument         = "debug.instrument"   // of EngineOptions: "true" measures every step of a program
	showExecutionSteps = "showExecutionSteps" // of ReportOptions: "true" lists every step in the execution report and in the summary
	showVarStorage     = "showVarStorage"     // of ReportOptions: "true" lists in the summary where every tensor lies
)

// ReportFormat is how a report is written.
type ReportFormat uint8

// The formats: both have the same tree.
const (
	JSON ReportFormat = iota
	CBOR              // RFC 8949
)

// ReportOption changes what fetching a report does.
type ReportOption func(*bool)

// KeepProfile lets the next report have the executions of this one too.
func KeepProfile() ReportOption { return func(keep *bool) { *keep = true } }

// GraphReport is what is known of a prepared session before it runs.
type GraphReport struct {
	Kind    string `json:"kind"` // inference or training
	Backend string `json:"backend"`
	// Phases are the parts of a step, in order: forward, and of training backward and update.
	Phases    []GraphPhase       `json:"phases"`
	Operators []GraphOperator    `json:"operators"`        // of all graphs, by type
	Passes    []graph.PassReport `json:"passes"`           // what each pass of the compilation did
	Memory    *MemoryMap         `json:"memory,omitempty"` // of the CPU alone
}

// GraphPhase sums up the graphs of a phase, each as if it ran once.
type GraphPhase struct {
	Phase  dump.Phase `json:"phase"`
	Graphs int        `json:"graphs"`
	Nodes  int        `json:"nodes"`
	FLOPs  float64    `json:"flops"` // additions and multiplications of sums of products
}

// GraphOperator counts the nodes of one type.
type GraphOperator struct {
	Type  string `json:"type"`
	Nodes int    `json:"nodes"`
}

// ExecutionReport is what the steps since the last report took. Without the engine option debug.instrument = true, and on back ends that measure nothing, ProfilerMode is "NONE" and there is nothing else.
type ExecutionReport struct {
	ProfilerMode string          `json:"profilerMode"`          // "STEPS": every step of programs was measured
	Runs         int             `json:"runs,omitempty"`        // calls of Run that succeeded
	RunTime      time.Duration   `json:"run_ns,omitempty"`      // that they took together
	Profiled     time.Duration   `json:"profiled_ns,omitempty"` // that the steps of all programs took together, loading and saving weights included
	Phases       []Spent         `json:"phases,omitempty"`      // forward, backward, update, and "copies" to and from the host
	Programs     []Spent         `json:"programs,omitempty"`    // by index and name
	Operators    []Spent         `json:"operators,omitempty"`   // by type, what takes longest first
	Steps        []ExecutionStep `json:"steps,omitempty"`       // with the report option showExecutionSteps = true, in order
}

// Spent is the time of some steps.
type Spent struct {
	Name  string        `json:"name"`
	Calls int64         `json:"calls"`
	Time  time.Duration `json:"time_ns"`
	Share float64       `json:"share"` // of ExecutionReport.Profiled
}

// ExecutionStep is a step of a program.
type ExecutionStep struct {
	Program int           `json:"program"`
	Step    int           `json:"step"`
	Do      string        `json:"do"` // the operator, or "copy in" and the like
	Name    string        `json:"name"`
	Calls   int64         `json:"calls"`
	Time    time.Duration `json:"time_ns"`
	FLOPs   float64       `json:"flops"` // of a call
	Bytes   int64         `json:"bytes"` // that a call reads and writes
}

// Report is both reports.
type Report struct {
	Graph     GraphReport     `json:"graph"`
	Execution ExecutionReport `json:"execution"`
}

// Report returns the graph report and the execution report, whose next one then begins anew unless KeepProfile. Before PrepareDevice the error wraps ErrNotPrepared.
func (s *session) Report(options ...ReportOption) (r *Report, err error) {
	err = s.locked("report", func() error {
		r, err = s.report(options)
		return err
	})
	return r, err
}

// GraphReport returns a [GraphReport]. Before PrepareDevice the error wraps ErrNotPrepared.
func (s *session) GraphReport(format ReportFormat) (text []byte, err error) {
	err = s.locked("graph report", func() error {
		r, err := s.graphReport()
		if err != nil {
			return err
		}
		text, err = format.encode(r)
		return err
	})
	return text, err
}

// ExecutionReport returns an [ExecutionReport] of the steps since the last one was fetched, by whatever call; it begins anew unless KeepProfile. Before PrepareDevice the error wraps ErrNotPrepared.
func (s *session) ExecutionReport(format ReportFormat, options ...ReportOption) (text []byte, err error) {
	err = s.locked("execution report", func() error {
		r, err := s.report(options)
		if err != nil {
			return err
		}
		text, err = format.encode(r.Execution)
		return err
	})
	return text, err
}

// SummaryReport returns both reports as text for people; the execution report begins anew unless KeepProfile. Before PrepareDevice the error wraps ErrNotPrepared.
func (s *session) SummaryReport(options ...ReportOption) (text string, err error) {
	err = s.locked("summary report", func() error {
		r, err := s.report(options)
		if err != nil {
			return err
		}
		text = r.text(s.options.flag(s.options.ReportOptions, showVarStorage))
		return nil
	})
	return text, err
}

// encode writes a report.
func (f ReportFormat) encode(r any) ([]byte, error) {
	text, err := json.Marshal(r)
	switch {
	case err != nil || f == JSON:
		return text, err
	case f != CBOR:
		return nil, wrong(ErrOption, "report format %d, want JSON or CBOR", f)
	}
	return cborOfJSON(text)
}

// instrumented returns the engine if it measures its steps.
func (s *session) instrumented() *cpu.Engine {
	e, _ := s.run.Engine().(*cpu.Engine)
	if !s.options.flag(s.options.EngineOptions, instrument) {
		return nil
	}
	return e
}

// flag reports whether an option is "true".
func (o *Options) flag(of map[string]string, name string) bool {
	on, _ := strconv.ParseBool(of[name]) // check has seen it
	return on
}

// report makes both reports.
func (s *session) report(options []ReportOption) (*Report, error) {
	keep := false
	for _, o := range options {
		if o != nil {
			o(&keep)
		}
	}
	g, err := s.graphReport()
	if err != nil {
		return nil, err
	}
	r := &Report{Graph: *g, Execution: ExecutionReport{ProfilerMode: "NONE"}}
	e := s.instrumented()
	if e == nil {
		return r, nil
	}
	r.Execution = s.executionReport(e.Profile(), e.Plan())
	if !keep {
		e.EnableProfile(true)
		s.runs, s.runTime = 0, 0
	}
	return r, nil
}

// described returns the session's executable, decoded.
func (s *session) described() (*graph.Executable, error) {
	if s.run == nil {
		return nil, fail(ClassRuntime, "report", ErrNotPrepared)
	}
	return executableOf(context.Background(), s.model)
}

func (s *session) graphReport() (*GraphReport, error) {
	exe, err := s.described()
	if err != nil {
		return nil, err
	}
	r := &GraphReport{Kind: s.kind(), Backend: s.device.Info().Backend, Phases: []GraphPhase{}, Operators: []GraphOperator{}, Passes: exe.Passes}
	byOp, phases := map[string]int{}, dump.Phases(exe)
	for _, name := range []dump.Phase{dump.Forward, dump.Backward, dump.Update} {
		p := GraphPhase{Phase: name}
		for i := range exe.Graphs {
			if phases[i] != name {
				continue
			}
			p.Graphs++
			p.Nodes += len(exe.Graphs[i].Nodes)
			for k := range exe.Graphs[i].Nodes {
				n := &exe.Graphs[i].Nodes[k]
				byOp[n.Op.Kind()]++
				p.FLOPs += cpu.FLOPs(n.Op, typesOf(exe, n.Inputs), typesOf(exe, n.Outputs))
			}
		}
		if p.Graphs > 0 {
			r.Phases = append(r.Phases, p)
		}
	}
	for op, n := range byOp {
		r.Operators = append(r.Operators, GraphOperator{op, n})
	}
	slices.SortFunc(r.Operators, func(a, b GraphOperator) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Type, b.Type))
	})
	if e, ok := s.run.Engine().(*cpu.Engine); ok {
		m := memoryMap(e.Plan())
		r.Memory = &m
	}
	return r, nil
}

func typesOf(exe *graph.Executable, ids []graph.TensorID) []graph.TensorType {
	all := make([]graph.TensorType, len(ids))
	for i, t := range ids {
		if t != graph.None {
			all[i] = exe.Tensors[t].Type
		}
	}
	return all
}

// copies is what the execution report calls the steps that are of no graph.
const copies = "copies"

// executionReport sums up what an engine has measured.
func (s *session) executionReport(steps []cpu.NodeProfile, plan *cpu.Plan) ExecutionReport {
	r := ExecutionReport{ProfilerMode: "STEPS", Runs: s.runs, RunTime: s.runTime}
	phases, programs, operators := newSpending(), newSpending(), newSpending()
	for _, name := range []dump.Phase{dump.Forward, dump.Backward, dump.Update} {
		phases.of(string(name))
	}
	phases.of(copies)
	for i := range steps {
		n := &steps[i]
		r.Profiled += n.Total
		phase := copies
		if n.Graph != "" {
			phase = string(s.phases[n.Graph])
		}
		phases.add(phase, n)
		p := slices.IndexFunc(plan.Programs, func(p cpu.Program) bool { return p.Index == n.Program })
		programs.add(fmt.Sprintf("%d %s", n.Program, plan.Programs[p].Name), n)
		do := n.Op
		if n.Kind != cpu.Compute {
			do = n.Kind.String()
		}
		operators.add(do, n)
		if s.options.flag(s.options.ReportOptions, showExecutionSteps) {
			r.Steps = append(r.Steps, ExecutionStep{n.Program, n.Step, do, n.Name, n.Calls, n.Total, n.FLOPs, n.Bytes})
		}
	}
	r.Phases, r.Programs, r.Operators = phases.shares(r.Profiled), programs.shares(r.Profiled), operators.shares(r.Profiled)
	slices.SortStableFunc(r.Operators, func(a, b Spent) int { return cmp.Compare(b.Time, a.Time) })
	return r
}

// spending adds times up by name, in the order in which the names come.
type spending struct {
	all []Spent
	at  map[string]int
}

func newSpending() *spending { return &spending{at: map[string]int{}} }

func (s *spending) of(name string) *Spent {
	i, ok := s.at[name]
	if !ok {
		i = len(s.all)
		s.at[name] = i
		s.all = append(s.all, Spent{Name: name})
	}
	return &s.all[i]
}

func (s *spending) add(name string, n *cpu.NodeProfile) {
	of := s.of(name)
	of.Calls += n.Calls
	of.Time += n.Total
}

// shares returns those that had calls, with their parts of a time.
func (s *spending) shares(whole time.Duration) []Spent {
	var out []Spent
	for _, of := range s.all {
		if of.Calls == 0 {
			continue
		}
		if whole > 0 {
			of.Share = float64(of.Time) / float64(whole)
		}
		out = append(out, of)
	}
	return out
}
