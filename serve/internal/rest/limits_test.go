package rest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// counting counts the bytes that a server reads from its connections.
type counting struct {
	net.Listener
	read atomic.Int64
}

type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &countingConn{c, &l.read}, err
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// listening starts a server of h.
func listening(t testing.TB, h http.Handler) (addr string, read *atomic.Int64) {
	s := httptest.NewUnstartedServer(h)
	l := &counting{Listener: s.Listener}
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), &l.read
}

// endless sends so many bytes of a body at once, as long as the server takes them, and returns its answer.
func endless(t *testing.T, addr, header string, chunk []byte, most int) *http.Response {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = io.WriteString(c, header)
	require.NoError(t, err)
	go func() {
		for sent := 0; sent < most; sent += len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	return r
}

// TestBodyLimit: a body over the limit is refused before more than the limit and 64 KiB is read of it, whether it says its length, comes
// in chunks, or is compressed.
func TestBodyLimit(t *testing.T) {
	m := testmodel.Identity(oip.FP32, 4, 1000)
	bytesLimit, textLimit := limits(m.Spec())
	require.Equal(t, int64(64<<10+16000), bytesLimit)
	require.Equal(t, int64(64<<10+4000*24), textLimit)
	const slack = 64 << 10
	post := "POST /v2/models/identity_FP32/infer HTTP/1.1\r\nHost: x\r\n"
	spaces := strings.Repeat(" ", 1000)
	bomb := packed(t, "gzip", strings.Repeat(" ", 32<<20))
	for _, c := range []struct {
		name, header string
		chunk        string
		limit        int64
		status       int
	}{
		{"length", "Content-Length: 100000000\r\n\r\n", spaces, 0, 413},
		{"length just above", fmt.Sprintf("Content-Length: %d\r\n\r\n", textLimit+1), spaces, 0, 413},
		{"bytes just above", fmt.Sprintf("%s: 100\r\nContent-Length: %d\r\n\r\n", headerLength, bytesLimit+1), spaces, 0, 413},
		{"chunks", "Transfer-Encoding: chunked\r\n\r\n", "3e8\r\n" + spaces + "\r\n", textLimit, 413},
		{"chunks of a byte", "Transfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\n \r\n", 100), 6 * textLimit, 413},
		{"raw in chunks", headerLength + ": 60000\r\nTransfer-Encoding: chunked\r\n\r\n", "3e8\r\n" + spaces + "\r\n", bytesLimit, 400},
		{"long header", headerLength + ": 65537\r\nTransfer-Encoding: chunked\r\n\r\n", "3e8\r\n" + spaces + "\r\n", 0, 413},
		{"bomb", fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", len(bomb)), bomb, textLimit, 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, read := listening(t, served(t, Options{}, m))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := endless(t, addr, post+c.header, []byte(c.chunk), 64<<20)
			require.Equal(t, c.status, r.StatusCode)
			time.Sleep(20 * time.Millisecond) // for what net/http would read of the rest
			require.LessOrEqual(t, read.Load(), c.limit+slack)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20)) // of both sides
			require.Zero(t, m.Runs.Load())
		})
	}
}

// pipes is a listener whose connections are in memory, so that time can be that of the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error { close(p); return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// connect opens a connection.
func (p pipes) connect() net.Conn {
	client, server := net.Pipe()
	p <- server
	return client
}

// timed starts a server of h, over HTTP/1 and 2 without encryption, in the test's own time.
func timed(t *testing.T, h http.Handler) pipes {
	p := make(pipes)
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(p) }()
	t.Cleanup(func() {
		s.Close()
		<-ended
		time.Sleep(time.Minute) // net/http waits a moment after it refused a request, for its client to read that
	})
	return p
}

