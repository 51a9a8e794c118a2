//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// poplarModel is a model with a Poplar executable, whose streams are known from its metadata alone: y = a + w, three times a
// run, and two blocks of a remote buffer, of which the second is in the output r.
func poplarModel(t *testing.T) *popef.Model { return modelOf(t, adding3) }

const adding3 = "recall far 1 r\nrepeat 3\nread a\ncall add a,w y\nwrite y\nwrite r\nend\n"

// modelOf is a model of those streams with another main program.
func modelOf(t *testing.T, main string) *popef.Model {
	m, err := popef.LoadBytes("adder.popef", modelBytes(t, main))
	require.NoError(t, err)
	return m
}

// modelBytes is the file of such a model.
func modelBytes(t *testing.T, main string) []byte {
	exe := "GC_EXE_FAKE\nhash " + poplar.PackageHash() + "\nstream w in 16\nstream a in 16 depth 2\nstream y out 16\nstream r out 16\nstream s out 16\nremote far 16 2\n" +
		"program 0 load\nread w\nend\nprogram 1 main\n" + main + "end\nprogram 2 save\ncall copy w s\nwrite s\nend\n"
	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{4}}
	anchor := func(name, handle string, kind popef.TensorType, programs ...uint32) popef.Anchor {
		return popef.Anchor{Name: name, Handle: handle, Type: kind, Info: info, Programs: programs}
	}
	far := anchor("far", "far", popef.Input)
	far.RemoteBuffer, far.Repeats = true, 2
	meta := popef.Metadata{
		Executable: "e", NumIPUs: 1, ReplicationFactor: 1, DeviceIterations: 3, IsInference: true,
		Anchors: []popef.Anchor{anchor("w", "w", popef.Input, 0), anchor("a", "a", popef.Input, 1), anchor("y", "y", popef.Output, 1),
			anchor("r", "r", popef.Output, 1), anchor("w", "s", popef.Output, 2), far},
		ProgramFlow:   popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{1}, Save: []uint32{2}},
		EngineOptions: []popef.Option{{Name: "exchange.enablePrefetch", Value: "true"}},
	}
	floats := func(v ...float32) []byte {
		var b []byte
		for _, f := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		return b
	}
	var buf popeftest.Buffer
	w := popef.NewWriter(&buf)
	require.NoError(t, w.WriteMetadata(&meta))
	e, err := w.CreateExecutable("e", false)
	require.NoError(t, err)
	_, err = e.Write([]byte(exe))
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.NoError(t, w.WriteTensor("w", info, floats(1, 2, 3, 4)))
	blocks, err := w.CreateRemoteTensor("far", info, 2)
	require.NoError(t, err)
	_, err = blocks.Write(floats(0, 0, 0, 0, 5, 6, 7, 8))
	require.NoError(t, err)
	require.NoError(t, blocks.Close())
	require.NoError(t, w.Close())
	return bytes.Clone(buf.Bytes())
}

// TestPoplarModel runs a model of a Poplar executable in a session: weights, transfers and remote buffer.
func TestPoplarModel(t *testing.T) {
	ctx := t.Context()
	s, err := modelrt.NewSession(ctx, poplarModel(t), rt.WithBackend(poplar.Name), rt.WithLookAhead(2))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	buffers := map[string]*modelrt.Buffer{}
	for _, handle := range []string{"a", "y", "r"} {
		info, ok := s.Stream(handle)
		require.True(t, ok)
		require.Equal(t, ipu.StreamInfo{Handle: handle, Direction: info.Direction, Bytes: 16, Type: "f32", Shape: []int64{4}, Programs: []int{1}}, info)
		b, err := modelrt.NewBuffer(info, s.DeviceIterations())
		require.NoError(t, err)
		require.NoError(t, s.Connect(ctx, handle, b))
		buffers[handle] = b
	}
	element := func(b *modelrt.Buffer, i int) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(b.Bytes()[4*i:]))
	}
	for round := range 2 {
		for i := range 12 {
			binary.LittleEndian.PutUint32(buffers["a"].Bytes()[4*i:], math.Float32bits(float32(10*i+round)))
		}
		require.NoError(t, s.Run(ctx))
		for i := range 12 {
			require.Equal(t, float32(10*i+round)+float32(1+i%4), element(buffers["y"], i))
			require.Equal(t, float32(5+i%4), element(buffers["r"], i))
		}
	}
}

// TestStarvedQueue has a queue's input run dry in the middle of a run: after its timeout the engine goes on with dummy data,
// whose results reach nobody, and what is enqueued later goes to runs of its own.
func TestStarvedQueue(t *testing.T) {
	for _, nasty := range []string{"", "poison,refuse,extra,discard,seed=5", "extra,delay,silent,forget,latency=20"} {
		t.Run(nasty, func(t *testing.T) {
			t.Setenv("FAKE_POPLAR_NASTY", nasty)
			ctx := t.Context()
			s, err := modelrt.NewSession(ctx, poplarModel(t), rt.WithBackend(poplar.Name))
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{Timeout: 200 * time.Microsecond, OnTimeout: modelrt.FlushOnTimeout})
			require.NoError(t, err)
			in, err := m.InputQueue("a")
			require.NoError(t, err)
			for round := range 6 {
				samples := 1 + round*2 // a transfer takes four, a run three transfers
				arrived := make(chan error, 2)
				results := map[string][]byte{}
				for _, name := range []string{"y", "r"} {
					out, err := m.OutputQueue(name)
					require.NoError(t, err)
					results[name] = make([]byte, 4*samples)
					require.NoError(t, out.Enqueue(ctx, modelrt.OutputData{Data: results[name], OnDone: func(err error) { arrived <- err }}))
				}
				var data []byte
				for i := range samples {
					data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(100*round+i)))
				}
				for _, part := range [][]byte{data[:4], data[4:]} {
					if len(part) > 0 {
						require.NoError(t, in.Enqueue(ctx, modelrt.InputData{Data: part}))
					}
				}
				require.NoError(t, s.Run(ctx))
				require.NoError(t, <-arrived)
				require.NoError(t, <-arrived)
				for i := range samples {
					at := func(name string) float32 {
						return math.Float32frombits(binary.LittleEndian.Uint32(results[name][4*i:]))
					}
					require.Equal(t, float32(100*round+i)+float32(1+i%4), at("y"), "round %d, sample %d", round, i)
					require.Equal(t, float32(5+i%4), at("r"))
				}
			}
		})
	}
}
