package tensor

import "os"

// VectorPath is the set of instructions that the heavy kernels for float32 use:
// those of plain Go, or SIMD instructions in assembly.
type VectorPath uint8

// The sets of instructions, each with those before it.
const (
	PathGo     VectorPath = iota // plain Go
	PathAVX2                     // AVX2, FMA and F16C
	PathAVX512                   // AVX-512 F, VL, BW and DQ as well
)

// String returns the name that POPEFGEN_CPU takes.
func (p VectorPath) String() string { return [...]string{"go", "avx2", "avx512"}[p] }

// Path is the set of instructions of kernels that are bound from now on: the
// dispatch at run time, by CPUID and POPEFGEN_CPU. It is a variable for the tests.
var Path = choosePath(os.Getenv("POPEFGEN_CPU"), FastestPath())

// choosePath returns the path that a value of POPEFGEN_CPU asks for, or the
// fastest one if the machine lacks it or there is none of the name.
func choosePath(want string, fastest VectorPath) VectorPath {
	for p := PathGo; p <= fastest; p++ {
		if p.String() == want {
			return p
		}
	}
	return fastest
}

// Lanes returns the float32 elements of a vector: 16 for AVX-512, else 8.
func (p VectorPath) Lanes() int {
	if p == PathAVX512 {
		return 16
	}
	return 8
}
