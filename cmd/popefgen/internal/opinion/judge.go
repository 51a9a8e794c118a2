package opinion

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/reduce"
	"github.com/popefgen/popefgen/onnx/verify"
)

// Reference says what a model should give: a [*Program], or [Stored] outputs.
type Reference interface {
	// Run is as [Program.Run] is.
	Run(ctx context.Context, dir string, c *reduce.Case, outputs []compile.Port) (map[string][]byte, error)
}

// Stored are outputs, by name, that somebody else computed.
type Stored map[string]*onnx.Tensor

// Run returns the stored outputs.
func (s Stored) Run(_ context.Context, _ string, _ *reduce.Case, outputs []compile.Port) (map[string][]byte, error) {
	values := map[string][]byte{}
	for _, o := range outputs {
		t := s[o.Name]
		switch {
		case t == nil:
			return nil, &RunError{"the stored data", fmt.Sprintf("it has no value %q", o.Name)}
		case t.Elem != o.Elem || !slices.Equal(t.Dims, o.Type.Shape):
			return nil, &RunError{"the stored data", fmt.Sprintf("its value %q is %s %v, want %s %v", o.Name, t.Elem, t.Dims, o.Elem, o.Type.Shape)}
		}
		values[o.Name] = t.Data
	}
	return values, nil
}

// Values returns stored values: Stored is a [reduce.Source].
func (s Stored) Values(_ context.Context, _ *reduce.Case, names []string) (map[string]*onnx.Tensor, error) {
	got := map[string]*onnx.Tensor{}
	for _, name := range names {
		if s[name] == nil {
			return nil, fmt.Errorf("value %q is not stored", name)
		}
		got[name] = s[name]
	}
	return got, nil
}

// Differ finds a model interesting that a program computes otherwise than a
// reference says.
type Differ struct {
	Room      *Room
	Program   *Program
	Reference Reference
	Tolerance verify.Tolerance
}

// Difference is how far an output is off.
type Difference struct {
	Output compile.Port
	verify.Difference
	Want *onnx.Tensor // what the reference says
}

// bad reports whether an element is out of tolerance.
func (d Difference) bad() bool { return d.Bad > 0 }

// Compare runs the case and compares each output. The error is a [*RunError] where
// the program or the reference does not run it.
func (d *Differ) Compare(ctx context.Context, c *reduce.Case) ([]Difference, error) {
	ports, err := outputs(ctx, c.Model)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &RunError{"popefgen", err.Error()}
	}
	dir, err := d.Room.put(c)
	if err != nil {
		return nil, err
	}
	got, err := d.Program.Run(ctx, dir, c, ports)
	if err != nil {
		return nil, err
	}
	want, err := d.Reference.Run(ctx, dir, c, ports)
	if err != nil {
		return nil, err
	}
	var all []Difference
	for _, p := range ports {
		diff, err := verify.Compare(p.Type, got[p.Name], want[p.Name], d.Tolerance)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", p.Name, err)
		}
		all = append(all, Difference{p, diff, &onnx.Tensor{Name: p.Name, Elem: p.Elem, Dims: p.Type.Shape, Data: want[p.Name]}})
	}
	return all, nil
}

// Interesting reports whether an output is out of tolerance.
func (d *Differ) Interesting(ctx context.Context, c *reduce.Case) (bool, error) {
	all, err := d.Compare(ctx, c)
	if err != nil {
		return false, notRun(err)
	}
	return slices.ContainsFunc(all, Difference.bad), nil
}

// notRun returns nil for the errors of cases that are no use.
func notRun(err error) error {
	var run *RunError
	if errors.As(err, &run) || errors.Is(err, onnx.ErrNotEncodable) {
		return nil
	}
	return err
}

// Fails finds a model interesting that a program refuses, or of which it dies, with
// one message.
type Fails struct {
	Room    *Room
	Program *Program
	Pattern *regexp.Regexp // what the program says
	Sign    string         // unless there is a pattern: what [SignOf] makes of it
}

// Said returns what the program says of a case that it does not run; failed is
// false if it runs it.
func (f *Fails) Said(ctx context.Context, c *reduce.Case) (said string, failed bool, err error) {
	dir, err := f.Room.put(c)
	if err != nil {
		return "", false, err
	}
	_, err = f.Program.Run(ctx, dir, c, nil)
	var run *RunError
	if errors.As(err, &run) {
		return run.Said, true, nil
	}
	return "", false, err
}

// Interesting reports whether the program fails in the same way.
func (f *Fails) Interesting(ctx context.Context, c *reduce.Case) (bool, error) {
	said, failed, err := f.Said(ctx, c)
	switch {
	case err != nil:
		return false, notRun(err)
	case !failed:
		return false, nil
	case f.Pattern != nil:
		return f.Pattern.MatchString(said), nil
	}
	return slices.Contains(signs(said), f.Sign), nil
}

var (
	quoted  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	counted = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)
	shapes  = regexp.MustCompile(`\[[N, ]*\]`)
	crashes = regexp.MustCompile(`^(panic:|fatal error:|unexpected fault|SIG[A-Z]+:)`)
)

// signs returns the lines of a message without names and numbers, which differ from
// model to model. Of an entry of a list only what it is about is left.
func signs(said string) []string {
	var all []string
	for line := range strings.Lines(said) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, "  ") {
			line, _, _ = strings.Cut(line, ": ")
		}
		line = quoted.ReplaceAllString(line, "“…”")
		line = counted.ReplaceAllString(line, "N")
		all = append(all, shapes.ReplaceAllString(line, "[…]"))
	}
	return all
}

