package peak

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// peakRound returns a piece of work of some 10 µs and the operations in it.
func peakRound() (flops float64, round func()) {
	const rounds = 5000
	switch tensor.Path {
	case tensor.PathAVX512:
		return 2 * 16 * peakFMAs * rounds, func() { peakAVX512(rounds) }
	case tensor.PathAVX2:
		return 2 * 8 * peakFMAs * rounds, func() { peakAVX2(rounds) }
	}
	return goRound()
}

// peakFMAs is how many vectors of multiply-adds one round of peakAVX2 and
// peakAVX512 has; they do n rounds.
const peakFMAs = 14
