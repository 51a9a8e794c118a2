package natsserve

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// Headers of the messages of a queue. A job has its id in Nats-Msg-Id.
const (
	// HeaderLength is how many bytes of the body are JSON, before those of binary tensors, as REST's header of that name says. A
	// message without it is JSON as a whole.
	HeaderLength = "Inference-Header-Content-Length"
	// Version is the version of the model; without it the latest one answers.
	Version = "Popefgen-Version"
	// Expires is the time, as RFC 3339 with nanoseconds, after which nobody wants the answer.
	Expires = "Popefgen-Expires"
	// Code is the kind of failure, such as INVALID_ARGUMENT, of an answer that is an error, and of a dead job.
	Code = "Popefgen-Code"
	// ID is the id of a dead job. It is not Nats-Msg-Id there, which the stream would take as its own.
	ID = "Popefgen-Id"
	// Reason says why a job is dead.
	Reason = "Popefgen-Reason"
	// Deliveries is how often a dead job was given to workers.
	Deliveries = "Popefgen-Deliveries"
)

// Job is a request to a model.
type Job struct {
	// ID names the job, with at most 256 bytes: a second job with the same id is the same job, however often
	// it is submitted.
	ID      string
	Model   string
	Version string // of the model; "" is the latest
	Body    []byte // a request as REST takes it
	// Header is how many bytes of Body are JSON, before those of binary tensors; -1: all of them.
	Header int
	// Expires is when nobody wants the answer any more; zero: never.
	Expires time.Time
	// Traceparent and Tracestate are the headers of W3C Trace Context, which the message has under these names in small letters: spans
	// of the server that computes the job belong to that trace. They may be "".
	Traceparent, Tracestate string
}

// Answer is what a model answered.
type Answer struct {
	Body   []byte // as REST answers
	Header int    // how many bytes of Body are JSON, before those of binary tensors; -1: all of them
	// Traceparent is the span that computed the job if the server made one, else that of the job; "" if there is none.
	Traceparent string
}

// headers of W3C Trace Context.
const (
	traceparent = "traceparent"
	tracestate  = "tracestate"
	// mostTrace is how many bytes they may have; longer ones are nobody's.
	mostTrace = 512
)

// traceHeader returns a header of W3C Trace Context, which libraries of HTTP write with a capital letter.
func traceHeader(h nats.Header, name string) string {
	v := h.Get(name)
	if v == "" {
		v = h.Get("T" + name[1:])
	}
	if len(v) > mostTrace {
		return ""
	}
	return v
}

