package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/internal/plainyaml"
	"github.com/popefgen/popefgen/internal/serving"
	"github.com/popefgen/popefgen/internal/sizes"
	"github.com/popefgen/popefgen/onnx/tensorfile"
)

// projectFile is what generate, check and watch read if no model is given.
const projectFile = "popefgen.yaml"

// project is a popefgen.yaml. Its keys are the names of the flags of compile
// and generate; paths are relative to the file's folder.
type project struct {
	Models []projectModel  `yaml:"models"`
	Serve  *serving.Config `yaml:"serve"` // what popefgen-serve reads; mistakes in its form are named here too
}

// projectModel is one package of a project.
type projectModel struct {
	Model    fileList          `yaml:"model"`
	Output   string            `yaml:"output"`
	Package  string            `yaml:"package"`
	Embed    bool              `yaml:"embed"`
	Rename   map[string]string `yaml:"rename"`
	Queue    *int              `yaml:"queue"`
	BatchDim *int              `yaml:"batch-dim"`
	NoQueues bool              `yaml:"no-queues"`
	Serve    bool              `yaml:"serve"`
	Tests    *bool             `yaml:"tests"`

	Pack     []string          `yaml:"pack"`
	PackAxis *int              `yaml:"pack-axis"`
	PackMask string            `yaml:"pack-mask"`
	PackFill map[string]string `yaml:"pack-fill"`
	Unpack   map[string]string `yaml:"unpack"`
	State    map[string]string `yaml:"state"`

	StateFill map[string]string `yaml:"state-fill"`

	// For ONNX models.
	PopEF      string                    `yaml:"popef"`
	Batch      *sizes.List               `yaml:"batch"`
	Dim        map[string]sizes.List     `yaml:"dim"`
	Size       []map[string]int64        `yaml:"size"`
	Pad        map[string]map[string]any `yaml:"pad"`
	PadUntried bool                      `yaml:"pad-untried"`
	Bind       map[string]any            `yaml:"bind"`
	Max        map[string]int64          `yaml:"max"`
	Iterations *int64                    `yaml:"iterations"`
	Constants  bool                      `yaml:"constants"`
	Concat     *int64                    `yaml:"concat-inputs"`
}

// fileList is one file, or a list of them.
type fileList []string

// UnmarshalYAML implements the yaml package's InterfaceUnmarshaler.
func (l *fileList) UnmarshalYAML(unmarshal func(any) error) error {
	var one string
	if err := unmarshal(&one); err == nil {
		*l = fileList{one}
		return nil
	}
	return unmarshal((*[]string)(l))
}

// bindText returns a value of bind as --bind takes it: a literal, or a file.
func bindText(v any) (string, error) {
	text, ok := sizes.Literal(v)
	if list, isList := v.([]any); isList {
		words := make([]string, len(list))
		ok = true
		for i, e := range list {
			var one bool
			words[i], one = sizes.Literal(e)
			ok = ok && one
		}
		text = "[" + strings.Join(words, ",") + "]"
	}
	if !ok {
		return "", fmt.Errorf("found %v, want a number, a list of numbers or a file", v)
	}
	return text, nil
}

