package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/bench"
)

func (r *benchReport) print(w io.Writer, top int) error {
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
func printComparisons(w io.Writer, all []bench.Comparison) {
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
func printMeasurements(w io.Writer, all []bench.Measurement) error {
	head := []string{"MODE"}
	for _, m := range all {
		head = append(head, string(m.Mode))
	}
	t := newTable(head...)
	line := func(what string, cell func(m *bench.Measurement) string) {
		row := []any{what}
		for i := range all {
			row = append(row, cell(&all[i]))
		}
		t.row(row...)
	}
	number := func(what string, n func(m *bench.Measurement) int) {
		line(what, func(m *bench.Measurement) string { return strconv.Itoa(n(m)) })
	}
	duration := func(what string, d func(m *bench.Measurement) time.Duration) {
		line(what, func(m *bench.Measurement) string { return short(d(m)) })
	}
	number("clients", func(m *bench.Measurement) int { return m.Clients })
	number("requests in flight, each", func(m *bench.Measurement) int { return m.InFlight })
	line("thread-safe", func(m *bench.Measurement) string {
		if m.ThreadSafe {
			return "yes"
		}
		return "-"
	})
	number("replicas", func(m *bench.Measurement) int { return m.Replicas })
	line("samples in a request", func(m *bench.Measurement) string { return orDash(m.Samples) })
	line("requests", func(m *bench.Measurement) string { return humanize.Comma(m.Requests) })
	duration("mean", func(m *bench.Measurement) time.Duration { return m.Mean })
	duration("fastest", func(m *bench.Measurement) time.Duration { return m.Min })
	duration("median", func(m *bench.Measurement) time.Duration { return m.P50 })
	duration("90th percentile", func(m *bench.Measurement) time.Duration { return m.P90 })
	duration("99th percentile", func(m *bench.Measurement) time.Duration { return m.P99 })
	duration("99.9th percentile", func(m *bench.Measurement) time.Duration { return m.P999 })
	duration("slowest", func(m *bench.Measurement) time.Duration { return m.Max })
	line("requests a second", func(m *bench.Measurement) string { return count(m.RequestsPerSecond) })
	line("samples a second", func(m *bench.Measurement) string {
		if m.Samples == 0 {
			return "-"
		}
		return count(m.SamplesPerSecond)
	})
	line("allocations a request", func(m *bench.Measurement) string { return fmt.Sprintf("%.3f", m.Allocations) })
	line("allocated bytes a request", func(m *bench.Measurement) string { return fmt.Sprintf("%.1f", m.Bytes) })
	for i := range all {
		t.nums[i+1] = true // also where a word stands among the numbers
	}
	return t.print(w)
}

func printOpening(w io.Writer, o *bench.Opening) error {
	fmt.Fprintln(w, "\nOPENING")
	t := newTable("", "")
	if o.Compile > 0 {
		t.row("compile the ONNX model", short(o.Compile))
	}
	t.row("read the file", short(o.Read))
	t.row("plan", short(o.Plan))
	t.row("load, pack constants", short(o.Load))
	t.row("run the load programs, pack weights", short(o.Weights))
	t.row("first request", short(o.First))
	t.row("sum of these", short(o.Total))
	if o.Process > 0 {
		t.row("from process start to first answer", short(o.Process))
	}
	return t.rowsOnly(w)
}

func printMemory(w io.Writer, m *bench.Memory) error {
	fmt.Fprintln(w, "\nMEMORY")
	t := newTable("", "")
	bytes := func(what string, n int64) { t.row(what, humanize.IBytes(uint64(n))) }
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
	return t.rowsOnly(w)
}

func printProfile(w io.Writer, p *bench.Profile, top int) error {
	fmt.Fprintf(w, "\nPROFILE of %s requests: %s each, %s of it in steps\n", humanize.Comma(p.Requests), short(p.Request), short(p.Profiled))
	fmt.Fprintf(w, "the machine (%s, threads: %d): %.4g GFLOP/s, copies %.3g GB/s\n\n", p.Machine.Instructions, p.Machine.Threads, p.Machine.GFLOPs, p.Machine.GBytes)
	t := newTable("OPERATOR", "STEPS", "CALLS", "TIME", "SHARE", "MFLOP", "GFLOP/S", "OF PEAK", "MOVED", "GB/S", "OF MEMORY")
	for _, s := range p.Operators {
		t.row(append([]any{operator(s), s.Steps, strconv.FormatFloat(s.Calls, 'g', 4, 64)}, figures(s)...)...)
	}
	if err := t.print(w); err != nil || top == 0 {
		return err
	}
	fmt.Fprintln(w)
	t = newTable("NODE", "OPERATOR", "PROGRAM", "STEP", "TIME", "SHARE", "MFLOP", "GFLOP/S", "OF PEAK", "MOVED", "GB/S", "OF MEMORY")
	for _, s := range p.Nodes[:min(top, len(p.Nodes))] {
		t.row(append([]any{ending(s.Name, 48), operator(s), s.Program, s.Step}, figures(s)...)...)
	}
	return t.print(w)
}

// ending returns the last n characters of a name, which tell nodes apart:
// exporters write the path to a node before it.
func ending(name string, n int) string {
	if r := []rune(name); len(r) > n {
		return "…" + string(r[len(r)-n+1:])
	}
	return name
}

func operator(s bench.Share) string {
	if s.Function == "" {
		return s.Op
	}
	return s.Op + " " + s.Function
}

// figures are the columns that operators and nodes have in common.
func figures(s bench.Share) []any {
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
