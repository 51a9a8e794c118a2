package iputest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

// mutant is a back end that breaks one rule of the contract.
type mutant struct {
	*System
	make func(ipu.Engine) ipu.Engine
}

func (m mutant) NewEngine(c ipu.EngineConfig) (ipu.Engine, error) {
	e, err := m.System.NewEngine(c)
	if err != nil {
		return nil, err
	}
	return m.make(e), nil
}

// broken is an engine of which some methods are replaced.
type broken struct {
	ipu.Engine
	run     func(context.Context, int) error
	load    func(context.Context, ipu.Device) error
	connect func(string, ipu.Stream) error
	stop    func() error
	close   func() error
}

func (b *broken) Run(ctx context.Context, p int) error {
	if b.run == nil {
		return b.Engine.Run(ctx, p)
	}
	return b.run(ctx, p)
}

func (b *broken) Load(ctx context.Context, d ipu.Device) error {
	if b.load == nil {
		return b.Engine.Load(ctx, d)
	}
	return b.load(ctx, d)
}

func (b *broken) Connect(handle string, s ipu.Stream) error {
	if b.connect == nil {
		return b.Engine.Connect(handle, s)
	}
	return b.connect(handle, s)
}

func (b *broken) Stop() error {
	if b.stop == nil {
		return b.Engine.Stop()
	}
	return b.stop()
}

func (b *broken) Close() error {
	if b.close == nil {
		return b.Engine.Close()
	}
	return b.close()
}

// Streams that break rules.
type (
	forgetful struct{ ipu.Stream } // no Complete
	doubled   struct{ ipu.Stream } // two of them
	halved    struct{ ipu.Stream } // passes half of the buffer
	deaf      struct{ ipu.Stream } // is not told the run's context
)

func (forgetful) Complete() { /* forgotten */ }
func (d doubled) Complete() { d.Stream.Complete(); d.Stream.Complete() }
func (h halved) Fetch(ctx context.Context, buf []byte) error {
	return h.Stream.Fetch(ctx, buf[:len(buf)/2])
}
func (d deaf) Fetch(_ context.Context, buf []byte) error {
	return d.Stream.Fetch(context.Background(), buf)
}
func (h halved) Prefetch(buf []byte) bool { return h.Stream.Prefetch(buf[:len(buf)/2]) }
func around(f func(ipu.Stream) ipu.Stream) func(ipu.Engine) ipu.Engine {
	return func(e ipu.Engine) ipu.Engine {
		return &broken{Engine: e, connect: func(h string, s ipu.Stream) error { return e.Connect(h, f(s)) }}
	}
}

