package rt_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// largeModel is a file whose executable is compressed and has a large constant, tables and
// an arena.
func largeModel(t testing.TB) string {
	t.Helper()
	b := graph.NewBuilder("large")
	typ := graph.TensorType{DType: graph.F32, Shape: []int64{512, 512}}
	x, k := b.AddLocal("x", typ), b.AddConst("k", typ, make([]byte, typ.Bytes()))
	g := b.BeginGraph("main")
	y, err := b.Node(&graph.MatMul{}, "product", x, k)
	require.NoError(t, err)
	z, err := b.Node(&graph.MatMul{}, "again", y[0], y[0])
	require.NoError(t, err)
	b.AddProgram(mainProgram, "Program", b.CopyIn("x", x), b.Call(g), b.CopyOut("z", z[0]))
	exe, err := b.Finish()
	require.NoError(t, err)
	var encoded bytes.Buffer
	require.NoError(t, encoding.Encode(&encoded, exe))

	var buf popeftest.Buffer
	w := popef.NewWriter(&buf)
	a := func(typ popef.TensorType, name string) popef.Anchor {
		return popef.Anchor{Name: name, Handle: name, Type: typ, Info: tensorInfo(512, 512), Programs: []uint32{mainProgram}}
	}
	require.NoError(t, w.WriteMetadata(&popef.Metadata{ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, Executable: "large", IsInference: true, DeviceIterations: 1,
		ProgramFlow: popef.ProgramFlow{Main: []uint32{mainProgram}}, Anchors: []popef.Anchor{a(popef.Input, "x"), a(popef.Output, "z")}}))
	e, err := w.CreateExecutable("large", true)
	require.NoError(t, err)
	_, err = e.Write(encoded.Bytes())
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "large.popef")
	require.NoError(t, os.WriteFile(path, buf.Bytes(), 0o666))
	return path
}

// TestOneBudget opens a model whose blobs, executable when decompressed, tables and
// memory of its engine count on one budget, which the engine option sets: with a byte less than
// they need together it is refused, and nothing is left on the budget of who
// opens several.
func TestOneBudget(t *testing.T) {
	path := largeModel(t)
	whole := budget.New(1 << 40)
	s, err := modelrt.OpenSession(budget.Into(context.Background(), whole), []string{path}, rt.WithBackend("cpu"))
	require.NoError(t, err)
	need := whole.Used()
	require.Greater(t, need, int64(3<<20), "1 MiB decompressed, 1 MiB packed, 1 MiB between the products")
	require.NoError(t, s.Close())
	require.Zero(t, whole.Used())

	open := func(n int64) (rt.Session, error) {
		return modelrt.OpenSession(budget.Into(context.Background(), whole), []string{path}, rt.WithBackend("cpu"), rt.WithEngineOption("memory", strconv.FormatInt(n, 10)))
	}
	s, err = open(need)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for limit, what := range map[int64]string{
		need - 1:  "more than the limit of " + budget.Text(need-1),
		1<<20 + 1: "decompressing the executable",
		10:        "the list of blobs",
	} {
		_, err = open(limit)
		require.ErrorIs(t, err, budget.ErrExceeded)
		require.ErrorContains(t, err, "large.popef")
		require.ErrorContains(t, err, what)
		require.ErrorContains(t, err, budget.Advice)
		require.Zero(t, whole.Used())
	}
	_, err = open(need - 1)
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.ErrorContains(t, err, "most of all 1 MiB of tensor")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = modelrt.OpenSession(ctx, []string{path})
	require.ErrorIs(t, err, context.Canceled)
}
