package graph

import (
	"fmt"
	"slices"
)

// MatMul is the matrix product with numpy's matmul rules for rank 1 operands
// and for broadcasting the leading axes.
type MatMul struct{}

// Gemm computes Alpha·A'·B' + Beta·C with A' and B' transposed on demand, A'
// [M,K], B' [K,N] and C left out or broadcast one way to [M,N]. If Bounded is
// set the result, of F32, F16 or BF16 then, is kept within Low and High as by
// [Clip]; an infinite one is none.
type Gemm struct {
	TransA, TransB bool
	Alpha, Beta    float64
	Bounded        bool
	Low, High      float64
}

// Kind returns "MatMul".
func (*MatMul) Kind() string { return "MatMul" }

// Infer implements [Op].
func (*MatMul) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "a", "b")
	if err != nil {
		return nil, err
	}
	a, b := in[0], in[1]
	err = firstError(products.want("a", a), sameType("b", b, a), wantRank("a", a, 1), wantRank("b", b, 1))
	if err != nil {
		return nil, err
	}
	// A rank 1 operand is a row (a) or a column (b) whose axis of 1 leaves
	// the result again.
	as, bs := a.Shape, b.Shape
	if len(as) == 1 {
		as = []int64{1, as[0]}
	}
	if len(bs) == 1 {
		bs = []int64{bs[0], 1}
	}
	m, k := as[len(as)-2], as[len(as)-1]
	n := bs[len(bs)-1]
	if bs[len(bs)-2] != k {
		return nil, fmt.Errorf("a is %v and b is %v, want as many columns of a as rows of b: %d and %d", a, b, k, bs[len(bs)-2])
	}
	shape, err := Broadcast(as[:len(as)-2], bs[:len(bs)-2])
	if err != nil {
		return nil, fmt.Errorf("a is %v and b is %v: leading axes: %w", a, b, err)
	}
	shape = slices.Clip(shape)
	if a.Rank() > 1 {
		shape = append(shape, m)
	}
	if b.Rank() > 1 {
		shape = append(shape, n)
	}
	return results(TensorType{a.DType, shape})
}

// Kind returns "Gemm".
func (*Gemm) Kind() string { return "Gemm" }

// Infer implements [Op].
func (o *Gemm) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "a", "b", "c?")
	if err != nil {
		return nil, err
	}
	a, b, c := in[0], in[1], in[2]
	if err := firstError(products.want("a", a), sameType("b", b, a), sameType("c", c, a)); err != nil {
		return nil, err
	}
	if err := wantBounds("a", a, o.Bounded, o.Low, o.High); err != nil {
		return nil, err
	}
	if a.Rank() != 2 || b.Rank() != 2 {
		return nil, fmt.Errorf("a is %v and b is %v, want 2 dimensions each", a, b)
	}
	m, k := a.Shape[0], a.Shape[1]
	if o.TransA {
		m, k = k, m
	}
	kb, n := b.Shape[0], b.Shape[1]
	if o.TransB {
		kb, n = n, kb
	}
	if k != kb {
		return nil, fmt.Errorf("a is %v (transposed: %t) and b is %v (transposed: %t), want as many columns of a as rows of b: %d and %d",
			a, o.TransA, b, o.TransB, k, kb)
	}
	shape := []int64{m, n}
	if present(c) && !BroadcastsTo(c.Shape, shape) {
		return nil, fmt.Errorf("c is %v, want a shape that broadcasts to %s", c, ShapeString(shape))
	}
	return results(TensorType{a.DType, shape})
}
