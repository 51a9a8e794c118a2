package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/internal/exportdata"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// callerBase has an anchor of every role that callers see.
func callerBase() *golden.Model {
	return &golden.Model{
		File: "m.popef", Executable: golden.Executable{Name: "m"}, Replicas: 1, IPUs: 1, DeviceIterations: 1, Inference: true,
		Load: []uint32{0}, Main: []uint32{5}, Save: []uint32{7},
		Anchors: []golden.Anchor{
			{Name: "image", Handle: "h2d_image", Type: "F32", Shape: []int64{4, 2}, Direction: "in", Programs: []uint32{5}},
			{Name: "logits", Handle: "d2h_logits", Type: "F32", Shape: []int64{4, 3}, Direction: "out", Programs: []uint32{5}},
			{Name: "scale", Handle: "h2d_scale", Type: "F32", Direction: "in", Programs: []uint32{0}},
			{Name: "w", Handle: "h2d_w", Type: "F32", Shape: []int64{3}, Direction: "in", Programs: []uint32{0}, Data: &golden.Data{}},
			{Name: "w", Handle: "d2h_w", Type: "F32", Shape: []int64{3}, Direction: "out", Programs: []uint32{7}},
		},
	}
}

// callerCases are what becomes of callerBase, and what that means for a caller
// of the old package.
var callerCases = []struct {
	name    string
	change  func(m *golden.Model)
	verdict contract.Verdict
	builds  bool // a breaking change that shows only at run time, or through the pin
	renames map[string]string
	samples bool // both packages have RunSamples, and the caller uses nothing else
}{
	{name: "weights", change: func(m *golden.Model) { m.Anchors[3].Data = &golden.Data{Elements: []float64{1, 2, 3}} }, verdict: contract.Identical},
	{name: "handle", change: func(m *golden.Model) { m.Anchors[0].Handle = "other" }, verdict: contract.Identical},
	{name: "order", change: func(m *golden.Model) {
		add(m, "extra", "out", 5)
		m.Anchors[1], m.Anchors[5] = m.Anchors[5], m.Anchors[1]
	}, verdict: contract.Compatible},
	{name: "newoutput", change: func(m *golden.Model) { add(m, "extra", "out", 5) }, verdict: contract.Compatible},
	{name: "newsave", change: func(m *golden.Model) { add(m, "extra", "out", 7) }, verdict: contract.Compatible},
	{name: "ipus", change: func(m *golden.Model) { m.IPUs = 4 }, verdict: contract.Identical},
	{name: "programs", change: func(m *golden.Model) {
		m.Main, m.Anchors[0].Programs, m.Anchors[1].Programs = []uint32{6}, []uint32{6}, []uint32{6}
	}, verdict: contract.Identical},
	{name: "weightshape", change: func(m *golden.Model) {
		m.Anchors[3].Name, m.Anchors[3].Shape = "v", []int64{9}
	}, verdict: contract.Identical},
	{name: "remote", change: func(m *golden.Model) { m.Anchors[1].Remote = true }, verdict: contract.Identical},
	{name: "sameinGo", change: func(m *golden.Model) { m.Anchors[1].Name = "logits:" }, verdict: contract.Compatible},
	{name: "keptname", change: func(m *golden.Model) { m.Anchors[1].Name = "scores" }, renames: map[string]string{"scores": "Logits"}, verdict: contract.Compatible},
	{name: "renamed", change: func(m *golden.Model) { m.Anchors[1].Name, m.Anchors[1].Handle = "scores", "d2h_scores" }, verdict: contract.Breaking},
	{name: "goname", change: func(m *golden.Model) {}, renames: map[string]string{"logits": "Scores"}, verdict: contract.Breaking},
	{name: "type", change: func(m *golden.Model) { m.Anchors[0].Type = "F16" }, verdict: contract.Breaking},
	{name: "shape", change: func(m *golden.Model) { m.Anchors[0].Shape = []int64{4, 5} }, verdict: contract.Breaking},
	{name: "batch", change: func(m *golden.Model) { m.Anchors[0].Shape, m.Anchors[1].Shape = []int64{8, 2}, []int64{8, 3} }, verdict: contract.Breaking},
	{name: "repeats", change: func(m *golden.Model) { m.Anchors[1].Repeats = 2 }, verdict: contract.Breaking},
	{name: "iterations", change: func(m *golden.Model) { m.DeviceIterations = 3 }, verdict: contract.Breaking},
	{name: "noinput", change: func(m *golden.Model) { m.Anchors = m.Anchors[1:] }, verdict: contract.Breaking},
	{name: "nosave", change: func(m *golden.Model) { m.Anchors = m.Anchors[:4] }, verdict: contract.Breaking},
	{name: "loaddata", change: func(m *golden.Model) { m.Anchors[2].Data = &golden.Data{} }, verdict: contract.Breaking},
	{name: "noload", change: func(m *golden.Model) { m.Anchors[2].Programs = []uint32{5} }, verdict: contract.Breaking},
	{name: "samplebatch", change: func(m *golden.Model) { m.Anchors[0].Shape, m.Anchors[1].Shape = []int64{8, 2}, []int64{8, 3} },
		verdict: contract.Breaking, samples: true, builds: true},
	{name: "samplesoutput", change: func(m *golden.Model) {
		add(m, "extra", "out", 5)
		m.Anchors[5].Shape = []int64{4}
	}, verdict: contract.Breaking, samples: true},
	{name: "sampleshape", change: func(m *golden.Model) { m.Anchors[0].Shape = []int64{4, 9} }, verdict: contract.Breaking, samples: true},
	{name: "newinput", change: func(m *golden.Model) { add(m, "extra", "in", 5) }, verdict: contract.Breaking, builds: true},
	{name: "newload", change: func(m *golden.Model) { add(m, "extra", "in", 0) }, verdict: contract.Breaking, builds: true},
	{name: "replicas", change: func(m *golden.Model) { m.Replicas = 2 }, verdict: contract.Breaking, builds: true},
}

