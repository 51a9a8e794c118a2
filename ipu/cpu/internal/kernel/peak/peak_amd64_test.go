package peak

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestAssemblyPeak compares the products of a round with those that the writer of the assembly has.
func TestAssemblyPeak(t *testing.T) { kerneltest.SameInAssembly(t, "peakFMAs", peakFMAs) }
