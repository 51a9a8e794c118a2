package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/checkpoint"
	"github.com/popefgen/popefgen/popef/contract"
)

var extractCommand = &cli.Command{
	Name:  "extract",
	Usage: "get the model of inference back from a training model, with the weights that were learnt",
	UsageText: "popefgen extract TRAINING.popef [--checkpoint FILE] -o MODEL.onnx|MODEL.popef [flags]\n\n" +
		"The ONNX file is that of which the training model was compiled, byte for byte but for its weights. A PopEF file is what popefgen compile\n" +
		"makes of it; without --batch, --dim and so on of the sizes that were trained with.\n\nexample: popefgen extract training.popef --checkpoint learnt.popef -o digits.onnx",
	ArgsUsage: "TRAINING.popef",
	Flags: append([]cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write, .onnx or .popef"},
		&cli.StringFlag{Name: "checkpoint", Usage: "`FILE` with the learnt weights: a checkpoint, or .npz with an array for each weight (default: the training model's own)"},
		&cli.BoolFlag{Name: "compress", Usage: "compress the executable of a .popef"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print nothing"},
	}, modelFlags...),
	Action: func(c *cli.Context) error {
		path, err := oneArg(c, "training model")
		if err != nil {
			return err
		}
		if err := extract(c, path); err != nil {
			return fmt.Errorf("extract: %w", err)
		}
		return nil
	},
}

// extract writes the model of inference of the training model at path.
func extract(c *cli.Context, path string) error {
	to := c.String("output")
	ext := strings.ToLower(filepath.Ext(to))
	switch {
	case ext != ".onnx" && ext != ".popef":
		return fmt.Errorf("-o %q: want a file to write, .onnx or .popef", to)
	case same(path, to), same(c.String("checkpoint"), to):
		return fmt.Errorf("%s would be written over; choose another file with -o", to)
	case ext == ".onnx":
		for _, f := range modelFlags {
			if n := f.Names()[0]; c.IsSet(n) {
				return fmt.Errorf("--%s is for .popef files; an .onnx file has what the model had", n)
			}
		}
	}
	m, err := popef.LoadContext(c.Context, path)
	if err != nil {
		return kind.NotPopEF(err, path)
	}
	defer m.Close()
	about, err := train.ReadAbout(m)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var learnt map[string][]byte
	if from := c.String("checkpoint"); from != "" {
		if learnt, err = learntWeights(c.Context, m, about, from); err != nil {
			return err
		}
	}
	file, err := train.Extract(m, learnt)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	if ext == ".onnx" {
		err = atomicfile.WriteBytes(to, file)
	} else {
		err = compileExtracted(c, path, about, file, to)
	}
	if err != nil || c.Bool("quiet") {
		return err
	}
	source := path
	if from := c.String("checkpoint"); from != "" {
		source = from
	}
	st, err := os.Stat(to)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "%s: %s, %d learnt weights of %s\n", to, humanize.IBytes(uint64(st.Size())), len(about.Trained), source)
	return nil
}

// learntWeights reads the weights that a training model has learnt from a file.
func learntWeights(ctx context.Context, m *popef.Model, about *train.About, from string) (map[string][]byte, error) {
	learnt := map[string][]byte{}
	if kind.Of(from) == kind.Zip {
		return learnt, weightsOfArchive(ctx, m, about, from, learnt)
	}
	p, err := checkpoint.ReadContext(ctx, from)
	if err != nil {
		return nil, err
	}
	tensors, err := p.For(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	for _, t := range tensors {
		if t.Role == contract.LoadData {
			learnt[t.Name] = t.Data
		}
	}
	return learnt, nil
}

// weightsOfArchive reads weights from an .npz file: all that are trained, and others where it has them.
func weightsOfArchive(ctx context.Context, m *popef.Model, about *train.About, from string, learnt map[string][]byte) error {
	a, err := npy.OpenArchive(from)
	if err != nil {
		return err
	}
	defer a.Close()
	halves, err := train.BFloat16(ctx, m)
	if err != nil {
		return err
	}
	names := a.Names()
	for i := range m.Metadata.Anchors {
		x := &m.Metadata.Anchors[i]
		if x.Type != popef.Input {
			continue
		}
		in := x.Name
		if !slices.Contains(names, in) {
			in = npy.FileName(x.Name, "")
		}
		if slices.Contains(names, in) {
			if learnt[x.Name], err = a.Read(in, fmt.Sprintf("weight %q", x.Name), x.Info); err != nil {
				return err
			}
			t := checkpoint.Tensor{Name: x.Name, Role: contract.LoadData, Info: x.Info, Data: learnt[x.Name], BFloat16: halves[x.Handle]}
			t.Given, _ = m.TensorData(x.Name) // a mask of the model, for instance
			if err := t.Finite(); err != nil {
				return fmt.Errorf("%s: %w", from, err)
			}
		} else if slices.Contains(about.Trained, x.Name) {
			return fmt.Errorf("%s: weight %q is missing%s", from, x.Name, nearest.DidYouMean(x.Name, names))
		}
	}
	return nil
}

// compileExtracted compiles the ONNX model to the PopEF file to, for the sizes that the flags say, or those that were trained with.
func compileExtracted(c *cli.Context, path string, about *train.About, file []byte, to string) error {
	o, err := optionsOf(c)
	if err != nil {
		return err
	}
	room := budget.From(c.Context).Part(0)
	defer room.Release()
	ctx := budget.Into(c.Context, room)
	if err := room.Take(int64(len(file)), "%s", path); err != nil {
		return err
	}
	m, err := onnx.Decode(file, filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	sized, err := o.compileOptions(m)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc([]string{"dim", "batch", "size"}, c.IsSet) {
		sized.Shapes, sized.Members, sized.Rules = about.Shapes, about.Members, about.Rules
	}
	r, err := compile.CompileContext(ctx, m, sized)
	if err != nil {
		return fmt.Errorf("%s: %w", path, o.hint(err))
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(c.App.ErrWriter, "warning: %s\n", w)
	}
	return r.WriteFile(to, c.Bool("compress"))
}
