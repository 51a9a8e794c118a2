package rt_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// learning is the model "affine" whose main program adds x to w, and y is what
// w is then plus b: what a model that trains does to its weights.
func learning(t testing.TB) variant {
	b := graph.NewBuilder("learning")
	typ := graph.TensorType{DType: graph.F32, Shape: []int64{2}}
	w, bias, x := b.AddPersistent("w", typ), b.AddPersistent("b", typ), b.AddLocal("x", typ)
	g := b.BeginGraph("main")
	require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Add}, "w'", []graph.TensorID{w}, w, x))
	y, err := b.Node(&graph.Binary{Fn: graph.Add}, "y", w, bias)
	require.NoError(t, err)
	b.AddProgram(loadProgram, "WeightsFromHost", b.CopyIn("h2d_w", w), b.CopyIn("h2d_b", bias))
	b.AddProgram(mainProgram, "Program", b.Repeat(2, b.CopyIn("h2d_x", x), b.Call(g), b.CopyOut("anchor_d2h_y", y[0])))
	b.AddProgram(saveProgram, "WeightsToHost", b.CopyOut("weight_d2h_w", w))
	exe, err := b.Finish()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, encoding.Encode(&out, exe))
	return variant{"cpu", "cpu", file(t, affineMetadata(), out.Bytes(), affineData), nil}
}

// TestUpdateOfALearningModel replaces some of what the load programs set while
// the main program has changed the rest: that would throw its work away.
func TestUpdateOfALearningModel(t *testing.T) {
	ctx := context.Background()
	r := learning(t).open(t)
	in, out, saved := NewInputs(), NewOutputs(), &SaveOutputs{W: new(W)}
	in.X[0].Data, in.X[1].Data = [2]float32{1, 1}, [2]float32{10, 10}
	run := func(want [2]float32) {
		t.Helper()
		require.NoError(t, r.Run(ctx, in, out))
		require.Equal(t, want, out.Y[1].Data)
	}
	run([2]float32{2 + 11 + 10, 3 + 11 + 20})

	b := rt.WeightOf("b", &B{[2]float32{100, 200}})
	err := r.UpdateWeights(ctx, b)
	require.ErrorIs(t, err, rt.ErrStateful)
	require.ErrorContains(t, err, `from anchors ["w"]: give these too`)
	run([2]float32{2 + 22 + 10, 3 + 22 + 20}) // as if nobody had asked

	require.NoError(t, r.Save(ctx, saved))
	require.Equal(t, [2]float32{24, 25}, saved.W.Data)
	require.NoError(t, r.UpdateWeights(ctx, b, rt.WeightOf("w", saved.W)))
	run([2]float32{24 + 11 + 100, 25 + 11 + 200})
	require.NoError(t, r.UpdateWeights(ctx, rt.WeightOf("w", &W{[2]float32{0, 0}})), "b is no state: it is as it was")
	run([2]float32{11 + 100, 11 + 200})
}

// TestUpdateBeforeLoading replaces a weight of a learning model of which nothing
// was loaded yet.
func TestUpdateBeforeLoading(t *testing.T) {
	ctx := context.Background()
	m, err := popef.LoadBytes("learning.popef", learning(t).model)
	require.NoError(t, err)
	s, err := modelrt.NewSession(ctx, m, rt.WithBackend("cpu"))
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.UpdateWeights(ctx, rt.Weight{Anchor: "b", Data: floats(1, 2)}))
	require.NoError(t, s.Load(ctx))
	require.ErrorIs(t, s.UpdateWeights(ctx, rt.Weight{Anchor: "b", Data: floats(1, 2)}), rt.ErrStateful)
}

// TestReplicasOfALearningModel opens several of them: each would learn something
// else.
func TestReplicasOfALearningModel(t *testing.T) {
	open := func(v variant) error {
		r, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: &B{[2]float32{10, 20}}},
			genrt.Source{Name: "affine.popef", Bytes: v.model}, rt.WithBackend("cpu"), rt.WithReplicas(2))
		if err == nil {
			err = r.Close()
		}
		return err
	}
	err := open(learning(t))
	require.ErrorIs(t, err, rt.ErrStateful)
	require.ErrorContains(t, err, `from anchors ["w"], so 2 replicas would drift apart`)
	require.NoError(t, open(variants(t)[2]), "a model that learns nothing")
}
