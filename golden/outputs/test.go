package outputs

import (
	"context"
	"errors"
	"flag"
	"testing"

	"github.com/popefgen/popefgen/rt"
)

// Test is the body of a generated package's TestGolden: it compares a
// session's runs over memory with the goldens in dir. Without goldens it skips
// the test. With the flag -update, which a package's tests define, it stores
// the outputs instead.
func Test(t *testing.T, dir string, s rt.Session, memory Memory, run func(ctx context.Context) error) {
	t.Helper()
	set, err := Open(dir)
	if errors.Is(err, ErrNoGoldens) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := ModelOf(s, memory, run)
	if err != nil {
		t.Fatal(err)
	}
	update := false
	if f := flag.Lookup("update"); f != nil {
		update = f.Value.String() == "true"
	}
	r, err := set.verify(t.Context(), m, update)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case update:
		t.Logf("stored in %s; until now:\n%v", dir, r)
	case r.OK():
		t.Logf("goldens in %s:\n%v", dir, r)
	default:
		t.Errorf("the outputs are not those in %s (-update stores them):\n%v", dir, r)
	}
}

// Allocations returns how often f allocates on average, rounded down, as [testing.AllocsPerRun] finds in five calls after a first
// one. That counts what every goroutine and the Go runtime allocate meanwhile too, as for one more thread: of up to three
// measurements the least counts. The allocation tests of generated packages call it.
func Allocations(f func()) float64 {
	least := testing.AllocsPerRun(5, f)
	for range 2 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(5, f))
	}
	return least
}
