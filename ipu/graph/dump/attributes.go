package dump

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Attribute is an attribute of an operator as people write it.
type Attribute struct {
	Name  string `json:"n"`
	Value string `json:"v"`
}

// Attributes lists an operator's attributes, those that have an effect: no
// dilation of 1, no padding of 0. in are the types of its operands.
func Attributes(op graph.Op, in []graph.TensorType) (all []Attribute) {
	s := reflect.ValueOf(op).Elem()
	add := func(name, value string) {
		if value != "" {
			all = append(all, Attribute{name, value})
		}
	}
	ints := func(field string) []int64 {
		if f := s.FieldByName(field); f.IsValid() {
			if l, ok := f.Interface().([]int64); ok {
				return l
			}
		}
		return nil
	}
	if f := s.FieldByName("Strides"); f.IsValid() { // it slides over its operand
		kernel := ints("Kernel")
		if kernel == nil && len(in) > 1 && in[1].Rank() > 2 {
			kernel = in[1].Shape[2:]
		}
		add("kernel", joinInts(kernel, "x"))
		add("stride", axisValues(ints("Strides")))
		add("dilation", axisValues(ints("Dilations")))
		if p := append(slices.Clone(ints("PadsBegin")), ints("PadsEnd")...); slices.ContainsFunc(p, func(n int64) bool { return n != 0 }) {
			add("pad", joinInts(p, ","))
		}
	}
	for i := range s.NumField() {
		f := s.Field(i)
		switch name := s.Type().Field(i).Name; name {
		case "Kernel", "Strides", "Dilations", "PadsBegin", "PadsEnd", "High":
		case "Bounded":
			if f.Bool() {
				add("result", within(s.FieldByName("Low").Float(), s.FieldByName("High").Float()))
			}
		case "Low":
		case "Group":
			if f.Int() > 1 {
				add("groups", strconv.FormatInt(f.Int(), 10))
			}
		case "Args", "Alpha", "Beta":
			_, joins := op.(*graph.Pointwise)
			if _, ok := op.(*graph.Gemm); !joins && !(ok && f.Float() == 1) {
				add(words(name), valueOf(name, f))
			}
		case "Fns":
			if o, ok := op.(*graph.Pointwise); ok {
				add("computes", formula(o, len(in)))
			}
		default:
			add(words(name), valueOf(name, f))
		}
	}
	return all
}

// maxValues of a list are shown.
const maxValues = 16

func joinInts(list []int64, sep string) string {
	var s []string
	for i, n := range list {
		if i == maxValues {
			s = append(s, fmt.Sprintf("… %d in all", len(list)))
			break
		}
		s = append(s, strconv.FormatInt(n, 10))
	}
	return strings.Join(s, sep)
}

// axisValues is one number for all axes, or nothing if that is 1.
func axisValues(list []int64) string {
	if len(list) == 0 || slices.Min(list) == slices.Max(list) {
		if len(list) == 0 || list[0] == 1 {
			return ""
		}
		return strconv.FormatInt(list[0], 10)
	}
	return joinInts(list, ",")
}

func within(low, high float64) string {
	switch {
	case math.IsInf(high, 1):
		return "at least " + number(low)
	case math.IsInf(low, -1):
		return "at most " + number(high)
	}
	return "from " + number(low) + " to " + number(high)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 7, 64) }

// words turns KeepDims into "keep dims".
func words(name string) string {
	var b strings.Builder
	r := []rune(name)
	for i, c := range r {
		if unicode.IsUpper(c) && i > 0 && (unicode.IsLower(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// valueOf is an attribute's value, "" if it is zero and says nothing by that.
func valueOf(name string, f reflect.Value) string {
	switch v := f.Interface().(type) {
	case graph.GraphID:
		return "" // it is code, not a value
	case graph.DType:
		if v == graph.Invalid {
			return ""
		}
		return v.String()
	case []int64:
		return joinInts(v, ",")
	case []float64:
		var s []string
		for i, x := range v {
			if i == maxValues {
				s = append(s, fmt.Sprintf("… %d in all", len(v)))
				break
			}
			s = append(s, number(x))
		}
		return strings.Join(s, ",")
	case []string:
		return strings.Join(v[:min(len(v), maxValues)], ", ")
	}
	switch f.Kind() {
	case reflect.Bool:
		if f.Bool() {
			return "yes"
		}
		return ""
	case reflect.Int64:
		if f.Int() == 0 && name != "Axis" {
			return ""
		}
		return strconv.FormatInt(f.Int(), 10)
	case reflect.Float64:
		if f.Float() == 0 {
			return ""
		}
		return number(f.Float())
	}
	return f.String()
}

// formula writes down what joined functions of n operands compute, one
// assignment for each that is used more than once.
func formula(o *graph.Pointwise, n int) string {
	uses := map[int64]int{}
	for _, a := range o.Args {
		uses[a]++
	}
	values := make([]string, n, n+len(o.Fns))
	for i := range values {
		values[i] = string(rune('a' + i%26))
	}
	var lines []string
	at := 0
	for i, fn := range o.Fns {
		arity := graph.PointwiseArity(fn)
		var args []string
		for range arity {
			if at < len(o.Args) {
				switch k := o.Args[at]; {
				case k < 0:
					args = append(args, "-")
				case int(k) < len(values):
					args = append(args, values[k])
				}
				at++
			}
		}
		if i < len(o.Alpha) && i < len(o.Beta) {
			for _, v := range []float64{o.Alpha[i], o.Beta[i]} {
				if v != 0 {
					args = append(args, number(v))
				}
			}
		}
		text := fn + "(" + strings.Join(args, ", ") + ")"
		if len(args) == 2 {
			if sign := map[string]string{"add": "+", "sub": "-", "mul": "·", "div": "/"}[fn]; sign != "" {
				text = "(" + args[0] + " " + sign + " " + args[1] + ")"
			}
		}
		if i == len(o.Fns)-1 {
			lines = append(lines, bare(text))
		} else if uses[int64(n+i)] > 1 || len(text) > 60 {
			name := "v" + strconv.Itoa(i+1)
			lines = append(lines, name+" = "+bare(text))
			text = name
		}
		values = append(values, text)
	}
	return strings.Join(lines, "; ")
}

// bare takes off the parentheses around all of a formula.
func bare(text string) string {
	if strings.HasPrefix(text, "(") {
		return text[1 : len(text)-1]
	}
	return text
}
