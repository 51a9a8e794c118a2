package budget

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestControlGroups reads groups of both versions, as they look on a host and
// in a container.
func TestControlGroups(t *testing.T) {
	for name, c := range map[string]struct {
		list  string
		files map[string]string
		want  int64
	}{
		"version 2":                       {"0::/job/task\n", map[string]string{"job/task/memory.max": "1000000\n", "job/memory.max": "max\n"}, 1000000},
		"version 2, the one above":        {"0::/job/task\n", map[string]string{"job/task/memory.max": "max\n", "job/memory.max": "5000\n"}, 5000},
		"version 2, in a container":       {"0::/\n", map[string]string{"memory.max": "7000\n"}, 7000},
		"version 2, named as outside":     {"0::/../job\n", map[string]string{"memory.max": "7000\n"}, 7000},
		"version 1":                       {"9:name=systemd:/\n4:cpu,memory:/job\n0::/\n", map[string]string{"memory/job/memory.limit_in_bytes": "4000\n"}, 4000},
		"version 1, named as outside":     {"4:memory:/docker/abc\n", map[string]string{"memory/memory.limit_in_bytes": "3000\n"}, 3000},
		"version 1, without a limit":      {"4:memory:/\n", map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 9223372036854771712},
		"no limit":                        {"0::/\n", map[string]string{"memory.max": "max\n"}, math.MaxInt64},
		"other controllers":               {"4:cpu:/\n", map[string]string{"memory/memory.limit_in_bytes": "3\n"}, math.MaxInt64},
		"neither files nor a list of any": {"", nil, math.MaxInt64},
		"nonsense":                        {"what\nis:this", map[string]string{"memory.max": "5\n"}, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range c.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o777))
				require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o666))
			}
			list := filepath.Join(root, "list")
			require.NoError(t, os.WriteFile(list, []byte(c.list), 0o666))
			require.Equal(t, c.want, groups(list, root))
		})
	}
}

// TestDefaultFollowsLimits compares the default with limits of the process.
func TestDefaultFollowsLimits(t *testing.T) {
	if os.Getenv("BUDGET_DEFAULT") != "" {
		os.Stdout.WriteString("default=" + strconv.FormatInt(Default(), 10) + "\n")
		return
	}
	all := Default()
	require.Greater(t, all, int64(64<<20))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(100 << 20))
	require.EqualValues(t, 75<<20, Default(), "GOMEMLIMIT")

	exe, err := os.Executable()
	require.NoError(t, err)
	shell := exec.Command("sh", "-c", `ulimit -v 3000000 && exec "$0" -test.run TestDefaultFollowsLimits`, exe)
	shell.Env = append(os.Environ(), "BUDGET_DEFAULT=1", "GOMEMLIMIT=off")
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, rest, found := strings.Cut(string(out), "default=")
	require.True(t, found, "%s", out)
	text, _, _ := strings.Cut(rest, "\n")
	limited, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	require.Less(t, limited, int64(3000000<<10)/4*3, "ulimit -v, less what is mapped")
	require.Greater(t, limited, int64(16<<20))
}

// TestKept wants a number to be found once in a while, and anew after that.
func TestKept(t *testing.T) {
	n := int64(0)
	k := kept{find: func() int64 { n++; return n }}
	require.EqualValues(t, 1, k.get())
	require.EqualValues(t, 1, k.get())
	k.last.Load().at = k.last.Load().at.Add(-keptFor)
	require.EqualValues(t, 2, k.get())
}
