package ops

import "github.com/popefgen/popefgen/rt/popxl"

// Repeat returns body(…body(body(x))…), n times, at least 0: a loop, whose body is added once. body may use other tensors, which are the same in all iterations.
func Repeat[T popxl.Element](n int64, x popxl.Tensor[T], body func(x popxl.Tensor[T]) popxl.Tensor[T]) popxl.Tensor[T] {
	var loop func(popxl.Tensor[int64], []popxl.Operand) []popxl.Operand
	if body != nil {
		loop = func(_ popxl.Tensor[int64], in []popxl.Operand) []popxl.Operand {
			return []popxl.Operand{body(popxl.As[T](in[0]))}
		}
	}
	return popxl.As[T](popxl.Loop("ops.Repeat", n, loop, x)[0])
}

// Repeat2 is [Repeat] with two values, which may be of different types.
func Repeat2[T, U popxl.Element](n int64, x popxl.Tensor[T], y popxl.Tensor[U], body func(popxl.Tensor[T], popxl.Tensor[U]) (popxl.Tensor[T], popxl.Tensor[U])) (popxl.Tensor[T], popxl.Tensor[U]) {
	var loop func(popxl.Tensor[int64], []popxl.Operand) []popxl.Operand
	if body != nil {
		loop = func(_ popxl.Tensor[int64], in []popxl.Operand) []popxl.Operand {
			a, b := body(popxl.As[T](in[0]), popxl.As[U](in[1]))
			return []popxl.Operand{a, b}
		}
	}
	out := popxl.Loop("ops.Repeat2", n, loop, x, y)
	return popxl.As[T](out[0]), popxl.As[U](out[1])
}

// Conditional returns then() if cond, of one element, is true, and otherwise() if it is false. The operators of one of the two functions are computed. Their results have the same sizes.
func Conditional[T popxl.Element](cond popxl.Tensor[bool], then, otherwise func() popxl.Tensor[T]) popxl.Tensor[T] {
	branch := func(f func() popxl.Tensor[T]) func() []popxl.Operand {
		if f == nil {
			return nil
		}
		return func() []popxl.Operand { return []popxl.Operand{f()} }
	}
	out := popxl.If("ops.Conditional", cond, branch(then), branch(otherwise))
	if len(out) == 0 {
		return popxl.Failed[T](cond.Ir())
	}
	return popxl.As[T](out[0])
}
