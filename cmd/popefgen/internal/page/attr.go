package page

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
)

// titleOf names what an operator does, as ONNX does where it can: "Conv",
// "Relu", "ReduceMean", "Mul, Add, Relu" for functions that were joined.
func titleOf(op graph.Op) string {
	switch o := op.(type) {
	case *graph.Pointwise:
		var names []string
		for i, fn := range o.Fns {
			if i == 3 && len(o.Fns) > 4 {
				names = append(names, "…")
				break
			}
			names = append(names, camel(fn))
		}
		return strings.Join(names, ", ")
	case *graph.Reduce:
		return "Reduce" + camel(string(o.Fn))
	case *graph.Bitwise:
		return "Bit" + camel(string(o.Fn))
	case *graph.ScatterElements, *graph.ScatterND:
		return op.Kind()
	case *graph.ArgMax:
		if o.Min {
			return "ArgMin"
		}
	case *graph.ViewedAttention:
		return "Attention"
	case *graph.Cumulate:
		return "Cum" + camel(string(o.Fn))
	}
	s := reflect.ValueOf(op).Elem()
	if f := s.FieldByName("Fn"); f.IsValid() && f.Kind() == reflect.String && f.String() != "" {
		return camel(f.String())
	}
	if after := limits(s); after != "" {
		return op.Kind() + " + " + after
	}
	return op.Kind()
}

// camel turns leaky_relu into LeakyRelu.
func camel(s string) string {
	var b strings.Builder
	for _, w := range strings.Split(s, "_") {
		if w != "" {
			r := []rune(w)
			b.WriteString(string(unicode.ToUpper(r[0])) + string(r[1:]))
		}
	}
	return b.String()
}

// limits names the function that keeps the results of an operator within
// limits, "" if there is none.
func limits(s reflect.Value) string {
	b, low, high := s.FieldByName("Bounded"), s.FieldByName("Low"), s.FieldByName("High")
	if !b.IsValid() || !b.Bool() || !low.IsValid() || !high.IsValid() {
		return ""
	}
	switch {
	case low.Float() == 0 && math.IsInf(high.Float(), 1):
		return "Relu"
	case low.Float() == 0 && high.Float() == 6:
		return "Relu6"
	}
	return "Clip"
}

// brief is the one line of attributes that a box has room for.
func brief(op graph.Op, in []graph.TensorType, all []dump.Attribute) string {
	var parts []string
	value := map[string]string{}
	for _, a := range all {
		value[a.Name] = a.Value
	}
	switch o := op.(type) {
	case *graph.Transpose:
		return "axes " + axes(o.Perm)
	case *graph.Concat:
		return fmt.Sprintf("axis %d", o.Axis)
	case *graph.Reduce:
		return "axes " + axes(o.Axes)
	case *graph.LSTM:
		return fmt.Sprintf("hidden %d", o.Hidden)
	case *graph.GRU:
		return fmt.Sprintf("hidden %d", o.Hidden)
	}
	if value["kernel"] == "" {
		return ""
	}
	if n := value["groups"]; n != "" && len(in) > 0 && in[0].Rank() > 1 && n == strconv.FormatInt(in[0].Shape[1], 10) {
		parts = append(parts, "depthwise "+value["kernel"])
	} else {
		parts = append(parts, value["kernel"])
		if n != "" {
			parts = append(parts, n+" groups")
		}
	}
	for _, name := range []string{"stride", "dilation"} {
		if v := value[name]; v != "" {
			parts = append(parts, name+" "+v)
		}
	}
	return strings.Join(parts, ", ")
}

// axes lists numbers of axes.
func axes(list []int64) string {
	s := make([]string, len(list))
	for i, n := range list {
		s[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(s, ",")
}

// shapeText is a type as edges show it: "1×64×112×112", with the type of the
// elements where it is not the usual one.
func shapeText(t graph.TensorType) string {
	var s []string
	for _, n := range t.Shape {
		s = append(s, strconv.FormatInt(n, 10))
	}
	shape := strings.Join(s, "×")
	if len(s) == 0 {
		shape = "scalar"
	}
	if t.DType != graph.F32 {
		shape = t.DType.String() + " " + shape
	}
	return shape
}
