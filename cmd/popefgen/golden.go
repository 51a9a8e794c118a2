package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/golden/outputs"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/popef"
)

var toleranceFlag = &cli.StringSliceFlag{Name: "tolerance", DefaultText: "what suits its type",
	Usage: "tolerance of an output, `OUTPUT=SPEC`: exact, or a list of ulp:N, rel:X and abs:X; SPEC alone is for all of floating point"}

var goldenCommand = &cli.Command{
	Name:      "golden",
	Usage:     "record what a model answers, or import what it should, and compare later",
	UsageText: "popefgen golden record MODEL -o DIR [flags]\npopefgen golden import MODEL DATA… -o DIR [flags]\npopefgen golden verify MODEL DIR [flags]",
	Subcommands: []*cli.Command{
		goldenImportCommand,
		{
			Name:  "record",
			Usage: "store inputs and the model's outputs",
			UsageText: "popefgen golden record MODEL.popef|MODEL.onnx -o DIR [--input NAME=VALUE… | --random SEED --cases N] [flags]\n\n" +
				"example: popefgen golden record digits.popef -o testdata/golden --random 1 --cases 20",
			ArgsUsage: "MODEL -o DIR",
			Flags: withSize(append(append([]cli.Flag{
				&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`DIR` of the goldens; cases are added to those there"},
				&cli.StringSliceFlag{Name: "input", Aliases: []string{"i"}, Usage: "value of an input, `NAME=VALUE`: a file (.npy, .pb, raw .bin or @FILE), a number, which fills the tensor, or a list (1,2,3)"},
				&cli.Uint64Flag{Name: "random", Usage: "fill inputs that are not given with random values from `SEED`, the next one for the next case"},
				&cli.IntFlag{Name: "cases", Usage: "record `N` cases", Value: 1},
				&cli.StringFlag{Name: "name", Usage: "`NAME` of the case, or what the names of several begin with", Value: "case"},
				toleranceFlag,
				branchFlag,
			}, engineFlags...), modelFlags...)),
			Action: func(c *cli.Context) error { return named("golden record", goldenRecord(c)) },
		},
		{
			Name:  "verify",
			Usage: "compare the model's outputs with those stored; exit with 1 if they are too far off",
			UsageText: "popefgen golden verify MODEL.popef|MODEL.onnx DIR [flags]\n\n" +
				"example: popefgen golden verify digits.popef testdata/golden",
			ArgsUsage: "MODEL DIR",
			Flags: append(append([]cli.Flag{
				&cli.BoolFlag{Name: "update", Usage: "then store the outputs as those expected"},
				&cli.BoolFlag{Name: "json", Usage: "print JSON"},
				&cli.StringSliceFlag{Name: "input", Aliases: []string{"i"}, Usage: "value of an input that is not given with every run, `NAME=VALUE`: a file, a number or a list"},
				&cli.Uint64Flag{Name: "random", Usage: "fill such inputs with random values from `SEED`"},
				branchFlag,
			}, engineFlags...), modelFlags...),
			Action: func(c *cli.Context) error { return named("golden verify", goldenVerify(c)) },
		},
	},
	Action: func(c *cli.Context) error {
		if c.Args().Present() {
			return fmt.Errorf("golden: %w", unknownCommand("popefgen golden", c.Args().First(), c.Command.Subcommands))
		}
		return cli.ShowSubcommandHelp(c)
	},
}

// named puts a command's name before an error.
func named(command string, err error) error {
	if err == nil || errors.Is(err, errNo) {
		return err
	}
	return fmt.Errorf("%s: %w", command, err)
}

