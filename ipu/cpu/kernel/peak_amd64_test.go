package kernel

import "testing"

// TestAssemblyPeak compares the products of a round with those that the writer of the assembly has.
func TestAssemblyPeak(t *testing.T) { sameInAssembly(t, "peakFMAs", peakFMAs) }
