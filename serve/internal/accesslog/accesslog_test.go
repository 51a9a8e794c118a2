package accesslog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/accesslog"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// marker is an element of the inputs that no log may have, in any way of writing it.
const marker = 1234554321

type line struct {
	Level, Msg, Protocol, Model, Version, ID, Outcome, Error, Cause string
	Samples, Received, Sent, Of                                     int
	Took, Waited, Computed                                          *time.Duration
	LeftOut                                                         int `json:"left_out"`
}

// logged sends n requests and returns what the log has of them.
func logged(t *testing.T, every, n int, model *testmodel.Model) (lines []line) {
	var to bytes.Buffer
	c := core.New()
	c.Observe(accesslog.New(slog.New(slog.NewJSONHandler(&to, nil)), every))
	_, err := c.Add(model)
	require.NoError(t, err)
	for range n {
		v, err := c.Lookup([]byte("simple"), nil)
		require.NoError(t, err)
		call := v.Get()
		require.NoError(t, call.SetID([]byte("7 \"quoted\"\nline")))
		shape := []int64{2, testmodel.Elements}
		for _, name := range []string{"INPUT0", "INPUT1"} {
			i, _, err := call.Input([]byte(name), []byte("INT32"), shape)
			require.NoError(t, err)
			mem, err := call.Memory.Input(i, shape)
			require.NoError(t, err)
			for j := 0; j < len(mem); j += 4 {
				binary.LittleEndian.PutUint32(mem[j:], marker)
			}
		}
		require.NoError(t, call.Done())
		call.Protocol, call.Received, call.Sent = core.GRPC, 300, 200
		_ = v.Run(t.Context(), call)
		v.Put(call)
		v.Release()
	}
	require.NotContains(t, to.String(), "1234554321")
	for text := range strings.Lines(to.String()) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(text), &l), text)
		lines = append(lines, l)
	}
	return lines
}

// TestSuccess: every third request that succeeded, with what it did.
func TestSuccess(t *testing.T) {
	lines := logged(t, 3, 7, testmodel.Simple())
	require.Len(t, lines, 2)
	l := lines[0]
	require.Positive(t, *l.Took)
	require.NotNil(t, l.Waited)
	require.NotNil(t, l.Computed)
	l.Took, l.Waited, l.Computed = nil, nil, nil
	require.Equal(t, line{Level: "INFO", Msg: "request", Protocol: "gRPC", Model: "simple", Version: "1", ID: "7 \"quoted\"\nline", Outcome: "OK", Samples: 2, Received: 300, Sent: 200, Of: 3}, l)
}

// TestFailure: all that fail are written, with the cause of what is the server's fault, but not more than the limit of a second.
func TestFailure(t *testing.T) {
	model := testmodel.Simple()
	model.Before = func(context.Context) error { return errors.New("device 3 burns") }
	lines := logged(t, 1000, 3, model)
	require.Len(t, lines, 3)
	require.Equal(t, "ERROR", lines[0].Level)
	require.Equal(t, "INTERNAL", lines[0].Outcome)
	require.Equal(t, "model 'simple' failed", lines[0].Error)
	require.Equal(t, "device 3 burns", lines[0].Cause)
	model.Before = func(context.Context) error { return oip.Errorf(oip.InvalidArgument, "no such size") }
	lines = logged(t, 1, 1, model)
	require.Equal(t, "WARN", lines[0].Level)
	require.Equal(t, "no such size", lines[0].Error)
}

// TestFlood: of many failures in a second a limited number is written, and the next line says how many were left out.
func TestFlood(t *testing.T) {
	var to bytes.Buffer
	l := accesslog.New(slog.New(slog.NewTextHandler(&to, nil)), 1)
	c := core.New()
	v, err := c.Add(testmodel.Simple())
	require.NoError(t, err)
	call := v.Get()
	end := func(at int64) {
		call.Times.Ended = time.Unix(at, 0)
		l.End(t.Context(), v, call, errors.New("no"))
	}
	for range accesslog.MaxFailures + 50 {
		end(1000)
	}
	require.Equal(t, accesslog.MaxFailures, strings.Count(to.String(), "\n"))
	require.NotContains(t, to.String(), "left_out")
	end(1001)
	end(1001)
	require.Equal(t, 1, strings.Count(to.String(), "left_out=50"))
}

// TestNoAllocation: a request that is not written costs no memory.
func TestNoAllocation(t *testing.T) {
	l := accesslog.New(slog.New(slog.DiscardHandler), 1<<30)
	c := core.New()
	v, err := c.Add(testmodel.Simple())
	require.NoError(t, err)
	call := v.Get()
	require.Zero(t, testing.AllocsPerRun(100, func() { l.End(l.Begin(t.Context(), v, call), v, call, nil) }))
}
