package rt_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/internal/session"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// logged makes a logger of a level, and a function that returns what was logged
// so far, without times.
func logged(level slog.Level) (*slog.Logger, func() []string) {
	var buf bytes.Buffer
	var mu sync.Mutex
	h := session.NewHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return buf.Write(p)
	}), level)
	return slog.New(h), func() []string {
		mu.Lock()
		defer mu.Unlock()
		text := regexp.MustCompile(`(?m)^time=\S+ | (took|executable_bytes)=\S+`).ReplaceAllString(buf.String(), "")
		buf.Reset()
		return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestLogger logs the life of a runner at every level.
func TestLogger(t *testing.T) {
	run := func(level slog.Level) []string {
		l, lines := logged(level)
		sys, v := tested(t, 1)
		r := v.open(t, rt.WithManager(sys.Manager()), rt.WithLogger(l), rt.AutoReset(), rt.Timed())
		compute(t, r, 1)
		sys.Inject(iputest.OnRun(mainProgram), &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset, Message: "it broke"})
		require.Error(t, r.Run(context.Background(), NewInputs(), NewOutputs()))
		x, y := someSamples(1, 1)
		require.NoError(t, r.RunSamples(context.Background(), x, y))
		require.NoError(t, r.Close())
		require.ErrorIs(t, r.Run(context.Background(), NewInputs(), NewOutputs()), rt.ErrClosed)
		return lines()
	}
	const m = "model=affine.popef replica=0"
	const broke = `start: recoverable error (needs IPU_RESET): it broke`
	all := []string{
		`level=INFO msg=bound ` + m + ` backend=iputest device=0`,
		`level=INFO msg=opened ` + m + ` data_bytes=8`,
		`level=DEBUG msg=loaded ` + m,
		`level=TRACE msg="request begun" ` + m + ` request=1`,
		`level=TRACE msg="request done" ` + m + ` request=1`,
		`level=TRACE msg="request begun" ` + m + ` request=2`,
		`level=ERR msg=failed ` + m + ` backend=iputest device=0 request=2 error="run program 5: ` + broke + `" recovery=IPU_RESET`,
		`level=WARN msg="request done" ` + m + ` request=2 error="affine.popef: run: request 2: the device failed: run program 5: ` + broke +
			`; the next request resets it" recovery=IPU_RESET`,
		`level=TRACE msg=flushed ` + m + ` samples=1`,
		`level=TRACE msg="request begun" ` + m + ` request=3`,
		`level=WARN msg=reset ` + m + ` backend=iputest device=0`,
		`level=DEBUG msg=loaded ` + m,
		`level=TRACE msg="request done" ` + m + ` request=3`,
		`level=INFO msg=unbound ` + m + ` backend=iputest device=0`,
		`level=INFO msg=closed ` + m,
		`level=DEBUG msg=refused ` + m + ` error=closed`,
	}
	levels := []string{"TRACE", "DEBUG", "INFO", "WARN", "ERR"}
	for i, level := range []slog.Level{rt.LevelTrace, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		var want []string
		for _, line := range all {
			for _, name := range levels[i:] {
				if strings.HasPrefix(line, "level="+name+" ") {
					want = append(want, line)
				}
			}
		}
		if diff := cmp.Diff(want, run(level)); diff != "" {
			t.Errorf("at %s:\n%s", levels[i], diff)
		}
	}
}

