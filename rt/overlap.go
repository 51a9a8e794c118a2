package rt

import (
	"fmt"

	"github.com/popefgen/popefgen/rt/internal/settings"
)

// WithOverlap lets a runner have that many submitted requests in flight on a device that moves
// the data of some while it computes another: one is loaded, one computed and one stored
// at the same time, in the order in which they were submitted. With fewer than 3 in
// flight nothing overlaps. A lone request waits for nobody.
//
// It is for requests that are submitted, and changes nothing for others: a Run waits for its
// turn between two of them. Where a device gains nothing (the CPU, whose requests are
// computed in the caller's memory) it does nothing at all, and costs nothing. It takes a
// QueueDepth of depth or more to fill. A runner of a fused model refuses it with [ErrOption]: the
// requests of its branches run one after another, also where the model itself asks to overlap.
func WithOverlap(depth int) RunnerOption {
	return forRunner(func(o *settings.Of[Config]) {
		o.Config.Overlap = depth
		if depth < 1 {
			o.Fail("WithOverlap: %w", fmt.Errorf("%w: %d requests in flight, want 1 or more", ErrOption, depth))
		}
	})
}
