//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
)

var update = flag.Bool("update", false, "write testdata/faults.txt anew")

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
	const file = "testdata/faults.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("go test -tags poplar,poplarfake ./ipu/poplar -run TestFaults -update rewrites %s:\n%s", file, d)
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
	require.EqualError(t, err, `run program 1: program "main": recoverable error (needs LINK_RESET): injected at run 1`)
	require.False(t, ipu.Reloadable(err))
}

// suffer does everything with an engine once or twice, and writes down what fails.
func suffer(t *testing.T, b *strings.Builder) {
	tell := func(doing string, err error) bool {
		if err == nil {
			return true
		}
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
	devices, err := backend(t).Devices(ctx)
	if !tell("devices", err) {
		devices, err = backend(t).Devices(ctx)
		require.NoError(t, err)
	}
	d := devices[0]
	ok, err := d.Attach()
	if !tell("attach", err) {
		ok, err = d.Attach()
		require.NoError(t, err)
	}
	require.True(t, ok)
	defer func() {
		if !tell("detach", d.Detach()) {
			require.NoError(t, d.Detach())
		}
	}()
	e, err := backend(t).NewEngine(adder(64, 2, 2))
	if !tell("engine", err) {
		e, err = backend(t).NewEngine(adder(64, 2, 2))
		require.NoError(t, err)
	}
	defer func() { require.NoError(t, e.Close()) }()
	a, in, y := newWindowed(64, 1, false), newWindowed(64, 1, false), newWindowed(64, 1, true)
	a.set(0, 2)
	for _, c := range []struct {
		handle string
		host   ipu.Stream
	}{{"w", &fixed{data: make([]byte, 64)}}, {"a", a}, {"b", in}, {"y", y}} {
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
}
