package natsserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// models is what a worker computes with: those of a server.
type models interface {
	// names returns the models that there are now.
	names() []string
	// room returns how many jobs of a model may be computed at the same time, 0 if it takes none now.
	room(model string) int
	// compute has the model compute a job. The error is an *oip.Error, or that of ctx.
	compute(ctx context.Context, j *Job) (Answer, error)
}

// Worker takes jobs from a queue, for all models of a server.
type Worker struct {
	cfg    Config
	nc     *nats.Conn
	models models
	log    *slog.Logger

	mu   sync.Mutex
	hand map[jetstream.Msg]struct{} // what is being computed

	ctx          context.Context // of Serve
	stop         context.CancelFunc
	begun, ended chan struct{}
	err          error // what Serve returned, once ended is closed
}

// look is how often a worker looks for models that came, or that take jobs again.
const look = time.Second

// Run takes and computes jobs until ctx ends. Then it takes no more, goes on with those that it has for at most
// DrainTimeout, gives the others to other workers, and returns. It returns an error if there is no queue to take
// jobs from, or jobs were still being computed at the end; servers and connections that are away for a while are waited for.
func (w *Worker) Run(ctx context.Context) error {
	js, err := jetstream.New(w.nc)
	if err != nil {
		return fmt.Errorf("worker of a queue: %w", err)
	}
	q, err := open(ctx, js, w.cfg)
	if err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := make(chan struct{})
	var beat, all sync.WaitGroup
	beat.Go(func() { w.heartbeat(q.AckWait/3, stop) })

	seen := map[string]bool{}
	for {
		for _, name := range w.models.names() {
			if !seen[name] {
				seen[name] = true
				all.Go(func() { w.serve(ctx, work, q, name) })
			}
		}
		if !sleep(ctx, look) {
			break
		}
	}

	late := time.AfterFunc(q.DrainTimeout, func() { cancel(errLate) })
	all.Wait()
	late.Stop()
	close(stop)
	beat.Wait()
	if err := w.nc.FlushTimeout(5 * time.Second); err != nil {
		return fmt.Errorf("worker of a queue: its last acknowledgements: %w", err)
	}
	if errors.Is(context.Cause(work), errLate) {
		return fmt.Errorf("worker of a queue: %w", errLate)
	}
	return nil
}

var errLate = errors.New("jobs were still being computed when DrainTimeout was over; other workers get them")

// sleep waits, and reports false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// serve takes jobs of one model until ctx ends and waits for them.
func (w *Worker) serve(ctx, work context.Context, q *queue, model string) {
	var jobs sync.WaitGroup
	defer jobs.Wait()
	freed := make(chan struct{}, 1)
	var mu sync.Mutex
	busy := 0
	for trouble := look / 4; ctx.Err() == nil; {
		c, err := q.consumer(ctx, model)
		for err == nil && ctx.Err() == nil {
			mu.Lock()
			free := w.models.room(model) - busy
			mu.Unlock()
			if free <= 0 {
				select {
				case <-freed:
				case <-time.After(look):
				case <-ctx.Done():
				}
				continue
			}
			err = take(ctx, c, free, func(m jetstream.Msg) {
				mu.Lock()
				busy++
				mu.Unlock()
				w.hold(m)
				jobs.Go(func() {
					defer func() {
						w.release(m)
						mu.Lock()
						busy--
						mu.Unlock()
						select {
						case freed <- struct{}{}:
						default:
						}
					}()
					w.do(work, q, model, m)
				})
			})
			if err == nil {
				trouble = look / 4
			}
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("queue: jobs can not be taken, trying again", "model", model, "error", err)
			sleep(ctx, trouble)
			trouble = min(2*trouble, 10*time.Second)
		}
	}
}

