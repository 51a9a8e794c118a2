package peak

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestStubs runs the loops, which touch no memory.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Each(func(set kerneltest.Set) {
		call := peakAVX2
		if set.Wide() {
			call = peakAVX512
		}
		for n := 1; n <= 3; n++ {
			s.Run("peak"+set.Name, func(*kerneltest.Guarded) { call(n) })
		}
	})
	s.Finish()
}
