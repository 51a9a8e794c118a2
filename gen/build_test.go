package gen_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// load writes a description and loads it.
func load(t interface {
	require.TestingT
	Cleanup(func())
}, m *golden.Model) *popef.Model {
	dir, err := os.MkdirTemp("", "popefgen")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	paths, err := m.Write(dir)
	require.NoError(t, err)
	model, err := popef.Load(paths...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = model.Close() })
	return model
}

func emit(t require.TestingT, m *popef.Model, opts gen.Options) []gen.File {
	p, err := gen.Build(m, opts)
	require.NoError(t, err)
	files, err := gen.Emit(p)
	require.NoError(t, err)
	return files
}

// TestDeterminism generates the same package again and again, on one and on
// all processors, and from models that differ in what is no part of the
// contract: every time it must be the same to the byte.
func TestDeterminism(t *testing.T) {
	for _, name := range []string{"names", "popart_training", "load_inputs"} {
		t.Run(name, func(t *testing.T) {
			path := goldenDir + "/" + name + "/model.yaml"
			description, err := golden.Read(path)
			require.NoError(t, err)
			opts := gen.Options{ModelBase: description.File, Tests: true}
			first := load(t, description)
			want := emit(t, first, opts)
			plan, err := gen.Build(first, opts)
			require.NoError(t, err)
			for _, procs := range []int{1, runtime.NumCPU(), 1} {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				require.Empty(t, cmp.Diff(want, emit(t, load(t, description), opts)))
			}
			for i := range description.Anchors {
				a := &description.Anchors[i]
				slices.Reverse(a.Programs)
				a.Programs = append(a.Programs, a.Programs...)
				if a.Data != nil && len(a.Data.Elements) > 0 {
					a.Data.Elements[0]++
				}
			}
			slices.Reverse(description.EngineOptions)
			description.EngineOptions = append(description.EngineOptions, "debug.level=9")
			description.Opaques = append(description.Opaques, "another")
			if description.Executable.Compute == nil {
				description.Executable.Name += "again"
			}
			if description.Inference { // of a training model they are PopART's, and say what it loads
				for index := range description.Programs {
					description.Programs[index] += "Again"
				}
			}
			other := load(t, description)
			require.Empty(t, cmp.Diff(want, emit(t, other, opts)))
			again, err := gen.Build(other, opts)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(plan, again))
		})
	}
}

// TestAnyModel generates packages from models with arbitrary names, types and
// shapes; what comes out must parse and declare nothing twice.
func TestAnyModel(t *testing.T) {
	name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"x", "X", "x/1", "x_1", "x1", "x_from", "anchor_x", "inputs", "open", "", "Gemm:0", "type", "x\x00", "\xff", "// x", "*/", "`", "\"",
	}))
	rapid.Check(t, func(t *rapid.T) {
		m := &golden.Model{
			File: "any.popef", Executable: golden.Executable{Name: "any"},
			Replicas: rapid.Uint32Range(0, 3).Draw(t, "replicas"), DeviceIterations: rapid.Uint32Range(0, 9).Draw(t, "iterations"),
			Load: []uint32{0}, Main: []uint32{1}, Save: []uint32{2},
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "anchors") {
			a := golden.Anchor{
				Name: name.Draw(t, "name"), Handle: rapid.SampledFrom([]string{"h", "", "\xff"}).Draw(t, "handle") + strconv.Itoa(i),
				Type:      popef.DataType(rapid.Uint16Range(0, 14).Draw(t, "type")).String(),
				Shape:     rapid.SliceOfN(rapid.Int64Range(0, 5), 0, 4).Draw(t, "shape"),
				Direction: rapid.SampledFrom([]string{"in", "out", "unknown"}).Draw(t, "dir"),
				Programs:  rapid.SliceOfN(rapid.Uint32Range(0, 3), 0, 3).Draw(t, "programs"),
			}
			m.Anchors = append(m.Anchors, a)
		}
		model := load(t, m)
		p, err := gen.Build(model, gen.Options{Tests: true})
		require.NoError(t, err)
		files, err := gen.Emit(p)
		require.NoError(t, err)
		declared := map[string]bool{}
		for _, f := range files {
			if f.Name == contract.FileName {
				back, err := contract.ParseFile(string(f.Data))
				require.NoError(t, err)
				require.Empty(t, contract.Judge(p.Published(), back))
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Data, parser.ParseComments)
			require.NoError(t, err)
			require.True(t, ast.IsGenerated(parsed), "%s has no mark of generated code", f.Name)
			for id := range parsed.Scope.Objects {
				require.False(t, declared[id], "%s is declared twice", id)
				declared[id] = true
			}
		}
	})
}

// TestContractsDiffer generates from two contracts: the pin must change.
func TestContractsDiffer(t *testing.T) {
	description, err := golden.Read(goldenDir + "/affine/model.yaml")
	require.NoError(t, err)
	a, err := gen.Build(load(t, description), gen.Options{})
	require.NoError(t, err)
	description.Executable.Compute = nil
	description.Anchors[0].Shape[0]++
	b, err := gen.Build(load(t, description), gen.Options{})
	require.NoError(t, err)
	require.NotEqual(t, a.Pin, b.Pin)
	require.Len(t, a.ContractHash, 64)
}

func TestEmbedNames(t *testing.T) {
	description, err := golden.Read(goldenDir + "/affine/model.yaml")
	require.NoError(t, err)
	model := load(t, description)
	for _, bad := range []string{"my model.popef", "a*.popef", "a/b.popef", ".popef", "_x.popef", "é.popef", "x.go", "a\nb", "contract.txt"} {
		_, err := gen.Build(model, gen.Options{Embed: bad})
		require.ErrorIs(t, err, gen.ErrBuild, "%q", bad)
		require.ErrorContains(t, err, "embedded model", "%q", bad)
	}
	p, err := gen.Build(model, gen.Options{Embed: "digits-v1.2.popef"})
	require.NoError(t, err)
	require.Equal(t, "affine.popef", p.Model)
	require.Equal(t, []string{"affine.go", "affine_contract.go", "affine_model.go", "contract.txt", "digits-v1.2.popef"}, p.Files)
	_, err = gen.Build(model, gen.Options{ModelBase: "a\n//go:embed /etc/passwd\n.popef"})
	require.ErrorContains(t, err, "can't stand in a comment")
}

// TestModelCopy joins the files of a model that is to be embedded.
func TestModelCopy(t *testing.T) {
	description, err := golden.Read(goldenDir + "/popart_training/model.yaml")
	require.NoError(t, err)
	model := load(t, description)
	p, err := gen.Build(model, gen.Options{Embed: "training.popef"})
	require.NoError(t, err)
	require.Equal(t, []string{"executable.popef", "variables.popef"}, p.Parts)
	f, err := gen.ModelCopy(p, model)
	require.NoError(t, err)
	require.Equal(t, "training.popef", f.Name)
	joined, err := popef.LoadBytes(f.Name, f.Data)
	require.NoError(t, err)
	again, err := gen.Build(joined, gen.Options{})
	require.NoError(t, err)
	require.Equal(t, p.ContractHash, again.ContractHash)

	_, err = gen.ModelCopy(again, model)
	require.ErrorContains(t, err, "without an embedded model")
	require.NoError(t, os.Remove(model.Files()[1]))
	_, err = gen.ModelCopy(p, model)
	require.ErrorIs(t, err, os.ErrNotExist)
}
