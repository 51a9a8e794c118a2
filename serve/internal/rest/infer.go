package rest

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

const (
	headerLength = "Inference-Header-Content-Length"
	maxHeader    = 64 << 10 // bytes of a request beside its tensors
	perElement   = 24       // bytes of an element in JSON
	worthZipping = 1400     // bytes of an answer; a smaller one fits a packet anyway
)

// contractHeader is agree.Header as net/http writes it.
var contractHeader = http.CanonicalHeaderKey(agree.Header)

// state is what a request needs beside the memory of its tensors, kept for the next ones.
type state struct {
	request  request
	reader   wire.Reader
	writer   wire.Writer
	body     paced
	inflated inflated
	name     []byte // of the model
	version  []byte

	zipped bytes.Buffer // an answer, compressed
	zip    *gzip.Writer
	zlib   *zlib.Writer
}

// limits returns how many bytes a request to the model has at most, with its tensors as bytes and as JSON.
func limits(spec *oip.Spec) (binary, text int64) {
	bytes, elements := int64(0), int64(0)
	for i := range spec.Inputs {
		n := spec.Inputs[i].MaxElements()
		elements = add(elements, n, 1)
		bytes = add(bytes, n, int64(spec.Inputs[i].Type.Size()))
	}
	return add(maxHeader, bytes, 1), add(maxHeader, elements, perElement)
}

// add returns a + b·c, or the largest integer if that is more.
func add(a, b, c int64) int64 {
	if c > 0 && b > (math.MaxInt64-a)/c {
		return math.MaxInt64
	}
	return a + b*c
}

// infer answers a request to a model.
func (h *handler) infer(q *request) error {
	s := q.state
	s.name, s.version = append(s.name[:0], q.model...), append(s.version[:0], q.version...)
	v, err := h.core.Lookup(s.name, s.version)
	if err != nil {
		return err
	}
	defer v.Release()
	if err := v.Refusal(); err != nil {
		return err
	}
	form, err := formOf(q.r, v.Spec)
	if err != nil {
		return err
	}
	s.body.begin(q, &h.options)
	var body io.Reader = &s.body
	if form.encoding != "" {
		if err := s.inflated.begin(&s.body, form.encoding); err != nil {
			return err
		}
		body = &s.inflated
	}
	s.reader.Reset(body, form.limit)
	if err := s.reader.Peek(); err != nil {
		return err
	}
	c := v.Get()
	defer v.Put(c)
	c.Protocol = core.REST
	if h.core.Traced() {
		if of := q.r.Header["Traceparent"]; len(of) > 0 {
			c.Traceparent, c.Tracestate = of[0], strings.Join(q.r.Header["Tracestate"], ",")
		}
	}
	if err := h.read(q, s, c, form); err != nil {
		c.Err = h.known(err)
		return c.Err
	}
	c.Received = int(s.body.received)
	if err := s.body.end(); err != nil {
		c.Err = h.known(err)
		return c.Err
	}
	if err := v.Run(q.r.Context(), c); err != nil {
		return err
	}
	if err := s.writer.Answer(v.Spec.Name, v.Name, &c.Request, c.Memory); err != nil {
		c.Err = h.known(err)
		return c.Err
	}
	c.Sent = s.writer.Size()
	c.Err = h.send(q, s)
	return c.Err
}

// form is how a request is written.
type form struct {
	encoding string
	header   int64 // bytes of JSON before the bytes of tensors, -1: all is JSON
	limit    int64 // bytes of the body
}

// formOf looks at the header of a request, before its body is read.
func formOf(r *http.Request, spec *oip.Spec) (f form, err error) {
	if f.encoding, err = encoding(r.Header); err != nil {
		return f, err
	}
	binary, text := limits(spec)
	f.header, f.limit = -1, text
	if values := r.Header[headerLength]; len(values) > 0 {
		f.header, err = strconv.ParseInt(values[0], 10, 64)
		if err != nil || f.header < 0 || len(values) > 1 {
			return f, oip.Errorf(oip.InvalidArgument, "%s is %q, expected the bytes of JSON that the body begins with, or 0", headerLength, clip(values[0]))
		}
		if f.header > maxHeader {
			return f, oip.Errorf(oip.TooLarge, "%s is %d, expected at most %d", headerLength, f.header, maxHeader)
		}
		f.limit = binary
	}
	if r.ContentLength > f.limit {
		return f, oip.Errorf(oip.TooLarge, "request body has %d bytes, but the largest request to model '%s' needs %d", r.ContentLength, spec.Name, f.limit)
	}
	if f.encoding == "" && r.ContentLength >= 0 && f.header > r.ContentLength {
		return f, oip.Errorf(oip.InvalidArgument, "%s is %d, but the body has %d bytes", headerLength, f.header, r.ContentLength)
	}
	return f, nil
}

// read reads a request's body into the memory of the call.
func (h *handler) read(q *request, s *state, c *core.Call, f form) error {
	if values := q.r.Header[contractHeader]; len(values) > 0 {
		s.version = append(s.version[:0], values[0]...)
		if err := c.SetContract(s.version); err != nil {
			return err
		}
	}
	if f.header != 0 {
		return s.reader.Request(&c.Request, c.Memory, f.header)
	}
	size := q.r.ContentLength
	if f.encoding != "" {
		size = -1
	}
	return s.reader.Raw(&c.Request, c.Memory, size)
}

// send sends the answer that s.writer has.
func (h *handler) send(q *request, s *state) error {
	w := &s.writer
	size := w.Size()
	header := q.w.Header()
	header["Content-Type"] = typeJSON
	if w.Split {
		header["Content-Type"] = typeBinary
		header[headerLength] = h.lengths.of(len(w.Text))
	}
	if size >= worthZipping {
		if e := accepted(q.r.Header); e != "" {
			if err := s.compress(e); err != nil {
				return err
			}
			header.Set("Content-Encoding", e)
			header.Set("Vary", "Accept-Encoding")
			header["Content-Length"] = h.lengths.of(s.zipped.Len())
			h.reply(q, s.zipped.Len())
			_, _ = q.w.Write(s.zipped.Bytes()) // the client is gone if it fails
			return nil
		}
	}
	header["Content-Length"] = h.lengths.of(size)
	h.reply(q, size)
	if _, err := q.w.Write(w.Text); err != nil {
		return nil // the client is gone
	}
	for _, p := range w.Parts {
		if _, err := q.w.Write(p); err != nil {
			return nil
		}
	}
	return nil
}

// compress writes the answer to s.zipped.
func (s *state) compress(encoding string) (err error) {
	const most = 1 << 20
	if s.zipped.Cap() > most {
		s.zipped = bytes.Buffer{}
	}
	s.zipped.Reset()
	var to io.WriteCloser
	if encoding == "gzip" {
		if s.zip == nil {
			s.zip, err = gzip.NewWriterLevel(&s.zipped, gzip.BestSpeed)
		} else {
			s.zip.Reset(&s.zipped)
		}
		to = s.zip
	} else {
		if s.zlib == nil {
			s.zlib, err = zlib.NewWriterLevel(&s.zipped, zlib.BestSpeed)
		} else {
			s.zlib.Reset(&s.zipped)
		}
		to = s.zlib
	}
	if err != nil {
		return err
	}
	if _, err := to.Write(s.writer.Text); err != nil {
		return err
	}
	for _, p := range s.writer.Parts {
		if _, err := to.Write(p); err != nil {
			return err
		}
	}
	return to.Close()
}