func goldenRecord(c *cli.Context) error {
	if c.NArg() != 1 {
		return fmt.Errorf("found %d arguments, want one, the model (usage: popefgen golden record MODEL -o DIR)", c.NArg())
	}
	dir, cases := c.String("output"), c.Int("cases")
	if dir == "" {
		return errors.New("which folder? (usage: popefgen golden record MODEL -o DIR)")
	}
	if cases < 1 {
		return fmt.Errorf("--cases %d: want at least 1", cases)
	}
	if cases > 1 && !c.IsSet("random") {
		return fmt.Errorf("--cases %d: several cases are random ones: give --random SEED", cases)
	}
	files, err := assignments("input", c.StringSlice("input"))
	if err != nil {
		return err
	}
	model, size, err := openModel(c, c.Args().First())
	if err != nil {
		return err
	}
	defer model.Close()
	all, err := recordedSizes(c, model, files)
	if err != nil {
		return err
	}
	var ins, outs int
	for _, asked := range all {
		err := withDynamic(c, model, size, asked, func(d *dynamic.Model) error {
			m, err := d.Golden()
			if err != nil {
				return err
			}
			ins, outs = len(m.Inputs), len(m.Outputs)
			tolerances, err := tolerancesOf(c, m)
			if err != nil {
				return err
			}
			for i := range cases {
				if err := d.Fill(files, randomSeed(c, i)); err != nil {
					return err
				}
				name := c.String("name")
				if len(all) > 1 {
					name += "-" + asked.CaseName()
				}
				if cases > 1 || !c.IsSet("name") {
					name = fmt.Sprintf("%s-%03d", name, i)
				}
				if err := outputs.Record(c.Context, dir, name, m, tolerances); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	sizes := ""
	if len(all) > 1 {
		sizes = fmt.Sprintf(" in each of %d sizes", len(all))
	}
	fmt.Fprintf(c.App.ErrWriter, "%s: recorded %s%s of %s and %s\n", dir, table.Counted(cases, "case"), sizes, table.Counted(ins, "input"), table.Counted(outs, "output"))
	return nil
}

// recordedSizes returns what is to be recorded: the size that --size or the inputs
// say, or every size of a model of several.
func recordedSizes(c *cli.Context, m *popef.Model, files [][2]string) ([]*dynamic.Request, error) {
	asked, err := requestOf(c, m, files)
	if err != nil || asked == nil || c.IsSet("size") {
		return []*dynamic.Request{asked}, err
	}
	for _, f := range files {
		if _, ok := dynamic.ShapeOf(asked.Family, f); ok {
			return []*dynamic.Request{asked}, nil
		}
	}
	var all []*dynamic.Request
	for i, m := range asked.Family.Members {
		all = append(all, &dynamic.Request{Family: asked.Family, Member: i, Sizes: m.Sizes})
	}
	return all, nil
}

func tolerancesOf(c *cli.Context, m *outputs.Model) (map[string]outputs.Tolerance, error) {
	var named []string
	tolerances := map[string]outputs.Tolerance{}
	for _, spec := range c.StringSlice("tolerance") {
		if strings.Contains(spec, "=") {
			named = append(named, spec)
			continue
		}
		t, err := outputs.ParseTolerance(spec)
		if err != nil {
			return nil, fmt.Errorf("--tolerance: %w, or OUTPUT=SPEC", err)
		}
		for _, p := range m.Outputs {
			if outputs.IsFloat(p.Info.DataType) {
				tolerances[p.Anchor] = t
			}
		}
	}
	given, err := assignments("tolerance", named)
	if err != nil {
		return nil, err
	}
	var names []string
	known := map[string]bool{}
	for _, p := range m.Outputs {
		names = append(names, p.Anchor)
		known[p.Anchor] = true
	}
	for _, g := range given {
		if !known[g[0]] {
			return nil, fmt.Errorf("--tolerance %s=%s: the model has no such output%s", g[0], g[1], nearest.DidYouMean(g[0], names))
		}
		if tolerances[g[0]], err = outputs.ParseTolerance(g[1]); err != nil {
			return nil, fmt.Errorf("--tolerance %s: %w", g[0], err)
		}
	}
	return tolerances, nil
}

func goldenVerify(c *cli.Context) (err error) {
	if c.NArg() != 2 {
		return fmt.Errorf("found %d arguments, want two: the model and the folder of the goldens (usage: popefgen golden verify MODEL DIR)", c.NArg())
	}
	set, err := outputs.Open(c.Args().Get(1))
	if err != nil {
		return err
	}
	files, err := assignments("input", c.StringSlice("input"))
	if err != nil {
		return err
	}
	model, size, err := openModel(c, c.Args().First())
	if err != nil {
		return err
	}
	defer model.Close()
	first, err := requestOf(c, model, nil)
	if err != nil {
		return err
	}
	g := &goldens{c: c, model: model, size: size, files: files}
	defer func() { err = errors.Join(err, g.close()) }()
	m, err := g.open(first)
	if err != nil {
		return err
	}
	if first != nil {
		m.Sized = func(_ context.Context, shapes map[string][]int64) (*outputs.Model, error) {
			sizes, err := first.Family.Sizes(shapes)
			if err != nil {
				return nil, err
			}
			asked, err := dynamic.Choose(first.Family, sizes)
			if err != nil {
				return nil, err
			}
			return g.open(asked)
		}
	}
	verify := set.Verify
	if c.Bool("update") {
		verify = set.Update
	}
	r, err := verify(c.Context, m)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		e := json.NewEncoder(c.App.Writer)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		_, err = fmt.Fprint(c.App.Writer, r)
	}
	if err == nil && !r.OK() && !c.Bool("update") {
		err = errNo
	}
	return err
}

// goldens opens the sizes of a model that cases are of, one at a time.
type goldens struct {
	c     *cli.Context
	model *popef.Model
	size  int64 // bytes of its files
	files [][2]string
	asked *dynamic.Request
	d     *dynamic.Model // the one that is open; nil if none is
	m     *outputs.Model
}

// open returns the model of a size; the one before is closed.
func (g *goldens) open(asked *dynamic.Request) (*outputs.Model, error) {
	if g.d != nil && asked != nil && slices.Equal(asked.Sizes, g.asked.Sizes) {
		return g.m, nil
	}
	if err := g.close(); err != nil {
		return nil, err
	}
	d, err := openDynamic(g.c, g.model, g.size, asked)
	if err != nil {
		return nil, err
	}
	g.d, g.asked = d, asked
	if g.m, err = d.Golden(); err != nil {
		return nil, err
	}
	// The cases fill the inputs of every run; others are given here.
	d.GivenByCases()
	return g.m, d.Fill(g.files, randomSeed(g.c, 0))
}

// close closes what is open.
func (g *goldens) close() error {
	if g.d == nil {
		return nil
	}
	d := g.d
	g.d = nil
	return d.Close()
}

// withDynamic opens what is asked of a model, and closes it when do is done.
func withDynamic(c *cli.Context, m *popef.Model, size int64, asked *dynamic.Request, do func(*dynamic.Model) error) (err error) {
	d, err := openDynamic(c, m, size, asked)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return do(d)
}
