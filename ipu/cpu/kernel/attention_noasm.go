//go:build !amd64

package kernel

func vectorLanes[T number](wanted int) int { return wanted }

func vectorMultiply[T number](_ []T, _, _, _ int, _ matrix[T], _ []T, _, _ int, _ T, _ []T, _ int, _ bool) bool {
	return false
}

func vectorSoftmaxColumns[T float]([]T, int, float64, float64) bool { return false }
