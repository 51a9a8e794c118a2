package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/popefgen/popefgen/popef"
)

var verifyCommand = &cli.Command{
	Name:  "verify",
	Usage: "run ONNX models on stored inputs and compare with stored outputs",
	UsageText: "popefgen verify DIR… [flags]\n\nEach DIR holds model.onnx and test_data_set_N/input_I.pb, output_I.pb: the layout of ONNX's own tests.\n\n" +
		"Every data set is run in its own size. With several sizes, by --batch, --dim, --size or --family, the model is compiled once as a family: each set goes through the member of its size " +
		"and, filled up, through the next larger one where that is allowed.\n\n" +
		"example: popefgen verify --recursive ../shared/data/onnx-node-tests\n" +
		"example: popefgen verify bert --batch 1,4 --dim seq=32,64 --pad seq=tokens:0,mask:0",
	ArgsUsage: "DIR…",
	Flags: append(append([]cli.Flag{
		&cli.BoolFlag{Name: "recursive", Aliases: []string{"r"}, Usage: "look for such folders at any depth"},
		&cli.Float64Flag{Name: "rtol", Usage: "relative tolerance `X` of floats", Value: 1e-3},
		&cli.Float64Flag{Name: "atol", Usage: "absolute tolerance `X` of floats", Value: 1e-7},
		&cli.IntFlag{Name: "noise", Usage: "run what differs `N` more times with inputs changed in the last place, and accept what one of those runs gives: for outputs that jump"},
		&cli.BoolFlag{Name: "open", Usage: "leave inputs that decide sizes as data: of them nothing but the most that there may be is known when the model is compiled"},
		&cli.BoolFlag{Name: "family", Usage: "make a family of each model, of the sizes of its data sets and those that are given"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON, one object a line"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print only what does not pass"},
	}, engineFlags...), modelFlags...),
	Action: func(c *cli.Context) error {
		if c.NArg() == 0 {
			return fmt.Errorf("verify: which folder? (usage: popefgen verify DIR…)")
		}
		cases, err := verify.Find(c.Args().Slice(), c.Bool("recursive"))
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		o := verify.Options{Tolerance: verify.Tolerance{Rel: c.Float64("rtol"), Abs: c.Float64("atol")}, Noise: c.Int("noise")}
		if o.Noise < 0 || o.Noise > 1000 {
			return fmt.Errorf("verify: --noise is %d, want 0 to 1000", o.Noise)
		}
		o.Open, o.SizesOfData = c.Bool("open"), c.Bool("family")
		if o.Members, err = membersOf(c); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		enc := json.NewEncoder(c.App.Writer)
		count, folded := map[verify.Verdict]int{}, 0
		for _, k := range cases {
			size := dynamic.SizeOf(k.Dir)
			o.Execute = func(ctx context.Context, m *popef.Model, inputs map[string][]byte) (map[string][]byte, error) {
				return execute(ctx, c, m, size, inputs)
			}
			results, err := verify.Run(c.Context, k, o)
			if err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			for _, r := range results {
				count[r.Verdict]++
				if r.Folded && r.Verdict == verify.Pass {
					folded++
				}
				switch {
				case c.Bool("quiet") && r.Verdict == verify.Pass:
				case c.Bool("json"):
					if err := enc.Encode(r); err != nil {
						return err
					}
				default:
					printVerdict(c, k, r)
				}
			}
		}
		if !c.Bool("json") {
			passed := fmt.Sprintf("%d passed", count[verify.Pass])
			if folded > 0 {
				passed += fmt.Sprintf(" (%d of them computed when they were compiled)", folded)
			}
			fmt.Fprintf(c.App.Writer, "%s, %d failed, %d skipped\n", passed, count[verify.Fail], count[verify.Skip])
		}
		if count[verify.Fail] > 0 {
			return errNo
		}
		return nil
	},
}

// membersOf returns what the flags in modelFlags say of a model, nil if none is given.
func membersOf(c *cli.Context) (func(*onnx.Model) (compile.Options, error), error) {
	given, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(modelFlags, func(f cli.Flag) bool { return c.IsSet(f.Names()[0]) }) {
		return nil, nil
	}
	if given.iterations > 1 {
		return nil, fmt.Errorf("--iterations %d: data sets hold the inputs of one", given.iterations)
	}
	if !c.Bool("family") && !given.Several() && len(given.Pads) == 0 && len(given.Dims)+len(given.Batch.Sizes)+len(given.Sizes) > 0 {
		return nil, fmt.Errorf("one size is given, but every data set has its own: give several sizes, which make a family, or --family, or no size")
	}
	return given.compileOptions, nil
}

func printVerdict(c *cli.Context, k verify.Case, r verify.Result) {
	name := k.Dir
	if len(k.Sets) > 1 {
		name = filepath.Join(name, filepath.Base(r.Set))
	}
	if r.Member != "" {
		name += "  by " + printable.Line(r.Member)
		if r.Filled != "" {
			name += ", filled up from " + printable.Line(r.Filled)
		}
	}
	if r.Verdict == verify.Pass {
		noise := ""
		if r.Noise > 0 {
			noise = fmt.Sprintf(", besides %d elements that rounding of the inputs decides", r.Noise)
		}
		if r.Folded {
			noise += ", computed when it was compiled"
		}
		fmt.Fprintf(c.App.Writer, "PASS  %s  worst error %.3g%s\n", name, r.Worst, noise)
		return
	}
	fmt.Fprintf(c.App.Writer, "%s  %s  %s\n", r.Verdict, name, r.Reason)
}
