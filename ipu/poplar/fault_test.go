//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
)

var update = flag.Bool("update", false, "write files in testdata anew")

// faults are scripts for the fake. Where two streams fail, the first counts.
var faults = []string{
	"list=poplar_error", "list=std", "list=int", "list=bad_alloc",
	"open=poplar_error", "open:0=unknown", "attach=runtime", "attach=recoverable:FULL_RESET", "detach=poplar_error",
	"deserialize=hash", "deserialize=poplar_error", "deserialize=file_load", "deserialize=parse", "deserialize=bad_alloc", "deserialize=int",
	"engine=invalid_option", "engine=link", "engine=graph_memory", "engine=std",
	"load=poplar_error", "load=application", "load=recoverable:IPU_RESET", "load=recoverable:PARTITION_RESET", "load=unrecoverable", "load=graph_memory", "load@2=poplar_error",
	"load=hang",
	"connect:a=stream_connection", "connect=stream_memory",
	"run:1=runtime", "run:1=application", "run:1=system", "run:1=recoverable:IPU_RESET", "run:1=recoverable:PARTITION_RESET",
	"run:1=recoverable:FULL_RESET", "run:1=recoverable:ODD", "run:1=unrecoverable", "run:1=unknown", "run:1=stream_connection", "run:1=control_program", "run:1=std", "run:1=int",
	"run:1@2=application", "run:1=hang", "run:1@*=application", "run:0=recoverable:IPU_RESET",
	"fetch:a=application", "fetch:y=recoverable:IPU_RESET", "fetch:b=hang", "prefetch:a=stream_memory",
	"stop=std;run:1=hang",
}

// TestFaults has Poplar fail at every call in every way: what each becomes, and what state it leaves behind, is golden text.
func TestFaults(t *testing.T) {
	poplar.SetPatience(t, 20*time.Millisecond)
	require.GreaterOrEqual(t, len(faults), 40)
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintf(&b, "%s\n", f)
		t.Setenv("FAKE_POPLAR_FAULT", f)
		suffer(t, &b)
		t.Setenv("FAKE_POPLAR_FAULT", "")
	}
	golden(t, "testdata/faults.txt", b.String())
}

// classes are all that the fake throws, with the errors of package ipu that each is.
var classes = []struct {
	effect string
	is     []error
}{
	{"poplar_error", nil}, {"runtime", []error{ipu.ErrRuntime}}, {"application", []error{ipu.ErrRuntime, ipu.ErrApplication}},
	{"system", []error{ipu.ErrRuntime, ipu.ErrSystem}},
	{"recoverable:IPU_RESET", []error{ipu.ErrRuntime, ipu.ErrSystem, ipu.ErrRecoverable}},
	{"recoverable:PARTITION_RESET", []error{ipu.ErrRuntime, ipu.ErrSystem, ipu.ErrRecoverable}},
	{"recoverable:FULL_RESET", []error{ipu.ErrRuntime, ipu.ErrSystem, ipu.ErrRecoverable}},
	{"recoverable:ODD", []error{ipu.ErrRuntime, ipu.ErrSystem, ipu.ErrRecoverable}},
	{"unrecoverable", []error{ipu.ErrRuntime, ipu.ErrSystem, ipu.ErrUnrecoverable}},
	{"unknown", []error{ipu.ErrRuntime, ipu.ErrSystem, ipu.ErrUnknown}},
	{"stream_connection", []error{ipu.ErrStreamConnection}}, {"stream_memory", []error{ipu.ErrMemory}}, {"graph_memory", []error{ipu.ErrMemory}},
	{"invalid_option", []error{ipu.ErrInvalidOption}}, {"hash", []error{ipu.ErrPackageHash}}, {"bad_alloc", []error{ipu.ErrMemory}},
	{"link", nil}, {"file_load", nil}, {"parse", nil}, {"control_program", nil}, {"std", nil}, {"int", nil},
}

// TestEveryClass has every call of Poplar throw everything: the first error of each is golden text. It is what its class
// says, and after it the call works, or says that the engine has to be loaded.
func TestEveryClass(t *testing.T) {
	sentinels := []error{ipu.ErrRuntime, ipu.ErrApplication, ipu.ErrSystem, ipu.ErrRecoverable, ipu.ErrUnrecoverable, ipu.ErrUnknown,
		ipu.ErrStreamConnection, ipu.ErrInvalidOption, ipu.ErrMemory, ipu.ErrPackageHash}
	var b strings.Builder
	for _, point := range []string{"list", "describe", "option", "open", "attach", "detach", "deserialize", "engine", "streams", "load", "remote", "connect:y", "run:1", "fetch:b", "prefetch:a", "complete:a"} {
		fmt.Fprintf(&b, "%s\n", point)
		for _, c := range classes {
			t.Setenv("FAKE_POPLAR_FAULT", point+"="+c.effect)
			errs := suffer(t, &strings.Builder{})
			t.Setenv("FAKE_POPLAR_FAULT", "")
			require.NotEmpty(t, errs, "%s=%s", point, c.effect)
			first := errs[0]
			fmt.Fprintf(&b, "\t%s: %v\n", c.effect, first)
			for _, s := range sentinels {
				require.Equal(t, slices.Contains(c.is, s), errors.Is(first, s), "%s=%s: %v, %v", point, c.effect, first, s)
			}
			_, action, _ := strings.Cut(c.effect, ":")
			if action == "" || action == "ODD" {
				action = ipu.RecoveryNone.String()
			}
			var own *ipu.Error
			require.ErrorAs(t, first, &own)
			require.Equal(t, action, own.Recovery.String())
			require.Equal(t, c.effect == "application" || c.effect == "recoverable:IPU_RESET", ipu.Reloadable(first), "%s=%s", point, c.effect)
			for _, err := range errs[1:] {
				require.ErrorIs(t, err, ipu.ErrNotLoaded)
			}
		}
	}
	golden(t, "testdata/classes.txt", b.String())
}

