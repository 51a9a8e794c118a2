package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/gen"
)

// packageFlags say which package is to be generated, and how.
var packageFlags = append([]cli.Flag{
	&cli.StringSliceFlag{Name: "model", Aliases: []string{"m"}, Usage: "PopEF or ONNX `FILE`; several PopEF files may make one model"},
	&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`DIR` of the package", Value: "."},
	&cli.StringFlag{Name: "package", Aliases: []string{"p"}, Usage: "package `NAME` (default: from the directory, or the model's file name)"},
	&cli.BoolFlag{Name: "embed", Usage: "embed the model into the package; otherwise Open takes its path"},
	&cli.StringSliceFlag{Name: "rename", Usage: "Go name of an anchor, or of a value of an optimizer, `ANCHOR=GoName`; a stream handle stands for an anchor that shares its name"},
	&cli.IntFlag{Name: "queue", Usage: "`N` submitted requests may wait", Value: gen.DefaultQueueDepth},
	&cli.IntFlag{Name: "batch-dim", Usage: "dimension `N` of every input and output counts samples, usually 0; the package then has RunSamples. A model that mixes samples is refused; of a Poplar executable it is your word that it does not", DefaultText: "none does"},
	&cli.StringFlag{Name: "pack", Usage: "`INPUTS`, comma-separated, in whose rows sequences of different lengths share a run; the package then has RunPacked"},
	&cli.IntFlag{Name: "pack-axis", Usage: "dimension `N` of them that counts positions; those before it count rows", Value: 1},
	&cli.StringFlag{Name: "pack-mask", Usage: "the `INPUT` of --pack that is zero where a sequence is padding"},
	&cli.StringSliceFlag{Name: "pack-fill", Usage: "what the runner fills inputs with so that sequences stay apart, `WHAT=INPUT`: segments, positions, first, blocks or bias; or none"},
	&cli.StringSliceFlag{Name: "unpack", Usage: "an output with a part for each sequence, by the input that counts them, `OUTPUT=INPUT`"},
	&cli.StringSliceFlag{Name: "state", Usage: "an output that is an input of the next request, `OUTPUT=INPUT`; the package then has streams, which keep it"},
	&cli.StringSliceFlag{Name: "state-fill", Usage: "what a stream whose state grows fills inputs with, `WHAT=INPUT`: mask (1 for what there is of the state), bias (0 for it, and the lowest value elsewhere) or positions"},
	&cli.BoolFlag{Name: "no-queues", Usage: "leave out the type Queues, and with it what the package links of queues"},
	&cli.BoolFlag{Name: "serve", Usage: "write what serves the model, Served, and a Client that has a server compute"},
	&cli.BoolFlag{Name: "tests", Usage: "write the package's own example, benchmarks and allocation tests; --tests=false leaves them out", Value: true},
	&cli.StringFlag{Name: "popef", Usage: "`FILE` to which an ONNX model is compiled (default: beside the package's code, unless it is embedded)"},
	&cli.StringFlag{Name: "config", Aliases: []string{"c"}, Usage: "`FILE` with the packages of a project (default, if no model is given: " + projectFile + ")"},
}, modelFlags...)

// diffFlag makes a check print every line that differs.
var diffFlag = &cli.BoolFlag{Name: "diff", Usage: "with what is stale, print every line that differs"}

var generateCommand = &cli.Command{
	Name:  "generate",
	Usage: "write the typed Go package of a model, or all packages of a project",
	UsageText: "popefgen generate -m MODEL.popef|MODEL.onnx [-o DIR] [flags]\npopefgen generate [--config popefgen.yaml]\n\n" +
		"example: popefgen generate -m digits.popef -o digits --embed\n" +
		"example: popefgen generate -m digits.onnx -o digits --batch 1 --embed\n" +
		"in Go source: //go:generate go tool popefgen generate -m digits.popef -o digits",
	Flags: append([]cli.Flag{
		&cli.BoolFlag{Name: "check", Usage: "write nothing; exit with 1 if a package is stale, and say why"},
		diffFlag,
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print warnings only: not what was written, no names that say more"},
	}, packageFlags...),
	Action: func(c *cli.Context) error { return generate(c, c.Bool("check")) },
}

var checkCommand = &cli.Command{
	Name:  "check",
	Usage: "say whether generated packages are current: generate --check",
	UsageText: "popefgen check -m MODEL.popef|MODEL.onnx [-o DIR] [flags]\npopefgen check [--config popefgen.yaml]\n\n" +
		"example: popefgen check -m digits.popef -o digits --embed",
	Flags:  append([]cli.Flag{diffFlag}, packageFlags...),
	Action: func(c *cli.Context) error { return generate(c, true) },
}

// generate writes, or checks, what the flags or the project ask for.
func generate(c *cli.Context, check bool) error {
	name := c.Command.Name
	if err := noArgs(c); err != nil {
		return err
	}
	if !check && c.Bool("diff") {
		return fmt.Errorf("%s: --diff is for --check", name)
	}
	jobs, _, err := jobsOf(c)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i := range jobs {
		jobs[i].ctx, jobs[i].propose = c.Context, !check && !c.Bool("quiet")
	}
	stale, failed := 0, 0
	var first error
	for i, o := range renderAll(jobs) {
		o, j := <-o, &jobs[i]
		progress := ""
		if len(jobs) > 1 {
			progress = fmt.Sprintf("[%d/%d] ", i+1, len(jobs))
		}
		current, err := false, o.err
		if err == nil {
			current, err = j.finish(c, o.rendered, check, progress)
		}
		if err == nil && !current {
			stale++
		}
		if err != nil {
			if len(jobs) > 1 {
				fmt.Fprintf(c.App.ErrWriter, "%s%s: %v\n", progress, j.dir, err)
			}
			failed++
			first = errors.Join(first, err)
		}
	}
	switch {
	case failed > 0 && len(jobs) > 1:
		return fmt.Errorf("%s: %d of %d packages failed, see above", name, failed, len(jobs))
	case failed > 0:
		return fmt.Errorf("%s: %w", name, first)
	case stale > 0:
		return errNo
	}
	return nil
}

