package bench

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
)

// Report is what bench prints; its JSON form is described in docs/bench.md.
type Report struct {
	Model        string        `json:"model"`
	Backend      string        `json:"backend"`
	Threads      int           `json:"threads"`
	Sizes        []Size        `json:"sizes,omitempty"` // of a family, which has no other measurements
	Opening      Opening       `json:"opening"`
	Memory       Memory        `json:"memory"`
	Measurements []Measurement `json:"measurements,omitempty"`
	Comparisons  []Comparison  `json:"comparisons,omitempty"`
	Profile      *Profile      `json:"profile,omitempty"`
}

// Print writes the report for people, of a profile the top rows of each table.
func (r *Report) Print(w io.Writer, top int) error {
	threads := "1 thread"
	if r.Threads != 1 {
		threads = fmt.Sprintf("%d threads", r.Threads)
	}
	fmt.Fprintf(w, "%s on %s, %s\n\n", r.Model, r.Backend, threads)
	if r.Sizes != nil {
		return printSizes(w, r.Sizes)
	}
	if err := printMeasurements(w, r.Measurements); err != nil {
		return err
	}
	printComparisons(w, r.Comparisons)
	if err := printOpening(w, &r.Opening); err != nil {
		return err
	}
	if err := printMemory(w, &r.Memory); err != nil {
		return err
	}
	if r.Profile == nil {
		return nil
	}
	return printProfile(w, r.Profile, top)
}

// printComparisons prints a line for each option that was compared.
func printComparisons(w io.Writer, all []Comparison) {
	for i, c := range all {
		if i == 0 {
			fmt.Fprintln(w, "COMPARED in pairs: time of a request with the option / without it")
		}
		fmt.Fprintf(w, "%s  %.3f (95%%: %.3f to %.3f, %d pairs)\n", c.Option, c.Ratio, c.Low, c.High, c.Pairs)
	}
	if len(all) > 0 {
		fmt.Fprintln(w)
	}
}

// printMeasurements prints a column for each mode.
func printMeasurements(w io.Writer, all []Measurement) error {
	head := []string{"MODE"}
	for _, m := range all {
		head = append(head, string(m.Mode))
	}
	t := table.New(head...)
	line := func(what string, cell func(m *Measurement) string) {
		row := []any{what}
		for i := range all {
			row = append(row, cell(&all[i]))
		}
		t.Row(row...)
	}
	number := func(what string, n func(m *Measurement) int) {
		line(what, func(m *Measurement) string { return strconv.Itoa(n(m)) })
	}
	duration := func(what string, d func(m *Measurement) time.Duration) {
		line(what, func(m *Measurement) string { return short(d(m)) })
	}
	number("clients", func(m *Measurement) int { return m.Clients })
	number("requests in flight, each", func(m *Measurement) int { return m.InFlight })
	line("thread-safe", func(m *Measurement) string {
		if m.ThreadSafe {
			return "yes"
		}
		return "-"
	})
	number("replicas", func(m *Measurement) int { return m.Replicas })
	line("samples in a request", func(m *Measurement) string { return table.OrDash(m.Samples) })
	line("requests", func(m *Measurement) string { return humanize.Comma(m.Requests) })
	duration("mean", func(m *Measurement) time.Duration { return m.Mean })
	duration("fastest", func(m *Measurement) time.Duration { return m.Min })
	duration("median", func(m *Measurement) time.Duration { return m.P50 })
	duration("90th percentile", func(m *Measurement) time.Duration { return m.P90 })
	duration("99th percentile", func(m *Measurement) time.Duration { return m.P99 })
	duration("99.9th percentile", func(m *Measurement) time.Duration { return m.P999 })
	duration("slowest", func(m *Measurement) time.Duration { return m.Max })
	line("requests a second", func(m *Measurement) string { return count(m.RequestsPerSecond) })
	line("samples a second", func(m *Measurement) string {
		if m.Samples == 0 {
			return "-"
		}
		return count(m.SamplesPerSecond)
	})
	line("allocations a request", func(m *Measurement) string { return fmt.Sprintf("%.3f", m.Allocations) })
	line("allocated bytes a request", func(m *Measurement) string { return fmt.Sprintf("%.1f", m.Bytes) })
	for i := range all {
		t.Numbers(i + 1)
	}
	return t.Print(w)
}

func printOpening(w io.Writer, o *Opening) error {
	fmt.Fprintln(w, "\nOPENING")
	t := table.New("", "")
	if o.Compile > 0 {
		t.Row("compile the ONNX model", short(o.Compile))
	}
	t.Row("read the file", short(o.Read))
	t.Row("plan", short(o.Plan))
	t.Row("load, pack constants", short(o.Load))
	t.Row("run the load programs, pack weights", short(o.Weights))
	t.Row("first request", short(o.First))
	t.Row("sum of these", short(o.Total))
	if o.Process > 0 {
		t.Row("from process start to first answer", short(o.Process))
	}
	return t.RowsOnly(w)
}

