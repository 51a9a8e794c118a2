package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/popef"
)

var generateCommand = &cli.Command{
	Name:  "generate",
	Usage: "write the typed Go package of a PopEF model",
	UsageText: "popefgen generate -m MODEL.popef [-o DIR] [flags]\n\nexample: popefgen generate -m digits.popef -o digits --embed\n" +
		"in Go source: //go:generate go tool popefgen generate -m digits.popef -o digits",
	Flags: []cli.Flag{
		&cli.StringSliceFlag{Name: "model", Aliases: []string{"m"}, Usage: "PopEF `FILE`; several files may make one model"},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`DIR` of the package", Value: "."},
		&cli.StringFlag{Name: "package", Aliases: []string{"p"}, Usage: "package `NAME` (default: from the directory, or the model's file name)"},
		&cli.BoolFlag{Name: "embed", Usage: "embed the model into the package; otherwise Open takes its path"},
		&cli.StringSliceFlag{Name: "rename", Usage: "Go name of an anchor, `ANCHOR=GoName`; a stream handle stands for an anchor that shares its name"},
		&cli.IntFlag{Name: "queue", Usage: "how many submitted requests may wait", Value: gen.DefaultQueueDepth},
		&cli.IntFlag{Name: "batch-dim", Usage: "dimension of every input and output that counts samples: `DIM` 0 is usual; the package then has RunSamples"},
		&cli.BoolFlag{Name: "tests", Usage: "write the package's own example, benchmarks and allocation tests; --tests=false leaves them out", Value: true},
		&cli.BoolFlag{Name: "check", Usage: "write nothing; print a diff and exit with 1 if the package is stale"},
	},
	Action: func(c *cli.Context) error {
		if err := noArgs(c); err != nil {
			return err
		}
		dir := c.String("output")
		files, err := render(c, dir)
		if err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		if c.Bool("check") {
			diff, err := gen.Check(dir, files)
			if err != nil {
				return fmt.Errorf("generate: %w", err)
			}
			if diff == "" {
				fmt.Fprintf(c.App.ErrWriter, "%s is current\n", dir)
				return nil
			}
			fmt.Fprint(c.App.Writer, diff)
			fmt.Fprintf(c.App.ErrWriter, "%s is stale: run the same command without --check and commit what it writes\n", dir)
			return errNo
		}
		changed, err := gen.Write(dir, files)
		if err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		if len(changed) == 0 {
			fmt.Fprintf(c.App.ErrWriter, "%s: nothing changed\n", dir)
			return nil
		}
		fmt.Fprintf(c.App.ErrWriter, "%s: wrote %s\n", dir, strings.Join(changed, ", "))
		return nil
	},
}

// render returns the files of the package that the flags ask for.
func render(c *cli.Context, dir string) ([]gen.File, error) {
	models := c.StringSlice("model")
	if len(models) == 0 {
		return nil, errors.New("which model? (usage: popefgen generate -m MODEL.popef -o DIR)")
	}
	o := gen.Options{Package: c.String("package"), ModelBase: filepath.Base(models[0]), QueueDepth: c.Int("queue"), Tests: c.Bool("tests")}
	if c.IsSet("batch-dim") {
		dim := c.Int("batch-dim")
		o.BatchDim = &dim
	}
	if c.IsSet("queue") && o.QueueDepth < 1 {
		return nil, fmt.Errorf("--queue %d: want at least 1", o.QueueDepth)
	}
	if o.Package == "" && dir != "." {
		if abs, err := filepath.Abs(dir); err == nil && isIdentifier(filepath.Base(abs)) {
			o.Package = filepath.Base(abs)
		}
	}
	renames, err := assignments("rename", c.StringSlice("rename"))
	if err != nil {
		return nil, err
	}
	o.Renames = map[string]string{}
	for _, r := range renames {
		o.Renames[r[0]] = r[1]
	}
	if c.Bool("embed") {
		o.Embed = o.ModelBase
	}
	m, err := popef.Load(models...)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	for _, w := range m.Warnings() {
		fmt.Fprintf(c.App.ErrWriter, "warning: %s\n", w)
	}
	plan, err := gen.Build(m, o)
	if err != nil {
		return nil, err
	}
	files, err := gen.Emit(plan)
	if err != nil || o.Embed == "" {
		return files, err
	}
	model, err := gen.ModelCopy(plan, m)
	if err != nil {
		return nil, err
	}
	return append(files, model), nil
}

// isIdentifier reports whether a directory's name serves as a package name.
func isIdentifier(s string) bool {
	for i, r := range s {
		if !(r >= 'a' && r <= 'z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return s != ""
}
