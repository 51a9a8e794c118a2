//go:build !amd64

package peak

func peakRound() (flops float64, round func()) { return goRound() }