// SignOf returns by which line a failure is known again: that of a crash, the first
// entry of a list, or the first line.
func SignOf(said string) string {
	all := signs(said)
	if i := slices.IndexFunc(all, crashes.MatchString); i >= 0 {
		return all[i]
	}
	all = slices.DeleteFunc(all, func(s string) bool { return strings.HasPrefix(s, "warning: ") || s == "" })
	switch {
	case len(all) == 0:
		return ""
	case len(all) > 1 && strings.HasSuffix(all[0], ":") && strings.HasPrefix(all[1], "  "):
		return all[1]
	}
	return all[0]
}

// Check finds a model interesting for which a command of the shell ends with 0.
type Check struct {
	Room    *Room
	Command string // in which {} is the model's file; if there is none, it follows
	Timeout time.Duration
	Last    string // what the command said last on standard error, or how it ended
}

// Interesting runs the command.
func (k *Check) Interesting(ctx context.Context, c *reduce.Case) (bool, error) {
	dir, err := k.Room.put(c)
	if err != nil {
		return false, notRun(err)
	}
	file := printable.ShellWord(dir + "/" + modelFile)
	line := strings.ReplaceAll(k.Command, "{}", file)
	if line == k.Command {
		line += " " + file
	}
	said, exit, err := run(ctx, func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, "sh", "-c", line) }, k.Timeout)
	if err != nil {
		return false, err
	}
	k.Last = said
	if exit == nil {
		return true, nil
	}
	if exit.ProcessState != nil && (exit.ExitCode() == 126 || exit.ExitCode() == 127) {
		return false, fmt.Errorf("--check: the shell does not find or run the command %q (exit status %d): %s", k.Command, exit.ExitCode(), said)
	}
	return false, nil
}

// Values looks up what a program computes on the way: a [reduce.Source].
type Values struct {
	Room    *Room // another one than that of cases
	Program *Program
}

// Values runs the model with the given values as its outputs.
func (s *Values) Values(ctx context.Context, c *reduce.Case, names []string) (map[string]*onnx.Tensor, error) {
	// Names of values may make no names of files that differ, so each goes
	// through an operator of its own.
	m, g := *c.Model, *c.Model.Graph
	g.Nodes, g.Outputs, g.Values = slices.Clone(g.Nodes), nil, nil
	alias := map[string]string{}
	for i, name := range names {
		out := fmt.Sprintf("popefgen_reduce_value_%d", i)
		alias[out] = name
		g.Nodes = append(g.Nodes, &onnx.Node{OpType: "Identity", Inputs: []string{name}, Outputs: []string{out}})
		g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: out})
	}
	m.Graph = &g
	with := &reduce.Case{Model: &m, Inputs: c.Inputs}
	ports, err := outputs(ctx, &m)
	if err != nil {
		return nil, err
	}
	dir, err := s.Room.put(with)
	if err != nil {
		return nil, err
	}
	data, err := s.Program.Run(ctx, dir, with, ports)
	if err != nil {
		return nil, err
	}
	got := map[string]*onnx.Tensor{}
	for _, p := range ports {
		got[alias[p.Name]] = &onnx.Tensor{Name: alias[p.Name], Elem: p.Elem, Dims: p.Type.Shape, Data: data[p.Name]}
	}
	return got, nil
}

// Declared returns the case with the types of its outputs, and what the reference
// says they are; without them if one can't be had.
func Declared(ctx context.Context, room *Room, c *reduce.Case, r Reference) (*reduce.Case, []*onnx.Tensor) {
	ports, err := outputs(ctx, c.Model)
	if err != nil {
		return c, nil
	}
	m, g := *c.Model, *c.Model.Graph
	g.Outputs = nil
	for _, p := range ports {
		g.Outputs = append(g.Outputs, onnx.Declare(p.Name, p.Elem, p.Type.Shape))
	}
	m.Graph = &g
	c = &reduce.Case{Model: &m, Inputs: c.Inputs}
	dir, err := room.put(c)
	if err != nil {
		return c, nil
	}
	data, err := r.Run(ctx, dir, c, ports)
	if err != nil {
		return c, nil
	}
	var want []*onnx.Tensor
	for _, p := range ports {
		want = append(want, &onnx.Tensor{Name: p.Name, Elem: p.Elem, Dims: p.Type.Shape, Data: data[p.Name]})
	}
	return c, want
}

// Known turns inputs whose values have to be known when the model is compiled
// into initializers.
func Known(ctx context.Context, c *reduce.Case) *reduce.Case {
	for {
		_, err := outputs(ctx, c.Model)
		var need *onnx.NeedValueError
		if !errors.As(err, &need) {
			return c
		}
		fixed := Fixed(c, need.Inputs())
		if fixed == nil {
			return c
		}
		c = fixed
	}
}

// Fixed returns the case with some inputs as initializers, nil if there is none of
// them.
func Fixed(c *reduce.Case, names []string) *reduce.Case {
	m, g := *c.Model, *c.Model.Graph
	g.Inputs, g.Initializers = slices.Clone(g.Inputs), slices.Clone(g.Initializers)
	inputs := map[string]*onnx.Tensor{}
	found := false
	for name, t := range c.Inputs {
		if !slices.Contains(names, name) {
			inputs[name] = t
			continue
		}
		found = true
		named := *t
		named.Name = name
		g.Initializers = append(g.Initializers, &named)
		g.Inputs = slices.DeleteFunc(g.Inputs, func(v onnx.ValueInfo) bool { return v.Name == name })
	}
	if !found {
		return nil
	}
	slices.SortStableFunc(g.Initializers[len(c.Model.Graph.Initializers):], func(a, b *onnx.Tensor) int { return strings.Compare(a.Name, b.Name) })
	m.Graph = &g
	return &reduce.Case{Model: &m, Inputs: inputs}
}
