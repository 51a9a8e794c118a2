package kerneltest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// EachPath runs fn on every path that the machine has.
func EachPath(t *testing.T, fn func(*testing.T)) {
	chosen := tensor.Path
	defer func() { tensor.Path = chosen }()
	for p := tensor.PathGo; p <= tensor.FastestPath(); p++ {
		t.Run(p.String(), func(t *testing.T) {
			tensor.Path = p
			fn(t)
		})
	}
}

// Draws returns how many of n random examples a test takes: fewer with -short,
// as rapid does.
func Draws(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// CheckPaths is rapid.Check on every path that the machine has.
func CheckPaths(t *testing.T, property func(*rapid.T)) {
	EachPath(t, func(t *testing.T) { rapid.Check(t, property) })
}
