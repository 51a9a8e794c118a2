package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// kind is the Go type of an attribute.
type kind struct {
	name  string // in names of functions, where an attribute has several types
	typ   string
	slice bool
	make  string // the function that makes it
}

var (
	flags = strings.Fields("align_corners allowzero antialias broadcast ceil_mode center_point_box count_include_pad detect_negative detect_positive exclude_outside exclusive fmod input_forget interleaved " +
		"inverse is_causal is_test keepdims largest linear_before_reset noop_with_empty_axes onesided output_full_sequence output_sequence periodic print_gradient reverse saturate select_last_index sorted " +
		"spatial training_mode transA transB upper")
	elementTypes = strings.Fields("dtype output_datatype output_dtype precision softmax_precision stash_type to")

	kinds = map[onnx.AttributeType]kind{
		onnx.AttrInt: {"Int", "int64", false, "ofInt"}, onnx.AttrFloat: {"Float", "float32", false, "ofFloat"}, onnx.AttrString: {"String", "string", false, "ofString"},
		onnx.AttrInts: {"Ints", "int64", true, "ofInts"}, onnx.AttrFloats: {"Floats", "float32", true, "ofFloats"}, onnx.AttrStrings: {"Strings", "string", true, "ofStrings"},
		onnx.AttrTensor: {"Tensor", "*onnx.Tensor", false, "ofTensor"}, onnx.AttrGraph: {"Graph", "Body", false, "ofGraph"},
	}
)

func typeOf(a lower.Attribute) kind {
	switch {
	case a.Type == onnx.AttrInt && slices.Contains(flags, a.Name):
		return kind{"Bool", "bool", false, "ofBool"}
	case a.Type == onnx.AttrInt && slices.Contains(elementTypes, a.Name):
		return kind{"Type", "onnx.ElemType", false, "ofType"}
	}
	k, ok := kinds[a.Type]
	if !ok {
		panic(fmt.Sprintf("attribute %s: no Go type for %v", a.Name, a.Type))
	}
	return k
}

// element returns the type of one value.
func (k kind) element() *jen.Statement {
	switch k.typ {
	case "*onnx.Tensor":
		return jen.Op("*").Qual(onnxPath, "Tensor")
	case "onnx.ElemType":
		return jen.Qual(onnxPath, "ElemType")
	}
	return jen.Id(k.typ)
}

// list returns the type of a parameter.
func (k kind) list() *jen.Statement {
	if k.slice {
		return jen.Index().Add(k.element())
	}
	return k.element()
}

// attribute is a function that makes an option.
type attribute struct {
	name     string // of the attribute
	kind     kind
	function string
	methods  []*method // that have it
}

// functions are the names of the functions of options, by attribute and type. attributesOf sets it.
var functions = map[string]string{}

func key(a lower.Attribute) string { return a.Name + " " + typeOf(a).name }

func functionName(a lower.Attribute) string { return functions[key(a)] }

// attributesOf returns the options of the methods, sorted by name. Of an attribute of several types, the one that the most newest forms have gets the attribute's
// name, and the others the type in front.
func attributesOf(methods []*method) ([]*attribute, error) {
	all := map[string]*attribute{}
	for _, m := range methods {
		for _, a := range m.options() {
			k := key(a)
			if all[k] == nil {
				all[k] = &attribute{name: a.Name, kind: typeOf(a)}
			}
			all[k].methods = append(all[k].methods, m)
		}
	}
	list := slices.Collect(maps.Values(all))
	newest := func(a *attribute) (n int) {
		for _, m := range a.methods {
			if m.Newest {
				n++
			}
		}
		return n
	}
	slices.SortFunc(list, func(a, b *attribute) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(newest(b), newest(a)), cmp.Compare(a.kind.name, b.kind.name))
	})
	taken := map[string]bool{}
	for _, a := range list {
		if a.function = camel(a.name); taken[a.function] {
			a.function = a.kind.name + a.function
		}
		if taken[a.function] {
			return nil, fmt.Errorf("attribute %s: the name %s is taken", a.name, a.function)
		}
		taken[a.function] = true
		functions[a.name+" "+a.kind.name] = a.function
	}
	slices.SortFunc(list, func(a, b *attribute) int { return cmp.Compare(a.function, b.function) })
	return list, nil
}

// optionFilesOf divides the options into files of some hundred lines.
func optionFilesOf(list []*attribute) map[string][]*attribute {
	files := map[string][]*attribute{}
	for _, a := range list {
		name := "gen_option_a.go"
		for _, first := range []string{"d", "l", "p", "s", "t"} {
			if strings.ToLower(a.function[:1]) >= first {
				name = "gen_option_" + first + ".go"
			}
		}
		files[name] = append(files[name], a)
	}
	return files
}

func (a *attribute) write(f *jen.File) {
	typ := a.function + "Attribute"
	var of []string
	for _, m := range a.methods {
		text := m.name
		if m.receiver != "Builder" {
			text = m.receiver + "." + m.name
		}
		for _, x := range m.options() {
			if x.Name == a.name && x.Default != nil {
				text += " (" + defaultText(x) + ")"
			}
		}
		of = append(of, text)
	}
	f.Comment(fmt.Sprintf("%s is made by [%s].", typ, a.function))
	f.Type().Id(typ).Struct(jen.Id("attribute"))
	f.Line()
	f.Comment(fmt.Sprintf("%s is the attribute %s of %s; in parentheses what holds without it.", a.function, a.name, strings.Join(of, ", ")))
	param := parameterName(a.name)
	value := a.kind.element()
	if a.kind.slice {
		value = jen.Op("...").Add(value)
	}
	f.Func().Id(a.function).Params(jen.Id(param).Add(value)).Id(typ).Block(
		jen.Return(jen.Id(typ).Values(jen.Id(a.kind.make).Call(jen.Lit(a.name), jen.Id(param)))),
	)
	f.Line()
	for _, m := range a.methods {
		f.Func().Params(jen.Id(typ)).Id(m.marker()).Params().Block()
	}
	f.Line()
}

// writeNodeOption makes NodeOption an option of all methods.
func writeNodeOption(f *jen.File, methods []*method) {
	for _, m := range methods {
		if len(m.options()) > 0 {
			f.Func().Params(jen.Id("NodeOption")).Id(m.marker()).Params().Block()
		}
	}
}

// writeOptionTable lists the functions by the attributes that they make: for tests, which find them so.
func writeOptionTable(f *jen.File, list []*attribute) {
	f.Comment("optionFunctions are the functions that make options, by attribute.")
	f.Var().Id("optionFunctions").Op("=").Map(jen.String()).Index().Any().Values(jen.DictFunc(func(d jen.Dict) {
		byName := map[string][]jen.Code{}
		for _, a := range list {
			byName[a.name] = append(byName[a.name], jen.Qual(buildPath, a.function))
		}
		for name, of := range byName {
			d[jen.Lit(name)] = jen.Values(of...)
		}
	}))
}

// defaultText returns what an attribute is if it is not given, as Go writes it.
func defaultText(a lower.Attribute) string {
	switch k := typeOf(a); {
	case k.name == "Bool":
		return fmt.Sprint(a.Default.Int != 0)
	case k.name == "Type" && a.Default.Int == 0:
		return "none"
	case k.name == "Type":
		return onnx.ElemType(a.Default.Int).String()
	case k.name == "Int":
		return fmt.Sprint(a.Default.Int)
	case k.name == "Float":
		return fmt.Sprint(a.Default.Float)
	}
	return string(a.Default.String)
}
