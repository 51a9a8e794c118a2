package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/opinion"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/reduce"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/popefgen/popefgen/popef"
)

var reduceCommand = &cli.Command{
	Name:  "reduce",
	Usage: "find the smallest part of an ONNX model that still fails",
	UsageText: "popefgen reduce MODEL.onnx -o small.onnx [flags]\n\n" +
		"It writes small.onnx and, with its inputs and what it should give, the folder small in the layout of ONNX's tests.\n" +
		"What a failure is: where run refuses the model or dies of it, the same message; else another result than the plain\n" +
		"kernels give without graph passes, or than another build (--against), stored outputs (--data, --expect) or a\n" +
		"command (--check) say.\n\n" +
		"example: popefgen reduce model.onnx --input x=x.npy -o small.onnx\n" +
		"         popefgen reduce model.onnx --batch 1 --against ../other/popefgen -o small.onnx\n" +
		"         popefgen reduce model.onnx --check 'python3 differs.py {}' -o small.onnx",
	ArgsUsage: "MODEL.onnx -o small.onnx",
	Flags: append(append([]cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE.onnx` to write; the folder FILE gets the test", Value: "small.onnx"},
		&cli.StringSliceFlag{Name: "input", Aliases: []string{"i"}, Usage: "value of an input, `NAME=VALUE`: a file (.npy, .pb, raw .bin or @FILE), a number, which fills the tensor, or a list (1,2,3)"},
		&cli.StringFlag{Name: "data", Usage: "take inputs, and outputs to compare with, from the data set `DIR` (input_N.pb, output_N.pb) or .npz file"},
		&cli.Uint64Flag{Name: "random", Usage: "fill inputs that are not given with random values from `SEED`", Value: 1},
		&cli.StringSliceFlag{Name: "expect", Usage: "what a value should be, `NAME=FILE` (.npy or .pb): an output, or any other value of the graph; only these are compared"},
		&cli.StringFlag{Name: "against", Usage: "compare with what another build, `PATH`, gives: PATH run MODEL"},
		&cli.StringFlag{Name: "check", Usage: "let the shell say what fails: `COMMAND`, with {} for the model's file, ends with 0 if it does"},
		&cli.StringFlag{Name: "error", Usage: "a failure is that run says something that matches `REGEXP`"},
		&cli.Float64Flag{Name: "rtol", Usage: "relative tolerance `X` of floats", Value: 1e-3},
		&cli.Float64Flag{Name: "atol", Usage: "absolute tolerance `X` of floats", Value: 1e-4},
		&cli.DurationFlag{Name: "timeout", Usage: "end the search after `TIME` and write what was found", Value: 10 * time.Minute},
		&cli.DurationFlag{Name: "run-timeout", Usage: "end a run of a model, or of a command, after `TIME`", Value: time.Minute},
	}, engineFlags...), modelFlags...),
	Action: func(c *cli.Context) error { return named("reduce", reduceModel(c)) },
}

func reduceModel(c *cli.Context) error {
	j, err := newReduction(c)
	if err != nil {
		return err
	}
	if self == "" {
		return errors.New("the program's own file is not known, which each candidate is run with")
	}
	room, err := opinion.NewRoom()
	if err != nil {
		return err
	}
	defer room.Close()
	values, err := opinion.NewRoom()
	if err != nil {
		return err
	}
	defer values.Close()
	q, err := j.question(room, values)
	if err != nil {
		return err
	}
	a, err := q.Choose(c.Context)
	var nothing *opinion.NothingError
	if errors.As(err, &nothing) {
		fmt.Fprintln(c.App.Writer, nothing.Why)
		return errNo
	}
	if err != nil {
		return err
	}
	r, err := reduce.Reduce(c.Context, a.Start, a.Predicate, a.Source, reduce.Options{Timeout: c.Duration("timeout"), Outputs: a.Keep, Progress: j.progress()})
	if err != nil {
		return err
	}
	return j.finish(room, a, r)
}

// reduction is a run of the command.
type reduction struct {
	c        *cli.Context
	out, dir string // the model's file and the folder to write
	start    *reduce.Case
	stored   opinion.Stored
}

// newReduction reads what the flags name.
func newReduction(c *cli.Context) (*reduction, error) {
	path, err := argument(c)
	if err != nil {
		return nil, err
	}
	j := &reduction{c: c, out: c.String("output")}
	if !kind.EndsONNX(j.out) {
		return nil, fmt.Errorf("--output %s: want a name that ends in .onnx; the folder beside it is called the same, without that", j.out)
	}
	j.dir = strings.TrimSuffix(j.out, filepath.Ext(j.out))
	switch {
	case c.IsSet("check") && (c.IsSet("against") || c.IsSet("expect") || c.IsSet("error")), c.IsSet("error") && (c.IsSet("against") || c.IsSet("expect")):
		return nil, errors.New("--check, --error, and --against or --expect, each say what a failure is: want one of them")
	case c.Int64("iterations") != 1:
		return nil, errors.New("--iterations: a model is reduced with one")
	case !(c.Float64("rtol") >= 0) || !(c.Float64("atol") >= 0):
		return nil, fmt.Errorf("--rtol %v, --atol %v: want 0 or more", c.Float64("rtol"), c.Float64("atol"))
	case c.Duration("timeout") <= 0 || c.Duration("run-timeout") <= 0:
		return nil, errors.New("--timeout and --run-timeout: want more than nothing")
	}
	if c.IsSet("against") {
		if _, err := exec.LookPath(c.String("against")); err != nil {
			return nil, fmt.Errorf("--against: %w", err)
		}
	}
	m, err := onnx.ReadFileContext(c.Context, path)
	if err != nil {
		return nil, kind.NotONNX(path, err)
	}
	m.Path = ""
	for _, file := range []string{j.out, filepath.Join(j.dir, "model.onnx")} {
		if same(path, file) {
			return nil, fmt.Errorf("%s would be written over; choose another file with -o", path)
		}
	}
	if err := opinion.Replaceable(j.dir); err != nil {
		return nil, err
	}
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	if err := o.One("reduce"); err != nil {
		return nil, err
	}
	to, err := o.compileOptions(m)
	if err != nil {
		return nil, err
	}
	given := opinion.Given{Options: to.Options, Data: c.String("data"), Draw: func(t popef.DataType, data []byte, number int) {
		dynamic.FillRandom(t, data, c.Uint64("random")+uint64(number))
	}}
	if given.Inputs, err = assignments("input", c.StringSlice("input")); err != nil {
		return nil, err
	}
	if given.Expect, err = assignments("expect", c.StringSlice("expect")); err != nil {
		return nil, err
	}
	var drawn []string
	if j.start, j.stored, drawn, err = given.Read(c.Context, m); err != nil {
		return nil, err
	}
	if drawn != nil {
		j.say("drawn at random (--random %d): %s", c.Uint64("random"), strings.Join(drawn, ", "))
	}
	if c.IsSet("against") || c.IsSet("check") || c.IsSet("error") {
		if given.Expect == nil {
			j.stored = nil // the data set's outputs, where something else says what is right
		}
	}
	return j, nil
}

// argument returns the command's single argument.
func argument(c *cli.Context) (string, error) {
	switch c.NArg() {
	case 1:
		return c.Args().First(), nil
	case 0:
		return "", errors.New("which model? (usage: popefgen reduce MODEL.onnx -o small.onnx)")
	}
	return "", fmt.Errorf("found %d arguments (%s), want one model", c.NArg(), strings.Join(c.Args().Slice(), ", "))
}

// same reports whether two names are of the same file.
func same(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// programs returns this program as the flags want it, and as it computes in the
// plainest way: in plain Go, without graph passes and choices of the engine.
func (j *reduction) programs() (ours, plain *opinion.Program) {
	var flags []string
	for _, name := range []string{"threads", "backend", memoryFlag.Name} {
		if j.c.IsSet(name) {
			flags = append(flags, fmt.Sprintf("--%s=%v", name, j.c.Value(name)))
		}
	}
	ours = &opinion.Program{Name: "popefgen", Path: self, Arg0: os.Args[0], Timeout: j.c.Duration("run-timeout"), Flags: slices.Clone(flags)}
	for _, name := range []string{engineOptionFlag.Name, "without-pass"} {
		for _, v := range j.c.StringSlice(name) {
			ours.Flags = append(ours.Flags, "--"+name+"="+v)
		}
	}
	if j.c.Bool("constants") {
		ours.Flags = append(ours.Flags, "--constants")
	}
	return ours, ours.Plainly(j.c.String(memoryFlag.Name))
}

func (j *reduction) say(format string, args ...any) {
	fmt.Fprintf(j.c.App.ErrWriter, format+"\n", args...)
}

// question asks what the flags ask.
func (j *reduction) question(room, values *opinion.Room) (q *opinion.Question, err error) {
	q = &opinion.Question{Start: j.start, Room: room, Values: values, Stored: j.stored, Check: j.c.String("check"), Timeout: j.c.Duration("run-timeout"),
		Tolerance: verify.Tolerance{Rel: j.c.Float64("rtol"), Abs: j.c.Float64("atol")}, Say: j.say}
	q.Ours, q.Plain = j.programs()
	q.Second = q.Plain
	if path := j.c.String("against"); path != "" {
		q.Second = &opinion.Program{Name: path, Path: path, Timeout: q.Timeout}
	}
	if text := j.c.String("error"); text != "" {
		if q.Pattern, err = regexp.Compile(text); err != nil {
			return nil, fmt.Errorf("--error: %w", err)
		}
	}
	return q, nil
}

// progress returns what tells people how far it is, a line a second at most.
func (j *reduction) progress() func(reduce.Progress) {
	var last time.Time
	pass := ""
	return func(p reduce.Progress) {
		if time.Since(last) < time.Second || p.Pass == pass && time.Since(last) < 5*time.Second {
			return
		}
		last, pass = time.Now(), p.Pass
		j.say("%s, %d tried; looking for %s", table.Counted(p.Size.Nodes, "node"), p.Tried, p.Pass)
	}
}

// listed joins names; of long ones it shows the ends, which differ more often.
func listed(names []string) string {
	const most = 48
	short := make([]string, len(names))
	for i, n := range names {
		if r := []rune(n); len(r) > most {
			n = "…" + string(r[len(r)-most:])
		}
		short[i] = printable.Line(n)
	}
	return strings.Join(short, ", ")
}

// finish writes the result and says what it is.
func (j *reduction) finish(room *opinion.Room, a *opinion.Answer, r *reduce.Result) error {
	ctx := j.c.Context
	declared, want := opinion.Declared(ctx, room, r.Case, a.Reference)
	// Types of outputs are for other programs. They change nothing, or are left out.
	if ok, err := a.Predicate.Interesting(ctx, declared); err != nil {
		return err
	} else if ok {
		r.Case = declared
	}
	if err := opinion.Save(j.dir, r.Case, want); err != nil {
		return err
	}
	if err := opinion.SaveModel(j.out, r.Case); err != nil {
		return err
	}
	w := j.c.App.Writer
	g := r.Case.Model.Graph
	fmt.Fprintf(w, "%s: %s of %d, %s, %s, %s tried\n", j.out, table.Counted(r.Case.Size().Nodes, "node"), j.start.Size().Nodes,
		table.Counted(len(r.Case.Inputs), "input"), table.Counted(len(g.Initializers), "initializer"), table.Counted(r.Tried, "candidate"))
	const most = 12
	for i, n := range g.Nodes {
		if i == most {
			fmt.Fprintf(w, "  and %d more\n", len(g.Nodes)-most)
			break
		}
		fmt.Fprintf(w, "  %s = %s(%s)\n", listed(n.Outputs), printable.Line(n.OpType), listed(n.Inputs))
	}
	if d, ok := a.Predicate.(*opinion.Differ); ok {
		all, err := d.Compare(ctx, r.Case)
		if err != nil {
			return err
		}
		for _, d := range all {
			fmt.Fprintf(w, "output %q: %s\n", d.Output.Name, d.Difference)
		}
	}
	if !r.Minimal {
		j.say("the time was over: there may be smaller ones (--timeout)")
	}
	j.say("%s holds it with its data: popefgen verify %s", j.dir, printable.ShellWord(j.dir))
	return nil
}
