package modelrt

import (
	"slices"

	"github.com/popefgen/popefgen/popef/contract"
)

// RingSize tells for how many batches the queue of an anchor has room, at
// least 1: so many times the samples of a batch, each sample enqueued on its
// own. Large rings let a caller run ahead of the device, at the cost of
// latency and, if the caller keeps memory for each, of that.
type RingSize func(Anchor) int

// RingSizeForPrograms gives selected to anchors that one of these programs
// moves and others to the rest, for which 1 is usually enough.
func RingSizeForPrograms(programs []uint32, selected, others int) RingSize {
	programs = slices.Clone(programs)
	return func(a Anchor) int {
		if moves(programs, a) {
			return selected
		}
		return others
	}
}

// RingSizeForMain gives main to anchors that a main program of the model moves,
// or whose programs are not recorded, and others to those that only load or
// save programs move.
func RingSizeForMain(c contract.Contract, main, others int) RingSize {
	return func(a Anchor) int {
		if inMain(c, a) {
			return main
		}
		return others
	}
}

// inMain reports whether an anchor takes part in every run, as far as is
// recorded.
func inMain(c contract.Contract, a Anchor) bool {
	return a.Role == contract.RunInput || a.Role == contract.RunOutput ||
		moves(c.Flow.Main, a)
}
