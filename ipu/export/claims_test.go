package export_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestClaims opens files of which the executable makes other transfers than they claim: fewer would leave
// memory of callers as it was.
func TestClaims(t *testing.T) {
	c := newCounter(t, 4, 1, 1)
	c.output(returning{export.EveryN, 2})
	m, err := export.Training(c.exe, c.layout)
	require.NoError(t, err)
	require.NoError(t, m.Encode())
	file, err := m.Bytes()
	require.NoError(t, err)
	const claim = `"count":2`
	require.Equal(t, 2, bytes.Count(file, []byte(claim)), "outputs of the forward and the update graph")
	for _, tt := range []struct{ count, want string }{
		{claim, ""},
		{`"count":1`, "it 2 times, and the file says 1"},
		{`"count":3`, "it 2 times, and the file says 3"},
		{`"count":4`, "it 2 times, and the file says 4"}, // as many as there are batches
	} {
		model, err := popef.LoadBytes("claims.popef", bytes.ReplaceAll(file, []byte(claim), []byte(tt.count)))
		require.NoError(t, err)
		s, err := modelrt.NewSession(context.Background(), model)
		if tt.want == "" {
			require.NoError(t, err)
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorIs(t, err, contract.ErrTransfers, tt.count)
		require.ErrorContains(t, err, tt.want)
		require.ErrorContains(t, err, "compile the model again")
	}
}
