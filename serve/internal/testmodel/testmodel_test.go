package testmodel

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// TestSimpleCompiles wants the model simple compiled for 1 to 8 samples, under the names and of the type that its clients
// insist on.
func TestSimpleCompiles(t *testing.T) {
	b, err := SimplePopEF()
	require.NoError(t, err)
	m, err := popef.LoadBytes("simple.popef", b)
	require.NoError(t, err)
	defer m.Close()
	f, err := family.Of(m)
	require.NoError(t, err)
	require.Len(t, f.Members, Samples)
	require.True(t, f.Dims[0].Rows, "smaller requests are filled up")
	var names []string
	for _, tensor := range f.Tensors {
		names = append(names, tensor.Name)
		require.Equal(t, popef.S32, tensor.Elem, tensor.Name)
	}
	require.Equal(t, []string{"INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1"}, names)
}

// TestSimple asks the model in Go for every number of samples.
func TestSimple(t *testing.T) {
	m := Simple()
	c := m.NewCall()
	for n := int64(Samples); n >= 1; n-- {
		shape := []int64{n, Elements}
		var in [2][]byte
		for i := range in {
			var err error
			in[i], err = c.Input(i, shape)
			require.NoError(t, err)
			require.Len(t, in[i], int(4*n*Elements))
			for j := 0; j < len(in[i]); j += 4 {
				binary.LittleEndian.PutUint32(in[i][j:], uint32(j*(i+1)))
			}
		}
		require.NoError(t, c.Run(context.Background()))
		for i, want := range []func(j int) int{func(j int) int { return 3 * j }, func(j int) int { return -j }} {
			out, got := c.Output(i)
			require.Equal(t, shape, got)
			require.Len(t, out, int(4*n*Elements))
			for j := 0; j < len(out); j += 4 {
				require.Equal(t, int32(want(j)), int32(binary.LittleEndian.Uint32(out[j:])))
			}
		}
	}
	require.EqualValues(t, Samples, m.Runs.Load())
}
