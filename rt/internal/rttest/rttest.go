// Package rttest helps the tests of rt and its rooms.
package rttest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Steady is something that allocates nothing, however often it is done.
type Steady struct {
	Name string
	Of   string // the methods that it is about, as "Type.Method Type.Method"
	Make func(t *testing.T) func() error
}

// NoAllocations does everything in the table again and again, and fails for a
// method of types that is neither in the table nor in others, which lists those
// that are for the beginning, the end or people.
func NoAllocations(t *testing.T, others string, table []Steady, types ...any) {
	known := strings.Fields(others)
	for _, row := range table {
		known = append(known, strings.Fields(row.Of)...)
	}
	for _, v := range types {
		typ := reflect.TypeOf(v)
		name, _, _ := strings.Cut(typ.String()[strings.Index(typ.String(), ".")+1:], "[")
		for i := range typ.NumMethod() {
			require.Contains(t, known, name+"."+typ.Method(i).Name, "add it to the table")
		}
	}
	if RaceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, row := range table {
		t.Run(row.Name, func(t *testing.T) {
			f := row.Make(t)
			require.Zero(t, testing.AllocsPerRun(200, func() {
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}))
		})
	}
}

// Eventually waits for something that another goroutine is about to do.
func Eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: still not after 20 s", what)
		}
	}
}
