package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	alone   string // why it was compiled by itself; empty if it was not, or no other mutant has its tests
}

// module is where the go command builds the mutants. A mistake reaches it as an
// overlay, so the files stay as they are, mutants are tried side by side, and
// whatever a mistake leaves alone comes from the build cache that make test uses.
type module struct {
	dir     string        // its root
	work    string        // where mutants and overlays are written
	timeout time.Duration // of one run of tests
	env     []string

	mu       sync.Mutex
	packages map[string][]target  // by pattern
	sound    map[string]*baseline // by packages and flags but for -run
}

// target is a package with tests.
type target struct {
	path  string
	dir   string
	deps  []string // import paths of the packages that its tests are linked with
	rapid bool     // its tests have the flags of pgregory.net/rapid
}

// needs reports whether the tests are linked with the package of a folder of the
// module.
func (t *target) needs(folder string) bool {
	return folder == "." || slices.ContainsFunc(t.deps, func(p string) bool { return strings.HasSuffix(p, "/"+folder) })
}

// baseline says whether tests pass without a mistake. It is found out once for
// all mutants with the same packages and flags: one run with all their -run.
type baseline struct {
	run  []string // expressions of -run; empty: all tests
	all  bool     // a mutant has no -run
	once sync.Once
	ok   bool
	out  string
}

// newModule returns the module at dir, with the runs of tests that the mutants
// need.
func newModule(dir, work string, timeout time.Duration, mutants []mutant) (*module, error) {
	work, err := filepath.Abs(work)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	mod := &module{dir: dir, work: work, timeout: timeout, env: os.Environ(), packages: map[string][]target{}, sound: map[string]*baseline{}}
	for i := range mutants {
		key, run := mutants[i].group()
		b := mod.sound[key]
		if b == nil {
			b = &baseline{}
			mod.sound[key] = b
		}
		b.all = b.all || run == ""
		if !slices.Contains(b.run, run) {
			b.run = append(b.run, run)
		}
	}
	return mod, nil
}

// group returns the arguments of a mutant's tests but for the expression of
// -run, as one text, and that expression.
func (m *mutant) group() (key, run string) {
	var rest []string
	for i := 0; i < len(m.test); i++ {
		if m.test[i] == "-run" && i+1 < len(m.test) {
			i++
			run = m.test[i]
			continue
		}
		rest = append(rest, m.test[i])
	}
	return strings.Join(rest, "\x00"), run
}

// passes reports whether a mutant's tests pass without it, with their output if
// not.
func (mod *module) passes(ctx context.Context, m *mutant) (bool, string) {
	key, _ := m.group()
	b := mod.sound[key]
	b.once.Do(func() {
		args := strings.Split(key, "\x00")
		if !b.all {
			args = append(args, "-run", strings.Join(b.run, "|"))
		}
		b.ok, b.out = mod.test(ctx, args, "")
	})
	if b.ok {
		return true, ""
	}
	if len(b.run) == 1 {
		return false, b.out
	}
	return mod.test(ctx, m.test, "") // another mutant's tests may be those that fail
}

// try runs a mutant's tests with the mistake in them, in the slot of that number.
func (mod *module) try(ctx context.Context, slot int, m *mutant) (r result) {
	begin := time.Now()
	defer func() { r.took = time.Since(begin) }()
	source, err := os.ReadFile(filepath.Join(mod.dir, filepath.FromSlash(m.file)))
	if errors.Is(err, fs.ErrNotExist) {
		return result{verdict: stale, note: fmt.Sprintf("there is no file %s", m.file)}
	}
	if err != nil {
		return result{verdict: stale, note: err.Error()}
	}
	mutated, err := m.apply(source)
	if err != nil {
		return result{verdict: stale, note: err.Error()}
	}
	var ok bool
	var out string
	for range 4 { // again for names whose last use the mistake took away
		overlay, err := mod.overlay(slot, m.file, mutated)
		if err != nil {
			return result{verdict: invalid, note: err.Error()}
		}
		ok, out = mod.test(ctx, m.test, overlay)
		if instead, err := filepath.Rel(mod.dir, mod.instead(slot, m.file)); err == nil { // as the compiler names it
			out = strings.ReplaceAll(out, instead, m.file)
		}
		out = strings.ReplaceAll(out, mod.instead(slot, m.file), m.file) // where that is shorter
		used, found := useNames(mutated, m.file, out)
		if ok || !found {
			break
		}
		mutated = used
	}
	if ok && m.survives == "" && ctx.Err() == nil { // the examples that rapid drew may have been the wrong ones
		ok, out = mod.test(ctx, m.test, filepath.Join(mod.work, fmt.Sprintf("%d.json", slot)), "-rapid.checks=50")
		ok = ok || strings.Contains(out, "panic: test timed out after") // so many may take long without a mistake
	}
	switch {
	case ctx.Err() != nil:
		return result{verdict: invalid, note: ctx.Err().Error()}
	case ok:
		return result{verdict: survived, note: "go test " + strings.Join(m.test, " ")}
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return result{verdict: invalid, note: "it does not compile\n" + tail(out)}
	}
	if ok, out := mod.passes(ctx, m); !ok {
		return result{verdict: invalid, note: "its tests fail without it\n" + tail(out)}
	}
	return result{verdict: killed}
}

