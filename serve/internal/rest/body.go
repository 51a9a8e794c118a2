package rest

import (
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/popefgen/popefgen/serve/oip"
)

// paced is the body of a request that has to come at a rate. A deadline on the connection moves along with what came, now and then.
type paced struct {
	body     io.ReadCloser
	conn     interface{ SetReadDeadline(time.Time) error } // nil: a transport without deadlines
	begun    time.Time
	grace    time.Duration
	rate     int64
	received int64
	until    int64 // how much may be received before the deadline moves
}

// hurry gives the body of a request, which may be to no model at all, the grace in which it has to come. Only the end of one that was read whole ends
// it: what a failed request left of its body is read by net/http, which would wait for it without end.
func (h *handler) hurry(q *request) {
	if conn, ok := q.w.(interface{ SetReadDeadline(time.Time) error }); ok && q.r.ContentLength != 0 {
		_ = conn.SetReadDeadline(time.Now().Add(h.options.Grace)) // if it fails the connection is gone
	}
}

// begin makes p the body of q, which had to hurry so far.
func (p *paced) begin(q *request, o *Options) {
	*p = paced{body: q.r.Body, grace: o.Grace, rate: o.Rate, until: step(o.Rate, o.Grace), begun: time.Now()}
	if q.r.ContentLength != 0 {
		p.conn, _ = q.w.(interface{ SetReadDeadline(time.Time) error })
	}
}

// step is after how many bytes the deadline moves: a client that is fast enough never meets it.
func step(rate int64, grace time.Duration) int64 { return int64(float64(rate) * grace.Seconds() / 2) }

func (p *paced) move() {
	allowed := p.grace + time.Duration(float64(p.received)/float64(p.rate)*float64(time.Second))
	_ = p.conn.SetReadDeadline(p.begun.Add(allowed)) // if it fails the connection is gone
	p.until = p.received + step(p.rate, p.grace)
}

// Read reads from the body.
func (p *paced) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	p.received += int64(n)
	if err != nil {
		if err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded) {
			err = &oip.Error{Code: errBody.Code, Text: errBody.Text, Cause: err}
		}
	} else if p.conn != nil && p.received >= p.until {
		p.move()
	}
	return n, err
}

// end closes a body that was read whole, so that net/http need not look for its end. The deadline is over with it: net/http takes it away as it begins
// to look whether the client is still there, and that of a stream of HTTP/2 is for its body alone. What follows a body's compressed data has to come
// before the deadline too: that it did not is an error.
func (p *paced) end() error {
	err := p.body.Close()
	p.body = nil
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return &oip.Error{Code: errBody.Code, Text: errBody.Text, Cause: err}
	}
	return err
}

// inflated is a body without its encoding.
type inflated struct {
	encoding string
	zip      *gzip.Reader
	zlib     io.ReadCloser
	from     io.Reader
}

// begin makes x the body that from has in that encoding.
func (x *inflated) begin(from io.Reader, encoding string) error {
	x.encoding, x.from = encoding, from
	var err error
	switch encoding {
	case "gzip":
		if x.zip == nil {
			x.zip, err = gzip.NewReader(from)
		} else {
			err = x.zip.Reset(from)
		}
	case "deflate":
		if x.zlib == nil {
			x.zlib, err = zlib.NewReader(from)
		} else {
			err = x.zlib.(zlib.Resetter).Reset(from, nil)
		}
	}
	if err != nil && encoding == "gzip" {
		x.zip = nil
	}
	return x.error(err)
}

// Read reads what the body has.
func (x *inflated) Read(b []byte) (int, error) {
	var n int
	var err error
	if x.encoding == "gzip" {
		n, err = x.zip.Read(b)
	} else {
		n, err = x.zlib.Read(b)
	}
	return n, x.error(err)
}

func (x *inflated) error(err error) error {
	var known *oip.Error
	var corrupt flate.CorruptInputError
	switch {
	case err == nil, err == io.EOF, errors.As(err, &known), errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.Is(err, zlib.ErrHeader),
		errors.Is(err, zlib.ErrChecksum), errors.Is(err, zlib.ErrDictionary), errors.As(err, &corrupt):
		return &oip.Error{Code: oip.InvalidArgument, Text: "the request's body is not what its Content-Encoding says: " + x.encoding, Cause: err}
	}
	return err
}

// encoding returns the encoding of a body: "" is none.
func encoding(header http.Header) (string, error) {
	values := header["Content-Encoding"]
	if len(values) == 0 || len(values) == 1 && (values[0] == "" || values[0] == "identity") {
		return "", nil
	}
	if len(values) == 1 && (values[0] == "gzip" || values[0] == "deflate") {
		return values[0], nil
	}
	return "", oip.Errorf(oip.Unsupported, "Content-Encoding is %q, expected gzip, deflate or none", clip(strings.Join(values, ", ")))
}

// accepted returns the encoding that a client prefers for the answer, "" is none.
func accepted(header http.Header) string {
	best, bestQ := "", 0.0
	for _, value := range header["Accept-Encoding"] {
		for value != "" {
			var item string
			item, value, _ = strings.Cut(value, ",")
			name, params, _ := strings.Cut(strings.TrimSpace(item), ";")
			name = strings.TrimSpace(name)
			q := quality(params)
			if (name == "gzip" || name == "deflate") && (q > bestQ || q == bestQ && q > 0 && name == "gzip") {
				best, bestQ = name, q
			}
		}
	}
	return best
}

// quality returns the number of "q=0.5", 1 without one.
func quality(params string) float64 {
	text, ok := strings.CutPrefix(strings.TrimSpace(params), "q=")
	if !ok {
		return 1
	}
	q, scale := 0.0, 1.0
	for _, c := range text {
		switch {
		case c == '.':
			scale = 0.1
		case c >= '0' && c <= '9' && scale == 1:
			q = q*10 + float64(c-'0')
		case c >= '0' && c <= '9':
			q += float64(c-'0') * scale
			scale /= 10
		default:
			return 0
		}
	}
	return q
}
