package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one deliberate mistake: some lines of a file and what stands in
// their place, and the tests that must notice.
type mutant struct {
	name     string
	at       string   // list file and line, for messages
	file     string   // path from the module's root
	test     []string // arguments of go test
	survives string   // why no test can tell; empty if one must
	old, new []string // lines
}

// readLists reads every list in a folder, in the order of file names.
func readLists(dir string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: no list (*.txt)", dir)
	}
	var all []mutant
	seen := map[string]string{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		list, err := parseList(filepath.Base(path), data)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if at, ok := seen[m.name]; ok {
				return nil, fmt.Errorf("%s: mutant %q stands at %s already", m.at, m.name, at)
			}
			seen[m.name] = m.at
		}
		all = append(all, list...)
	}
	return all, nil
}

// parseList reads one list. A mutant begins with a line "== NAME"; the lines
// "file:", "test:" and "survives:" follow, then the original lines, each after
// "- ", and those that replace them, each after "+ ". Lines with # are comments
// outside the two blocks.
func parseList(name string, data []byte) ([]mutant, error) {
	var list []mutant
	var m *mutant
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20)
	fail := func(n int, format string, args ...any) ([]mutant, error) {
		return nil, fmt.Errorf("%s:%d: %s", name, n, fmt.Sprintf(format, args...))
	}
	for n := 1; sc.Scan(); n++ {
		line := sc.Text()
		if title, ok := strings.CutPrefix(line, "== "); ok {
			list = append(list, mutant{name: strings.TrimSpace(title), at: fmt.Sprintf("%s:%d", name, n)})
			m = &list[len(list)-1]
			continue
		}
		trimmed := strings.TrimSpace(line)
		if m == nil {
			if trimmed != "" && trimmed[0] != '#' {
				return fail(n, `found %q before the first "== NAME"`, line)
			}
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		switch {
		case line == "-" || strings.HasPrefix(line, "- "):
			if len(m.new) > 0 {
				return fail(n, `a line of the original after one of the mutant ("+ "): put all "- " lines first`)
			}
			m.old = append(m.old, strings.TrimPrefix(line[1:], " "))
		case line == "+" || strings.HasPrefix(line, "+ "):
			m.new = append(m.new, strings.TrimPrefix(line[1:], " "))
		case trimmed == "" || trimmed[0] == '#':
		case key == "file":
			m.file = strings.TrimSpace(value)
		case key == "survives":
			m.survives = strings.TrimSpace(value)
		case key == "test":
			test, err := fields(value)
			if err != nil {
				return fail(n, "%v", err)
			}
			m.test = test
		default:
			return fail(n, `found %q, want "file:", "test:", "survives:", "- " or "+ "`, line)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, m := range list {
		switch {
		case m.name == "" || m.file == "" || len(m.test) == 0 || len(m.old) == 0:
			return nil, fmt.Errorf(`%s: mutant %q: it needs a name, "file:", "test:" and at least one line "- "`, m.at, m.name)
		case !filepath.IsLocal(m.file):
			return nil, fmt.Errorf("%s: mutant %q: file %q is outside the module", m.at, m.name, m.file)
		}
	}
	return list, nil
}

// fields splits the arguments of a command at spaces, but for those in single
// quotes.
func fields(s string) ([]string, error) {
	var out []string
	for {
		s = strings.TrimLeft(s, " \t")
		if s == "" {
			return out, nil
		}
		if s[0] != '\'' {
			word, rest, _ := strings.Cut(s, " ")
			out, s = append(out, word), rest
			continue
		}
		word, rest, ok := strings.Cut(s[1:], "'")
		if !ok {
			return nil, fmt.Errorf("a quote without end: %s", s)
		}
		out, s = append(out, word), rest
	}
}

// apply returns the source of the mutant's file with the mistake in it. The
// original lines must stand in it exactly once.
func (m *mutant) apply(source []byte) ([]byte, error) {
	lines := strings.Split(string(source), "\n")
	at := -1
	for i := 0; i+len(m.old) <= len(lines); i++ {
		if !equalLines(lines[i:i+len(m.old)], m.old) {
			continue
		}
		if at >= 0 {
			return nil, fmt.Errorf("the original stands at lines %d and %d of %s: add a line that tells them apart", at+1, i+1, m.file)
		}
		at = i
	}
	if at < 0 {
		return nil, fmt.Errorf("the original is not in %s any more: adapt the mutant, or delete it if the code that it was about is gone", m.file)
	}
	out := append([]string{}, lines[:at]...)
	out = append(out, m.new...)
	out = append(out, lines[at+len(m.old):]...)
	return []byte(strings.Join(out, "\n")), nil
}

// equalLines compares lines but for the white space around them, so that a list
// stays readable and a change of indentation alone does not matter.
func equalLines(a, b []string) bool {
	for i := range a {
		if strings.TrimSpace(a[i]) != strings.TrimSpace(b[i]) {
			return false
		}
	}
	return true
}
