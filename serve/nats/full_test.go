package natsserve

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/oip"
)

// locked is what a worker logs, which a test reads meanwhile.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *locked) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), s)
}

// large20 is a job of 20 KB.
func large20(i int) *Job {
	j := job(i)
	j.Body = append(j.Body, make([]byte, 20<<10)...)
	return j
}

// fill submits jobs until there is no room, and returns how many went in.
func fill(t *testing.T, c *Client, from, most int, why string) int {
	t.Helper()
	for i := from; i < most; i++ {
		err := c.Submit(t.Context(), large20(i))
		if err == nil {
			continue
		}
		var e *oip.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, oip.Exhausted, e.Code)
		require.Contains(t, e.Text, why)
		require.Positive(t, e.RetryAfter)
		return i
	}
	t.Fatalf("%d jobs of 20 KB went in", most)
	return 0
}

func answeredLarge(t *testing.T, c *Client, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a, err := c.Await(ctx, large20(i).ID)
	require.NoError(t, err, i)
	require.Equal(t, sum(large20(i).Body), a.Body, i)
}

// TestStoreFull fills the store of the NATS server with jobs. Whoever submits another one learns of it at once. A worker keeps its answers, and says
// so, since they can not be stored; it computes no job twice. Once the server has room each job is answered once, and others go in.
func TestStoreFull(t *testing.T) {
	b := newBroker(t)
	b.stop()
	b.opts.JetStreamMaxStore = 256 << 10
	b.start(t)
	c := b.client(t, patient)
	n := fill(t, c, 0, 100, "the NATS server has no room for it")
	require.Greater(t, n, 5)
	f, said := &fake{parallel: 2}, new(locked)
	w := newTestWorker(b.connect(t), patient, f)
	w.log = slog.New(slog.NewTextHandler(said, nil))
	work(t, w)
	const warning = "an answer can not be stored, trying again"
	require.Eventually(t, func() bool { return said.count(warning) == 4 }, time.Minute, 10*time.Millisecond, "two answers of each model are held")
	time.Sleep(2 * patient.AckWait)
	require.EqualValues(t, 4, f.started.Load(), "heartbeats keep the jobs")
	require.Equal(t, 4, said.count(warning), "once for each")
	left, _ := state(t, c, "JOBS")
	require.Equal(t, n, left, "no job is lost")
	_, answered := state(t, c, "ANSWERS")
	require.Zero(t, answered)

	b.stop()
	b.opts.JetStreamMaxStore = 64 << 20
	b.start(t)
	for i := range n {
		answeredLarge(t, c, i)
	}
	settled(t, c, n)
	require.NoError(t, c.Submit(t.Context(), large20(n)))
	answeredLarge(t, c, n)
	settled(t, c, n+1)
}

// TestSetAside has room of their own for jobs and for answers: jobs that take all of theirs are answered nevertheless, and the oldest answers go.
func TestSetAside(t *testing.T) {
	b := newBroker(t)
	b.stop()
	b.opts.JetStreamMaxStore = 256 << 10
	b.start(t)
	cfg := quick
	cfg.JobBytes, cfg.AnswerBytes = 150<<10, 4<<10
	c := b.client(t, cfg)
	n := fill(t, c, 0, 100, "the jobs that wait take all the room that they may have: maximum bytes exceeded")
	require.Greater(t, n, 5)
	work(t, newTestWorker(b.connect(t), cfg, &fake{parallel: 2}))
	for i := range n {
		answeredLarge(t, c, i)
	}
	settled(t, c, n)
	const more = 100
	for i := range more {
		require.NoError(t, c.Submit(t.Context(), job(n+i)))
		await(t, c, n+i)
	}
	now, ever := state(t, c, "ANSWERS")
	require.Equal(t, n+more, ever)
	require.Less(t, now, ever, "the oldest go")

	cfg.Prefix, cfg.JobBytes = "other", 1<<20
	_, err := NewClient(t.Context(), b.connect(t), cfg)
	require.ErrorContains(t, err, "stream OTHER_JOBS of the queue")
	require.ErrorContains(t, err, "insufficient storage resources")
}
