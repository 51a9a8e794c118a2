package compile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// product returns members with every combination of sizes.
func product(names []string, sizes ...[]int64) []compile.Sizes {
	all := []compile.Sizes{{Dims: map[string]int64{}}}
	for i, name := range names {
		var next []compile.Sizes
		for _, s := range all {
			for _, n := range sizes[i] {
				dims := map[string]int64{name: n}
				for k, v := range s.Dims {
					dims[k] = v
				}
				next = append(next, compile.Sizes{Dims: dims})
			}
		}
		all = next
	}
	return all
}

// publicFamilies are the public models with open dimensions.
var publicFamilies = []struct {
	model      string
	dims       []string
	sizes      [][]int64
	vocabulary int64
}{
	{"basic_pitch", []string{"unk__749"}, [][]int64{{1, 2, 3, 4}}, 2},
	{"bert_mlm_small", []string{"batch", "tokens"}, [][]int64{{1, 3}, {8, 16, 33}}, 2},
	{"bidi_lstm_bytes", []string{"batch", "length"}, [][]int64{{1, 4}, {5, 16}}, 100},
	{"gru_ndm", []string{"batch_size", "sequence_length"}, [][]int64{{1, 4}, {5, 16}}, 2},
	{"lgbm_tensor", []string{"batch"}, [][]int64{{1, 4, 16, 64}}, 2},
	{"magika_bytes", []string{"unk__214"}, [][]int64{{1, 2, 3, 4}}, 256},
	{"microkws_qdq", []string{"unk__68"}, [][]int64{{1, 4, 16, 32}}, 2},
	{"ppocr_cls", []string{"p2o.DynamicDimension.0", "p2o.DynamicDimension.1", "p2o.DynamicDimension.2"}, [][]int64{{1, 2}, {48}, {96, 192, 256}}, 2},
	{"silero_vad_16k", []string{"batch", "sequence"}, [][]int64{{1, 2, 3, 4}, {512}}, 2},
	{"superres_224", []string{"batch_size"}, [][]int64{{1, 2, 3, 5}}, 2},
	{"synth_bert_tiny", []string{"batch", "sequence"}, [][]int64{{1, 4}, {8, 32}}, 2},
	{"t5_encoder_small", []string{"batch", "tokens"}, [][]int64{{1, 4}, {8, 32}}, 2},
	{"velardo_mlp", []string{"N"}, [][]int64{{1, 4, 16, 32}}, 2},
}

// TestPublicFamilies compiles every public model with open dimensions as a family: each
// member gives the bits of the same size compiled alone, no weight or constant is there twice, and
// one more member adds at most a twentieth to the file.
func TestPublicFamilies(t *testing.T) {
	dir := filepath.Join(onnxtest.Data(t), "models")
	open := map[string]bool{}
	for _, c := range publicFamilies {
		open[c.model] = true
		t.Run(c.model, func(t *testing.T) {
			m, err := onnx.ReadFile(filepath.Join(dir, c.model, "model.onnx"))
			require.NoError(t, err)
			members := product(c.dims, c.sizes...)
			require.GreaterOrEqual(t, len(members), 4)
			r := sameAsAlone(t, m, members, c.vocabulary)
			all, err := r.Bytes()
			require.NoError(t, err)
			less, err := compile.Compile(m, compile.Options{Members: members[:len(members)-1]})
			require.NoError(t, err)
			fewer, err := less.Bytes()
			require.NoError(t, err)
			more := float64(len(all)-len(fewer)) / float64(len(all))
			t.Logf("%d members, %d bytes, the last one adds %.2f %%", len(members), len(all), 100*more)
			// An encoded program takes tens of KB: that is more than a twentieth of small models.
			if len(all) > 1<<20 {
				require.LessOrEqual(t, more, 0.05)
			}
		})
	}
	models, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range models {
		m, err := onnx.ReadFile(filepath.Join(dir, e.Name(), "model.onnx"))
		if err != nil {
			continue
		}
		if _, err := onnx.StaticInputs(m, onnx.Options{}); err != nil {
			require.True(t, open[e.Name()], "%s has open dimensions and is not in the table", e.Name())
		}
	}
}

