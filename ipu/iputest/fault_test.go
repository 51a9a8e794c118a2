package iputest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

// TestErrorClasses injects an error of each class and sees what it takes to
// run again.
func TestErrorClasses(t *testing.T) {
	ctx := context.Background()
	tests := []struct {
		err    ipu.Error
		is     error
		load   bool // loading again is enough
		repair bool // the device must be repaired first
	}{
		{ipu.Error{Kind: ipu.KindApplication, Message: "overflow"}, ipu.ErrApplication, true, false},
		{ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset}, ipu.ErrRecoverable, true, false},
		{ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.LinkReset}, ipu.ErrRecoverable, false, true},
		{ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.PartitionReset}, ipu.ErrRecoverable, false, true},
		{ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.FullReset}, ipu.ErrRecoverable, false, true},
		{ipu.Error{Kind: ipu.KindUnrecoverable}, ipu.ErrUnrecoverable, false, true},
		{ipu.Error{Kind: ipu.KindUnknown}, ipu.ErrUnknown, false, true},
		{ipu.Error{Kind: ipu.KindOther}, nil, true, false},
		{ipu.Error{Kind: ipu.KindStreamConnection}, ipu.ErrStreamConnection, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.err.Error(), func(t *testing.T) {
			sys := New(Config{})
			e := loadedOn(t, sys, script1())
			connectAll(t, e)
			sys.Inject(OnRun(1).Nth(2), &tt.err)
			require.NoError(t, e.Run(ctx, 1))
			err := e.Run(ctx, 1)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
			var got *ipu.Error
			require.ErrorAs(t, err, &got)
			require.Equal(t, tt.err.Kind, got.Kind)
			require.Equal(t, tt.err.Recovery, got.Recovery)
			require.Equal(t, "start", got.Op)
			require.Empty(t, tt.err.Op, "what was injected is not changed")

			require.ErrorIs(t, e.Run(ctx, 1), ipu.ErrNotLoaded)
			err = e.Load(ctx, e.device)
			if tt.repair {
				require.ErrorIs(t, err, tt.is)
				require.ErrorContains(t, err, "must be repaired first")
				require.ErrorIs(t, sys.Broken(0), tt.is)
				require.Error(t, newEngine(t, sys, script1()).Load(ctx, e.device), "another engine neither")
				sys.Repair(0)
				err = e.Load(ctx, e.device)
			}
			require.NoError(t, err)
			require.NoError(t, sys.Broken(0))
			require.NoError(t, e.Run(ctx, 1))
		})
	}
}

func TestFaultPoints(t *testing.T) {
	ctx := context.Background()
	oom := &ipu.Error{Kind: ipu.KindMemory, Op: "allocate", Message: "4 GB"}
	sys := New(Config{Devices: []ipu.DeviceInfo{{}, {}}})
	e := loadedOn(t, sys, script1())
	x, _ := connectAll(t, e)

	sys.Inject(OnMake(), &ipu.Error{Kind: ipu.KindInvalidOption})
	_, err := sys.NewEngine(ipu.EngineConfig{Name: "m", Executable: script1().Executable()})
	require.ErrorIs(t, err, ipu.ErrInvalidOption)
	_, err = sys.NewEngine(ipu.EngineConfig{Name: "m", Executable: script1().Executable()})
	require.NoError(t, err)

	sys.Inject(OnAttach(1), io.ErrUnexpectedEOF)
	_, err = sys.Manager().Get(ctx, ipu.Request{})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "attach device 1: unexpected EOF")

	sys.Inject(OnLoad(1), io.EOF)
	sys.Inject(OnLoad().Nth(2), oom)
	require.NoError(t, e.Load(ctx, e.device))
	err = e.Load(ctx, e.device)
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.EqualError(t, err, "load the engine: device 0: allocate: out of memory: 4 GB")
	require.ErrorIs(t, e.Run(ctx, 1), ipu.ErrNotLoaded)
	require.NoError(t, e.Load(ctx, e.device))

	// In the middle of a program: y is not delivered, x was moved.
	remove := sys.Inject(OnTransfer("y").Nth(3).Times(2), &ipu.Error{Kind: ipu.KindApplication})
	for i := range 5 {
		err := e.Run(ctx, 1)
		if i == 2 || i == 3 {
			require.ErrorIs(t, err, ipu.ErrApplication)
			require.NotErrorIs(t, err, ipu.ErrCallback)
			require.ErrorContains(t, err, `stream "y"`)
			require.NoError(t, e.Load(ctx, e.device))
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, 5, x.done)
	remove()

	remove = sys.Inject(OnRun().Nth(2).Always(), io.EOF)
	require.NoError(t, e.Run(ctx, 1))
	for range 3 {
		require.ErrorIs(t, e.Run(ctx, 1), io.EOF)
	}
	remove()
	require.NoError(t, e.Run(ctx, 1), "an error that is not the device's leaves the engine loaded")
	sys.Inject(OnRun(7), io.EOF)
	require.NoError(t, e.Run(ctx, 1))
	require.Len(t, sys.Events(EventFault), 8)

	require.Panics(t, func() { sys.Inject(OnMake(), ErrHang) })
	require.Panics(t, func() { sys.Inject(OnRun(), nil) })
}

