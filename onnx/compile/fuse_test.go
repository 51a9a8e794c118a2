package compile_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/popef/family"
)

// fuseAll fuses parts and checks what every fused file holds: each branch gives the bits of its model alone,
// whichever ran before, nothing is there twice, and the file is no larger than those of the models and 4 KB.
func fuseAll(t *testing.T, vocabulary int64, parts ...compile.Part) *compile.Result {
	t.Helper()
	r, err := compile.Fuse(context.Background(), parts, nil)
	require.NoError(t, err)
	m, err := r.Model("fused.popef")
	require.NoError(t, err)
	defer m.Close()
	require.Empty(t, m.Warnings())
	found, err := family.BranchesOf(m)
	require.NoError(t, err)
	require.Equal(t, r.Branches, found)
	f, err := family.Of(m)
	require.NoError(t, err)
	require.Nil(t, f, "a fused model is no family")

	all, err := r.Bytes()
	require.NoError(t, err)
	run, sum := openModel(t, r), 0
	for _, i := range []int{0, 1, 0} {
		single, err := compile.Compile(parts[i].Model, parts[i].Options)
		require.NoError(t, err)
		want := openModel(t, single).run(t, compile.MainProgram, uint64(i), vocabulary)
		got := run.run(t, r.Branches[i].Program, uint64(i), vocabulary)
		require.Len(t, got, len(want))
		for name, v := range want {
			require.Equal(t, v, got[parts[i].Name+"/"+name], name)
		}
	}
	for _, p := range parts {
		single, err := compile.Compile(p.Model, p.Options)
		require.NoError(t, err)
		b, err := single.Bytes()
		require.NoError(t, err)
		sum += len(b)
	}
	require.LessOrEqual(t, len(all), sum+4<<10, "the models alone have %d bytes", sum)
	t.Logf("%d bytes, %d of the models alone", len(all), sum)
	return r
}

func example(t *testing.T, path string) *onnx.Model {
	t.Helper()
	m, err := onnx.ReadFile(filepath.Join("..", "..", "generated_examples", filepath.FromSlash(path)))
	require.NoError(t, err)
	return m
}

// TestFuse fuses two models that have nothing in common.
func TestFuse(t *testing.T) {
	one := compile.Options{Options: onnx.Options{Batch: 1}}
	r := fuseAll(t, 2, compile.Part{Name: "digits", Model: example(t, "digits/digits.onnx"), Options: one},
		compile.Part{Name: "diabetes", Model: example(t, "diabetes/diabetes.onnx"), Options: one})
	require.Equal(t, []uint32{5, 10}, r.Metadata.ProgramFlow.Main)
	for _, b := range r.Branches {
		for _, i := range b.Anchors {
			a := r.Metadata.Anchors[i]
			require.True(t, strings.HasPrefix(a.Name, b.Name+"/"), a.Name)
			require.True(t, strings.HasSuffix(a.Handle, a.Name), a.Handle)
			require.Equal(t, []uint32{b.Program}, a.Programs)
		}
	}
}

// TestFuseEqualWeights fuses a model with itself, with one of other names, and with one of other weights.
func TestFuseEqualWeights(t *testing.T) {
	line := func(w, b string, add float64) *onnx.Model {
		return onnxtest.Model(17, &onnx.Graph{
			Name: "line", Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 1, 2)}, Outputs: onnxtest.Outputs("y"),
			Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s([]int64{2, 2}, 1, 2, 3, 4+add), w), onnxtest.Named(onnxtest.F32s([]int64{2}, 0, 0), b),
				onnxtest.Named(onnxtest.F32s([]int64{2}, 0, 0), "c")},
			Nodes: []*onnx.Node{
				onnxtest.Node("Gemm", onnxtest.Names("x", w, b), onnxtest.Names("z")),
				onnxtest.Node("Add", onnxtest.Names("z", "c"), onnxtest.Names("y")),
			},
		})
	}
	names := func(r *compile.Result) (out []string) {
		for _, w := range r.Weights {
			out = append(out, w.Name)
		}
		return out
	}
	first := compile.Part{Name: "first", Model: line("w", "b", 0)}
	alone, err := compile.Compile(first.Model, compile.Options{})
	require.NoError(t, err)
	want := names(alone)
	require.Equal(t, []string{"w", "b", "c"}, want)
	// b and c are equal, but both of one model: each stays what callers may replace.
	r := fuseAll(t, 2, first, compile.Part{Name: "second", Model: line("w", "b", 0)})
	require.Equal(t, want, names(r))
	r = fuseAll(t, 2, first, compile.Part{Name: "renamed", Model: line("kernel", "bias", 0)})
	require.Equal(t, want, names(r))
	r = fuseAll(t, 2, first, compile.Part{Name: "other", Model: line("w", "b", 1)})
	require.Equal(t, []string{"w", "b", "c", "other/w"}, names(r))

	// A weight that is called like an input of another model would be taken for its data.
	r = fuseAll(t, 2, first, compile.Part{Name: "odd", Model: onnxtest.Model(17, &onnx.Graph{
		Name: "odd", Inputs: []onnx.ValueInfo{onnxtest.Info("a", onnx.Float, 1, 2)}, Outputs: onnxtest.Outputs("b"),
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s([]int64{2, 2}, 9, 9, 9, 9), "x")},
		Nodes:        []*onnx.Node{onnxtest.Node("MatMul", onnxtest.Names("a", "x"), onnxtest.Names("b"))},
	})})
	require.Equal(t, []string{"w", "first/b", "c", "odd/x"}, names(r))
}

