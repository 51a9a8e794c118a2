//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
	fake "github.com/popefgen/popefgen/ipu/poplar/internal/fakesdk/poplar"
)

// TestRings has runs move one transfer, some, and more than a ring has slots, whatever the fake does of its own accord.
func TestRings(t *testing.T) {
	ctx := context.Background()
	for _, nasty := range []string{"", "poison,refuse,extra,discard,seed=3", "poison,delay", "extra,latency=5"} {
		for _, mode := range []string{"singleThread", "dedicated"} {
			t.Run(nasty+" "+mode, func(t *testing.T) {
				t.Setenv("FAKE_POPLAR_NASTY", nasty)
				for _, n := range []int{1, 5, 600} {
					c := adder(64, n, 4)
					c.Options = []ipu.Option{{Name: "streamCallbacks.multiThreadMode", Value: mode}}
					e, d := engineOf(t, c)
					a, b, y := rings(t, e, 64, n)
					for round := range 3 {
						for _, s := range []*windowed{a, b, y} {
							s.rewind()
							s.completed = 0
						}
						a.set(0, float32(100*round))
						require.NoError(t, e.Run(ctx, 2))
						require.Equal(t, float32(100*round)+0.5, y.get(0))
						for i := 1; i < n; i++ {
							require.Equal(t, float32(i)+0.5, y.get(i))
						}
						require.Equal(t, []int{n, n, n}, []int{a.completed, b.completed, y.completed})
					}
					stats, err := e.RingStats("a")
					require.NoError(t, err)
					require.Positive(t, stats.Fetched+stats.Prefetched)
					require.NoError(t, e.Close())
					require.NoError(t, d.Detach())
				}
			})
		}
	}
}

// TestRingEnds has a program ask for more than the host has: the run fails with the stream's error, and the next is well.
func TestRingEnds(t *testing.T) {
	ctx := context.Background()
	e, _ := engineOf(t, adder(64, 8, 2))
	a, b, y := rings(t, e, 64, 8)
	short := newWindowed(64, 3, false)
	require.NoError(t, e.Connect("a", short))
	err := e.Run(ctx, 2)
	require.ErrorIs(t, err, ipu.ErrCallback)
	require.ErrorIs(t, err, errShort)
	require.ErrorContains(t, err, `stream "a"`)
	require.LessOrEqual(t, short.completed, 3)

	require.NoError(t, e.Connect("a", a))
	for range 2 {
		a.rewind()
		b.rewind()
		y.rewind()
		require.NoError(t, e.Run(ctx, 2))
		require.Equal(t, float32(7.5), y.get(7))
	}

	// A host with more than the program moves: what was prefetched of it is thrown away.
	require.NoError(t, e.Run(ctx, 0))
	for range 3 {
		a.rewind()
		b.rewind()
		y.rewind()
		require.NoError(t, e.Run(ctx, 1))
		require.Equal(t, float32(0.5), y.get(0))
	}
	// A host whose memory has run out is asked why.
	y.fail = func() error { return errors.New("the disk is full") }
	a.w.Done, y.w.Done = a.w.Count, y.w.Count
	require.ErrorContains(t, e.Run(ctx, 1), `stream "a": stream callback failed: there is no more`)
	a.rewind()
	b.rewind()
	require.ErrorContains(t, e.Run(ctx, 1), `stream "y": stream callback failed: the disk is full`)

	// Without memory an output is dropped, and an input is missed where it is moved.
	y.fail, y.w.Block = nil, nil
	a.rewind()
	b.rewind()
	y.rewind()
	require.NoError(t, e.Run(ctx, 1))
	a.w.Block = nil
	a.rewind()
	require.NoError(t, e.Run(ctx, 0))
	require.ErrorIs(t, e.Run(ctx, 1), errShort)
}

// TestSteadyState makes requests over rings: they take no call through cgo and no memory of Go, and between them no time.
func TestSteadyState(t *testing.T) {
	ctx := context.Background()
	e, _ := engineOf(t, adder(4096, 1, 2))
	a, b, y := rings(t, e, 4096, 1)
	request := func() {
		a.rewind()
		b.rewind()
		y.rewind()
		if err := e.Run(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	request()
	before := runtime.NumCgoCall()
	const n = 200
	allocs := testing.AllocsPerRun(n, request)
	require.Zero(t, allocs)
	require.Equal(t, before, runtime.NumCgoCall(), "calls through cgo")
	require.Equal(t, n+2, a.completed)

	var used [2]syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used[0]))
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used[1]))
	spent := time.Duration(used[1].Utime.Nano() - used[0].Utime.Nano() + used[1].Stime.Nano() - used[0].Stime.Nano())
	require.Less(t, spent, 40*time.Millisecond, "an idle engine takes time")
}

