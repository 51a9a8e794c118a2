package kernel

import "testing"

// TestAssemblyPanel compares the width of a panel with that that the writer of the assembly has.
func TestAssemblyPanel(t *testing.T) { sameInAssembly(t, "panelBytes", panel*4) }
