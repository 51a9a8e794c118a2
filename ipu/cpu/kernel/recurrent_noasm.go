//go:build !amd64

package kernel

func (t *recurrentTask[T]) vectorUnit(_, _, _, _ int, _, _, _ []T) bool { return false }

func vectorProducts[T float](_ []T, _, _, _ int, _ matrix[T], _ []T, _ int, _ []T) bool {
	return false
}

func (t *recurrentTask[T]) vectorGates(*groupProduct) bool { return false }
