package scans

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "# only a comment\n", "1,2,3\n", "x,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n"} {
		_, err := parse(bad)
		require.Error(t, err, "%q", bad)
	}
}

// TestSets wants both sets whole: every scan of the data set is in one of them.
func TestSets(t *testing.T) {
	training, err := Training()
	require.NoError(t, err)
	heldOut, err := HeldOut()
	require.NoError(t, err)
	require.Len(t, training, 1438)
	require.Len(t, heldOut, 359)
	count := map[int]int{}
	for _, s := range append(training, heldOut...) {
		count[s.Label]++
	}
	require.Equal(t, map[int]int{0: 178, 1: 182, 2: 177, 3: 183, 4: 181, 5: 182, 6: 181, 7: 179, 8: 174, 9: 180}, count)
}

func TestDraw(t *testing.T) {
	s := Scan{Label: 1}
	s.Grey[0], s.Grey[7] = [8]int{0, 4, 8, 12, 16}, [8]int{7: 16}
	lines := s.Draw()
	require.Len(t, lines, 8)
	require.Equal(t, "  ░░▒▒▓▓██      ", lines[0])
	require.Equal(t, "              ██", lines[7])
}
