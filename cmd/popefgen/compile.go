package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/working"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/sizes"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
)

// onnxOnly is the heading of [modelFlags] in help.
const onnxOnly = "For ONNX models:"

// modelFlags are the flags that fix an ONNX model's open ends.
var modelFlags = []cli.Flag{
	&cli.StringSliceFlag{Category: onnxOnly, Name: "dim", Usage: "size of a dimension, `NAME=SIZE`, or by its place, INPUT[AXIS]=SIZE. Several sizes (16,32,64 or 16..128:*2 or 16..64:+16) make a family: one model for all combinations. NAME=OTHER, NAME=OTHER+1 and so on: always what follows from another one"},
	&cli.StringFlag{Category: onnxOnly, Name: "batch", Usage: "`SIZE` of every open first dimension of an input, or several of them"},
	&cli.StringSliceFlag{Category: onnxOnly, Name: "size", Usage: "sizes of one member of a family, `NAME=SIZE,NAME=SIZE`, instead of all combinations; once for each member"},
	&cli.StringSliceFlag{Category: onnxOnly, Name: "pad", Usage: "what smaller requests may be filled up with along a dimension of a family, `DIM=INPUT:VALUE,INPUT:VALUE`, for every input of that dimension; say so only if results stay the same, which is tried with a request"},
	&cli.BoolFlag{Category: onnxOnly, Name: "pad-untried", Usage: "do not try whether --pad changes results: for models that take no request of ones and random numbers"},
	&cli.StringSliceFlag{Category: onnxOnly, Name: "bind", Usage: "fix an input's value, for inputs that decide a shape: `INPUT=VALUE` with a number, a list (1,2,3) or a file (.npy, .pb or @FILE)"},
	maxFlag,
	&cli.Int64Flag{Category: onnxOnly, Name: "iterations", Usage: "device iterations: compute `N` times per run", Value: 1},
	&cli.StringSliceFlag{Category: onnxOnly, Name: "without-pass", Usage: "leave out a graph pass, `NAME`, to see what it does or to get around it: " + passNames()},
	&cli.Int64Flag{Category: onnxOnly, Name: "concat-inputs", Usage: "join inputs of at most `BYTES` into one transfer, for models of many small inputs; callers see no difference"},
	&cli.BoolFlag{Category: onnxOnly, Name: "constants", Usage: "make weights constants of the executable, not data of the file"},
}

