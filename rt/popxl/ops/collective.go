package ops

import (
	"github.com/popefgen/popefgen/rt/popxl"
)

// AllReduce returns the sum of x over all replicas ([popxl.Ir.SetReplicas]), the same in each of them; of one replica it is x. Its gradient is the sum of the gradients of all replicas. A mean is the sum divided by their number, other reductions are
// those of [AllGather]. Collectives are added to the main graph, and only sessions compute them.
func AllReduce[T popxl.Number](x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Collect("ops.AllReduce", popxl.SumOfReplicas, x)
}

// AllReduceIdenticalInputs returns x, which is the same in all replicas; the gradient is the sum of the gradients of all, as where each computes a part of what follows.
func AllReduceIdenticalInputs[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Collect("ops.AllReduceIdenticalInputs", popxl.SameOperands, x)
}

// AllReduceIdenticalGradInputs returns the sum of x over all replicas, from which all compute the same: the gradient, which is the same in all, stays as it is.
func AllReduceIdenticalGradInputs[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Collect("ops.AllReduceIdenticalGradInputs", popxl.SameGradients, x)
}

// AllGather returns the x of all n replicas, [n, …shape], the same in each of them. Its gradient is the replica's part of the sum of the gradients of all.
func AllGather[T popxl.Element](x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Collect("ops.AllGather", popxl.AllOfReplicas, x)
}

// ReduceScatter returns a part of the sum of x, [n·k, …shape], over all n replicas: [k, …shape], of the first replica the first k along the first axis, and so on. Its gradient is the gradients of all, one behind the other.
func ReduceScatter[T popxl.Number](x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Collect("ops.ReduceScatter", popxl.PartOfSum, x)
}
