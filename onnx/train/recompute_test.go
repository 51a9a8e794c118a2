package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/train"
)

// recomputed is what some steps with a recomputation give.
type recomputed struct {
	losses  [][]byte
	weights map[string][]byte
	arena   int64
}

// trained makes steps on numbers that are drawn anew for each, and evaluates before each with the same.
func trained(t testing.TB, m *onnx.Model, o train.Options, steps int) (got recomputed) {
	t.Helper()
	r, err := train.Compile(context.Background(), m, o)
	require.NoError(t, err)
	l := newLearner(t, r, ipu.Option{Name: "threads", Value: "1"}).start()
	random := rand.New(rand.NewPCG(5, 6))
	for range steps {
		for _, in := range r.Inputs {
			v := make([]float32, in.Type.Elements())
			for i := range v {
				if in.Elem == onnx.Float {
					v[i] = random.Float32()
				} else {
					v[i] = float32(random.IntN(2)) // tokens, labels, masks
				}
			}
			l.give(in.Name, encoded(t, in.Type.DType, v))
		}
		l.run(9)
		evaluated := l.got("loss")
		l.run(5)
		require.Equal(t, evaluated, l.got("loss"), "the loss that Evaluate gives is that of the step")
		got.losses = append(got.losses, l.got("loss")...)
	}
	got.weights = l.weights()
	got.arena = l.engine.MemoryReport().ArenaBytes
	return got
}

// sameBits trains with each recomputation and wants equal bits; it returns the memory of each.
func sameBits(t *testing.T, m *onnx.Model, o train.Options, steps int) map[autodiff.Recompute]int64 {
	t.Helper()
	var want recomputed
	arena := map[autodiff.Recompute]int64{}
	for i, way := range []autodiff.Recompute{autodiff.RecomputeNone, autodiff.RecomputeNorms, autodiff.RecomputeStandard, autodiff.RecomputeAll} {
		o.Recompute = way
		got := trained(t, m, o, steps)
		arena[way], got.arena = got.arena, 0
		if i == 0 {
			want = got
		}
		require.Equal(t, want.losses, got.losses, "losses with recomputation %q", way)
		require.Equal(t, want.weights, got.weights, "weights with recomputation %q", way)
	}
	return arena
}

// TestRecomputeNetworks trains the networks of TestNetworks, whole and with the first half of their weights frozen.
func TestRecomputeNetworks(t *testing.T) {
	const folder = "testdata/networks/"
	text, err := os.ReadFile(folder + "networks.json")
	require.NoError(t, err)
	var index struct {
		Networks []struct {
			Name, Loss string
			Weights    []string
		}
	}
	require.NoError(t, json.Unmarshal(text, &index))
	require.NotEmpty(t, index.Networks)
	for _, n := range index.Networks {
		for _, frozen := range []int{0, len(n.Weights) / 2} {
			t.Run(fmt.Sprint(n.Name, " ", frozen), func(t *testing.T) {
				m, err := onnx.ReadFile(folder + n.Name + ".onnx")
				require.NoError(t, err)
				o := train.Options{Loss: train.Loss{Kind: n.Loss}, Optimizer: ofP(1).Optimizer, Freeze: slices.Clone(n.Weights[:frozen])}
				if n.Name == "batchnorm" {
					o.Freeze = append(o.Freeze, "*running*")
				}
				sameBits(t, m, o, 2)
			})
		}
	}
}

// TestRecomputeBERT trains a public model whose attention and normalisations are primitives.
func TestRecomputeBERT(t *testing.T) {
	m, err := onnx.ReadFile(filepath.Join(onnxtest.Data(t), "models", "bert_mlm_small", "model.onnx"))
	require.NoError(t, err)
	for _, freeze := range [][]string{nil, {"encoder.*", "*layers.0*"}} {
		sameBits(t, m, train.Options{Options: onnx.Options{Batch: 2, Dims: map[string]int64{"tokens": 8}}, Optimizer: ofP(1).Optimizer, Freeze: freeze}, 1)
	}
}

