package tensor

import "os"

// VectorPath says with which instructions the heavy kernels for float32
// compute: in plain Go, or in assembly that needs vectors of a kind.
type VectorPath uint8

const (
	PathGo     VectorPath = iota
	PathAVX2              // AVX2, FMA and F16C
	PathAVX512            // AVX-512 F, VL, BW and DQ as well
)

// String returns the name that POPEFGEN_CPU takes.
func (p VectorPath) String() string { return [...]string{"go", "avx2", "avx512"}[p] }

// Path is how kernels compute that are bound from now on. It is a variable
// for the tests.
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

// Lanes is the number of elements of a vector, where there are some.
func (p VectorPath) Lanes() int {
	if p == PathAVX512 {
		return 16
	}
	return 8
}
