package main

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
	"strings"
	"unicode"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
	"github.com/popefgen/popefgen/onnx/internal/op"
)

// method is the method of one form of an operator.
type method struct {
	*op.Signature
	form     *lower.Form
	name     string // of the method
	receiver string
}

// receivers are the types whose methods the operators of a domain are.
var receivers = map[string]string{
	"": "Builder", "ai.graphcore": "Graphcore", "ai.onnx.preview": "Preview", "ai.onnx.preview.training": "PreviewTraining",
}

// methodsOf returns the methods of all forms, sorted by domain and name.
func methodsOf() ([]*method, error) {
	var list []*method
	table := op.Table()
	for name, all := range op.Signatures() {
		domain := domainOf(name)
		if receivers[domain] == "" {
			return nil, fmt.Errorf("operator %s: no type is known for methods of its domain: add one to receivers and to package build", name)
		}
		forms := table.Operators[name].Forms
		for _, s := range all {
			k := slices.IndexFunc(forms, func(f lower.Form) bool { return f.Version == s.Version })
			list = append(list, &method{s, &forms[k], s.Method(), receivers[domain]})
		}
	}
	slices.SortFunc(list, func(a, b *method) int {
		return cmp.Or(cmp.Compare(domainOf(a.Name), domainOf(b.Name)), cmp.Compare(a.Name, b.Name), cmp.Compare(b.Version, a.Version))
	})
	return list, nil
}

// domainOf returns the domain of an operator of the table.
func domainOf(name string) string { return name[:max(0, strings.LastIndexByte(name, '.'))] }

// filesOf divides the methods into files of some hundred lines.
func filesOf(methods []*method) map[string][]*method {
	files := map[string][]*method{}
	for _, m := range methods {
		name := "gen_" + strings.ToLower(m.receiver) + ".go"
		if m.receiver == "Builder" {
			first := strings.ToLower(m.name[:1])
			for _, r := range []string{"a", "b", "cd", "efg", "hijkl", "mn", "opq", "r", "s", "tuvwxyz"} {
				if strings.Contains(r, first) {
					name = "gen_onnx_" + r[:1] + ".go"
				}
			}
			if strings.HasPrefix(m.name, "Reduce") {
				name = "gen_onnx_reduce.go"
			}
		}
		files[name] = append(files[name], m)
	}
	return files
}

// parameter is a parameter of a method besides its options.
type parameter struct {
	name string
	typ  *jen.Statement
}

// options returns the attributes of the form that a call may leave out.
func (m *method) options() (list []lower.Attribute) {
	for _, a := range m.form.Attributes {
		never := slices.ContainsFunc(m.Attributes, func(f op.Formal) bool { return f.Name == a.Name && m.Until != 0 && f.From >= m.Until })
		if !a.Required && a.Type != onnx.AttrSparse && !never {
			list = append(list, a)
		}
	}
	return list
}

// optionType returns the name of the interface of the method's options.
func (m *method) optionType() string {
	switch {
	case len(m.options()) == 0:
		return "NodeOption"
	case m.receiver == "Builder":
		return m.name + "Option"
	}
	return m.receiver + m.name + "Option"
}

// marker is the method that options of the form have.
func (m *method) marker() string { return lowerFirst(m.optionType()) }

// bySubgraphs reports whether subgraphs of the node say how many results it has.
func (m *method) bySubgraphs() bool {
	return slices.ContainsFunc(m.form.Attributes, func(a lower.Attribute) bool { return a.Type == onnx.AttrGraph && a.Required })
}

// several reports whether the number of results is the caller's.
func (m *method) several() bool { return m.Results[0].Repeats }