func printMemory(w io.Writer, m *Memory) error {
	fmt.Fprintln(w, "\nMEMORY")
	t := table.New("", "")
	bytes := func(what string, n int64) { t.Row(what, humanize.IBytes(uint64(n))) }
	bytes("arena, at its peak", m.Arena)
	bytes("persistent tensors, at most", m.Persistent)
	bytes("packed weights", m.Packed)
	bytes("constants, in place", m.Constants)
	bytes("data of the files, in place", m.Data)
	bytes("executable", m.Executable)
	if m.Resident > 0 {
		bytes("resident at the first answer, peak", m.Resident)
	}
	if m.ResidentAll > 0 {
		bytes("resident while measuring, peak", m.ResidentAll)
	}
	return t.RowsOnly(w)
}

func printProfile(w io.Writer, p *Profile, top int) error {
	fmt.Fprintf(w, "\nPROFILE of %s requests: %s each, %s of it in steps", humanize.Comma(p.Requests), short(p.Request), short(p.Profiled))
	if p.Processor > 0 {
		fmt.Fprintf(w, "; %s of processor time", short(p.Processor))
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "the machine (%s, threads: %d): %.4g GFLOP/s, copies %.3g GB/s\n\n", p.Machine.Instructions, p.Machine.Threads, p.Machine.GFLOPs, p.Machine.GBytes)
	if len(p.Phases) > 0 {
		t := table.New("PHASE", "STEPS", "CALLS", "TIME", "SHARE", "MFLOP", "GFLOP/S", "OF PEAK", "MOVED", "GB/S", "OF MEMORY")
		for _, s := range p.Phases {
			t.Row(append([]any{s.Op, s.Steps, strconv.FormatFloat(s.Calls, 'g', 4, 64)}, figures(s)...)...)
		}
		if err := t.Print(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	t := table.New("OPERATOR", "STEPS", "CALLS", "TIME", "SHARE", "MFLOP", "GFLOP/S", "OF PEAK", "MOVED", "GB/S", "OF MEMORY")
	for _, s := range p.Operators {
		t.Row(append([]any{operator(s), s.Steps, strconv.FormatFloat(s.Calls, 'g', 4, 64)}, figures(s)...)...)
	}
	if err := t.Print(w); err != nil || top == 0 {
		return err
	}
	fmt.Fprintln(w)
	t = table.New("NODE", "OPERATOR", "PROGRAM", "STEP", "TIME", "SHARE", "MFLOP", "GFLOP/S", "OF PEAK", "MOVED", "GB/S", "OF MEMORY")
	for _, s := range p.Nodes[:min(top, len(p.Nodes))] {
		t.Row(append([]any{ending(s.Name, 48), operator(s), s.Program, s.Step}, figures(s)...)...)
	}
	return t.Print(w)
}

// ending returns the last n characters of a name, which tell nodes apart:
// exporters write the path to a node before it.
func ending(name string, n int) string {
	if r := []rune(name); len(r) > n {
		return "…" + string(r[len(r)-n+1:])
	}
	return name
}

func operator(s Share) string {
	if s.Function == "" {
		return s.Op
	}
	return s.Op + " " + s.Function
}

// figures are the columns that operators and nodes have in common.
func figures(s Share) []any {
	row := []any{short(s.Time), fmt.Sprintf("%.1f%%", 100*s.Share), "-", "-", "-", "-", "-", "-"}
	if s.FLOPs > 0 {
		row[2], row[3], row[4] = fmt.Sprintf("%.4g", s.FLOPs/1e6), fmt.Sprintf("%.4g", s.GFLOPs), fmt.Sprintf("%.1f%%", 100*s.Peak)
	}
	if s.Bytes > 0 {
		row[5], row[6] = humanize.IBytes(uint64(s.Bytes)), fmt.Sprintf("%.4g", s.GBytes)
	}
	if s.Memory > s.Peak { // memory is what bounds it
		row[7] = fmt.Sprintf("%.1f%%", 100*s.Memory)
	}
	return row
}

// short shows a duration with four digits.
func short(d time.Duration) string {
	for unit := time.Nanosecond; ; unit *= 10 {
		if d < 10000*unit {
			return d.Round(unit).String()
		}
	}
}

// count shows a large number.
func count(n float64) string {
	if n < 100 {
		return strconv.FormatFloat(n, 'f', 2, 64)
	}
	return humanize.Comma(int64(n))
}

// printSizes prints a row for each size.
func printSizes(w io.Writer, all []Size) error {
	t := table.New("SIZE", "COMPUTED BY", "REQUESTS", "MEAN", "MEDIAN", "99TH", "SLOWEST", "A SECOND", "ALLOCATIONS")
	for i := range all {
		s := &all[i]
		by := s.Member
		if by == "" {
			by = "-"
		}
		t.Row(s.Size, by, humanize.Comma(s.Requests), short(s.Mean), short(s.P50), short(s.P99), short(s.Max), count(s.RequestsPerSecond), fmt.Sprintf("%.3f", s.Allocations))
	}
	return t.Print(w)
}