// sameAsAlone compiles m as a family, and each of its members alone, and compares what they give.
func sameAsAlone(t *testing.T, m *onnx.Model, members []compile.Sizes, vocabulary int64) *compile.Result {
	t.Helper()
	r, err := compile.Compile(m, compile.Options{Members: members})
	require.NoError(t, err)
	holdsOnce(t, r)
	run := openModel(t, r)
	found := 0
	for _, s := range members {
		single, err := compile.Compile(m, compile.Options{Options: onnx.Options{Dims: s.Dims, Batch: s.Batch, Shapes: s.Shapes}})
		require.NoError(t, err)
		alone := openModel(t, single)
		// The member with the same inputs.
		at := slices.IndexFunc(r.Family.Members, func(mem family.Member) bool {
			i := slices.IndexFunc(r.Family.Members, func(x family.Member) bool { return x.Program == mem.Program })
			for _, tensor := range r.Family.Tensors[:len(r.Inputs)] {
				k := slices.IndexFunc(single.Inputs, func(p compile.Port) bool { return p.Name == tensor.Name })
				if !slices.Equal(single.Inputs[k].Type.Shape, r.Metadata.Anchors[tensor.Anchors[i]].Info.Shape) {
					return false
				}
			}
			return true
		})
		require.GreaterOrEqual(t, at, 0, "%v", s)
		found++
		for seed := range uint64(2) {
			want := alone.run(t, compile.MainProgram, seed, vocabulary)
			got := run.run(t, r.Family.Members[at].Program, seed, vocabulary)
			require.Equal(t, want, got, "%v", s)
		}
	}
	require.Equal(t, len(r.Family.Members), found)
	return r
}

// holdsOnce checks a family's file: what its blob says fits, and nothing is there twice.
func holdsOnce(t *testing.T, r *compile.Result) {
	t.Helper()
	m, err := r.Model("family.popef")
	require.NoError(t, err)
	defer m.Close()
	require.Empty(t, m.Warnings())
	f, err := family.Of(m)
	require.NoError(t, err)
	require.Equal(t, r.Family, f)
	names, contents := map[string]bool{}, map[string]bool{}
	for _, w := range r.Weights {
		require.False(t, names[w.Name], "weight %s is there twice", w.Name)
		names[w.Name] = true
	}
	for _, c := range r.Executable.Tensors {
		if c.Const {
			key := fmt.Sprint(c.Type, string(c.Data))
			require.False(t, contents[key], "constant %s is there twice", c.Name)
			contents[key] = true
		}
	}
	for _, a := range r.Metadata.Anchors {
		require.Len(t, a.Programs, 1)
		require.NotEqual(t, popef.Unknown, a.Type)
	}
}

// shared is y = (x·w)·b, z = x·(w·w·w), s = u + v and half, which is half as long as u: the weights of y are
// prepared when they are loaded, and those of z constants made when it is compiled.
func shared() *onnx.Model {
	return onnxtest.Model(17, &onnx.Graph{
		Name: "shared",
		Inputs: []onnx.ValueInfo{
			onnxtest.Info("x", onnx.Float, "N", 4), onnxtest.Info("u", onnx.Float, "N", "M"), onnxtest.Info("v", onnx.Float, "N", "K"),
		},
		Outputs: onnxtest.Outputs("y", "z", "s", "half"),
		Initializers: []*onnx.Tensor{
			onnxtest.Named(onnxtest.F32s([]int64{4, 4}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16), "w"),
			onnxtest.Named(onnxtest.F32s([]int64{4}, 1, 2, 3, 4), "b"),
			onnxtest.Named(onnxtest.F32s([]int64{1, 1, 3}, 1, 2, 1), "k"),
			onnxtest.Named(onnxtest.List(1), "axes"),
		},
		Nodes: []*onnx.Node{
			onnxtest.Node("MatMul", onnxtest.Names("x", "w"), onnxtest.Names("xw")),
			onnxtest.Node("Mul", onnxtest.Names("xw", "b"), onnxtest.Names("y")),
			onnxtest.Node("MatMul", onnxtest.Names("w", "w"), onnxtest.Names("ww")),
			onnxtest.Node("MatMul", onnxtest.Names("ww", "w"), onnxtest.Names("www")),
			onnxtest.Node("MatMul", onnxtest.Names("x", "www"), onnxtest.Names("z")),
			onnxtest.Node("Add", onnxtest.Names("u", "v"), onnxtest.Names("s")),
			onnxtest.Node("Unsqueeze", onnxtest.Names("u", "axes"), onnxtest.Names("u1")),
			onnxtest.Node("Conv", onnxtest.Names("u1", "k"), onnxtest.Names("half"), onnxtest.AInts("strides", 2), onnxtest.AInts("pads", 1, 1)),
		},
	})
}