func (m *method) write(f *jen.File) {
	tensor := func() *jen.Statement { return jen.Op("*").Id("Tensor") }
	var params []parameter
	call := jen.Id("begin").Call(jen.Do(func(s *jen.Statement) {
		if m.receiver == "Builder" {
			s.Id("builder")
		} else {
			s.Id("domain").Dot("b")
		}
	}), jen.Lit(m.Name), jen.Lit(int(m.Version)), jen.Id("options"))
	var single []jen.Code
	for _, o := range m.Operands {
		name := parameterName(o.Name)
		if !o.Repeats {
			params = append(params, parameter{name, tensor()})
			single = append(single, jen.Id(name))
			continue
		}
		params = append(params, parameter{name, jen.Index().Add(tensor())})
	}
	if len(single) > 0 {
		call.Dot("in").Call(single...)
	}
	if n := len(m.Operands); n > 0 && m.Operands[n-1].Repeats {
		call.Dot("several").Call(jen.Id(parameterName(m.Operands[n-1].Name)))
	}
	var with []jen.Code
	for _, a := range m.form.Attributes {
		if a.Required {
			t := typeOf(a)
			name := parameterName(a.Name)
			params = append(params, parameter{name, t.list()})
			with = append(with, jen.Id(t.make).Call(jen.Lit(a.Name), jen.Id(name)))
		}
	}
	if len(with) > 0 {
		call.Dot("with").Call(with...)
	}
	var results []jen.Code
	switch counts := []string{"one", "two", "three", "four", "five"}; {
	case m.several() && m.bySubgraphs():
		results = []jen.Code{jen.Index().Add(tensor())}
		call.Dot("inferred").Call()
	case m.several():
		params = append(params, parameter{"results", jen.Int()})
		results = []jen.Code{jen.Index().Add(tensor())}
		call.Dot("many").Call(jen.Id("results"))
	case len(m.Results) == 1:
		results = []jen.Code{tensor()}
		call.Dot("one").Call()
	default:
		for i, r := range m.Results {
			name := parameterName(r.Name)
			if slices.ContainsFunc(params, func(p parameter) bool { return p.name == name }) {
				name += "Out"
			}
			if i+1 < len(m.Results) {
				results = append(results, jen.Id(name))
			} else {
				results = append(results, jen.Id(name).Add(tensor()))
			}
		}
		call.Dot(counts[len(m.Results)-1]).Call()
	}
	var list []jen.Code
	seen := map[string]bool{"builder": true, "domain": true, "options": true}
	for i, p := range params {
		if seen[p.name] {
			panic(fmt.Sprintf("%s: two parameters %s", m.Name, p.name))
		}
		seen[p.name] = true
		if i+1 < len(params) && fmt.Sprintf("%#v", params[i+1].typ) == fmt.Sprintf("%#v", p.typ) {
			list = append(list, jen.Id(p.name))
			continue
		}
		list = append(list, jen.Id(p.name).Add(p.typ))
	}
	list = append(list, jen.Id("options").Op("...").Id(m.optionType()))
	receiver := jen.Id("builder").Op("*").Id("Builder")
	if m.receiver != "Builder" {
		receiver = jen.Id("domain").Id(m.receiver)
	}
	comment(f, m.doc())
	f.Func().Params(receiver).Id(m.name).Params(list...).ParamsFunc(func(g *jen.Group) {
		for _, r := range results {
			g.Add(r)
		}
	}).Block(jen.Return(call))
	f.Line()
	if len(m.options()) > 0 {
		f.Comment(fmt.Sprintf("%s is an option of [%s.%s]: %s, or a NodeOption.", m.optionType(), m.receiver, m.name, strings.Join(m.optionNames(), ", ")))
		f.Type().Id(m.optionType()).Interface(jen.Id("option"), jen.Id(m.marker()).Params())
		f.Line()
	}
}

// comment writes a comment of several paragraphs.
func comment(f *jen.File, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		f.Comment(strings.TrimRight("//"+" "+line, " "))
	}
}

// optionNames returns the functions that make the options.
func (m *method) optionNames() (names []string) {
	for _, a := range m.options() {
		names = append(names, functionName(a))
	}
	return names
}