// TestLoggerOfHandOver logs sessions that take a device from each other.
func TestLoggerOfHandOver(t *testing.T) {
	ctx := context.Background()
	l, lines := logged(slog.LevelInfo)
	d := mine()
	a, _, _ := fakeAffine(t, "a", affineScript()).ready(t, rt.WithDevice(d), rt.WithLogger(l))
	b, _, _ := fakeAffine(t, "b", affineScript()).ready(t, rt.WithDevice(d), rt.WithLogger(nil))
	require.NoError(t, b.Run(ctx))
	require.NoError(t, a.Run(ctx))
	require.NoError(t, a.UpdateWeights(ctx, rt.Weight{Anchor: "b", Data: floats(1, 2)}))
	require.NoError(t, a.Stop())
	const of = " model=affine.popef replica=0"
	const at = of + " backend=rt-fake device=5"
	require.Equal(t, []string{
		`level=INFO msg=bound` + at, `level=INFO msg=opened` + of + ` data_bytes=8`, `level=INFO msg="handed over"` + at,
		`level=INFO msg="took back"` + at, `level=INFO msg="weights updated"` + of, `level=INFO msg=stopped` + of,
	}, lines())
	_, err := modelrt.NewSession(ctx, load(t, fakeAffine(t, "c", affineScript()).model), rt.WithDevice(&device{info: d.info, busy: true}), rt.WithLogger(l))
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	got := lines()
	require.Len(t, got, 2)
	require.Contains(t, got[1], "level=ERR msg=opened")
	require.Contains(t, got[1], "held by somebody else")
}

// TestLoggingIsFree checks that what is not logged costs a request no memory.
func TestLoggingIsFree(t *testing.T) {
	if rttest.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	ctx := context.Background()
	for name, opts := range map[string][]rt.RunnerOption{
		"nothing asked for": nil,
		"off":               {rt.WithLogger(nil)},
		"discarded":         {rt.WithLogger(slog.New(slog.DiscardHandler))},
		"above requests":    {rt.WithLogger(slog.New(session.NewHandler(io.Discard, slog.LevelInfo)))},
	} {
		for _, v := range variants(t) {
			r := v.open(t, append(opts, rt.Timed())...)
			in, out := NewInputs(), NewOutputs()
			x, y := someSamples(0, 3)
			require.Zero(t, testing.AllocsPerRun(50, func() {
				ticket, err := r.Submit(ctx, in, out)
				if err == nil {
					err = ticket.Wait(ctx)
				}
				if err != nil || r.Run(ctx, in, out) != nil || r.RunSamples(ctx, x, y) != nil {
					t.Fatal(err)
				}
			}), "%s, %s", name, v.name)
		}
	}
}

// BenchmarkLogging measures what logging adds to a request.
func BenchmarkLogging(b *testing.B) {
	v := noop(b)
	for _, c := range []struct {
		name string
		l    *slog.Logger
	}{
		{"off", nil},
		{"info", slog.New(session.NewHandler(io.Discard, slog.LevelInfo))},
		{"trace", slog.New(session.NewHandler(io.Discard, rt.LevelTrace))},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := v.open(b, rt.WithLogger(c.l))
			in, out := NewInputs(), NewOutputs()
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Run(context.Background(), in, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestLoggerOfEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.txt")
	for _, c := range []struct {
		level, dest string
		where       string // stderr, stdout or file; "" for nothing
		lowest      slog.Level
		err         string
	}{
		{level: ""}, {level: "OFF"}, {level: "off", dest: "stdout"}, {level: "", dest: path},
		{level: "TRACE", where: "stderr", lowest: rt.LevelTrace},
		{level: "DEBUG", dest: "stderr", where: "stderr", lowest: slog.LevelDebug},
		{level: "info", dest: "stdout", where: "stdout", lowest: slog.LevelInfo},
		{level: "WARN", dest: path, where: "file", lowest: slog.LevelWarn},
		{level: "Err", dest: path, where: "file", lowest: slog.LevelError},
		{level: "LOUD", err: `POPEF_LOG_LEVEL="LOUD": bad option: want TRACE, DEBUG, INFO, WARN, ERR or OFF`},
		{level: "INFO", dest: t.TempDir(), err: `POPEF_LOG_DEST="`},
	} {
		var stderr, stdout bytes.Buffer
		l, err := session.NewLogger(c.level, c.dest, &stderr, &stdout)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		if c.where == "" {
			require.Nil(t, l)
			continue
		}
		ctx := context.Background()
		require.True(t, l.Enabled(ctx, c.lowest))
		require.False(t, l.Enabled(ctx, c.lowest-1))
		l.Log(ctx, c.lowest, "hello", "level", "mine")
		file, _ := os.ReadFile(path)
		for where, text := range map[string]string{"stderr": stderr.String(), "stdout": stdout.String(), "file": string(file)} {
			require.Equal(t, where == c.where, strings.Contains(text, "msg=hello level=mine\n"), "%s %s in %s", c.level, c.dest, where)
		}
		if c.where == "file" {
			name := map[slog.Level]string{slog.LevelWarn: "WARN", slog.LevelError: "ERR"}[c.lowest]
			require.Contains(t, string(file), "level="+name+" ", "and nothing that was there is lost")
		}
	}
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(file), "\n"), "appended to")
}

