package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// TestReplicasShareWeights opens replicas of compiled models and
// gives one of them other weights: what is packed is there once for each set of
// weights, constants once in any case.
func TestReplicasShareWeights(t *testing.T) {
	const rows, n = 4, 48
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) []byte {
		var b []byte
		for range n {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(r.Float32()-0.5))
		}
		return b
	}
	fixed := func(d ...int64) []onnx.Dim {
		var all []onnx.Dim
		for _, d := range d {
			all = append(all, onnx.Dim{Known: true, Value: d})
		}
		return all
	}
	model := &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 13}}, Graph: &onnx.Graph{
		Name:         "product",
		Nodes:        []*onnx.Node{{OpType: "MatMul", Inputs: []string{"x", "w"}, Outputs: []string{"y"}}},
		Initializers: []*onnx.Tensor{{Name: "w", Elem: onnx.Float, Dims: []int64{n, n}, Data: draw(n * n)}},
		Inputs:       []onnx.ValueInfo{{Name: "x", Elem: onnx.Float, HasShape: true, Dims: fixed(rows, n)}},
		Outputs:      []onnx.ValueInfo{{Name: "y", Elem: onnx.Float}},
	}}
	x := draw(rows * n)
	ctx := context.Background()
	for name, o := range map[string]struct{ constants, compressed bool }{
		"file": {}, "constants": {constants: true}, "compressed": {compressed: true}, "compressed constants": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.popef")
			c, err := compile.Compile(model, compile.Options{Options: onnx.Options{FoldWeights: o.constants}})
			require.NoError(t, err)
			require.NoError(t, c.WriteFile(path, o.compressed))
			spec := specOf(t, path)
			var core genrt.Core
			var in []*genrt.RawInput
			var out []*genrt.RawOutput
			bindings := func() []genrt.Binding {
				i, o := genrt.NewRawInput(4*rows*n), genrt.NewRawOutput(4*rows*n)
				in, out = append(in, i), append(out, o)
				return []genrt.Binding{{Anchor: 0, Stream: i}, {Anchor: 1, Stream: o}}
			}
			require.NoError(t, core.Open(ctx, spec, genrt.Source{Path: path}, bindings, nil, rt.WithReplicas(3)))
			defer core.Close() //nolint:errcheck // nothing depends on it
			answer := func(i int) []byte {
				y := make([]byte, 4*rows*n)
				_, err := core.Begin(ctx, i)
				require.NoError(t, err)
				require.NoError(t, in[i].Bind(x))
				require.NoError(t, out[i].Bind(y))
				require.NoError(t, core.Main(ctx, i))
				return y
			}
			sharing := func(i int) cpu.Sharing { return core.Session(i).Engine().(*cpu.Engine).Sharing() }
			first := answer(0)
			for i := range 3 {
				require.Equal(t, first, answer(i))
				s := sharing(i)
				require.Equal(t, 3, s.Engines)
				require.Equal(t, s.PackedBytes, s.SharedBytes)
			}
			if sharing(0).PackedBytes == 0 || o.constants {
				return
			}
			other := draw(n * n)
			require.NoError(t, core.Session(1).UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: other}))
			second := answer(1)
			require.NotEqual(t, first, second)
			require.Equal(t, first, answer(0))
			require.Equal(t, first, answer(2))
			require.Zero(t, sharing(1).SharedBytes)
			require.NoError(t, core.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: bytes.Clone(other)}))
			for i := range 3 {
				require.Equal(t, second, answer(i))
				require.Equal(t, sharing(i).PackedBytes, sharing(i).SharedBytes)
			}
		})
	}
}

// specOf is what generated code would know of a compiled model.
func specOf(t *testing.T, path string) *genrt.Spec {
	m, err := popef.Load(path)
	require.NoError(t, err)
	defer m.Close()
	found := contract.Of(m)
	spec := &genrt.Spec{Package: "model", Contract: found.Callers().Text(), Iterations: found.DeviceIterations(), QueueDepth: 1}
	for _, a := range found.Anchors {
		if a.Role != genrt.RunInput && a.Role != genrt.RunOutput {
			continue
		}
		size, err := a.Info.SizeInBytes()
		require.NoError(t, err)
		spec.Anchors = append(spec.Anchors, genrt.AnchorSpec{Name: a.Name, Handle: a.Handle, GoName: a.Name, Role: a.Role, Bytes: int(size)})
	}
	return spec
}
