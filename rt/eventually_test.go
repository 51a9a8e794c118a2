package rt_test

import (
	"testing"
	"time"
)

// eventually waits for something that another goroutine is about to do.
func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: still not after 20 s", what)
		}
	}
}
