// Package opinion judges ONNX models by what programs say about them, for
// popefgen reduce: a build of popefgen that runs a model, another one or another
// way to compute beside it, stored outputs, or a command. Programs are processes
// of their own, so that none that crashes or hangs ends the reduction.
package opinion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/reduce"
)

// Program is a build of popefgen and the way in which it computes.
type Program struct {
	Name    string   // for people
	Path    string   // the executable
	Arg0    string   // what it is called; "" for Path
	Flags   []string // of its command run
	Env     []string // added to the environment
	Timeout time.Duration
}

// Plainly returns the program as it computes in the plainest way: in plain Go,
// without graph passes and choices of the planner, within some memory ("" for what
// is usual).
func (p *Program) Plainly(memory string) *Program {
	plain := *p
	plain.Name, plain.Env, plain.Flags = p.Name+" with plain kernels", []string{"POPEFGEN_CPU=go"}, nil
	for _, pass := range pass.Passes {
		plain.Flags = append(plain.Flags, "--without-pass="+pass.Name)
	}
	for _, option := range []string{"alias", "inplace", "layout", "nhwc", "prepack", "tiling"} {
		plain.Flags = append(plain.Flags, "--engine-option="+option+"=off")
	}
	// What takes long is ended by the time limit, not by a count.
	plain.Flags = append(plain.Flags, fmt.Sprintf("--engine-option=work=%d", int64(1)<<50))
	if memory != "" {
		plain.Flags = append(plain.Flags, "--memory="+memory)
	}
	return &plain
}

// RunError says that a program did not run a model.
type RunError struct {
	Program string
	Said    string // on standard error, or how it ended if it said nothing
}

// Error returns what the program said.
func (e *RunError) Error() string { return e.Program + " does not run the model: " + e.Said }

// mostSaid is how much of what a program says is kept.
const mostSaid = 64 << 10

// head keeps the beginning of what is written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	if room := mostSaid - h.Len(); room > 0 {
		h.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// run runs a command for at most the time that a program has. Its error is ctx's,
// or what the command said.
func run(ctx context.Context, cmd func(ctx context.Context) *exec.Cmd, timeout time.Duration) (said string, exit *exec.ExitError, err error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := cmd(limited)
	var errOut head
	c.Stdout, c.Stderr = io.Discard, &errOut
	c.WaitDelay = time.Second // for children that keep its standard error
	alone(c)
	err = c.Run()
	said = strings.TrimSpace(errOut.String())
	switch {
	case ctx.Err() != nil:
		return said, nil, ctx.Err()
	case limited.Err() != nil:
		return fmt.Sprintf("it did not end within %v", timeout), &exec.ExitError{}, nil
	case errors.As(err, &exit):
		if said == "" {
			said = exit.Error()
		}
		return said, exit, nil
	}
	return said, nil, err
}

// Run runs the model of the case in dir and returns its outputs, whose types are
// given. The error is a [*RunError] if that is the model's or the program's
// fault.
func (p *Program) Run(ctx context.Context, dir string, c *reduce.Case, outputs []compile.Port) (map[string][]byte, error) {
	to, err := os.MkdirTemp(dir, "out")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(to)
	if err := p.start(ctx, dir, c, to); err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	for _, o := range outputs {
		info, err := export.Info(o.Type)
		if err != nil {
			return nil, &RunError{p.Name, fmt.Sprintf("output %q: %v", o.Name, err)}
		}
		file := filepath.Join(to, npy.FileName(o.Name, ".npy"))
		f, err := os.Open(file)
		if err != nil {
			return nil, &RunError{p.Name, fmt.Sprintf("it wrote no output %q", o.Name)}
		}
		values[o.Name], err = npy.Read(f, fmt.Sprintf("output %q", o.Name), info, 1)
		f.Close()
		if err != nil {
			return nil, &RunError{p.Name, err.Error()}
		}
	}
	return values, nil
}

// start runs the program until it ends.
func (p *Program) start(ctx context.Context, dir string, c *reduce.Case, to string) error {
	args := append([]string{"run"}, p.Flags...)
	file, names, err := sayable(dir, c)
	if err != nil {
		return err
	}
	for i, name := range names {
		args = append(args, "--input", name+"="+filepath.Join(dir, dataSet, fmt.Sprintf("input_%d.pb", i)))
	}
	args = append(args, "--output-dir", to, "--", file)
	said, exit, err := run(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, p.Path, args...)
		if p.Arg0 != "" {
			cmd.Args[0] = p.Arg0
		}
		cmd.Env = append(os.Environ(), p.Env...)
		return cmd
	}, p.Timeout)
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", p.Name, err)
	case exit != nil:
		return &RunError{p.Name, strings.ReplaceAll(strings.TrimPrefix(said, "popefgen: "), dir+string(filepath.Separator), "")}
	}
	return nil
}

// sayable returns the model of the case in dir and the names of its inputs. Names
// that no flag can say make it another one, in which an operator gives each such
// input the name that the graph knows.
func sayable(dir string, c *reduce.Case) (file string, names []string, err error) {
	m, g := *c.Model, *c.Model.Graph
	g.Inputs, g.Nodes = slices.Clone(g.Inputs), slices.Clone(g.Nodes)
	file = modelFile
	for i, in := range inputs(c) {
		name := in.Name
		if strings.ContainsAny(name, "=\x00") {
			file, name = "sayable.onnx", fmt.Sprintf("popefgen_reduce_input_%d", i)
			at := slices.IndexFunc(g.Inputs, func(v onnx.ValueInfo) bool { return v.Name == in.Name })
			g.Inputs[at].Name = name
			g.Nodes = slices.Insert(g.Nodes, 0, &onnx.Node{OpType: "Identity", Inputs: []string{name}, Outputs: []string{in.Name}})
		}
		names = append(names, name)
	}
	if file != modelFile {
		m.Graph = &g
		b, err := onnx.Encode(&m)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b, 0o666)
		}
		if err != nil {
			return "", nil, err
		}
	}
	return filepath.Join(dir, file), names, nil
}

// inputs returns the inputs that have to be given, in the model's order.
func inputs(c *reduce.Case) []*onnx.Tensor {
	var all []*onnx.Tensor
	for _, v := range c.Model.Graph.Inputs {
		if t := c.Inputs[v.Name]; t != nil {
			named := *t
			named.Name = v.Name
			all = append(all, &named)
		}
	}
	return all
}

// outputs returns the names, types and shapes of the outputs of a model all of
// whose sizes are fixed. Lowering says that, which this process does by itself:
// most cases that make no sense end here, without another process.
func outputs(ctx context.Context, m *onnx.Model) (ports []compile.Port, err error) {
	defer func() {
		if v := recover(); v != nil { // it may be what is looked for
			err = fmt.Errorf("lowering the model: panic: %v", v)
		}
	}()
	low, err := compile.LowerContext(ctx, m, onnx.Options{})
	if err != nil {
		return nil, err
	}
	for _, p := range low.Outputs {
		ports = append(ports, compile.Port{Name: p.Name, Elem: p.Elem, Type: low.Executable.Tensors[p.Tensor].Type})
	}
	return ports, nil
}
