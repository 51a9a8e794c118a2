package emit

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// openTensor adds the type of a tensor with open dimensions.
func openTensor(f *jen.File, p *plan.Plan, t plan.Tensor) {
	comments(f.Group, wrap(t.Doc)...)
	f.Type().Id(t.Name).StructFunc(func(g *jen.Group) {
		g.ListFunc(func(g *jen.Group) {
			for _, s := range t.Fields {
				g.Id(s.Name)
			}
		}).Int().Comment("// its sizes")
		g.Id("data").Index().Add(elementType(t))
	})
	f.Line()
	receiver := func() *jen.Statement { return jen.Id("t").Op("*").Id(t.Name) }
	params := func() *jen.Statement {
		return jen.ListFunc(func(g *jen.Group) {
			for _, s := range t.Fields {
				g.Id(s.Param)
			}
		}).Int()
	}
	lengths := func(field func(plan.SizeField) jen.Code) []jen.Code {
		var out []jen.Code
		for _, l := range t.Lead {
			if l.Field >= 0 {
				out = append(out, field(t.Fields[l.Field]))
			} else {
				out = append(out, jen.Lit(int(l.Size)))
			}
		}
		return out
	}
	given := lengths(func(s plan.SizeField) jen.Code { return jen.Id(s.Param) })

	comments(f.Group, wrap(fmt.Sprintf("%s returns a tensor of these sizes, all zeros. A size below 0 panics.", t.New))...)
	f.Func().Id(t.New).Params(params()).Op("*").Id(t.Name).Block(
		jen.Return(jen.Op("&").Id(t.Name).ValuesFunc(func(g *jen.Group) {
			for _, s := range t.Fields {
				g.Id(s.Param)
			}
			g.Qual(genPath, "Grow").Types(elementType(t)).Call(jen.Nil(), jen.Qual(genPath, "Length").Call(given...))
		})),
	)
	f.Line()
	comments(f.Group, wrap(t.FromDoc)...)
	f.Func().Id(t.From).Params(params(), jen.Id("flat").Index().Add(elemType(t))).Params(jen.Op("*").Id(t.Name), jen.Error()).Block(
		jen.List(jen.Id("data"), jen.Err()).Op(":=").Qual(genPath, "Cut").Types(elementType(t)).Call(
			append([]jen.Code{jen.Id(t.NameConst), jen.Id("flat")}, given...)...),
		jen.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Nil(), jen.Err())),
		jen.Return(jen.Op("&").Id(t.Name).ValuesFunc(func(g *jen.Group) {
			for _, s := range t.Fields {
				g.Id(s.Param)
			}
			g.Id("data")
		}), jen.Nil()),
	)
	f.Line()
	comments(f.Group, "Resize makes t a tensor of these sizes. It keeps its memory where there is enough, with whatever is in it.")
	f.Func().Params(receiver()).Id("Resize").Params(params()).Block(
		jen.ListFunc(func(g *jen.Group) {
			for _, s := range t.Fields {
				g.Id("t").Dot(s.Name)
			}
			g.Id("t").Dot("data")
		}).Op("=").ListFunc(func(g *jen.Group) {
			for _, s := range t.Fields {
				g.Id(s.Param)
			}
			g.Qual(genPath, "Grow").Call(jen.Id("t").Dot("data"), jen.Qual(genPath, "Length").Call(given...))
		}),
	)
	f.Line()
	own := lengths(func(s plan.SizeField) jen.Code { return jen.Id("t").Dot(s.Name) })
	atFunc(f, t, own, receiver())
	rowFuncs(f, t, own, receiver)
	comments(f.Group, "Flat returns the tensor's elements in row-major order, as a slice of its memory.")
	f.Func().Params(receiver()).Id("Flat").Params().Index().Add(elemType(t)).Custom(braces, jen.ReturnFunc(func(g *jen.Group) {
		if len(t.Shape) == 0 {
			g.Id("t").Dot("data")
		} else {
			g.Qual(genPath, "Elements").Types(elemType(t)).Call(jen.Id("t").Dot("data"))
		}
	}))
	f.Line()
	comments(f.Group, "view shows t to the runtime.")
	f.Func().Params(receiver()).Id("view").Params().Qual(genPath, "View").Custom(braces,
		jen.Return(jen.Qual(genPath, "Open").Call(jen.Op("&").Id("t").Dot(t.Fields[0].Name), jen.Op("&").Id("t").Dot("data"))))
	f.Line()
	if t.Sample != "" {
		sampleType(f, t)
	}
}

