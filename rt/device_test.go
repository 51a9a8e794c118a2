package rt_test

import (
	"testing"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
)

// testSystem is a system of test devices, as tests ask for it: through is how its
// engines compute, of themselves or behind another back end.
type testSystem struct{ *iputest.System }

// newSystem makes a system.
func newSystem(c iputest.Config) *testSystem { return &testSystem{iputest.New(c)} }

// Manager returns a manager of the system's devices alone, with its clock.
func (s *testSystem) Manager() *ipu.Manager {
	m := s.System.Manager()
	m.Backends = []ipu.Backend{through(s.System)}
	return m
}

// Register makes the system a registered back end until the test ends.
func (s *testSystem) Register(t testing.TB) *testSystem {
	s.System.Register(t)
	if b := through(s.System); b != ipu.Backend(s.System) {
		ipu.Unregister(s.System)
		ipu.Register(b)
		t.Cleanup(func() {
			ipu.Unregister(b)
			ipu.Register(s.System) // which its own cleanup unregisters
		})
	}
	return s
}
