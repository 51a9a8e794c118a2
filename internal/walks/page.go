package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// walk is a list of functions, each called by the one before it or, once that
// has returned, by one further up.
type walk struct {
	title string
	line  int // of the title
	steps []step
}

// step is an item of a walk: a function, and the file that its link points to.
type step struct {
	line int
	name string // as it is written: package.Function or package.Type.Method
	file string // below the root of the module
}

// up marks a list that begins with the innermost function: each is called by the
// next one.
const up = "<!-- innermost first -->"

var (
	item = regexp.MustCompile("^(\\d+)\\. \\[`([^`]+)`\\]\\(([^)]+)\\)")
	list = regexp.MustCompile(`^\d+\. `)
)

// readPage reads the walks of docs/walks.md: a list below a title of the second
// level.
func readPage(root string) ([]walk, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	return parse(string(text))
}

func parse(text string) ([]walk, error) {
	var walks []walk
	reversed := map[int]bool{} // by the line of the title
	line := 0
	for l := range strings.Lines(text) {
		line++
		l = strings.TrimSpace(l)
		if title, ok := strings.CutPrefix(l, "## "); ok {
			walks = append(walks, walk{title: title, line: line})
			continue
		}
		if len(walks) == 0 || !list.MatchString(l) {
			if l == up && len(walks) > 0 {
				reversed[walks[len(walks)-1].line] = true
			}
			continue
		}
		w := &walks[len(walks)-1]
		m := item.FindStringSubmatch(l)
		if m == nil {
			return nil, fmt.Errorf("%s:%d: an item of a walk begins with a link to a function, as [`rt.Open`](../rt/open.go)", page, line)
		}
		if m[1] != strconv.Itoa(len(w.steps)+1) {
			return nil, fmt.Errorf("%s:%d: item %s is the %dth of the list", page, line, m[1], len(w.steps)+1)
		}
		w.steps = append(w.steps, step{line: line, name: m[2], file: path.Join(path.Dir(page), m[3])})
	}
	walks = slices.DeleteFunc(walks, func(w walk) bool { return len(w.steps) == 0 })
	for i := range walks {
		if reversed[walks[i].line] {
			slices.Reverse(walks[i].steps)
		}
	}
	return walks, nil
}

// directories returns where the functions of walks are.
func directories(walks []walk) []string {
	var dirs []string
	for _, w := range walks {
		for _, s := range w.steps {
			dirs = append(dirs, path.Dir(s.file))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// relinked returns the text of the page with the links of walks to the files that
// their functions are in. One whose function is not found stays.
func (p *program) relinked(text string, walks []walk) string {
	lines := strings.SplitAfter(text, "\n")
	for _, w := range walks {
		for _, s := range w.steps {
			_, name, _ := strings.Cut(s.name, ".")
			f, ok := p.functions[key{importPath(path.Dir(s.file)), name}]
			if ok && path.Ext(s.file) == ".go" {
				lines[s.line-1] = strings.Replace(lines[s.line-1], "](../"+s.file+")", "](../"+f.file+")", 1)
			}
		}
	}
	return strings.Join(lines, "")
}
