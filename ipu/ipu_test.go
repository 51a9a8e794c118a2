package ipu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorKinds(t *testing.T) {
	sentinels := map[ErrorKind]error{
		KindRuntime: ErrRuntime, KindApplication: ErrApplication, KindSystem: ErrSystem, KindRecoverable: ErrRecoverable,
		KindUnrecoverable: ErrUnrecoverable, KindUnknown: ErrUnknown, KindStreamConnection: ErrStreamConnection,
		KindInvalidOption: ErrInvalidOption, KindMemory: ErrMemory, KindPackageHash: ErrPackageHash,
	}
	// What each kind is, beside itself.
	is := map[ErrorKind][]ErrorKind{
		KindApplication: {KindRuntime}, KindSystem: {KindRuntime}, KindRecoverable: {KindSystem, KindRuntime},
		KindUnrecoverable: {KindSystem, KindRuntime}, KindUnknown: {KindSystem, KindRuntime},
	}
	for kind := range numKinds + 1 {
		err := fmt.Errorf("wrapped: %w", &Error{Kind: kind, Err: io.EOF})
		require.ErrorIs(t, err, io.EOF)
		for other, sentinel := range sentinels {
			want := other == kind
			for _, k := range is[kind] {
				want = want || k == other
			}
			require.Equal(t, want, errors.Is(err, sentinel), "%v is %v", kind, other)
		}
		require.False(t, errors.Is(err, ErrClosed))
	}
	require.Equal(t, "device error 200", ErrorKind(200).String())
}

func TestErrorText(t *testing.T) {
	tests := []struct {
		e    Error
		want string
	}{
		{Error{}, "device error"},
		{Error{Kind: KindApplication, Op: "run program 1", Message: "overflow on tile 3"}, "run program 1: application error: overflow on tile 3"},
		{Error{Kind: KindRecoverable, Recovery: LinkReset, Op: "load", Err: io.EOF}, "load: recoverable error (needs LINK_RESET): EOF"},
	}
	for _, tt := range tests {
		require.EqualError(t, &tt.e, tt.want)
	}
}

func TestRecovery(t *testing.T) {
	for _, r := range []Recovery{RecoveryNone, IPUReset, LinkReset, PartitionReset, FullReset} {
		require.Equal(t, r, ParseRecovery(r.String()))
		for kind := range numKinds {
			err := fmt.Errorf("wrapped: %w", &Error{Kind: kind, Recovery: r})
			want := kind == KindApplication || kind == KindRecoverable && r == IPUReset
			require.Equal(t, want, Reloadable(err), "%v", err)
		}
	}
	require.Equal(t, RecoveryNone, ParseRecovery("POWER_CYCLE"))
	require.Equal(t, "recovery action 9", Recovery(9).String())
	require.False(t, Reloadable(io.EOF))
}

func TestIdentify(t *testing.T) {
	tests := map[string]Format{
		"": FormatUnknown, "POPEFGE": FormatUnknown, "POPEFGEN": FormatPortable, "POPEFGEN\x01\x00": FormatPortable,
		"GC_EXE_1": FormatPoplar, "GC_EXE_3....": FormatPoplar, "IPUTEST1{}": FormatTest, "gc_exe": FormatUnknown, "\x7fELF": FormatUnknown,
	}
	for exe, want := range tests {
		require.Equal(t, want, Identify([]byte(exe)), "%q", exe)
	}
	require.Equal(t, "portable, Poplar, test, unknown, format(9)",
		fmt.Sprintf("%v, %v, %v, %v, %v", FormatPortable, FormatPoplar, FormatTest, FormatUnknown, Format(9)))
}

func TestRegistry(t *testing.T) {
	var r registry
	_, err := r.lookup("cpu")
	require.ErrorIs(t, err, ErrUnknownBackend)
	require.EqualError(t, err, `unknown back end "cpu" (no back end is registered); import _ "github.com/popefgen/popefgen/ipu/cpu"`)

	z, a := &fakeBackend{name: "z"}, &fakeBackend{name: "a"}
	r.add(z)
	r.add(a)
	require.Equal(t, []string{"a", "z"}, r.names())
	require.Equal(t, []Backend{a, z}, r.all())
	b, err := r.lookup("z")
	require.NoError(t, err)
	require.Same(t, z, b)
	_, err = r.lookup("poplar")
	require.EqualError(t, err, `unknown back end "poplar" (registered: a, z); import _ "github.com/popefgen/popefgen/ipu/poplar" and build with -tags poplar on Linux with cgo (CGO_ENABLED=1)`)
	_, err = r.lookup("y")
	require.EqualError(t, err, `unknown back end "y" (registered: a, z)`)

	r.remove(z)
	r.remove(&fakeBackend{name: "a"}) // another of that name
	require.Equal(t, []string{"a"}, r.names())

	require.PanicsWithValue(t, `ipu: register back end "a": it is already registered`, func() { r.add(a) })
	require.PanicsWithValue(t, "ipu: register a back end: its name is empty", func() { r.add(&fakeBackend{}) })
}

// fakeBackend is a back end of fake devices.
type fakeBackend struct {
	name    string
	devices []*fakeDevice
	err     error
}

func (b *fakeBackend) Name() string                           { return b.name }
func (b *fakeBackend) Accepts(Format) error                   { return nil }
func (b *fakeBackend) NewEngine(EngineConfig) (Engine, error) { return nil, ErrClosed }
func (b *fakeBackend) Devices(context.Context) ([]Device, error) {
	all := make([]Device, len(b.devices))
	for i, d := range b.devices {
		all[i] = d
	}
	return all, b.err
}

// fakeDevice is free from its freeAt'th attempt to attach it.
type fakeDevice struct {
	info     DeviceInfo
	freeAt   int
	attempts int
	err      error
}

func (d *fakeDevice) Info() DeviceInfo { return d.info }
func (d *fakeDevice) Detach() error    { return nil }
func (d *fakeDevice) Attach() (bool, error) {
	d.attempts++
	return d.err == nil && d.freeAt > 0 && d.attempts >= d.freeAt, d.err
}

// optionBackend takes device options.
type optionBackend struct {
	fakeBackend
	got []Option
}

func (b *optionBackend) DevicesWith(ctx context.Context, options []Option) ([]Device, error) {
	b.got = options
	return b.Devices(ctx)
}
