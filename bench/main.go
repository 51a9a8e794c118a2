// Command bench measures popefgen beside ONNX Runtime and GoMLX: the same
// models on the same inputs, in turns, in one process. It prints tables, and
// with -write puts them and a chart into docs/performance.md.
//
// It is a module of its own, so that nobody who uses popefgen depends on the
// engines that it is compared with.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/bench/peer/gomlx"
	"github.com/popefgen/popefgen/bench/peer/onnxruntime"
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/internal/bandwidth"
	"github.com/popefgen/popefgen/internal/measure"
)

func main() {
	var f flags
	flag.StringVar(&f.library, "library", "", "ONNX Runtime's shared library")
	flag.StringVar(&f.commands, "commands", "bin", "folder of the commands popefgen and onnxruntime of bench/oneshot")
	flag.StringVar(&f.module, "module", "..", "folder of popefgen's module")
	flag.StringVar(&f.models, "models", "", "folder of public models; default $POPEFGEN_TESTDATA/models or ../../shared/models")
	flag.StringVar(&f.docs, "write", "", "folder whose performance.md and performance.svg are to be rewritten; of some sections, their tables alone")
	flag.StringVar(&f.only, "only", "", "measure the models or operators of that name alone")
	sections := flag.String("sections", strings.Join(allSections, ","), "what to measure")
	flag.BoolVar(&f.gomlx, "gomlx", true, "let GoMLX take part; it takes long")
	flag.BoolVar(&f.processorTime, "processor-time", false, "measure the processor time of one thread instead of time: for machines that others use")
	flag.IntVar(&f.config.Rounds, "rounds", 5, "turns of every contestant")
	flag.DurationVar(&f.config.Slice, "slice", 50*time.Millisecond, "length of a turn")
	flag.Parse()
	f.sections = strings.Split(*sections, ",")
	if err := run(f); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type flags struct {
	library, commands, module, models, docs, only string
	sections                                      []string
	gomlx, processorTime                          bool
	threads                                       int // the most
	config                                        measure.Config
}

// The sections, in the order in which they are measured.
var allSections = []string{"tiles", "requests", "operators", "moves", "models", "lengths", "detectors", "processes"}

// results is everything that was measured.
type results struct {
	machine   *machine
	tiles     []tile
	requests  []pathResult
	operators []*operatorResult
	moves     []*moveResult
	models    []*model
	lengths   []*lengths
	detectors []*detector
	processes []process
}

func run(f flags) error {
	for _, s := range f.sections {
		if !slices.Contains(allSections, s) {
			return fmt.Errorf("-sections: there is no section %q; want some of %s", s, strings.Join(allSections, ","))
		}
	}
	if f.docs != "" && (f.only != "" || !f.gomlx || f.processorTime) {
		return errors.New("-write: the document shows sections as a whole; it does not go with -only, -gomlx=false and -processor-time")
	}
	if f.library == "" {
		return errors.New("-library: want the path of ONNX Runtime's shared library; `make bench-peers` installs it")
	}
	if err := onnxruntime.Load(f.library); err != nil {
		return err
	}
	r, err := measureAll(f)
	if err != nil {
		return err
	}
	texts := r.sections()
	for _, s := range texts {
		if s.text == "" {
			continue
		}
		fmt.Printf("\n## %s\n\n%s\n", s.name, s.text)
	}
	if f.docs == "" {
		return nil
	}
	var chart *report.Chart
	if len(f.sections) < len(allSections) {
		texts = texts[1:] // what machine it was is said of all of them
	}
	if slices.Contains(f.sections, "models") {
		if len(r.models) == 0 {
			return errors.New("-write: the document shows the public models, and there are none")
		}
		chart = modelChart(r.models)
	}
	return write(f.docs, texts, chart)
}

// patience is how long a contest waits for others to leave the processor's cache
// alone.
const patience = 3 * time.Second

func measureAll(f flags) (*results, error) {
	f.config.Runs = 3
	f.threads = 2
	if f.processorTime {
		f.threads = 1
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f.config.Clock = processorTime
	}
	f.config.Disturbed, f.config.Patience = bandwidth.NewWatch().Slow, patience
	two := []entrant{ours: {Engine: popefgen.Engine{}}, ort: {Engine: onnxruntime.Engine{}}}
	three := slices.Clone(two)
	if f.gomlx {
		three = append(three, entrant{Engine: gomlx.Engine{}, optional: true, slow: true})
	}
	r := &results{machine: newMachine()}
	has := func(section string) bool { return slices.Contains(f.sections, section) }
	var err error
	if has("models") || has("processes") {
		if r.models, err = findModels(f); err != nil {
			return nil, err
		}
	}
	if has("tiles") {
		progress("inner loops")
		if r.tiles, err = measureTiles(f.module); err != nil {
			return nil, err
		}
	}
	if has("requests") {
		progress("requests")
		if r.requests, err = requests(requestConfig); err != nil {
			return nil, err
		}
	}
	if has("operators") {
		progress("operators")
		if r.operators, err = measureOperators(f.config, two, r.machine, f.only, f.threads); err != nil {
			return nil, err
		}
	}
	if has("moves") {
		progress("moves")
		if r.moves, err = measureMoves(f.config, two, f.only); err != nil {
			return nil, err
		}
	}
	if has("models") {
		for _, m := range r.models {
			progress(m.Name)
			if err := m.measure(f.config, three, f.threads); err != nil {
				return nil, err
			}
		}
	}
	if has("lengths") {
		dir, err := modelFolder(f)
		if err != nil {
			return nil, err
		}
		if dir != "" {
			if r.lengths, err = measureLengths(f.config, dir, f.only, f.threads); err != nil {
				return nil, err
			}
		}
	}
	if has("detectors") {
		dir, err := modelFolder(f)
		if err != nil {
			return nil, err
		}
		if dir != "" {
			if r.detectors, err = measureDetectors(f.config, dir, f.only, f.threads); err != nil {
				return nil, err
			}
		}
	}
	if has("processes") {
		progress("processes")
		commands := [2]string{ours: filepath.Join(f.commands, "popefgen"), ort: filepath.Join(f.commands, "onnxruntime")}
		if r.processes, err = measureProcesses(r.models, commands, f.library); err != nil {
			return nil, err
		}
	}
	r.machine.measure()
	return r, nil
}

// progress tells what is being measured now.
func progress(what string) { fmt.Fprintln(os.Stderr, "measuring", what) }

// findModels compiles the public models; without the folder there are none.
func findModels(f flags) ([]*model, error) {
	dir, err := modelFolder(f)
	if dir == "" || err != nil {
		return nil, err
	}
	return publicModels(dir, f.only)
}

// modelFolder returns the folder of public models, "" if there is none.
func modelFolder(f flags) (string, error) {
	dir := f.models
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "models")
		if data := os.Getenv("POPEFGEN_TESTDATA"); data != "" {
			dir = filepath.Join(data, "models")
		}
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "no public models in %s (set POPEFGEN_TESTDATA): only synthetic ones are measured\n", dir)
			return "", nil
		}
	}
	return dir, nil
}