// indices are the names of the parameters of At.
const indices = "ijklmnopqrsuvwxyz"

// index returns the name of parameter i of At.
func index(i int) string {
	if i < len(indices) {
		return indices[i : i+1]
	}
	return fmt.Sprintf("i%d", i)
}

// atFunc adds At, which computes the place of an element from the lengths of the axes before it.
func atFunc(f *jen.File, t plan.Tensor, lengths []jen.Code, receiver jen.Code) {
	what := "the element"
	if len(t.Shape) > 0 {
		what = "what lies"
	}
	var names []jen.Code
	for i := range t.Lead {
		names = append(names, jen.Id(index(i)))
	}
	comments(f.Group, fmt.Sprintf("At returns a pointer to %s at that place, which must be inside.", what))
	f.Func().Params(receiver).Id("At").Params(jen.List(names...).Int()).Op("*").Add(elementType(t)).BlockFunc(func(g *jen.Group) {
		at := jen.Id(index(0)) // an index that is too large here is outside of the slice too
		for i := 1; i < len(t.Lead); i++ {
			if i > 1 {
				at = jen.Parens(at)
			}
			at = at.Op("*").Add(lengths[i]).Op("+").Qual(genPath, "Index").Call(jen.Id(index(i)), lengths[i])
		}
		g.Return(jen.Op("&").Id("t").Dot("data").Index(at))
	})
	f.Line()
}

// rowFuncs adds views of parts along the first axis, where others follow.
func rowFuncs(f *jen.File, t plan.Tensor, lengths []jen.Code, receiver func() *jen.Statement) {
	if len(t.Lead) > 1 {
		n := jen.Add(lengths[1])
		for _, l := range lengths[2:] {
			n.Op("*").Add(l)
		}
		comments(f.Group, "Row returns what lies at index i of the first dimension, as a slice of the tensor's memory.")
		f.Func().Params(receiver()).Id("Row").Params(jen.Id("i").Int()).Index().Add(elementType(t)).Block(
			jen.Id("n").Op(":=").Add(n),
			jen.Return(jen.Id("t").Dot("data").Index(jen.Id("i").Op("*").Id("n"), jen.Parens(jen.Id("i").Op("+").Lit(1)).Op("*").Id("n"), jen.Parens(jen.Id("i").Op("+").Lit(1)).Op("*").Id("n"))),
		)
		f.Line()
		comments(f.Group, "Rows returns an iterator over the first dimension: for i, row := range t.Rows(). Each row is a slice of",
			"the tensor's memory.")
		f.Func().Params(receiver()).Id("Rows").Params().Qual("iter", "Seq2").Types(jen.Int(), jen.Index().Add(elementType(t))).Custom(braces,
			jen.Return(jen.Qual(genPath, "Parts").Call(jen.Id("t").Dot("data"), lengths[0])))
		f.Line()
	} else if len(t.Shape) > 0 {
		comments(f.Group, "Rows returns an iterator over the first dimension: for i, row := range t.Rows(). Each row is a pointer",
			"into the tensor's memory.")
		f.Func().Params(receiver()).Id("Rows").Params().Qual("iter", "Seq2").Types(jen.Int(), jen.Op("*").Add(elementType(t))).Custom(braces,
			jen.Return(jen.Qual(genPath, "Rows").Call(jen.Id("t").Dot("data"))))
		f.Line()
	}
}

// elementType is the type of an element of the slice of a tensor with open dimensions: all axes
// behind the last open one.
func elementType(t plan.Tensor) jen.Code {
	s := &jen.Statement{}
	for _, n := range t.Shape {
		s.Index(jen.Lit(int(n)))
	}
	return s.Add(elemType(t))
}

