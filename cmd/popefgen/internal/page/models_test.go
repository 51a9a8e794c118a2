package page

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
)

// digits compiles the example, with passes or without.
func digits(t testing.TB, without ...string) *compile.Result {
	m, err := onnx.ReadFile(filepath.Join("..", "..", "..", "..", "generated_examples", "digits", "digits.onnx"))
	require.NoError(t, err)
	o := compile.Options{DisablePasses: without}
	o.Batch = 1
	r, err := compile.Compile(m, o)
	require.NoError(t, err)
	return r
}

func allPasses() (names []string) {
	for _, p := range pass.Passes {
		names = append(names, p.Name)
	}
	return names
}

// digitsModel is the example as a page takes it.
func digitsModel(t testing.TB) Model {
	m, err := digits(t).Model("digits.popef")
	require.NoError(t, err)
	return Model{Name: "digits.popef", Model: m, Before: digits(t, allPasses()...).Executable}
}

// residual is an executable of blocks in a row, each of six operators with a
// way around them, and a matrix product to so many classes at its end. name
// makes the names of nodes from the number of the block and a part.
func residual(blocks int, classes int64, name func(block int, part string) string) *graph.Executable {
	const width = 16
	e := &graph.Executable{Name: "residual", Producer: "test"}
	tensor := func(name string, typ graph.TensorType, data []byte) graph.TensorID {
		e.Tensors = append(e.Tensors, graph.Tensor{Name: name, Type: typ, Data: data, Const: data != nil})
		return graph.TensorID(len(e.Tensors) - 1)
	}
	f32 := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	weights := func(n int64, seed int) []byte {
		out := make([]byte, 0, 4*n)
		for i := range n {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(math.Sin(float64(i)*1.7+float64(seed)))))
		}
		return out
	}
	g := graph.Graph{Name: "main"}
	x := tensor("x", f32(1, width), nil)
	in := x
	node := func(op graph.Op, name string, typ graph.TensorType, inputs ...graph.TensorID) graph.TensorID {
		y := tensor(name+":0", typ, nil)
		g.Nodes = append(g.Nodes, graph.Node{Op: op, Name: name, Inputs: inputs, Outputs: []graph.TensorID{y}})
		return y
	}
	for b := range blocks {
		around := x
		for i := range 2 {
			w := tensor(name(b, fmt.Sprintf("w%d", i)), f32(width, width), weights(width*width, 2*b+i))
			x = node(&graph.MatMul{}, name(b, fmt.Sprintf("product%d", i)), f32(1, width), x, w)
			x = node(&graph.Unary{Fn: graph.Relu}, name(b, fmt.Sprintf("relu%d", i)), f32(1, width), x)
		}
		x = node(&graph.Binary{Fn: graph.Add}, name(b, "add"), f32(1, width), x, around)
		x = node(&graph.Softmax{Axis: 1}, name(b, "softmax"), f32(1, width), x)
	}
	w := tensor("classes", f32(width, classes), weights(width*classes, 99))
	y := node(&graph.MatMul{}, "head", f32(1, classes), x, w)
	e.Graphs = []graph.Graph{g}
	e.Streams = []graph.Stream{{Handle: "h2d_x", Direction: graph.HostToDevice, Type: f32(1, width)}, {Handle: "anchor_d2h_y", Direction: graph.DeviceToHost, Type: f32(1, classes)}}
	e.Programs = []graph.Program{{Index: 5, Name: "Program", Steps: []graph.Step{
		{Kind: graph.CopyIn, Stream: 0, Tensor: in}, {Kind: graph.Call}, {Kind: graph.CopyOut, Stream: 1, Tensor: y},
	}}}
	return e
}

func slashed(block int, part string) string {
	return fmt.Sprintf("/net/stage%d/block%d/%s", block/20, block, part)
}

func flat(block int, part string) string { return fmt.Sprintf("%s_%d", part, block) }

// modelOf writes an executable as a model: program 5 is its main program,
// program 0 loads weights, which are zero.
func modelOf(t testing.TB, e *graph.Executable) *popef.Model {
	var exe bytes.Buffer
	require.NoError(t, graph.Verify(e))
	require.NoError(t, encoding.Encode(&exe, e))
	md := &popef.Metadata{ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IsInference: true, Executable: "1", DeviceIterations: 1, ProgramFlow: popef.ProgramFlow{Main: []uint32{5}}}
	weights := map[graph.StreamID]bool{}
	if p := &e.Programs[0]; p.Index == 0 {
		md.ProgramFlow.Load = []uint32{0}
		for _, s := range p.Steps {
			weights[s.Stream] = weights[s.Stream] || s.Kind == graph.CopyIn
		}
	}
	for i, s := range e.Streams {
		info, err := export.Info(s.Type)
		require.NoError(t, err)
		a := popef.Anchor{Name: strings.TrimPrefix(strings.TrimPrefix(s.Handle, "h2d_"), "anchor_d2h_"), Handle: s.Handle, Programs: []uint32{5}, Info: info, Type: popef.Input}
		if s.Direction == graph.DeviceToHost {
			a.Type = popef.Output
		}
		if weights[graph.StreamID(i)] {
			a.Programs = []uint32{0}
		}
		md.Anchors = append(md.Anchors, a)
	}
	path := filepath.Join(t.TempDir(), "model.popef")
	require.NoError(t, popef.WriteFile(path, func(w *popef.Writer) error {
		if err := w.WriteMetadata(md); err != nil {
			return err
		}
		blob, err := w.CreateExecutable("1", false)
		if err != nil {
			return err
		}
		if _, err := blob.Write(exe.Bytes()); err != nil {
			return err
		}
		for i := range e.Streams {
			if weights[graph.StreamID(i)] {
				if err := w.WriteTensor(md.Anchors[i].Name, md.Anchors[i].Info, make([]byte, e.Streams[i].Type.Bytes())); err != nil {
					return err
				}
			}
		}
		return blob.Close()
	}))
	m, err := popef.Load(path)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}