// TestLogVariables runs TestLogHelper in another process, in which the
// environment asks for a log.
func TestLogVariables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.txt")
	helper := func(env ...string) (stderr string) {
		var buf bytes.Buffer
		c := exec.Command(os.Args[0], "-test.run=^TestLogHelper$")
		c.Env = append(append(os.Environ(), "POPEFGEN_LOG_HELPER=1"), env...)
		c.Stderr = &buf
		require.NoError(t, c.Run(), buf.String())
		return buf.String()
	}
	require.Empty(t, helper())
	require.Empty(t, helper("POPEF_LOG_LEVEL=OFF"))
	require.Contains(t, helper("POPEF_LOG_LEVEL=INFO"), "level=INFO msg=bound model=affine.popef")
	require.NotContains(t, helper("POPEF_LOG_LEVEL=INFO"), "request")
	require.Empty(t, helper("POPEF_LOG_LEVEL=TRACE", "POPEF_LOG_DEST="+path))
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(file), `level=TRACE msg="request done"`)
	complaint := helper("POPEF_LOG_LEVEL=LOUD")
	require.Contains(t, complaint, "level=WARN")
	require.Contains(t, complaint, `POPEF_LOG_LEVEL=\"LOUD\"`)
	require.NotContains(t, complaint, "bound")
}

// TestLogHelper makes one request, in a process of its own.
func TestLogHelper(t *testing.T) {
	if os.Getenv("POPEFGEN_LOG_HELPER") == "" {
		t.Skip("TestLogVariables runs this")
	}
	compute(t, variants(t)[2].open(t), 1)
}

// attrHandler keeps the attributes as they are given, without quoting any.
type attrHandler struct {
	slog.Handler
	all *[]string
}

func (h attrHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		*h.all = append(*h.all, a.Value.String())
		return true
	})
	return nil
}

// TestLogShowsAll logs a model whose file has a name that drives a terminal and
// a device failure that says such things.
func TestLogShowsAll(t *testing.T) {
	sys, v := tested(t, 1)
	var all []string
	logger := slog.New(attrHandler{slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: rt.LevelTrace}), &all})
	var events []string
	r, err := Open(t.Context(), affineSpec(t), &LoadInputs{B: &B{[2]float32{10, 20}}}, genrt.Source{Name: "a\x1b]0;x\a\u202e\n.popef", Bytes: v.model},
		rt.WithBackend(v.backend), rt.WithManager(sys.Manager()), rt.WithLogger(logger), rt.WithObserver(func(e rt.Event) { events = append(events, e.Model) }))
	require.NoError(t, err)
	sys.Inject(iputest.OnRun(mainProgram), &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset, Message: "\x1b[2J\u2066"})
	err = r.Run(t.Context(), NewInputs(), NewOutputs())
	require.ErrorIs(t, err, rt.ErrDevice)
	require.NotContains(t, err.Error(), "\u202e", "the error names the model raw")
	require.NoError(t, r.Close())
	require.NotEmpty(t, all)
	for _, s := range append(all, events...) {
		require.False(t, strings.ContainsFunc(s, printable.Hidden), "%q", s)
	}
	require.Contains(t, all, `a\u001b]0;x\u0007\u202e\n.popef`)
}