// section is a generated part of the document.
type section struct{ name, text string }

// sections returns what there is to show, in the document's order.
func (r *results) sections() []section {
	all := []section{{"machine", r.machine.String() + fmt.Sprintf(". Go's compiler %s, ONNX Runtime %s.%s", goVersion(), onnxruntime.Version(), r.machine.warning())}}
	if len(r.requests) > 0 && len(r.operators) > 0 && len(r.processes) > 0 {
		all = append(all, section{"goals", goalTable(r)})
	}
	if len(r.models) > 0 && r.models[0].runs[0] != nil {
		all = append(all, section{"models, one thread", modelTable(r.models, 1)})
		if r.models[0].runs[1] != nil {
			all = append(all, section{"models, two threads", modelTable(r.models, 2)})
		}
		all = append(all, section{"refused", refusals(r.models)})
	}
	if len(r.lengths) > 0 {
		all = append(all, section{"lengths", lengthTable(r.lengths)})
	}
	if len(r.detectors) > 0 {
		all = append(all, section{"detectors", detectorTable(r.detectors)})
	}
	if len(r.tiles) > 0 {
		all = append(all, section{"tiles", tileTable(r.tiles)})
	}
	if len(r.processes) > 0 {
		all = append(all, section{"processes", processTable(r.processes)})
	}
	if len(r.requests) > 0 {
		all = append(all, section{"requests", requestTable(r.requests)})
	}
	if len(r.operators) > 0 {
		all = append(all, section{"operators", operatorTable(r.operators)})
	}
	if len(r.moves) > 0 {
		all = append(all, section{"moves", moveTable(r.moves)})
	}
	return all
}

// write rewrites generated parts of performance.md in a folder and, unless chart
// is nil, performance.svg.
func write(dir string, sections []section, chart *report.Chart) error {
	path := filepath.Join(dir, "performance.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	doc := string(text)
	for _, s := range sections {
		if doc, err = report.Replace(doc, s.name, s.text); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if chart != nil {
		if err := atomicfile.WriteBytes(filepath.Join(dir, "performance.svg"), []byte(chart.SVG())); err != nil {
			return err
		}
	}
	return atomicfile.WriteBytes(path, []byte(doc))
}
