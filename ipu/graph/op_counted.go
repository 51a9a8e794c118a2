package graph

import "fmt"

// NonZero finds the elements of x (operand 0, Bool) that are set. Results: their places,
// I64 [rank of x, Bound], a column for each in row-major order and zeros behind the last, and
// how many there are, an I64 scalar. Where these are more than Bound, the first of them
// have columns.
type NonZero struct{ Bound int64 }

// NonMaxSuppression picks boxes by score, best first, that do not overlap too much with
// those picked before, for each batch and class by itself. Operands, of F32: boxes
// [batch,boxes,4], two corners (y1,x1,y2,x2) in any order or, if Centred, the centre and
// the size (x,y,width,height); scores [batch,classes,boxes]; and, each of one element or
// left out, how many boxes to pick for a batch and class (I64, else Most), the part of the union
// of two boxes above which the worse one is left out (else 0), and the score that a
// box must exceed (else none). A NaN is never picked where there is such a score. Of
// equal scores the first goes first.
//
// Results: rows of batch, class and box, I64 [Bound,3], zeros behind the last, and how many
// there are, an I64 scalar: Bound+1 where there would be more.
type NonMaxSuppression struct {
	Most, Bound int64
	Centred     bool
}

// Unique finds the different rows of x (operand 0, at least one axis) among all, or
// among as many as count says (operand 1, I64, one element, may be left out): in
// ascending order if Sorted, a NaN greatest and equal to itself, else in order of
// appearance. Results, each I64 with an element for every row of x and zeros behind the last:
// where the different ones are first, which of them each row is, how often each is
// there, and, a scalar, how many they are.
type Unique struct{ Sorted bool }

// sortable are the types whose elements Unique orders.
var sortable = typeSet{"bool, an integer of 8 bits or more, f32 or f64", append([]DType{Bool}, comparables.types...)}

// wantBound checks the largest size of a counted axis.
func wantBound(bound int64) error {
	if bound < 0 || bound >= MaxTensorBytes {
		return fmt.Errorf("attribute Bound is %d, want 0 or more and less than 2^40", bound)
	}
	return nil
}

// Kind returns "NonZero".
func (*NonZero) Kind() string { return "NonZero" }

// Infer implements [Op].
func (o *NonZero) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if err := firstError(bools.want("x", in[0]), wantBound(o.Bound)); err != nil {
		return nil, err
	}
	return results(TensorType{I64, []int64{int64(in[0].Rank()), o.Bound}}, TensorType{DType: I64})
}

// Kind returns "NonMaxSuppression".
func (*NonMaxSuppression) Kind() string { return "NonMaxSuppression" }

// Infer implements [Op].
func (o *NonMaxSuppression) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "boxes", "scores", "most?", "overlap?", "score?")
	if err != nil {
		return nil, err
	}
	boxes, scores := in[0], in[1]
	if boxes.DType != F32 || scores.DType != F32 || boxes.Rank() != 3 || scores.Rank() != 3 ||
		boxes.Shape[2] != 4 || boxes.Shape[0] != scores.Shape[0] || boxes.Shape[1] != scores.Shape[2] {
		return nil, fmt.Errorf("boxes and scores are %v and %v, want f32[batch,boxes,4] and f32[batch,classes,boxes]", boxes, scores)
	}
	if boxes.Shape[1] > 1<<31-1 {
		return nil, fmt.Errorf("boxes is %v, want less than 2^31 boxes", boxes)
	}
	for i, d := range []DType{I64, F32, F32} {
		t := in[2+i]
		if present(t) && (t.DType != d || t.Elements() != 1) {
			return nil, fmt.Errorf("operand %d (%s) is %v, want one %v", 2+i, [...]string{"most", "overlap", "score"}[i], t, d)
		}
	}
	if o.Most < 0 || o.Most > boxes.Shape[1] {
		return nil, fmt.Errorf("attribute Most is %d, want 0 to %d, the number of boxes", o.Most, boxes.Shape[1])
	}
	if err := wantBound(o.Bound); err != nil {
		return nil, err
	}
	return results(TensorType{I64, []int64{o.Bound, 3}}, TensorType{DType: I64})
}

// Kind returns "Unique".
func (*Unique) Kind() string { return "Unique" }

// Infer implements [Op].
func (o *Unique) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "count?")
	if err != nil {
		return nil, err
	}
	x, count := in[0], in[1]
	if err := firstError(sortable.want("x", x), wantRank("x", x, 1)); err != nil {
		return nil, err
	}
	if present(count) && (count.DType != I64 || count.Elements() != 1) {
		return nil, fmt.Errorf("count is %v, want one i64", count)
	}
	list := TensorType{I64, x.Shape[:1]}
	return results(list, list, list, TensorType{DType: I64})
}
