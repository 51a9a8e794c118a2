package popart

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/popefgen/popefgen/internal/printable"
)

// LogConfig says what is logged, and how.
type LogConfig struct {
	Level   slog.Level            // of modules that are not in Modules
	Modules map[string]slog.Level // by module; PopART's names, with or without "popart:", stand for all modules that are part of theirs
	// Format is "popart" (also if empty), which is "[time] [module] [level] text", or "text" or "json", as those of package slog.
	Format string
}

// NewLogHandler returns a handler of log records that writes a line to w for each record that c lets pass. The module of a record is its logger's attribute "module". The error
// wraps ErrOption: a module or format that is not known.
func NewLogHandler(w io.Writer, c LogConfig) (slog.Handler, error) {
	h := &logHandler{out: &lockedWriter{w: w}, level: c.Level, modules: map[string]slog.Level{}}
	for _, name := range slices.SortedFunc(maps.Keys(c.Modules), modulesLast) {
		of, err := modulesOf(name)
		if err != nil {
			return nil, err
		}
		for _, m := range of {
			h.modules[m] = c.Modules[name]
		}
	}
	named := &slog.HandlerOptions{Level: slog.Level(math.MinInt), ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if l, ok := a.Value.Any().(slog.Level); ok && len(groups) == 0 && a.Key == slog.LevelKey {
			a.Value = slog.StringValue(strings.ToUpper(levelName(l)))
		}
		return a
	}}
	switch c.Format {
	case "", "popart":
		h.next = &lineHandler{out: h.out}
	case "text":
		h.next = slog.NewTextHandler(h.out, named)
	case "json":
		h.next = slog.NewJSONHandler(h.out, named)
	default:
		return nil, wrong(ErrOption, "log format %q, want popart, text or json", c.Format)
	}
	return h, nil
}

// modulesLast orders names so that those of single modules come last, and so go before those of PopART that stand for several.
func modulesLast(a, b string) int {
	one := func(s string) int {
		of, err := modulesOf(s)
		if err != nil || len(of) > 1 {
			return 0
		}
		return 1
	}
	if d := one(a) - one(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// logHandler lets records of modules pass by their levels.
type logHandler struct {
	out     *lockedWriter
	next    slog.Handler
	level   slog.Level
	modules map[string]slog.Level
}

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error { return h.next.Handle(ctx, r) }

func (h *logHandler) WithGroup(name string) slog.Handler {
	own := *h
	own.next = h.next.WithGroup(name)
	return &own
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := *h
	own.next = h.next.WithAttrs(attrs)
	for _, a := range attrs {
		if level, ok := h.modules[a.Value.String()]; ok && a.Key == "module" {
			own.level = level
		}
	}
	return &own
}

// lockedWriter writes a line at a time.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// lineHandler writes records as PopART does.
type lineHandler struct {
	out    io.Writer
	module string
	group  string // of attributes that come, with a dot behind it
	before string // attributes that were given, as text
}

func (h *lineHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *lineHandler) WithGroup(name string) slog.Handler {
	own := *h
	own.group += name + "."
	return &own
}

func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := *h
	var b bytes.Buffer
	for _, a := range attrs {
		if a.Key == "module" && h.group == "" {
			own.module = a.Value.String()
			continue
		}
		writeAttr(&b, h.group, a)
	}
	own.before += b.String()
	return &own
}

func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var b bytes.Buffer
	module := h.module
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "module" && h.group == "" {
			module = a.Value.String()
		}
		return true
	})
	fmt.Fprintf(&b, "[%s] [popart:%s] [%s] %s%s", r.Time.Format("2006-01-02 15:04:05.000"), printable.Line(module), levelName(r.Level), printable.Line(r.Message), h.before)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "module" || h.group != "" {
			writeAttr(&b, h.group, a)
		}
		return true
	})
	b.WriteByte('\n')
	_, err := h.out.Write(b.Bytes())
	return err
}

// writeAttr writes an attribute as " key=value", groups as those of their attributes.
func writeAttr(b *bytes.Buffer, group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, inner := range v.Group() {
			writeAttr(b, group+a.Key+".", inner)
		}
		return
	}
	text := v.String()
	if v.Kind() == slog.KindDuration {
		text = v.Duration().Round(time.Microsecond).String()
	}
	if text == "" || strings.ContainsAny(text, " \t\n\"=") {
		text = fmt.Sprintf("%q", text)
	}
	fmt.Fprintf(b, " %s%s=%s", group, printable.Line(a.Key), printable.Line(text))
}