// TestSlowToPark has the engine's thread be slow between looking for a command and parking, and before it parks, and sends
// commands in both moments and later: no command is lost, and no word of its end.
func TestSlowToPark(t *testing.T) {
	const pause = 2 * time.Millisecond
	poplar.SetLooks(t, time.Hour)
	fake.Pause(pause)
	defer fake.Pause(0)
	e, _ := engineOf(t, adder(64, 1, 2))
	a, b, y := rings(t, e, 64, 1)
	for k := range 40 {
		time.Sleep(time.Duration(k%4) * 3 * pause / 4)
		done := make(chan error, 1)
		go func() {
			a.rewind()
			b.rewind()
			y.rewind()
			done <- e.Run(context.Background(), 1)
		}()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(5 * time.Second):
			t.Fatal("the command was lost")
		}
	}
}

// TestParkedInTime sends commands at the very moments when the engine's thread goes to sleep: it sees each. Where a load may pass
// the store before it, as processors let them unless they are told otherwise, one is lost within some 100,000.
func TestParkedInTime(t *testing.T) {
	e, _ := engineOf(t, adder(64, 1, 2))
	const commands = 300_000
	require.Equal(t, commands, e.Skipped(commands))
}

// TestConstant reads weights where they lie, and tells when they are on the device.
func TestConstant(t *testing.T) {
	ctx := context.Background()
	e, _ := engineOf(t, adder(64, 1, 2))
	w := &fixed{data: make([]byte, 64)}
	binary.LittleEndian.PutUint32(w.data, math.Float32bits(3))
	out := newWindowed(64, 1, true)
	require.NoError(t, e.Connect("w", w))
	require.NoError(t, e.Connect("s", out))
	require.NoError(t, e.Run(ctx, 0))
	require.NoError(t, e.Run(ctx, 4))
	require.Equal(t, float32(3), out.get(0))
	require.Equal(t, []int{1, 1}, []int{w.completed, w.released})
	runtime.GC() // the memory is pinned, and Poplar reads it again
	binary.LittleEndian.PutUint32(w.data, math.Float32bits(4))
	out.rewind()
	require.NoError(t, e.Run(ctx, 0))
	require.NoError(t, e.Run(ctx, 4))
	require.Equal(t, float32(4), out.get(0))
	_, err := e.RingStats("w")
	require.ErrorContains(t, err, "no ring")
	require.NoError(t, e.Connect("w", nil))
	require.ErrorIs(t, e.Run(ctx, 0), ipu.ErrUnconnected)
}

// nothing is an empty end.
type nothing struct{ ipu.Stream }

func (nothing) Empty() {}

// TestEmpty connects nothing: inputs are zeros, and the host is not called.
func TestEmpty(t *testing.T) {
	e, _ := engineOf(t, adder(64, 1, 2))
	a, _, y := rings(t, e, 64, 1)
	require.NoError(t, e.Connect("b", nothing{}))
	y.set(0, 9)
	require.NoError(t, e.Run(context.Background(), 1))
	require.Zero(t, y.get(0))
	require.NoError(t, e.Connect("y", nothing{}))
	a.rewind()
	require.NoError(t, e.Run(context.Background(), 1))
}

// misbehaving is a stream of which one method fails.
type misbehaving struct {
	*windowed
	at   string // the method
	does func() error
}

func (s *misbehaving) do(at string) error {
	if s.at != at {
		return nil
	}
	return s.does()
}

func (s *misbehaving) Fetch(ctx context.Context, buf []byte) error {
	if err := s.do("Fetch"); err != nil {
		return err
	}
	return s.windowed.Fetch(ctx, buf)
}

func (s *misbehaving) Prefetch(buf []byte) bool {
	if s.at == "Fetch" || s.do("Prefetch") != nil {
		return false
	}
	return s.windowed.Prefetch(buf)
}

