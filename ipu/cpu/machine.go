package cpu

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/peak"
)

// Path names the instructions with which operators are computed, as
// POPEFGEN_CPU does: "avx512", "avx2" or "go".
func Path() string { return kernel.Path() }

// Peak measures how many float32 additions and multiplications a second the
// machine does at most on that many threads at the same time, with the
// instructions of [Path]: a loop that touches no memory and whose operations do
// not wait for each other. It takes some 30 ms.
func Peak(threads int) float64 { return peak.Peak(threads) }