// sizeType adds the type Size with its constants, one for each member.
func sizeType(f *jen.File, p *plan.Plan) {
	fam := p.Family
	comments(f.Group, "Size is one of the sizes that the model was compiled for. A request of exactly such a size is computed in",
		"its own memory.")
	f.Type().Id("Size").Int()
	f.Line()
	comments(f.Group, "The sizes of this package. A model may have more.")
	f.Const().DefsFunc(func(g *jen.Group) {
		for i, m := range fam.Members {
			var doc []string
			for d, n := range m.Sizes {
				doc = append(doc, fmt.Sprintf("%s %d", fam.Dims[d].GoName, n))
			}
			c := g.Id(m.Name)
			if i == 0 {
				c.Id("Size").Op("=").Iota()
			}
			c.Comment("// " + strings.Join(doc, ", "))
		}
	})
	f.Line()
	comments(f.Group, "members has the sizes by dimension.")
	f.Var().Id("members").Op("=").Index(jen.Op("...")).Index(jen.Lit(len(fam.Dims))).Int().ValuesFunc(func(g *jen.Group) {
		for _, m := range fam.Members {
			g.Line().Id(m.Name).Op(":").ValuesFunc(func(g *jen.Group) {
				for _, n := range m.Sizes {
					g.Lit(int(n))
				}
			})
		}
		g.Line()
	})
	f.Line()
	comments(f.Group, "Sizes returns every size of this package, a smaller one before those that it fits into.")
	f.Func().Id("Sizes").Params().Index().Id("Size").Block(
		jen.Return(jen.Index().Id("Size").ValuesFunc(func(g *jen.Group) {
			for _, m := range fam.Members {
				g.Id(m.Name)
			}
		})),
	)
	f.Line()
	for i, d := range fam.Dims {
		comments(f.Group, wrap(fmt.Sprintf("%s returns the size of dimension %q. %s", d.GoName, d.Name, d.Doc))...)
		f.Func().Params(jen.Id("s").Id("Size")).Id(d.GoName).Params().Int().Custom(braces, jen.Return(jen.Id("members").Index(jen.Id("s")).Index(jen.Lit(i))))
		f.Line()
	}
	comments(f.Group, "String returns the name of the constant.")
	f.Func().Params(jen.Id("s").Id("Size")).Id("String").Params().String().Block(
		jen.Switch(jen.Id("s")).BlockFunc(func(g *jen.Group) {
			for _, m := range fam.Members {
				g.Case(jen.Id(m.Name)).Block(jen.Return(jen.Lit(m.Name)))
			}
		}),
		jen.Return(jen.Qual("fmt", "Sprintf").Call(jen.Lit("Size(%d)"), jen.Int().Call(jen.Id("s")))),
	)
	f.Line()
}

// newField is a new tensor for a field of Inputs or Outputs.
func newField(p *plan.Plan, s structure, field plan.Field) jen.Code {
	t := p.Tensors[field.Tensor]
	if !t.IsOpen() || s.name != "Inputs" {
		return jen.New(fieldType(p, field))
	}
	return jen.Id(t.New).CallFunc(func(g *jen.Group) {
		for _, f := range t.Fields {
			param := jen.Id(p.Family.Dims[f.Dim].Param)
			if f.Same() {
				g.Add(param)
			} else {
				g.Qual(genPath, "Follow").Call(param, jen.Lit(int(f.Mul)), jen.Lit(int(f.Add)), jen.Lit(int(f.Div)))
			}
		}
	})
}

// dimParams are the parameters of what makes inputs: the open dimensions.
func dimParams(p *plan.Plan, s structure) []jen.Code {
	if p.Family == nil || len(p.Family.Dims) == 0 || s.name != "Inputs" {
		return nil
	}
	return []jen.Code{jen.ListFunc(func(g *jen.Group) {
		for _, d := range p.Family.Dims {
			g.Id(d.Param)
		}
	}).Int()}
}

// viewsFunc adds what shows a request to the runtime.
func viewsFunc(f *jen.File, p *plan.Plan) {
	n := len(p.Inputs) + len(p.Outputs)
	comments(f.Group, "views shows a request to the runtime.")
	f.Func().Id("views").Params(run()...).Index(jen.Lit(n)).Qual(genPath, "View").Block(
		jen.Return(jen.Index(jen.Lit(n)).Qual(genPath, "View").ValuesFunc(func(g *jen.Group) {
			for _, s := range []ends{{"in", "", p.Inputs}, {"out", "", p.Outputs}} {
				for _, field := range s.fields {
					g.Line().Add(viewOf(p, s.id, field))
				}
			}
			g.Line()
		})),
	)
	f.Line()
}

// openAxes is what the specification says of the open axes of a tensor.
func openAxes(t plan.Tensor) jen.Code {
	return jen.Id("Open").Op(":").Index().Qual(genPath, "OpenAxis").ValuesFunc(func(g *jen.Group) {
		for _, o := range t.Open {
			g.Values(jen.Id("Axis").Op(":").Lit(o.Axis), jen.Id("Name").Op(":").Lit(t.Fields[o.Field].Name))
		}
	})
}
