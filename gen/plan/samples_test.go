package plan_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
)

// TestSamplesAreProven: a portable executable whose samples are mixed is refused with the
// node named; one that keeps them apart, or that nothing is known of, is taken.
func TestSamplesAreProven(t *testing.T) {
	for _, c := range []struct {
		name    string
		batch   int64
		op      graph.Op
		foreign bool
		fault   string
	}{
		{"softmax of each sample", 4, &graph.Softmax{Axis: 1}, false, ""},
		{"softmax over samples", 4, &graph.Softmax{Axis: 0}, false, `samples are not independent of each other: node "the softmax" (Softmax)`},
		{"over the only sample", 1, &graph.Softmax{Axis: 0}, false, ""},
		{"a foreign executable", 4, &graph.Softmax{Axis: 0}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sampled(t, c.batch, c.op, c.foreign)
			dim := 0
			_, err := gen.Build(m, gen.Options{BatchDim: &dim})
			if c.fault == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, gen.ErrBuild)
				require.ErrorContains(t, err, c.fault)
				require.ErrorContains(t, err, `output "d2h_y" follows from it`)
			}
			_, err = gen.Build(m, gen.Options{})
			require.NoError(t, err, "without samples nobody asks")
		})
	}
}

// sampled is a model of one operator, of so many samples of 3 elements.
func sampled(t *testing.T, batch int64, op graph.Op, foreign bool) *popef.Model {
	b := graph.NewBuilder("e")
	x := b.AddLocal("x", graph.TensorType{DType: graph.F32, Shape: []int64{batch, 3}})
	g := b.BeginGraph("main")
	y, err := b.Node(op, "the softmax", x)
	require.NoError(t, err)
	b.AddProgram(5, "main", b.CopyIn("h2d_x", x), b.Call(g), b.CopyOut("d2h_y", y[0]))
	exe, err := b.Finish()
	require.NoError(t, err)
	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{batch, 3}}
	md := &popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IsInference: true, Executable: "e", DeviceIterations: 1,
		ProgramFlow: popef.ProgramFlow{Main: []uint32{5}},
		Anchors: []popef.Anchor{
			{Name: "x", Handle: "h2d_x", Programs: []uint32{5}, Info: info, Type: popef.Input},
			{Name: "y", Handle: "d2h_y", Programs: []uint32{5}, Info: info, Type: popef.Output},
		},
	}
	path := filepath.Join(t.TempDir(), "m.popef")
	require.NoError(t, popef.WriteFile(path, func(w *popef.Writer) error {
		if err := w.WriteMetadata(md); err != nil {
			return err
		}
		e, err := w.CreateExecutable("e", false)
		if err != nil {
			return err
		}
		if foreign {
			_, err = e.Write([]byte("GC_EXE_3 of somebody else"))
		} else {
			err = encoding.Encode(e, exe)
		}
		if err != nil {
			return err
		}
		return e.Close()
	}))
	m, err := popef.Load(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}
