package vet

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

// TestTensorCopy reads what is to be reported, and nothing else, from the
// comments of the test packages, and what the fixes make of them.
func TestTensorCopy(t *testing.T) {
	analysistest.RunWithSuggestedFixes(t, analysistest.TestData(), TensorCopy, "service", "other")
}
