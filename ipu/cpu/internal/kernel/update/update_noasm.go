//go:build !amd64

package update

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// vectorAdam does nothing: there is no assembly for this processor.
func vectorAdam[T tensor.Float](*block[T], bool) bool { return false }
