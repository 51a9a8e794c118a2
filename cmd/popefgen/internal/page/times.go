package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/bench"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// ErrProfile marks a profile that can't be shown with a model.
var ErrProfile = errors.New("not a profile of this model")

// Bench is what `popefgen bench --profile --json` prints, as far as a page
// shows it.
type Bench struct {
	Model   string         `json:"model"`
	Profile *bench.Profile `json:"profile"`
}

// ReadBench reads what `popefgen bench --profile --json` printed. Errors wrap
// [ErrProfile].
func ReadBench(r io.Reader) (*Bench, error) {
	var b Bench
	if err := json.NewDecoder(r).Decode(&b); err != nil {
		return nil, fmt.Errorf("%w: %w; popefgen bench MODEL --profile --json prints one", ErrProfile, err)
	}
	if b.Profile == nil {
		return nil, fmt.Errorf("%w: there is no field \"profile\"; popefgen bench MODEL --profile --json prints one", ErrProfile)
	}
	return &b, nil
}

// share is a row of a table of times.
type share struct {
	What, Name, Time, Part string
	Family                 string
	Bar                    float64 // 0 to 100
	Steps                  int
	GFLOPs, Peak, GBytes   string
	Box                    int // or -1
}

// times is where the time of a request goes.
type times struct {
	Machine, Request string
	Operators, Nodes []share
	Left             int // nodes that are not listed
}

// maxTimes nodes are listed.
const maxTimes = 40

// timesOf joins a profile with the plan that it is of, and marks boxes with
// the time that they take. d is nil if the graph isn't drawn.
func timesOf(b *Bench, plan *cpu.Plan, d *drawing, boxes map[node]*box) (*times, error) {
	p := b.Profile
	t := &times{Machine: fmt.Sprintf("%s, threads: %d; at most %.4g GFLOP/s, copies %.3g GB/s", printable(p.Machine.Instructions), p.Machine.Threads, p.Machine.GFLOPs, p.Machine.GBytes),
		Request: fmt.Sprintf("%d requests of %s each, %s of it in steps", p.Requests, short(p.Request), short(p.Profiled))}
	steps := map[int][]cpu.Step{}
	for i := range plan.Programs {
		steps[plan.Programs[i].Index] = plan.Programs[i].Steps
	}
	most := func(list []bench.Share) (m float64) {
		for i := range list {
			m = max(m, list[i].Share)
		}
		return max(m, 1e-9)
	}
	row := func(s *bench.Share, most float64) share {
		r := share{What: s.Op, Name: s.Name, Time: short(s.Time), Part: fmt.Sprintf("%.1f %%", 100*s.Share), Bar: min(100, max(0, 100*s.Share/most)), Steps: s.Steps, Box: -1,
			Family: familyOf[s.Op], GBytes: rate(s.GBytes, "%.3g"), GFLOPs: rate(s.GFLOPs, "%.4g"), Peak: rate(100*s.Peak, "%.1f %%")}
		if s.Function != "" {
			r.What += " " + s.Function
		}
		if r.Family == "" {
			r.Family = "other"
		}
		return r
	}
	for i := range p.Operators {
		t.Operators = append(t.Operators, row(&p.Operators[i], most(p.Operators)))
	}
	for i := range p.Nodes {
		s := &p.Nodes[i]
		r := row(s, most(p.Nodes))
		all := steps[s.Program]
		if s.Step < 0 || s.Step >= len(all) {
			return nil, fmt.Errorf("%w: it has a step %d of program %d, the model has %d steps there", ErrProfile, s.Step, s.Program, len(all))
		}
		of := &all[s.Step]
		if op := operatorOf(of); op != s.Op || string([]rune(of.Name)) != s.Name { // JSON has no invalid UTF-8
			return nil, fmt.Errorf("%w: its step %d of program %d is %s %q, the model's %s %q; measure this model with popefgen bench --profile --json", ErrProfile, s.Step, s.Program, s.Op, s.Name, op, of.Name)
		}
		if of.Op != "" && d != nil {
			if x := boxes[node{of.Graph, of.Source}]; x != nil {
				r.Box, r.Family = x.ID, x.Family
				for ; x != nil; x = x.parent {
					x.heat += s.Share
					x.Detail.Time += int64(s.Time)
					x.Detail.Share += s.Share
				}
			}
		}
		if len(t.Nodes) < maxTimes {
			t.Nodes = append(t.Nodes, r)
		}
	}
	t.Left = len(p.Nodes) - len(t.Nodes)
	return t, nil
}

// operatorOf is what a profile calls a step's operator.
func operatorOf(s *cpu.Step) string {
	if s.Kind != cpu.Compute {
		return s.Kind.String()
	}
	return s.Op
}

func rate(v float64, format string) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf(format, v)
}

// short rounds a time to four digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 10000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// nodesOf finds the boxes of a drawing by their nodes; d may be nil.
func nodesOf(d *drawing) map[node]*box {
	m := map[node]*box{}
	if d != nil {
		for _, b := range d.boxes {
			if b.node >= 0 {
				m[node{b.graph, b.node}] = b
			}
		}
		for n, b := range d.absorbed {
			m[n] = b
		}
	}
	return m
}

func operators(e *graph.Executable) (n int) {
	for i := range e.Graphs {
		n += len(e.Graphs[i].Nodes)
	}
	return n
}