func add(m *golden.Model, name, dir string, program uint32) {
	m.Anchors = append(m.Anchors, golden.Anchor{Name: name, Handle: "stream_" + name, Type: "S32", Shape: []int64{2}, Direction: dir, Programs: []uint32{program}})
}

// TestVerdictsHold generates packages of many pairs of models, with two callers
// of each old package: one uses everything that it exports, one holds its pin.
// Against the new packages exactly those callers must build that the verdicts
// say. All are built at a time, which costs two runs of the compiler.
func TestVerdictsHold(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	plans := make([]*gen.Plan, len(callerCases))
	for i, c := range callerCases {
		plans[i] = writePackage(t, filepath.Join(root, c.name, "m"), callerBase(), nil, c.samples)
		writeCaller(t, filepath.Join(root, c.name, "uses"), uses(plans[i], c.samples))
		writeCaller(t, filepath.Join(root, c.name, "pinned"), "const _ = m."+plans[i].Pin+"\n")
	}
	require.Empty(t, broken(t, root), "callers of the packages that they were written for")

	want := map[string]bool{}
	for i, c := range callerCases {
		changed := callerBase()
		c.change(changed)
		p := writePackage(t, filepath.Join(root, c.name, "m"), changed, c.renames, c.samples)
		found := contract.Judge(plans[i].Published(), p.Published())
		require.Equal(t, c.verdict, contract.Worst(found), "%s: %v", c.name, found)
		if plans[i].ContractHash != p.ContractHash {
			want[c.name+"/pinned"] = true
		}
		if c.verdict == contract.Breaking && !c.builds {
			want[c.name+"/uses"] = true
		}
	}
	require.Equal(t, want, broken(t, root))
}