// mutants are engines that break a rule, and the test that notices.
var mutants = map[string]struct {
	notices string
	make    func(ipu.Engine) ipu.Engine
}{
	"no Complete":  {"OrderOfStreams", around(func(s ipu.Stream) ipu.Stream { return forgetful{s} })},
	"two Complete": {"OrderOfStreams", around(func(s ipu.Stream) ipu.Stream { return doubled{s} })},
	"half buffers": {"Transfers", around(func(s ipu.Stream) ipu.Stream { return halved{s} })},
	"no context":   {"Cancel", around(func(s ipu.Stream) ipu.Stream { return deaf{s} })},
	"any handle": {"UnknownStream", func(e ipu.Engine) ipu.Engine {
		return &broken{Engine: e, connect: func(h string, s ipu.Stream) error {
			if err := e.Connect(h, s); !errors.Is(err, ipu.ErrUnknownStream) {
				return err
			}
			return nil
		}}
	}},
	"swapped streams": {"OrderOfStreams", func(e ipu.Engine) ipu.Engine {
		swap := map[string]string{"a": "b", "b": "a"}
		return &broken{Engine: e, connect: func(h string, s ipu.Stream) error {
			if other := swap[h]; other != "" {
				h = other
			}
			return e.Connect(h, s)
		}}
	}},
	"first connection stays": {"Reconnect", func(e ipu.Engine) ipu.Engine {
		have := map[string]bool{}
		return &broken{Engine: e, connect: func(h string, s ipu.Stream) error {
			if have[h] {
				return nil
			}
			have[h] = true
			return e.Connect(h, s)
		}}
	}},
	"no cause": {"CallbackErrors", func(e ipu.Engine) ipu.Engine {
		return &broken{Engine: e, run: func(ctx context.Context, p int) error {
			err := e.Run(ctx, p)
			if errors.Is(err, ipu.ErrCallback) {
				return fmt.Errorf("%w: %v", ipu.ErrCallback, err)
			}
			return err
		}}
	}},
	"no kind": {"NotLoaded", func(e ipu.Engine) ipu.Engine {
		return &broken{Engine: e, run: func(ctx context.Context, p int) error {
			if err := e.Run(ctx, p); err != nil {
				return errors.New(err.Error())
			}
			return nil
		}}
	}},
	"deaf to contexts": {"Cancel", func(e ipu.Engine) ipu.Engine {
		return &broken{Engine: e, run: func(_ context.Context, p int) error { return e.Run(context.Background(), p) }}
	}},
	"load ignores contexts": {"LoadRefused", func(e ipu.Engine) ipu.Engine {
		return &broken{Engine: e, load: func(_ context.Context, d ipu.Device) error { return e.Load(context.Background(), d) }}
	}},
	"load attaches": {"LoadRefused", func(e ipu.Engine) ipu.Engine {
		return &broken{Engine: e, load: func(ctx context.Context, d ipu.Device) error {
			d.Attach()
			return e.Load(ctx, d)
		}}
	}},
	"stop does nothing":   {"StopIdle", func(e ipu.Engine) ipu.Engine { return &broken{Engine: e, stop: func() error { return nil }} }},
	"stop waits for runs": {"StopBlockedRun", stopWaits},
	"close once": {"Close", func(e ipu.Engine) ipu.Engine {
		closed := false
		return &broken{Engine: e, close: func() error {
			if closed {
				return errors.New("closed already")
			}
			closed = true
			return e.Close()
		}}
	}},
	"runs twice": {"Repeats", func(e ipu.Engine) ipu.Engine {
		return &broken{Engine: e, run: func(ctx context.Context, p int) error {
			if err := e.Run(ctx, p); err != nil {
				return err
			}
			return e.Run(ctx, p)
		}}
	}},
	"leaks a goroutine": {"Close", func(e ipu.Engine) ipu.Engine {
		go func() { select {} }()
		return e
	}},
}

// stopWaits makes an engine whose Stop waits for the run to end.
func stopWaits(e ipu.Engine) ipu.Engine {
	gate := make(chan struct{}, 1)
	return &broken{
		Engine: e,
		run: func(ctx context.Context, p int) error {
			select {
			case gate <- struct{}{}:
			default:
				return ipu.ErrBusy
			}
			defer func() { <-gate }()
			return e.Run(ctx, p)
		},
		stop: func() error {
			gate <- struct{}{}
			defer func() { <-gate }()
			return e.Stop()
		},
	}
}

const mutantVariable = "IPUTEST_MUTANT"

// TestSuiteNotices runs the suite against engines that break a rule, each in a
// process of its own, which must fail.
func TestSuiteNotices(t *testing.T) {
	if name := os.Getenv(mutantVariable); name != "" {
		patience /= 50
		RunEngineSuite(t, Suite{Backend: mutant{New(Config{}), mutants[name].make}, Executable: SuiteScript().Executable()})
		return
	}
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestSuiteNotices$/^"+m.notices+"$", "-test.timeout=20s")
			cmd.Env = append(os.Environ(), mutantVariable+"="+name)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s", out)
			require.True(t, strings.Contains(string(out), "--- FAIL: TestSuiteNotices/"+m.notices), "%s", out)
		})
	}
}