// readProject reads the packages of a project file. Its errors name the line.
func readProject(path string) ([]job, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if k := kind.OfData(data[:min(len(data), kind.Sniffed)]); k == kind.PopEF || k == kind.ONNX {
		return nil, fmt.Errorf("%s is a model, want a list of models such as popefgen.yaml; popefgen generate -m %s -o DIR writes one package", path, path)
	}
	var p project
	file, err := plainyaml.Decode(data, &p, plainyaml.Advice{
		Fields: "docs/ci.md lists the fields", Wants: map[string]string{"models[].model": "a file or a list of files", "models[].batch": "a size, a list of sizes or text as for --batch"}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(p.Models) == 0 {
		return nil, fmt.Errorf("%s: there is nothing under models: want a list, each with model and output", path)
	}
	var jobs []job
	dirs := map[string]int{}
	for i, m := range p.Models {
		line := file.Line(fmt.Sprintf("$.models[%d]", i))
		j, err := m.job(filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		if before, ok := dirs[j.dir]; ok {
			return nil, fmt.Errorf("%s:%d: output %s is the package of the model at line %d too: want a folder for each", path, line, m.Output, before)
		}
		dirs[j.dir] = line
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// job returns what is to be done for a package, of a project in folder base.
func (m *projectModel) job(base string) (job, error) {
	j := job{project: true, embed: m.Embed, options: gen.Options{Package: m.Package, QueueDepth: gen.DefaultQueueDepth, BatchDim: m.BatchDim, NoQueues: m.NoQueues, Serve: m.Serve, Tests: true, Renames: m.Rename}}
	in := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(base, name)
	}
	if len(m.Model) == 0 || slices.Contains(m.Model, "") {
		return j, errors.New("model is missing: want a PopEF or ONNX file")
	}
	if m.Output == "" {
		return j, fmt.Errorf("output is missing: want the folder of the package of %s", m.Model[0])
	}
	j.dir = in(m.Output)
	for _, name := range m.Model {
		j.models = append(j.models, in(name))
	}
	if m.Queue != nil {
		if j.options.QueueDepth = *m.Queue; j.options.QueueDepth < 1 {
			return j, fmt.Errorf("queue: %d: want at least 1", *m.Queue)
		}
	}
	if m.Tests != nil {
		j.options.Tests = *m.Tests
	}
	var err error
	j.options.StateFill = m.StateFill
	if j.options.Pack, j.options.State, err = m.packing(); err != nil {
		return j, err
	}
	if !slices.ContainsFunc(j.models, kind.IsONNX) {
		if m.PopEF != "" || m.Batch != nil || m.Dim != nil || m.Size != nil || m.Pad != nil || m.PadUntried || m.Bind != nil || m.Max != nil || m.Iterations != nil || m.Constants {
			return j, fmt.Errorf("popef, batch, dim, size, pad, bind, max, iterations and constants are for .onnx models; %s is compiled already", m.Model[0])
		}
		return j, nil
	}
	if len(m.Model) > 1 {
		return j, fmt.Errorf("found %d files, want one .onnx model", len(m.Model))
	}
	if m.PopEF != "" {
		j.popef = in(m.PopEF)
	}
	j.defaultPopEF()
	given, err := m.sizes()
	if err != nil {
		return j, err
	}
	j.compile = &modelOptions{Options: given, iterations: 1, constants: m.Constants}
	if m.Iterations != nil {
		j.compile.iterations = *m.Iterations
	}
	for _, name := range slices.Sorted(maps.Keys(m.Bind)) {
		value, err := bindText(m.Bind[name])
		if err != nil {
			return j, fmt.Errorf("bind: %s: %w", name, err)
		}
		if path, ok := tensorfile.Path(value); ok {
			value = "@" + in(path)
		}
		j.compile.binds = append(j.compile.binds, [2]string{name, value})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Max)) {
		if n := m.Max[name]; n < 1 {
			return j, fmt.Errorf("max: %s: found %d, want at least 1", name, n)
		}
	}
	j.compile.untried, j.compile.joins, j.compile.most = m.PadUntried, m.Concat, m.Max
	return j, nil
}

// sizes returns the sizes that are given.
func (m *projectModel) sizes() (o sizes.Options, err error) {
	if m.Batch != nil {
		if o.Batch, err = sizes.ParseBatch(m.Batch.Text); err != nil {
			return o, err
		}
	}
	o.Dims = map[string]sizes.List{}
	for _, name := range slices.Sorted(maps.Keys(m.Dim)) {
		l, err := sizes.Parse(m.Dim[name].Text)
		if err != nil {
			return o, fmt.Errorf("dim: %s: %w", name, err)
		}
		o.Dims[name] = l
	}
	for _, tuple := range m.Size {
		for name, n := range tuple {
			if n < 0 {
				return o, fmt.Errorf("size: %s: found %d, want a size", name, n)
			}
		}
		o.Sizes = append(o.Sizes, tuple)
	}
	pads, err := sizes.PadsOf(m.Pad)
	if err != nil {
		return o, fmt.Errorf("pad: %w", err)
	}
	o.Pads = pads
	return o, nil
}

// defaultProject returns the project file of the working directory.
func defaultProject() (string, error) {
	if _, err := os.Stat(projectFile); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("which model? There is no %s here either (usage: popefgen generate -m MODEL.popef -o DIR)", projectFile)
	}
	return projectFile, nil
}
