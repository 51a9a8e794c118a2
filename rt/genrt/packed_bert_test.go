package genrt_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// bertLength is how many positions a row has.
const bertLength = 128

// bertSequence and bertResult are what a package would have for the model that bert
// compiles.
type (
	bertSequence struct{ IDs, Types []int64 }
	bertResult   struct{ Hidden [][128]float32 }
)

// bert opens a public model of BERT's kind with rows of bertLength, whose attention and
// positions are inputs that the runner fills.
func bert(t testing.TB, rows int64, opts ...rt.RunnerOption) *genrt.Core {
	t.Helper()
	return bertOf(t, rows, bertLength, opts...)
}

// bertOf is bert with rows of another length.
func bertOf(t testing.TB, rows, length int64, opts ...rt.RunnerOption) *genrt.Core {
	t.Helper()
	root := os.Getenv("POPEFGEN_TESTDATA")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	path := filepath.Join(root, "models", "synth_bert_tiny", "model.onnx")
	if _, err := os.Stat(path); err != nil {
		t.Skip("no public models: ", err)
	}
	m, err := onnx.ReadFile(path)
	require.NoError(t, err)
	g := m.Graph
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *onnx.Node) bool {
		return n.Outputs[0] == "t12" || n.Outputs[0] == "t35" // positions, and what the mask adds to scores
	})
	for _, n := range g.Nodes {
		for i, in := range n.Inputs {
			switch in {
			case "t12":
				n.Inputs[i] = "positions"
			case "t35":
				n.Inputs[i] = "bias"
			}
		}
	}
	free := func(symbols ...string) (dims []onnx.Dim) {
		for _, s := range symbols {
			dims = append(dims, onnx.Dim{Symbol: s})
		}
		return dims
	}
	attention := free("batch", "one", "sequence", "sequence")
	attention[1] = onnx.Dim{Known: true, Value: 1}
	g.Inputs = []onnx.ValueInfo{g.Inputs[0], g.Inputs[2],
		{Name: "positions", Elem: g.Inputs[0].Elem, HasShape: true, Dims: free("batch", "sequence")},
		{Name: "bias", Elem: g.Outputs[0].Elem, HasShape: true, Dims: attention}}
	g.Outputs = g.Outputs[:1]
	r, err := compile.Compile(m, compile.Options{Options: onnx.Options{Dims: map[string]int64{"batch": rows, "sequence": length}}})
	require.NoError(t, err)
	data, err := r.Bytes()
	require.NoError(t, err)
	model, err := popef.LoadBytes("bert.popef", data)
	require.NoError(t, err)
	positions := int(rows * length)
	spec := &genrt.Spec{
		Package: "bert", Contract: contract.Of(model).Callers().Text(), Iterations: 1, QueueDepth: 1,
		Pack: &genrt.PackSpec{Rows: int(rows), Length: int(length), Entries: positions, Tensors: []genrt.PackTensor{
			{Kind: genrt.PackPosition, Parts: positions},
			{Kind: genrt.PackPosition, Parts: positions},
			{Kind: genrt.PackPositions, Parts: positions, Elem: "int64"},
			{Kind: genrt.PackBias, Parts: positions * int(length), Elem: "float32"},
			{Kind: genrt.PackPosition, Parts: positions},
		}},
	}
	sizes := []int{8 * positions, 8 * positions, 8 * positions, 4 * positions * int(length), 4 * 128 * positions}
	for i, v := range append(slices.Clone(g.Inputs), g.Outputs...) {
		a := genrt.AnchorSpec{Name: v.Name, GoName: v.Name, Role: genrt.RunInput, Bytes: sizes[i]}
		if i == len(sizes)-1 {
			a.Role = genrt.RunOutput
		}
		spec.Anchors = append(spec.Anchors, a)
	}
	bindings := func() (out []genrt.Binding) {
		for i, n := range sizes[:4] {
			out = append(out, genrt.Binding{Anchor: i, Stream: genrt.NewRawInput(n)})
		}
		return append(out, genrt.Binding{Anchor: 4, Stream: genrt.NewRawOutput(sizes[4])})
	}
	c := new(genrt.Core)
	require.NoError(t, c.Open(context.Background(), spec, genrt.Source{Name: "bert.popef", Bytes: data}, bindings, nil, opts...))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func bertParts(in *bertSequence, out *bertResult, parts []genrt.Samples) []genrt.Samples {
	return append(parts, genrt.SamplesOf(in.IDs), genrt.SamplesOf(in.Types), genrt.Samples{}, genrt.Samples{}, genrt.SamplesOf(out.Hidden))
}

