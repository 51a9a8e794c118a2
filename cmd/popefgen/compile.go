package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/printable"
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
	&cli.StringSliceFlag{Category: onnxOnly, Name: "dim", Usage: "size of a dimension, `NAME=SIZE`, or by its place, INPUT[AXIS]=SIZE"},
	&cli.Int64Flag{Category: onnxOnly, Name: "batch", Usage: "`SIZE` of every open first dimension of an input"},
	&cli.StringSliceFlag{Category: onnxOnly, Name: "bind", Usage: "fix an input's value, for inputs that decide a shape: `INPUT=VALUE` with a number, a list (1,2,3) or a file (.npy, .pb or @FILE)"},
	maxFlag,
	&cli.Int64Flag{Category: onnxOnly, Name: "iterations", Usage: "device iterations: compute `N` times per run", Value: 1},
	&cli.StringSliceFlag{Category: onnxOnly, Name: "without-pass", Usage: "leave out a graph pass, `NAME`, to see what it does or to get around it: " + passNames()},
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
	Usage:     "compile an ONNX model to a PopEF model",
	UsageText: "popefgen compile MODEL.onnx -o MODEL.popef [flags]\n\nexample: popefgen compile digits.onnx -o digits.popef --batch 1",
	ArgsUsage: "MODEL.onnx",
	Flags: append([]cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write (default: the model's name with .popef)"},
		&cli.BoolFlag{Name: "compress", Usage: "compress the executable; it is then not used in place from the file"},
		&cli.BoolFlag{Name: "overlap", Usage: "ask runners to move data of some requests while others are computed, on devices that gain by it; a CPU does not"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print no summary"},
	}, modelFlags...),
	Action: func(c *cli.Context) error {
		path, err := oneArg(c, "model")
		if err != nil {
			return err
		}
		to := c.String("output")
		if to == "" {
			to = strings.TrimSuffix(path, filepath.Ext(path)) + ".popef"
		}
		if k := kindOf(path); k == kindPopEF {
			return fmt.Errorf("compile: %w", notONNX(path, errors.ErrUnsupported))
		}
		if filepath.Clean(to) == filepath.Clean(path) {
			return fmt.Errorf("compile: %s would be written over; choose another file with -o", path)
		}
		start := time.Now()
		done := spin(c.App.ErrWriter, "compiling "+filepath.Base(path))
		r, err := compileONNX(c, path)
		done()
		if err != nil {
			return fmt.Errorf("compile: %w", err)
		}
		if c.Bool("overlap") {
			r.AskOverlap()
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
	ctx               context.Context // until when to compile; nil: without end
	iterations, batch int64
	constants         bool
	withoutPasses     []string
	dims              map[string]int64
	most              map[string]int64 // sizes that data decides, by name
	binds             [][2]string      // input, value: a literal or a file, see tensorfile.Path
}

// manySizes is a list of sizes, as people write it.
var manySizes = regexp.MustCompile(`^[^=,]+=[0-9]+(,[^=,]+=[0-9]+)+$`)

// optionsOf returns what the flags in modelFlags say.
func optionsOf(c *cli.Context) (modelOptions, error) {
	o := modelOptions{ctx: c.Context, iterations: c.Int64("iterations"), batch: c.Int64("batch"), constants: c.Bool("constants"),
		withoutPasses: c.StringSlice("without-pass"), dims: map[string]int64{}}
	for _, name := range o.withoutPasses {
		if names := strings.Split(passNames(), ", "); !slices.Contains(names, name) {
			return o, fmt.Errorf("--without-pass %s: there is no such pass, want one of %s%s", name, passNames(), nearest.DidYouMean(name, names))
		}
	}
	for _, text := range c.StringSlice("dim") {
		if manySizes.MatchString(text) {
			return o, fmt.Errorf("--dim %s: want one size; give each its own: --dim %s", text, strings.ReplaceAll(text, ",", " --dim "))
		}
		// The size has no "=", other than some names.
		at := max(strings.LastIndexByte(text, '='), 0)
		name := text[:at]
		n, err := strconv.ParseInt(strings.TrimPrefix(text[at:], "="), 10, 64)
		if name == "" || err != nil {
			return o, fmt.Errorf("--dim %s: want NAME=SIZE or INPUT[AXIS]=SIZE, one for each --dim", text)
		}
		if _, ok := o.dims[name]; ok {
			return o, fmt.Errorf("--dim: %q is given twice, want it once", name)
		}
		o.dims[name] = n
	}
	if c.IsSet("batch") && o.batch < 1 {
		return o, fmt.Errorf("--batch %d: want at least 1", o.batch)
	}
	var err error
	if o.most, err = maxima(c); err != nil {
		return o, err
	}
	o.binds, err = assignments("bind", c.StringSlice("bind"))
	return o, err
}

// compileONNX reads and compiles the ONNX model at path with the flags in modelFlags,
// and says what the user should know of it.
func compileONNX(c *cli.Context, path string) (*compile.Result, error) {
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
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
		return nil, notONNX(path, err)
	}
	to, err := o.compileOptions(m)
	if err != nil {
		return nil, err
	}
	r, err := compile.CompileContext(ctx, m, to)
	return r, o.hint(err)
}

// hint adds to an error of a model's node the sizes that were given, which may
// be what it does not like.
func (o *modelOptions) hint(err error) error {
	var (
		sizes       *onnx.SizeError
		dims        *onnx.DimError
		need        *onnx.NeedValueError
		unsupported *onnx.UnsupportedError
	)
	if err == nil || o.batch == 0 && len(o.dims) == 0 || errors.As(err, &sizes) || errors.As(err, &dims) || errors.As(err, &need) || errors.As(err, &unsupported) {
		return err
	}
	var given []string
	if o.batch > 0 {
		given = append(given, fmt.Sprintf("--batch %d", o.batch))
	}
	for _, name := range slices.Sorted(maps.Keys(o.dims)) {
		given = append(given, fmt.Sprintf("--dim %s=%d", name, o.dims[name]))
	}
	return fmt.Errorf("%w\nhint: that is so with %s; the model may be made for other sizes", err, strings.Join(given, " "))
}

// compileOptions returns what the options mean for the model m.
func (o *modelOptions) compileOptions(m *onnx.Model) (to compile.Options, err error) {
	if o.iterations < 1 {
		return to, fmt.Errorf("--iterations %d: want at least 1", o.iterations)
	}
	if o.batch < 0 {
		return to, fmt.Errorf("--batch %d: want at least 1", o.batch)
	}
	for name, n := range o.dims {
		if n < 0 {
			return to, fmt.Errorf("--dim %s=%d: want a size", name, n)
		}
	}
	to = compile.Options{Iterations: o.iterations, DisablePasses: o.withoutPasses}
	to.Batch, to.FoldWeights, to.Dims = o.batch, o.constants, o.dims
	to.Max = o.most
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
	fmt.Fprintf(w, "%s: %s, %d operators, %s, %s working memory, compiled in %s\n", path, humanize.IBytes(uint64(st.Size())),
		nodes, held, humanize.IBytes(uint64(plan.ArenaBytes)), took.Round(time.Millisecond))
	t := newTable("", "ANCHOR", "TYPE", "SHAPE", "BYTES", "HANDLE")
	for _, a := range r.Metadata.Anchors {
		if a.Programs[0] != compile.MainProgram {
			continue
		}
		kind := "input"
		if a.Type == popef.Output {
			kind = "output"
		}
		size, err := a.Info.SizeInBytes()
		if err != nil {
			return err
		}
		t.row(kind, a.Name, a.Info.DataType, shapeText(a.Info.Shape), size, a.Handle)
	}
	return t.print(w)
}

// spin shows that work goes on, on a terminal and once it takes a while; the
// result ends it.
func spin(w io.Writer, what string) (done func()) {
	if p, ok := w.(*printable.Writer); ok {
		w = p.Raw() // the bar moves the cursor
	}
	what = printable.Line(what)
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-stop:
			return
		case <-time.After(500 * time.Millisecond):
		}
		bar := progressbar.NewOptions(-1, progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(os.Getenv("NO_COLOR") == ""))
		for {
			select {
			case <-stop:
				bar.Finish()
				return
			case <-time.After(100 * time.Millisecond):
				bar.Add(1)
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// shapeText shows a shape as the generated code's comments do.
func shapeText(shape []int64) string {
	if len(shape) == 0 {
		return "scalar"
	}
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
}