// inTime runs tests in a time of their own, which passes when nobody can go on: what else the machine does is nothing to them.
func inTime(t *testing.T, tests map[string]func(t *testing.T)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// trickle writes so many bytes of a text each time, and returns when it is written, or nobody reads it any more.
func trickle(c net.Conn, text string, each int, wait time.Duration) {
	for i := 0; i < len(text); i += each {
		if _, err := io.WriteString(c, text[i:min(i+each, len(text))]); err != nil {
			return
		}
		time.Sleep(wait)
	}
}

const ten = `{"inputs":[{"name":"INPUT0","shape":[1,10],"datatype":"FP32","data":[1,2,3,4,5,6,7,8,9,10]}]}`

// TestSlowBody: a body that comes too slowly is cut off, with and without its length; one that is fast enough is not.
func TestSlowBody(t *testing.T) {
	options := Options{Rate: 1000, Grace: 200 * time.Millisecond}
	slow := func(header, byte string) func(*testing.T) {
		return func(t *testing.T) {
			c := timed(t, served(t, options, testmodel.Identity(oip.FP32, 4, 10))).connect()
			defer c.Close()
			begun := time.Now()
			fmt.Fprintf(c, "POST /v2/models/identity_FP32/infer HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", header)
			go trickle(c, strings.Repeat(byte, 1000), len(byte), 10*time.Millisecond) // 100 bytes a second
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusRequestTimeout, r.StatusCode)
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Contains(t, string(body), "at less than 1000 bytes a second")
			require.GreaterOrEqual(t, time.Since(begun), options.Grace)
			require.Less(t, time.Since(begun), 2*options.Grace)
		}
	}
	inTime(t, map[string]func(*testing.T){
		"with its length": slow("Content-Length: 1000", " "),
		"in chunks":       slow("Transfer-Encoding: chunked", "1\r\n \r\n"),
		"fast enough": func(t *testing.T) {
			text := ten + strings.Repeat(" ", 3000)
			c := timed(t, served(t, options, testmodel.Identity(oip.FP32, 4, 10))).connect()
			defer c.Close()
			fmt.Fprintf(c, "POST /v2/models/identity_FP32/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(text))
			begun := time.Now()
			go trickle(c, text, 100, 90*time.Millisecond) // 1,111 bytes a second, for longer than the grace
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			require.Equal(t, 200, r.StatusCode)
			require.Greater(t, time.Since(begun), 10*options.Grace)
		},
	})
}

// TestNothingAfterCompression: a client that announces more than its compressed body, and does not send it, is refused after the grace.
func TestNothingAfterCompression(t *testing.T) {
	inTime(t, map[string]func(*testing.T){"deflate": func(t *testing.T) {
		const grace = 200 * time.Millisecond
		body := packed(t, "deflate", `{"inputs":[{"name":"INPUT0","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`)
		c := timed(t, served(t, Options{Grace: grace}, testmodel.Identity(oip.FP32, 4, 2))).connect()
		defer c.Close()
		begun := time.Now()
		fmt.Fprintf(c, "POST /v2/models/identity_FP32/infer HTTP/1.1\r\nHost: x\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n%s", len(body)+100, body)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestTimeout, r.StatusCode)
		require.Contains(t, string(text), "at less than 65536 bytes a second")
		require.Equal(t, grace, time.Since(begun))
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the connection has to end")
	}})
}

// TestComputingIsNotReading: the deadline of a body does not end a request that computes for longer, as a model sees that ends with its context.
func TestComputingIsNotReading(t *testing.T) {
	over := func(protocol int) func(t *testing.T) {
		return func(t *testing.T) {
			m := testmodel.Identity(oip.FP32, 4, 10)
			m.Before = func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(30 * time.Second):
					return nil
				}
			}
			p := timed(t, served(t, Options{}, m))
			dialled := 0
			transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) {
				dialled++
				return p.connect(), nil
			}}
			transport.Protocols.SetHTTP1(protocol == 1)
			transport.Protocols.SetUnencryptedHTTP2(protocol == 2)
			defer transport.CloseIdleConnections()
			for range 2 {
				r, err := (&http.Client{Transport: transport}).Post("http://x/v2/models/identity_FP32/infer", "application/json", strings.NewReader(ten))
				require.NoError(t, err)
				require.Equal(t, protocol, r.ProtoMajor)
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.Equal(t, 200, r.StatusCode, "HTTP/%d: %s", protocol, body)
				r.Body.Close()
			}
			require.Equal(t, 1, dialled, "on one connection")
		}
	}
	inTime(t, map[string]func(*testing.T){"HTTP/1": over(1), "HTTP/2": over(2)})
}

// TestSlowReader: a client that does not take its answer is cut off once its time is over.
func TestSlowReader(t *testing.T) {
	inTime(t, map[string]func(*testing.T){"an answer of 16 MiB": func(t *testing.T) {
		const size, rate, grace = 16 << 20, 16 << 20, 500 * time.Millisecond
		h := served(t, Options{Rate: rate, Grace: grace}, testmodel.Identity(oip.FP32, 1, size/4))
		ended := make(chan time.Duration, 1)
		c := timed(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun := time.Now()
			h.ServeHTTP(w, r)
			ended <- time.Since(begun)
		})).connect()
		defer c.Close()
		fmt.Fprintf(c, "POST /v2/models/identity_FP32/infer HTTP/1.1\r\nHost: x\r\n%s: 0\r\nContent-Length: %d\r\n\r\n", headerLength, size)
		_, err := c.Write(make([]byte, size))
		require.NoError(t, err)
		require.InDelta(t, (grace + time.Second).Seconds(), (<-ended).Seconds(), 0.01, "the grace, and a second for so many bytes")
	}})
}

