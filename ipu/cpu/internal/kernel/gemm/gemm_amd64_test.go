package gemm

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestAssemblyPanel compares the width of a panel with that that the writer of the assembly has.
func TestAssemblyPanel(t *testing.T) { kerneltest.SameInAssembly(t, "panelBytes", Panel*4) }
