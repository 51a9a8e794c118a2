package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/rest"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// exchange is a request of a client in tests.
type exchange struct {
	in, out [][]byte
	shapes  [][]int64
	taken   [][]int64
}

func (x *exchange) Given(i int) ([]byte, []int64) { return x.in[i], x.shapes[i] }

func (x *exchange) Take(i int, shape []int64) ([]byte, error) {
	n := int64(4)
	for _, d := range shape {
		n *= d
	}
	for len(x.out) <= i {
		x.out, x.taken = append(x.out, nil), append(x.taken, nil)
	}
	if int64(cap(x.out[i])) < n {
		x.out[i] = make([]byte, n)
	}
	x.out[i] = x.out[i][:n]
	x.taken[i] = append([]int64{}, shape...)
	return x.out[i], nil
}

func server(t testing.TB, models ...*testmodel.Model) *httptest.Server {
	c := core.New()
	for _, m := range models {
		_, err := c.Add(m)
		require.NoError(t, err)
	}
	c.Start()
	s := httptest.NewServer(rest.New(c, rest.Options{}))
	t.Cleanup(s.Close)
	return s
}

// sum is a request to the model simple.
func sum(samples, from int) *exchange {
	x := &exchange{shapes: [][]int64{{int64(samples), testmodel.Elements}, {int64(samples), testmodel.Elements}}, in: make([][]byte, 2)}
	for i := range samples * testmodel.Elements {
		x.in[0] = binary.LittleEndian.AppendUint32(x.in[0], uint32(from+i))
		x.in[1] = binary.LittleEndian.AppendUint32(x.in[1], uint32(2*i))
	}
	return x
}

// TestInfer has many callers share a transport: each gets its own answer.
func TestInfer(t *testing.T) {
	s := server(t, testmodel.Simple())
	remote, err := New(s.URL)
	require.NoError(t, err)
	defer remote.Close()
	spec := testmodel.Simple().Spec()
	var wait sync.WaitGroup
	for caller := range 8 {
		wait.Go(func() {
			for i := range 50 {
				samples, from := 1+(caller+i)%testmodel.Samples, 1000*caller+i
				x := sum(samples, from)
				if err := remote.Infer(t.Context(), spec, x); err != nil {
					t.Error(err)
					return
				}
				for j := range samples * testmodel.Elements {
					if got := binary.LittleEndian.Uint32(x.out[0][4*j:]); got != uint32(from+3*j) || x.taken[0][0] != int64(samples) {
						t.Errorf("caller %d: element %d is %d, shape %v", caller, j, got, x.taken[0])
						return
					}
				}
			}
		})
	}
	wait.Wait()
}

// TestErrors: what a server says comes out as it went in.
func TestErrors(t *testing.T) {
	spec := testmodel.Simple().Spec()
	for code := oip.Internal; code <= oip.Unsupported; code++ {
		t.Run(code.String(), func(t *testing.T) {
			m := testmodel.Simple()
			m.Before = func(context.Context) error { return oip.Errorf(code, "because %d", code) }
			remote, err := New(server(t, m).URL)
			require.NoError(t, err)
			defer remote.Close()
			err = remote.Infer(t.Context(), spec, sum(1, 1))
			var e *oip.Error
			require.ErrorAs(t, err, &e)
			require.EqualError(t, err, fmt.Sprintf("because %d", code))
			require.Equal(t, code, e.Code)
			require.Equal(t, code == oip.Exhausted || code == oip.Unavailable, e.RetryAfter > 0)
		})
	}
}

