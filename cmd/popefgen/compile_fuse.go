package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/plainyaml"
	"github.com/popefgen/popefgen/internal/sizes"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// fuseList is a file that lists models to be fused. Its paths are relative to its folder.
type fuseList struct {
	Branches []fuseBranch `yaml:"branches"`
}

// fuseBranch is one of them: its keys are the names of flags of compile.
type fuseBranch struct {
	Name      string                `yaml:"name"`
	Model     string                `yaml:"model"`
	Batch     *sizes.List           `yaml:"batch"`
	Dim       map[string]sizes.List `yaml:"dim"`
	Bind      map[string]any        `yaml:"bind"`
	Constants bool                  `yaml:"constants"`
}

// listsModels reports whether a file's name is that of a list of models.
func listsModels(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".yaml" || ext == ".yml"
}

// compileList compiles the models of a list into one.
func compileList(c *cli.Context, path string, progress func(compile.Progress)) (*compile.Result, error) {
	for _, f := range modelFlags {
		if n := f.Names()[0]; c.IsSet(n) {
			return nil, fmt.Errorf("--%s is for one model: %s says for each of its branches how it is compiled", n, path)
		}
	}
	if c.Bool("overlap") {
		return nil, errors.New("--overlap: requests to branches take turns; leave it out")
	}
	r, err := fuseFile(c.Context, path, progress)
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(c.App.ErrWriter, "warning: %s\n", w)
	}
	return r, nil
}

// fuseFile reads a list of models, and compiles them into one.
func fuseFile(ctx context.Context, path string, progress func(compile.Progress)) (*compile.Result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list fuseList
	file, err := plainyaml.Decode(data, &list, plainyaml.Advice{
		Fields: "a branch has name, model, batch, dim, bind and constants; docs/sizes.md says what they are",
		Wants:  map[string]string{"branches[].batch": "a size", "branches": "a list of models, each with name and model"}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(list.Branches) == 0 {
		return nil, fmt.Errorf("%s: there is nothing under branches: want a list of models, each with name and model", path)
	}
	room := budget.From(ctx).Part(0)
	defer room.Release()
	ctx = budget.Into(ctx, room)
	var parts []compile.Part
	for i := range list.Branches {
		p, err := list.Branches[i].part(ctx, filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, file.Line(fmt.Sprintf("$.branches[%d]", i)), err)
		}
		parts = append(parts, p)
	}
	r, err := compile.Fuse(ctx, parts, progress)
	var refused *compile.FuseError
	if errors.As(err, &refused) && refused.Branch != "" {
		at := slices.IndexFunc(parts, func(p compile.Part) bool { return p.Name == refused.Branch })
		return nil, fmt.Errorf("%s:%d: %w", path, file.Line(fmt.Sprintf("$.branches[%d]", at)), err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// part reads the model of a branch, of a list in folder base.
func (b *fuseBranch) part(ctx context.Context, base string) (p compile.Part, err error) {
	if b.Model == "" {
		return p, errors.New("model is missing: want an ONNX model")
	}
	if b.Name == "" {
		b.Name = strings.TrimSuffix(filepath.Base(b.Model), filepath.Ext(b.Model))
		if err := family.CheckBranchName(b.Name); err != nil {
			return p, fmt.Errorf("name is missing, and that of the file is none: %w", err)
		}
	}
	if err := family.CheckBranchName(b.Name); err != nil {
		return p, err
	}
	in := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(base, name)
	}
	path := in(b.Model)
	m, err := onnx.ReadFileContext(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("branch %q: there is no file %s: want an ONNX model; paths begin in the folder of this list", b.Name, path)
	}
	if err != nil {
		return p, fmt.Errorf("branch %q: %w", b.Name, kind.NotONNX(path, err))
	}
	given, err := (&projectModel{Batch: b.Batch, Dim: b.Dim}).sizes()
	if err != nil {
		return p, fmt.Errorf("branch %q: %w", b.Name, err)
	}
	o := modelOptions{ctx: ctx, Options: given, iterations: 1, constants: b.Constants}
	for _, name := range slices.Sorted(maps.Keys(b.Bind)) {
		value, err := bindText(b.Bind[name])
		if err != nil {
			return p, fmt.Errorf("branch %q: bind: %s: %w", b.Name, name, err)
		}
		if file, ok := tensorfile.Path(value); ok {
			value = "@" + in(file)
		}
		o.binds = append(o.binds, [2]string{name, value})
	}
	to, err := o.compileOptions(m)
	if err != nil {
		return p, fmt.Errorf("branch %q: %w", b.Name, err)
	}
	return compile.Part{Name: b.Name, Model: m, Options: to}, nil
}

// summariseBranches prints the branches of a fused model, what they share, and their anchors.
func summariseBranches(w io.Writer, r *compile.Result) error {
	shared := sizes.Sharing(r.Executable)
	branches := table.New("PROGRAM", "BRANCH", "OPERATORS")
	for i, b := range r.Branches {
		branches.Row(b.Program, b.Name, shared.Operators[i+1])
	}
	if err := branches.Print(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "shared by branches: %s of %s weights and constants, %d operators on weights\n",
		humanize.IBytes(uint64(shared.Common)), humanize.IBytes(uint64(shared.Bytes)), shared.Operators[0])
	t := table.New("", "ANCHOR", "TYPE", "SHAPE", "BYTES", "HANDLE")
	for _, b := range r.Branches {
		for _, i := range b.Anchors {
			a := &r.Metadata.Anchors[i]
			size, err := a.Info.SizeInBytes()
			if err != nil {
				return err
			}
			t.Row(direction(a.Type), a.Name, a.Info.DataType, table.Shape(a.Info.Shape), size, a.Handle)
		}
	}
	return t.Print(w)
}

// branchFlag says which branch of a fused model a command is about.
var branchFlag = &cli.StringFlag{Name: "branch", Usage: "`NAME` of the branch of a fused model that is meant"}

// branchAsked returns a fused model as that of the branch that --branch names, and any other as it is. The
// files of a fused one stay open until the command ends.
func branchAsked(c *cli.Context, m *popef.Model) (*popef.Model, error) {
	all, err := family.BranchesOf(m)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		if all[i].Name == c.String("branch") || len(all) == 1 && !c.IsSet("branch") {
			return all[i].Single(m), nil
		}
		names = append(names, all[i].Name)
	}
	switch {
	case !c.IsSet("branch") && all == nil:
		return m, nil
	case all == nil:
		return nil, fmt.Errorf("--branch %s: the model has no branches; popefgen compile LIST.yaml makes one of several models", c.String("branch"))
	case !c.IsSet("branch"):
		return nil, fmt.Errorf("the model has the branches %s, and this command runs one: say which with --branch", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("--branch %s: the model has no such branch%s; it has %s", c.String("branch"), nearest.DidYouMean(c.String("branch"), names), strings.Join(names, ", "))
}
