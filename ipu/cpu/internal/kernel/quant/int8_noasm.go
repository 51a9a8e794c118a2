//go:build !amd64

package quant

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// Int8WayOf returns Int8ByGo: there is no assembly for this processor.
func Int8WayOf(tensor.VectorPath) int8Way { return Int8ByGo }

func vectorInterleave(int8Way, []byte, [4][]byte, int, byte) bool { return false }

func vectorEven(int8Way, []byte, []byte) int { return 0 }

func vectorWidenBytes([]int16, []byte, byte) int { return 0 }

func int8Products(_ int8Way, args *int8Args) { int8SumsGo[uint8, int8](args) }

func int8Convolve(_ int8Way, args *int8Args) { int8SumsGo[int8, uint8](args) }

func int8Finish(_ int8Way, kind int8Kind, byRows bool, args *int8FinishArgs) {
	int8FinishGo(kind, byRows, args)
}

func int8Plane(_ int8Way, kind int8Kind, args *int8PlaneArgs, n int) { int8PlaneGo(kind, args, n) }