// consumer is what the workers of a model share: its durable consumer.
func (q *queue) consumer(ctx context.Context, model string) (jetstream.Consumer, error) {
	return q.jobs.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: token(model), FilterSubject: q.jobSubject(model), AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.AckWait,
		// How often a job is tried is counted here: a job that the server stopped delivering would stay in the
		// stream with nobody to say why.
		MaxDeliver:    -1,
		MaxAckPending: -1,
	})
}

// take calls f with up to n jobs: all that wait, or the first that comes. It returns without one after a while.
func take(ctx context.Context, c jetstream.Consumer, n int, f func(jetstream.Msg)) error {
	got, err := batch(c.FetchNoWait(n))(f)
	if err != nil || got > 0 {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = batch(c.Fetch(1, jetstream.FetchContext(wait), jetstream.FetchHeartbeat(5*time.Second)))(f)
	if wait.Err() != nil {
		return nil
	}
	return err
}

func batch(b jetstream.MessageBatch, err error) func(f func(jetstream.Msg)) (int, error) {
	return func(f func(jetstream.Msg)) (n int, _ error) {
		if err != nil {
			return 0, err
		}
		for m := range b.Messages() {
			n++
			f(m)
		}
		return n, b.Error()
	}
}

func (w *Worker) hold(m jetstream.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hand[m] = struct{}{}
}

func (w *Worker) release(m jetstream.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.hand, m)
}

// heartbeat reports all jobs in hand as in progress, again and again.
func (w *Worker) heartbeat(every time.Duration, stop <-chan struct{}) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		w.mu.Lock()
		for m := range w.hand {
			_ = m.InProgress() // without a connection there is nobody to say it to; the next beat follows
		}
		w.mu.Unlock()
	}
}

// do answers one job.
func (w *Worker) do(ctx context.Context, q *queue, model string, m jetstream.Msg) {
	log := w.log.With("model", model)
	meta, err := m.Metadata()
	if err != nil {
		log.Error("queue: a message that no stream delivered", "error", err)
		return
	}
	tries := meta.NumDelivered
	j, err := parse(model, m.Headers(), m.Data())
	log = log.With("job", j.ID, "delivery", tries)
	if err != nil {
		w.bury(ctx, q, j, m, tries, err, log)
		return
	}
	if tries > 1 { // whoever had it before may have answered
		if _, err := q.answers.GetLastMsgForSubject(ctx, q.answerSubject(j.ID)); err == nil {
			w.ack(m, log)
			return
		}
	}
	if tries > uint64(q.MaxDeliver) {
		w.bury(ctx, q, j, m, tries-1, oip.Errorf(oip.Internal, "no worker answered the job in %d deliveries: they stopped while they computed it, or lost their connection", tries-1), log)
		return
	}
	a, err := w.try(ctx, j)
	var e *oip.Error
	switch {
	case err == nil:
		if err := w.store(ctx, q, q.answerMessage(j.ID, a, nil)); errors.Is(err, nats.ErrMaxPayload) {
			w.bury(ctx, q, j, m, tries, oip.Errorf(oip.TooLarge, "the answer has %d bytes, more than the %d of a message (max_payload of the NATS server)", len(a.Body), w.nc.MaxPayload()), log)
		} else if err != nil {
			log.Warn("queue: the answer can not be stored; the job will be delivered again", "error", err)
		} else {
			w.ack(m, log)
		}
	case errors.As(err, &e) && e.Code == oip.FailedPrecondition: // what its client has to know, and may go on with
		if err := w.store(ctx, q, q.answerMessage(j.ID, a, e)); err != nil {
			log.Warn("queue: the answer can not be stored; the job will be delivered again", "error", err)
			return
		}
		w.ack(m, log)
	case ctx.Err() != nil: // this worker stops
		_ = m.Nak()
	case !errors.As(err, &e) || again(e.Code):
		if tries >= uint64(q.MaxDeliver) {
			w.bury(ctx, q, j, m, tries, err, log)
			return
		}
		log.Warn("queue: a try failed", "error", err)
		_ = m.NakWithDelay(q.RetryDelay << min(tries-1, 10))
	default:
		w.bury(ctx, q, j, m, tries, err, log)
	}
}

