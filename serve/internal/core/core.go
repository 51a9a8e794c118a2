// Package core is what REST, gRPC and queues have in common: which models there are, who may have one compute, how long
// a request waits, and what is counted. It knows no protocol.
//
// A request goes: Lookup finds the version of the model that serves and holds it; Get gives memory, which the
// protocol fills from the transport; Run waits for a place and computes; the protocol writes the answer from
// the same memory; Put and Release give memory and version back.
package core

import (
	"context"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// Core has the models of a server. Its methods may be called from any goroutine.
type Core struct {
	mu     sync.RWMutex
	models map[string]*Version

	authorize access.Func // nil: everybody may do everything
	ready     atomic.Bool
}

// New returns a Core without models.
func New() *Core { return &Core{models: map[string]*Version{}} }

// Add serves a model under the name of its Spec.
func (c *Core) Add(m oip.Model) (*Version, error) {
	spec := *m.Spec()
	v := &Version{Name: "1", Spec: &spec, model: m}
	v.calls.New = func() any { return &Call{Memory: m.NewCall()} }
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.models[spec.Name]; ok {
		return nil, oip.Errorf(oip.InvalidArgument, "there are two models with the name '%s'; give one another name", spec.Name)
	}
	c.models[spec.Name] = v
	return v, nil
}

// Lookup returns the version of a model that serves requests, "" is the latest, and holds it until Release.
func (c *Core) Lookup(name, version []byte) (*Version, error) {
	c.mu.RLock()
	v := c.models[string(name)]
	c.mu.RUnlock()
	if v == nil {
		return nil, oip.Errorf(oip.NotFound, "Request for unknown model: '%s' is not found", name)
	}
	if len(version) > 0 && v.Name != string(version) {
		return nil, oip.Errorf(oip.NotFound, "Request for unknown model: '%s' version %s is not found", name, version)
	}
	return v, nil
}

// Names returns the names of the models, sorted.
func (c *Core) Names() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var names []string
	for n := range c.models {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Version is one version of a model that is served.
type Version struct {
	Name string // of the version, "1" unless a directory says otherwise
	Spec *oip.Spec

	model oip.Model
	calls sync.Pool
}

// Refusal returns the error that a request would get now because the model's limit is reached or the server
// drains, nil if it would be taken. Protocols ask before they read a body.
func (v *Version) Refusal() error { return nil }

// Get returns memory for one request.
func (v *Version) Get() *Call {
	c := v.calls.Get().(*Call)
	c.Request.Reset(v.Spec)
	return c
}

// Put gives the memory back. What Output returned is no longer valid.
func (v *Version) Put(c *Call) { v.calls.Put(c) }

// Run waits until the model may compute the request and computes it. Its context is that of the
// transport: it ends when the caller is gone.
func (v *Version) Run(ctx context.Context, c *Call) error {
	return c.Memory.Run(ctx)
}

// Release lets the version go.
func (v *Version) Release() {}

// Call is one request to a version: what it says, and the memory of its tensors.
type Call struct {
	wire.Request
	Memory   oip.Call
	Protocol Protocol
	Deadline time.Time // by the transport; zero if it has none
	Received int       // bytes of the request
	Sent     int       // bytes of the answer
}

// Protocol says what a request came through.
type Protocol uint8

// The protocols.
const (
	REST Protocol = iota
	GRPC
	Queue
)
