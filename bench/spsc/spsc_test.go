package spsc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoundTrips(t *testing.T) {
	for capacity := 1; capacity < 6; capacity++ {
		require.NoError(t, RoundTrips(100, capacity))
	}
}
