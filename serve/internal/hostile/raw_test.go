package hostile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// exchange writes what a client sends, as it is, and returns the first answer. The server may answer, and close, before it
// has read everything.
func exchange(t *testing.T, address string, parts ...[]byte) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	go func() {
		for _, p := range parts {
			if _, err := conn.Write(p); err != nil {
				return // it is closed
			}
		}
	}()
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err, "an answer, not a connection that is cut without one")
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

// everything writes what a client sends and returns all that comes back until the server closes the connection.
func everything(t *testing.T, address, request string) string {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	var late net.Error
	require.False(t, errors.As(err, &late) && late.Timeout(), "the connection is open:\n%s", all)
	return string(all)
}

func bodyOf(t *testing.T, r *http.Response) string {
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(b)
}

// allocated returns how many bytes f allocates, of all goroutines.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

const infer = "/v2/models/simple/infer"

// post returns a request whose body has its length, with more lines of the header.
func post(path string, body []byte, header ...string) []byte {
	return append(fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n%s\r\n", path, len(body), lines(header)), body...)
}

func lines(header []string) string {
	var b strings.Builder
	for _, h := range header {
		b.WriteString(h + "\r\n")
	}
	return b.String()
}

func chunk(b []byte) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(b), b) }

// repeated is a list of the same part.
func repeated(p []byte, n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = p
	}
	return all
}

