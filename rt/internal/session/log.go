package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
)

// logLevels are the values of LogLevelVariable, but for OFF.
var logLevels = []struct {
	name  string
	level slog.Level
}{
	{"TRACE", rt.LevelTrace}, {"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo}, {"WARN", slog.LevelWarn}, {"ERR", slog.LevelError},
}

// environmentLogger returns the logger that the environment asked for when it
// was first called, nil for none. What is wrong in there must not keep a
// program from running, but whoever set it should know: it is logged.
var environmentLogger = sync.OnceValue(func() *slog.Logger {
	l, err := NewLogger(os.Getenv(rt.LogLevelVariable), os.Getenv(rt.LogDestVariable), os.Stderr, os.Stdout)
	if err != nil {
		l = slog.New(NewHandler(os.Stderr, slog.LevelWarn))
		l.Warn("the environment says nothing useful about logging; warnings go to stderr", "error", err)
	}
	return l
})

// NewLogger returns the logger for the values of the environment's variables.
func NewLogger(level, dest string, stderr, stdout io.Writer) (*slog.Logger, error) {
	if level == "" || strings.EqualFold(level, "OFF") {
		return nil, nil
	}
	at := slices.IndexFunc(logLevels, func(l struct {
		name  string
		level slog.Level
	}) bool {
		return strings.EqualFold(level, l.name)
	})
	if at < 0 {
		return nil, fmt.Errorf("%s=%q: %w: want TRACE, DEBUG, INFO, WARN, ERR or OFF", rt.LogLevelVariable, level, rt.ErrOption)
	}
	var w io.Writer
	switch dest {
	case "", "stderr":
		w = stderr
	case "stdout":
		w = stdout
	default: // open for as long as the program runs
		f, err := os.OpenFile(dest, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("%s=%q: %w", rt.LogDestVariable, dest, err)
		}
		w = f
	}
	return slog.New(NewHandler(w, logLevels[at].level)), nil
}

// NewHandler writes a line for each record: time=… level=… msg=… and what
// belongs to the event.
func NewHandler(w io.Writer, least slog.Level) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: least, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 || a.Key != slog.LevelKey {
			return a
		}
		for _, l := range logLevels {
			if a.Value.Any() == l.level {
				a.Value = slog.StringValue(l.name)
			}
		}
		return a
	}})
}

// level returns the level that an event is logged at.
func levelOf(e *rt.Event) slog.Level {
	switch e.Kind {
	case rt.EventRequestBegun, rt.EventFlushed:
		return rt.LevelTrace
	case rt.EventRequestDone:
		if e.Err != nil {
			return slog.LevelWarn
		}
		return rt.LevelTrace
	case rt.EventRefused:
		return slog.LevelDebug
	}
	switch {
	case e.Err != nil:
		return slog.LevelError
	case e.Kind == rt.EventReset:
		return slog.LevelWarn
	case e.Kind == rt.EventLoaded || e.Kind == rt.EventSaved:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// log logs an event.
func (s *Session) log(e rt.Event) {
	ctx, level := context.Background(), levelOf(&e)
	if s.logger.Enabled(ctx, level) {
		s.logger.LogAttrs(ctx, level, e.Kind.String(), s.attributes(e)...)
	}
}

// attributes returns what is to be known of an event beside its kind. The model's
// name and the error have nothing in them that would drive a terminal or hide
// from a reader, whatever the handler makes of them.
func (s *Session) attributes(e rt.Event) []slog.Attr {
	all := []slog.Attr{slog.String("model", e.Model), slog.Int("replica", e.Replica)}
	switch e.Kind {
	case rt.EventOpened:
		all = append(all, slog.Int64("executable_bytes", s.executableBytes), slog.Int64("data_bytes", s.dataBytes))
	case rt.EventBound, rt.EventUnbound, rt.EventHandedOver, rt.EventTookBack, rt.EventReset, rt.EventFailed:
		if d := s.Device(); d != nil {
			info := d.Info()
			all = append(all, slog.String("backend", info.Backend), slog.Int("device", info.ID))
		}
	}
	if e.Request != 0 {
		all = append(all, slog.Uint64("request", e.Request))
	}
	if e.Took != 0 {
		all = append(all, slog.Duration("took", e.Took))
	}
	if e.Samples != 0 {
		all = append(all, slog.Int("samples", e.Samples))
	}
	if e.Err == nil {
		return all
	}
	all = append(all, slog.String("error", printable.String(e.Err.Error())))
	if d := (*ipu.Error)(nil); errors.As(e.Err, &d) && d.Recovery != ipu.RecoveryNone {
		all = append(all, slog.String("recovery", d.Recovery.String()))
	}
	return all
}
