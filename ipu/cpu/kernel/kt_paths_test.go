package kernel

import (
	"testing"

	"pgregory.net/rapid"
)

// eachPath runs fn on every path that the machine has.
func eachPath(t *testing.T, fn func(*testing.T)) {
	chosen := path
	defer func() { path = chosen }()
	for p := pathGo; p <= fastestPath(); p++ {
		t.Run(p.String(), func(t *testing.T) {
			path = p
			fn(t)
		})
	}
}

// draws returns how many of n random examples a test takes: fewer with -short,
// as rapid does.
func draws(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// checkPaths is rapid.Check on every path that the machine has.
func checkPaths(t *testing.T, property func(*rapid.T)) {
	eachPath(t, func(t *testing.T) { rapid.Check(t, property) })
}
