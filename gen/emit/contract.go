package emit

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/templates"
)

// contractFile renders the file with what the runtime compares and resolves:
// the contract's text and the specification. It uses nothing that the package's
// other files declare, so that the package builds while gen.Write replaces them.
func contractFile(p *plan.Plan) ([]byte, error) {
	f := newFile(p)
	skewGuard(f)
	if p.Family != nil {
		comments(f.Group, "contract is a text. The SHA-256 hash of what stands in it before the sizes is ContractHash.")
	} else {
		comments(f.Group, "contract is the text whose SHA-256 hash is ContractHash.")
	}
	f.Const().Id("contract").Op("=").Lit(contractMark)
	f.Line()
	comments(f.Group, "spec describes this package to the runtime.")
	f.Var().Id("spec").Op("=").Qual(genPath, "Spec").Values(
		jen.Line().Id("Package").Op(":").Lit(p.Package),
		jen.Line().Id("Contract").Op(":").Id("contract"),
		jen.Line().Id("Iterations").Op(":").Lit(p.DeviceIterations),
		jen.Line().Id("QueueDepth").Op(":").Lit(p.QueueDepth),
		jen.Do(func(s *jen.Statement) {
			if p.BatchSize > 0 {
				s.Line().Id("Batch").Op(":").Lit(int(p.BatchSize))
			}
		}),
		jen.Line().Id("Anchors").Op(":").Index().Qual(genPath, "AnchorSpec").ValuesFunc(func(g *jen.Group) {
			anchorSpecs(g, p)
		}),
		packSpec(p),
		branchSpec(p),
		jen.Do(func(s *jen.Statement) {
			if p.Training != nil {
				s.Line().Id("Trains").Op(":").True()
			}
		}),
		flowSpec(p),
		jen.Line(),
	)
	return render(f)
}

// contractMark stands for the contract's text while its file is formatted: gofmt
// takes a time in proportion to the square of the operands of a sum.
const contractMark = "the text of the contract"

// withContract puts the contract's text, a line each, in the place of its mark in
// the formatted file.
func withContract(p *plan.Plan, file []byte) []byte {
	var text strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(p.ContractText, "\n") + "\n") {
		if text.Len() > 0 {
			text.WriteString(" +\n\t")
		}
		text.WriteString(strconv.Quote(line))
	}
	return bytes.Replace(file, strconv.AppendQuote(nil, contractMark), []byte(text.String()), 1)
}

// anchorSpecs adds a line for every anchor that memory is bound to.
func anchorSpecs(g *jen.Group, p *plan.Plan) {
	lines := 0
	for _, s := range streams(p) {
		for _, field := range s.fields {
			a, t := p.Anchors[field.Anchor], p.Tensors[field.Tensor]
			values := []jen.Code{
				jen.Id("Name").Op(":").Lit(a.Name),
			}
			if a.Handle != "" {
				values = append(values, jen.Id("Handle").Op(":").Lit(a.Handle))
			}
			values = append(values,
				jen.Id("GoName").Op(":").Lit(t.Name),
				jen.Id("Role").Op(":").Qual(genPath, roleConst(a.Role)),
				jen.Id("Bytes").Op(":").Lit(int(t.Bytes)),
			)
			if t.Blocks > 0 && (a.Role == contract.RunInput || a.Role == contract.RunOutput) {
				values = append(values, jen.Id("Blocks").Op(":").Lit(int(t.Blocks)))
			}
			if field.Uneven {
				values = append(values, jen.Id("Transfers").Op(":").Lit(field.Transfers))
			}
			if p.Training != nil && p.Contract.Fields[field.Anchor].Evaluated {
				values = append(values, jen.Id("Evaluated").Op(":").True())
			}
			if t.IsOpen() {
				values = append(values, openAxes(t))
			}
			g.Line().Values(values...)
			lines++
		}
	}
	if p.Training != nil {
		for _, v := range p.Training.Optimizer {
			g.Line().Values(valueSpec(v)...)
			lines++
		}
	}
	if lines > 0 {
		g.Line()
	}
}

// roleConst is the name in package rt of the role of an anchor that memory is
// bound to.
func roleConst(r contract.Role) string {
	switch r {
	case contract.RunInput:
		return "RunInput"
	case contract.RunOutput:
		return "RunOutput"
	case contract.LoadInput, contract.Seed:
		return "LoadInput" // callers give a seed like every other value
	}
	return "SaveOutput"
}

// skewGuard adds two constants that do not compile where the code and rt do
// not fit each other: an unsigned constant can't be negative.
func skewGuard(f *jen.File) {
	comments(f.Group,
		"These lines stop the build where this code and package rt do not fit each other.",
		"If the first fails, rt is too old for this code: go get github.com/popefgen/popefgen@latest.",
		"If the second fails, this code is too old for rt: generate it again.")
	f.Const().Defs(
		jen.Id("_").Op("=").Uint().Call(jen.Qual(genPath, "Generation").Op("-").Lit(generation)),
		jen.Id("_").Op("=").Uint().Call(jen.Lit(generation).Op("-").Qual(genPath, "OldestGeneration")),
	)
	f.Line()
}

// testFile renders the example, the benchmarks and the allocation tests.
func testFile(p *plan.Plan) ([]byte, error) {
	name := templates.Tests
	if p.Branches != nil {
		name = templates.BranchesTest
	}
	text, err := templates.Render(name, p)
	if err != nil {
		return nil, err
	}
	for _, more := range []struct {
		name string
		has  bool
	}{{templates.PackedTests, p.Pack != nil}, {templates.StreamTests, len(p.State) > 0 && p.Flow == nil}, {templates.FlowTests, p.Flow != nil}, {templates.TrainingTests, p.Training != nil}} {
		if !more.has {
			continue
		}
		tests, err := templates.Render(more.name, p)
		if err != nil {
			return nil, err
		}
		text += "\n" + strings.TrimSpace(tests) + "\n"
	}
	return []byte(strings.Join(heading(p), "\n") + "\n\n" + text), nil
}