func (s *misbehaving) Complete() {
	_ = s.do("Complete")
	s.windowed.Complete()
}

func (s *misbehaving) InvalidatePrefetched() {
	s.windowed.InvalidatePrefetched()
	_ = s.do("InvalidatePrefetched")
}

// TestMisbehaving has streams that fail, panic and end their goroutine in every method: this costs the run, which fails
// with that and the stream's name, and nothing else.
func TestMisbehaving(t *testing.T) {
	ctx := context.Background()
	ways := map[string]func() error{
		"error":  func() error { return errShort },
		"panic":  func() error { panic(errShort) },
		"Goexit": func() error { runtime.Goexit(); return nil },
	}
	t.Setenv("FAKE_POPLAR_NASTY", "")
	for _, handle := range []string{"a", "y"} {
		for _, at := range []string{"Fetch", "Prefetch", "Complete", "InvalidatePrefetched"} {
			for way, does := range ways {
				if way == "error" && at != "Fetch" || handle == "y" && (at == "Prefetch" || at == "InvalidatePrefetched") {
					continue
				}
				t.Run(handle+" "+at+" "+way, func(t *testing.T) {
					if at == "InvalidatePrefetched" {
						t.Setenv("FAKE_POPLAR_NASTY", "discard,seed=3")
					}
					e, _ := engineOf(t, adder(64, 20, 2))
					a, b, y := rings(t, e, 64, 20)
					hosts := map[string]*windowed{"a": a, "y": y}
					require.NoError(t, e.Connect(handle, struct{ ipu.Stream }{&misbehaving{hosts[handle], at, does}}))
					for range 2 {
						a.rewind()
						b.rewind()
						y.rewind()
						err := e.Run(ctx, 2)
						require.ErrorIs(t, err, ipu.ErrCallback)
						require.Equal(t, way != "error", errors.Is(err, ipu.ErrPanic))
						require.Equal(t, way != "Goexit", errors.Is(err, errShort))
						require.ErrorContains(t, err, fmt.Sprintf("stream %q", handle))
					}
					require.NoError(t, e.Connect(handle, hosts[handle]))
					a.rewind()
					b.rewind()
					y.rewind()
					require.NoError(t, e.Run(ctx, 2))
					for i := range 20 {
						require.Equal(t, float32(i)+0.5, y.get(i))
					}
				})
			}
		}
	}
}

// TestOpenFile reads an executable from the middle of a file.
func TestOpenFile(t *testing.T) {
	c := adder(64, 2, 2)
	file := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.WriteFile(file, append(append(make([]byte, 5000), c.Executable...), "more"...), 0o666))
	size := int64(len(c.Executable))
	c.Executable = nil
	e, err := poplar.OpenFile(file, 5000, size, c)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	require.Len(t, e.Streams(), 5)
	require.NoError(t, e.Load(context.Background(), attached(t)))
	_, _, y := rings(t, e, 64, 2)
	require.NoError(t, e.Run(context.Background(), 2))
	require.Equal(t, float32(1.5), y.get(1))

	_, err = poplar.OpenFile(file, 4000, size, c)
	require.ErrorContains(t, err, "read the executable in "+file+": device error: poplar_error: Error reading executable")
	_, err = poplar.OpenFile(file, 5000, 1<<20, c)
	require.ErrorContains(t, err, "it ends early")
	_, err = poplar.OpenFile(file+"x", 0, size, c)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = poplar.OpenFile(file, -1, size, c)
	require.ErrorContains(t, err, "from -1 on")
}

// TestMetadata compares what the metadata says of streams with what Poplar says.
func TestMetadata(t *testing.T) {
	c := adder(64, 1, 2)
	c.Streams[1].Direction = ipu.DeviceToHost
	_, err := backend(t).NewEngine(c)
	require.ErrorContains(t, err, `stream "a": its direction is device-to-host in the model's metadata and host-to-device in the executable`)
	c = adder(64, 1, 2)
	c.Streams = append(c.Streams[:4:4], ipu.StreamInfo{Handle: "of another"})
	e, _ := engineOf(t, c)
	require.Len(t, e.Streams(), 5)
	require.ErrorContains(t, e.Connect("s", &fixed{}), "the model's metadata has no anchor of that handle")
	require.ErrorIs(t, e.Connect("of another", &fixed{}), ipu.ErrUnknownStream)
}