// token writes s as one token of a subject, and of the name of a consumer: bytes other than letters, digits, _ and - are %XX.
func token(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func stream(prefix, which string) string { return strings.ToUpper(prefix) + "_" + which }

func (c *Config) jobSubject(model string) string { return c.Prefix + ".jobs." + token(model) }
func (c *Config) answerSubject(id string) string { return c.Prefix + ".answers." + token(id) }
func (c *Config) deadSubject(m, id string) string {
	return c.Prefix + ".dead." + token(m) + "." + token(id)
}

// message returns the job as a message of the stream.
func (c *Config) message(j *Job) (*nats.Msg, error) {
	switch {
	case j.ID == "" || len(j.ID) > wire.MaxID:
		return nil, oip.Errorf(oip.InvalidArgument, "submit a job: its id has %d bytes, expected 1 to %d", len(j.ID), wire.MaxID)
	case j.Model == "":
		return nil, oip.Errorf(oip.InvalidArgument, "submit job %q: it names no model", j.ID)
	case j.Header > len(j.Body) || j.Header < -1:
		return nil, oip.Errorf(oip.InvalidArgument, "submit job %q: its header has %d bytes and its body %d", j.ID, j.Header, len(j.Body))
	}
	if strings.ContainsAny(j.ID+j.Version+j.Traceparent+j.Tracestate, "\r\n") {
		return nil, oip.Errorf(oip.InvalidArgument, "submit job %q: an id, version or header of a trace may not contain line breaks", j.ID)
	}
	m := &nats.Msg{Subject: c.jobSubject(j.Model), Data: j.Body, Header: nats.Header{jetstream.MsgIDHeader: {j.ID}}}
	if j.Header >= 0 {
		m.Header.Set(HeaderLength, strconv.Itoa(j.Header))
	}
	if j.Version != "" {
		m.Header.Set(Version, j.Version)
	}
	if !j.Expires.IsZero() {
		m.Header.Set(Expires, j.Expires.UTC().Format(time.RFC3339Nano))
	}
	if j.Traceparent != "" {
		m.Header.Set(traceparent, j.Traceparent)
		if j.Tracestate != "" {
			m.Header.Set(tracestate, j.Tracestate)
		}
	}
	return m, nil
}

// parse returns the job that a message says. The job has its id and model even if the rest is wrong.
func parse(model string, h nats.Header, body []byte) (*Job, error) {
	j := &Job{ID: h.Get(jetstream.MsgIDHeader), Model: model, Version: h.Get(Version), Body: body, Header: -1,
		Traceparent: traceHeader(h, traceparent), Tracestate: traceHeader(h, tracestate)}
	if j.ID == "" || len(j.ID) > wire.MaxID {
		return j, oip.Errorf(oip.InvalidArgument, "job for model '%s' has an id (header %s) of %d bytes, expected 1 to %d", model, jetstream.MsgIDHeader, len(j.ID), wire.MaxID)
	}
	if s := h.Get(HeaderLength); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > len(body) {
			return j, oip.Errorf(oip.InvalidArgument, "header %s is %.32q, expected 0 to the %d bytes of the job", HeaderLength, s, len(body))
		}
		j.Header = n
	}
	if s := h.Get(Expires); s != "" {
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return j, oip.Errorf(oip.InvalidArgument, "header %s is %.64q, expected a time such as %s", Expires, s, time.RFC3339Nano)
		}
		j.Expires = t
	}
	return j, nil
}

// answerMessage is the message that stores the answer of a job, or the error that it got.
func (c *Config) answerMessage(id string, a Answer, e *oip.Error) *nats.Msg {
	m := &nats.Msg{Subject: c.answerSubject(id), Header: nats.Header{}}
	if a.Traceparent != "" {
		m.Header.Set(traceparent, a.Traceparent)
	}
	if e == nil {
		m.Data = a.Body
		if a.Header >= 0 {
			m.Header.Set(HeaderLength, strconv.Itoa(a.Header))
		}
		return m
	}
	m.Header.Set(Code, e.Code.String())
	m.Data, _ = json.Marshal(failure{e.Text, e.Code.String(), e.Contract}) // strings: it does not fail
	return m
}

// failure is how REST answers too.
type failure struct {
	Error    string `json:"error"`
	Code     string `json:"code"`
	Contract string `json:"contract,omitempty"`
}

// answer returns what a stored message says: the answer, or the *oip.Error that the job got.
func answer(h nats.Header, body []byte) (Answer, error) {
	if name := h.Get(Code); name != "" {
		var f failure
		if err := json.Unmarshal(body, &f); err != nil {
			return Answer{}, fmt.Errorf("stored answer with the code %.32q: %w", name, err)
		}
		return Answer{Traceparent: traceHeader(h, traceparent)}, &oip.Error{Code: code(name), Text: f.Error, Contract: f.Contract}
	}
	a := Answer{Body: body, Header: -1, Traceparent: traceHeader(h, traceparent)}
	if s := h.Get(HeaderLength); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > len(body) {
			return Answer{}, fmt.Errorf("stored answer of %d bytes: header %s is %.32q", len(body), HeaderLength, s)
		}
		a.Header = n
	}
	return a, nil
}

// code returns the code of that name, Internal for one that is not known.
func code(name string) oip.Code {
	for c := oip.Internal; c <= oip.Unsupported; c++ {
		if c.String() == name {
			return c
		}
	}
	return oip.Internal
}
