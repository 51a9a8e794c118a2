// Package exportdata checks generated packages in tests without compiling them:
// what they import is compiled once, and read from the compiler's export data.
package exportdata

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Importer returns an importer of the packages that match patterns, as the go
// command takes them in the working directory, and of all that they import. It
// has the go command compile what is not in its cache. Importing any other
// package is an error.
func Importer(fset *token.FileSet, patterns ...string) (types.Importer, error) {
	c := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}"}, patterns...)...)
	var errOut strings.Builder
	c.Stderr = &errOut
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export: %w\n%s", err, errOut.String())
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			files[name] = file
		}
	}
	return importer.ForCompiler(fset, "gc", func(name string) (io.ReadCloser, error) {
		if files[name] == "" {
			return nil, fmt.Errorf("%s is not among the packages that were listed", name)
		}
		return os.Open(files[name])
	}), nil
}
