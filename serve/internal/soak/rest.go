package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// REST returns callers over REST of a server at an address.
func REST(address string) func() Caller {
	return func() Caller { return &rest{address, &http.Client{Transport: &http.Transport{}}} }
}

type rest struct {
	address string
	client  *http.Client
}

func (c *rest) Protocol() core.Protocol { return core.REST }
func (c *rest) Most() int               { return 1 }
func (c *rest) Close() error {
	c.client.CloseIdleConnections()
	return nil
}

func (c *rest) Ask(ctx context.Context, model string, all []Request) ([]Answer, error) {
	q := &all[0]
	body, header := q.encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address+"/v2/models/"+model+"/infer", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	// The server closes a connection that waits for its first request for 5 seconds; one that is sent at that moment may be sent again.
	r.Header["Idempotency-Key"] = nil
	if !q.Text {
		r.Header.Set("Inference-Header-Content-Length", strconv.Itoa(header))
	}
	w, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		return nil, err
	}
	return []Answer{decode(w, text)}, nil
}

// encode returns a request, and the size of its header if it has binary tensors.
func (q *Request) encode() (body []byte, header int) {
	input := func(name string, v []int32) string {
		what := fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, 4*len(v))
		if q.Text {
			list, _ := json.Marshal(v) // integers
			what = `"data":` + string(list)
		}
		return fmt.Sprintf(`{"name":%q,"datatype":"INT32","shape":[%d,%d],%s}`, name, q.Samples, testmodel.Elements, what)
	}
	more := ""
	if q.Timeout > 0 {
		more += fmt.Sprintf(`,"timeout":%d`, q.Timeout.Microseconds())
	}
	if q.Priority > 0 {
		more += fmt.Sprintf(`,"priority":%d`, q.Priority)
	}
	body = fmt.Appendf(nil, `{"id":%q,"inputs":[%s,%s],"parameters":{"binary_data_output":%v%s}}`, q.ID, input("INPUT0", q.A), input("INPUT1", q.B), !q.Text, more)
	if q.Text {
		return body, 0
	}
	header = len(body)
	return append(append(body, Bytes(q.A)...), Bytes(q.B)...), header
}

// Bytes returns integers as protocols send them.
func Bytes(v []int32) (b []byte) {
	for _, e := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(e))
	}
	return b
}

// Integers returns what Bytes made bytes of.
func Integers(b []byte) (v []int32) {
	for ; len(b) >= 4; b = b[4:] {
		v = append(v, int32(binary.LittleEndian.Uint32(b)))
	}
	return v
}

// unreadable is an answer that is none.
func unreadable(w *http.Response, text []byte) Answer {
	return Answer{Err: oip.Errorf(oip.InvalidArgument, "an answer that is none: %s: %.200s", w.Status, text)}
}

func decode(w *http.Response, text []byte) Answer {
	var got struct {
		ID          string
		Error, Code string
		Outputs     []struct{ Data []int32 }
	}
	head := text
	if n, err := strconv.Atoi(w.Header.Get("Inference-Header-Content-Length")); err == nil && n >= 0 && n <= len(text) {
		head = text[:n]
	}
	if err := json.Unmarshal(head, &got); err != nil {
		return unreadable(w, text)
	}
	if w.StatusCode != http.StatusOK {
		for code := oip.Internal; code <= oip.Unsupported; code++ {
			if code.String() == got.Code && code.HTTP() == w.StatusCode && (code != oip.Exhausted || w.Header.Get("Retry-After") != "") {
				return Answer{Err: oip.Errorf(code, "%s", got.Error)}
			}
		}
		return unreadable(w, text)
	}
	if len(got.Outputs) != 2 {
		return unreadable(w, text)
	}
	a := Answer{ID: got.ID, Sum: got.Outputs[0].Data, Difference: got.Outputs[1].Data}
	if rest := text[len(head):]; a.Sum == nil && len(rest)%8 == 0 {
		a.Sum, a.Difference = Integers(rest[:len(rest)/2]), Integers(rest[len(rest)/2:])
	}
	return a
}

// CheckREST returns a check of the statistics and metrics that a server gives over REST.
func CheckREST(t testing.TB, address string) func(Counted) {
	return func(want Counted) {
		get := func(path string) []byte {
			c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			r, err := c.Get("http://" + address + path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			text, err := io.ReadAll(r.Body)
			if err != nil || r.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s: %v", path, r.Status, err)
			}
			return text
		}
		type counted struct{ Count uint64 }
		var s struct {
			Models []struct {
				Inferences uint64                          `json:"inference_count"`
				Executions uint64                          `json:"execution_count"`
				Stats      struct{ Success, Fail counted } `json:"inference_stats"`
				Batches    []struct {
					Size  int     `json:"batch_size"`
					Infer counted `json:"compute_infer"`
				} `json:"batch_stats"`
			} `json:"model_stats"`
		}
		if err := json.Unmarshal(get("/v2/models/"+Exact+"/stats"), &s); err != nil || len(s.Models) != 1 {
			t.Fatalf("statistics of %d versions: %v", len(s.Models), err)
		}
		m := &s.Models[0]
		same := func(what string, got, want uint64) {
			if got != want {
				t.Errorf("REST: the server counted %d %s, its callers %d", got, what, want)
			}
		}
		same("samples", m.Inferences, want.Samples)
		same("requests that succeeded", m.Stats.Success.Count, want.Done())
		same("requests that failed", m.Stats.Fail.Count, want.Failures())
		runs, computed := uint64(0), uint64(0)
		for _, b := range m.Batches {
			runs, computed = runs+b.Infer.Count, computed+uint64(b.Size)*b.Infer.Count
		}
		same("executions", m.Executions, runs)
		if computed < want.Samples {
			t.Errorf("REST: the server counted %d samples in its executions, and %d were answered", computed, want.Samples)
		}
		metrics := map[string]uint64{}
		lines := bufio.NewScanner(bytes.NewReader(get("/metrics")))
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if n, err := strconv.ParseFloat(value, 64); err == nil && strings.Contains(name, `model="`+Exact+`"`) {
				metrics[name] = uint64(n)
			}
		}
		for p := range want.OK {
			name := strings.ToLower(core.Protocol(p).String())
			series := func(outcome string) string {
				return fmt.Sprintf(`popefgen_requests_total{model="%s",outcome="%s",protocol="%s",version="1"}`, Exact, outcome, name)
			}
			if _, ok := metrics[series("ok")]; !ok && want.OK[p] > 0 {
				t.Errorf("no metric %s", series("ok"))
			}
			same("requests over "+name+" in its metrics", metrics[series("ok")], want.OK[p])
		}
		one := func(name string) uint64 { return metrics[name+`{model="`+Exact+`",version="1"}`] }
		same("refused in its metrics", one("popefgen_refused_total"), want.Refused)
		same("samples in its metrics", one("popefgen_samples_total"), want.Samples)
		same("answers in its histogram", one("popefgen_request_seconds_count"), want.Done())
		same("requests of any size in its histogram", one("popefgen_request_samples_count"), want.Done())
		same("in flight", one("popefgen_in_flight"), 0)
	}
}