// bertRequests returns sequences of 4 to 128 tokens.
func bertRequests(n int) (in []bertSequence, out []bertResult) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range n {
		length := 4 + rng.IntN(125)
		s := bertSequence{make([]int64, length), make([]int64, length)}
		for i := range length {
			s.IDs[i], s.Types[i] = rng.Int64N(30522), rng.Int64N(2)
		}
		in, out = append(in, s), append(out, bertResult{make([][128]float32, length)})
	}
	return in, out
}

// TestPackedAttention compares what a model of BERT's kind says of sequences that share its
// rows with what it says of each alone.
// Feature 89.
func TestPackedAttention(t *testing.T) {
	ctx := context.Background()
	in, want := bertRequests(24)
	alone := bert(t, 1)
	for i := range in {
		require.NoError(t, genrt.RunPacked(ctx, alone, in[i:i+1], want[i:i+1], bertParts))
	}
	require.Equal(t, uint64(len(in)), alone.Session(0).Stats().Requests)
	for _, p := range []rt.PackPolicy{{Timeout: 1}, {Algorithm: rt.PackFirstFit, Timeout: 1}, {Timeout: 1, Separator: 3}} {
		_, got := bertRequests(24)
		c := bert(t, 4, rt.WithPacking(p))
		require.NoError(t, genrt.RunPacked(ctx, c, in, got, bertParts))
		require.Less(t, c.Session(0).Stats().Requests, uint64(len(in)/3))
		for i := range want {
			for k := range want[i].Hidden {
				require.InDeltaSlice(t, want[i].Hidden[k][:], got[i].Hidden[k][:], 1e-5, "sequence %d, position %d, %v", i, k, p.Algorithm)
			}
		}
	}
}

// BenchmarkPacked says what a request of 4 to 128 tokens takes, packed into four rows,
// alone in four rows, alone in one, and alone in one that is the shortest of 16, 32, 64 and 128
// positions which holds it, as a family of lengths computes it; the first over the others, measured in turns.
func BenchmarkPacked(b *testing.B) {
	ctx := context.Background()
	four, one := bert(b, 4), bert(b, 1)
	in, out := bertRequests(64)
	alone := func(c *genrt.Core) func() {
		return func() {
			for i := range in {
				require.NoError(b, genrt.RunPacked(ctx, c, in[i:i+1], out[i:i+1], bertParts))
			}
		}
	}
	lengths := []*genrt.Core{bertOf(b, 1, 16), bertOf(b, 1, 32), bertOf(b, 1, 64), one}
	runs := []func(){func() { require.NoError(b, genrt.RunPacked(ctx, four, in, out, bertParts)) }, alone(four), alone(one), func() {
		for i := range in {
			c := 0
			for 16<<c < len(in[i].IDs) {
				c++
			}
			require.NoError(b, genrt.RunPacked(ctx, lengths[c], in[i:i+1], out[i:i+1], bertParts))
		}
	}}
	var best [4]time.Duration
	for b.Loop() {
		for i, run := range runs {
			start := time.Now()
			run()
			if took := time.Since(start); best[i] == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	b.ReportMetric(float64(best[0].Nanoseconds())/float64(len(in)), "ns/request")
	b.ReportMetric(float64(best[0])/float64(best[1]), "of-4x128")
	b.ReportMetric(float64(best[0])/float64(best[2]), "of-1x128")
	b.ReportMetric(float64(best[0])/float64(best[3]), "of-lengths")
}