// TestSentAgain: a request that a server does not take is sent again, one that it refuses for another reason is not; in the end the server's last word
// counts, and the end of the context at any time.
func TestSentAgain(t *testing.T) {
	stops := `{"error":"the server stops","code":"UNAVAILABLE"}`
	for _, c := range []struct {
		name   string
		answer func(n int64, w http.ResponseWriter)
		tries  int64
		code   oip.Code
		ctx    time.Duration
	}{
		{"stops", func(n int64, w http.ResponseWriter) { w.WriteHeader(503); fmt.Fprint(w, stops) }, 4, oip.Unavailable, time.Minute},
		{"stops twice", func(n int64, w http.ResponseWriter) {
			if n <= 2 {
				w.WriteHeader(503)
				fmt.Fprint(w, stops)
			} else {
				w.WriteHeader(400)
				fmt.Fprint(w, `{"error":"no","code":"INVALID_ARGUMENT"}`)
			}
		}, 3, oip.InvalidArgument, time.Minute},
		{"no room", func(n int64, w http.ResponseWriter) {
			w.WriteHeader(503)
			fmt.Fprint(w, `{"error":"full","code":"RESOURCE_EXHAUSTED"}`)
		}, 1, oip.Exhausted, time.Minute},
		{"closes the connection", func(n int64, w http.ResponseWriter) { panic(http.ErrAbortHandler) }, 4, oip.Unavailable, time.Minute},
		{"its time is over", func(n int64, w http.ResponseWriter) { w.WriteHeader(503); fmt.Fprint(w, stops) }, 1, oip.Deadline, 20 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tries atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err != nil || int64(len(body)) != r.ContentLength {
					t.Errorf("%d bytes, expected %d: %v", len(body), r.ContentLength, err)
				}
				if _, sent := r.Header["Idempotency-Key"]; sent {
					t.Error("the header went to the server")
				}
				c.answer(tries.Add(1), w)
			}))
			defer s.Close()
			remote, err := New(s.URL)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
			defer cancel()
			var e *oip.Error
			require.ErrorAs(t, remote.Infer(ctx, testmodel.Simple().Spec(), sum(1, 1)), &e)
			require.Equal(t, c.code.String(), e.Code.String(), "%v", e)
			if c.code != oip.Deadline {
				require.Equal(t, c.tries, tries.Load())
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	for _, bad := range []string{"localhost:80", "ftp://x", "http://", "http://a b"} {
		_, err := New(bad)
		require.Error(t, err, bad)
	}
	_, err := New("http://localhost", WithHTTPClient(nil))
	require.ErrorContains(t, err, "the HTTP client is nil")
	s := httptest.NewServer(nil)
	s.Close()
	remote, err := New(s.URL)
	require.NoError(t, err)
	var e *oip.Error
	require.ErrorAs(t, remote.Infer(t.Context(), testmodel.Simple().Spec(), sum(1, 1)), &e)
	require.Equal(t, oip.Unavailable, e.Code)
	require.Contains(t, e.Text, "can not be reached")
}

// TestContext: a request ends with its context, and the server learns how long it had.
func TestContext(t *testing.T) {
	m := testmodel.Simple()
	m.Before = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	remote, err := New(server(t, m).URL)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var e *oip.Error
	require.ErrorAs(t, remote.Infer(ctx, m.Spec(), sum(1, 1)), &e)
	require.Equal(t, oip.Deadline, e.Code)
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	require.ErrorAs(t, remote.Infer(ctx, m.Spec(), sum(1, 1)), &e)
	require.Equal(t, oip.Canceled, e.Code)
	require.ErrorIs(t, e, context.Canceled)
}

// TestOtherServers reads answers that this server does not write: JSON, other fields; and refuses wrong ones.
func TestOtherServers(t *testing.T) {
	spec := &oip.Spec{Name: "m", Inputs: []oip.Tensor{{Name: "x", Type: oip.FP32, Shape: []int64{1}}}, Outputs: []oip.Tensor{{Name: "y", Type: oip.FP32, Shape: []int64{-1}, Max: []int64{4}}}}
	for _, c := range []struct{ answer, header, err string }{
		{`{"model_name":"m","model_version":null,"id":"x","parameters":{"a":{"b":[1]}},"extra":[1],"outputs":[{"name":"y","shape":[2],"datatype":"FP32","parameters":{"content_type":"np"},"data":[[1.5,2]]}]}`, "", "nested deeper"},
		{`{"model_name":"m","model_version":null,"id":"x","parameters":{"a":{"b":[1]}},"extra":[1],"outputs":[{"name":"y","shape":[2],"datatype":"FP32","parameters":{"content_type":"np"},"data":[1.5,2]}]}`, "", ""},
		{`{"outputs":[{"name":"y","shape":[5],"datatype":"FP32","data":[1,2,3,4,5]}]}`, "", "has the shape [5], expected [-1] of at most [4]"},
		{`{"outputs":[{"name":"y","shape":[-1],"datatype":"FP32","data":[]}]}`, "", "has the shape [-1]"},
		{`{"outputs":[{"name":"y","shape":[2],"datatype":"FP64","data":[1,2]}]}`, "", "has the data type 'FP64', expected 'FP32'"},
		{`{"outputs":[{"name":"z","shape":[2],"datatype":"FP32","data":[1,2]}]}`, "", "unexpected output 'z'"},
		{`{"outputs":[]}`, "", "Output 'y' is missing"},
		{`{"outputs":[{"name":"y","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}1234`, "92", ""},
		{`{"outputs":[{"name":"y","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}123`, "92", "ended after 95 bytes"},
		{`{"outputs":[{"name":"y","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}12345`, "92", "goes on after"},
		{`{}`, "-1", "Inference-Header-Content-Length"},
		{`nonsense`, "", `found 'n', expected '{'`},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.header != "" {
				w.Header().Set("Inference-Header-Content-Length", c.header)
			}
			fmt.Fprint(w, c.answer)
		}))
		remote, err := New(s.URL)
		require.NoError(t, err)
		x := &exchange{in: [][]byte{make([]byte, 4)}, shapes: [][]int64{{1}}}
		err = remote.Infer(t.Context(), spec, x)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
		} else {
			require.NoError(t, err)
			require.Len(t, x.out[0], int(4*x.taken[0][0]))
			if c.header == "" {
				require.Equal(t, float32(1.5), math.Float32frombits(binary.LittleEndian.Uint32(x.out[0])))
			}
		}
		s.Close()
	}
}

