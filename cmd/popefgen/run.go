package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
)

// engineFlags are the flags of every command that runs a model.
var engineFlags = []cli.Flag{
	&cli.IntFlag{Name: "threads", Usage: "run with `N` threads", DefaultText: "one per core"},
	&cli.StringFlag{Name: "backend", Usage: "`NAME` of the back end", Value: "cpu"},
	engineOptionFlag,
}

// engineOptionFlag gives the back end options in its own words.
var engineOptionFlag = &cli.StringSliceFlag{Name: "engine-option", Usage: "`NAME=VALUE`, an option of the back end, as layout=off; a wrong one lists all"}

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
	defer d.close()
	if err := fillInputs(d, files, randomSeed(c, 0)); err != nil {
		return err
	}
	dir := c.String("output-dir")
	if dir != "" { // before anything is computed, let alone written
		if err := distinctFiles(d.outputs); err != nil {
			return err
		}
	}
	if err := d.run(c.Context); err != nil {
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
	for _, p := range d.outputs {
		info := iterated(p.anchor.Info, d.iterations)
		if dir == "" {
			if err := printTensor(c.App.Writer, p.anchor.Name, info, p.data); err != nil {
				return err
			}
			continue
		}
		name := npy.FileName(p.anchor.Name, ".npy")
		to := filepath.Join(dir, name)
		err := atomicfile.Write(to, func(w io.Writer) error { return npy.Write(w, info, p.data) })
		if err != nil {
			return err
		}
		fmt.Fprintf(c.App.Writer, "%s: %s\n", to, info)
	}
	return nil
}

// distinctFiles returns which outputs would be written to the same file: names
// of anchors may differ only where names of files can't.
func distinctFiles(outputs []port) error {
	used := map[string]string{}
	for _, p := range outputs {
		name := npy.FileName(p.anchor.Name, ".npy")
		if other, ok := used[strings.ToLower(name)]; ok {
			return fmt.Errorf("outputs %q and %q would both be written to %s: rename one in the model, or leave out --output-dir", other, p.anchor.Name, name)
		}
		used[strings.ToLower(name)] = p.anchor.Name
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

// fillInputs gives every input a value from the files or at random.
func fillInputs(d *dynamic, files [][2]string, seed *uint64) error {
	for _, f := range files {
		p := d.input(f[0])
		if p == nil {
			var names []string
			for _, p := range d.inputs {
				names = append(names, p.anchor.Name)
			}
			return unknownInput(f, names)
		}
		data, err := tensorfile.ReadValue(f[1], p.anchor.Info, d.iterations)
		if err != nil {
			return fmt.Errorf("input %q: %w", f[0], err)
		}
		copy(p.data, data)
		p.given = true
	}
	var missing []string
	for i := range d.inputs {
		p := &d.inputs[i]
		switch {
		case p.given:
		case seed != nil:
			fillRandom(p.anchor.Info.DataType, p.data, *seed+uint64(i))
		default:
			missing = append(missing, fmt.Sprintf("\n  --input %s=VALUE  %s", printable.Line(p.anchor.Name), iterated(p.anchor.Info, d.iterations)))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("inputs are missing:%s\nhint: give each a .npy, .pb or .bin file, a number or a list (1,2,3), or those that are left random values with --random SEED", strings.Join(missing, ""))
	}
	return nil
}

// iterated is the type of all transfers of one run.
func iterated(info popef.TensorInfo, iterations int64) popef.TensorInfo {
	if iterations > 1 {
		info.Shape = append([]int64{iterations}, info.Shape...)
	}
	return info
}

// printTensor shows the beginning of a tensor.
func printTensor(w io.Writer, name string, info popef.TensorInfo, data []byte) error {
	const most = 16
	n, err := info.Elements()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n ", printable.Line(name), info)
	for i := range min(n, most) {
		b.WriteString(" " + elementText(info.DataType, data[i*int64(info.DataType.Size()):]))
	}
	if n > most {
		fmt.Fprintf(&b, " … %d more", n-most)
	}
	_, err = fmt.Fprintln(w, b.String())
	return err
}