// again reports whether another try, or another worker, may do better.
func again(c oip.Code) bool {
	switch c {
	case oip.Internal, oip.NotFound, oip.Unavailable, oip.Exhausted, oip.Canceled:
		return true
	}
	return false
}

// try computes the job. A model whose limit is reached by other requests is waited for.
func (w *Worker) try(ctx context.Context, j *Job) (Answer, error) {
	if !j.Expires.IsZero() {
		var cancel func()
		ctx, cancel = context.WithDeadline(ctx, j.Expires)
		defer cancel()
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if !j.Expires.IsZero() && !time.Now().Before(j.Expires) {
			return Answer{}, oip.Errorf(oip.Deadline, "the job expired at %s", j.Expires.UTC().Format(time.RFC3339Nano))
		}
		a, err := w.models.compute(ctx, j)
		var e *oip.Error
		if !errors.As(err, &e) || e.Code != oip.Exhausted {
			return a, err
		}
		sleep(ctx, wait)
		if ctx.Err() != nil && (j.Expires.IsZero() || time.Now().Before(j.Expires)) {
			return a, err
		}
	}
}

// store publishes a message to a subject that may hold one, and returns nil if it holds one already. It keeps
// trying while the server is away, or has no room, since there is an answer; the log says so once.
func (w *Worker) store(ctx context.Context, q *queue, m *nats.Msg) error {
	said := false
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		_, err := q.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(0))
		var api *jetstream.APIError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
			return nil
		case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrConnectionClosed), ctx.Err() != nil:
			return err
		}
		if !said {
			said = true
			w.log.Warn("queue: an answer can not be stored, trying again", "subject", m.Subject, "error", err)
		}
		if !sleep(ctx, wait) {
			return err
		}
	}
}

// bury puts the job among the dead ones with the reason, stores the error as its answer, and takes it from the queue.
func (w *Worker) bury(ctx context.Context, q *queue, j *Job, m jetstream.Msg, tries uint64, reason error, log *slog.Logger) {
	var e *oip.Error
	if !errors.As(reason, &e) {
		e = &oip.Error{Code: oip.Internal, Text: reason.Error(), Cause: reason}
	}
	line := strings.Join(strings.FieldsFunc(e.Text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	log.Error("queue: a job is dead", "code", e.Code.String(), "reason", line)

	id := j.ID
	if id == "" || len(id) > wire.MaxID { // nobody can ask for its answer
		if meta, err := m.Metadata(); err == nil {
			id = "sequence-" + strconv.FormatUint(meta.Sequence.Stream, 10)
		}
	}
	dead := &nats.Msg{Subject: q.deadSubject(j.Model, id), Data: m.Data(), Header: nats.Header{}}
	for _, h := range []string{HeaderLength, Version, Expires, traceparent, tracestate} {
		if v := m.Headers().Get(h); v != "" {
			dead.Header.Set(h, v)
		}
	}
	if id == j.ID {
		dead.Header.Set(ID, id)
	}
	dead.Header.Set(Code, e.Code.String())
	dead.Header.Set(Reason, line)
	dead.Header.Set(Deliveries, strconv.FormatUint(tries, 10))
	err := w.store(ctx, q, dead)
	if err == nil && id == j.ID {
		err = w.store(ctx, q, q.answerMessage(j.ID, Answer{Traceparent: j.Traceparent}, e))
	}
	if err == nil {
		err = m.TermWithReason(e.Code.String())
	}
	if err != nil {
		log.Warn("queue: what became of a dead job can not be stored; it will be delivered again", "error", err)
	}
}

func (w *Worker) ack(m jetstream.Msg, log *slog.Logger) {
	if err := m.Ack(); err != nil {
		log.Warn("queue: an acknowledgement failed; the job will be delivered again", "error", err)
	}
}
