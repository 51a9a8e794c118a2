// Package core is what REST, gRPC and queues have in common: which models there are, who may have one compute, how long
// a request waits, and what is counted. It knows no protocol.
//
// A request goes: Lookup finds the version of the model that serves and holds it; Get gives memory, which the
// protocol fills from the transport; Run waits for a place and computes; the protocol writes the answer from
// the same memory; Put and Release give memory and version back.
package core

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// Core has the models of a server. Its methods may be called from any goroutine.
type Core struct {
	models atomic.Pointer[directory] // what requests see

	mu       sync.Mutex                   // of those that change it, and of what follows
	states   map[string]map[string]*state // of versions that serve, served or were refused, by model and version
	limits   map[string]Limits            // of models; "" of all others
	draining sync.WaitGroup               // versions that no longer serve and are not closed yet
	closing  atomic.Bool
	cut      chan struct{} // closed when requests have had their time to end
	ready    atomic.Bool

	available func() (map[string][]string, error) // versions of models that could be loaded; nil: nobody says
	authorize access.Func                         // nil: everybody may do everything
	observers []Observer
	traces    TraceObserver // one of them, which wants to know of which trace a request is a part; nil: none
}

// directory is which versions serve. It does not change: another takes its place.
type directory map[string]*serving

// serving is the versions of a model that serve, the latest first.
type serving struct{ versions []*Version }

// New returns a Core without models.
func New() *Core {
	c := &Core{states: map[string]map[string]*state{}, limits: map[string]Limits{}, cut: make(chan struct{})}
	c.models.Store(&directory{})
	return c
}

// Limits are those of requests to one version of a model. A field that is 0 has the default.
type Limits struct {
	Computing int // requests that compute at the same time; the default is what the model computes in parallel
	Waiting   int // requests that wait beside those; the default is 4 times as many; below 0: none
	// Timeout is how long a request may take from its header to its result, unless it or its transport says less.
	// The default is a minute.
	Timeout time.Duration
}

// SetLimits sets the limits of a model's versions, which are loaded afterwards. Those of "" are of models that have none of their own.
func (c *Core) SetLimits(model string, l Limits) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits[model] = l
}

func (c *Core) limitsOf(m oip.Model) Limits {
	l, ok := c.limits[m.Spec().Name]
	if !ok {
		l = c.limits[""]
	}
	if l.Computing <= 0 {
		l.Computing = max(m.Parallel(), 1)
	}
	switch {
	case l.Waiting == 0:
		l.Waiting = 4 * l.Computing
	case l.Waiting < 0:
		l.Waiting = 0
	}
	if l.Timeout <= 0 {
		l.Timeout = time.Minute
	}
	return l
}

// Lookup returns the version of a model that serves requests, "" is the latest, and holds it until Release.
func (c *Core) Lookup(name, version []byte) (*Version, error) {
	for {
		if c.closing.Load() {
			return nil, oip.Errorf(oip.Unavailable, "the server stops: ask another one")
		}
		m := (*c.models.Load())[string(name)]
		if m == nil && c.closing.Load() {
			continue // the models went since
		}
		if m == nil {
			return nil, oip.Errorf(oip.NotFound, "Request for unknown model: '%s' is not found", clip(name))
		}
		v := m.versions[0]
		if len(version) > 0 {
			if v = m.find(string(version)); v == nil {
				return nil, m.without(name, version)
			}
		}
		if v.hold() {
			return v, nil
		}
		// It was replaced between the two: the directory has another one now.
	}
}

// without is the error about a version that there is not. Clients of Triton look for its words about versions that are no numbers.
func (m *serving) without(name, version []byte) error {
	text := fmt.Sprintf("Request for unknown model: '%s' version %s is not found", clip(name), clip(version))
	if _, err := strconv.ParseUint(string(version), 10, 63); err != nil {
		text += fmt.Sprintf(": failed to get model version from specified version string '%s', the latest is %s", clip(version), m.versions[0].Name)
	}
	return &oip.Error{Code: oip.NotFound, Text: text}
}

func clip(s []byte) []byte { return s[:min(len(s), 256)] }

func (m *serving) find(version string) *Version {
	for _, v := range m.versions {
		if v.Name == version {
			return v
		}
	}
	return nil
}

