package ipu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWindow(t *testing.T) {
	var none Window
	require.Nil(t, none.Next())
	w := Window{Block: []byte{1, 2, 3, 4}, Size: 2, Count: 2}
	require.Equal(t, []byte{1, 2}, w.Next())
	require.Equal(t, 2, cap(w.Next()))
	w.Ahead = 1
	require.Equal(t, []byte{3, 4}, w.Next())
	w.Complete()
	require.Equal(t, []byte{3, 4}, w.Next())
	w.Complete()
	require.Nil(t, w.Next())
	w.Complete()
	require.Equal(t, 2, w.Done)
	empty := Window{Block: []byte{}, Count: 1}
	require.NotNil(t, empty.Next(), "no bytes, but a transfer")
}