// passNames lists the graph passes in the order in which they run.
func passNames() string {
	names := make([]string, len(pass.Passes))
	for i, p := range pass.Passes {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

var compileCommand = &cli.Command{
	Name:      "compile",
	Usage:     "compile an ONNX model to a PopEF model, or several of a list to one",
	UsageText: "popefgen compile MODEL.onnx | LIST.yaml -o MODEL.popef [flags]\n\nexample: popefgen compile digits.onnx -o digits.popef --batch 1",
	ArgsUsage: "MODEL.onnx | LIST.yaml",
	Flags: slices.Concat([]cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write (default: the model's name with .popef)"},
		&cli.BoolFlag{Name: "compress", Usage: "compress the executable; it is then not used in place from the file"},
		&cli.BoolFlag{Name: "overlap", Usage: "ask runners to move data of some requests while others are computed, on devices that gain by it; a CPU does not"},
		&cli.BoolFlag{Name: "package-hash", Usage: "record how operators are defined: where they are defined otherwise, the file is refused (rt.SkipHashCheck runs it all the same). An older popefgen can't read it"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print no summary"},
	}, modelFlags, trainFlags),
	Action: func(c *cli.Context) error {
		path, err := oneArg(c, "model")
		if err != nil {
			return err
		}
		to := c.String("output")
		if to == "" {
			to = strings.TrimSuffix(path, filepath.Ext(path)) + ".popef"
		}
		if k := kind.Of(path); k == kind.PopEF {
			return fmt.Errorf("compile: %w", kind.NotONNX(path, errors.ErrUnsupported))
		}
		if same(path, to) {
			return fmt.Errorf("compile: %s would be written over; choose another file with -o", path)
		}
		if learns, err := trains(c); err != nil || learns {
			if err == nil {
				err = compileTraining(c, path, to)
			}
			return err
		}
		start := time.Now()
		what := "compiling " + filepath.Base(path)
		say, done := working.Show(c.App.ErrWriter, what)
		with := compileWith
		if listsModels(path) {
			with = compileList
		}
		r, err := with(c, path, func(p compile.Progress) { say(fmt.Sprintf("%s: %d of %d (%s)", what, p.Done, p.Members, p.Sizes)) })
		done()
		if err != nil {
			return fmt.Errorf("compile: %w", err)
		}
		if c.Bool("overlap") {
			r.AskOverlap()
		}
		if c.Bool("package-hash") {
			if err := r.RecordPackage(); err != nil {
				return fmt.Errorf("compile: %w", err)
			}
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return fmt.Errorf("compile: %w", err)
		}
		if err := r.WriteFile(to, c.Bool("compress")); err != nil {
			return fmt.Errorf("compile: %w", err)
		}
		if c.Bool("quiet") {
			return nil
		}
		return summary(c.Context, c.App.Writer, r, to, time.Since(start))
	},
}

// modelOptions fix an ONNX model's open ends, see modelFlags.
type modelOptions struct {
	sizes.Options
	ctx           context.Context // until when to compile; nil: without end
	iterations    int64
	constants     bool
	withoutPasses []string
	joins         *int64           // bytes up to which inputs are joined; nil for none
	untried       bool             // declared padding is taken as right
	most          map[string]int64 // sizes that data decides, by name
	binds         [][2]string      // input, value: a literal or a file, see tensorfile.Path
	progress      func(compile.Progress)
}

// optionsOf returns what the flags in modelFlags say.
func optionsOf(c *cli.Context) (modelOptions, error) {
	o := modelOptions{ctx: c.Context, iterations: c.Int64("iterations"), constants: c.Bool("constants"), withoutPasses: c.StringSlice("without-pass"), untried: c.Bool("pad-untried")}
	for _, name := range o.withoutPasses {
		if names := strings.Split(passNames(), ", "); !slices.Contains(names, name) {
			return o, fmt.Errorf("--without-pass %s: there is no such pass, want one of %s%s", name, passNames(), nearest.Like(name, names))
		}
	}
	if c.IsSet("concat-inputs") {
		n := c.Int64("concat-inputs")
		o.joins = &n
	}
	var err error
	if o.Dims, err = sizes.ParseDims(c.StringSlice("dim")); err != nil {
		return o, err
	}
	if c.IsSet("batch") {
		if o.Batch, err = sizes.ParseBatch(c.String("batch")); err != nil {
			return o, err
		}
	}
	if o.Sizes, err = sizes.ParseTuples(c.StringSlice("size")); err != nil {
		return o, err
	}
	if o.Pads, err = sizes.ParsePads(c.StringSlice("pad")); err != nil {
		return o, err
	}
	if o.most, err = maxima(c); err != nil {
		return o, err
	}
	o.binds, err = assignments("bind", c.StringSlice("bind"))
	return o, err
}

// compileONNX reads and compiles the ONNX model at path with the flags in modelFlags,
// and says what the user should know of it.
func compileONNX(c *cli.Context, path string) (*compile.Result, error) {
	return compileWith(c, path, nil)
}

// compileWith is compileONNX that tells how far a family is.
func compileWith(c *cli.Context, path string, progress func(compile.Progress)) (*compile.Result, error) {
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	o.progress = progress
	r, err := compileFile(path, o)
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(c.App.ErrWriter, "warning: %s\n", w)
	}
	return r, nil
}

// compileFile reads and compiles the ONNX model at path.
func compileFile(path string, o modelOptions) (*compile.Result, error) {
	ctx := o.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	room := budget.From(ctx).Part(0)
	defer room.Release() // what is compiled is all that stays
	ctx = budget.Into(ctx, room)
	m, err := onnx.ReadFileContext(ctx, path)
	if err != nil {
		return nil, kind.NotONNX(path, err)
	}
	to, err := o.compileOptions(m)
	if err != nil {
		return nil, err
	}
	to.Progress = o.progress
	r, err := compile.CompileContext(ctx, m, to)
	if err != nil {
		return nil, o.hint(err)
	}
	if !o.untried {
		err = tryPads(ctx, path, r)
	}
	return r, err
}

// hint adds to an error of a model's node the sizes that were given, which may
// be what it does not like.
func (o *modelOptions) hint(err error) error {
	var (
		misfit      *onnx.SizeError
		dims        *onnx.DimError
		need        *onnx.NeedValueError
		unsupported *onnx.UnsupportedError
	)
	if err == nil || o.Several() || len(o.Batch.Sizes) == 0 && len(o.Dims) == 0 || errors.As(err, &misfit) || errors.As(err, &dims) || errors.As(err, &need) || errors.As(err, &unsupported) {
		return err
	}
	var given []string
	if len(o.Batch.Sizes) > 0 {
		given = append(given, "--batch "+o.Batch.Text)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Dims)) {
		given = append(given, fmt.Sprintf("--dim %s=%s", name, o.Dims[name].Text))
	}
	return fmt.Errorf("%w\nhint: that is so with %s; the model may be made for other sizes", err, strings.Join(given, " "))
}

// compileOptions returns what the options mean for the model m.
func (o *modelOptions) compileOptions(m *onnx.Model) (to compile.Options, err error) {
	if o.iterations < 1 {
		return to, fmt.Errorf("--iterations %d: want at least 1", o.iterations)
	}
	to = compile.Options{Iterations: o.iterations, DisablePasses: o.withoutPasses}
	to.FoldWeights, to.Max = o.constants, o.most
	if o.joins != nil {
		if to.JoinInputs = *o.joins; to.JoinInputs < 1 {
			return to, fmt.Errorf("--concat-inputs %d: want the bytes up to which inputs are joined, at least 1", to.JoinInputs)
		}
	}
	if err := o.Set(m, &to); err != nil {
		return to, err
	}
	to.Values, err = bindings(o.binds, m)
	return to, err
}

// summary prints what was compiled.
func summary(ctx context.Context, w io.Writer, r *compile.Result, path string, took time.Duration) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	plan, err := cpu.PlanOfContext(ctx, r.Executable, 1)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var weights uint64
	for _, t := range r.Weights {
		weights += uint64(len(t.Data))
	}
	nodes := 0
	for _, g := range r.Executable.Graphs {
		nodes += len(g.Nodes)
	}
	constants := uint64(0)
	for _, t := range r.Executable.Tensors {
		constants += uint64(len(t.Data))
	}
	held := fmt.Sprintf("%d weights (%s)", len(r.Weights), humanize.IBytes(weights))
	if constants >= 1<<10 { // where quantised weights are, and those of exporters that write them as Constant nodes
		held += fmt.Sprintf(", %s of constants", humanize.IBytes(constants))
	}
	members := ""
	if r.Family != nil && len(r.Family.Members) > 1 {
		members = fmt.Sprintf("%d members, ", len(r.Family.Members))
	}
	if r.Branches != nil {
		members = fmt.Sprintf("%d branches, ", len(r.Branches))
	}
	fmt.Fprintf(w, "%s: %s, %s%d operators, %s, %s working memory, compiled in %s\n", path, humanize.IBytes(uint64(st.Size())),
		members, nodes, held, humanize.IBytes(uint64(plan.ArenaBytes)), took.Round(time.Millisecond))
	for _, j := range r.Joined {
		size, _ := j.Anchor.Info.SizeInBytes()
		fmt.Fprintf(w, "%d inputs in one transfer of %s: %s\n", len(j.Fields), humanize.IBytes(uint64(size)), j.Anchor.Handle)
	}
	if r.Family != nil && len(r.Family.Members) > 1 {
		return summariseFamily(w, r)
	}
	if r.Branches != nil {
		return summariseBranches(w, r)
	}
	t := table.New("", "ANCHOR", "TYPE", "SHAPE", "BYTES", "HANDLE")
	for _, a := range r.Metadata.Anchors {
		if a.Programs[0] != compile.MainProgram {
			continue
		}
		size, err := a.Info.SizeInBytes()
		if err != nil {
			return err
		}
		t.Row(direction(a.Type), a.Name, a.Info.DataType, table.Shape(a.Info.Shape), size, a.Handle)
	}
	return t.Print(w)
}

// direction is what an anchor of a main program is called.
func direction(t popef.TensorType) string {
	if t == popef.Output {
		return "output"
	}
	return "input"
}
