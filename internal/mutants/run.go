package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// verdict is what became of a mutant.
type verdict int

const (
	killed   verdict = iota // its tests failed, as they should
	survived                // they passed
	stale                   // the original lines are not what the list says
	invalid                 // it does not compile, or its tests fail without it
)

func (v verdict) String() string {
	return [...]string{"killed", "SURVIVED", "STALE", "INVALID"}[v]
}

// result is a mutant's verdict with what is worth knowing about it.
type result struct {
	verdict verdict
	took    time.Duration
	note    string
}

// tree is a copy of the module that mutants are applied to, one at a time.
type tree struct {
	dir     string
	env     []string
	timeout time.Duration
}

// newTree makes dir a copy of the module at root: the files that git tracks or
// would track. Files that are there already and equal stay as they are, so that
// the go command's caches hold from one run to the next.
func newTree(ctx context.Context, root, dir string, timeout time.Duration) (*tree, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-co", "--exclude-standard", "-z")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: git ls-files: %w", root, err)
	}
	wanted := map[string]bool{}
	for _, name := range strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but still in the index
		} else if err != nil {
			return nil, err
		}
		wanted[name] = true
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if name, _ := filepath.Rel(dir, path); !wanted[filepath.ToSlash(name)] {
			return os.Remove(path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	env := os.Environ()
	if os.Getenv("POPEFGEN_TESTDATA") == "" {
		env = append(env, "POPEFGEN_TESTDATA="+filepath.Join(filepath.Dir(root), "shared"))
	}
	return &tree{dir: dir, env: env, timeout: timeout}, nil
}

// copyFile copies a file unless what is there has the same content.
func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(to); err == nil && bytes.Equal(have, data) {
		return nil
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// try applies a mutant, runs its tests and takes it back.
func (t *tree) try(ctx context.Context, m *mutant) (r result) {
	begin := time.Now()
	defer func() { r.took = time.Since(begin) }()
	path := filepath.Join(t.dir, filepath.FromSlash(m.file))
	info, err := os.Stat(path)
	if err != nil {
		return result{verdict: stale, note: fmt.Sprintf("there is no file %s", m.file)}
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return result{verdict: stale, note: err.Error()}
	}
	mutated, err := m.apply(source)
	if err != nil {
		return result{verdict: stale, note: err.Error()}
	}
	if ok, out := t.test(ctx, m.test); !ok {
		return result{verdict: invalid, note: "its tests fail without it\n" + tail(out)}
	}
	if err := os.WriteFile(path, mutated, 0o644); err != nil {
		return result{verdict: invalid, note: err.Error()}
	}
	defer func() {
		err := os.WriteFile(path, source, 0o644)
		if err == nil { // test results that were cached for the original stay valid
			err = os.Chtimes(path, info.ModTime(), info.ModTime())
		}
		if err != nil {
			r = result{verdict: invalid, note: "it could not be taken back: " + err.Error()}
		}
	}()
	ok, out := t.test(ctx, m.test)
	for range 3 { // names whose last use the mistake took away
		used, found := useNames(mutated, m.file, out)
		if ok || !found {
			break
		}
		mutated = used
		if err := os.WriteFile(path, mutated, 0o644); err != nil {
			return result{verdict: invalid, note: err.Error()}
		}
		ok, out = t.test(ctx, m.test)
	}
	switch {
	case ctx.Err() != nil:
		return result{verdict: invalid, note: ctx.Err().Error()}
	case ok:
		return result{verdict: survived, note: "go test " + strings.Join(m.test, " ")}
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return result{verdict: invalid, note: "it does not compile\n" + tail(out)}
	}
	return result{verdict: killed}
}

var (
	unusedName   = regexp.MustCompile(`(?m)^(\S+):(\d+):\d+: declared and not used: (\w+)$`)
	unusedImport = regexp.MustCompile(`(?m)^(\S+):(\d+):\d+: ".*" imported and not used$`)
)

// useNames changes a source so that the names of which the compiler's output
// says that nothing uses them are used: a variable behind the line that declares
// it, where a block may have begun, and an import for its effects.
func useNames(source []byte, file, out string) (used []byte, found bool) {
	lines := strings.Split(string(source), "\n")
	at := func(m []string) (line int, ok bool) {
		n, err := strconv.Atoi(m[2])
		return n - 1, err == nil && n <= len(lines) && filepath.ToSlash(filepath.Clean(m[1])) == file
	}
	for _, m := range unusedName.FindAllStringSubmatch(out, -1) {
		if i, ok := at(m); ok {
			lines[i], found = lines[i]+"\n_ = "+m[3], true
		}
	}
	for _, m := range unusedImport.FindAllStringSubmatch(out, -1) {
		if i, ok := at(m); ok {
			lines[i], found = strings.Replace(lines[i], `"`, `_ "`, 1), true
		}
	}
	return []byte(strings.Join(lines, "\n")), found
}

// test runs go test and reports whether it passed, with its output. A run that
// takes longer than the limit did not pass. What failing property tests leave
// behind to be tried again is removed.
func (t *tree) test(ctx context.Context, args []string) (bool, string) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-timeout", t.timeout.String()}, args...)...)
	cmd.Dir, cmd.Env = t.dir, t.env
	cmd.WaitDelay = 5 * time.Second // the tests are children of the go command
	out, err := cmd.CombinedOutput()
	if err != nil {
		_ = filepath.WalkDir(t.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasSuffix(filepath.ToSlash(path), "testdata/rapid") {
				_ = os.RemoveAll(path)
				return filepath.SkipDir
			}
			return nil
		})
	}
	return err == nil, string(out)
}

// tail returns the last lines of a text, indented.
func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	lines = lines[max(0, len(lines)-12):]
	return "    " + strings.Join(lines, "\n    ")
}