func compressed(t *testing.T, wrap func(io.Writer) io.WriteCloser, size int) []byte {
	var b bytes.Buffer
	w := wrap(&b)
	zeros := bytes.Repeat([]byte(" "), 1<<20)
	for range size >> 20 {
		_, err := w.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// most is above every limit of the model simple, whose largest request is 8 samples of 128 bytes, in JSON 24 bytes for
// each of 256 integers, and 64 KiB of header.
const most = 1 << 20

// TestBodies sends bodies that are too large, in every way in which a client may hide their size. Each is refused for its size before the
// server has allocated what was sent.
func TestBodies(t *testing.T) {
	address := start(t)
	gzipped := compressed(t, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, 64<<20)
	deflated := compressed(t, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, 64<<20)
	chunked := []byte("POST " + infer + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, c := range []struct {
		name   string
		parts  [][]byte
		status []int
	}{
		{"its length says so", [][]byte{fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", infer, most)}, []int{413}},
		{"a length of 2^62", [][]byte{fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", infer, int64(1)<<62)}, []int{413}},
		{"chunks, 1 MiB of blanks", append([][]byte{chunked}, repeated(chunk(bytes.Repeat([]byte(" "), 1<<12)), most>>12)...), []int{413}},
		{"chunks of one byte", append([][]byte{chunked}, repeated(bytes.Repeat(chunk([]byte(" ")), 1<<10), most>>10)...), []int{413, 400}}, // net/http refuses so much overhead itself
		{"gzip, a thousand times larger", [][]byte{post(infer, gzipped[:min(len(gzipped), 70000)], "Content-Encoding: gzip")}, []int{413}},
		{"deflate, a thousand times larger", [][]byte{post(infer, deflated[:min(len(deflated), 70000)], "Content-Encoding: deflate")}, []int{413}},
		{"a header of binary tensors beyond the body", [][]byte{post(infer, []byte("{}"), "Inference-Header-Content-Length: 9223372036854775807")}, []int{400, 413}},
		{"a header of negative length", [][]byte{post(infer, []byte("{}"), "Inference-Header-Content-Length: -1")}, []int{400}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r *http.Response
			bytes := allocated(func() { r = exchange(t, address, c.parts...) })
			require.Contains(t, c.status, r.StatusCode, "%s", bodyOf(t, r))
			require.Less(t, bytes, uint64(2*most), "bytes allocated for it, those of this client among them")
			good(t, address)
		})
	}
}

// TestSmuggling sends what two servers in a row may take for different requests. None may be answered as one that is right and
// leave its rest on the connection as another.
func TestSmuggling(t *testing.T) {
	address := start(t)
	second := "GET /v2/models/absent HTTP/1.1\r\nHost: h\r\n\r\n"
	right := goodBody
	for name, request := range map[string]string{
		"a right one, with length and chunks": "POST " + infer + " HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + string(chunk([]byte(right))) + "0\r\n\r\n" + second,
		"length and chunks":                   "POST " + infer + " HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
		"two lengths":                         "POST " + infer + " HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 70\r\n\r\n{}" + second,
		"a length with a sign":                "POST " + infer + " HTTP/1.1\r\nHost: h\r\nContent-Length: +2\r\n\r\n{}" + second,
		"chunks, otherwise spelt":             "POST " + infer + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n{}" + second,
		"two encodings":                       "POST " + infer + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + second,
		"a line folded":                       "POST " + infer + " HTTP/1.1\r\nHost: h\r\nX: a\r\n Content-Length: 2\r\nTransfer-Encoding:\r\n chunked\r\n\r\n{}" + second,
		"a blank before a colon":              "POST " + infer + " HTTP/1.1\r\nHost: h\r\nContent-Length : 2\r\n\r\n{}" + second,
		"a bare line feed inside":             "POST " + infer + " HTTP/1.1\r\nHost: h\r\nX: a\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" + second,
	} {
		t.Run(name, func(t *testing.T) {
			answers := everything(t, address, request)
			require.Equal(t, 1, strings.Count(answers, "HTTP/1.1 "), "one answer, and the connection is closed:\n%s", answers)
			require.NotContains(t, answers, "absent", "what was smuggled is answered")
			good(t, address)
		})
	}
}

// TestPaths asks for models by names that are paths. Names are looked up among the models, never in a folder.
func TestPaths(t *testing.T) {
	address := start(t)
	for _, path := range []string{
		"/v2/models/..%2f..%2f..%2fetc%2fpasswd", "/v2/models/%2e%2e/%2e%2e/etc/passwd", "/v2/models/../../etc/passwd/ready", "/v2/models/simple%00/ready",
		"/v2/models/simple%2f..%2fsimple/ready", "/v2/models/C:%5Cwindows/ready", "/v2/models//ready", "/v2/models/simple/versions/..%2f1/ready",
		"/v2/models/simple/versions/-1/ready", "/v2/models/" + strings.Repeat("a", 8000) + "/ready", "/v2/models/%ff%fe/ready", "/v2/../v2/models/absent",
	} {
		r := exchange(t, address, []byte("GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"))
		body := bodyOf(t, r)
		require.NotEqual(t, 200, r.StatusCode, path)
		require.Less(t, r.StatusCode, 500, "%s: %s", path, body)
		require.NotContains(t, body, "root:", path)
		require.Less(t, len(body), 1024, "what a client wrote is not given back whole")
	}
	good(t, address)
}

// TestHeaders sends headers that are too large or too many, and an id that would write lines of a header.
func TestHeaders(t *testing.T) {
	address := start(t)
	t.Run("large", func(t *testing.T) {
		r := exchange(t, address, []byte("GET /v2 HTTP/1.1\r\nHost: h\r\nX: "+strings.Repeat("a", 64<<10)+"\r\n\r\n"))
		require.Equal(t, 431, r.StatusCode)
	})
	t.Run("many", func(t *testing.T) {
		r := exchange(t, address, []byte("GET /v2 HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("X: a\r\n", 10_000)+"\r\n"))
		require.Equal(t, 431, r.StatusCode)
	})
	t.Run("lines in an id", func(t *testing.T) {
		zeros := "[" + strings.Repeat("0,", 15) + "0]"
		body := fmt.Sprintf(`{"id":"a\r\nX-Planted: yes","inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,16],"data":%s},{"name":"INPUT1","datatype":"INT32","shape":[1,16],"data":%s}]}`, zeros, zeros)
		r := exchange(t, address, post(infer, []byte(body), "Content-Type: application/json"))
		require.Empty(t, r.Header.Get("X-Planted"))
		require.Equal(t, 200, r.StatusCode)
		var answer struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(bodyOf(t, r)), &answer))
		require.Equal(t, "a\r\nX-Planted: yes", answer.ID)
	})
}
