package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/dynamic"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

const (
	callers  = 64
	devices  = 8 // for two replicas of a model, and of those that are drained
	elements = testmodel.Elements

	deviceLog = 24 << 20 // bytes that test devices remember of what happened, at most
)

// soakTime is how long TestSoak lasts: what POPEFGEN_SOAK says, as "2m" in make soak, or else a moment.
func soakTime(t *testing.T) time.Duration {
	if s := os.Getenv("POPEFGEN_SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		require.NoError(t, err, "POPEFGEN_SOAK is a duration")
		return d
	}
	if testing.Short() {
		return time.Second
	}
	return 3 * time.Second
}

// What is counted.
const (
	right = iota
	canceled
	late
	refused
	failed
	reloads
	breaking
	faults
	counts
)

var names = [counts]string{"right", "canceled", "late", "refused", "failed by devices", "reloads", "breaking models refused", "faults"}

// soak is a server of the model simple on test devices.
type soak struct {
	t       *testing.T
	address string
	core    *core.Core
	system  *iputest.System
	popef   []byte
	other   []byte // a model of the same name that takes 17 elements
	number  atomic.Int32
	count   [counts]atomic.Int64
	over    atomic.Bool
}

// TestSoak has 64 callers ask for sums and differences of numbers of their own, in JSON and binary, of any number of samples, some with deadlines too
// short and some that hang up, while devices fail, the model is replaced by another of the same contract and, now and then, by one
// that would break callers. Every answer must belong to its request, none may be refused for a reason that there was not, and
// nothing is left at the end.
func TestSoak(t *testing.T) {
	before := goleak.IgnoreCurrent()
	descriptors := open(t)
	d := soakTime(t)
	s := newSoak(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = l.Addr().String()
	m, err := s.open(s.popef)
	require.NoError(t, err)
	srv, err := serve.New(serve.WithModel(m), serve.WithHTTPListener(l), serve.WithDrain(0, 20*time.Second))
	require.NoError(t, err)
	s.core = srv.Core()
	go func() { ended <- srv.Run(ctx) }()

	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { s.call(rand.New(rand.NewPCG(uint64(i), 7))) })
	}
	all.Go(s.reload)
	all.Go(s.weather)
	time.Sleep(d / 4)
	warm := heap()
	time.Sleep(d * 3 / 4)
	end := heap()
	s.over.Store(true)
	all.Wait()
	cancel()
	require.NoError(t, <-ended)
	for i, name := range names {
		t.Logf("%8d %s", s.count[i].Load(), name)
	}
	t.Logf("heap %d KB after warming up, %d KB at the end", warm>>10, end>>10)
	require.LessOrEqual(t, end, warm+warm/4+deviceLog, "memory grows")
	happened := []int{right, faults}
	if d >= 20*time.Second {
		happened = []int{right, canceled, late, failed, reloads, breaking, faults}
	}
	for _, i := range happened {
		require.Positive(t, s.count[i].Load(), names[i])
	}
	goleak.VerifyNone(t, before)
	require.LessOrEqual(t, open(t), descriptors, "descriptors are left open")
}

func newSoak(t *testing.T) *soak {
	s := &soak{t: t, system: iputest.New(iputest.Config{Devices: make([]ipu.DeviceInfo, devices)})}
	var err error
	s.popef, err = testmodel.SimplePopEF()
	require.NoError(t, err)
	m := testmodel.SimpleONNX()
	for _, values := range [][]onnx.ValueInfo{m.Graph.Inputs, m.Graph.Outputs} {
		for i := range values {
			values[i].Dims[1].Value = elements + 1
		}
	}
	s.other, err = testmodel.Compile(m, 2)
	require.NoError(t, err)
	return s
}

func (s *soak) open(popef []byte) (oip.Model, error) {
	return dynamic.OpenBytes(context.Background(), "simple", popef, dynamic.WithReplicas(2), dynamic.WithRunner(rt.WithManager(s.system.Manager()), rt.AutoReset()))
}

// open returns how many descriptors the process has, 0 where it can not tell.
func open(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Log("no /proc/self/fd: descriptors are not counted")
	}
	return len(entries)
}

