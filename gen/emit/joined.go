package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/gen/plan"
)

// joinedType adds the struct in which inputs lie as in a transfer, and checks that the compiler
// lays it out as the model does.
func joinedType(f *jen.File, p *plan.Plan) {
	j := p.Joined
	if j == nil {
		return
	}
	gap := func(g *jen.Group, n int64) {
		if n > 0 {
			g.Id("_").Index(jen.Lit(int(n))).Byte()
		}
	}
	comments(f.Group, wrap(fmt.Sprintf("joined has inputs side by side, as they stand in a transfer of %d bytes that has all of them.", j.Bytes))...)
	f.Type().Id("joined").StructFunc(func(g *jen.Group) {
		for _, x := range j.Fields {
			gap(g, x.Gap)
			field := p.Inputs[x.Input]
			g.Id(field.Name).Add(fieldType(p, field))
		}
		gap(g, j.Gap)
	})
	f.Line()
	comments(f.Group, "The build fails here if a field is at another byte than in the model.")
	length := func(n *jen.Statement) *jen.Statement { return jen.Index(n).Struct() }
	f.Var().DefsFunc(func(g *jen.Group) {
		for _, x := range j.Fields {
			g.Id("_").Add(length(jen.Lit(int(x.Offset)))).Op("=").Add(length(jen.Qual("unsafe", "Offsetof").Call(jen.Id("joined").Values().Dot(p.Inputs[x.Input].Name)))).Values()
		}
		g.Id("_").Add(length(jen.Lit(int(j.Bytes)))).Op("=").Add(length(jen.Qual("unsafe", "Sizeof").Call(jen.Id("joined").Values()))).Values()
	})
	f.Line()
}
