//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
)

// far is adder with a remote buffer of 64 blocks.
func far() ipu.EngineConfig {
	c := adder(64, 1, 2)
	c.Executable = append(c.Executable, "remote far 16 64\n"...)
	c.Streams = append(c.Streams, ipu.StreamInfo{Handle: "far", Bytes: 16 * 64, Type: "f32", Shape: []int64{64, 4}, Blocks: 64})
	return c
}

// blocks is the data of far, of which each call may do something else.
type blocks struct {
	fixed
	calls    int
	constant func(call int) []byte // nil for the data
	release  func()
}

func (b *blocks) Constant() []byte {
	b.calls++
	if b.constant != nil {
		return b.constant(b.calls)
	}
	return b.data
}

func (b *blocks) Release() {
	if b.release != nil {
		b.release()
	}
}

// TestRemoteHosts has hosts of remote buffers misbehave while an engine is loaded: that fails, with the stream's name, and the device is there for the next.
func TestRemoteHosts(t *testing.T) {
	data := make([]byte, 16*64)
	first := func(then func() []byte) func(int) []byte {
		return func(call int) []byte {
			if call == 1 { // of Connect
				return data
			}
			return then()
		}
	}
	for name, c := range map[string]struct {
		host *blocks
		want error
		says string
	}{
		"Constant panics": {&blocks{constant: first(func() []byte { panic(errShort) })}, ipu.ErrPanic, `stream "far": stream callback failed: `},
		"Release panics":  {&blocks{fixed: fixed{data: data}, release: func() { panic(errShort) }}, ipu.ErrPanic, `stream "far": stream callback failed: `},
		"other bytes":     {&blocks{constant: first(func() []byte { return data[:16] })}, nil, `stream "far": it is a remote buffer, whose data has to be there when the engine is loaded, with its size: 16 bytes, want 1024`},
	} {
		t.Run(name, func(t *testing.T) {
			d := attached(t)
			e, err := backend(t).NewEngine(far())
			require.NoError(t, err)
			defer func() { require.NoError(t, e.Close()) }()
			require.NoError(t, e.Connect("far", c.host))
			for range 2 {
				c.host.calls = 1
				err = e.Load(t.Context(), d)
				require.ErrorContains(t, err, c.says)
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
					require.ErrorIs(t, err, ipu.ErrCallback)
				}
				require.ErrorIs(t, e.Run(t.Context(), 1), ipu.ErrNotLoaded)
			}
			require.NoError(t, e.Connect("far", &fixed{data: data}))
			require.NoError(t, e.Load(t.Context(), d))
			rings(t, e, 64, 1)
			require.NoError(t, e.Run(t.Context(), 1))
		})
	}

	t.Run("Goexit", func(t *testing.T) {
		e, d := engineOf(t, far())
		require.NoError(t, e.Connect("far", &blocks{constant: first(func() []byte { runtime.Goexit(); return nil })}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = e.Load(context.Background(), d)
		}()
		<-ended
		require.NoError(t, e.Connect("far", &fixed{data: data}))
		require.NoError(t, e.Load(t.Context(), d))
	})
}

// TestLoadEndsInRemoteBuffers cancels and stops an engine while it writes remote buffers.
func TestLoadEndsInRemoteBuffers(t *testing.T) {
	data := make([]byte, 16*64)
	for _, loaded := range []bool{false, true} {
		for name, want := range map[string]error{"cancelled": context.Canceled, "stopped": ipu.ErrStopped, "stopped at the end": ipu.ErrStopped} {
			e, err := backend(t).NewEngine(far())
			require.NoError(t, err)
			d := attached(t)
			if loaded {
				require.NoError(t, e.Load(t.Context(), d))
			}
			ctx, cancel := context.WithCancel(t.Context())
			host := &blocks{fixed: fixed{data: data}}
			stop := func() {
				if name == "cancelled" {
					cancel()
				} else {
					require.NoError(t, e.Stop())
				}
			}
			require.NoError(t, e.Connect("far", host))
			if name == "stopped at the end" {
				host.release = stop
			} else {
				host.constant = func(int) []byte { stop(); return data }
			}
			require.ErrorIs(t, e.Load(ctx, d), want, "%s, loaded before: %v", name, loaded)
			rings(t, e, 64, 1)
			err = e.Run(t.Context(), 1)
			require.True(t, errors.Is(err, ipu.ErrNotLoaded) || errors.Is(err, ipu.ErrStopped), "%v", err)
			*host = blocks{fixed: fixed{data: data}}
			require.NoError(t, e.Load(t.Context(), d))
			require.NoError(t, e.Run(t.Context(), 1))
			require.NoError(t, e.Close())
			require.NoError(t, d.Detach())
			cancel()
		}
	}
}

// TestWindowOutside has a window that is not within its block: the run fails with the stream's name, and the next does not.
func TestWindowOutside(t *testing.T) {
	e, d := engineOf(t, adder(64, 1, 2))
	a, b, y := rings(t, e, 64, 1)
	for range 2 {
		b.w.Done = 7
		err := e.Run(t.Context(), 1)
		require.ErrorIs(t, err, ipu.ErrCallback)
		require.ErrorIs(t, err, ipu.ErrPanic)
		require.ErrorContains(t, err, `run program 1 "main": stream "b": `)
		require.False(t, e.Runs())
	}
	for _, w := range []*windowed{a, b, y} {
		w.rewind()
	}
	require.NoError(t, e.Run(t.Context(), 1))
	require.NoError(t, d.Detach())
}

// TestCallbackThatStays has a callback that ignores the end of its context: the error says which.
func TestCallbackThatStays(t *testing.T) {
	poplar.SetPatience(t, 20*time.Millisecond)
	e, _ := engineOf(t, adder(64, 1, 0))
	a, _, _ := rings(t, e, 64, 1)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, e.Connect("a", staying{a, cancel}))
	err := e.Run(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, `the callback of stream "a" did not return, so that the program did not end within 20ms of being told to`)
}

// staying is a stream that has the run cancelled, and goes on half a second later.
type staying struct {
	ipu.Stream
	cancel context.CancelFunc
}

func (staying) Prefetch([]byte) bool { return false }

func (s staying) Fetch(ctx context.Context, buf []byte) error {
	s.cancel()
	time.Sleep(500 * time.Millisecond)
	return s.Stream.Fetch(ctx, buf)
}

// TestNoSuchSlot names slots that there are not.
func TestNoSuchSlot(t *testing.T) {
	e, _ := engineOf(t, adder(64, 1, 2))
	for _, slot := range []int{-1, poplar.Slots} {
		for _, err := range []error{e.Stage(t.Context(), 1, slot, nil, nil), e.RunStaged(t.Context(), 1, slot), e.Unstage(t.Context(), 1, slot)} {
			require.ErrorContains(t, err, "want 0 to 15")
		}
	}
}

// TestOpenFileThatCannotBeRead opens a folder: the error is the system's, not that the file is short.
func TestOpenFileThatCannotBeRead(t *testing.T) {
	c := adder(64, 1, 2)
	c.Executable = nil
	_, err := poplar.OpenFile(t.TempDir(), 0, 10, c)
	require.ErrorContains(t, err, "read: Is a directory")
}

// TestTimerAfterClose has a timer of a run come after the engine was closed: its memory, which somebody else may have by then, is left alone.
func TestTimerAfterClose(t *testing.T) {
	e, _ := engineOf(t, adder(64, 1, 2))
	require.True(t, e.Touches())
	require.NoError(t, e.Close())
	require.False(t, e.Touches())
}
