package kernel

import "golang.org/x/sys/cpu"

//go:generate go -C internal/asm run . ../..

// fastestPath returns the best that the processor and the operating system
// support.
func fastestPath() vectorPath {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C:
		return pathGo
	case x.HasAVX512F && x.HasAVX512VL && x.HasAVX512BW && x.HasAVX512DQ:
		return pathAVX512
	}
	return pathAVX2
}
