package popart

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/popefgen/popefgen/internal/printable"
)

// text returns the reports for people, with every tensor's place if storage.
func (r *Report) text(storage bool) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Session of %s, back end %s\n", r.Graph.Kind, r.Graph.Backend)
	r.Graph.text(w, storage)
	r.Execution.text(w)
	w.Flush() //nolint:errcheck // a strings.Builder never fails
	return b.String()
}

func (r *GraphReport) text(w io.Writer, storage bool) {
	fmt.Fprint(w, "\nGraphs\n  phase\tgraphs\tnodes\tFLOPs\n")
	for _, p := range r.Phases {
		fmt.Fprintf(w, "  %s\t%d\t%d\t%.0f\n", p.Phase, p.Graphs, p.Nodes, p.FLOPs)
	}
	fmt.Fprint(w, "\nOperators\n")
	for _, o := range r.Operators {
		fmt.Fprintf(w, "  %s\t%d\n", o.Type, o.Nodes)
	}
	m := r.Memory
	if m == nil {
		return
	}
	fmt.Fprintf(w, "\nMemory in bytes, %d threads\n  programs' tensors\t%d\n  persistent tensors\t%d\n  packed copies\t%d\n  constants\t%d\n",
		m.Threads, m.ArenaBytes, m.PersistentBytes, m.PackedBytes, m.ConstantBytes)
	fmt.Fprint(w, "\nPrograms\n  index\tname\tsteps\tbytes\n")
	for _, p := range m.Programs {
		fmt.Fprintf(w, "  %d\t%s\t%d\t%d\n", p.Index, printable.Line(p.Name), p.Steps, p.ArenaBytes)
	}
	if !storage {
		return
	}
	fmt.Fprint(w, "\nTensors\n  program\tname\toffset\tbytes\tsteps\n")
	for _, t := range m.Persistent {
		fmt.Fprintf(w, "  all\t%s\t–\t%d\t–\n", printable.Line(t.Name), t.Bytes)
	}
	for _, p := range m.Programs {
		for _, t := range p.Tensors {
			fmt.Fprintf(w, "  %d\t%s\t%d\t%d\t%d–%d\n", p.Index, printable.Line(t.Name), t.Offset, t.Bytes, t.First, t.Last)
		}
	}
}

func (r *ExecutionReport) text(w io.Writer) {
	if r.ProfilerMode == "NONE" {
		fmt.Fprint(w, "\nExecution profiling not enabled\n")
		return
	}
	fmt.Fprintf(w, "\nExecution of %d runs in %v; all steps took %v\n", r.Runs, r.RunTime.Round(time.Microsecond), r.Profiled.Round(time.Microsecond))
	for _, part := range []struct {
		what string
		all  []Spent
	}{{"phase", r.Phases}, {"program", r.Programs}, {"operator", r.Operators}} {
		fmt.Fprintf(w, "  %s\tcalls\ttime\tshare\n", part.what)
		for _, s := range part.all {
			fmt.Fprintf(w, "  %s\t%d\t%v\t%.1f %%\n", printable.Line(s.Name), s.Calls, s.Time.Round(time.Microsecond), 100*s.Share)
		}
	}
	if len(r.Steps) == 0 {
		return
	}
	fmt.Fprint(w, "  program\tstep\toperator\tname\tcalls\ttime\n")
	for _, s := range r.Steps {
		fmt.Fprintf(w, "  %d\t%d\t%s\t%s\t%d\t%v\n", s.Program, s.Step, s.Do, printable.Line(s.Name), s.Calls, s.Time.Round(time.Microsecond))
	}
}
