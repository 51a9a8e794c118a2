package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// side is one of the two things that diff compares.
type side struct {
	published contract.Published
	model     *popef.Model // nil if it is a package or a contract.txt
}

func (s *side) close() {
	if s.model != nil {
		s.model.Close()
	}
}

// checkModelFlags refuses flags for ONNX models where there is none.
func checkModelFlags(c *cli.Context, names ...string) error {
	for _, n := range names {
		if kind.IsONNX(n) {
			return nil
		}
	}
	for _, f := range modelFlags {
		if n := f.Names()[0]; c.IsSet(n) {
			return fmt.Errorf("--%s is for .onnx models; neither %s is one", n, strings.Join(names, " nor "))
		}
	}
	return nil
}

// readSide reads what name means, see the command's usage.
func readSide(c *cli.Context, name string) (*side, error) {
	if rest, ok := strings.CutPrefix(name, "git:"); ok {
		return readGit(c, name, rest)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		file := filepath.Join(name, contract.FileName)
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: there is no %s in it: want the folder of a generated package; one of an older popefgen has to be generated again", name, contract.FileName)
		}
		if err != nil {
			return nil, err
		}
		return parseSide(file, data)
	}
	if kind.IsONNX(name) {
		return compileSide(c, name)
	}
	head := make([]byte, 64)
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	n, _ := f.Read(head) // what can't be read here can't be read below
	f.Close()
	if contract.IsFile(head[:n]) || filepath.Ext(name) == ".txt" {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return parseSide(name, data)
	}
	m, err := popef.LoadContext(c.Context, name)
	return modelSide(m, kind.NotPopEF(err, name))
}

// readGit reads what spec means, REV:PATH. Folders stand for their contract.txt.
func readGit(c *cli.Context, name, spec string) (*side, error) {
	rev, file, ok := strings.Cut(spec, ":")
	if !ok || rev == "" || file == "" || strings.HasPrefix(rev, "-") {
		return nil, fmt.Errorf("%s: want git:REV:PATH", name)
	}
	object := rev + ":" + strings.TrimSuffix(filepath.ToSlash(file), "/")
	what, err := git(c, "cat-file", "-t", object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if strings.TrimSpace(string(what)) == "tree" {
		object += "/" + contract.FileName
	}
	data, err := git(c, "show", "--no-textconv", object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case kind.EndsONNX(object) || kind.OfData(data[:min(len(data), kind.Sniffed)]) == kind.ONNX:
		// The compiler reads files: a model may refer to others beside it,
		// which a revision can't give it.
		dir, err := os.MkdirTemp("", "popefgen-diff-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, path.Base(object))
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return nil, err
		}
		s, err := compileSide(c, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return s, nil
	case contract.IsFile(data) || path.Ext(object) == ".txt":
		return parseSide(name, data)
	case strings.HasPrefix(string(data[:min(len(data), 64)]), "version https://git-lfs"):
		return nil, fmt.Errorf("%s: the revision holds a pointer of Git LFS, not the model; use the model's file", name)
	}
	m, err := popef.LoadBytes(name, data)
	return modelSide(m, err)
}

// git runs git and returns what it prints.
func git(c *cli.Context, args ...string) ([]byte, error) {
	var errOut strings.Builder
	cmd := exec.CommandContext(c.Context, "git", args...)
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(errOut.String()))
	}
	return out, nil
}

func parseSide(name string, data []byte) (*side, error) {
	p, err := contract.ParseFile(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &side{published: p}, nil
}

func compileSide(c *cli.Context, name string) (*side, error) {
	r, err := compileONNX(c, name)
	if err != nil {
		return nil, err
	}
	return modelSide(r.ModelContext(c.Context, filepath.Base(name)))
}

// modelSide takes the Go names from the package that would be generated; a
// model for which none can be generated has a contract all the same.
func modelSide(m *popef.Model, err error) (*side, error) {
	if err != nil {
		return nil, err
	}
	c := contract.Of(m)
	if c.Refused != nil {
		return nil, errors.Join(c.Refused, m.Close())
	}
	s := &side{model: m, published: c.Published()}
	s.published.Optimizer = contract.OptimizerOf(m)
	if plan, err := gen.Build(m, gen.Options{Package: "p", ModelBase: "m"}); err == nil {
		s.published.GoNames, s.published.SizeNames = plan.Published().GoNames, plan.Published().SizeNames
	}
	return s, nil
}
