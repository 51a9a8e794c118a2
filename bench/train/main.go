// Command train measures training: popefgen beside PyTorch, on networks of the kinds that people train on one machine. PyTorch is a process of
// its own, driven over pipes, which times its own steps; the two take turns, and their losses must agree before anything is timed. It
// prints tables, and with -write puts them into docs/performance.md.
//
//	train                   measure everything
//	train -only mlp         the networks whose name has this
//	train -processor-time   on a machine that others use: processor time of one thread in place of time
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/atomicfile"
)

func main() {
	o := &options{}
	memory := flag.String("memory", "", "be the process whose memory is measured: train this network of -file, and print bytes")
	file := flag.String("file", "", "training model for -memory")
	flag.StringVar(&o.python, "python", "python3", "the Python that has PyTorch")
	flag.StringVar(&o.only, "only", "", "measure the networks whose name has this")
	sections := flag.String("sections", strings.Join(sectionNames(), ","), "what to measure")
	flag.BoolVar(&o.processorTime, "processor-time", false, "measure processor time, of one thread alone: for machines that others use")
	flag.IntVar(&o.rounds, "rounds", 7, "turns of each")
	flag.DurationVar(&o.slice, "slice", 200*time.Millisecond, "length of a turn, and two steps at least")
	docs := flag.String("write", "", "folder whose performance.md is to have the tables")
	flag.Parse()
	o.sections = strings.Split(*sections, ",")
	var err error
	if *memory != "" {
		err = beMeasured(*memory, *file)
	} else {
		err = run(o, *docs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

// options say what is measured, and how long.
type options struct {
	python, only  string
	sections      []string
	processorTime bool
	rounds        int
	slice         time.Duration
}

// networks returns those that are asked for.
func (o *options) networks() (some []*network) {
	for i := range networks {
		if strings.Contains(networks[i].name, o.only) {
			some = append(some, &networks[i])
		}
	}
	return some
}

// threads are the numbers of threads that are measured.
func (o *options) threads() []int {
	if o.processorTime {
		return []int{1}
	}
	return []int{1, 2}
}

// clock returns the time, or the process's processor time.
func (o *options) clock() time.Duration {
	id := int32(unix.CLOCK_MONOTONIC)
	if o.processorTime {
		id = unix.CLOCK_PROCESS_CPUTIME_ID
	}
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// clockName is what learn.py calls the clock.
func (o *options) clockName() string {
	if o.processorTime {
		return "processor"
	}
	return "wall"
}

// sections are what is measured, each a table with a sentence before it.
var sections = []struct {
	name    string
	text    string
	measure func(*options) (string, error)
}{
	{"steps", "A whole step, batch 64, Adam, in ms beside PyTorch's:", measureSteps},
	{"go", "The same beside frameworks in Go, where they train the network and their losses agree with ours:", measurePeers},
	{"inside", "Inside a step, on one thread: backward pass by forward pass, the step by the sum of its kernels, allocations; the memory that training adds to a process, in MB, beside PyTorch's:", measureInside},
	{"adam", "Adam on ten million weights, 28 bytes each, beside what the same threads read from memory in the same turn:", measureAdam},
	{"recompute", "Twelve encoder layers of 64, batch 16: nothing of the forward pass computed again, and `--recompute standard`:", measureRecompute},
}

func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

func run(o *options, docs string) error {
	for _, s := range o.sections {
		if !slices.Contains(sectionNames(), s) {
			return fmt.Errorf("-sections: there is no section %q; want some of %s", s, strings.Join(sectionNames(), ","))
		}
	}
	if len(o.networks()) == 0 {
		return fmt.Errorf("-only: no network has %q in its name", o.only)
	}
	if docs != "" && (o.only != "" || o.processorTime || len(o.sections) < len(sections)) {
		return fmt.Errorf("-write: the document shows everything, by the clock; it does not go with -only, -sections and -processor-time")
	}
	text := ""
	for _, s := range sections {
		if !slices.Contains(o.sections, s.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "measuring", s.name)
		table, err := s.measure(o)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		part := "\n" + s.text + "\n\n" + table
		fmt.Print(part)
		text += part
	}
	if docs == "" {
		return nil
	}
	path := filepath.Join(docs, "performance.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	out, err := report.Replace(string(doc), "training", text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.WriteBytes(path, []byte(out))
}
