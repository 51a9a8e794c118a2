package kernel

// peakRound returns a piece of work of some 10 µs and the operations in it.
func peakRound() (flops float64, round func()) {
	const rounds = 5000
	switch path {
	case pathAVX512:
		return 2 * 16 * peakFMAs * rounds, func() { peakAVX512(rounds) }
	case pathAVX2:
		return 2 * 8 * peakFMAs * rounds, func() { peakAVX2(rounds) }
	}
	return goRound()
}

// peakFMAs is how many vectors of multiply-adds one round of peakAVX2 and
// peakAVX512 has; they do n rounds.
const peakFMAs = 14