func sizes(text ...string) []compile.Sizes {
	all := []compile.Sizes{}
	for _, line := range text {
		s := compile.Sizes{Dims: map[string]int64{}}
		for _, word := range strings.Fields(line) {
			name, size, _ := strings.Cut(word, "=")
			n, _ := strconv.ParseInt(size, 10, 64)
			if name == "--batch" {
				s.Batch = n
			} else {
				s.Dims[name] = n
			}
		}
		all = append(all, s)
	}
	return all
}

// TestFamily looks at everything that a family's file says.
func TestFamily(t *testing.T) {
	members := sizes("--batch=4 M=12 K=12", "--batch=1 M=7 K=7", "--batch=2 M=7 K=7", "--batch=4 M=7 K=7")
	pads := map[string][]family.Pad{"M": {{Input: "u", Value: "0"}}}
	var steps []compile.Progress
	o := compile.Options{Members: members, Pads: pads, Progress: func(p compile.Progress) { steps = append(steps, p) }}
	r, err := compile.Compile(shared(), o)
	require.NoError(t, err)
	holdsOnce(t, r)
	require.Len(t, steps, 4)
	require.Equal(t, 4, steps[3].Done)
	require.Equal(t, 4, steps[3].Members)
	axis := func(d int, sizes ...int64) family.Axis { return family.Axis{Sizes: sizes, Dim: d, Mul: 1, Div: 1} }
	fixed := func(n int64) family.Axis { return family.Axis{Size: n, Dim: -1} }
	batch, long := axis(0, 1, 2, 4, 4), []int64{7, 7, 7, 12}
	tensor := func(at int, typ popef.TensorType, name string, axes ...family.Axis) family.Tensor {
		return family.Tensor{Name: name, Type: typ, Elem: popef.F32, Axes: axes, Anchors: []int{at, at + 7, at + 14, at + 21}}
	}
	want := []family.Tensor{
		tensor(0, popef.Input, "x", batch, fixed(4)), tensor(1, popef.Input, "u", batch, axis(1, long...)), tensor(2, popef.Input, "v", batch, axis(2, long...)),
		tensor(3, popef.Output, "y", batch, fixed(4)), tensor(4, popef.Output, "z", batch, fixed(4)), tensor(5, popef.Output, "s", batch, axis(1, long...)),
		// The members allow ⌊n/2⌋ and ⌊(n+1)/2⌋: what is lowered between them decides.
		tensor(6, popef.Output, "half", batch, fixed(1), family.Axis{Sizes: []int64{4, 4, 4, 6}, Dim: 1, Mul: 1, Add: 1, Div: 2}),
	}
	require.Equal(t, want, r.Family.Tensors)
	require.Equal(t, []family.Dim{{Name: "batch", Rows: true}, {Name: "M", Pads: pads["M"]}, {Name: "K"}}, r.Family.Dims)
	var programs []uint32
	for i, m := range r.Family.Members {
		programs = append(programs, m.Program)
		require.Equal(t, []int64{[]int64{1, 2, 4, 4}[i], long[i], long[i]}, m.Sizes)
		require.True(t, i == 0 || m.Cost > r.Family.Members[i-1].Cost)
	}
	require.Equal(t, []uint32{5, 10, 11, 12}, programs)
	require.Equal(t, popef.ProgramFlow{Load: []uint32{0}, Main: programs}, r.Metadata.ProgramFlow)
	var handles []string
	for _, a := range r.Metadata.Anchors {
		handles = append(handles, a.Handle)
	}
	require.Equal(t, []string{"h2d_x", "h2d_u", "h2d_v", "anchor_d2h_y", "anchor_d2h_z", "anchor_d2h_s", "anchor_d2h_half"}, handles[:7])
	require.Equal(t, []string{"h2d_x#12", "h2d_u#12", "h2d_v#12", "anchor_d2h_y#12", "anchor_d2h_z#12", "anchor_d2h_s#12", "anchor_d2h_half#12", "h2d_w", "h2d_b", "h2d_k"}, handles[21:])
	// What weights are prepared by stands there once, for all members.
	load := r.Executable.Programs[0].Steps
	require.Equal(t, graph.Call, load[len(load)-1].Kind)
	require.Len(t, r.Executable.Graphs[load[len(load)-1].Graph].Nodes, 1)

	sameAsAlone(t, shared(), members, 2)
	first, err := r.Bytes()
	require.NoError(t, err)
	r, err = compile.Compile(shared(), o)
	require.NoError(t, err)
	again, err := r.Bytes()
	require.NoError(t, err)
	require.Equal(t, first, again, "the same members make the same file")
}

