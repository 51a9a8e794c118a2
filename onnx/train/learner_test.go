package train_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// learner runs the programs of a training model that was read back from its file.
type learner struct {
	t       testing.TB
	engine  *cpu.Engine
	file    *popef.Model
	streams map[string]*end // by anchor and direction
}

// end is the host's end of a stream.
type end struct {
	give  []byte   // one transfer, given again and again
	all   [][]byte // transfers that came
	moved int
}

func (s *end) Fetch(_ context.Context, buf []byte) error {
	if s.give == nil {
		s.all = append(s.all, append([]byte(nil), buf...))
		return nil
	}
	n := len(s.give) / len(buf)
	if n == 0 {
		return fmt.Errorf("%d bytes for a transfer of %d", len(s.give), len(buf))
	}
	copy(buf, s.give[s.moved%n*len(buf):])
	s.moved++
	return nil
}
func (s *end) Prefetch([]byte) bool  { return false }
func (s *end) Complete()             {}
func (s *end) InvalidatePrefetched() {}

func newLearner(t testing.TB, r *train.Result, options ...ipu.Option) *learner {
	t.Helper()
	m, err := r.Load(context.Background(), "training")
	require.NoError(t, err)
	return openLearner(t, m, options...)
}

func openLearner(t testing.TB, m *popef.Model, options ...ipu.Option) *learner {
	t.Helper()
	require.NoError(t, contract.Of(m).Refused)
	exe, err := m.Executable()
	require.NoError(t, err)
	e, err := cpu.New(ipu.EngineConfig{Name: t.Name(), Executable: exe, Options: options})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	l := &learner{t, e, m, map[string]*end{}}
	return l
}

func floatsOf(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func bytesOf(f []float32) []byte {
	var b []byte
	for _, v := range f {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// start connects every stream and loads weights, state and optimizer from the file.
func (l *learner) start() *learner {
	l.t.Helper()
	for _, a := range l.file.Metadata.Anchors {
		e := &end{}
		l.streams[a.Handle] = e
		if data, ok := l.file.TensorData(a.Name); ok && a.Type == popef.Input {
			e.give = data
		}
		require.NoError(l.t, l.engine.Connect(a.Handle, e))
	}
	ds, err := (&ipu.Manager{}).Get(l.t.Context(), ipu.Request{Backend: "cpu"})
	require.NoError(l.t, err)
	_, err = ds.Attach()
	require.NoError(l.t, err)
	require.NoError(l.t, l.engine.Load(l.t.Context(), ds))
	for _, p := range l.file.Metadata.ProgramFlow.Load {
		l.run(int(p))
	}
	return l
}

// run runs a program once.
func (l *learner) run(program int) {
	l.t.Helper()
	require.NoError(l.t, l.try(program))
}

func (l *learner) try(program int) error {
	for _, s := range l.streams {
		s.all, s.moved = nil, 0
	}
	return l.engine.Run(l.t.Context(), program)
}

// give gives an input its transfers of the next runs.
func (l *learner) give(input string, data []byte) { l.streams["h2d_"+input].give = data }

// got returns the transfers of an output in the last run.
func (l *learner) got(output string) [][]byte { return l.streams["anchor_d2h_"+output].all }

// loss returns the mean of the losses of the last run.
func (l *learner) loss() float64 {
	sum, n := 0.0, 0
	for _, b := range l.got("loss") {
		for _, v := range floatsOf(b) {
			sum, n = sum+float64(v), n+1
		}
	}
	return sum / float64(n)
}

// weights saves and returns all weights and states.
func (l *learner) weights() map[string][]byte {
	l.run(7)
	out := map[string][]byte{}
	for _, a := range l.file.Metadata.Anchors {
		if s := l.streams[a.Handle]; a.Type == popef.Output && len(a.Programs) == 1 && a.Programs[0] == 7 {
			out[a.Name] = s.all[0]
		}
	}
	return out
}
