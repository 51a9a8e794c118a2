package rt_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// The test model "shift" computes y = x + b for batches of four samples of
// three elements. b must be given at load time and can be saved.
const (
	shiftBatch  = 4
	shiftSample = 12 // bytes
)

func shiftMetadata() popef.Metadata {
	a := func(t popef.TensorType, name, handle string, program uint32, shape ...int64) popef.Anchor {
		return popef.Anchor{Name: name, Handle: handle, Type: t, Info: tensorInfo(shape...), Programs: []uint32{program}}
	}
	return popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, Executable: "shift", IsInference: true,
		ProgramFlow: popef.ProgramFlow{Load: []uint32{loadProgram}, Main: []uint32{mainProgram}, Save: []uint32{saveProgram}},
		Anchors: []popef.Anchor{
			a(popef.Input, "x", "h2d_x", mainProgram, shiftBatch, 3),
			a(popef.Output, "y", "d2h_y", mainProgram, shiftBatch, 3),
			a(popef.Input, "b", "h2d_b", loadProgram, 3),
			a(popef.Output, "b", "d2h_b", saveProgram, 3),
		},
	}
}

// shiftScript is the model on the fake back end. Its device prefetches, throws
// away and fetches.
func shiftScript() *script {
	info := func(handle string, d ipu.Direction, program int, shape ...int64) ipu.StreamInfo {
		n := 4
		for _, s := range shape {
			n *= int(s)
		}
		return ipu.StreamInfo{Handle: handle, Direction: d, Bytes: n, Type: "f32", Shape: shape, Programs: []int{program}}
	}
	return &script{
		fetching: true,
		streams: []ipu.StreamInfo{
			info("h2d_x", ipu.HostToDevice, mainProgram, shiftBatch, 3), info("d2h_y", ipu.DeviceToHost, mainProgram, shiftBatch, 3),
			info("h2d_b", ipu.HostToDevice, loadProgram, 3), info("d2h_b", ipu.DeviceToHost, saveProgram, 3),
		},
		programs: map[int]func(context.Context, *engine) error{
			loadProgram: func(_ context.Context, e *engine) error { return e.set("h2d_b") },
			mainProgram: func(_ context.Context, e *engine) error {
				x, err := e.in("h2d_x")
				if err != nil {
					return err
				}
				y := e.moved["d2h_y"]
				for i := range len(x) / 4 {
					putF32(y, i, f32s(x, i)+f32s(e.memory["h2d_b"], i%3))
				}
				e.done("h2d_x")
				if err := e.out("d2h_y", y); err != nil {
					return err
				}
				select { // as a program that takes a while
				case <-e.stopping():
					return ipu.ErrStopped
				default:
					return nil
				}
			},
			saveProgram: func(_ context.Context, e *engine) error { return e.out("d2h_b", e.memory["h2d_b"]) },
		},
	}
}

// shiftPortable is the model for the cpu back end.
func shiftPortable() []byte {
	b := graph.NewBuilder("shift")
	typ := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	bias, x := b.AddPersistent("b", typ(3)), b.AddLocal("x", typ(shiftBatch, 3))
	g := b.BeginGraph("main")
	y, err := b.Node(&graph.Binary{Fn: graph.Add}, "y", x, bias)
	if err != nil {
		panic(err)
	}
	b.AddProgram(loadProgram, "WeightsFromHost", b.CopyIn("h2d_b", bias))
	b.AddProgram(mainProgram, "Program", b.CopyIn("h2d_x", x), b.Call(g), b.CopyOut("d2h_y", y[0]))
	b.AddProgram(saveProgram, "WeightsToHost", b.CopyOut("d2h_b", bias))
	exe, err := b.Finish()
	if err != nil {
		panic(err)
	}
	var out bytes.Buffer
	if err := encoding.Encode(&out, exe); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// onShift runs a test on the model on every back end, with queues for all of
// its streams and b loaded.
func onShift(t *testing.T, c modelrt.QueueConfig, test func(t *testing.T, s rt.Session, m *modelrt.QueueManager), opts ...modelrt.SessionOption) {
	for _, backend := range []string{portable, fakeName} {
		t.Run(backend, func(t *testing.T) {
			exe := shiftPortable()
			if backend == fakeName {
				exe = register(t, shiftScript())
			}
			s := shiftSession(t, backend, exe, opts...)
			m, err := modelrt.NewQueueManager(context.Background(), s, c)
			require.NoError(t, err)
			b, err := m.InputQueue("b")
			require.NoError(t, err)
			require.NoError(t, b.TryEnqueue(modelrt.InputData{Data: floats(10, 20, 30)}))
			require.NoError(t, s.Load(context.Background()))
			test(t, s, m)
		})
	}
}

func shiftSession(t testing.TB, backend string, exe []byte, opts ...modelrt.SessionOption) rt.Session {
	model, err := popef.LoadBytes("shift.popef", file(t, shiftMetadata(), exe, nil))
	require.NoError(t, err)
	s, err := modelrt.NewSession(context.Background(), model, append(opts, rt.WithBackend(backend))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Close()
		model.Close()
	})
	return s
}

// shiftQueues returns the queues of the main program.
func shiftQueues(t testing.TB, m *modelrt.QueueManager) (*modelrt.InputQueue, *modelrt.OutputQueue) {
	x, err := m.InputQueue("x")
	require.NoError(t, err)
	y, err := m.OutputQueue("y")
	require.NoError(t, err)
	return x, y
}

// shiftRequest is a request of n samples.
type shiftRequest struct {
	in, out []byte
	ended   chan error
}

func newShiftRequest(first, n int) *shiftRequest {
	r := &shiftRequest{out: make([]byte, n*shiftSample), ended: make(chan error, 1)}
	for i := range 3 * n {
		r.in = append(r.in, floats(float32(first+i))...)
	}
	return r
}

func (r *shiftRequest) enqueue(ctx context.Context, x *modelrt.InputQueue, y *modelrt.OutputQueue) error {
	if err := x.Enqueue(ctx, modelrt.InputData{Data: r.in}); err != nil {
		return err
	}
	return y.Enqueue(ctx, modelrt.OutputData{Data: r.out, OnDone: func(err error) { r.ended <- err }})
}

// check compares a result with what the model computes.
func (r *shiftRequest) check() error {
	for i := range len(r.in) / 4 {
		if got, want := f32s(r.out, i), f32s(r.in, i)+float32(10*(i%3+1)); got != want {
			return fmt.Errorf("element %d: got %v, want %v", i, got, want)
		}
	}
	return nil
}

func (r *shiftRequest) isEnded() bool { return len(r.ended) == 1 }
