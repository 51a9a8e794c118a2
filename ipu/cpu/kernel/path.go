package kernel

import "os"

// vectorPath says with which instructions the heavy kernels for float32
// compute: in plain Go, or in assembly that needs vectors of a kind.
type vectorPath uint8

const (
	pathGo     vectorPath = iota
	pathAVX2              // AVX2, FMA and F16C
	pathAVX512            // AVX-512 F, VL, BW and DQ as well
)

// String returns the name that POPEFGEN_CPU takes.
func (p vectorPath) String() string { return [...]string{"go", "avx2", "avx512"}[p] }

// path is how kernels compute that are bound from now on. It is a variable
// for the tests.
var path = choosePath(os.Getenv("POPEFGEN_CPU"), fastestPath())

// choosePath returns the path that a value of POPEFGEN_CPU asks for, or the
// fastest one if the machine lacks it or there is none of the name.
func choosePath(want string, fastest vectorPath) vectorPath {
	for p := pathGo; p <= fastest; p++ {
		if p.String() == want {
			return p
		}
	}
	return fastest
}

// lanes is the number of elements of a vector, where there are some.
func (p vectorPath) lanes() int {
	if p == pathAVX512 {
		return 16
	}
	return 8
}
