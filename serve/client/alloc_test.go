//go:build !race

package client

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/rest"
)

// recorded is a server that answers each request on a connection with the bytes that the model's server gave to the first one. It allocates
// nothing.
func recorded(t testing.TB, h http.Handler) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	first := &http.Server{Handler: h}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				request, answer, err := record(first, c)
				if err != nil {
					return
				}
				for {
					if _, err := c.Write(answer); err != nil {
						return
					}
					if _, err := io.ReadFull(c, request); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// record reads the first request of a connection and returns it with the server's answer.
func record(by *http.Server, c net.Conn) (request, answer []byte, err error) {
	var bytesRead, written bytes.Buffer
	r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &bytesRead)))
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	w := &recorder{header: http.Header{}}
	by.Handler.ServeHTTP(w, r)
	err = (&http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: w.header, ContentLength: int64(w.body.Len()), Body: io.NopCloser(&w.body)}).Write(&written)
	return bytesRead.Bytes(), written.Bytes(), err
}

type recorder struct {
	header http.Header
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
func (r *recorder) WriteHeader(int)             {}

// TestAllocations compares the Run of a generated client with a request of as many bytes by net/http alone, whose header nobody makes and whose answer nobody looks
// into: it allocates no more.
func TestAllocations(t *testing.T) {
	ctx := context.Background()
	r, err := classifier.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	models := core.New()
	_, err = models.Add(classifier.Served(r))
	require.NoError(t, err)
	url := recorded(t, rest.New(models, rest.Options{}))
	transport, err := New(url)
	require.NoError(t, err)
	defer transport.Close()
	c := classifier.NewClient(transport)
	in, out, want := classifier.NewInputs(), classifier.NewOutputs(), classifier.NewOutputs()
	in.Image.Data[0][0][3][4] = 9
	require.NoError(t, r.Run(ctx, in, want))
	run := testing.AllocsPerRun(200, func() {
		*out.Probabilities = classifier.Probabilities{}
		if err := c.Run(ctx, in, out); err != nil {
			t.Fatal(err)
		}
		if *out.Probabilities != *want.Probabilities {
			t.Fatalf("found %v, want %v", out.Probabilities.Data, want.Probabilities.Data)
		}
	})
	plain := &http.Client{Transport: &http.Transport{}}
	head := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"image","datatype":"FP32","shape":[1,1,8,8],"parameters":{"binary_data_size":256}}],"outputs":[{"name":"probabilities"}]}`
	request, answer := append([]byte(head), make([]byte, 256)...), make([]byte, 1<<10)
	bare := testing.AllocsPerRun(200, func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v2/models/digits/infer", bytes.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/octet-stream")
		r.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(head)))
		a, err := plain.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = a.Body.Read(answer)
		}
		if err := a.Body.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("Run allocates %v times, a request of net/http alone %v times", run, bare)
	require.LessOrEqual(t, run, bare)
}
