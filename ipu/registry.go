package ipu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// providers says how a program gets the back ends of this module.
var providers = map[string]string{
	"cpu":    `import _ "github.com/popefgen/popefgen/ipu/cpu"`,
	"poplar": `import _ "github.com/popefgen/popefgen/ipu/poplar" and build with -tags poplar on Linux with cgo (CGO_ENABLED=1)`,
}

// registry holds back ends by name.
type registry struct {
	mu       sync.RWMutex
	backends map[string]Backend
}

var registered registry

func (r *registry) add(b Backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := b.Name()
	if name == "" {
		panic("ipu: register a back end: its name is empty")
	}
	if _, ok := r.backends[name]; ok {
		panic(fmt.Sprintf("ipu: register back end %q: it is already registered", name))
	}
	if r.backends == nil {
		r.backends = map[string]Backend{}
	}
	r.backends[name] = b
}

func (r *registry) remove(b Backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backends[b.Name()] == b {
		delete(r.backends, b.Name())
	}
}

func (r *registry) names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.backends))
}

// all returns the back ends in the order of their names.
func (r *registry) all() []Backend {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.backends), func(a, b Backend) int { return strings.Compare(a.Name(), b.Name()) })
}

func (r *registry) lookup(name string) (Backend, error) {
	r.mu.RLock()
	b := r.backends[name]
	r.mu.RUnlock()
	if b != nil {
		return b, nil
	}
	return nil, unknownBackend(name, r.all())
}

// unknownBackend is the error for a name that no back end has.
func unknownBackend(name string, all []Backend) error {
	have := "no back end is registered"
	for i, b := range all {
		if i == 0 {
			have = "registered: " + b.Name()
		} else {
			have += ", " + b.Name()
		}
	}
	err := fmt.Errorf("%w %q (%s)", ErrUnknownBackend, name, have)
	if remedy, ok := providers[name]; ok {
		err = fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}

// Register adds a back end; a back end's package calls it in its init. It
// panics if the name is empty or taken.
func Register(b Backend) { registered.add(b) }

// Unregister removes b, if it is registered, as the back end of a test is when
// the test ends. Its devices and engines go on working.
func Unregister(b Backend) { registered.remove(b) }

// Backends returns the names of all registered back ends, sorted.
func Backends() []string { return registered.names() }

// Lookup returns the back end of that name. The error wraps
// [ErrUnknownBackend], lists what is registered and says which import is
// missing.
func Lookup(name string) (Backend, error) { return registered.lookup(name) }
