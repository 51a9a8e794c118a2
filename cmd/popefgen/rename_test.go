package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/popefgen/popefgen/popef"
)

// proposed returns what is proposed for a compiled model, after having
// generated its package with that.
func proposed(t *testing.T, r *compile.Result) []gen.Rename {
	t.Helper()
	data, err := r.Bytes()
	require.NoError(t, err)
	m, err := popef.LoadBytes("m.popef", data)
	require.NoError(t, err)
	defer m.Close()
	opts := gen.Options{ModelBase: "m.popef", Tests: true}
	names, err := gen.Propose(m, opts)
	require.NoError(t, err)
	opts.Renames = map[string]string{}
	for _, n := range names {
		opts.Renames[n.Key] = n.To
	}
	plan, err := gen.Build(m, opts)
	require.NoError(t, err)
	_, err = gen.Emit(plan)
	require.NoError(t, err)
	again, err := gen.Propose(m, opts)
	require.NoError(t, err)
	require.Empty(t, again)
	return names
}

// TestProposedUses names tensors after the operators that make and read them.
func TestProposedUses(t *testing.T) {
	node := func(op string, in, out string) *onnx.Node {
		return &onnx.Node{OpType: op, Name: op, Inputs: strings.Fields(in), Outputs: strings.Fields(out)}
	}
	dims := func(all ...int64) (out []onnx.Dim) {
		for _, n := range all {
			out = append(out, onnx.Dim{Known: true, Value: n})
		}
		return out
	}
	kernels := &onnx.Tensor{Name: "w", Elem: onnx.Float, Dims: []int64{2, 3, 3, 3}, Data: make([]byte, 4*2*3*3*3)}
	for _, c := range []struct {
		name  string
		shape []int64
		nodes []*onnx.Node
		want  string
	}{
		{"a softmax", []int64{1, 3}, []*onnx.Node{node("Softmax", "1", "2")}, "Input Probabilities"},
		{"a softmax that is moved", []int64{3, 2}, []*onnx.Node{node("Softmax", "1", "p"), node("Transpose", "p", "2")}, "Input Probabilities"},
		{"a softmax within", []int64{1, 3}, []*onnx.Node{node("Softmax", "1", "p"), node("Exp", "p", "2")}, "Input Output"},
		{"a sigmoid", []int64{1, 3}, []*onnx.Node{node("Sigmoid", "1", "2")}, "Input Scores"},
		{"a sigmoid at the end of a chain", []int64{1, 3}, []*onnx.Node{node("Exp", "1", "p"), node("Neg", "p", "q"), node("Sigmoid", "q", "2")}, "Input Scores"},
		{"gates", []int64{1, 3, 4}, []*onnx.Node{node("Sigmoid", "1", "2")}, "Input Output"},
		{"a maximum", []int64{2, 3}, []*onnx.Node{node("ArgMax", "1", "2")}, "Input Indices"},
		{"two of a kind", []int64{2, 3}, []*onnx.Node{node("Softmax", "1", "2"), node("Softmax", "2", "3")}, "Input Probabilities0 Probabilities1"},
		{"an image", []int64{1, 3, 16, 16}, []*onnx.Node{node("Conv", "1 w", "2")}, "Image Output"},
		{"an image, scaled", []int64{1, 3, 16, 16}, []*onnx.Node{node("Neg", "1", "n"), node("Conv", "n w", "2")}, "Image Output"},
		{"too small for one", []int64{1, 3, 3, 3}, []*onnx.Node{node("Conv", "1 w", "2")}, "Input Output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &onnx.Graph{Name: "m", Nodes: c.nodes, Inputs: []onnx.ValueInfo{{Name: "1", Elem: onnx.Float, HasShape: true, Dims: dims(c.shape...)}}}
			outputs := 1
			if c.name == "two of a kind" {
				outputs = 2
			}
			for _, n := range c.nodes[len(c.nodes)-outputs:] {
				elem := onnx.Float
				if n.OpType == "ArgMax" {
					elem = onnx.Int64
				}
				g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: n.Outputs[0], Elem: elem})
			}
			if strings.Contains(fmt.Sprint(c.nodes[len(c.nodes)-1].Inputs), "w") {
				g.Initializers = []*onnx.Tensor{kernels}
			}
			r, err := compile.Compile(&onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 13}}, Graph: g}, compile.Options{})
			require.NoError(t, err)
			var got []string
			for _, n := range proposed(t, r) {
				got = append(got, n.To)
			}
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

