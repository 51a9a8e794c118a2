package kernel

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// The names of what estimates of the kernels' times hold for: of the paths, of
// which that with AVX-512 has kernels for bytes as pixels where there is VNNI.
const (
	PathVNNI   = "avx512-vnni"
	PathAVX512 = "avx512"
	PathAVX2   = "avx2"
)

// CostPath returns the name for kernels that are bound from now on, which has no
// costs if they are in plain Go: nothing is estimated for those.
func CostPath() string {
	if nhwc.Supported() {
		return PathVNNI
	}
	return tensor.Path.String()
}

// CostPaths lists all names.
func CostPaths() []string { return []string{PathVNNI, PathAVX512, PathAVX2} }

// IsCostPath reports whether there is such a name.
func IsCostPath(name string) bool { return slices.Contains(CostPaths(), name) }

// Path names the instructions with which kernels compute, as POPEFGEN_CPU
// does: "avx512", "avx2" or "go".
func Path() string { return tensor.Path.String() }
