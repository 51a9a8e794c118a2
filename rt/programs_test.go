package rt_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// TestRequestsOfSeveralPrograms has a model whose requests run two programs, both of
// which read x and write y: what the second one writes is the result, of every
// request and every way to make one.
func TestRequestsOfSeveralPrograms(t *testing.T) {
	const other = 6
	ctx := context.Background()
	meta := affineMetadata()
	meta.ProgramFlow.Main = []uint32{mainProgram, other}
	for _, i := range []int{1, 2} {
		meta.Anchors[i].Programs = []uint32{mainProgram, other}
	}
	typ := graph.TensorType{DType: graph.F32, Shape: []int64{2}}
	b := graph.NewBuilder("two")
	w, bias, x := b.AddPersistent("w", typ), b.AddPersistent("b", typ), b.AddLocal("x", typ)
	step := func(name string, fn graph.BinaryFn, with graph.TensorID) graph.Step {
		g := b.BeginGraph(name)
		y, err := b.Node(&graph.Binary{Fn: fn}, name, x, with)
		require.NoError(t, err)
		return b.Repeat(DeviceIterations, b.CopyIn("h2d_x", x), b.Call(g), b.CopyOut("anchor_d2h_y", y[0]))
	}
	b.AddProgram(loadProgram, "WeightsFromHost", b.CopyIn("h2d_w", w), b.CopyIn("h2d_b", bias))
	b.AddProgram(mainProgram, "Program", step("product", graph.Mul, w))
	b.AddProgram(other, "Other", step("sum", graph.Add, bias))
	b.AddProgram(saveProgram, "WeightsToHost", b.CopyOut("weight_d2h_w", w))
	exe, err := b.Finish()
	require.NoError(t, err)
	var code bytes.Buffer
	require.NoError(t, encoding.Encode(&code, exe))

	r := variant{backend: portable, model: file(t, meta, code.Bytes(), affineData)}.open(t)
	in, out := NewInputs(), NewOutputs()
	for i := range 3 {
		for name, request := range map[string]func() error{
			"Run": func() error { return r.Run(ctx, in, out) },
			"Submit": func() error {
				ticket, err := r.Submit(ctx, in, out)
				require.NoError(t, err)
				return ticket.Wait(ctx)
			},
			"RunSamples": func() error {
				samples := make([]YSample, 4)
				err := r.RunSamples(ctx, []XSample{{in.X[0].Data[0]}, {in.X[0].Data[1]}, {in.X[1].Data[0]}, {in.X[1].Data[1]}}, samples)
				out.Y[0].Data, out.Y[1].Data = [2]float32{samples[0].Data, samples[1].Data}, [2]float32{samples[2].Data, samples[3].Data}
				return err
			},
		} {
			fill(in, float32(i))
			clear(out.Y[:])
			require.NoError(t, request())
			x := float32(i)
			require.Equal(t, [DeviceIterations]Y{{[2]float32{x + 10, x + 21}}, {[2]float32{x + 12, x + 23}}}, *out.Y, name)
		}
	}
}