// TestProposedForPublicModels goes over models that others made.
func TestProposedForPublicModels(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles every public model")
	}
	dir := publicModels(t)
	want := map[string]string{
		"basic_pitch":         "ServingDefaultInput2_0=Input StatefulPartitionedCall2=Output2 StatefulPartitionedCall1=Output1 StatefulPartitionedCall0=Output0",
		"blazeface_front_128": "Input0=Input Identity0=Output0 Identity1_0=Output1 Identity2_0=Output2 Identity3_0=Output3",
		"dtln_lstm1":          "Activation2=Output0 TfOpLayerStack2=Output1",
		"fastestdet_352":      "Input1=Input X758=Output",
		"microkws_fp32":       "ServingDefaultInput0=Input StatefulPartitionedCall0=Probabilities",
		"microkws_qdq":        "ServingDefaultInput0=Input StatefulPartitionedCall0=Probabilities",
		"mlsd_tiny_320":       "InputImageWithAlpha0=InputImageWithAlpha",
		"mnist_cnn":           "Input3=Input Plus214Output0=Output",
		"ppocr_cls":           "X=Image Softmax0Tmp0=Probabilities",
		"squeezenet_fp16":     "Data0=Data Softmaxout1=Probabilities",
		"velardo_mlp":         "Dense3=Probabilities",
		"wakeword_head":       "OnnxFlatten0=Input X39=Scores",
	}
	cases, err := verify.Find([]string{dir}, true)
	require.NoError(t, err)
	got := map[string]string{}
	for _, c := range cases {
		m, err := onnx.ReadFile(filepath.Join(c.Dir, "model.onnx"))
		require.NoError(t, err)
		r, err := verify.Compile(m, c.Sets[0], compile.Options{})
		require.NoError(t, err)
		var all []string
		for _, n := range proposed(t, r.Result) {
			all = append(all, n.From+"="+n.To)
		}
		if len(all) > 0 {
			got[filepath.Base(c.Dir)] = strings.Join(all, " ")
		}
	}
	require.Empty(t, cmp.Diff(want, got))
}

func TestRenamesOf(t *testing.T) {
	got, err := renamesOf([]string{"image=Scan", "a=b=Sum", "39=Scores"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"image": "Scan", "a=b": "Sum", "39": "Scores"}, got)
	for _, bad := range []string{"image", "=Scan", "image=", ""} {
		_, err := renamesOf([]string{bad})
		require.ErrorContains(t, err, "want ANCHOR=GoName", bad)
	}
	_, err = renamesOf([]string{"a=B", "a=C"})
	require.ErrorContains(t, err, "twice")
}

// TestPrintedProposals types what generate prints: the flags through a shell's
// rules of quotes, and the line of YAML.
func TestPrintedProposals(t *testing.T) {
	all := []gen.Rename{{Key: "39", From: "X39", To: "Scores"}, {Key: "onnx::a b'c$(id)", From: "OnnxABC", To: "Input"}, {Key: "画\"\\\u202e", From: "X画", To: "Image"}}
	var b bytes.Buffer
	(&job{dir: "net"}).printProposals(&b, all)
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, "hint: names that say little (X39, OnnxABC, X画); for others:", lines[0])
	require.True(t, strings.HasPrefix(lines[1], `  --rename 39=Scores --rename 'onnx::a b'\''c$(id)=Input' --rename $'`), lines[1])
	var file struct{ Rename map[string]string }
	require.NoError(t, yaml.Unmarshal([]byte(strings.TrimSpace(lines[3])), &file), lines[3])
	want := map[string]string{}
	for _, r := range all {
		want[r.Key] = r.To
	}
	require.Equal(t, want, file.Rename)

	b.Reset()
	(&job{dir: "net", project: true}).printProposals(&b, all)
	require.NotContains(t, b.String(), "--rename")
	require.Contains(t, b.String(), `rename: {"39": Scores`)

	b.Reset()
	for i := range 20 {
		all = append(all, gen.Rename{Key: fmt.Sprint(i), From: fmt.Sprintf("X%d", i), To: fmt.Sprintf("Output%d", i)})
	}
	(&job{}).printProposals(&b, all)
	require.Equal(t, 8, strings.Count(b.String(), "--rename"))
	require.Contains(t, b.String(), "…)")
	b.Reset()
	(&job{}).printProposals(&b, nil)
	require.Empty(t, b.String())
}