// doc returns the comment of the method.
func (m *method) doc() string {
	var b strings.Builder
	of := "ONNX's"
	name := m.Name
	switch m.receiver {
	case "Graphcore":
		of, name = "PopART's", name[len("ai.graphcore."):]
	case "Preview", "PreviewTraining":
		of, name = "ONNX's preview of", name[len(domainOf(name))+1:]
	}
	fmt.Fprintf(&b, "%s adds %s %s", m.name, of, name)
	switch {
	case m.receiver != "Builder":
	case m.Until == 0:
		fmt.Fprintf(&b, ", as it is from operator set %d on", m.Version)
	default:
		fmt.Fprintf(&b, ", as it is in operator sets %d to %d", m.Version, m.Until-1)
	}
	switch {
	case m.several() && m.bySubgraphs():
		b.WriteString(", and returns what its subgraphs give")
	case m.several():
		b.WriteString(", and returns as many results as the parameter results says")
	case len(m.Results) == 1:
		b.WriteString(", and returns its result")
	default:
		var names []string
		for _, r := range m.Results {
			names = append(names, r.Name)
		}
		fmt.Fprintf(&b, ", and returns %s", listed(names))
	}
	b.WriteString(".")
	if text := m.operandText(); text != "" {
		b.WriteString("\n\n" + text)
	}
	if text := bodies[m.Name]; text != "" {
		b.WriteString("\n\n" + text)
	}
	if text := m.attributeText(); text != "" {
		b.WriteString("\n\n" + text)
	}
	if m.receiver == "Builder" || strings.HasPrefix(m.receiver, "Preview") {
		fmt.Fprintf(&b, "\n\nSee https://onnx.ai/onnx/operators/onnx_%s_%s.html.", strings.ReplaceAll(strings.TrimPrefix(domainOf(m.Name), "ai.onnx."), ".", ""), name)
	}
	return b.String()
}

// bodies say what functions that make subgraphs are called with and return.
var bodies = map[string]string{
	"If":   "The functions are called without inputs, and return as many values each.",
	"Loop": "The function is called with the iteration, an int64 without dimensions, the condition, and what is carried, as long as vInitial. It returns the condition to go on, what is carried to the next iteration, and what is collected over all; the results are the last two.",
	"Scan": "The function is called with what is carried, and a slice of each of the last numScanInputs operands. It returns what is carried to the next iteration, and what is collected over all; so do the results.",
}

// operandText says of which types the operands are, and which may be nil.
func (m *method) operandText() string {
	var groups []string
	at := map[string]int{}
	var optional, late []string
	for i, o := range m.Operands {
		name := parameterName(o.Name)
		if o.Optional {
			optional = append(optional, name)
		}
		if o.From > m.Version {
			late = append(late, fmt.Sprintf("%s is one from set %d on.", name, o.From))
		}
		words, key := "any", name
		if f := m.form.Operand(i); f != nil {
			words = strings.ReplaceAll(f.Words, "|", " or ")
			if key = f.Variable; key == "" {
				key = name
			}
		}
		if k, ok := at[key]; ok {
			groups[k] = strings.Replace(groups[k], ": ", ", "+name+": ", 1)
			continue
		}
		at[key] = len(groups)
		groups = append(groups, name+": "+words)
	}
	if len(groups) == 0 {
		return ""
	}
	text := "Element types: " + strings.Join(groups, "; ") + "."
	if len(optional) > 0 {
		text += " May be nil: " + strings.Join(optional, ", ") + "."
	}
	return strings.Join(append([]string{text}, late...), " ")
}

// attributeText says what the attributes are without an option.
func (m *method) attributeText() string {
	var parts []string
	for _, a := range m.options() {
		text := functionName(a)
		if a.Default != nil {
			text += " (" + defaultText(a) + ")"
		}
		for _, f := range m.Attributes {
			switch {
			case f.Name != a.Name:
			case f.From > m.Version:
				text += fmt.Sprintf(" from set %d on", f.From)
			case f.Until != 0:
				text += fmt.Sprintf(" before set %d", f.Until)
			}
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return "Options, with what holds without them: " + strings.Join(parts, ", ") + "."
}

func listed(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// parameterName returns the name of a parameter for an operand or attribute of ONNX's.
func parameterName(name string) string {
	s := lowerFirst(camel(name))
	if s == "var" {
		return "variance"
	}
	if token.IsKeyword(s) {
		panic("a parameter would be called " + s)
	}
	return s
}

// camel returns a name of ONNX's as Go writes it: past_key as PastKey.
func camel(name string) string {
	var b strings.Builder
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '_' }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

func lowerFirst(s string) string {
	r := []rune(s)
	for i := range r {
		if i > 0 && i+1 < len(r) && unicode.IsLower(r[i+1]) || !unicode.IsUpper(r[i]) {
			break
		}
		r[i] = unicode.ToLower(r[i])
	}
	return string(r)
}
