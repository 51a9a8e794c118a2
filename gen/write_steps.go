package gen

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/popef/contract"
)

// beforeStep is called before each change of a package's folder. Tests fail
// there.
var beforeStep = func(path string) error { return nil }

// inSteps puts changes into an order in which the package builds after each of
// them, wherever it ends. Old tests, and the interface of the runner with its
// fake, go first, since they use what may be gone.
// The model comes before the code that embeds it; the file with the
// specification, which needs no other, before the file that uses it; tests after
// the code; contract.txt, which says what the package is, at last.
//
// Where the package or its files get other names, the old and the new ones can't
// be together: what needs the specification goes, then that, then the new files
// come.
func inSteps(stale []difference) []difference {
	isGo := func(s difference) bool { return filepath.Ext(s.name) == ".go" }
	isTest := func(s difference) bool { return strings.HasSuffix(s.name, "_test.go") }
	isSpec := func(s difference) bool { return strings.HasSuffix(s.name, plan.ContractSuffix) }
	isUse := func(s difference) bool { return strings.HasSuffix(s.name, plan.ModelSuffix) }
	isCode := func(s difference) bool { return isGo(s) && !isTest(s) && !isSpec(s) && !isUse(s) }
	isText := func(s difference) bool { return s.name == contract.FileName }
	isModel := func(s difference) bool { return !isGo(s) && !isText(s) }
	renamed := slices.ContainsFunc(stale, func(s difference) bool {
		return isGo(s) && !isTest(s) && s.exists && (s.want == nil || packageClause(s.have) != packageClause(s.want.Data))
	})
	var steps []difference
	remove := func(which func(difference) bool) {
		for _, s := range stale {
			if which(s) && s.exists {
				s.want = nil
				steps = append(steps, s)
			}
		}
	}
	write := func(which func(difference) bool) {
		for _, s := range stale {
			if which(s) && s.want != nil {
				steps = append(steps, s)
			}
		}
	}
	remove(isTest)
	remove(isUse)
	if renamed {
		remove(isCode)
		remove(isSpec)
	}
	write(isModel)
	write(isSpec)
	write(isCode)
	write(isUse)
	write(isTest)
	write(isText)
	return steps
}

// packageClause returns the line of Go source that names its package.
func packageClause(src []byte) string {
	for line := range bytes.Lines(src) {
		if bytes.HasPrefix(line, []byte("package ")) {
			return string(bytes.TrimSpace(line))
		}
	}
	return ""
}
