package export

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

func TestDataType(t *testing.T) {
	for d := graph.Bool; d.Valid(); d++ {
		p, ok := DataType(d)
		require.True(t, ok, "%s", d)
		require.Equal(t, d.Size(), p.Size(), "%s", d)
	}
	_, err := Info(graph.TensorType{})
	require.ErrorContains(t, err, "no PopEF form")
}
