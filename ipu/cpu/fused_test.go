package cpu

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

const fusedList = "testdata/fused.txt"

// TestProductsAreRounded asks the compiler for arm64 where it makes one
// instruction of a product and a sum, which rounds once instead of twice (for
// amd64 it does so with GOAMD64=v3). Two loops that compute the same element,
// for another number of threads or in another layout, then differ by a bit; so
// every product is rounded by a conversion, but in functions that the list gives
// a reason for. It takes the compiler half a minute, so `make cross-test` sets
// POPEFGEN_CROSS for it.
func TestProductsAreRounded(t *testing.T) {
	if os.Getenv("POPEFGEN_CROSS") == "" {
		t.Skip("part of make cross-test (POPEFGEN_CROSS=1)")
	}
	s := &sources{functions: map[string][]sourceFunction{}, errors: map[string][]sourceFunction{}}
	fset := token.NewFileSet()
	for _, dir := range enginePackages(t) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			f, err := parser.ParseFile(fset, file, nil, 0)
			require.NoError(t, err)
			s.survey(fset, f.Name.Name, f)
		}
	}
	c := exec.Command("go", append([]string{"build", "-gcflags=-S"}, enginePackages(t)...)...)
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	require.NoError(t, err)
	got := map[string]bool{}
	for _, m := range regexp.MustCompile(`\((\S+\.go):(\d+)\)\tFN?M(?:ADD|SUB)[SD]\t`).FindAllSubmatch(out, -1) {
		line, err := strconv.Atoi(string(m[2]))
		require.NoError(t, err)
		name := fmt.Sprintf("%s:%d", m[1], line)
		if f := s.at(string(m[1]), line, 1<<20); f != nil {
			name = f.name
		}
		if !got[name] {
			t.Logf("%s:%d: %s", m[1], line, name)
		}
		got[name] = true
	}
	var found []string
	for name := range got {
		found = append(found, name)
	}
	slices.Sort(found)
	require.NotEmpty(t, found, "the compiler's listing has another form")
	if d := diff.Diff(readReasons(t, fusedList), found); d != "" {
		t.Errorf("functions with products that are not rounded, of which %s does not tell (+), or tells in vain (-):\n%s", fusedList, d)
	}
}