// TestOtherBools: bytes of an answer that are no bools do not stay in the caller's memory, which may be that of bools.
func TestOtherBools(t *testing.T) {
	spec := &oip.Spec{Name: "m", Inputs: []oip.Tensor{{Name: "x", Type: oip.FP32, Shape: []int64{1}}}, Outputs: []oip.Tensor{{Name: "y", Type: oip.Bool, Shape: []int64{4}}}}
	head := `{"outputs":[{"name":"y","shape":[4],"datatype":"BOOL","parameters":{"binary_data_size":4}}]}`
	for _, c := range []struct{ data, want, err string }{
		{"\x01\x00\x01\x01", "\x01\x00\x01\x01", ""},
		{"\x01\x00\x02\x01", "\x00\x00\x00\x00", "element 2 of a tensor of the type BOOL is 2, expected 0 or 1"},
		{"\xff", "\x00\x00\x00\x00", "ended after"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Inference-Header-Content-Length", strconv.Itoa(len(head)))
			fmt.Fprint(w, head, c.data)
		}))
		remote, err := New(s.URL)
		require.NoError(t, err)
		x := &exchange{in: [][]byte{make([]byte, 4)}, shapes: [][]int64{{1}}, out: [][]byte{[]byte("\x01\x01\x01\x01")}, taken: make([][]int64, 1)}
		if err := remote.Infer(t.Context(), spec, x); c.err != "" {
			require.ErrorContains(t, err, c.err)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, c.want, string(x.out[0][:4]))
		s.Close()
	}
}

// TestBodyIsLetGo: a server that answers before it has read the request may not have the caller's memory read afterwards. The race
// detector sees it.
func TestBodyIsLetGo(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, `{"error":"no"}`, http.StatusServiceUnavailable)
	}))
	defer s.Close()
	remote, err := New(s.URL, WithHeader("Authorization", "Bearer x"))
	require.NoError(t, err)
	const n = 4 << 20
	spec := &oip.Spec{Name: "m", Inputs: []oip.Tensor{{Name: "x", Type: oip.Uint8, Shape: []int64{n}}}}
	x := &exchange{in: [][]byte{make([]byte, n)}, shapes: [][]int64{{n}}}
	for range 5 {
		err := remote.Infer(t.Context(), spec, x)
		var e *oip.Error
		if !errors.As(err, &e) || e.Code != oip.Unavailable && e.Code != oip.Exhausted {
			t.Fatal(err)
		}
		for i := range x.in[0] {
			x.in[0][i]++
		}
	}
}

// TestContract: a server whose model has more is asked again; one that lacks something is an error that says what.
func TestContract(t *testing.T) {
	text := func(fields ...string) string {
		return "popefgen contract 2\niterations 1\n" + strings.Join(fields, "\n") + "\n"
	}
	more := text(`input "x" F32 [2]`, `output "y" F32 [2]`, `output "z" F32 [2]`)
	spec := &oip.Spec{Name: "m", Contract: text(`input "x" F32 [2]`, `output "y" F32 [2]`)}
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			w.WriteHeader(http.StatusPreconditionFailed)
			fmt.Fprintf(w, `{"error":"another","code":"FAILED_PRECONDITION","contract":%q}`, more)
			return
		}
		fmt.Fprint(w, `{"outputs":[]}`)
	}))
	defer s.Close()
	remote, err := New(s.URL)
	require.NoError(t, err)
	require.NoError(t, remote.Infer(t.Context(), spec, &exchange{}))
	require.Equal(t, 2, asked)
	asked, more = 0, text(`input "x" F32 [3]`, `output "y" F32 [2]`)
	require.ErrorContains(t, remote.Infer(t.Context(), spec, &exchange{}), "shape was [2], is [3]")
	require.Equal(t, 1, asked)
}
