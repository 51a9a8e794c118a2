package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// engineFlags are the flags of every command that runs a model.
var engineFlags = []cli.Flag{
	&cli.IntFlag{Name: "threads", Usage: "run with `N` threads", DefaultText: "one per core"},
	&cli.StringFlag{Name: "backend", Usage: "`NAME` of the back end", Value: cpu.Name, EnvVars: []string{rt.BackendVariable}, DefaultText: "what " + rt.BackendVariable + " names, else " + cpu.Name},
	engineOptionFlag,
}

// engineOptionFlag gives the back end options in its own words.
var engineOptionFlag = &cli.StringSliceFlag{Name: "engine-option", Usage: "`NAME=VALUE`, an option of the back end, as layout=off; a wrong one lists all"}

// backendName returns the back end that the flag or the environment names. An empty name is none, as for runners.
func backendName(c *cli.Context) string { return cmp.Or(c.String("backend"), cpu.Name) }

// engineOptions returns what engineOptionFlag gives.
func engineOptions(c *cli.Context) ([]ipu.Option, error) {
	pairs, err := assignments("engine-option", c.StringSlice("engine-option"))
	var out []ipu.Option
	for _, p := range pairs {
		out = append(out, ipu.Option{Name: p[0], Value: p[1]})
	}
	return out, err
}

var runCommand = &cli.Command{
	Name:  "run",
	Usage: "run a model once on given inputs",
	UsageText: "popefgen run MODEL.popef|MODEL.onnx [--input NAME=VALUE]… [flags]\n\n" +
		"example: popefgen run digits.popef --input image=scan.npy --output-dir out\nexample: popefgen run digits.onnx --batch 1 --random 1\n" +
		"example: popefgen run bert.popef --size batch=1,seq=20 --random 1",
	ArgsUsage: "MODEL.popef|MODEL.onnx",
	Flags: withSize(append(append([]cli.Flag{
		&cli.StringSliceFlag{Name: "input", Aliases: []string{"i"}, Usage: "value of an input, `NAME=VALUE`: a file (.npy, .pb, raw .bin or @FILE), a number, which fills the tensor, or a list (1,2,3)"},
		&cli.Uint64Flag{Name: "random", Usage: "fill inputs that are not given with random values from `SEED`"},
		&cli.StringFlag{Name: "output-dir", Usage: "write every output to `DIR` as .npy, named after its anchor"},
		branchFlag,
	}, engineFlags...), modelFlags...)),
	Action: func(c *cli.Context) error {
		path, err := oneArg(c, "model")
		if err != nil {
			return err
		}
		if err := runModel(c, path); err != nil {
			return fmt.Errorf("run: %w", err)
		}
		return nil
	},
}

func runModel(c *cli.Context, path string) error {
	files, err := assignments("input", c.StringSlice("input"))
	if err != nil {
		return err
	}
	m, size, err := openModel(c, path)
	if err != nil {
		return err
	}
	defer m.Close()
	asked, err := requestOf(c, m, files)
	if err != nil {
		return err
	}
	d, err := openDynamic(c, m, size, asked)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Fill(files, randomSeed(c, 0)); err != nil {
		return err
	}
	dir := c.String("output-dir")
	if dir != "" { // before anything is computed, let alone written
		if err := distinctFiles(d.Outputs); err != nil {
			return err
		}
	}
	if err := d.Run(c.Context); err != nil {
		return err
	}
	if asked != nil {
		fmt.Fprintln(c.App.ErrWriter, asked)
	}
	if dir != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	for _, p := range d.Outputs {
		info := p.Info()
		if dir == "" {
			if err := dynamic.Print(c.App.Writer, p.Anchor.Name, info, p.Data); err != nil {
				return err
			}
			continue
		}
		name := npy.FileName(p.Anchor.Name, ".npy")
		to := filepath.Join(dir, name)
		err := atomicfile.Write(to, func(w io.Writer) error { return npy.Write(w, info, p.Data) })
		if err != nil {
			return err
		}
		fmt.Fprintf(c.App.Writer, "%s: %s\n", to, info)
	}
	return nil
}

// distinctFiles returns which outputs would be written to the same file: names
// of anchors may differ only where names of files can't.
func distinctFiles(outputs []dynamic.Port) error {
	used := map[string]string{}
	for _, p := range outputs {
		name := npy.FileName(p.Anchor.Name, ".npy")
		if other, ok := used[strings.ToLower(name)]; ok {
			return fmt.Errorf("outputs %q and %q would both be written to %s: rename one in the model, or leave out --output-dir", other, p.Anchor.Name, name)
		}
		used[strings.ToLower(name)] = p.Anchor.Name
	}
	return nil
}

// randomSeed returns the seed that --random gives for a case, nil if it is not
// given.
func randomSeed(c *cli.Context, number int) *uint64 {
	if !c.IsSet("random") {
		return nil
	}
	seed := c.Uint64("random") + uint64(number)<<32 // every input adds its own number
	return &seed
}

// openDynamic opens a model, whose files have size bytes, as engineFlags say. Of a
// family it runs what is asked for.
func openDynamic(c *cli.Context, m *popef.Model, size int64, asked *dynamic.Request) (*dynamic.Model, error) {
	if f, err := dynamic.FamilyOf(m); err != nil {
		return nil, err
	} else if f != nil && len(f.Members) > 1 && asked == nil {
		return nil, fmt.Errorf("the model has several sizes, and this command runs one: give a model of one size (compile --dim with one number for each dimension)")
	}
	if asked != nil {
		m = asked.Family.Single(m, asked.Member)
	}
	opts := []modelrt.SessionOption{rt.WithBackend(backendName(c))}
	if threads := c.Int("threads"); threads < 0 {
		return nil, fmt.Errorf("--threads %d: want 1 or more", threads)
	} else if threads != 0 {
		opts = append(opts, rt.WithThreads(threads))
	}
	given, err := engineOptions(c)
	if err != nil {
		return nil, err
	}
	for _, o := range append(dynamic.BoundWork(backendName(c), m, size), given...) {
		opts = append(opts, rt.WithEngineOption(o.Name, o.Value))
	}
	return dynamic.Open(c.Context, m, asked, opts...)
}

// execute runs a model once, whose files have size bytes; it is a verify.Executor
// with the flags bound.
func execute(ctx context.Context, c *cli.Context, m *popef.Model, size int64, inputs map[string][]byte) (outputs map[string][]byte, err error) {
	d, err := openDynamic(c, m, size, nil)
	if err != nil {
		return nil, err
	}
	return d.Execute(ctx, inputs)
}
