//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
)

// adder is an executable of the fake, which computes it without Go: y = a + b with transfers of size bytes. Program 0
// loads w; program 1 adds once, 2 n times; program 3 never ends; program 4 stores w.
func adder(size, n, depth int) ipu.EngineConfig {
	var b strings.Builder
	b.WriteString("GC_EXE_FAKE\n")
	c := ipu.EngineConfig{Name: "adder"}
	for _, s := range []struct {
		handle   string
		output   bool
		programs []int
	}{{"w", false, []int{0}}, {"a", false, []int{1, 2}}, {"b", false, []int{1, 2}}, {"y", true, []int{1, 2}}, {"s", true, []int{4}}} {
		way, info := "in", ipu.StreamInfo{Handle: s.handle, Bytes: size, Type: "f32", Shape: []int64{int64(size / 4)}, Programs: s.programs}
		if s.output {
			way, info.Direction = "out", ipu.DeviceToHost
		}
		fmt.Fprintf(&b, "stream %s %s %d depth %d\n", s.handle, way, size, depth)
		c.Streams = append(c.Streams, info)
	}
	main := "read a\nread b\ncall add a,b y\nwrite y\n"
	fmt.Fprintf(&b, "program 0 load\nread w\nend\nprogram 1 main\n%send\nprogram 2 many\nrepeat %d\n%send\nend\nprogram 3 hang\nhang\nend\nprogram 4 save\ncall copy w s\nwrite s\nend\n", main, n, main)
	c.Executable = []byte(b.String())
	for i, name := range []string{"load", "main", "many", "hang", "save"} {
		c.Programs = append(c.Programs, ipu.ProgramInfo{Index: i, Name: name})
	}
	return c
}

// attached returns the first device, attached until the test ends.
func attached(t testing.TB) ipu.Device {
	all, err := backend(t).Devices(context.Background())
	require.NoError(t, err)
	ok, err := all[0].Attach()
	require.NoError(t, err)
	require.True(t, ok)
	t.Cleanup(func() { require.NoError(t, all[0].Detach()) })
	return all[0]
}

// engineOf returns an engine on a device.
func engineOf(t testing.TB, c ipu.EngineConfig) (*poplar.Engine, ipu.Device) {
	d := attached(t)
	e, err := backend(t).NewEngine(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, e.Load(context.Background(), d))
	return e.(*poplar.Engine), d
}

var errShort = errors.New("there is no more")

// windowed is a host's side over a block of memory, as runners have it.
type windowed struct {
	w         ipu.Window
	output    bool
	completed int
	fail      func() error // of Fetch
}

func newWindowed(size, count int, output bool) *windowed {
	return &windowed{w: ipu.Window{Block: make([]byte, size*count), Size: size, Count: count}, output: output}
}

func (s *windowed) Window() *ipu.Window                    { return &s.w }
func (s *windowed) Memory(context.Context) ([]byte, error) { return s.w.Next(), nil }
func (s *windowed) InvalidatePrefetched()                  { s.w.Ahead = 0 }

func (s *windowed) Complete() {
	s.completed++
	s.w.Complete()
}

func (s *windowed) Prefetch(buf []byte) bool {
	m := s.w.Next()
	if m == nil {
		return false
	}
	copy(buf, m)
	s.w.Ahead++
	return true
}

func (s *windowed) Fetch(_ context.Context, buf []byte) error {
	if s.fail != nil {
		if err := s.fail(); err != nil {
			return err
		}
	}
	m := s.w.Next()
	switch {
	case m == nil:
		return errShort
	case s.output:
		copy(m, buf)
	default:
		copy(buf, m)
	}
	s.w.Ahead++
	return nil
}

// rewind starts over, as every request does.
func (s *windowed) rewind() { s.w.Done, s.w.Ahead = 0, 0 }

// set and get have the first element of a transfer.
func (s *windowed) set(i int, v float32) {
	binary.LittleEndian.PutUint32(s.w.Block[i*s.w.Size:], math.Float32bits(v))
}

func (s *windowed) get(i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(s.w.Block[i*s.w.Size:]))
}

// fixed is data that does not change.
type fixed struct {
	data                []byte
	completed, released int
}

func (f *fixed) Constant() []byte                          { return f.data }
func (f *fixed) Memory(context.Context) ([]byte, error)    { return f.data, nil }
func (f *fixed) Fetch(_ context.Context, buf []byte) error { copy(buf, f.data); return nil }
func (f *fixed) Prefetch(buf []byte) bool                  { copy(buf, f.data); return true }
func (f *fixed) Complete()                                 { f.completed++ }
func (f *fixed) InvalidatePrefetched()                     {}
func (f *fixed) Release()                                  { f.released++ }

// rings connects windows to an adder.
func rings(t testing.TB, e ipu.Engine, size, count int) (a, b, y *windowed) {
	a, b, y = newWindowed(size, count, false), newWindowed(size, count, false), newWindowed(size, count, true)
	for i := range count {
		a.set(i, float32(i))
		b.set(i, 0.5)
	}
	for handle, s := range map[string]ipu.Stream{"a": a, "b": b, "y": y, "w": &fixed{data: make([]byte, size)}} {
		require.NoError(t, e.Connect(handle, s))
	}
	return a, b, y
}
