package popart_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx/popart"
	"github.com/popefgen/popefgen/rt"
)

// logLines returns what was logged, with times and durations as letters.
func logLines(text string) []string {
	text = regexp.MustCompile(`\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\]`).ReplaceAllString(text, "[T]")
	text = regexp.MustCompile(`took=\S+`).ReplaceAllString(text, "took=D")
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// TestLogOfTraining logs the life of a training session: how it is compiled, pass by pass, planned, and what it is asked to do.
// Feature 116.
func TestLogOfTraining(t *testing.T) {
	var log bytes.Buffer
	h, err := popart.NewLogHandler(&log, popart.LogConfig{Level: rt.LevelTrace})
	require.NoError(t, err)
	s, err := popart.NewTrainingSession(t.Context(), popart.ONNX(regression()), popart.DataFlow{2, popart.Anchors{"loss": popart.All}}, popart.Loss("loss"),
		momentum(0.01), popart.CPU(), shapes, &popart.Options{AccumulationFactor: 2, Logger: slog.New(h), EngineOptions: map[string]string{"threads": "1"}})
	require.NoError(t, err)
	require.NoError(t, s.PrepareDevice(t.Context()))
	require.ErrorIs(t, s.Run(t.Context(), popart.Arrays(nil, nil)), popart.ErrWeightsNotLoaded)
	require.NoError(t, s.WeightsFromHost(t.Context()))
	steps(t, s, 1)
	require.NoError(t, s.Close())
	lines := logLines(log.String())
	var passes []string
	lines = slicesDelete(lines, func(l string) bool {
		pass := strings.HasPrefix(l, "[T] [popart:pass] [debug]")
		if pass {
			passes = append(passes, l)
		}
		return pass
	})
	require.Len(t, passes, 16)
	require.Regexp(t, `^\[T\] \[popart:pass\] \[debug\] movement: \d+ → \d+ nodes.* took=D$`, passes[0])
	require.Equal(t, []string{
		"[T] [popart:session] [info] making a session kind=training backend=cpu",
		"[T] [popart:lower] [debug] the ONNX model is read nodes=3 initializers=1 took=D",
		"[T] [popart:lower] [info] lowered graphs=1 nodes=3 tensors=5 took=D",
		"[T] [popart:autodiff] [info] loss appended graphs=1 nodes=3 tensors=5 took=D",
		"[T] [popart:autodiff] [info] gradients appended graphs=2 nodes=10 tensors=14 took=D",
		"[T] [popart:autodiff] [info] optimizer appended graphs=5 nodes=24 tensors=32 took=D",
		"[T] [popart:pass] [info] optimised graphs=5 nodes=16 tensors=19 took=D",
		"[T] [popart:session] [info] the session is made warnings=0",
		"[T] [popart:session] [trace] prepare device",
		`[T] [popart:run] [info] bound model="training session" replica=0 backend=cpu device=0`,
	}, lines[:10])
	require.Equal(t, []string{
		"[T] [popart:device] [info] the device is prepared backend=cpu device=0 took=D",
		"[T] [popart:session] [trace] run",
		`[T] [popart:session] [err] run failed error="popart: run: the weights are not on the device: call WeightsFromHost first"`,
		"[T] [popart:session] [trace] weights from host",
		`[T] [popart:run] [debug] loaded model="training session" replica=0`,
		"[T] [popart:session] [trace] run",
		`[T] [popart:run] [trace] request begun model="training session" replica=0 request=1`,
		`[T] [popart:run] [trace] request done model="training session" replica=0 request=1`,
		`[T] [popart:run] [debug] saved model="training session" replica=0`,
	}, lines[len(lines)-11:len(lines)-2])
	require.Contains(t, log.String(), "[popart:plan] [info] planned threads=1 arena_bytes=")
}

// slicesDelete returns the lines for which f is false.
func slicesDelete(lines []string, f func(string) bool) (left []string) {
	for _, l := range lines {
		if !f(l) {
			left = append(left, l)
		}
	}
	return left
}

// TestLogHandler writes the records of modules with levels of their own, in every format, with a fixed time.
// Feature 116.
func TestLogHandler(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC)
	write := func(c popart.LogConfig) string {
		var b bytes.Buffer
		h, err := popart.NewLogHandler(&b, c)
		require.NoError(t, err)
		for _, module := range []string{"session", "pass", "plan"} {
			of := h.WithAttrs([]slog.Attr{slog.String("module", module)})
			for _, level := range []slog.Level{rt.LevelTrace, slog.LevelInfo, slog.LevelError} {
				if !of.Enabled(t.Context(), level) {
					continue
				}
				r := slog.NewRecord(at, level, "said\nso", 0)
				r.AddAttrs(slog.Duration("took", 1234567), slog.Group("a", slog.String("b", `c "d"`), slog.String("e", "")))
				require.NoError(t, of.WithGroup("g").Handle(t.Context(), r))
			}
		}
		return b.String()
	}
	line := func(module, level string) string {
		return "[2026-03-04 05:06:07.089] [popart:" + module + "] [" + level + `] said\nso g.took=1.235ms g.a.b="c \"d\"" g.a.e=""` + "\n"
	}
	for name, c := range map[string]struct {
		config popart.LogConfig
		want   string
	}{
		"level":           {popart.LogConfig{Level: slog.LevelError}, line("session", "err") + line("pass", "err") + line("plan", "err")},
		"module":          {popart.LogConfig{Level: popart.LevelOff, Modules: map[string]slog.Level{"pass": slog.LevelInfo}}, line("pass", "info") + line("pass", "err")},
		"off":             {popart.LogConfig{Level: rt.LevelTrace, Modules: map[string]slog.Level{"pass": popart.LevelOff, "plan": popart.LevelOff, "session": slog.LevelError}}, line("session", "err")},
		"PopART's name":   {popart.LogConfig{Level: popart.LevelOff, Modules: map[string]slog.Level{"popart:devicex": slog.LevelError}}, line("plan", "err")},
		"own goes before": {popart.LogConfig{Level: popart.LevelOff, Modules: map[string]slog.Level{"opx": rt.LevelTrace, "plan": slog.LevelError, "Pattern": slog.LevelError}}, line("pass", "err") + line("plan", "err")},
		"trace":           {popart.LogConfig{Level: popart.LevelOff, Modules: map[string]slog.Level{"opx": rt.LevelTrace}}, line("plan", "trace") + line("plan", "info") + line("plan", "err")},
		"text":            {popart.LogConfig{Level: popart.LevelOff, Modules: map[string]slog.Level{"pass": slog.LevelError}, Format: "text"}, "time=2026-03-04T05:06:07.089Z level=ERR msg=\"said\\nso\" module=pass g.took=1.234567ms g.a.b=\"c \\\"d\\\"\" g.a.e=\"\"\n"},
		"json":            {popart.LogConfig{Level: popart.LevelOff, Modules: map[string]slog.Level{"pass": slog.LevelError}, Format: "json"}, `{"time":"2026-03-04T05:06:07.089Z","level":"ERR","msg":"said\nso","module":"pass","g":{"took":1234567,"a":{"b":"c \"d\"","e":""}}}` + "\n"},
	} {
		require.Equal(t, c.want, write(c.config), name)
	}
	_, err := popart.NewLogHandler(io.Discard, popart.LogConfig{Modules: map[string]slog.Level{"devicey": 0}})
	require.ErrorIs(t, err, popart.ErrOption)
	require.ErrorContains(t, err, `there is no module "devicey", want one of autodiff, builder, cache`)
	_, err = popart.NewLogHandler(io.Discard, popart.LogConfig{Format: "xml"})
	require.ErrorContains(t, err, `log format "xml", want popart, text or json`)
}