// exchangeRaw sends a request on a connection and reads the answer, without allocation.
func exchangeRaw(c net.Conn, request, buf []byte, answer int) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	for got := 0; got < answer; {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		got += n
	}
	return nil
}

// answerSize reads an answer and returns how many bytes it has.
func answerSize(t testing.TB, c net.Conn) int {
	var raw bytes.Buffer
	r, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c, &raw)), nil)
	require.NoError(t, err)
	require.Equal(t, 200, r.StatusCode)
	_, err = io.Copy(io.Discard, r.Body)
	require.NoError(t, err)
	return raw.Len()
}

// perRequest returns how often a request makes the process allocate.
func perRequest(t testing.TB, h http.Handler, request []byte) float64 {
	addr, _ := listening(t, h)
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write(request)
	require.NoError(t, err)
	buf, size := make([]byte, 64<<10), answerSize(t, c)
	const n = 500
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	for range n {
		require.NoError(t, exchangeRaw(c, request, buf, size))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		if err := exchangeRaw(c, request, buf, size); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / n
}

// binaryRequest is a request of 1 KiB, and bare a handler that reads it and writes the same answer, and knows nothing of it.
func binaryRequest() (request []byte, bare http.Handler) {
	head := `{"inputs":[{"name":"INPUT0","shape":[1,256],"datatype":"FP32","parameters":{"binary_data_size":1024}}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`
	answer := `{"model_name":"identity_FP32","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[1,256],"parameters":{"binary_data_size":1024}}]}`
	body := head + string(make([]byte, 1024))
	request = []byte(fmt.Sprintf("POST /v2/models/identity_FP32/infer HTTP/1.1\r\nHost: x\r\n%s: %d\r\nContent-Length: %d\r\n\r\n%s", headerLength, len(head), len(body), body))
	buf := make([]byte, len(body))
	text, length, total := []byte(answer), []string{strconv.Itoa(len(answer))}, []string{strconv.Itoa(len(answer) + 1024)}
	return request, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadFull(r.Body, buf); err != nil {
			panic(err)
		}
		header := w.Header()
		header["Content-Type"] = typeBinary
		header[headerLength] = length
		header["Content-Length"] = total
		w.Write(text)
		w.Write(buf[len(head):])
	})
}

// TestAllocations: a request in binary allocates what net/http does for a handler that reads and writes the same bytes, less one for looking for the end
// of a body that was not closed; one in JSON allocates no more.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("pools lose what they hold under the race detector")
	}
	request, bare := binaryRequest()
	h := served(t, Options{}, testmodel.Identity(oip.FP32, 1, 256))
	ours, theirs := perRequest(t, h, request), perRequest(t, bare, request)
	t.Logf("%.1f, bare %.1f", ours, theirs)
	require.InDelta(t, theirs-1, ours, 0.5)
	text := `{"inputs":[{"name":"INPUT0","shape":[1,256],"datatype":"FP32","data":` + numbers(0, 256, 1) + `}]}`
	request = []byte(fmt.Sprintf("POST /v2/models/identity_FP32/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	require.LessOrEqual(t, perRequest(t, h, request), theirs-0.5)
}

// BenchmarkBinary compares a request in binary with the bare handler.
func BenchmarkBinary(b *testing.B) {
	request, bare := binaryRequest()
	for name, h := range map[string]http.Handler{"ours": served(b, Options{}, testmodel.Identity(oip.FP32, 1, 256)), "bare": bare} {
		b.Run(name, func(b *testing.B) {
			addr, _ := listening(b, h)
			c, err := net.Dial("tcp", addr)
			require.NoError(b, err)
			defer c.Close()
			_, err = c.Write(request)
			require.NoError(b, err)
			buf, size := make([]byte, 64<<10), answerSize(b, c)
			b.ReportAllocs()
			for b.Loop() {
				if err := exchangeRaw(c, request, buf, size); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestHeadersOfAnswers: nothing of a request comes back in the header of its answer.
func TestHeadersOfAnswers(t *testing.T) {
	h := served(t, Options{}, testmodel.Simple())
	id := `a\r\nSet-Cookie: x\u0000<script>`
	w := ask(h, "POST", "/v2/models/simple/infer", strings.Replace(fmt.Sprintf(simple16, numbers(0, 16, 1), numbers(0, 16, 1), ""), `"42"`, `"`+id+`"`, 1))
	require.Equal(t, 200, w.Code, w.Body)
	require.True(t, bytes.HasPrefix(w.Body.Bytes(), []byte(`{"id":"a\u000d\u000aSet-Cookie: x\u0000\u003cscript\u003e",`)), w.Body)
	require.Empty(t, w.Header().Get("Set-Cookie"))
}
