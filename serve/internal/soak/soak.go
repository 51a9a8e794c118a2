// Package soak puts a server under load for a while: callers of every protocol who ask for any number of samples, set deadlines and hang up, devices
// that fail, models that are replaced all the while, now and then by one that would break callers. Tests bring the callers; what the server
// answers, what it counts and what it leaves behind is checked here.
package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// Both models are the model simple of package testmodel.
const (
	// Shared is asked by all callers, also those who leave before their answer: the server may have counted what they never learnt of.
	Shared = "shared"
	// Exact is asked by those who wait for their answer. It has few places.
	Exact = "exact"

	devices = 16      // for two replicas of both models, and of those that are drained
	slack   = 8 << 20 // bytes: what pools and connections keep differs
)

// Open opens a model of a name on devices, with two replicas.
type Open func(name string, popef []byte, devices *ipu.Manager) (oip.Model, error)

// Time returns how long a test soaks: what POPEFGEN_SOAK says, as "2m" in make soak, or else a moment.
func Time(t testing.TB) time.Duration {
	if s := os.Getenv("POPEFGEN_SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatalf("POPEFGEN_SOAK: %v", err)
		}
		return d
	}
	if testing.Short() {
		return time.Second
	}
	return 3 * time.Second
}

// Soak is a server under load.
type Soak struct {
	t       testing.TB
	d       time.Duration
	opener  Open
	system  *iputest.System
	popef   []byte
	other   []byte // a model that takes 17 elements
	tallies map[string]*tally
	over    atomic.Bool
	pause   sync.RWMutex // locked: nobody asks, and nothing is replaced

	left, reloads, breaking, faults atomic.Int64
}

// New returns a soak of Time.
func New(t testing.TB, open Open) *Soak {
	s := &Soak{t: t, d: Time(t), opener: open, system: iputest.New(iputest.Config{Devices: make([]ipu.DeviceInfo, devices)}), tallies: map[string]*tally{Shared: {}, Exact: {}}}
	var err error
	if s.popef, err = testmodel.SimplePopEF(); err != nil {
		t.Fatal(err)
	}
	m := testmodel.SimpleONNX()
	for _, values := range [][]onnx.ValueInfo{m.Graph.Inputs, m.Graph.Outputs} {
		for i := range values {
			values[i].Dims[1].Value = testmodel.Elements + 1
		}
	}
	if s.other, err = testmodel.Compile(m, 2); err != nil {
		t.Fatal(err)
	}
	return s
}

// Server returns a server of both models.
func (s *Soak) Server(opts ...serve.Option) *serve.Server {
	opts = append(opts, serve.WithDrain(0, 20*time.Second), serve.WithLimits(Exact, serve.Limits{Computing: 6, Waiting: 12}))
	for name := range s.tallies {
		m, err := s.open(name, s.popef)
		if err != nil {
			s.t.Fatal(err)
		}
		opts = append(opts, serve.WithModel(m))
	}
	srv, err := serve.New(opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return srv
}

func (s *Soak) open(name string, popef []byte) (oip.Model, error) {
	return s.opener(name, popef, s.system.Manager())
}

// Run runs a server that has begun to listen, has each caller ask until the time is over, and compares what the server counted with what the callers
// did: check, unless nil, does so through a protocol of the server. It returns once the server has ended.
func (s *Soak) Run(srv *serve.Server, callers []func() Caller, check func(Counted)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	for srv.Core().Ready() != nil {
		select {
		case err := <-ended:
			s.t.Fatalf("the server ended before it was ready: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	var all sync.WaitGroup
	for i, of := range callers {
		all.Go(func() { s.call(of, rand.New(rand.NewPCG(uint64(i), 7))) })
	}
	all.Go(func() { s.reload(srv.Core()) })
	all.Go(s.weather)
	time.Sleep(s.d / 4)
	warm := s.heap()
	time.Sleep(s.d * 3 / 4)
	end := s.heap()
	s.over.Store(true)
	all.Wait()
	s.compare(srv.Core(), check)
	cancel()
	if err := <-ended; err != nil {
		s.t.Errorf("the server ends: %v", err)
	}
	s.t.Logf("heap %d KB after warming up, %d KB at the end", warm>>10, end>>10)
	if v := s.system.Violations(); len(v) > 0 {
		s.t.Errorf("%d rules of devices are broken, the first is: %s", len(v), v[0])
	}
	if end > warm+warm/4+slack {
		s.t.Errorf("memory grows: %d KB after warming up, %d KB at the end", warm>>10, end>>10)
	}
}

// heap returns the bytes of the heap that are in use between requests, but for what devices remember of what happened.
func (s *Soak) heap() uint64 {
	s.pause.Lock()
	defer s.pause.Unlock()
	s.system.ClearLog()
	var m runtime.MemStats
	for range 3 { // finalizers too
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Descriptors returns how many files and connections the process has open, 0 where it can not tell.
func Descriptors(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Log("no /proc/self/fd: descriptors are not counted")
	}
	return len(entries)
}

// reload replaces one model after the other, every fifth time by one that is refused.
func (s *Soak) reload(c *core.Core) {
	every := min(time.Second, s.d/20)
	for i := 0; !s.over.Load(); i++ {
		time.Sleep(every)
		s.replace(c, i)
	}
}

func (s *Soak) replace(c *core.Core, i int) {
	s.pause.RLock()
	defer s.pause.RUnlock()
	name := []string{Shared, Exact}[i%2]
	popef, change := s.popef, i%5 != 4
	if !change {
		popef = s.other
	}
	m, err := s.open(name, popef)
	if err == nil {
		_, err = c.Load(context.Background(), m, core.Load{})
	}
	switch {
	case err == nil && change:
		s.reloads.Add(1)
	case err == nil:
		s.t.Error("a model that takes 17 elements took the place of one that takes 16")
	case strings.Contains(err.Error(), "injected"): // by a fault while it was opened or warmed up: the old one serves
	case !change && strings.Contains(err.Error(), "17"):
		s.breaking.Add(1)
	default:
		s.t.Errorf("reload: %v", err)
	}
}

// weather has devices fail, in ways that a reset repairs.
func (s *Soak) weather() {
	remove := func() {}
	for !s.over.Load() {
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		remove()
		f := []iputest.Fault{iputest.OnRun(), iputest.OnTransfer("h2d_INPUT1"), iputest.OnTransfer("anchor_d2h_OUTPUT0")}[rand.IntN(3)]
		remove = s.system.Inject(f, &ipu.Error{Kind: ipu.KindApplication, Err: errors.New("injected")})
		s.faults.Add(1)
	}
	remove()
}
