package natsserve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/oip"
)

// victim, in the environment, makes this test binary a worker of the NATS server at that address.
const victim = "POPEFGEN_TEST_WORKER"

// begins is where workers say, with their process, that they begin to compute a job.
const begins = "test.begins"

func TestMain(m *testing.M) {
	if at := os.Getenv(victim); at != "" {
		nc, err := nats.Connect(at, nats.MaxReconnects(-1))
		if err == nil {
			begun := func(*Job, int64) error { return nc.Publish(begins, strconv.AppendInt(nil, int64(os.Getpid()), 10)) }
			err = newTestWorker(nc, quick, &fake{takes: 20 * time.Millisecond, parallel: 4, err: begun}).Run(context.Background())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// quick is a queue that does not wait long for anybody.
var quick = Config{AckWait: 500 * time.Millisecond, MaxDeliver: 10, RetryDelay: 10 * time.Millisecond, DrainTimeout: 5 * time.Second}

// patient is a queue whose workers may have no processor for a while and keep their jobs nevertheless.
var patient = func() Config {
	c := quick
	c.AckWait = 2 * time.Second
	return c
}()

// fake computes the hash of a body.
type fake struct {
	takes    time.Duration
	parallel int
	started  atomic.Int64
	err      func(j *Job, n int64) error // nil or the error of a job, n of that worker
}

func (f *fake) names() []string { return []string{"sum", "other.model"} }
func (f *fake) room(string) int { return f.parallel }
func (f *fake) compute(ctx context.Context, j *Job) (Answer, error) {
	n := f.started.Add(1)
	if f.err != nil {
		if err := f.err(j, n); err != nil {
			return Answer{}, err
		}
	}
	select {
	case <-time.After(f.takes):
		return Answer{Body: sum(j.Body), Header: 3}, nil
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

func sum(b []byte) []byte {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum(nil)
}

func newTestWorker(nc *nats.Conn, c Config, m models) *Worker {
	return &Worker{cfg: c, nc: nc, models: m, log: slog.New(slog.NewTextHandler(io.Discard, nil)), hand: map[jetstream.Msg]struct{}{}}
}

// broker is a NATS server in this process that can be restarted.
type broker struct {
	opts server.Options
	s    *server.Server
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{opts: server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	b.start(t)
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start(t *testing.T) {
	t.Helper()
	o := b.opts
	s, err := server.NewServer(&o)
	require.NoError(t, err)
	go s.Start()
	require.True(t, s.ReadyForConnections(10*time.Second))
	b.s = s
	u, err := url.Parse(s.ClientURL())
	require.NoError(t, err)
	b.opts.Port, err = strconv.Atoi(u.Port())
	require.NoError(t, err)
}

func (b *broker) stop() {
	b.s.Shutdown()
	b.s.WaitForShutdown()
}

func (b *broker) connect(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(b.s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func (b *broker) client(t *testing.T, c Config) *Client {
	t.Helper()
	cl, err := NewClient(t.Context(), b.connect(t), c)
	require.NoError(t, err)
	return cl
}

// work runs a worker until the test ends, or stop is called, which returns what Run did.
func work(t *testing.T, w *Worker) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return stop
}

func job(i int) *Job {
	body := binary.BigEndian.AppendUint64([]byte("job "), uint64(i))
	return &Job{ID: fmt.Sprintf("job.%d *>", i), Model: []string{"sum", "other.model"}[i%2], Body: body, Header: 4}
}

func await(t *testing.T, c *Client, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a, err := c.Await(ctx, job(i).ID)
	require.NoError(t, err, i)
	require.Equal(t, Answer{Body: sum(job(i).Body), Header: 3}, a, i)
}

// state is how many messages a stream has, and how many it ever had.
func state(t *testing.T, c *Client, which string) (now, ever int) {
	t.Helper()
	s, err := c.js.Stream(t.Context(), stream(c.Prefix, which))
	require.NoError(t, err)
	i, err := s.Info(t.Context())
	require.NoError(t, err)
	return int(i.State.Msgs), int(i.State.LastSeq)
}

// settled fails unless n jobs were answered once each, and none is left or dead.
func settled(t *testing.T, c *Client, n int) {
	t.Helper()
	require.Eventually(t, func() bool { left, _ := state(t, c, "JOBS"); return left == 0 }, time.Minute, 20*time.Millisecond, "jobs are left in the queue")
	now, ever := state(t, c, "ANSWERS")
	require.Equal(t, [2]int{n, n}, [2]int{now, ever}, "answers now, and ever")
	_, dead := state(t, c, "DEAD")
	require.Zero(t, dead)
}

// TestKilledWorkers kills one of two workers 20 times while they compute.
func TestKilledWorkers(t *testing.T) {
	const kills, jobs = 20, 1000
	b := newBroker(t)
	c := b.client(t, quick)
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victim+"="+b.s.ClientURL())
		require.NoError(t, cmd.Start())
		return cmd
	}
	computing, err := c.nc.SubscribeSync(begins)
	require.NoError(t, err)
	workers := []*exec.Cmd{start(), start()}
	defer func() {
		for _, w := range workers {
			_ = w.Process.Kill()
			_ = w.Wait()
		}
	}()
	sent := make(chan error, 1)
	go func() {
		for i := range jobs {
			if err := c.Submit(t.Context(), job(i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for k := range kills {
		w := workers[k%2]
		for m := ""; m != strconv.Itoa(w.Process.Pid); {
			msg, err := computing.NextMsg(time.Minute)
			require.NoError(t, err, "kill %d: the worker is to be computing", k)
			m = string(msg.Data)
		}
		time.Sleep(time.Duration(k) * time.Millisecond) // of the 20 that a job takes
		require.NoError(t, w.Process.Kill())
		require.Error(t, w.Wait())
		workers[k%2] = start()
	}
	require.NoError(t, <-sent)
	for i := range jobs {
		await(t, c, i)
	}
	settled(t, c, jobs)
	again := 0
	for _, m := range (&fake{}).names() {
		k, err := c.jobs.Consumer(t.Context(), token(m))
		require.NoError(t, err)
		again += int(k.CachedInfo().Delivered.Consumer) - jobs/2
	}
	require.GreaterOrEqual(t, again, kills, "jobs were to be delivered again")
	t.Logf("%d jobs answered once, %d deliveries more than that", jobs, again)
}

// TestServerRestarts stops the NATS server three times while jobs are computed.
func TestServerRestarts(t *testing.T) {
	const jobs = 120
	b := newBroker(t)
	c := b.client(t, quick)
	stop := work(t, newTestWorker(b.connect(t), quick, &fake{takes: 20 * time.Millisecond, parallel: 2}))
	for i := range jobs {
		require.NoError(t, c.Submit(t.Context(), job(i)))
	}
	for range 3 {
		time.Sleep(150 * time.Millisecond)
		b.stop()
		time.Sleep(100 * time.Millisecond)
		b.start(t)
	}
	for i := range jobs {
		await(t, c, i)
	}
	settled(t, c, jobs)
	require.NoError(t, stop())
}

// TestDuplicates submits jobs again: at once, once they are answered, and after the queue forgot their ids.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	cfg := quick
	cfg.JobAge = 2 * time.Second // and so the time for which ids are known
	c := b.client(t, cfg)
	f := &fake{parallel: 2}
	for range 3 {
		require.NoError(t, c.Submit(t.Context(), job(0)))
	}
	work(t, newTestWorker(b.connect(t), cfg, f))
	await(t, c, 0)
	require.NoError(t, c.Submit(t.Context(), job(0)))
	settled(t, c, 1)
	require.EqualValues(t, 1, f.started.Load())

	time.Sleep(cfg.JobAge * 5 / 4)
	require.NoError(t, c.Submit(t.Context(), job(0)))
	await(t, c, 0)
	settled(t, c, 1)
	_, ever := state(t, c, "JOBS")
	require.Equal(t, 2, ever, "the job was to come a second time")
}

// TestAnsweredBefore has a worker die between the answer and the acknowledgement: nothing is computed again.
func TestAnsweredBefore(t *testing.T) {
	b := newBroker(t)
	c := b.client(t, quick)
	require.NoError(t, c.Submit(t.Context(), job(0)))
	k, err := c.consumer(t.Context(), "sum")
	require.NoError(t, err)
	m, err := k.Next()
	require.NoError(t, err)
	w := newTestWorker(b.connect(t), quick, &fake{})
	require.NoError(t, w.store(t.Context(), c.queue, c.answerMessage(job(0).ID, Answer{Body: sum(job(0).Body), Header: 3}, nil)))
	_ = m // not acknowledged

	f := &fake{parallel: 1}
	work(t, newTestWorker(b.connect(t), quick, f))
	settled(t, c, 1)
	await(t, c, 0)
	require.Zero(t, f.started.Load())
}

// TestLongJob takes longer than a worker may be silent: heartbeats keep the job.
func TestLongJob(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c := b.client(t, patient)
	f := &fake{takes: 2 * patient.AckWait, parallel: 1}
	work(t, newTestWorker(b.connect(t), patient, f))
	work(t, newTestWorker(b.connect(t), patient, f))
	require.NoError(t, c.Submit(t.Context(), job(0)))
	await(t, c, 0)
	settled(t, c, 1)
	require.EqualValues(t, 1, f.started.Load())
}

// TestDead has jobs that can't be answered. Each is among the dead ones with its reason, once, and whoever awaits it gets that.
func TestDead(t *testing.T) {
	for _, c := range []struct {
		name       string
		change     func(m *nats.Msg)
		err        error
		tries      int64 // to compute
		deliveries string
		code       oip.Code
		reason     string
		anonymous  bool // nobody can ask for it
	}{
		{"refused", nil, oip.Errorf(oip.InvalidArgument, "input 'x'\nis missing"), 1, "1", oip.InvalidArgument, "input 'x'; is missing", false},
		{"fails each time", nil, oip.Errorf(oip.Internal, "device lost"), 3, "3", oip.Internal, "device lost", false},
		{"fails in another way", nil, errors.New("no such thing"), 3, "3", oip.Internal, "no such thing", false},
		{"unknown version", nil, oip.Errorf(oip.NotFound, "version 7 is not found"), 3, "3", oip.NotFound, "version 7 is not found", false},
		{"header length", func(m *nats.Msg) { m.Header.Set(HeaderLength, "99") }, nil, 0, "1", oip.InvalidArgument, `header Inference-Header-Content-Length is "99", expected 0 to the 12 bytes of the job`, false},
		{"expires", func(m *nats.Msg) { m.Header.Set(Expires, "soon") }, nil, 0, "1", oip.InvalidArgument, `header Popefgen-Expires is "soon", expected a time such as`, false},
		{"expired", func(m *nats.Msg) { m.Header.Set(Expires, "2020-01-02T03:04:05.6Z") }, nil, 0, "1", oip.Deadline, "the job expired at 2020-01-02T03:04:05.6Z", false},
		{"no id", func(m *nats.Msg) { m.Header.Del(jetstream.MsgIDHeader) }, nil, 0, "1", oip.InvalidArgument, "has an id (header Nats-Msg-Id) of 0 bytes, expected 1 to 256", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			cfg := quick
			cfg.MaxDeliver = 3
			cl := b.client(t, cfg)
			f := &fake{parallel: 1, err: func(*Job, int64) error { return c.err }}
			work(t, newTestWorker(b.connect(t), cfg, f))
			m, err := cl.message(job(0))
			require.NoError(t, err)
			if c.change != nil {
				c.change(m)
			}
			_, err = cl.js.PublishMsg(t.Context(), m)
			require.NoError(t, err)
			require.Eventually(t, func() bool { left, ever := state(t, cl, "JOBS"); return left == 0 && ever == 1 }, time.Minute, 10*time.Millisecond)

			s, err := cl.js.Stream(t.Context(), "POPEFGEN_DEAD")
			require.NoError(t, err)
			dead, err := s.GetMsg(t.Context(), 1)
			require.NoError(t, err)
			require.Equal(t, job(0).Body, dead.Data)
			require.Equal(t, c.code.String(), dead.Header.Get(Code))
			require.Contains(t, dead.Header.Get(Reason), c.reason)
			require.Equal(t, c.deliveries, dead.Header.Get(Deliveries))
			require.Equal(t, c.tries, f.started.Load())
			_, ever := state(t, cl, "DEAD")
			require.Equal(t, 1, ever)
			if c.anonymous {
				return
			}
			require.Equal(t, job(0).ID, dead.Header.Get(ID))
			_, err = cl.Await(t.Context(), job(0).ID)
			var e *oip.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.code.String(), e.Code.String())
			_, ever = state(t, cl, "ANSWERS")
			require.Equal(t, 1, ever)
		})
	}
}

// TestPoison has a job that no worker survives: it is tried MaxDeliver times, and the next worker says so.
func TestPoison(t *testing.T) {
	b := newBroker(t)
	cfg := quick
	cfg.AckWait, cfg.MaxDeliver = 50*time.Millisecond, 3
	c := b.client(t, cfg)
	require.NoError(t, c.Submit(t.Context(), job(0)))
	k, err := c.consumer(t.Context(), "sum")
	require.NoError(t, err)
	for range cfg.MaxDeliver {
		_, err := k.Next()
		require.NoError(t, err)
	}
	f := &fake{parallel: 1}
	work(t, newTestWorker(b.connect(t), cfg, f))
	_, err = c.Await(t.Context(), job(0).ID)
	require.ErrorContains(t, err, "no worker answered the job in 3 deliveries")
	require.Zero(t, f.started.Load())
	_, ever := state(t, c, "DEAD")
	require.Equal(t, 1, ever)
}

// TestBusyModel has a model whose limit other requests reach: that costs a job time, and no delivery.
func TestBusyModel(t *testing.T) {
	b := newBroker(t)
	cfg := quick
	cfg.MaxDeliver = 1
	c := b.client(t, cfg)
	f := &fake{parallel: 1, err: func(_ *Job, n int64) error {
		if n < 5 {
			return oip.Errorf(oip.Exhausted, "full")
		}
		return nil
	}}
	work(t, newTestWorker(b.connect(t), cfg, f))
	require.NoError(t, c.Submit(t.Context(), job(0)))
	await(t, c, 0)
	settled(t, c, 1)
}

// TestDrain stops a worker with jobs in hand: it answers them, takes no other, and another worker answers the rest.
// Neither leaves a goroutine.
func TestDrain(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c := b.client(t, patient)
	const jobs = 12
	for i := range jobs {
		require.NoError(t, c.Submit(t.Context(), job(2*i)))
	}
	ncs := []*nats.Conn{b.connect(t), b.connect(t)}
	f := &fake{takes: 2 * time.Second, parallel: 4}
	stop := work(t, newTestWorker(ncs[0], patient, f))
	require.Eventually(t, func() bool { return f.started.Load() == 4 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, stop())
	require.Eventually(t, func() bool { left, _ := state(t, c, "JOBS"); return left == jobs-4 }, time.Minute, 10*time.Millisecond)
	_, answered := state(t, c, "ANSWERS")
	require.Equal(t, 4, answered)

	stop = work(t, newTestWorker(ncs[1], patient, &fake{parallel: 4}))
	for i := range jobs {
		await(t, c, 2*i)
	}
	settled(t, c, jobs)
	require.NoError(t, stop())
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		// One subscription stays with a connection: the inbox of its requests.
		return !bytes.Contains(stacks, []byte("natsserve.(*Worker)")) && !bytes.Contains(stacks, []byte("jetstream.(*pullConsumer)")) &&
			ncs[0].NumSubscriptions() <= 1 && ncs[1].NumSubscriptions() <= 1
	}, time.Minute, 20*time.Millisecond, "a worker that stopped left goroutines or subscriptions")
}

// TestDrainEnds has jobs that take too long for a worker that stops: others get them at once.
func TestDrainEnds(t *testing.T) {
	b := newBroker(t)
	cfg := quick
	cfg.AckWait, cfg.DrainTimeout = time.Minute, 100*time.Millisecond
	c := b.client(t, cfg)
	require.NoError(t, c.Submit(t.Context(), job(0)))
	f := &fake{takes: time.Hour, parallel: 1}
	stop := work(t, newTestWorker(b.connect(t), cfg, f))
	require.Eventually(t, func() bool { return f.started.Load() == 1 }, time.Minute, 5*time.Millisecond)
	require.ErrorContains(t, stop(), "still being computed")
	work(t, newTestWorker(b.connect(t), cfg, &fake{parallel: 1}))
	await(t, c, 0)
	settled(t, c, 1)
}

// TestFull submits to a queue that has all the jobs it may have, and a job that is no message.
func TestFull(t *testing.T) {
	b := newBroker(t)
	cfg := quick
	cfg.MaxJobs = 2
	c := b.client(t, cfg)
	var e *oip.Error
	for i := range 2 {
		require.NoError(t, c.Submit(t.Context(), job(i)))
	}
	require.ErrorAs(t, c.Submit(t.Context(), job(2)), &e)
	require.Equal(t, oip.Exhausted, e.Code)

	for _, j := range []Job{{Model: "m"}, {ID: "i"}, {ID: "i", Model: "m", Header: 1}, {ID: "i", Model: "m", Header: -2}, {ID: "a\nb", Model: "m"}, {ID: "i", Model: "m", Version: "1\r\nNats-X: y"}} {
		require.ErrorAs(t, c.Submit(t.Context(), &j), &e)
		require.Equal(t, oip.InvalidArgument, e.Code)
	}
	require.ErrorAs(t, c.Submit(t.Context(), &Job{ID: "i", Model: "m", Body: make([]byte, 2<<20)}), &e)
	require.Equal(t, oip.TooLarge, e.Code)
}

// TestLargeAnswer has a model answer more than a message may have.
func TestLargeAnswer(t *testing.T) {
	b := newBroker(t)
	c := b.client(t, quick)
	work(t, newTestWorker(b.connect(t), quick, &large{}))
	require.NoError(t, c.Submit(t.Context(), job(0)))
	var e *oip.Error
	_, err := c.Await(t.Context(), job(0).ID)
	require.ErrorAs(t, err, &e)
	require.ErrorContains(t, err, "the answer has 2097152 bytes, more than the 1048576 of a message")
}

type large struct{ fake }

func (*large) room(string) int { return 1 }
func (*large) compute(context.Context, *Job) (Answer, error) {
	return Answer{Body: make([]byte, 2<<20), Header: -1}, nil
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{AckWait: -1}, {Prefix: "a.b"}, {MaxDeliver: -1}} {
		_, err := c.withDefaults()
		require.Error(t, err)
	}
	b := newBroker(t)
	js, err := jetstream.New(b.connect(t))
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "POPEFGEN_JOBS", Subjects: []string{"popefgen.jobs.*"}})
	require.NoError(t, err)
	_, err = NewClient(t.Context(), b.connect(t), Config{})
	require.ErrorContains(t, err, "expected a work queue")
}

// TestTokens keeps names apart that differ, whatever is in them.
func TestTokens(t *testing.T) {
	for s, want := range map[string]string{"a-b_C9": "a-b_C9", "a.b": "a%2Eb", "*": "%2A", ">": "%3E", "a b": "a%20b", "%2E": "%252E", "ü": "%C3%BC"} {
		require.Equal(t, want, token(s))
	}
}