// TestFamilyOfOne wants a single member to be a model of that size, to the byte.
func TestFamilyOfOne(t *testing.T) {
	s := sizes("N=2 M=3 K=3")
	one, err := compile.Compile(shared(), compile.Options{Members: s})
	require.NoError(t, err)
	require.Nil(t, one.Family)
	plain, err := compile.Compile(shared(), compile.Options{Options: onnx.Options{Dims: s[0].Dims}})
	require.NoError(t, err)
	want, err := plain.Bytes()
	require.NoError(t, err)
	got, err := one.Bytes()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestFamilyBranches has members that take different branches, whose initializers have one name.
func TestFamilyBranches(t *testing.T) {
	branch := func(name string, v float64) *onnx.Attribute {
		return onnxtest.AGraph(name, &onnx.Graph{
			Name:         name,
			Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s([]int64{2, 1}, v, v+1), "w")},
			Nodes:        []*onnx.Node{onnxtest.Node("MatMul", onnxtest.Names("x", "w"), onnxtest.Names(name+"_y"))},
			Outputs:      onnxtest.Outputs(name + "_y"),
		})
	}
	m := onnxtest.Model(17, &onnx.Graph{
		Name: "branches", Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "N", 2)}, Outputs: onnxtest.Outputs("y"),
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.List(3), "three"), onnxtest.Named(onnxtest.List(0), "first")},
		Nodes: []*onnx.Node{
			onnxtest.Node("Shape", onnxtest.Names("x"), onnxtest.Names("shape")),
			onnxtest.Node("Gather", onnxtest.Names("shape", "first"), onnxtest.Names("n")),
			onnxtest.Node("Less", onnxtest.Names("n", "three"), onnxtest.Names("few")),
			onnxtest.Node("If", onnxtest.Names("few"), onnxtest.Names("y"), branch("then_branch", 1), branch("else_branch", 10)),
		},
	})
	r := sameAsAlone(t, m, sizes("N=1", "N=2", "N=5", "N=6"), 2)
	require.Len(t, r.Weights, 2)
	require.Equal(t, "w", r.Weights[0].Name)
	require.Equal(t, "w_2", r.Weights[1].Name)
}