// encoder is layers of an encoder as PyTorch exports them to operators of old: attention, layer normalisation and gelu are
// primitives, gelu in two ways.
func encoder(layers int) *onnx.Model {
	const batch, tokens, heads, d = 2, 8, 2, 16
	g := &onnx.Graph{Name: "encoder", Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, batch, tokens, d)}}
	random := rand.New(rand.NewPCG(7, 8))
	count := 0
	node := func(op string, in []string, attrs ...*onnx.Attribute) string {
		count++
		out := fmt.Sprint("t", count)
		g.Nodes = append(g.Nodes, onnxtest.Node(op, in, onnxtest.Names(out), attrs...))
		return out
	}
	add := func(name string, t *onnx.Tensor) string {
		g.Initializers = append(g.Initializers, onnxtest.Named(t, name))
		return name
	}
	number := func(v float64) string { // a node, as what trains are initializers
		return node("Constant", nil, onnxtest.ATensor("value", onnxtest.F32s(nil, v)))
	}
	weight := func(name string, from float64, shape ...int64) string {
		n := int64(1)
		for _, k := range shape {
			n *= k
		}
		v := make([]float64, n)
		for i := range v {
			v[i] = from + 0.3*random.NormFloat64()
		}
		return add(name, onnxtest.F32s(shape, v...))
	}
	linear := func(name, x string, from, to int64) string {
		return node("Add", onnxtest.Names(node("MatMul", onnxtest.Names(x, weight(name+".w", 0, from, to))), weight(name+".b", 0, to)))
	}
	heard := add("heads", onnxtest.List(batch, tokens, heads, d/heads))
	whole := add("whole", onnxtest.List(batch, tokens, d))
	norm := func(name, x string) string {
		mean := func(x string) string { return node("ReduceMean", onnxtest.Names(x), onnxtest.AInts("axes", -1)) }
		off := node("Sub", onnxtest.Names(x, mean(x)))
		variance := mean(node("Pow", onnxtest.Names(off, number(2))))
		y := node("Div", onnxtest.Names(off, node("Sqrt", onnxtest.Names(node("Add", onnxtest.Names(variance, number(1e-5)))))))
		return node("Add", onnxtest.Names(node("Mul", onnxtest.Names(y, weight(name+".scale", 1, d))), weight(name+".shift", 0, d)))
	}
	x := "x"
	for l := range layers {
		name := fmt.Sprintf("layer%d.", l)
		head := func(part string, perm ...int64) string {
			return node("Transpose", onnxtest.Names(node("Reshape", onnxtest.Names(linear(name+part, x, d, d), heard))), onnxtest.AInts("perm", perm...))
		}
		scores := node("Div", onnxtest.Names(node("MatMul", onnxtest.Names(head("q", 0, 2, 1, 3), head("k", 0, 2, 3, 1))), number(math.Sqrt(d/heads))))
		y := node("MatMul", onnxtest.Names(node("Softmax", onnxtest.Names(scores), onnxtest.AInt("axis", -1)), head("v", 0, 2, 1, 3)))
		y = node("Reshape", onnxtest.Names(node("Transpose", onnxtest.Names(y), onnxtest.AInts("perm", 0, 2, 1, 3)), whole))
		x = norm(name+"norm1", node("Add", onnxtest.Names(x, linear(name+"o", y, d, d))))
		up := linear(name+"up", x, d, 4*d)
		side := node("Add", onnxtest.Names(node("Erf", onnxtest.Names(node("Div", onnxtest.Names(up, number(math.Sqrt2))))), number(1)))
		var gelu string
		if l%2 == 0 {
			gelu = node("Mul", onnxtest.Names(node("Mul", onnxtest.Names(up, side)), number(0.5)))
		} else {
			gelu = node("Mul", onnxtest.Names(node("Mul", onnxtest.Names(up, number(0.5))), side))
		}
		x = norm(name+"norm2", node("Add", onnxtest.Names(x, linear(name+"down", gelu, 4*d, d))))
	}
	scores := linear("head", node("ReduceMean", onnxtest.Names(x), onnxtest.AInts("axes", 1), onnxtest.AInt("keepdims", 0)), d, 4)
	g.Outputs = []onnx.ValueInfo{onnxtest.Info(scores, onnx.Float, batch, 4)}
	return onnxtest.Model(13, g)
}

// TestRecomputeEncoder trains layers whose primitives the passes join where nothing of the inside is read: the last layers
// alone too, before which nothing goes back.
func TestRecomputeEncoder(t *testing.T) {
	for _, freeze := range [][]string{nil, {"layer0.*", "layer1.*"}, {"*.scale", "*.q.*"}} {
		arena := sameBits(t, encoder(6), train.Options{Optimizer: ofP(1).Optimizer, Freeze: freeze}, 2)
		if freeze == nil {
			require.Less(t, 5*arena[autodiff.RecomputeStandard], 4*arena[autodiff.RecomputeNone])
		}
	}
}
