package popart

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/rt"
)

// The environment variables that say what sessions log unless Options.Logger does. Without them nothing is logged.
const (
	// LogLevelVariable names the least level that is logged: TRACE, DEBUG, INFO, WARN, ERR or OFF, in any case.
	LogLevelVariable = "POPART_LOG_LEVEL"
	// LogDestVariable says where to: "stderr", as without it, "stdout", or the name of a file, which is appended to.
	LogDestVariable = "POPART_LOG_DEST"
	// LogConfigVariable names a JSON file of levels by module, as in {"devicex": "INFO", "session": "WARN"}, which go before LogLevelVariable.
	LogConfigVariable = "POPART_LOG_CONFIG"
	// LogFormatVariable is "popart", as without it, "text" or "json".
	LogFormatVariable = "POPART_LOG_FORMAT"
)

// LevelOff is above every level: nothing is logged.
const LevelOff = slog.Level(math.MaxInt)

// The modules of log records, as their attribute "module".
const (
	moduleSession  = "session"  // what callers ask for
	moduleLower    = "lower"    // ONNX to the operators of the portable executable
	moduleAutodiff = "autodiff" // loss, gradients and optimizer
	modulePass     = "pass"     // the passes over the executable
	moduleCache    = "cache"    // of compiled models
	modulePlan     = "plan"     // the engine's plan
	moduleDevice   = "device"   // preparing devices
	moduleRun      = "run"      // what the runtime tells: devices, programs, steps
)

// modules are the modules in order, with PopART's modules whose records are theirs.
var modules = []struct {
	name   string
	popart []string
}{
	{moduleSession, nil}, {moduleLower, []string{"ir", "op", "ces", "builder"}}, {moduleAutodiff, []string{"transform"}}, {modulePass, []string{"pattern", "transform"}},
	{moduleCache, []string{"devicex"}}, {modulePlan, []string{"devicex", "opx"}}, {moduleDevice, []string{"devicex"}}, {moduleRun, []string{"devicex"}},
}