// TestFamilyRows multiplies by the number of rows, which no member mixes and each does in its own way.
func TestFamilyRows(t *testing.T) {
	counted := func(what string) *onnx.Model {
		return onnxtest.Model(17, &onnx.Graph{
			Name: "counted", Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "N", 4)}, Outputs: onnxtest.Outputs("y"),
			Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.List(0), "first"), onnxtest.Named(onnxtest.List(1), "second")},
			Nodes: []*onnx.Node{
				onnxtest.Node("Shape", onnxtest.Names("x"), onnxtest.Names("shape")),
				onnxtest.Node("Gather", onnxtest.Names("shape", what), onnxtest.Names("n")),
				onnxtest.Node("Cast", onnxtest.Names("n"), onnxtest.Names("f"), onnxtest.AInt("to", int64(onnx.Float))),
				onnxtest.Node("Mul", onnxtest.Names("x", "f"), onnxtest.Names("y")),
			},
		})
	}
	for what, want := range map[string]bool{"first": false, "second": true} {
		r, err := compile.Compile(counted(what), compile.Options{Members: sizes("N=1", "N=2", "N=4")})
		require.NoError(t, err)
		require.Equal(t, want, r.Family.Dims[0].Rows, what)
		require.Equal(t, want, r.Mixed["N"] == nil, what)
	}
	// What is a transpose of several rows is none of a single one.
	turned := onnxtest.Model(17, &onnx.Graph{
		Name: "turned", Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "N", 4)}, Outputs: onnxtest.Outputs("y"),
		Nodes: []*onnx.Node{
			onnxtest.Node("Transpose", onnxtest.Names("x"), onnxtest.Names("columns"), onnxtest.AInts("perm", 1, 0)),
			onnxtest.Node("Softmax", onnxtest.Names("columns"), onnxtest.Names("y"), onnxtest.AInt("axis", 0)),
		},
	})
	for _, members := range [][]compile.Sizes{sizes("N=1", "N=4"), sizes("N=2", "N=4")} {
		r, err := compile.Compile(turned, compile.Options{Members: members})
		require.NoError(t, err)
		require.True(t, r.Family.Dims[0].Rows, "%v", r.Mixed)
	}
}