// TestLogEnvironment: the variables say level, place, levels by module, which go before the level, and format; what is wrong is said.
// Feature 116.
func TestLogEnvironment(t *testing.T) {
	dir := t.TempDir()
	config := func(text string) string {
		path := filepath.Join(dir, "conf.py")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	file := filepath.Join(dir, "log")
	for name, c := range map[string]struct {
		env         map[string]string
		stderr, out string // lines, without times
		file        string
		err         string
	}{
		"nothing":     {},
		"off":         {env: map[string]string{"POPART_LOG_LEVEL": "off", "POPART_LOG_DEST": filepath.Join(dir, "none")}},
		"level":       {env: map[string]string{"POPART_LOG_LEVEL": "info"}, stderr: "[T] [popart:session] [info] a\n[T] [popart:pass] [info] a\n"},
		"stdout":      {env: map[string]string{"POPART_LOG_LEVEL": "INFO", "POPART_LOG_DEST": "stdout"}, out: "[T] [popart:session] [info] a\n[T] [popart:pass] [info] a\n"},
		"file":        {env: map[string]string{"POPART_LOG_LEVEL": "INFO", "POPART_LOG_DEST": file}, file: "[T] [popart:session] [info] a\n[T] [popart:pass] [info] a\n"},
		"config":      {env: map[string]string{"POPART_LOG_LEVEL": "ERR", "POPART_LOG_CONFIG": config(`{"session": "INFO", "popart:devicex": "WARN"}`)}, stderr: "[T] [popart:session] [info] a\n"},
		"config only": {env: map[string]string{"POPART_LOG_CONFIG": config(`{"session": "INFO", "popart:devicex": "WARN"}`)}, stderr: "[T] [popart:session] [info] a\n"},
		"format":      {env: map[string]string{"POPART_LOG_LEVEL": "INFO", "POPART_LOG_FORMAT": "xml"}, err: `log format "xml"`},
		"bad level":   {env: map[string]string{"POPART_LOG_LEVEL": "LOUD"}, err: `POPART_LOG_LEVEL: wrong option: level "LOUD", want TRACE, DEBUG, INFO, WARN, ERR or OFF`},
		"no config":   {env: map[string]string{"POPART_LOG_CONFIG": filepath.Join(dir, "nowhere")}, err: "nowhere"},
		"no file":     {env: map[string]string{"POPART_LOG_LEVEL": "INFO", "POPART_LOG_DEST": dir}, err: "POPART_LOG_DEST="},
	} {
		require.NoError(t, os.RemoveAll(file))
		var stderr, stdout bytes.Buffer
		l, err := popart.LoggerOf(func(name string) string { return c.env[name] }, &stderr, &stdout)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, name)
			continue
		}
		require.NoError(t, err, name)
		if l != nil {
			l.With("module", "session").Info("a")
			l.With("module", "pass").Info("a")
		}
		require.Equal(t, l == nil, c.stderr+c.out+c.file == "", name)
		for _, got := range []struct{ want, text string }{{c.stderr, stderr.String()}, {c.out, stdout.String()}} {
			require.Equal(t, strings.Split(strings.TrimSuffix(got.want, "\n"), "\n"), logLines(got.text), name)
		}
		text, _ := os.ReadFile(file)
		require.Equal(t, strings.Split(strings.TrimSuffix(c.file, "\n"), "\n"), logLines(string(text)), name)
	}
	for text, want := range map[string]string{
		`["session"]`:                "want an object of modules and levels",
		`{"session": 3}`:             "want an object of modules and levels",
		`{"session": "LOUD"}`:        `module "session": wrong option: level "LOUD"`,
		`{"sesion": "INFO"}`:         `there is no module "sesion"`,
		strings.Repeat(" ", 1<<20+1): "more than 1048576 bytes",
	} {
		_, err := popart.LoggerOf(func(name string) string { return map[string]string{"POPART_LOG_CONFIG": config(text)}[name] }, io.Discard, io.Discard)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "conf.py")
	}

	// Of the process: a session logs into the file that the environment names.
	t.Setenv(popart.LogLevelVariable, "INFO")
	t.Setenv(popart.LogDestVariable, file)
	require.NoError(t, prepared(t, popart.DataFlow{1, popart.Anchors{"z": popart.All}}, nil).Close())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "[popart:session] [info] making a session kind=inference backend=cpu")
}

// TestLogAllocatesNothing: a step of a session whose logger is off allocates what one without a logger does.
// Feature 116.
func TestLogAllocatesNothing(t *testing.T) {
	allocs := func(o *popart.Options) float64 {
		s := prepared(t, popart.DataFlow{1, popart.Anchors{"z": popart.All}}, o)
		io := popart.Arrays(map[string]popart.Array{"x": popart.Of(count(6))}, s.InitAnchorArrays())
		return testing.AllocsPerRun(100, func() {
			if err := s.Run(context.Background(), io); err != nil {
				t.Fatal(err)
			}
		})
	}
	h, err := popart.NewLogHandler(io.Discard, popart.LogConfig{Level: popart.LevelOff})
	require.NoError(t, err)
	require.Equal(t, allocs(nil), allocs(&popart.Options{Logger: slog.New(h)}))
}