// levels are the values of LogLevelVariable.
var levels = []struct {
	name  string
	level slog.Level
}{{"TRACE", rt.LevelTrace}, {"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo}, {"WARN", slog.LevelWarn}, {"ERR", slog.LevelError}, {"OFF", LevelOff}}

// parseLevel returns the level of that name.
func parseLevel(name string) (slog.Level, error) {
	for _, l := range levels {
		if strings.EqualFold(l.name, name) {
			return l.level, nil
		}
	}
	return 0, wrong(ErrOption, "level %q, want TRACE, DEBUG, INFO, WARN, ERR or OFF", name)
}

// levelName returns a level as PopART writes it.
func levelName(level slog.Level) string {
	name := "trace"
	for _, l := range levels[1:5] {
		if level >= l.level {
			name = strings.ToLower(l.name)
		}
	}
	return name
}

// modulesOf returns the modules that a name stands for.
func modulesOf(name string) ([]string, error) {
	plain := strings.TrimPrefix(strings.ToLower(name), "popart:")
	var all, known []string
	for _, m := range modules {
		if m.name == plain {
			return []string{plain}, nil
		}
		if slices.Contains(m.popart, plain) {
			all = append(all, m.name)
		}
		known = append(append(known, m.name), m.popart...)
	}
	if all == nil {
		slices.Sort(known)
		return nil, wrong(ErrOption, "there is no module %q, want one of %s%s", name, strings.Join(slices.Compact(known), ", "), nearest.DidYouMean(plain, known))
	}
	return all, nil
}

// loggerOf returns the logger that an environment asks for, nil for none.
func loggerOf(env func(string) string, stderr, stdout io.Writer) (*slog.Logger, error) {
	c, path := LogConfig{Level: LevelOff, Format: strings.ToLower(env(LogFormatVariable))}, env(LogConfigVariable)
	if level := env(LogLevelVariable); level != "" {
		var err error
		if c.Level, err = parseLevel(level); err != nil {
			return nil, fmt.Errorf("%s: %w", LogLevelVariable, err)
		}
	} else if path == "" {
		return nil, nil
	}
	if path != "" {
		var err error
		if c.Modules, err = readLogConfig(path); err != nil {
			return nil, fmt.Errorf("%s=%q: %w", LogConfigVariable, path, err)
		}
	}
	if c.Level == LevelOff && len(c.Modules) == 0 {
		return nil, nil
	}
	w, dest := stderr, env(LogDestVariable)
	switch dest {
	case "", "stderr":
	case "stdout":
		w = stdout
	default: // open for as long as the program runs
		f, err := os.OpenFile(dest, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("%s=%q: %w", LogDestVariable, dest, err)
		}
		w = f
	}
	h, err := NewLogHandler(w, c)
	if err != nil {
		return nil, err
	}
	return slog.New(h), nil
}

// maxLogConfig bounds a file of levels.
const maxLogConfig = 1 << 20

// readLogConfig reads a file of levels by module.
func readLogConfig(path string) (map[string]slog.Level, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLogConfig+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxLogConfig:
		return nil, wrong(ErrOption, "the file has more than %d bytes", maxLogConfig)
	}
	var text map[string]string
	if err := json.Unmarshal(data, &text); err != nil {
		return nil, wrong(ErrOption, "want an object of modules and levels, as in {\"session\": \"WARN\"}: %v", err)
	}
	all := make(map[string]slog.Level, len(text))
	for _, name := range slices.Sorted(maps.Keys(text)) {
		level, err := parseLevel(text[name])
		if err != nil {
			return nil, fmt.Errorf("module %q: %w", name, err)
		}
		if _, err := modulesOf(name); err != nil {
			return nil, err
		}
		all[name] = level
	}
	return all, nil
}

// environmentLoggers are the loggers that were made, by the values of the variables: a file is opened once.
var environmentLoggers struct {
	sync.Mutex
	by map[[4]string]*slog.Logger
}

// environmentLogger returns the logger that the environment asks for, nil for none. What is wrong in there must not keep a program from running, but whoever set it should know: it is
// logged.
func environmentLogger() *slog.Logger {
	key := [4]string{os.Getenv(LogLevelVariable), os.Getenv(LogDestVariable), os.Getenv(LogConfigVariable), os.Getenv(LogFormatVariable)}
	all := &environmentLoggers
	all.Lock()
	defer all.Unlock()
	l, ok := all.by[key]
	if ok {
		return l
	}
	l, err := loggerOf(os.Getenv, os.Stderr, os.Stdout)
	if err != nil {
		h, _ := NewLogHandler(os.Stderr, LogConfig{Level: slog.LevelWarn}) // which is right
		l = slog.New(h)
		l.Warn("the environment says nothing useful about logging; warnings go to stderr", "module", moduleSession, "error", err)
	}
	if all.by == nil {
		all.by = map[[4]string]*slog.Logger{}
	}
	all.by[key] = l
	return l
}

// logs are the loggers of a session's modules; nil logs nothing.
type logs map[string]*slog.Logger

// newLogs returns loggers that write what l does, or the environment's if it is nil.
func newLogs(l *slog.Logger) logs {
	if l == nil {
		l = environmentLogger()
	}
	if l == nil {
		return nil
	}
	all := logs{}
	for _, m := range modules {
		all[m.name] = l.With("module", m.name)
	}
	return all
}

// on reports whether a module logs records of a level.
func (l logs) on(module string, level slog.Level) bool {
	return l != nil && l[module].Enabled(context.Background(), level)
}

// log logs a record of a module. Who is in a hurry asks on first.
func (l logs) log(module string, level slog.Level, text string, attrs ...slog.Attr) {
	if l.on(module, level) {
		l[module].LogAttrs(context.Background(), level, text, attrs...)
	}
}
