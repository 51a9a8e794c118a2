package rt_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// scripted is a session of a model on a test device whose main program copies x
// to y three times, after the steps in first. x may be prefetched depth
// transfers ahead.
func scripted(t *testing.T, depth int, first []iputest.Step, opts ...modelrt.SessionOption) (*testSystem, rt.Session) {
	t.Helper()
	in := iputest.In("h2d_x", "f32", 2)
	in.Depth = depth
	script := iputest.Script{
		Streams: []iputest.Stream{in, iputest.Out("anchor_d2h_y", "f32", 2)},
		Programs: []iputest.Program{{Index: mainProgram, Steps: append(first, iputest.Repeat(3,
			iputest.Read("h2d_x"), iputest.Call("copy", []string{"h2d_x"}, []string{"anchor_d2h_y"}), iputest.Write("anchor_d2h_y"),
		))}},
	}
	meta := affineMetadata()
	meta.DeviceIterations = 3
	meta.ProgramFlow = popef.ProgramFlow{Main: []uint32{mainProgram}}
	meta.Anchors = meta.Anchors[1:3] // x and y
	sys := newSystem(iputest.Config{})
	t.Cleanup(func() { require.Empty(t, sys.Violations()) })
	v := variant{"scripted", sys.Name(), file(t, meta, script.Executable(), nil), nil}
	return sys, v.session(t, append(opts, rt.WithManager(sys.Manager()))...)
}

// moves returns what a test device did with x, in short: F, P, C and I with the
// number of the transfer, and - behind a refused prefetch.
func moves(sys *testSystem) string {
	var words []string
	for _, e := range sys.Events(iputest.EventFetch, iputest.EventPrefetch, iputest.EventComplete, iputest.EventInvalidate) {
		if e.Stream != "h2d_x" {
			continue
		}
		s := strings.ToUpper(string(e.Kind[:1]))
		if e.Transfer > 0 {
			s += string(rune('0' + e.Transfer))
		}
		if e.Detail == "refused" {
			s += "-"
		}
		words = append(words, s)
	}
	return strings.Join(words, " ")
}

// TestScriptedDevice fetches one transfer after the other.
//
// Feature 45.
func TestScriptedDevice(t *testing.T) {
	sys, s := scripted(t, 1, nil, rt.WithEngineOption("exchange.enablePrefetch", "false"))
	x, y, log := 0, 0, ""
	require.NoError(t, s.Connect(context.Background(), "h2d_x", &modelrt.Callback{
		OnFetch: func(_ context.Context, buf []byte) error {
			x++
			log += "F"
			copy(buf, floats(float32(x), 0))
			return nil
		},
		OnComplete: func() { log += "C" },
	}))
	require.NoError(t, s.Connect(context.Background(), "anchor_d2h_y", &modelrt.Callback{
		OnFetch: func(_ context.Context, buf []byte) error {
			y++
			require.Equal(t, floats(float32(y), 0), buf)
			log += "f"
			return nil
		},
		OnComplete: func() { log += "c" },
	}))
	require.NoError(t, s.Run(context.Background()))
	require.Equal(t, "F1 C1 F2 C2 F3 C3", moves(sys))
	require.Equal(t, "FCfcFCfcFCfc", log, "each transfer is fetched and then complete, in the program's order")
	failing := errors.New("no data")
	require.NoError(t, modelrt.SetCallback(context.Background(), s, "h2d_x", func(context.Context, []byte) error { return failing }))
	err := s.Run(context.Background())
	require.ErrorIs(t, err, failing)
	require.ErrorIs(t, err, ipu.ErrCallback)
}

// TestPrefetchOrFetch has a host that has the first two transfers
// ahead of time and must be asked for the third.
//
// Feature 46.
func TestPrefetchOrFetch(t *testing.T) {
	for depth, want := range map[int]string{
		1: "P1 C1 P2 C2 P3- P3- F3 C3", // refused, and asked again, until it is time to fetch
		2: "P1 P2 C1 P3- P3- C2 P3- P3- F3 C3",
	} {
		sys, s := scripted(t, depth, nil)
		n := 0
		give := func(buf []byte) error { n++; copy(buf, floats(float32(n), 0)); return nil }
		require.NoError(t, s.Connect(context.Background(), "h2d_x", &modelrt.Callback{
			OnFetch:    func(_ context.Context, buf []byte) error { return give(buf) },
			OnPrefetch: func(buf []byte) bool { return n < 2 && give(buf) == nil },
		}))
		var got []float32
		require.NoError(t, modelrt.SetCallback(context.Background(), s, "anchor_d2h_y", func(_ context.Context, buf []byte) error { got = append(got, f32s(buf, 0)); return nil }))
		require.NoError(t, s.Run(context.Background()))
		require.Equal(t, []float32{1, 2, 3}, got)
		require.Equal(t, want, moves(sys))
	}
}

