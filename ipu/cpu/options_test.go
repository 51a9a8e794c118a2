package cpu

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOldNamesOfOptions gives engines the names that options had before: they
// do what the present ones do, and one warning, on the log, says what those are.
func TestOldNamesOfOptions(t *testing.T) {
	was, names := slog.Default(), oldNames
	defer func() {
		slog.SetDefault(was)
		oldNames = names
	}()
	oldNames = nil // the same names, of which nothing has warned yet
	for _, n := range names {
		oldNames = append(oldNames, &oldName{old: n.old, now: n.now})
	}
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))

	for _, c := range []struct {
		old, now string
		field    func(options) bool
	}{
		{"chains", "tiling", func(o options) bool { return o.Tiling }},
		{"pixels", "nhwc", func(o options) bool { return o.NHWC }},
	} {
		for _, value := range []string{"on", "off"} {
			log.Reset()
			now, err := parseOptions(opt(c.now, value))
			require.NoError(t, err)
			require.Equal(t, value == "on", c.field(now))
			require.Empty(t, log.String(), c.now)

			old, err := parseOptions(opt(c.old, value))
			require.NoError(t, err)
			require.Equal(t, now, old)
			if value == "on" { // the first time
				require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
				require.Contains(t, log.String(), c.old)
				require.Contains(t, log.String(), c.now)
			} else {
				require.Empty(t, log.String())
			}
		}
		_, err := parseOptions(opt(c.old, "maybe"))
		require.ErrorContains(t, err, c.old+`="maybe": want "on" or "off"`)
	}
	require.Len(t, names, 2, "test the others too")
	for _, o := range Options() {
		for _, n := range names {
			require.NotEqual(t, n.old, o.Name, "help names options by their present names")
		}
	}
}
