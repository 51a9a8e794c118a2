package costs

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/stretchr/testify/require"
)

// TestUsualCosts wants a measured record for every path.
func TestUsualCosts(t *testing.T) {
	for _, path := range kernel.CostPaths() {
		c := usualCosts()[path]
		require.NoError(t, c.Check(), path)
		require.Equal(t, path, c.Path)
		require.NotEmpty(t, c.Processor)
		text, err := c.JSON()
		require.NoError(t, err)
		file, err := os.ReadFile(path + ".json")
		require.NoError(t, err)
		require.Equal(t, string(file), string(text), "the file is not as popefgen calibrate writes it")
		again, err := Parse(text)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(c, again))
	}
	if nchwc.Lanes() > 0 {
		require.Equal(t, kernel.CostPath(), Usual().Path)
	}
}

// FuzzParseCosts reads anything. What is a record can be written and read again.
func FuzzParseCosts(f *testing.F) {
	for _, path := range kernel.CostPaths() {
		text, err := usualCosts()[path].JSON()
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"format":1,"path":"avx2","node_ns":-0}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			require.ErrorIs(t, err, ErrRecord)
			return
		}
		text, err := c.JSON()
		require.NoError(t, err)
		again, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}
