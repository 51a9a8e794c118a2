package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/popefgen/popefgen/serve/oip"
)

// failed is the answer to a request that failed.
type failed struct {
	Error    string `json:"error"`
	Code     string `json:"code"`               // gRPC's name of it, which says more than the status
	Contract string `json:"contract,omitempty"` // of the server's model, if the client has another one
}

// errBody is the error of a body that could not be read.
var errBody = oip.Errorf(oip.InvalidArgument, "the request's body could not be read: the connection ended, or its length is not as its header says")

// known returns err as clients see it.
func (h *handler) known(err error) *oip.Error {
	var e *oip.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &oip.Error{Code: oip.Deadline, Text: fmt.Sprintf("the request's body came at less than %d bytes a second", h.options.Rate), Cause: os.ErrDeadlineExceeded}
	}
	return &oip.Error{Code: oip.Internal, Text: "the server failed", Cause: err}
}

// fail answers with an error.
func (h *handler) fail(q *request, err error) {
	e := h.known(err)
	status := e.Code.HTTP()
	if e.Code == oip.Deadline && errors.Is(e.Cause, os.ErrDeadlineExceeded) {
		status = http.StatusRequestTimeout // it was not the model that took so long
	}
	h.failStatus(q, e, status)
}

func (h *handler) failStatus(q *request, e *oip.Error, status int) {
	header := q.w.Header()
	switch e.Code {
	case oip.Exhausted:
		header.Set("Retry-After", retryAfter(max(e.RetryAfter, 1)))
	case oip.Unavailable:
		header.Set("Retry-After", retryAfter(max(e.RetryAfter, 1)))
	case oip.Unauthenticated:
		header.Set("WWW-Authenticate", "Bearer")
	case oip.Unsupported:
		header.Set("Accept-Encoding", "gzip, deflate")
	}
	h.leave(q, status)
	text, err := json.Marshal(failed{e.Text, e.Code.String(), e.Contract})
	if err != nil {
		text = []byte(`{"error":"the server failed","code":"INTERNAL"}`)
	}
	h.text(q, status, text)
}

// leave decides what becomes of a body of which some may be unread. net/http reads up to 256 KiB of it, for as long as
// that takes, to keep the connection: that is worth it for a small one that comes now.
func (h *handler) leave(q *request, status int) {
	const small = 64 << 10
	conn, ok := q.w.(interface{ SetReadDeadline(time.Time) error })
	if !ok || q.r.ContentLength == 0 {
		return
	}
	if n := q.r.ContentLength; n > 0 && n <= small && status != http.StatusRequestEntityTooLarge && status != http.StatusRequestTimeout {
		_ = conn.SetReadDeadline(time.Now().Add(time.Second)) // if it fails the connection is gone
		return
	}
	// A body over its limit has net/http end the connection in the way in which the client still sees the answer.
	var one [1]byte
	_, _ = http.MaxBytesReader(q.w, io.NopCloser(strings.NewReader("x")), 0).Read(one[:])
	_ = conn.SetReadDeadline(time.Unix(1, 0)) // nothing more is read
}

// retryAfter returns whole seconds, at least 1.
func retryAfter(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

// text answers with JSON that is there already.
func (h *handler) text(q *request, status int, text []byte) {
	h.reply(q, len(text))
	header := q.w.Header()
	header["Content-Type"] = typeJSON
	header["Content-Length"] = h.lengths.of(len(text))
	header["X-Content-Type-Options"] = noSniff
	q.w.WriteHeader(status)
	_, _ = q.w.Write(text) // the client is gone if it fails
}

// json answers with a value.
func (h *handler) json(q *request, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	h.text(q, http.StatusOK, text)
	return nil
}
