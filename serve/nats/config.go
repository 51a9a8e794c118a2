package natsserve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Config says where jobs are and how they are treated. The zero Config is ready to use. Workers and
// clients of a queue have the same one; streams that exist already are taken as they are.
type Config struct {
	// Prefix begins all subjects, and in capitals the names of the streams; "popefgen" if it is "".
	Prefix string
	// AckWait is how long a worker may be silent before its jobs are given to others; 30 s if it is 0. Workers
	// report three times as often that they are still computing.
	AckWait time.Duration
	// MaxDeliver is how often a job is tried; 5 if it is 0. The next worker that gets it puts it among the dead ones.
	MaxDeliver int
	// RetryDelay is how long a job waits after a try that failed, twice as long after each; 1 s if it is 0.
	RetryDelay time.Duration
	// MaxJobs is how many jobs may wait, 100,000 if it is 0; more are refused.
	MaxJobs int64
	// JobBytes is how many bytes jobs that wait may take; more are refused. AnswerBytes is how many answers may take, and dead jobs: the oldest of them go
	// before their time. The NATS server sets aside what they say, so that neither takes the place of the other. 0: what the server has, together.
	JobBytes, AnswerBytes int64
	// JobAge is how long a job may wait; 24 h if it is 0.
	JobAge time.Duration
	// AnswerAge is how long answers and dead jobs are kept; 24 h if it is 0. A job that is submitted again in that time is
	// not answered again.
	AnswerAge time.Duration
	// DrainTimeout is how long a worker that stops goes on with the jobs that it has; 30 s if it is 0.
	DrainTimeout time.Duration
	// Replicas is how many servers of a NATS cluster keep a copy; 1 if it is 0.
	Replicas int
	// Memory keeps the streams in memory instead of files: they end with the NATS server.
	Memory bool
}

// duplicates is how long the stream of jobs knows the id of a job that it had.
const duplicates = 2 * time.Minute

func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		name string
		v    *time.Duration
		or   time.Duration
	}{
		{"AckWait", &c.AckWait, 30 * time.Second}, {"RetryDelay", &c.RetryDelay, time.Second}, {"JobAge", &c.JobAge, 24 * time.Hour},
		{"AnswerAge", &c.AnswerAge, 24 * time.Hour}, {"DrainTimeout", &c.DrainTimeout, 30 * time.Second},
	} {
		if *d.v < 0 {
			return c, fmt.Errorf("configuration of a queue: %s is %v, expected 0 or more", d.name, *d.v)
		}
		if *d.v == 0 {
			*d.v = d.or
		}
	}
	if c.Prefix == "" {
		c.Prefix = "popefgen"
	}
	if token(c.Prefix) != c.Prefix {
		return c, fmt.Errorf("configuration of a queue: the prefix %q may have letters, digits, _ and - only", c.Prefix)
	}
	if c.MaxDeliver < 0 || c.MaxJobs < 0 || c.JobBytes < 0 || c.AnswerBytes < 0 || c.Replicas < 0 {
		return c, fmt.Errorf("configuration of a queue: MaxDeliver %d, MaxJobs %d, JobBytes %d, AnswerBytes %d and Replicas %d may not be negative", c.MaxDeliver, c.MaxJobs, c.JobBytes, c.AnswerBytes, c.Replicas)
	}
	if c.MaxDeliver == 0 {
		c.MaxDeliver = 5
	}
	if c.MaxJobs == 0 {
		c.MaxJobs = 100_000
	}
	c.Replicas = max(c.Replicas, 1)
	return c, nil
}

// queue is the three streams.
type queue struct {
	Config
	js      jetstream.JetStream
	jobs    jetstream.Stream
	answers jetstream.Stream
}

// open finds the streams of a configuration, and makes those that do not exist.
func open(ctx context.Context, js jetstream.JetStream, c Config) (*queue, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	q := &queue{Config: c, js: js}
	storage := jetstream.FileStorage
	if c.Memory {
		storage = jetstream.MemoryStorage
	}
	q.jobs, err = q.stream(ctx, jetstream.StreamConfig{
		Name: stream(c.Prefix, "JOBS"), Description: "requests to models, by package natsserve of popefgen", Subjects: []string{c.Prefix + ".jobs.*"},
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxMsgs: c.MaxJobs, MaxBytes: unlimited(c.JobBytes), MaxAge: c.JobAge,
		Duplicates: min(duplicates, c.JobAge), Storage: storage, Replicas: c.Replicas,
	})
	if err != nil {
		return nil, err
	}
	if got := q.jobs.CachedInfo().Config.Retention; got != jetstream.WorkQueuePolicy {
		return nil, fmt.Errorf("stream %s exists with the retention %v, expected a work queue; give the configuration another Prefix, or delete the stream", stream(c.Prefix, "JOBS"), got)
	}
	q.answers, err = q.stream(ctx, jetstream.StreamConfig{
		Name: stream(c.Prefix, "ANSWERS"), Description: "what models answered, one message for each job", Subjects: []string{c.Prefix + ".answers.*"},
		MaxMsgsPerSubject: 1, MaxBytes: unlimited(c.AnswerBytes), MaxAge: c.AnswerAge, AllowDirect: true, Storage: storage, Replicas: c.Replicas,
	})
	if err != nil {
		return nil, err
	}
	_, err = q.stream(ctx, jetstream.StreamConfig{
		Name: stream(c.Prefix, "DEAD"), Description: "jobs that could not be answered, with the reason", Subjects: []string{c.Prefix + ".dead.*.*"},
		MaxMsgsPerSubject: 1, MaxBytes: unlimited(c.AnswerBytes), MaxAge: c.AnswerAge, AllowDirect: true, Storage: storage, Replicas: c.Replicas,
	})
	if err != nil {
		return nil, err
	}
	return q, nil
}

// unlimited returns a limit as streams have it.
func unlimited(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}

func (q *queue) stream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := q.js.Stream(ctx, c.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = q.js.CreateStream(ctx, c)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody else was first, with other settings
			s, err = q.js.Stream(ctx, c.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s of the queue: %w", c.Name, err)
	}
	return s, nil
}
