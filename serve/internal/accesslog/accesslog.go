// Package accesslog writes a line for requests: who computed what, for how long, and how it ended. No line has what is in a
// tensor, a token or a header.
package accesslog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/oip"
)

// MaxFailures is how many requests that failed are written in a second at most: a flood of mistakes should not become
// a flood of lines. The next line says how many were left out.
const MaxFailures = 100

// Log writes the lines. It is a [core.Observer].
type Log struct {
	to    *slog.Logger
	every uint64 // of requests that succeed
	count atomic.Uint64

	mu       sync.Mutex
	second   int64 // Unix time of the failures that are counted
	failures int
	dropped  int
}

// New returns a log with every so manieth request that succeeded, and all that failed up to MaxFailures.
func New(to *slog.Logger, every int) *Log { return &Log{to: to, every: uint64(max(every, 1))} }

// Begin does nothing.
func (l *Log) Begin(ctx context.Context, _ *core.Version, _ *core.Call) context.Context { return ctx }

// End writes a line if it is this request's turn. It does not allocate otherwise.
func (l *Log) End(ctx context.Context, v *core.Version, c *core.Call, err error) {
	dropped := 0
	if err == nil {
		if l.count.Add(1)%l.every != 0 {
			return
		}
	} else {
		var write bool
		if dropped, write = l.fails(c.Times.Ended); !write {
			return
		}
	}
	l.write(ctx, v, c, err, dropped)
}

// fails counts a failure. It returns whether it is written, and how many were not since the last one.
func (l *Log) fails(now time.Time) (dropped int, write bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := now.Unix(); s != l.second {
		l.second, l.failures = s, 0
	}
	if l.failures++; l.failures > MaxFailures {
		l.dropped++
		return 0, false
	}
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

func (l *Log) write(ctx context.Context, v *core.Version, c *core.Call, err error, dropped int) {
	t := &c.Times
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs, slog.String("protocol", c.Protocol.String()), slog.String("model", v.Spec.Name), slog.String("version", v.Name))
	if len(c.ID) > 0 {
		attrs = append(attrs, slog.String("id", string(c.ID)))
	}
	attrs = append(attrs, slog.Int("samples", c.Samples()), slog.Duration("took", t.Ended.Sub(t.Begun)))
	if !t.Computing.IsZero() {
		attrs = append(attrs, slog.Duration("waited", t.Computing.Sub(t.Queued)))
		if !t.Computed.IsZero() {
			attrs = append(attrs, slog.Duration("computed", t.Computed.Sub(t.Computing)))
		}
	}
	attrs = append(attrs, slog.Int("received", c.Received), slog.Int("sent", c.Sent))
	if l.every > 1 && err == nil {
		attrs = append(attrs, slog.Uint64("of", l.every))
	}
	if err == nil {
		l.to.LogAttrs(ctx, slog.LevelInfo, "request", append(attrs, slog.String("outcome", "OK"))...)
		return
	}
	level := slog.LevelWarn
	code := oip.Internal
	var e *oip.Error
	if errors.As(err, &e) {
		code = e.Code
	}
	attrs = append(attrs, slog.String("outcome", code.String()), slog.String("error", err.Error()))
	if code == oip.Internal {
		level = slog.LevelError
		if e != nil && e.Cause != nil {
			attrs = append(attrs, slog.String("cause", e.Cause.Error()))
		}
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("left_out", dropped))
	}
	l.to.LogAttrs(ctx, level, "request", attrs...)
}