// golden compares a text with a file, or writes it.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("go test -tags poplar,poplarfake ./ipu/poplar -run %s -update rewrites %s:\n%s", t.Name(), file, d)
	}
}

// TestLinkReset has the action that came with Poplar 3.3.
func TestLinkReset(t *testing.T) {
	if strings.HasPrefix(poplar.Version(), "3.2") {
		t.Skip("Poplar 3.2 has no LINK_RESET")
	}
	e, _ := engineOf(t, adder(64, 1, 1))
	rings(t, e, 64, 1)
	t.Setenv("FAKE_POPLAR_FAULT", "run:1=recoverable:LINK_RESET")
	err := e.Run(context.Background(), 1)
	require.ErrorIs(t, err, ipu.ErrRecoverable)
	require.EqualError(t, err, `run program 1 "main": recoverable error (needs LINK_RESET): injected at run 1`)
	require.False(t, ipu.Reloadable(err))
}

// suffer does everything with an engine once or twice, and writes down what fails.
func suffer(t *testing.T, b *strings.Builder) (errs []error) {
	tell := func(doing string, err error) bool {
		if err == nil {
			return true
		}
		errs = append(errs, err)
		fmt.Fprintf(b, "\t%s: %v\n", doing, err)
		var is []string
		for _, s := range []error{ipu.ErrRuntime, ipu.ErrApplication, ipu.ErrSystem, ipu.ErrRecoverable, ipu.ErrUnrecoverable, ipu.ErrUnknown,
			ipu.ErrStreamConnection, ipu.ErrInvalidOption, ipu.ErrMemory, ipu.ErrPackageHash, ipu.ErrNotLoaded, ipu.ErrCallback, context.DeadlineExceeded} {
			if errors.Is(err, s) {
				is = append(is, s.Error())
			}
		}
		if own := (*ipu.Error)(nil); errors.As(err, &own) && own.Recovery != ipu.RecoveryNone {
			is = append(is, own.Recovery.String())
		}
		if ipu.Reloadable(err) {
			is = append(is, "loading again helps")
		}
		if is != nil {
			fmt.Fprintf(b, "\t\t%s\n", strings.Join(is, ", "))
		}
		return false
	}
	ctx := context.Background()
	list := func() ([]ipu.Device, error) {
		return backend(t).(ipu.DeviceLister).DevicesWith(ctx, []ipu.Option{{Name: "target.syncMethod", Value: "polling"}})
	}
	devices, err := list()
	if !tell("devices", err) {
		devices, err = list()
		require.NoError(t, err)
	}
	d := devices[0]
	ok, err := d.Attach()
	if !tell("attach", err) {
		ok, err = d.Attach()
		require.NoError(t, err)
	}
	require.True(t, ok)
	defer func() { // the result tells of it too
		if !tell("detach", d.Detach()) {
			require.NoError(t, d.Detach())
		}
	}()
	config := adder(64, 2, 2)
	config.Executable = append(config.Executable, "remote far 16 2\n"...)
	config.Streams = append(config.Streams, ipu.StreamInfo{Handle: "far", Bytes: 32, Type: "f32", Shape: []int64{2, 4}, Blocks: 2})
	e, err := backend(t).NewEngine(config)
	if !tell("engine", err) {
		e, err = backend(t).NewEngine(config)
		require.NoError(t, err)
	}
	defer func() { require.NoError(t, e.Close()) }()
	a, in, y := newWindowed(64, 1, false), newWindowed(64, 1, false), newWindowed(64, 1, true)
	a.set(0, 2)
	for _, c := range []struct {
		handle string
		host   ipu.Stream
	}{{"far", &fixed{data: make([]byte, 32)}}, {"w", &fixed{data: make([]byte, 64)}}, {"a", a}, {"b", in}, {"y", y}} {
		if !tell("connect", e.Connect(c.handle, c.host)) {
			require.NoError(t, e.Connect(c.handle, c.host))
		}
	}
	do := func(doing string, f func(context.Context) error) bool {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // what does not hang takes microseconds
		if !strings.Contains(os.Getenv("FAKE_POPLAR_FAULT"), "hang") {
			ctx = context.WithoutCancel(ctx)
		}
		defer cancel()
		a.rewind()
		in.rewind()
		y.rewind()
		return tell(doing, f(ctx))
	}
	load := func(ctx context.Context) error { return e.Load(ctx, d) }
	run := func(p int) func(context.Context) error {
		return func(ctx context.Context) error { return e.Run(ctx, p) }
	}
	if !do("load", load) {
		do("run", run(1))
		require.NoError(t, e.Load(ctx, d))
	}
	for range 2 {
		fine := do("load weights", run(0)) && do("run", run(1))
		if fine {
			require.Equal(t, float32(2), y.get(0))
			continue
		}
		again := do("run again", run(1))
		fmt.Fprintf(b, "\tworks without being loaded again: %v\n", again)
		if do("load again", load) {
			fmt.Fprintf(b, "\tworks after it: %v\n", do("load weights", run(0)) && do("run", run(1)))
		}
	}
	return errs
}
