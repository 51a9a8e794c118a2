package rt_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	_ "github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// The test model "affine" computes y = w·x + b, elementwise, in two device
// iterations. w is a weight that the file has and that can be saved; b must be
// given at load time.
const (
	loadProgram = 0
	mainProgram = 5
	saveProgram = 7
)

func tensorInfo(shape ...int64) popef.TensorInfo {
	return popef.TensorInfo{DataType: popef.F32, Shape: shape}
}

func affineMetadata() popef.Metadata {
	a := func(t popef.TensorType, name, handle string, programs ...uint32) popef.Anchor {
		return popef.Anchor{Name: name, Handle: handle, Type: t, Info: tensorInfo(2), Programs: programs}
	}
	return popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, Executable: "affine", IsInference: true, DeviceIterations: 2,
		EngineOptions: []popef.Option{{Name: "exchange.enablePrefetch", Value: "true"}},
		ProgramFlow:   popef.ProgramFlow{Load: []uint32{loadProgram}, Main: []uint32{mainProgram}, Save: []uint32{saveProgram}},
		Anchors: []popef.Anchor{
			a(popef.Output, "w", "weight_d2h_w", saveProgram),
			a(popef.Input, "x", "h2d_x", mainProgram),
			a(popef.Output, "y", "anchor_d2h_y", mainProgram),
			a(popef.Input, "w", "h2d_w", loadProgram),
			a(popef.Input, "b", "h2d_b", loadProgram),
		},
	}
}

// file writes a model file with one tensor of data for each entry of data.
func file(t testing.TB, meta popef.Metadata, exe []byte, data map[string][]byte) []byte {
	t.Helper()
	var buf popeftest.Buffer
	w := popef.NewWriter(&buf)
	require.NoError(t, w.WriteMetadata(&meta))
	e, err := w.CreateExecutable(meta.Executable, false)
	require.NoError(t, err)
	_, err = e.Write(exe)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	for _, a := range meta.Anchors {
		if d, ok := data[a.Name]; ok && a.Type == popef.Input {
			require.NoError(t, w.WriteTensor(a.Name, a.Info, d))
		}
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

var affineData = map[string][]byte{"w": floats(2, 3)}

// affineContract is the model's contract, as in generated code.
func affineContract(t testing.TB) string {
	m, err := popef.LoadBytes("affine.popef", file(t, affineMetadata(), []byte("x"), affineData))
	require.NoError(t, err)
	return contract.Of(m).Callers().Text()
}

func stream(handle string, d ipu.Direction, program int) ipu.StreamInfo {
	return ipu.StreamInfo{Handle: handle, Direction: d, Bytes: 8, Type: "f32", Shape: []int64{2}, Programs: []int{program}}
}

// affineScript is the model on the fake back end.
func affineScript() *script {
	return &script{
		streams: []ipu.StreamInfo{
			stream("h2d_x", ipu.HostToDevice, mainProgram),
			stream("anchor_d2h_y", ipu.DeviceToHost, mainProgram),
			stream("h2d_w", ipu.HostToDevice, loadProgram),
			stream("h2d_b", ipu.HostToDevice, loadProgram),
			stream("weight_d2h_w", ipu.DeviceToHost, saveProgram),
		},
		programs: map[int]func(context.Context, *engine) error{
			loadProgram: func(_ context.Context, e *engine) error {
				e.log("run %d", loadProgram)
				if err := e.set("h2d_w"); err != nil {
					return err
				}
				return e.set("h2d_b")
			},
			mainProgram: func(_ context.Context, e *engine) error {
				w, b := e.memory["h2d_w"], e.memory["h2d_b"]
				var y [8]byte
				for range 2 {
					x, err := e.in("h2d_x")
					if err != nil {
						return err
					}
					for i := range 2 {
						putF32(y[:], i, f32s(w, i)*f32s(x, i)+f32s(b, i))
					}
					e.done("h2d_x")
					copy(e.moved["anchor_d2h_y"], y[:])
					if err := e.out("anchor_d2h_y", e.moved["anchor_d2h_y"]); err != nil {
						return err
					}
				}
				return nil
			},
			saveProgram: func(_ context.Context, e *engine) error {
				e.log("run %d", saveProgram)
				return e.out("weight_d2h_w", e.memory["h2d_w"])
			},
		},
	}
}

// affinePortable is the model for the cpu back end.
func affinePortable(t testing.TB) []byte {
	t.Helper()
	b := graph.NewBuilder("affine")
	typ := graph.TensorType{DType: graph.F32, Shape: []int64{2}}
	w, bias, x := b.AddPersistent("w", typ), b.AddPersistent("b", typ), b.AddLocal("x", typ)
	g := b.BeginGraph("main")
	wx, err := b.Node(&graph.Binary{Fn: graph.Mul}, "wx", w, x)
	require.NoError(t, err)
	y, err := b.Node(&graph.Binary{Fn: graph.Add}, "y", wx[0], bias)
	require.NoError(t, err)
	b.AddProgram(loadProgram, "WeightsFromHost", b.CopyIn("h2d_w", w), b.CopyIn("h2d_b", bias))
	b.AddProgram(mainProgram, "Program", b.Repeat(2, b.CopyIn("h2d_x", x), b.Call(g), b.CopyOut("anchor_d2h_y", y[0])))
	b.AddProgram(saveProgram, "WeightsToHost", b.CopyOut("weight_d2h_w", w))
	exe, err := b.Finish()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, encoding.Encode(&out, exe))
	return out.Bytes()
}

// variant is one way to run the model.
type variant struct {
	name    string
	backend string
	model   []byte
	script  *script // nil on a real back end
}

// variants are the fake back end in both its ways, and the cpu.
func variants(t testing.TB) []variant {
	var out []variant
	for _, fetching := range []bool{false, true} {
		s := affineScript()
		s.fetching = fetching
		name := fmt.Sprintf("fake %v %s", fetching, t.Name())
		scripts.Store(name, s)
		t.Cleanup(func() { scripts.Delete(name) })
		out = append(out, variant{map[bool]string{false: "in place", true: "fetching"}[fetching], fakeName,
			file(t, affineMetadata(), []byte(name), affineData), s})
	}
	return append(out, variant{"cpu", portable, file(t, affineMetadata(), affinePortable(t), affineData), nil})
}