// writePackage generates the package of a model.
func writePackage(t *testing.T, dir string, description *golden.Model, renames map[string]string, samples bool) *gen.Plan {
	t.Helper()
	files, err := description.Write(t.TempDir())
	require.NoError(t, err)
	m, err := popef.Load(files...)
	require.NoError(t, err)
	defer m.Close()
	o := gen.Options{Package: "m", Renames: renames}
	if samples {
		o.BatchDim = new(int)
	}
	p, err := gen.Build(m, o)
	require.NoError(t, err)
	out, err := gen.Emit(p)
	require.NoError(t, err)
	_, err = gen.Write(dir, out)
	require.NoError(t, err)
	return p
}

func writeCaller(t *testing.T, dir, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o777))
	text = "package caller\n\nimport \"example.com/m\"\n\n" + text
	require.NoError(t, os.WriteFile(filepath.Join(dir, "caller.go"), []byte(text), 0o666))
}

// uses is the text of a caller that uses everything of a package with all its
// types; that of a package with samples calls by the sample and nothing else.
func uses(p *gen.Plan, samples bool) string {
	if samples {
		return "func use(r *m.Runner) {\n\tvar s m.ImageSample\n\tvar _ [2]float32 = s.Data\n\t_ = r.RunSamples(nil, []m.ImageSample{s}, make([]m.LogitsSample, 1))\n}\n"
	}
	var b strings.Builder
	b.WriteString("func use(r *m.Runner) {\n")
	for _, s := range []struct {
		name   string
		fields []plan.Field
	}{{"Inputs", p.Inputs}, {"Outputs", p.Outputs}, {"LoadInputs", p.LoadInputs}, {"SaveOutputs", p.SaveOutputs}} {
		for _, f := range s.fields {
			tensor := p.Tensors[f.Tensor]
			array := ""
			for _, n := range tensor.Shape {
				array += fmt.Sprintf("[%d]", n)
			}
			fmt.Fprintf(&b, "\t{\n\t\tvar s *m.%s = m.New%s()\n\t\tvar f *m.%s = s.%s\n\t\tvar _ %s%s = f.Data\n\t\tvar _ []%s = f.Flat()\n\t\t_ = m.%s\n\t\t_ = m.%s\n\t}\n",
				s.name, s.name, tensor.Name, f.Name, array, tensor.Elem, tensor.Elem, tensor.From, tensor.NameConst)
		}
	}
	b.WriteString("\t_, _ = m.Open(nil, m.NewLoadInputs(), \"path\")\n\t_ = r.Run(nil, m.NewInputs(), m.NewOutputs())\n" +
		"\t_, _ = r.Submit(nil, m.NewInputs(), m.NewOutputs())\n\t_ = r.Save(nil, m.NewSaveOutputs())\n}\n")
	return b.String()
}

// broken type-checks everything below root and returns the callers that do not build.
func broken(t *testing.T, root string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	fset := token.NewFileSet()
	imports, err := exportdata.Importer(fset, "github.com/popefgen/popefgen/golden/internal/...", "github.com/popefgen/popefgen/ipu/cpu", "embed")
	require.NoError(t, err)
	for _, c := range callerCases {
		m, err := checkPackage(fset, filepath.Join(root, c.name, "m"), imports)
		require.NoError(t, err, "a generated package does not build")
		for _, caller := range []string{"uses", "pinned"} {
			if _, err := checkPackage(fset, filepath.Join(root, c.name, caller), withPackage{imports, m}); err != nil {
				found[c.name+"/"+caller] = true
			}
		}
	}
	return found
}

// withPackage imports a generated package by the end of its path, m, and others from its importer.
type withPackage struct {
	types.Importer
	m *types.Package
}

func (w withPackage) Import(name string) (*types.Package, error) {
	if path.Base(name) == "m" {
		return w.m, nil
	}
	return w.Importer.Import(name)
}

// checkPackage is the package in dir without its tests, or what the compiler would complain of.
func checkPackage(fset *token.FileSet, dir string, imports types.Importer) (*types.Package, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return (&types.Config{Importer: imports}).Check(filepath.Base(dir), fset, files, nil)
}