// TestDiscardedByDevice prefetches three transfers, throws them away,
// and gets all of them again: from memory, from a queue, and from functions.
//
// Feature 47.
func TestDiscardedByDevice(t *testing.T) {
	for _, host := range []string{"buffer", "queue", "callback"} {
		sys, s := scripted(t, 3, []iputest.Step{iputest.Prefetch("h2d_x", 3), iputest.Discard("h2d_x")})
		var got []float32
		require.NoError(t, modelrt.SetCallback(context.Background(), s, "anchor_d2h_y", func(_ context.Context, buf []byte) error { got = append(got, f32s(buf, 0)); return nil }))
		data := floats(1, 0, 2, 0, 3, 0)
		var end func()
		switch host {
		case "buffer":
			info, _ := s.Stream("h2d_x")
			b, err := modelrt.NewBuffer(info, 3)
			require.NoError(t, err)
			copy(b.Bytes(), data)
			require.NoError(t, s.Connect(context.Background(), "h2d_x", b))
		case "queue":
			m, err := modelrt.NewQueueManager(context.Background(), s, modelrt.QueueConfig{Outputs: func(modelrt.Anchor) modelrt.CallbackPolicy { return modelrt.SkipBind }})
			require.NoError(t, err)
			q, err := m.InputQueue("x")
			require.NoError(t, err)
			starts, dones := 0, 0
			for i := range 3 {
				require.NoError(t, q.TryEnqueue(modelrt.InputData{Data: data[8*i:][:8], OnReadStart: func() { starts++ }, OnDone: func(error) { dones++ }}))
			}
			end = func() {
				require.Equal(t, 6, starts, "read twice")
				require.Equal(t, 3, dones, "done once")
			}
		case "callback":
			read, done := 0, 0
			next := func(buf []byte) bool {
				copy(buf, data[8*read:][:8])
				read++
				return true
			}
			require.NoError(t, s.Connect(context.Background(), "h2d_x", &modelrt.Callback{
				OnFetch: func(_ context.Context, buf []byte) error { next(buf); return nil }, OnPrefetch: func(buf []byte) bool { return read < 3 && next(buf) },
				OnComplete: func() { done++ }, OnInvalidate: func() { read = done },
			}))
		}
		require.NoError(t, s.Run(context.Background()))
		require.Equal(t, []float32{1, 2, 3}, got, "%s: nothing is lost or repeated", host)
		before, after, ok := strings.Cut(moves(sys), " I ")
		require.True(t, ok && strings.HasPrefix(before, "P1 P2 P3"), before)
		require.True(t, strings.HasPrefix(after[1:], "1 "), "it begins with the first again: %s", after)
		if end != nil {
			end()
		}
	}
}

// TestBufferIsLent keeps a buffer after the call that lent it: the
// device has taken it back.
//
// Feature 42.
func TestBufferIsLent(t *testing.T) {
	_, s := scripted(t, 1, nil, rt.WithEngineOption("exchange.enablePrefetch", "false"))
	var kept [2][]byte
	require.NoError(t, modelrt.SetCallback(context.Background(), s, "h2d_x", func(_ context.Context, buf []byte) error { kept[0] = buf; copy(buf, floats(1, 2)); return nil }))
	require.NoError(t, modelrt.SetCallback(context.Background(), s, "anchor_d2h_y", func(_ context.Context, buf []byte) error {
		kept[1] = buf
		require.Equal(t, floats(1, 2), buf)
		return nil
	}))
	require.NoError(t, s.Run(context.Background()))
	for _, buf := range kept {
		require.Len(t, buf, 8)
		require.NotEqual(t, floats(1, 2), buf)
	}
}

// TestDataMustFit has a file whose tensor is not what the program
// moves.
//
// Feature 33.
func TestDataMustFit(t *testing.T) {
	var buf popeftest.Buffer
	w := popef.NewWriter(&buf)
	meta := affineMetadata()
	meta.Anchors[3].Info = tensorInfo(3) // w, of which the program moves two elements
	e, err := w.CreateExecutable("affine", false)
	require.NoError(t, err)
	_, err = e.Write(affinePortable(t))
	require.NoError(t, errors.Join(err, e.Close(), w.WriteMetadata(&meta), w.WriteTensor("w", tensorInfo(3), floats(1, 2, 3)), w.Close()))
	_, err = modelrt.NewSession(context.Background(), load(t, buf.Bytes()))
	require.ErrorIs(t, err, rt.ErrData)
	require.ErrorContains(t, err, `anchor "w"`)
	require.ErrorContains(t, err, "12 bytes, and the executable's stream moves 8")
}