// TestNoFamily wants errors that say what is wrong with members and what to do.
func TestNoFamily(t *testing.T) {
	ranked := onnxtest.Model(17, &onnx.Graph{
		Name: "ranked", Inputs: []onnx.ValueInfo{{Name: "x", Elem: onnx.Float}}, Outputs: onnxtest.Outputs("y"),
		Nodes: []*onnx.Node{onnxtest.Node("Relu", onnxtest.Names("x"), onnxtest.Names("y"))},
	})
	squeezed := onnxtest.Model(17, &onnx.Graph{
		Name: "squeezed", Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "N", "M")}, Outputs: onnxtest.Outputs("y"),
		Nodes: []*onnx.Node{onnxtest.Node("Squeeze", onnxtest.Names("x"), onnxtest.Names("y"))},
	})
	many := make([]string, compile.MaxMembers+1)
	for i := range many {
		many[i] = fmt.Sprintf("N=%d M=1 K=1", i+1)
	}
	for _, c := range []struct {
		name    string
		model   *onnx.Model
		members []compile.Sizes
		pads    map[string][]family.Pad
		want    []string
	}{
		{"none", shared(), sizes(), nil, []string{"no members", "want sizes for at least one"}},
		{"too many", shared(), sizes(many...), nil, []string{"257 members, want at most 256"}},
		{"twice", shared(), sizes("N=1 M=2 K=2", "N=2 M=2 K=2", "N=1 M=2 K=2"), nil, []string{"two members have the same sizes (N=1)"}},
		{"all the same", shared(), sizes("N=1 M=2 K=2", "N=1 M=2 K=2"), nil, []string{"two members have the same sizes"}},
		{"names that meet", shared(), sizes("N=1 M=2 K=2", "N=1 M=5 K=2", "N=1 M=2 K=4"), nil,
			[]string{"the member M=5 K=2", `"M" and "K" have to be equal`, "--dim K=M", "--size M=5,K=5"}},
		{"other ranks", ranked, []compile.Sizes{{Shapes: map[string][]int64{"x": {1}}}, {Shapes: map[string][]int64{"x": {1, 2}}}}, nil, []string{"not in the number of axes"}},
		{"other ranks of outputs", squeezed, sizes("N=1 M=2", "N=2 M=2"), nil, []string{"f32[2]", "f32[2,2]", "members differ in sizes alone"}},
		{"padding of nothing", shared(), sizes("N=1 M=2 K=2", "N=2 M=2 K=2"), map[string][]family.Pad{"M": {{Input: "u", Value: "0"}}}, []string{`the dimension "M", want one of several sizes`}},
		{"padding of another input", shared(), sizes("N=1 M=2 K=2", "N=1 M=3 K=3"), map[string][]family.Pad{"M": {{Input: "v", Value: "0"}}}, []string{`"v", want an input of that dimension (u)`}},
		{"padding of one input of three", shared(), sizes("N=1 M=2 K=2", "N=2 M=2 K=2"), map[string][]family.Pad{"N": {{Input: "v", Value: "0"}}}, []string{`want a value for u, x too`}},
		{"padding twice", shared(), sizes("N=1 M=2 K=2", "N=1 M=3 K=3"), map[string][]family.Pad{"M": {{Input: "u", Value: "0"}, {Input: "u", Value: "1"}}}, []string{`twice for "u"`}},
		{"padding with two numbers", shared(), sizes("N=1 M=2 K=2", "N=2 M=2 K=2", "N=1 M=3 K=3"), map[string][]family.Pad{
			"N": {{Input: "v", Value: "0"}, {Input: "u", Value: "1"}, {Input: "x", Value: "0"}}, "M": {{Input: "u", Value: "0"}}},
			[]string{`"u" is padded with 0 along the dimension "M" and with 1 along "N"`, "declare one value"}},
		{"padding with a word", shared(), sizes("N=1 M=2 K=2", "N=1 M=3 K=3"), map[string][]family.Pad{"M": {{Input: "u", Value: "none"}}}, []string{`found "none", want a number of type f32`}},
		{"padding of one size", shared(), nil, map[string][]family.Pad{"M": nil}, []string{"a model of one size"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := compile.Compile(c.model, compile.Options{Members: c.members, Pads: c.pads})
			var refused *compile.FamilyError
			require.ErrorAs(t, err, &refused)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// TestNamesThatAreNotText compiles a family of tensors and dimensions whose names are no UTF-8, which a
// blob of JSON can't hold.
func TestNamesThatAreNotText(t *testing.T) {
	value := func(name, dim string) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Symbol: dim}}}
	}
	for _, c := range []struct{ in, out, dim, want string }{
		{"\xff", "y", "n", `input "\xff": its name is not UTF-8, and in a model of several sizes, or of sizes that data decides, it has to be: rename it in the ONNX model`},
		{"x", "a\xc3", "n", `output "a\xc3": its name is not UTF-8, and in a model of several sizes, or of sizes that data decides, it has to be: rename it in the ONNX model`},
		{"x", "y", "\x80n", `dimension "\x80n": its name is not UTF-8, and in a model of several sizes, or of sizes that data decides, it has to be: rename it in the ONNX model`},
	} {
		m := &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: &onnx.Graph{
			Name: "g", Inputs: []onnx.ValueInfo{value(c.in, c.dim)}, Outputs: []onnx.ValueInfo{value(c.out, c.dim)},
			Nodes: []*onnx.Node{{Name: "r", OpType: "Relu", Inputs: []string{c.in}, Outputs: []string{c.out}}},
		}}
		r, err := compile.Compile(m, compile.Options{Members: []compile.Sizes{{Dims: map[string]int64{c.dim: 1}}, {Dims: map[string]int64{c.dim: 2}}}})
		require.Nil(t, r)
		var refused *compile.FamilyError
		require.ErrorAs(t, err, &refused)
		require.EqualError(t, err, c.want)
	}
}
