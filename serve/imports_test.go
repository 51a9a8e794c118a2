package serve_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/popefgen/popefgen/"

// TestImports keeps what a program links that serves over REST: the standard library, what a runtime links anyway, and rooms of
// serve. serve/dynamic, which reads files, is none of them.
func TestImports(t *testing.T) {
	deps := func(of ...string) []string {
		out, err := exec.Command("go", append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, of...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.Fields(string(out))
	}
	runtime := deps("../rt", "../rt/genrt", "../popef/contract", "../ipu/num")
	var rooms []string
	for _, p := range deps(".", "./oip", "./access", "./client", "./genserve") {
		if room, ok := strings.CutPrefix(p, module); ok && (room == "serve" || strings.HasPrefix(room, "serve/")) {
			rooms = append(rooms, room)
			continue
		}
		if p == module+"internal/looks" { // two style sheets, of the admin page
			continue
		}
		require.Contains(t, runtime, p)
	}
	require.Contains(t, rooms, "serve/internal/core")
	require.NotContains(t, rooms, "serve/dynamic")
}