// TestFuseConstants wants constants that are equal once, and what is prepared of equal weights computed once.
func TestFuseConstants(t *testing.T) {
	o := compile.Options{Options: onnx.Options{Dims: map[string]int64{"N": 2, "M": 3, "K": 3}}}
	more := o
	more.Dims = map[string]int64{"N": 4, "M": 3, "K": 3}
	r := fuseAll(t, 2, compile.Part{Name: "few", Model: shared(), Options: o}, compile.Part{Name: "many", Model: shared(), Options: more})
	contents := map[string]bool{}
	for _, c := range r.Executable.Tensors {
		if c.Const {
			key := c.Type.String() + string(c.Data)
			require.False(t, contents[key], "constant %s is there twice", c.Name)
			contents[key] = true
		}
	}
	load := r.Executable.Programs[0].Steps
	require.Len(t, r.Executable.Graphs[load[len(load)-1].Graph].Nodes, 1)
}

// TestFuseErrors wants errors that say what is wrong, with which branch, and what to do.
func TestFuseErrors(t *testing.T) {
	fixed := compile.Options{Options: onnx.Options{Dims: map[string]int64{"N": 2, "M": 3, "K": 3}}}
	part := func(name string, o compile.Options) compile.Part {
		return compile.Part{Name: name, Model: shared(), Options: o}
	}
	several, pads, iterated := fixed, fixed, fixed
	several.Members = sizes("N=1 M=3 K=3", "N=2 M=3 K=3")
	pads.Pads = map[string][]family.Pad{"N": nil}
	iterated.Iterations = 3
	joined := fixed
	joined.JoinInputs = 64
	counted := onnxtest.Model(17, &onnx.Graph{
		Name: "counted", Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 1, 4)}, Outputs: onnxtest.Outputs("y"),
		Nodes: []*onnx.Node{onnxtest.Node("NonZero", onnxtest.Names("x"), onnxtest.Names("y"))},
	})
	many := make([]compile.Part, 257)
	for _, c := range []struct {
		name  string
		parts []compile.Part
		want  []string
	}{
		{"none", nil, []string{"there is no branch"}},
		{"too many", many, []string{"257 branches, want at most 256"}},
		{"a name twice", []compile.Part{part("a", fixed), part("a", fixed)}, []string{`two branches are called "a"`}},
		{"no identifier", []compile.Part{part("a-b", fixed)}, []string{`branch "a-b"`, "want a letter"}},
		{"several sizes", []compile.Part{part("a", several)}, []string{`branch "a"`, "several sizes", "want one number for each dimension"}},
		{"padding", []compile.Part{part("a", pads)}, []string{`branch "a"`, "several sizes"}},
		{"iterations", []compile.Part{part("a", iterated)}, []string{`branch "a"`, "3 device iterations", "want 1"}},
		{"joined inputs", []compile.Part{part("a", joined)}, []string{`branch "a"`, "joined"}},
		{"counts", []compile.Part{part("a", fixed), {Name: "b", Model: counted}}, []string{`branch "b"`, "data decides", "compile it as a model of its own"}},
		{"an open dimension", []compile.Part{part("a", fixed), part("b", compile.Options{})}, []string{`branch "b"`, "float[N,4]", "--dim N=SIZE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := compile.Fuse(context.Background(), c.parts, nil)
			var refused *compile.FuseError
			require.ErrorAs(t, err, &refused)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := compile.Fuse(ctx, []compile.Part{part("a", fixed), part("b", fixed)}, nil)
	require.ErrorIs(t, err, context.Canceled)
}