// heap returns the bytes of the heap that are in use.
func heap() uint64 {
	var m runtime.MemStats
	for range 3 { // finalizers too
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// reload replaces the model, every fifth time by one that is refused.
func (s *soak) reload() {
	every := min(time.Second, soakTime(s.t)/20)
	for i := 0; !s.over.Load(); i++ {
		time.Sleep(every)
		popef, change := s.popef, i%5 != 4
		if !change {
			popef = s.other
		}
		m, err := s.open(popef)
		if err == nil {
			_, err = s.core.Load(context.Background(), m, core.Load{})
		}
		switch {
		case err == nil && change:
			s.count[reloads].Add(1)
		case err == nil:
			s.t.Error("a model that takes 17 elements took the place of one that takes 16")
		case strings.Contains(err.Error(), "injected"): // by a fault while it was opened or warmed up: the old one serves
		case !change && strings.Contains(err.Error(), "17"):
			s.count[breaking].Add(1)
		default:
			s.t.Errorf("reload: %v", err)
		}
	}
}

// weather has devices fail, in ways that a reset repairs.
func (s *soak) weather() {
	remove := func() {}
	for !s.over.Load() {
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		remove()
		f := []iputest.Fault{iputest.OnRun(), iputest.OnTransfer("h2d_INPUT1"), iputest.OnTransfer("anchor_d2h_OUTPUT0")}[rand.IntN(3)]
		remove = s.system.Inject(f, &ipu.Error{Kind: ipu.KindApplication, Err: errors.New("injected")})
		s.count[faults].Add(1)
	}
	remove()
}

// call makes requests until it is over.
func (s *soak) call(r *rand.Rand) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for !s.over.Load() {
		s.request(client, r)
	}
}

func (s *soak) request(client *http.Client, r *rand.Rand) {
	n := 1 + r.IntN(testmodel.Samples)
	first := s.number.Add(int32(n*elements)) * 2
	a, b := make([]int32, n*elements), make([]int32, n*elements)
	for i := range a {
		a[i], b[i] = first+int32(i), int32(r.IntN(1000))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	timeout, hangUp := "", false
	switch r.IntN(8) {
	case 0:
		timeout = fmt.Sprintf(`,"timeout":%d`, 1+r.IntN(300)) // microseconds
	case 1:
		hangUp = true
		time.AfterFunc(time.Duration(r.IntN(1000))*time.Microsecond, cancel)
	}
	binary := r.IntN(2) == 0
	body, header := encode(n, a, b, timeout, binary)
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.address+"/v2/models/simple/infer", bytes.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return
	}
	if binary {
		q.Header.Set("Inference-Header-Content-Length", strconv.Itoa(header))
	}
	answer, status, err := do(client, q)
	if err != nil {
		if !hangUp {
			s.t.Errorf("a request without an answer: %v", err)
		}
		s.count[canceled].Add(1)
		return
	}
	switch text := string(answer); {
	case status.StatusCode == http.StatusOK:
		s.check(answer, status.Header, a, b)
	case status.StatusCode == http.StatusGatewayTimeout && timeout != "":
		s.count[late].Add(1)
	case status.StatusCode == http.StatusServiceUnavailable && status.Header.Get("Retry-After") != "":
		s.count[refused].Add(1)
		time.Sleep(time.Millisecond)
	case (status.StatusCode == http.StatusInternalServerError || status.StatusCode == http.StatusServiceUnavailable) && strings.Contains(text, "device"):
		s.count[failed].Add(1)
	default:
		s.t.Errorf("status %s without a reason: %.300s", status.Status, text)
	}
}

func do(client *http.Client, q *http.Request) ([]byte, *http.Response, error) {
	w, err := client.Do(q)
	if err != nil {
		return nil, nil, err
	}
	defer w.Body.Close()
	answer, err := io.ReadAll(w.Body)
	return answer, w, err
}

// encode returns a request, and the size of its header if it has binary tensors.
func encode(n int, a, b []int32, timeout string, raw bool) ([]byte, int) {
	input := func(name string, v []int32) string {
		what := fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, 4*len(v))
		if !raw {
			list, _ := json.Marshal(v) // integers
			what = `"data":` + string(list)
		}
		return fmt.Sprintf(`{"name":%q,"datatype":"INT32","shape":[%d,%d],%s}`, name, n, elements, what)
	}
	head := fmt.Sprintf(`{"inputs":[%s,%s],"parameters":{"binary_data_output":%v%s}}`, input("INPUT0", a), input("INPUT1", b), raw, timeout)
	if !raw {
		return []byte(head), 0
	}
	body := []byte(head)
	for _, v := range [][]int32{a, b} {
		for _, e := range v {
			body = binary.LittleEndian.AppendUint32(body, uint32(e))
		}
	}
	return body, len(head)
}

// check wants the sums and differences of a and b.
func (s *soak) check(answer []byte, header http.Header, a, b []int32) {
	var got struct{ Outputs []struct{ Data []int32 } }
	head := answer
	if n, err := strconv.Atoi(header.Get("Inference-Header-Content-Length")); err == nil {
		head = answer[:n]
	}
	if err := json.Unmarshal(head, &got); err != nil || len(got.Outputs) != 2 {
		s.t.Errorf("an answer that is none: %v: %.200s", err, head)
		return
	}
	rest := answer[len(head):]
	for o := range got.Outputs {
		data := got.Outputs[o].Data
		if data == nil {
			for i := 0; i+4 <= len(rest) && len(data) < len(a); i += 4 {
				data = append(data, int32(binary.LittleEndian.Uint32(rest[i:])))
			}
			rest = rest[4*len(data):]
		}
		if len(data) != len(a) {
			s.t.Errorf("output %d has %d elements, expected %d", o, len(data), len(a))
			return
		}
		for i := range a {
			if want := a[i] + b[i]*int32(1-2*o); data[i] != want {
				s.t.Errorf("the answer to another request: output %d has %d at %d, expected %d", o, data[i], i, want)
				return
			}
		}
	}
	s.count[right].Add(1)
}
