package tensor

import "golang.org/x/sys/cpu"

// FastestPath returns the widest instructions that the processor and the operating
// system support, by CPUID.
func FastestPath() VectorPath {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C:
		return PathGo
	case x.HasAVX512F && x.HasAVX512VL && x.HasAVX512BW && x.HasAVX512DQ:
		return PathAVX512
	}
	return PathAVX2
}
