package onnxtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Root returns the folder of this module.
func Root(t testing.TB) string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatalf("no go.mod in the folders above the test's: %v", err)
	return ""
}

// Data returns the folder of public test data, $POPEFGEN_TESTDATA or shared beside the
// module, or skips the test.
func Data(t testing.TB) string {
	dir := os.Getenv("POPEFGEN_TESTDATA")
	if dir == "" {
		dir = filepath.Join(Root(t), "..", "shared")
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		t.Skipf("no public test data in %s (set POPEFGEN_TESTDATA)", dir)
	}
	return dir
}
