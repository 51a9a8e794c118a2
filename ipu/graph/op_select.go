package graph

import (
	"fmt"
	"slices"
)

// comparables are the types whose order is that of their own arithmetic; the
// half-precision types are to be widened first.
var comparables = typeSet{"an integer of 8 bits or more, f32 or f64", []DType{I8, U8, I16, U16, I32, U32, I64, U64, F32, F64}}

// ArgMax computes the position of the greatest element along Axis, or of the
// least if Min, as I64; of equal ones the first, or the last if Last. A NaN
// counts as more extreme than any number. KeepDims leaves the axis as 1.
type ArgMax struct {
	Axis                int64
	Min, Last, KeepDims bool
}

// TopK computes the K greatest elements along Axis, or the least if Least, in
// order, and as its second result their positions (I64). Of equal elements the
// one that comes first goes first. A NaN counts as greater than any number.
type TopK struct {
	Axis, K int64
	Least   bool
}

// CumulateFn names what [Cumulate] accumulates.
type CumulateFn string

// The functions of Cumulate.
const (
	CumulateSum  CumulateFn = "sum"
	CumulateProd CumulateFn = "prod"
)

// Cumulate replaces every element by the sum or product of those before it
// along Axis and, unless Exclusive, itself. Reverse goes from the end.
type Cumulate struct {
	Fn                 CumulateFn
	Axis               int64
	Exclusive, Reverse bool
}

// TfIdf counts n-grams in the rows of x (I32 or I64, [C] or [B,C]). Pool holds
// the n-grams, shortest first; those of n+1 items begin at Counts[n]. The k-th
// n-gram is counted in column Columns[k] of the result, which is F32 and has
// as many columns as the greatest one needs. N-grams of MinGram to MaxGram
// items count, with up to MaxSkip items left out between two of theirs.
// Weights, if there are any, has one number for every column: they scale the
// counts, or replace those that are not 0 if Presence.
type TfIdf struct {
	MinGram, MaxGram, MaxSkip int64
	Counts, Columns, Pool     []int64
	Weights                   []float64
	Presence                  bool
}

// Kind returns "ArgMax".
func (*ArgMax) Kind() string { return "ArgMax" }

// Infer implements [Op].
func (o *ArgMax) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	if err := firstError(comparables.want("x", x), wantAxis(o.Axis, "x", x)); err != nil {
		return nil, err
	}
	shape := slices.Clone(x.Shape)
	shape[o.Axis] = 1
	if !o.KeepDims {
		shape = slices.Delete(shape, int(o.Axis), int(o.Axis)+1)
	}
	out := TensorType{I64, shape}
	if x.Shape[o.Axis] == 0 && out.Elements() != 0 {
		return nil, fmt.Errorf("x is %v, want at least one element along axis %d", x, o.Axis)
	}
	return results(out)
}

// Kind returns "TopK".
func (*TopK) Kind() string { return "TopK" }

// Infer implements [Op].
func (o *TopK) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	if err := firstError(comparables.want("x", x), wantAxis(o.Axis, "x", x)); err != nil {
		return nil, err
	}
	if o.K < 0 || o.K > x.Shape[o.Axis] {
		return nil, fmt.Errorf("attribute K is %d, want 0 to %d for axis %d of x of type %v", o.K, x.Shape[o.Axis], o.Axis, x)
	}
	shape := slices.Clone(x.Shape)
	shape[o.Axis] = o.K
	return results(TensorType{x.DType, shape}, TensorType{I64, shape})
}

// Kind returns "Cumulate".
func (*Cumulate) Kind() string { return "Cumulate" }

// Infer implements [Op].
func (o *Cumulate) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if o.Fn != CumulateSum && o.Fn != CumulateProd {
		return nil, fmt.Errorf("attribute Fn is %q, want sum or prod", string(o.Fn))
	}
	if err := firstError(comparables.want("x", in[0]), wantAxis(o.Axis, "x", in[0])); err != nil {
		return nil, err
	}
	return results(in[0])
}

// Kind returns "TfIdf".
func (*TfIdf) Kind() string { return "TfIdf" }

// Infer implements [Op].
func (o *TfIdf) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	if err := indices.want("x", x); err != nil {
		return nil, err
	}
	if x.Rank() > 2 {
		return nil, fmt.Errorf("x is %v, want at most 2 dimensions", x)
	}
	if o.MinGram < 1 || o.MaxGram < o.MinGram || o.MaxSkip < 0 {
		return nil, fmt.Errorf("attributes MinGram, MaxGram and MaxSkip are %d, %d and %d, want 1 ≤ MinGram ≤ MaxGram and MaxSkip ≥ 0", o.MinGram, o.MaxGram, o.MaxSkip)
	}
	grams, at := int64(0), int64(0)
	for n, begin := range o.Counts {
		end := int64(len(o.Pool))
		if n+1 < len(o.Counts) {
			end = o.Counts[n+1]
		}
		if begin < at || begin > end || end > int64(len(o.Pool)) || (end-begin)%int64(n+1) != 0 {
			return nil, fmt.Errorf("attribute Counts is %s, want places in a pool of %d items between which n-grams fit", ShapeString(o.Counts), len(o.Pool))
		}
		grams += (end - begin) / int64(n+1)
		at = begin
	}
	if grams != int64(len(o.Columns)) {
		return nil, fmt.Errorf("attribute Columns has %d numbers, want one for each of %d n-grams", len(o.Columns), grams)
	}
	columns := int64(0)
	for _, c := range o.Columns {
		if c < 0 || c >= MaxTensorBytes {
			return nil, fmt.Errorf("attribute Columns holds %d, want 0 or more and less than 2^40", c)
		}
		columns = max(columns, c+1)
	}
	if len(o.Weights) != 0 && int64(len(o.Weights)) != columns {
		return nil, fmt.Errorf("attribute Weights has %d numbers, want none or one for each of %d columns", len(o.Weights), columns)
	}
	out := TensorType{F32, []int64{columns}}
	if x.Rank() == 2 {
		out.Shape = []int64{x.Shape[0], columns}
	}
	return results(out)
}
