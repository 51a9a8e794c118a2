package gen

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/templates"
)

// contractFile renders the file with what the runtime compares and resolves:
// the contract's text and the specification.
func contractFile(p *Plan) ([]byte, error) {
	f := newFile(p)
	skewGuard(f)
	comments(f.Group, "contract is the canonical text that ContractHash is the hash of.")
	lines := strings.SplitAfter(strings.TrimSuffix(p.ContractText, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	f.Const().Id("contract").Op("=").Do(func(s *jen.Statement) {
		for i, line := range lines {
			if i > 0 {
				s.Op("+").Line()
			}
			s.Lit(line)
		}
	})
	f.Line()
	return render(f)
}

// skewGuard adds two constants that do not compile where the code and rt do
// not fit each other: an unsigned constant can't be negative.
func skewGuard(f *jen.File) {
	comments(f.Group,
		"These lines stop the build where this code and package rt do not fit each other.",
		"If the first fails, rt is too old for this code: go get github.com/popefgen/popefgen@latest.",
		"If the second fails, this code is too old for rt: generate it again.")
	f.Const().Defs(
		jen.Id("_").Op("=").Uint().Call(jen.Qual(rtPath, "Generation").Op("-").Lit(Generation)),
		jen.Id("_").Op("=").Uint().Call(jen.Lit(Generation).Op("-").Qual(rtPath, "OldestGeneration")),
	)
	f.Line()
}

// testFile renders the example, the benchmarks and the allocation tests.
func testFile(p *Plan) ([]byte, error) {
	text, err := templates.Render("test.tmpl", struct {
		*Plan
		Header, RT string
	}{p, Header, rtPath})
	if err != nil {
		return nil, fmt.Errorf("tests: %w", err)
	}
	return []byte(text), nil
}