// jobsOf returns the package that the flags name, or those of a project with
// its file.
func jobsOf(c *cli.Context) (jobs []job, project string, err error) {
	if models := c.StringSlice("model"); len(models) > 0 {
		if c.IsSet("config") {
			return nil, "", errors.New("--model and --config: want one of them")
		}
		j, err := jobOf(c, models)
		return []job{j}, "", err
	}
	path := c.String("config")
	for _, f := range packageFlags {
		if n := f.Names()[0]; n != "config" && c.IsSet(n) {
			return nil, "", fmt.Errorf("which model? --%s is for a single one (usage: popefgen %s -m MODEL.popef -o DIR)", n, c.Command.Name)
		}
	}
	if path == "" {
		if path, err = defaultProject(); err != nil {
			return nil, "", err
		}
	}
	jobs, err = readProject(path)
	return jobs, path, err
}

// jobOf returns the package that the flags name.
func jobOf(c *cli.Context, models []string) (job, error) {
	j := job{dir: c.String("output"), models: models, embed: c.Bool("embed")}
	j.options = gen.Options{Package: c.String("package"), QueueDepth: c.Int("queue"), NoQueues: c.Bool("no-queues"), Serve: c.Bool("serve"), Tests: c.Bool("tests")}
	if c.IsSet("batch-dim") {
		dim := c.Int("batch-dim")
		j.options.BatchDim = &dim
	}
	var err error
	if j.options.Pack, err = packOf(c); err != nil {
		return j, err
	}
	if j.options.State, err = statesOf(c.StringSlice("state")); err != nil {
		return j, err
	}
	if j.options.StateFill, err = pairsOf("state-fill", "WHAT=INPUT", c.StringSlice("state-fill")); err != nil {
		return j, err
	}
	if c.IsSet("queue") && j.options.QueueDepth < 1 {
		return j, fmt.Errorf("--queue %d: want at least 1", j.options.QueueDepth)
	}
	if j.options.Renames, err = renamesOf(c.StringSlice("rename")); err != nil {
		return j, err
	}
	for _, m := range models {
		if ext := filepath.Ext(m); ext == ".yaml" || ext == ".yml" {
			return j, fmt.Errorf("%s is a list of models, not a model: popefgen %s --config %s", m, c.Command.Name, m)
		}
	}
	onnx := slices.IndexFunc(models, kind.IsONNX)
	switch {
	case onnx < 0 && c.IsSet("popef"):
		return j, fmt.Errorf("--popef is for .onnx models; %s is compiled already", models[0])
	case onnx < 0:
		return j, noModelFlags(c, models[0])
	case len(models) > 1:
		return j, fmt.Errorf("%s is an ONNX model, which is one file; found %d (--model)", models[onnx], len(models))
	}
	o, err := optionsOf(c)
	j.compile, j.popef = &o, c.String("popef")
	j.defaultPopEF()
	return j, err
}

// outcome is what comes of a job that is rendered.
type outcome struct {
	rendered *rendered
	err      error
}

// renderAll renders jobs, as many at a time as there are cores.
func renderAll(jobs []job) []chan outcome {
	outcomes := make([]chan outcome, len(jobs))
	for i := range outcomes {
		outcomes[i] = make(chan outcome, 1)
	}
	var next atomic.Int64
	for range min(len(jobs), runtime.GOMAXPROCS(0)) {
		go func() {
			for i := int(next.Add(1)) - 1; i < len(jobs); i = int(next.Add(1)) - 1 {
				r, err := jobs[i].render()
				outcomes[i] <- outcome{r, err}
			}
		}()
	}
	return outcomes
}

// finish writes what was rendered, or checks it, and reports whether the
// package is current now.
func (j *job) finish(c *cli.Context, r *rendered, check bool, progress string) (current bool, err error) {
	for _, w := range r.warnings {
		fmt.Fprintf(c.App.ErrWriter, "warning: %s\n", w)
	}
	if check {
		stale, err := j.stale(r)
		if err != nil {
			return false, err
		}
		if len(stale) == 0 {
			fmt.Fprintf(c.App.ErrWriter, "%s%s is current\n", progress, j.dir)
			return true, nil
		}
		return false, j.why(c, r, stale, progress)
	}
	changed, err := j.write(r)
	switch {
	case err != nil:
		return false, err
	case c.Bool("quiet"):
	case len(changed) == 0:
		fmt.Fprintf(c.App.ErrWriter, "%s%s: nothing changed\n", progress, j.dir)
	default:
		fmt.Fprintf(c.App.ErrWriter, "%s%s: wrote %s\n", progress, j.dir, strings.Join(changed, ", "))
		if slices.ContainsFunc(changed, func(name string) bool { return filepath.Ext(name) == ".go" }) {
			j.printProposals(c.App.ErrWriter, r.proposals)
		}
	}
	return true, nil
}

// hasLetter reports whether a folder's name is more than a number.
func hasLetter(s string) bool {
	return strings.ContainsFunc(strings.ToLower(s), func(r rune) bool { return r >= 'a' && r <= 'z' })
}
