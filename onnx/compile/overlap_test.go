package compile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt/genrt"
)

// TestAskOverlap records what runners look for.
// Feature 93.
func TestAskOverlap(t *testing.T) {
	r := &compile.Result{}
	r.AskOverlap()
	require.Equal(t, []popef.Option{{Name: genrt.OverlapOption, Value: "3"}}, r.Metadata.EngineOptions)
}