// Version is one version of a model that is served.
type Version struct {
	Name string // of the version, "1" unless a directory says otherwise
	Spec *oip.Spec

	core   *Core
	model  oip.Model
	hash   string // of the contract; "" if there is none
	limits Limits
	gate   gate
	counts *counts
	warmed atomic.Bool
	calls  sync.Pool

	held    atomic.Int64  // requests and whoever else holds it, and 1 as long as it serves; 0: closing
	drained chan struct{} // closed at 0
}

func (v *Version) hold() bool {
	for {
		n := v.held.Load()
		if n == 0 {
			return false
		}
		if v.held.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release lets the version go.
func (v *Version) Release() {
	if v.held.Add(-1) == 0 {
		close(v.drained)
	}
}

// Limits returns the limits of requests to the version.
func (v *Version) Limits() Limits { return v.limits }

// Hash returns the hash of the model's contract, "" if it has none.
func (v *Version) Hash() string { return v.hash }

// Call is one request to a version: what it says, and the memory of its tensors.
type Call struct {
	wire.Request
	Memory   oip.Call
	Protocol Protocol
	Deadline time.Time // by the transport; zero if it has none
	Received int       // bytes of the request
	Sent     int       // bytes of the answer
	// Traceparent and Tracestate are the headers of W3C Trace Context, as the caller sent them. Protocols set them only if Traced.
	Traceparent, Tracestate string
	// Err is what the protocol answered if that is not what Run returned: a request that it could not read, an answer
	// that it could not write. It is set before Put.
	Err error
	// Times of the request. Those of what did not happen are zero.
	Times Times
	// Batches are the marks that a TraceObserver gave the runs that computed the request.
	Batches []any
	// Kept is the TraceObserver's, which sets it in Begin: memory that the next requests of the call use again, unless a context that was
	// derived from this one's may outlive it.
	Kept any

	ctx      context.Context // what the observers made of the transport's
	computes *callContext
	follower *follower
	runs     int // that computed the request, as far as the runtime told
	ran      bool
	until    time.Time // the earliest of its deadlines
	place    chan struct{}
	timer    *time.Timer
	queued   bool
	before   *Call // in line
	after    *Call
	spoiled  bool // a model that panicked may still have its memory
}

// Times says when a request got how far.
type Times struct {
	Begun     time.Time // its header was there
	Queued    time.Time // its body was read
	Computing time.Time // it got a place
	Running   time.Time // the first run that computed it began; zero also where nobody tells of runs
	Computed  time.Time // the model returned
	Ended     time.Time // its answer was written
}

// Protocol says what a request came through.
type Protocol uint8

// The protocols.
const (
	REST Protocol = iota
	GRPC
	Queue
)

var protocols = [...]string{"REST", "gRPC", "queue"}

// String returns its name.
func (p Protocol) String() string { return protocols[p] }

// Observer learns of every request to a version, as logs and traces want to. Without one nothing is called.
type Observer interface {
	// Begin is called in Run, before the request waits. The model computes with the context that it returns.
	Begin(ctx context.Context, v *Version, c *Call) context.Context
	// End is called in Put, when the answer is written. ctx is what Begin returned, or the background's if the request did not come
	// to Run. err is what was answered, nil for success. c and what it has are valid until End returns.
	End(ctx context.Context, v *Version, c *Call, err error)
}

// Observe has o called for every request. It is called before the server serves; observers are asked in that order.
func (c *Core) Observe(o Observer) { c.observers = append(c.observers, o) }

// TraceObserver is an Observer that reads Traceparent and Tracestate of calls, and learns which requests shared a run.
type TraceObserver interface {
	Observer
	// Mark returns what Ran gets of a request whose samples wait for a run: ctx is what Begin returned. nil is nothing.
	Mark(ctx context.Context) any
	// Ran is called once for every run, with the marks of the requests that share it, which are valid until it returns. What it returns,
	// unless nil, stands in Batches of their calls. It may be called from several goroutines at the same time.
	Ran(v *Version, r rt.Run, marks []any) any
}

// ObserveTraces is Observe for an observer of traces. It reports false, and does nothing, if there is one already.
func (c *Core) ObserveTraces(o TraceObserver) bool {
	if c.traces != nil {
		return false
	}
	c.traces = o
	c.Observe(o)
	return true
}

// Traced reports whether protocols should set Traceparent and Tracestate of calls.
func (c *Core) Traced() bool { return c.traces != nil }
