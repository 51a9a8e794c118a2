package graph

import (
	"fmt"
	"reflect"
	"slices"
)

// Gradient goes back through another operator in one pass over memory. Operands: the gradient of
// the operator's first result, then the operator's operands (Softmax: its result in their place). Results: the gradient of each
// of these operands, of its type; of Softmax, that of its operand. The rules are those of package autodiff, which makes these operators.
//
// Of is the kind of the operator: AveragePool, GroupNorm, LayerNorm, MaxPool, RMSNorm or Softmax. The attributes are that operator's, and the
// zero value of those that it does not have. Scale and bias of LayerNorm and RMSNorm have the shape of the normalised axes.
type Gradient struct {
	Of                         string
	Kernel, Strides, Dilations []int64
	PadsBegin, PadsEnd         []int64
	Ceil, CountIncludePad      bool
	ColumnMajor, Log           bool
	Axis, Groups               int64
	Epsilon                    float64
}

var gradientsOf = []string{"AveragePool", "GroupNorm", "LayerNorm", "MaxPool", "RMSNorm", "Softmax"}

// GradientOf returns the gradient of an operator, nil if there is none of its kind.
func GradientOf(op Op) *Gradient {
	if !slices.Contains(gradientsOf, op.Kind()) {
		return nil
	}
	o := &Gradient{Of: op.Kind()}
	copyFields(o, op)
	return o
}

// Forward returns the operator that o is the gradient of, nil if there is no such kind.
func (o *Gradient) Forward() Op {
	if !slices.Contains(gradientsOf, o.Of) {
		return nil
	}
	op := NewOp(o.Of)
	copyFields(op, o)
	return op
}

// copyFields sets the attributes of an operator to those of the same name of another.
func copyFields(to, from Op) {
	t, f := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range t.NumField() {
		if v := f.FieldByName(t.Type().Field(i).Name); v.IsValid() {
			t.Field(i).Set(v)
		}
	}
}

// Kind returns "Gradient".
func (*Gradient) Kind() string { return "Gradient" }

// Infer implements [Op].
func (o *Gradient) Infer(in []TensorType) ([]TensorType, error) {
	f := o.Forward()
	if f == nil {
		return nil, fmt.Errorf("attribute Of is %q, want one of %v", o.Of, gradientsOf)
	}
	if want := OpString(GradientOf(f)); OpString(o) != want {
		return nil, fmt.Errorf("attributes are %s, want none that %s does not have: %s", OpString(o), o.Of, want)
	}
	for len(in) > 2 && !present(in[len(in)-1]) {
		in = in[:len(in)-1]
	}
	all, err := operands(in, "dy", "x", "scale?", "bias?")
	if err != nil {
		return nil, err
	}
	dy, x := all[0], all[1]
	y, err := f.Infer(in[1:])
	if err != nil {
		return nil, err
	}
	if err := floats.want("x", x); err != nil {
		return nil, err
	}
	if !dy.Equal(y[0]) {
		return nil, fmt.Errorf("dy is %v, want the type of the result of %s, %v", dy, o.Of, y[0])
	}
	if o.Of == "LayerNorm" || o.Of == "RMSNorm" {
		err = firstError(wantShape("scale", all[2], x.Shape[o.Axis:]...), wantShape("bias", all[3], x.Shape[o.Axis:]...))
	}
	if err != nil {
		return nil, err
	}
	return results(slices.Clone(in[1:])...) // callers change the list of results
}