func TestInjectedHangs(t *testing.T) {
	ctx := context.Background()
	struck := func(sys *System, times int) {
		for len(sys.Events(EventFault)) < times {
			time.Sleep(time.Millisecond)
		}
	}
	// cancelled makes a call whose context ends once a fault has struck that often.
	cancelled := func(sys *System, times int, call func(ctx context.Context) error) error {
		ctx, cancel := context.WithCancel(ctx)
		go func() {
			struck(sys, times)
			cancel()
		}()
		return call(ctx)
	}
	for name, point := range map[string]Fault{"run": OnRun(1), "transfer": OnTransfer("x")} {
		t.Run(name, func(t *testing.T) {
			sys := New(Config{})
			e := loadedOn(t, sys, script1())
			connectAll(t, e)
			sys.Inject(point.Times(2), ErrHang)
			done := make(chan error, 1)
			go func() { done <- e.Run(ctx, 1) }()
			struck(sys, 1)
			require.NoError(t, e.Stop())
			require.ErrorIs(t, <-done, ipu.ErrStopped)
			require.NoError(t, e.Load(ctx, e.device))
			require.ErrorIs(t, cancelled(sys, 2, func(ctx context.Context) error { return e.Run(ctx, 1) }), context.Canceled)
			require.NoError(t, e.Run(ctx, 1))
		})
	}
	t.Run("load", func(t *testing.T) {
		sys := New(Config{})
		e := newEngine(t, sys, script1())
		d := attached(t, sys, 0)
		sys.Inject(OnLoad().Times(2), ErrHang)
		done := make(chan error, 1)
		go func() { done <- e.Load(ctx, d) }()
		struck(sys, 1)
		require.NoError(t, e.Stop())
		require.ErrorIs(t, <-done, ipu.ErrStopped)
		require.ErrorIs(t, cancelled(sys, 2, func(ctx context.Context) error { return e.Load(ctx, d) }), context.Canceled)
		connectAll(t, e)
		require.ErrorIs(t, e.Run(ctx, 1), ipu.ErrNotLoaded)
		require.NoError(t, e.Load(ctx, d))
		require.NoError(t, e.Run(ctx, 1))
	})
}

func TestErrorsOfPortableExecutables(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{})
	made, err := sys.NewEngine(ipu.EngineConfig{Name: "portable", Executable: SuitePortable()})
	require.NoError(t, err)
	defer made.Close()
	require.NoError(t, made.Load(ctx, attached(t, sys, 0)))
	for _, s := range made.Streams() {
		f := &feed{}
		if s.Direction == ipu.HostToDevice {
			f.items = [][]byte{vector(1, 2, 3, 4)}
		}
		require.NoError(t, made.Connect(s.Handle, f))
	}
	sys.Inject(OnTransfer("b").Nth(2), &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset})
	require.NoError(t, made.Run(ctx, 1))
	err = made.Run(ctx, 1)
	require.True(t, ipu.Reloadable(err), "%v", err)
	require.NotErrorIs(t, err, ipu.ErrCallback)
	require.ErrorIs(t, made.Run(ctx, 1), ipu.ErrNotLoaded)
	require.NoError(t, made.Load(ctx, made.(*Engine).device))
	sys.ClearLog()
	require.NoError(t, made.Run(ctx, 1))
	require.Equal(t, `portable: prefetch "a" #1: refused`, sys.Trace(transfers...)[0], "it knows from the first run what the program reads")
}

func TestRegister(t *testing.T) {
	var sys *System
	t.Run("test", func(t *testing.T) {
		sys = New(Config{Name: "mine"}).Register(t)
		b, err := ipu.Lookup("mine")
		require.NoError(t, err)
		require.Same(t, sys, b)
	})
	_, err := ipu.Lookup("mine")
	require.ErrorIs(t, err, ipu.ErrUnknownBackend)

	failed := errorCounter{TB: t}
	sys.violations = []string{"a", "b"}
	sys.Register(&failed)
	for _, f := range failed.cleanups {
		f()
	}
	require.Equal(t, 2, failed.errors)
}

// errorCounter is a test whose errors and cleanups are kept.
type errorCounter struct {
	testing.TB
	errors   int
	cleanups []func()
}

func (c *errorCounter) Helper()               {}
func (c *errorCounter) Cleanup(f func())      { c.cleanups = append(c.cleanups, f) }
func (c *errorCounter) Errorf(string, ...any) { c.errors++ }