// instead returns the path of what takes a file's place. Compilers know a language by how the name ends.
func (mod *module) instead(slot int, file string) string {
	return filepath.Join(mod.work, fmt.Sprintf("%d%s", slot, filepath.Ext(file)))
}

// overlay writes what the go command reads in the place of a file, and returns
// the path of the text that says so.
func (mod *module) overlay(slot int, file string, text []byte) (string, error) {
	instead := mod.instead(slot, file)
	if err := os.WriteFile(instead, text, 0o644); err != nil {
		return "", err
	}
	replace := map[string]map[string]string{"Replace": {filepath.Join(mod.dir, filepath.FromSlash(file)): instead}}
	data, err := json.Marshal(replace)
	if err != nil {
		return "", err
	}
	path := filepath.Join(mod.work, fmt.Sprintf("%d.json", slot))
	return path, os.WriteFile(path, data, 0o644)
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

// test runs go test, package by package until one fails, and reports whether all
// passed, with the output of the last. Tests that take longer than the limit did
// not pass. The overlay, if there is one, holds for go commands that the tests
// run as well. Flags of rapid choose the packages that have them.
func (mod *module) test(ctx context.Context, args []string, overlay string, rapid ...string) (bool, string) {
	i := slices.IndexFunc(args, func(s string) bool { return strings.HasPrefix(s, "-") })
	if i < 0 {
		i = len(args)
	}
	targets, err := mod.expand(ctx, args[:i], buildTags(args)...)
	if err != nil {
		return false, err.Error()
	}
	env := mod.env
	all := []string{"test", "-vet=off", "-ldflags=-s -w", "-failfast", "-timeout", mod.timeout.String()}
	if overlay != "" {
		env = append(slices.Clone(env), goflags(overlay))
		all = append(all, "-count=1") // a result of before says nothing where tests build what they test
	}
	for _, p := range targets {
		run := append(append(slices.Clone(all), p.path), args[i:]...)
		if !p.rapid && len(rapid) > 0 {
			continue
		}
		run = append(run, rapid...)
		if overlay != "" && p.rapid { // that it fails is enough: no smallest input, and nothing left to be tried again
			run = append(run, "-rapid.nofailfile", "-rapid.shrinktime=1ms")
		}
		cmd := exec.CommandContext(ctx, "go", run...)
		cmd.Dir, cmd.Env = mod.dir, env
		cmd.WaitDelay = 5 * time.Second // the tests are children of the go command
		if out, err := cmd.CombinedOutput(); err != nil {
			return false, string(out)
		}
	}
	return true, ""
}

// buildTags returns the arguments of go test that say under which build tags.
func buildTags(args []string) []string {
	if i := slices.Index(args, "-tags"); i >= 0 && i+1 < len(args) {
		return args[i : i+2]
	}
	return nil
}

// compilesC reports whether a mutant needs a C++ compiler: where there is none, it is not tried.
func (m *mutant) compilesC() bool {
	return len(buildTags(m.test)) > 0 || filepath.Ext(m.file) == ".cpp"
}

// expand returns the packages with tests that match some patterns, under some build tags.
func (mod *module) expand(ctx context.Context, patterns []string, tags ...string) ([]target, error) {
	mod.mu.Lock()
	defer mod.mu.Unlock()
	key := strings.Join(append(slices.Clone(tags), patterns...), " ")
	if list, ok := mod.packages[key]; ok {
		return list, nil
	}
	args := append([]string{"list", "-test", "-f", "{{.ImportPath}}\t{{.Dir}}\t{{.Deps}}"}, tags...)
	cmd := exec.CommandContext(ctx, "go", append(args, patterns...)...)
	cmd.Dir, cmd.Env = mod.dir, mod.env
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -test %s: %w", key, err)
	}
	var list []target
	for line := range strings.Lines(string(out)) {
		path, rest, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dir, deps, _ := strings.Cut(rest, "\t")
		if path, ok := strings.CutSuffix(path, ".test"); ok {
			list = append(list, target{path: path, dir: dir, deps: strings.Fields(strings.Trim(deps, "[]")), rapid: strings.Contains(deps, "pgregory.net/rapid")})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no package with tests matches %s", key)
	}
	mod.packages[key] = list
	return list, nil
}

// tail returns the last lines of a text, indented.
func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	lines = lines[max(0, len(lines)-12):]
	return "    " + strings.Join(lines, "\n    ")
}
