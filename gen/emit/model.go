package emit

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// runnerMethod is an exported method of the generated Runner.
type runnerMethod struct {
	name    string
	params  []runnerParam
	results []string
}

// runnerParam is a parameter; its type is Go source, with three dots in front
// if it is variadic.
type runnerParam struct{ name, typ string }

// inner are the methods that reach below what callers can do without: a fake
// has no sessions and
// no streams.
var inner = []string{"Session", "Replica", "NewStream"}

// runnerMethods reads the methods of Runner from the package's main file, so
// that the interface has all that it has. It leaves out their bodies and all else, which
// with ten thousand anchors would take longer than the rest of the file.
func runnerMethods(main []byte) ([]runnerMethod, error) {
	heads := []byte("package p\n")
	for line := range bytes.Lines(main) {
		if !bytes.HasPrefix(line, []byte("func (")) || !bytes.Contains(line, []byte("*Runner)")) {
			continue
		}
		line = bytes.TrimSpace(line)
		heads = append(heads, line...)
		if line[len(line)-1] == '{' {
			heads = append(heads, '}')
		}
		heads = append(heads, '\n')
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", heads, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []runnerMethod
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil || !f.Name.IsExported() || types.ExprString(f.Recv.List[0].Type) != "*Runner" || slices.Contains(inner, f.Name.Name) {
			continue
		}
		m := runnerMethod{name: f.Name.Name}
		for _, p := range f.Type.Params.List {
			for _, id := range p.Names {
				m.params = append(m.params, runnerParam{id.Name, types.ExprString(p.Type)})
			}
		}
		if f.Type.Results != nil {
			for _, r := range f.Type.Results.List {
				m.results = append(m.results, types.ExprString(r.Type))
			}
		}
		out = append(out, m)
	}
	return out, nil
}

// modelFile renders the interface that Runner satisfies, and a fake of it.
func modelFile(p *plan.Plan, main []byte) ([]byte, error) {
	methods, err := runnerMethods(main)
	if err != nil {
		return nil, err
	}
	f := newFile(p)
	comments(f.Group, "Model is the interface of a Runner, so that code can be tested without the model: *Runner and *Fake",
		"implement it. Code that needs few of its methods should declare an interface of its own.")
	f.Type().Id("Model").InterfaceFunc(func(g *jen.Group) {
		for _, m := range methods {
			g.Id(m.name).Params(m.parameters()...).Params(sources(m.results)...)
		}
	})
	f.Line()
	f.Var().Defs(
		jen.Id("_").Id("Model").Op("=").Parens(jen.Op("*").Id("Runner")).Call(jen.Nil()),
		jen.Id("_").Id("Model").Op("=").Parens(jen.Op("*").Id("Fake")).Call(jen.Nil()),
	)
	f.Line()
	comments(f.Group, "Fake implements Model without a model, for tests. Each method calls the function in the field that is",
		"named after it. Where that is nil, a method for one replica calls its counterpart for any (RunOn calls",
		"Run), Close and Shutdown do nothing, and the others fail with rt.ErrNotFaked. The zero Fake is ready",
		"to use, and programs that do not use it do not contain it.")
	f.Type().Id("Fake").StructFunc(func(g *jen.Group) {
		for _, m := range methods {
			g.Id(m.name + "Func").Func().Params(m.parameters()...).Params(sources(m.results)...)
		}
	})
	f.Line()
	for _, m := range methods {
		m.fake(f, methods)
	}
	return render(f)
}

// parameters are the method's parameters with their names.
func (m runnerMethod) parameters() []jen.Code {
	out := make([]jen.Code, len(m.params))
	for i, p := range m.params {
		out[i] = jen.Id(p.name).Add(source(p.typ))
	}
	return out
}

// arguments are what the method passes on, without those named in but.
func (m runnerMethod) arguments(but string) []jen.Code {
	var out []jen.Code
	for _, p := range m.params {
		switch {
		case p.name == but:
		case strings.HasPrefix(p.typ, "..."):
			out = append(out, jen.Id(p.name).Op("..."))
		default:
			out = append(out, jen.Id(p.name))
		}
	}
	return out
}

// fake adds the method to Fake.
func (m runnerMethod) fake(f *jen.File, all []runnerMethod) {
	comments(f.Group, fmt.Sprintf("%s calls %sFunc.", m.name, m.name))
	f.Func().Params(jen.Id("f").Op("*").Id("Fake")).Id(m.name).Params(m.parameters()...).Params(sources(m.results)...).BlockFunc(func(g *jen.Group) {
		function := jen.Id("f").Dot(m.name + "Func")
		g.If(function.Clone().Op("!=").Nil()).Block(jen.Return(function.Clone().Call(m.arguments("")...)))
		base, on := strings.CutSuffix(m.name, "On")
		if on && slices.ContainsFunc(all, func(o runnerMethod) bool { return o.name == base }) {
			g.Return(jen.Id("f").Dot(base).Call(m.arguments("replica")...))
			return
		}
		var values []jen.Code
		for i, r := range m.results {
			switch {
			case r != "error":
				g.Var().Id(fmt.Sprintf("zero%d", i)).Add(source(r))
				values = append(values, jen.Id(fmt.Sprintf("zero%d", i)))
			case m.name == "Close" || m.name == "Shutdown":
				values = append(values, jen.Nil())
			default:
				values = append(values, jen.Qual(genPath, "NotFaked").Call(jen.Lit(m.name)))
			}
		}
		g.Return(values...)
	})
	f.Line()
}

// source is a type as it stands in Go source; packages are imported.
func source(typ string) *jen.Statement {
	for _, prefix := range []string{"...", "[]", "*"} {
		if rest, ok := strings.CutPrefix(typ, prefix); ok {
			return jen.Op(prefix).Add(source(rest))
		}
	}
	for _, at := range []string{rtPath, modelPath} {
		if name, ok := strings.CutPrefix(typ, path.Base(at)+"."); ok {
			return jen.Qual(at, name)
		}
	}
	if name, ok := strings.CutPrefix(typ, "context."); ok {
		return jen.Qual("context", name)
	}
	return jen.Id(typ)
}

func sources(types []string) []jen.Code {
	out := make([]jen.Code, len(types))
	for i, t := range types {
		out[i] = source(t)
	}
	return out
}
