//go:build !amd64

package kernel

func vectorBlock[T number](_ []T, _, _, _ int, _ matrix[T], _ []T, _, _ int, _ T) bool { return false }

func vectorPack[T number]([]T, matrix[T], int, int) bool { return false }

func vectorized[T number](*product[T]) Kernel { return nil }
